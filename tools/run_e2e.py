#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""pytest with a deadline for every test. usage: run_e2e.py [--beside] [pytest arguments]

A test that hangs becomes a failed test with a traceback instead of a run that never ends. The
deadline is SONDE_TEST_DEADLINE seconds (default 120) or what the test asks for by
@pytest.mark.deadline(seconds).

With --beside the files that match BESIDE run in a process of their own while all others run one by
one as ever: most of those wait for something most of the time, or ask for the whole machine.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile

import pytest

# Jobs, builds and environments of their own: they look at no process but their own and take no name
# that others use.
BESIDE = re.compile(
    r"test_(torch_|python_(?!lines|stacks)|package_|framework_|watcher|describe"
    r"|wheel|install|bootstrap)"
)
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
NOTHING_TO_RUN = 5


class Lane:
    """Leaves only the tests of one of the two lanes."""

    def __init__(self, beside):
        self.beside = beside

    def pytest_collection_modifyitems(self, config, items):
        mine, others = [], []
        for item in items:
            name = os.path.basename(item.nodeid.split("::")[0])
            (mine if bool(BESIDE.match(name)) == self.beside else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = mine


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


def run(arguments, *plugins):
    return int(pytest.main(arguments, plugins=[Deadline(), *plugins]))


def run_both(arguments):
    """The other lane is this program once more; what it says comes when it has ended."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        other = subprocess.Popen(
            [sys.executable, __file__, "--beside-only", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            counts = Counts()
            statuses = [run(arguments, Lane(False), counts)]
            statuses.append(other.wait())
        except BaseException:
            other.kill()
            raise
        said.seek(0)
        text = said.read()
    print("\n--- beside them", text, sep="\n", end="")
    print(counts.with_those_of(text))
    return max(0 if s == NOTHING_TO_RUN else s for s in statuses)


class Counts:
    """How many tests of this process ended how, with those of another one's last line."""

    def __init__(self):
        self.of = {}

    def pytest_terminal_summary(self, terminalreporter):
        for word in ("passed", "failed", "error", "skipped"):
            self.of[word] = len(terminalreporter.stats.get(word, []))

    def with_those_of(self, text):
        lines = [line for line in text.splitlines() if COUNT.search(line)]
        for number, word in COUNT.findall(lines[-1]) if lines else []:
            self.of[word.rstrip("s") if word == "errors" else word] += int(number)
        words = {w: n for w, n in self.of.items() if n or w == "passed"}
        return "both: " + ", ".join(f"{n} {w}" for w, n in words.items())


def main(arguments):
    if arguments[:1] == ["--beside"]:
        return run_both(arguments[1:])
    if arguments[:1] == ["--beside-only"]:
        return run(arguments[1:], Lane(True))
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
