#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""pytest with a deadline for every test. usage: run_e2e.py [--beside] [pytest arguments]

A test that hangs becomes a failed test with a traceback instead of a run that never ends. The
deadline is SONDE_TEST_DEADLINE seconds (default 120) or what the test asks for by
@pytest.mark.deadline(seconds).

With --beside the files that match one of LANES run in a process of their own for each lane, while
all others run one by one as ever: most tests wait for something most of the time. On few processors
one of thousands may then come too late for what it waits for: up to AGAIN tests that failed run once
more, alone. If they pass then, the run has passed, and its last lines name them, to be repaired.
The lines before say how long each lane took, which SLOWEST tests were the slowest of all, and which took
the most of the processors.
"""

import collections
import glob
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest

# Jobs, builds and environments of their own: they look at no process but their own and take no name
# that others use. Each lane takes about as long as what is in none; the last lines of a run say how
# long that was. The first that matches counts.
LANES = {
    "waiting": re.compile(
        r"test_(top|guest_|trace_stop|monitor_recorder|kineto_|torch_owners|your_line)"
    ),
    "daemon": re.compile(
        r"test_(http|rpc|tls|ctl|fabric|jobs_hostile|daemon|metrics|device_metrics|prometheus"
        r"|packaging|status_page|walkthrough|python_hostile|python_auto_import|wheel|install|torch_modules)"
    ),
    "python": re.compile(r"test_(torch_(?!modules)|python_(?!lines|stacks))"),
    "monitor": re.compile(r"test_(monitor|quick_start|trace_|cupti|activity_|sim_|putils_|timeline)"),
    "memory": re.compile(
        r"test_(planted_faults|inefficient|leaks|atb|amended_dumps|compare|host_memory|bootstrap|soak|framework"
        r"|bombs|losses|planted_names|rotation|crash|recover_places|damaged_input|show_export|viewer_files|owners|oom|cuda_memory)"
    ),
}
TORCHES = os.path.join(os.path.dirname(__file__), "../tests/e2e/torches.py")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
AGAIN = 12
SLOWEST = 20
NOTED = "SONDE_E2E_NOTED"  # where the lanes note how long each test took, and whether it failed
FAILED_TESTS, NOTHING_TO_RUN = 1, 5


def lane_of(name):
    return next((lane for lane, files in LANES.items() if files.match(name)), None)


def files_of(lane, arguments):
    """The arguments with directories replaced by those of their test files that are of this lane
    (None: of no other): what is not collected costs nothing."""
    chosen = []
    for argument in arguments:
        if not os.path.isdir(argument):
            chosen.append(argument)
            continue
        found = sorted(glob.glob(os.path.join(argument, "**", "test_*.py"), recursive=True))
        chosen += [path for path in found if lane_of(os.path.basename(path)) == lane]
    return chosen


class Lane:
    """Leaves only the tests of one lane, whatever else the arguments name; None: those of no other."""

    def __init__(self, lane):
        self.lane = lane

    def pytest_collection_modifyitems(self, config, items):
        mine, others = [], []
        for item in items:
            name = os.path.basename(item.nodeid.split("::")[0])
            (mine if lane_of(name) == self.lane else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = mine


class Processors:
    """How many seconds of processors this process and all that it started have taken.

    A control group of our own counts also those that nobody waits for, such as recorders and daemons.
    Where none can be made (only the old kind is tried: in the new one our tests would lose the groups
    that they make), the processes that were waited for count alone."""

    ROOT = pathlib.Path("/sys/fs/cgroup/cpuacct")

    def __init__(self):
        self.group = None
        try:
            lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
            mine = {c: path for _, names, path in (l.split(":", 2) for l in lines) for c in names.split(",")}
            self.parent = self.ROOT / mine["cpuacct"].lstrip("/")
            group = self.parent / f"sonde-e2e-{os.getpid()}"
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self.group = group
        except (OSError, KeyError, ValueError):
            pass

    def seconds(self):
        if self.group:
            return int((self.group / "cpuacct.usage").read_text()) / 1e9
        return sum(os.times()[:4])

    def end(self):
        """Gives back what still runs; a group must be empty to be removed."""
        if not self.group:
            return
        try:
            for pid in (self.group / "cgroup.procs").read_text().split():
                (self.parent / "cgroup.procs").write_text(pid)
            self.group.rmdir()
        except OSError:
            pass


class Notes:
    """A line for each test: seconds, seconds of processors, whether it failed, its name."""

    def __init__(self, path):
        self.path = path
        self.seconds = collections.Counter()
        self.processors = Processors()
        self.before = self.processors.seconds()

    def pytest_unconfigure(self):
        self.processors.end()

    def pytest_configure(self, config):
        self.root = config.rootpath

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.failed or report.when == "teardown":
            verdict = "failed" if report.failed else "ended"
            before, self.before = self.before, self.processors.seconds()
            with open(self.path, "a") as f:
                seconds = self.seconds.pop(report.nodeid, 0)
                busy = self.before - before
                f.write(f"{seconds:.2f} {busy:.2f} {verdict} {self.root}/{report.nodeid}\n")


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
    path = os.environ.get(NOTED)
    note = [Notes(path)] if path else []
    return int(pytest.main(arguments, plugins=[Deadline(), *note, *plugins]))


def run_lane(lane, arguments, *plugins):
    chosen = files_of(lane, arguments)
    if not any(os.path.exists(a.split("::")[0]) for a in chosen):
        return NOTHING_TO_RUN  # pytest would run everything
    return run(chosen, Lane(lane), *plugins)


def run_again(arguments, failed):
    """Whether they pass where nothing runs beside them."""
    options = [a for a in arguments if a.startswith("-")]
    print("\n--- once more, alone:", *failed, sep="\n", flush=True)
    # a process of its own: modules and fixtures of the first time are in this one
    again = subprocess.run([sys.executable, __file__, *options, *failed])
    return again.returncode == 0


def read_notes(lines):
    """[(seconds, of processors, name)] of every test, and the names of those that failed, each once."""
    times, failed = [], {}
    for line in lines:
        seconds, busy, verdict, name = line.rstrip("\n").split(" ", 3)
        times.append((float(seconds), float(busy), name))
        if verdict == "failed":
            failed[name] = True
    return times, list(failed)


def run_lanes(arguments):
    """Each other lane is this program once more; its output comes when all have ended."""
    with tempfile.NamedTemporaryFile("r") as noted:
        os.environ[NOTED] = noted.name
        status, counts = run_all(arguments)
        del os.environ[NOTED]
        times, failed = read_notes(noted)
    unsteady = []
    if status == FAILED_TESTS and 0 < len(failed) <= AGAIN and run_again(arguments, failed):
        status, unsteady = 0, failed
        counts.passed_alone(failed)
    for word, key in ("slow", 0), ("busy", 1):
        for time_of in sorted(times, key=lambda t: -t[key])[:SLOWEST]:
            seconds, busy, test = time_of
            print(f"{word}: {seconds:6.2f} s, processors {busy:6.2f} s  {os.path.relpath(test)}")
    for test in unsteady:
        print(f"unsteady: {test}: failed beside others, passed alone")
    print(counts)
    return status


def run_all(arguments):
    others = []
    counts = Counts()
    began = time.monotonic()
    took = {}
    # once, not by every lane at the same time: importing them takes seconds
    subprocess.run([sys.executable, TORCHES], stdout=subprocess.DEVNULL)
    try:
        for lane in LANES:
            output = tempfile.TemporaryFile("w+", errors="replace")
            others.append((lane, output, subprocess.Popen(
                [sys.executable, __file__, "--lane", lane, *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)))  # fmt: skip
        statuses = [run_lane(None, arguments, counts)]
        took["the others"] = time.monotonic() - began
        statuses += [process.wait() for _, _, process in others]
    except BaseException:
        for _, _, process in others:
            process.kill()
        raise
    for lane, output, _ in others:
        output.seek(0)
        text = output.read()
        output.close()
        print(f"\n--- beside them: {lane}", text, sep="\n", end="")
        counts.add(text)
        seconds = re.findall(r" in ([\d.]+)s\b", text)
        took[lane] = float(seconds[-1]) if seconds else 0
    print("lanes:", ", ".join(f"{lane} {seconds:.0f} s" for lane, seconds in took.items()))
    return max(0 if s == NOTHING_TO_RUN else s for s in statuses), counts


class Counts:
    """How many tests of this process ended how, with those of the other ones' last lines."""

    def __init__(self):
        self.of = {}

    def pytest_terminal_summary(self, terminalreporter):
        for word in ("passed", "failed", "error", "skipped"):
            self.of[word] = len(terminalreporter.stats.get(word, []))

    def add(self, text):
        lines = [line for line in text.splitlines() if COUNT.search(line)]
        for number, word in COUNT.findall(lines[-1]) if lines else []:
            word = "error" if word == "errors" else word
            self.of[word] = self.of.get(word, 0) + int(number)

    def passed_alone(self, tests):
        self.of["passed"] = self.of.get("passed", 0) + len(tests)
        self.of["failed"] = self.of["error"] = 0

    def __str__(self):
        words = {w: n for w, n in self.of.items() if n or w == "passed"}
        return "all: " + ", ".join(f"{n} {w}" for w, n in words.items())


def main(arguments):
    if arguments[:1] == ["--beside"]:
        return run_lanes(arguments[1:])
    if arguments[:1] == ["--lane"]:
        return run_lane(arguments[1], arguments[2:])
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
