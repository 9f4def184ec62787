#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""pytest with a deadline for every test. usage: run_e2e.py [pytest arguments]

A test that hangs becomes a failed test with a traceback instead of a run that never ends. The
deadline is SONDE_TEST_DEADLINE seconds (default 120) or what the test asks for by
@pytest.mark.deadline(seconds).
"""

import os
import signal
import sys

import pytest


class Deadline:
    def pytest_configure(self, config):
        config.addinivalue_line("markers", "deadline(seconds): how long this test may run")
        config.addinivalue_line("markers", "soak: has a long version, for `make soak` (SOAK=1)")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        seconds = float(os.environ.get("SONDE_TEST_DEADLINE", 120))
        mark = item.get_closest_marker("deadline")
        if mark:
            seconds = max(seconds, mark.args[0])

        def expired(_signal, _frame):
            # again, in case the test swallows this one or its clean-up hangs too
            signal.setitimer(signal.ITIMER_REAL, 10)
            pytest.fail(f"over its deadline of {seconds:g} s")

        previous = signal.signal(signal.SIGALRM, expired)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:], plugins=[Deadline()]))
