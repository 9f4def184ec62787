# SPDX-License-Identifier: MulanPSL-2.0
import os
import pathlib
import signal

import pytest

# A shell in the background ignores Ctrl-C, and so would every job that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture
def hurts(build, tmp_path):
    """Makes runners for jobs that are killed or starved (harness.py); none outlives its test."""
    from harness import Hurt

    made = []

    def make(name=None):
        made.append(Hurt(build, tmp_path, name or f"out{len(made) or ''}"))
        return made[-1]

    yield make
    for h in made:
        if h.job and h.job.poll() is None:
            h.job.kill()
            h.job.wait()


@pytest.fixture
def hurt(hurts):
    return hurts()


@pytest.fixture
def jobs(build, tmp_path):
    """Runs programs in Python that use the package (python_jobs.py); none outlives its test."""
    from python_jobs import Jobs

    made = Jobs(build, tmp_path)
    yield made
    made.end()
