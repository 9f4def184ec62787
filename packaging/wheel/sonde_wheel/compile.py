# SPDX-License-Identifier: MulanPSL-2.0
"""Runs make, into a folder of its own below build/ (a temporary one where the tree cannot be
written to, $SONDE_BUILD where it is set). What was built there before is used again."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from .metadata import TOP


class Build:
    def __init__(self, folder, words):
        self.dir = folder
        self.words = [f"O={self.name_for_make()}", *self.headers(), *words]

    def name_for_make(self):
        """make splits names at spaces: those of the tree do not matter to it if it starts there."""
        inside = os.path.relpath(self.dir, TOP)
        return self.dir if inside.startswith("..") else inside

    def headers(self):
        """Those of the interpreter that asks, if it has any; else the Makefile looks for others."""
        include = sysconfig.get_path("include")
        if not os.path.exists(os.path.join(include, "Python.h")):
            return []
        link = os.path.join(self.dir, "python-headers")
        if not os.path.islink(link) or os.readlink(link) != include:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)
            os.symlink(include, link)
        return [f"PYTHON_INCLUDE={self.name_for_make()}/python-headers"]

    def make(self, *words):
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        jobs = len(os.sched_getaffinity(0))
        command = ["make", "--no-print-directory", f"-j{jobs}", *self.words, *words]
        sys.stdout.flush()
        if subprocess.run(command, cwd=TOP, env=env, stdin=subprocess.DEVNULL).returncode != 0:
            sys.exit(explain())

    def stage(self):
        """What `make install` installs, as a tree."""
        stage = os.path.join(self.dir, "wheel-stage")
        shutil.rmtree(stage, ignore_errors=True)
        self.make("install", "PREFIX=", f"DESTDIR={self.name_for_make()}/wheel-stage")
        strip(stage)
        return stage

    def link_packages(self):
        """A build whose Python files are links to those of the tree."""
        self.make("guest", "own")
        source, packages = os.path.join(TOP, "src", "python"), os.path.join(self.dir, "python")
        for folder, _, names in os.walk(packages):
            for name in names:
                path = os.path.join(folder, name)
                original = os.path.join(source, os.path.relpath(path, packages))
                if name.endswith(".py") and os.path.exists(original):
                    os.unlink(path)
                    os.symlink(original, path)
        return self.dir


def strip(stage):
    """Debugging information is four fifths of the whole; names of functions stay."""
    if not shutil.which("strip"):
        return
    found = []
    for folder, _, names in os.walk(stage):
        for path in (os.path.join(folder, name) for name in names):
            if not os.path.islink(path):
                with open(path, "rb") as f:
                    found += [path] if f.read(4) == b"\x7fELF" else []
    subprocess.run(["strip", "--strip-debug", *sorted(found)], check=True)


def explain():
    """Why make may have failed, and what to do about it."""
    env = dict(os.environ, PYTHON=sys.executable)
    missing = subprocess.run(
        ["sh", "bootstrap", "needs", "build"],
        cwd=TOP,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
    ).stdout.split()
    if not missing:
        return "sonde: the build failed; the reason is above"
    return (
        f"sonde: missing to build it: {', '.join(missing)}\n"
        f"sonde: `./bootstrap build` in {TOP} installs what is missing; then run pip again"
    )


def usable(folder):
    try:
        os.makedirs(folder, exist_ok=True)
        return os.access(folder, os.W_OK)
    except OSError:
        return False


@contextlib.contextmanager
def built(name, settings):
    """A Build in build/NAME, which nobody else uses meanwhile."""
    words = (settings or {}).get("make", "")
    words = words.split() if isinstance(words, str) else list(words)
    if not shutil.which("make"):
        sys.exit(explain())
    with contextlib.ExitStack() as stack:
        folder = os.path.join(TOP, "build", name)
        if os.environ.get("SONDE_BUILD"):
            folder = os.path.abspath(os.environ["SONDE_BUILD"])
        if not usable(folder):
            if name == "editable":
                sys.exit(f"sonde: cannot write to {folder}, which pip install -e needs")
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sonde-wheel-"))
        lock = stack.enter_context(open(os.path.join(folder, "wheel-lock"), "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Build(folder, words)
