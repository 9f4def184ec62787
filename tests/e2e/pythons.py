# SPDX-License-Identifier: MulanPSL-2.0
"""Every Python interpreter that tests can look at: those of this machine, and newer ones that
tools/fetch_pythons unpacks into build/pythons.

    @pytest.mark.parametrize("python", every_python())
    def test_something(python):
        subprocess.run([python.path, ...])
"""

import collections
import functools
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
FETCHED = TOP / "build/pythons"
OLDEST, NEWEST = 7, 15
FETCHED_MINORS = (14, 15)  # the least that tests should see beside the machine's own

# label: "3.12.1", "3.13.0t" (free-threaded); minor: of 3.minor
Python = collections.namedtuple("Python", "label path minor")

ASK = """
import sys, sysconfig
print("%d.%d.%d" % sys.version_info[:3], sysconfig.get_config_var("Py_GIL_DISABLED") or 0)
"""


@functools.lru_cache(maxsize=None)
def fetch():
    """Brings the newer interpreters: their paths, and why there are none."""
    try:
        done = subprocess.run(
            [sys.executable, str(TOP / "tools/fetch_pythons"), str(FETCHED)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=300,
        )
    except subprocess.TimeoutExpired:
        return [], "no newer Python: fetching it takes too long"
    return done.stdout.split(), done.stderr.strip()


def installed():
    """Programs python3.X of pyenv, of every directory in PATH, and those in $SONDE_PYTHONS."""
    found = os.environ.get("SONDE_PYTHONS", "").split(":")
    folders = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin")))
    folders += os.environ.get("PATH", "").split(":") + ["/usr/bin", "/usr/local/bin"]
    for folder in folders:
        names = sorted(glob.glob(os.path.join(folder, "python3.*")))
        found += [n for n in names if re.search(r"/python3\.\d+t?$", n)]
    return found


def is_program(path):
    """Not a script that starts another one, as pyenv's shims do."""
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF"
    except OSError:
        return False


def ask(path):
    """(version, whether it is free-threaded), or None if it does not run."""
    try:
        text = subprocess.run(
            [path, "-I", "-S", "-c", ASK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=30,
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return (text[0], text[1] == "1") if len(text) == 2 else None


@functools.lru_cache(maxsize=None)
def pythons():
    """All interpreters from 3.7 to 3.15, oldest first: (label, path, minor)."""
    found, seen, labels = [], set(), set()
    for path in installed() + fetch()[0]:
        real = os.path.realpath(path)
        if real in seen or not is_program(real):
            continue
        seen.add(real)
        answer = ask(path)
        if not answer:
            continue
        version, free_threaded = answer
        minor = int(version.split(".")[1])
        label = version + ("t" if free_threaded else "")
        while label in labels:
            label += "+"
        if OLDEST <= minor <= NEWEST:
            labels.add(label)
            found.append(Python(label, path, minor))
    return sorted(found, key=lambda p: [int(n) for n in re.findall(r"\d+", p.label)])


def is_free_threaded(python):
    return python.label.rstrip("+").endswith("t")


def param_of(python, extensions):
    marks = []
    if extensions and is_free_threaded(python):
        marks.append(pytest.mark.lacks("stable-abi", "free-threaded"))
    return pytest.param(python, id=python.label, marks=marks)


def every_python(oldest=OLDEST, newest=NEWEST, extensions=None):
    """For pytest.mark.parametrize; what could not be had is there too, skipped with the reason.
    extensions: whether tests use those of our packages; without: as those do that need 3.8."""
    found = [p for p in pythons() if oldest <= p.minor <= newest]
    extensions = oldest == 8 if extensions is None else extensions
    params = [param_of(p, extensions) for p in found]
    for minor in FETCHED_MINORS:
        if oldest <= minor <= newest and all(p.minor != minor for p in found):
            why = fetch()[1] or f"no Python 3.{minor}: the newest suite does not have it"
            params.append(pytest.param(None, id=f"3.{minor}", marks=pytest.mark.lacks(f"python-3.{minor}", why)))
    return params


def one_per_minor(oldest=OLDEST, newest=NEWEST, extensions=None):
    """The same with one interpreter of each version only, for tests that take long."""
    seen, params = set(), []
    for param in every_python(oldest, newest, extensions):
        python = param.values[0]
        key = (python.minor, is_free_threaded(python)) if python else param.id
        if key not in seen:
            seen.add(key)
            params.append(param)
    return params


def free_threaded():
    """For pytest.mark.parametrize: interpreters without a GIL, of which few distributions have one."""
    found = [param_of(p, False) for p in pythons() if is_free_threaded(p)]
    why = "no free-threaded CPython: SONDE_PYTHONS=/path/to/python3.14t names one"
    return found or [pytest.param(None, id="none", marks=pytest.mark.lacks("free-threaded", why))]


def is_fetched(python):
    return str(python.path).startswith(str(FETCHED) + "/")


def through_loader(python):
    """How to run a fetched interpreter so that /proc/PID/exe is the dynamic loader; else None."""
    loaders = glob.glob(str(FETCHED / "root/usr/lib*/ld-linux-*.so.*"))
    return [loaders[0], python.path] if is_fetched(python) and loaders else None


def in_root(python, *options):
    """How to run a fetched interpreter in a mount namespace whose root is its own; `options` are
    more of unshare's. None where that is not possible."""
    root = FETCHED / "root"
    if not is_fetched(python) or not shutil.which("unshare"):
        return None
    # The paths that the program was given are the same in there.
    inside = root / str(FETCHED).lstrip("/")
    inside.mkdir(parents=True, exist_ok=True)
    if not (inside / "root").is_symlink():
        (inside / "root").symlink_to("/")
    command = ["unshare", "--mount", f"--root={root}"]
    command += ["--map-root-user"] if os.geteuid() else []
    command += [*options, str(python.path)[len(str(root)) :]]
    return command if ask_through(command) else None


def ask_through(command):
    try:
        return subprocess.run(command + ["-c", ""], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    for p in pythons():
        print(*p)
    if fetch()[1]:
        print(fetch()[1])
