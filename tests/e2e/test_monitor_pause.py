# SPDX-License-Identifier: MulanPSL-2.0
"""The daemon has a monitor step aside, and lets it go on; a daemon that ends leaves nobody waiting."""

import time

from fake_daemon import *
from waiting import pause, wait_until


def test_pause_and_resume(fake, run, tmp_path):
    p = run("train", 100)
    ran = lambda: sorted(r["startNs"] for r in rows(tmp_path / "out") if r["kind"] == "Kernel")
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    wait_until(ran, "kernels")
    fake.order("SONDE_PAUSE=true\nSONDE_PAUSE_S=60", becomes=IDLE)
    paused = time.time_ns()
    pause(0.6, "kernels run that are not recorded")
    resumed = time.time_ns()
    fake.order("SONDE_PAUSE=false", becomes=RUNNING)
    wait_until(lambda: ran()[-1] > resumed, "the same window")
    fake.order(STOP, becomes=IDLE)
    p.kill()
    assert ran()[0] < paused
    # what was launched before it stepped aside may end a little later
    assert not [t for t in ran() if paused + 200e6 < t < resumed]


def test_a_pause_ends_by_itself(fake, run, tmp_path):
    run("train", 100)
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    begin = time.monotonic()
    fake.order("SONDE_PAUSE=true\nSONDE_PAUSE_S=2", becomes=IDLE)
    wait_until(lambda: fake.states.get("npuMonitorStatus") == RUNNING, "Running")
    assert time.monotonic() - begin > 1.9
    fake.order(STOP, becomes=IDLE)
