# SPDX-License-Identifier: MulanPSL-2.0
"""The daemon has a monitor step aside, and lets it go on; a daemon that ends leaves nobody waiting."""

import time

from fake_daemon import *
from monitored import until


def test_pause_and_resume(fake, run, tmp_path):
    p = run("train", 4)
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    time.sleep(0.3)
    fake.order("SONDE_PAUSE=true\nSONDE_PAUSE_S=60", becomes=IDLE)
    paused = time.time_ns()
    time.sleep(0.6)
    resumed = time.time_ns()
    fake.order("SONDE_PAUSE=false", becomes=RUNNING)
    time.sleep(0.5)
    fake.order(STOP, becomes=IDLE)
    finish(p)
    ran = sorted(r["startNs"] for r in rows(tmp_path / "out") if r["kind"] == "Kernel")
    assert ran[0] < paused and ran[-1] > resumed  # one window
    # what was launched before it stepped aside may end a little later
    assert not [t for t in ran if paused + 200e6 < t < resumed]


def test_a_pause_ends_by_itself(fake, run, tmp_path):
    p = run("train", 6)
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    fake.order("SONDE_PAUSE=true\nSONDE_PAUSE_S=1", becomes=IDLE)
    begin = time.monotonic()
    until(lambda: fake.states.get("npuMonitorStatus") == RUNNING, "Running")
    assert time.monotonic() - begin > 0.8
    fake.order(STOP, becomes=IDLE)
    finish(p)
