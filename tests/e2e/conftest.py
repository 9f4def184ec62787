# SPDX-License-Identifier: MulanPSL-2.0
import os
import pathlib

import pytest


@pytest.fixture(scope="session")
def build():
    """The build directory under test: $SONDE_BUILD, or build/."""
    default = pathlib.Path(__file__).resolve().parents[2] / "build"
    return pathlib.Path(os.environ.get("SONDE_BUILD", default)).resolve()
