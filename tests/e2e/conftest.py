# SPDX-License-Identifier: MulanPSL-2.0
import os
import pathlib

import pytest


@pytest.fixture(scope="session")
def build():
    """The build directory under test: $SONDE_BUILD, or build/."""
    default = pathlib.Path(__file__).resolve().parents[2] / "build"
    return pathlib.Path(os.environ.get("SONDE_BUILD", default)).resolve()


@pytest.fixture
def record(build, tmp_path):
    """Runs a job under msmemscope, waits for its files, checks them and gives them (recording.py)."""
    from recording import Recorder

    return Recorder(build, tmp_path)
