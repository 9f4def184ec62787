# SPDX-License-Identifier: MulanPSL-2.0
import os
import pathlib
import signal

import pytest

from capabilities import check_marks


def reset_signals():
    """What a background shell (SIGINT) or nohup (SIGHUP) ignores, every job of the tests would ignore,
    too. SIGPIPE and SIGXFSZ are ignored by Python itself, and not in what it starts."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


reset_signals()


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(name): a capability (capabilities.py)")
    config.addinivalue_line("markers", "lacks(name, why): a capability that is not there")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    check_marks(item)


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


@pytest.fixture
def users(build):
    """Two ordinary users and root (users.py)."""
    from users import Users

    made = Users(build)
    yield made
    made.end()
