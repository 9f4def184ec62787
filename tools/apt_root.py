# SPDX-License-Identifier: MulanPSL-2.0
"""What tools/fetch_pythons and tools/fetch_torch share: packages of the distribution's newest
suite, unpacked into a directory of their own with all the libraries they need. Installs nothing.

The mirror is the one that the system's own package sources name. The programs are changed to use
the loader and the libraries beside them: DIRECTORY/root/usr/bin/python3.X simply runs.
"""

import argparse
import fcntl
import glob
import os
import re
import shutil
import struct
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# By the last part of a mirror's address: the newest suite, where its packages are, who signs it.
DISTRIBUTIONS = {
    "debian": ("sid", "main", "/usr/share/keyrings/debian-archive-keyring.gpg"),
    "ubuntu": ("devel", "main universe", "/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
}
# Nothing that a program reads, and the packages' own tests.
NOT_UNPACKED = ["./usr/share/" + name for name in "doc info lintian locale man".split()]
NOT_UNPACKED += ["*/dist-packages/*/tests", "*/dist-packages/torch/bin/*[tT]est*"]


class Unavailable(Exception):
    pass


def mirrors():
    """Addresses in the system's package sources, both kinds of file."""
    found = []
    for name in ["/etc/apt/sources.list"] + sorted(glob.glob("/etc/apt/sources.list.d/*")):
        try:
            with open(name, encoding="utf-8") as f:
                lines = [line for line in f if not line.lstrip().startswith("#")]
        except OSError:
            continue
        for line in lines:
            if re.match(r"deb\s|URIs:", line):
                found += re.findall(r"https?://[^\s\]]+", line)
    return found


def choose_mirror(given):
    for url in [given] if given else mirrors():
        if url.rstrip("/").rsplit("/", 1)[-1] in DISTRIBUTIONS:
            return url.rstrip("/")
    raise Unavailable("the system's package sources name no mirror with newer versions")


class Apt:
    """apt-get with every file of its own in one directory."""

    def __init__(self, directory, mirror):
        self.dir = directory
        suite, components, key = DISTRIBUTIONS[mirror.rsplit("/", 1)[-1]]
        if not os.path.exists(key):
            raise Unavailable(f"no {key} to check the packages with")
        for sub in ("state/lists/partial", "cache/archives/partial", "etc"):
            os.makedirs(os.path.join(directory, sub), exist_ok=True)
        self.write("state/status", "")
        self.write("etc/sources.list", f"deb [signed-by={key}] {mirror} {suite} {components}\n")
        self.options = [
            f"Dir::State={directory}/state",
            f"Dir::State::status={directory}/state/status",
            f"Dir::Cache={directory}/cache",
            f"Dir::Etc={directory}/etc",
            f"Dir::Etc::sourcelist={directory}/etc/sources.list",
            "Dir::Etc::sourceparts=/dev/null",
            "APT::Sandbox::User=",
            "APT::Install-Recommends=false",
            "APT::Update::Error-Mode=any",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::Retries=1",
            "Acquire::http::Timeout=10",
        ]

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w", encoding="utf-8") as f:
            f.write(text)

    def run(self, *command, cwd=None):
        options = [word for option in self.options for word in ("-o", option)]
        done = subprocess.run(
            [command[0], *options, *command[1:]],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=600,
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise Unavailable(" ".join([command[0], "failed:"] + lines[:1]))
        return done.stdout

    def download(self, packages, left_out=None):
        """The packages and everything they depend on but what the pattern `left_out` matches; the
        paths of the files."""
        plan = self.run("apt-get", "-qq", "-s", "install", *packages)
        names = re.findall(r"^Inst (\S+)", plan, re.M)
        archives = os.path.join(self.dir, "cache/archives")
        wanted = [n for n in names if not left_out or not re.match(left_out, n)]
        self.run("apt-get", "-qq", "download", *wanted, cwd=archives)
        return sorted(glob.glob(os.path.join(archives, "*.deb")))


def unpack(files, root):
    for empty in ("dev", "proc", "tmp"):  # to be used as the root of a process
        os.makedirs(os.path.join(root, empty))
    for merged in ("bin", "lib", "lib64", "sbin"):
        os.makedirs(os.path.join(root, "usr", merged), exist_ok=True)
        os.symlink("usr/" + merged, os.path.join(root, merged))
    into = ["tar", "-x", "-C", root, "--keep-directory-symlink", "--no-same-owner"]
    into += ["--exclude=" + name for name in NOT_UNPACKED]
    for name in files:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", name], stdout=subprocess.PIPE) as deb:
            subprocess.run(into, stdin=deb.stdout, check=True)
        if deb.returncode != 0:
            raise Unavailable(f"cannot unpack {os.path.basename(name)}")


def loader_of(root):
    """The dynamic loader, and where the libraries beside it are."""
    for name in glob.glob(os.path.join(root, "usr/lib*/ld-linux-*.so.*")):
        libraries = glob.glob(os.path.join(root, "usr/lib/*-linux-gnu"))
        return name, ":".join(libraries + [os.path.join(root, "usr/lib")])
    raise Unavailable("the packages hold no dynamic loader")


def interpreters(root):
    found = glob.glob(os.path.join(root, "usr/bin/python3.*"))
    return sorted(p for p in found if re.search(r"/python3\.\d+t?(-nogil)?$", p))


class Elf:
    """A 64-bit little-endian program in memory."""

    LOAD, DYNAMIC, INTERP = 1, 2, 3
    STRTAB, RPATH, RUNPATH = 5, 15, 29

    def __init__(self, data):
        self.data = bytearray(data)
        first, size, count = self.word(32), self.half(54), self.half(56)
        self.headers = [first + size * i for i in range(count)]

    def word(self, at):
        return struct.unpack_from("<Q", self.data, at)[0]

    def half(self, at):
        return struct.unpack_from("<H", self.data, at)[0]

    def put(self, at, *words):
        struct.pack_into("<%dQ" % len(words), self.data, at, *words)

    def of_type(self, wanted):
        """(where the header is, flags, offset, address, size in the file)"""
        for at in self.headers:
            kind, flags = struct.unpack_from("<II", self.data, at)
            if kind == wanted:
                yield (at, flags, self.word(at + 8), self.word(at + 16), self.word(at + 32))

    def room(self, size):
        """Offset and address of unused bytes behind a segment, in its last page."""
        for _, flags, offset, address, length in self.of_type(self.LOAD):
            end = offset + length
            left = -end % 4096
            if not flags & 2 and left >= size and not any(self.data[end : end + size]):
                return end, address + length
        raise Unavailable("no room in the program for the path of its libraries")

    def tags(self):
        """The dynamic section: where each tag is first, and where the section ends."""
        for _, _, at, _, length in self.of_type(self.DYNAMIC):
            return {self.word(i): i for i in reversed(range(at, at + length, 16))}, at + length
        raise Unavailable("not a dynamic program")

    def use(self, loader, libraries):
        """Another loader, and where it looks for libraries first."""
        loader, libraries = loader.encode() + b"\0", libraries.encode() + b"\0"
        offset, address = self.room(len(loader + libraries))
        self.data[offset : offset + len(loader + libraries)] = loader + libraries
        for at, *_ in self.of_type(self.INTERP):
            self.put(at + 8, offset, address, address, len(loader), len(loader))
        self.yield_to_program()
        tags, end = self.tags()
        if 0 not in tags or tags[0] + 32 > end:
            raise Unavailable("no room in the program for one more entry")
        strings = self.word(tags[self.STRTAB] + 8)
        self.put(tags[0], self.RPATH, (address + len(loader) - strings) % 2**64)

    def yield_to_program(self):
        """A DT_RUNPATH hides the DT_RPATH of the program, a DT_RPATH does not; of two in one file
        the last counts."""
        tags, _ = self.tags()
        if self.RUNPATH in tags:
            self.put(tags[self.RUNPATH], self.RPATH)


def change(path, how):
    """Changes an ELF file by a function of an Elf."""
    with open(path, "rb+") as f:
        elf = Elf(f.read())
        how(elf)
        f.seek(0)
        f.write(elf.data)


def adapt(root, programs):
    """Lets programs find their own loader and libraries when they are simply run."""
    loader, libraries = loader_of(root)
    for program in programs:
        if not os.path.islink(program):
            change(program, lambda elf: elf.use(loader, libraries))


def is_done(directory):
    """Also whether it was done here: the programs hold the name of the directory."""
    try:
        with open(os.path.join(directory, "done"), encoding="utf-8") as f:
            return f.read() == directory
    except FileNotFoundError:
        return False


def try_code(python, code):
    """Runs it and keeps what was compiled on the way, whatever the environment says: packages come
    without, and many tests must not write into a program's folder."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", code],
        cwd="/",
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise Unavailable((done.stderr.splitlines() or ["it does not run"])[-1])


def fetch(directory, mirror, choose, left_out, finish):
    apt = Apt(os.path.join(directory, "apt"), choose_mirror(mirror))
    apt.run("apt-get", "-qq", "update")
    files = apt.download(choose(apt), left_out)
    root = os.path.join(directory, "root")
    unpack(files, root)
    adapt(root, interpreters(root))
    finish(root)
    shutil.rmtree(os.path.join(directory, "apt"))
    done = os.path.join(directory, "done")
    with open(f"{done}.new", "w", encoding="utf-8") as f:
        f.write(directory)
    # another file: of a copy made of hard links, this name may be that of the original, too
    os.replace(f"{done}.new", done)


def main(doc, default, what, choose, left_out=None, finish=lambda root: None):
    """A tool: `choose` names the packages, `finish` is called for what has been unpacked. Either
    raises Unavailable with a reason, which is said behind `what`."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--mirror", help="instead of the one that the system's sources name")
    parser.add_argument("directory", nargs="?", default=os.path.join(TOP, default))
    args = parser.parse_args()
    directory = os.path.realpath(args.directory)
    os.makedirs(directory, exist_ok=True)
    root = os.path.join(directory, "root")
    with open(os.path.join(directory, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_done(directory):
            try:
                shutil.rmtree(root, ignore_errors=True)
                fetch(directory, args.mirror, choose, left_out, finish)
            except (Unavailable, OSError, subprocess.SubprocessError) as why:
                shutil.rmtree(root, ignore_errors=True)
                sys.exit(f"{what}: {why}")
    for path in interpreters(root):
        print(path)
