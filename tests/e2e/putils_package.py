# SPDX-License-Identifier: MulanPSL-2.0
"""The package putils of the build: imported by the tests themselves, and in programs.

    from putils_package import putils, run      # the fixture has to be in the file that uses it
"""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def putils(build):
    """`import putils` in tests is that of the build."""
    sys.path.insert(0, str(build / "python"))
    yield
    sys.path.remove(str(build / "python"))


def run(build, *words, python=sys.executable, cwd=None, **env):
    return subprocess.run(
        [python, *map(str, words)],
        env=dict(os.environ, PYTHONPATH=str(build / "python"), **env),
        cwd=cwd and str(cwd),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=60,
    )
