# SPDX-License-Identifier: MulanPSL-2.0
"""Wheels and source archives: the same bytes whenever the same files go in."""

import base64
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import time
import zipfile

from . import metadata
from .metadata import DATA, DIST_INFO, STEM, TOP

# Where pip puts the staged folders. Libraries go to lib64, beside which programs look as well: pip
# loses files of lib with --target, and in a virtual environment lib64 is lib. Units of services
# name programs by their path and are left to `make install`.
PLACES = [
    ("bin/", DATA + "/scripts/"),
    ("lib/python/", ""),
    ("lib/systemd/", None),
    ("lib/", DATA + "/data/lib64/"),
    ("include/", DATA + "/data/include/"),
    ("share/man/", DATA + "/data/share/man/"),
    ("share/", None),
]

# A wheel holds no links: each name of the one program is a script.
OTHER_NAME = """\
#!/bin/sh
# SPDX-License-Identifier: MulanPSL-2.0
# The program beside this file, under another name.
self=$0
[ ! -L "$self" ] || self=$(readlink -f -- "$self")
case $self in
*/*) exec "${{self%/*}}/{program}" {name} "$@" ;;
*) exec ./{program} {name} "$@" ;;
esac
"""

# For an editable installation.
ELSEWHERE = """\
#!/bin/sh
# SPDX-License-Identifier: MulanPSL-2.0
exec {path} "$@"
"""
SOURCED_ELSEWHERE = """\
#!/bin/sh
# SPDX-License-Identifier: MulanPSL-2.0
# Sourced by bash or zsh, it goes on in the sourced file; nothing is left behind.
if [ -n "${{BASH_VERSION:-}}" ] && eval '[ "${{BASH_SOURCE[0]}}" != "$0" ]'; then
	. {path} "$@"
elif [ -n "${{ZSH_VERSION:-}}" ]; then
	. {path} "$@"
else
	exec {path} "$@"
fi
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def walk(top):
    """(path below top, whole path) of every file and link."""
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, top), path


def place(name):
    for prefix, to in PLACES:
        if name.startswith(prefix):
            return None if to is None else to + name[len(prefix) :]
    raise ValueError(f"'{name}' is installed, but has no place in the wheel (archive.py, PLACES)")


def of_stage(stage):
    """(name in the wheel, bytes, whether it is a program) of what `make install` has put there."""
    entries = []
    for name, path in walk(stage):
        to = place(name)
        if to is None:
            continue
        if os.path.islink(path):
            text = OTHER_NAME.format(program=os.readlink(path), name=os.path.basename(path))
            entries.append((to, text.encode(), True))
        else:
            entries.append((to, read(path), os.access(path, os.X_OK)))
    return entries


def of_tree(build):
    """An installation that uses a build where it is."""
    entries = [(f"{metadata.NAME}.pth", os.path.join(build, "python").encode() + b"\n", False)]
    for name, path in walk(os.path.join(build, "bin")):
        sourced = name == "msmemscope"
        text = (SOURCED_ELSEWHERE if sourced else ELSEWHERE).format(path=quoted(path))
        entries.append((f"{DATA}/scripts/{name}", text.encode(), True))
    return entries


def epoch():
    """The time of every file: 1980, where zip's begins, or what $SOURCE_DATE_EPOCH says."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(directory, entries):
    entries = sorted(entries) + [(f"{DIST_INFO}/{n}", d, False) for n, d in metadata.files()]
    record = "".join(f"{n},sha256={digest(d)},{len(d)}\n" for n, d, _ in entries)
    record += f"{DIST_INFO}/RECORD,,\n"
    entries.append((f"{DIST_INFO}/RECORD", record.encode(), False))
    name = f"{STEM}-{metadata.tag()}.whl"
    when = time.gmtime(epoch())[:6]
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_DEFLATED) as z:
        for to, data, is_program in entries:
            info = zipfile.ZipInfo(to, when)
            info.external_attr = (0o100755 if is_program else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, data)
    return name


def sources():
    """The files of the tree: what git knows or would add, else everything that is not built."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if os.path.exists(os.path.join(TOP, ".git")) and shutil.which("git"):
        listed = subprocess.run(git, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if listed.returncode == 0:
            names = listed.stdout.decode().split("\0")
            return sorted(n for n in names if n and os.path.lexists(os.path.join(TOP, n)))
    names = []
    for folder, folders, files in os.walk(TOP):
        inside = os.path.relpath(folder, TOP)
        folders[:] = [
            f
            for f in folders
            if f not in (".git", "__pycache__", ".pytest_cache")
            and not (inside == "." and f.startswith(("build", "memscopeDumpResults")))
        ]
        names += [os.path.normpath(os.path.join(inside, n)) for n in files if n != "PKG-INFO"]
    return sorted(names)


def write_sdist(directory):
    name = f"{STEM}.tar.gz"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def plain(info):
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = epoch()
            info.mode = 0o755 if info.mode & 0o100 else 0o644
            return info

        for path in sources():
            tar.add(os.path.join(TOP, path), f"{STEM}/{path}", recursive=False, filter=plain)
        text = metadata.metadata().encode()
        info = tarfile.TarInfo(f"{STEM}/PKG-INFO")
        info.size = len(text)
        info.mode = 0o644
        tar.addfile(plain(info), io.BytesIO(text))
    with open(os.path.join(directory, name), "wb") as f:
        with gzip.GzipFile(filename="", mode="wb", fileobj=f, mtime=0) as z:
            z.write(raw.getvalue())
    return name
