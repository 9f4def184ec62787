# SPDX-License-Identifier: MulanPSL-2.0
"""Packages of other people that tests read our files with, fetched by pip into build/packages and
nowhere else.

    openpyxl = pip_packages.need("openpyxl")     a directory for sys.path; else the test is skipped
"""

import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys

from capabilities import lacks

FETCHED = pathlib.Path(__file__).resolve().parents[2] / "build/packages"


@functools.lru_cache(maxsize=None)
def fetch(name):
    """The directory that holds the package, and why there is none."""
    place = FETCHED / name
    FETCHED.mkdir(parents=True, exist_ok=True)
    with open(FETCHED / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of other files may want the same
        if place.is_dir():
            return place, ""
        beside = FETCHED / f".{name}.{os.getpid()}"
        words = ["install", "--quiet", "--disable-pip-version-check", "--target", beside, name]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                timeout=120,
            )
            why = done.stderr.strip().splitlines()[-1:] if done.returncode else []
            if done.returncode == 0:
                beside.rename(place)
                return place, ""
        except subprocess.TimeoutExpired:
            why = ["fetching it takes too long"]
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return None, f"no {name}: {' '.join(why) or 'pip cannot fetch it'}"


def need(name):
    place, why = fetch(name)
    if place is None:
        lacks(name, why)
    return place
