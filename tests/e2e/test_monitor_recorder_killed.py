# SPDX-License-Identifier: MulanPSL-2.0
"""Every recorder of the monitor is killed, and the monitor is requested again and again."""

import contextlib
import os
import signal
import time

from capabilities import lacks
from fake_daemon import *  # noqa: F403
from waiting import pause, wait_until

WORDS = "something has killed the recorders of this process, again and again; send the request"
ROUNDS = 40
FAST_S = 45  # for all of them
ROOM_S = 16  # what was left is needed no more after ten, and is looked at once a second


def kill_all(place):
    for pid in recorders(place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_too_often(fake, run, place, tmp_path):
    """The reason is not the place, and is gone by itself: nothing has to be ordered for that."""
    run("train", 300, wrap=("sh", "-c", 'exec "$0" "$@" 2>said'))
    said = lambda: (tmp_path / "said").read_text()
    until = time.monotonic() + FAST_S
    for _ in range(ROUNDS):
        if time.monotonic() > until:
            lacks("slow-enough", "this machine is too slow to be too fast")
        fake.order(start("Kernel"))
        wait_until(lambda: recorders(place) or WORDS in said(), "a recorder, or the reason why not")
        kill_all(place)
        if WORDS in said():
            break
        fake.order(STOP, becomes=IDLE)
        kill_all(place)
    else:
        lacks("slow-enough", "this machine is too slow to be too fast")
    assert "no usable directory" not in said(), said()
    # who gave the order has the reason, too, unless the end of the last one met it
    fake.order(start("Kernel"))
    refused = f"not carried out: nothing can be recorded now: {WORDS}"
    wait_until(lambda: refused in said() or recorders(place), "the reason")
    if refused not in said():
        lacks("slow-enough", "so slow that there is room again")
    fake.order(STOP, becomes=IDLE)
    pause(ROOM_S, "then there is room again")
    fake.order(start("Kernel"), becomes=RUNNING)
