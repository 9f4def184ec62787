# SPDX-License-Identifier: MulanPSL-2.0
"""Waiting in tests: for something that can be seen, or, where the scenario is a time, that long.

    wait_until(lambda: path.exists(), "the file")     returns the first true value
    pause(0.3, "nothing is written meanwhile")

Tests call no other function that sleeps (test_required_capabilities.py).
"""

import time

WAIT_S = 60
FIRST_S, LONGEST_S = 0.001, 0.02  # between two looks


def wait_until(condition, what="", seconds=WAIT_S, every=LONGEST_S):
    """`what` is said when it does not come in time: a text, or a function that returns it."""
    end = time.monotonic() + seconds
    step = min(FIRST_S, every)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            said = what() if callable(what) else what
            raise AssertionError(f"waited {seconds:g} s in vain for {said or condition}")
        time.sleep(step)
        step = min(step * 1.5, every)


def pause(seconds, why):
    """For a scenario that takes time by itself; `why` is for who reads the test."""
    assert why
    time.sleep(seconds)
