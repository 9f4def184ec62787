#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""pytest with a deadline for every test. usage: run_e2e.py [--beside] [pytest arguments]

A test that hangs becomes a failed test with a traceback instead of a run that never ends. The
deadline is SONDE_TEST_DEADLINE seconds (default 120) or what the test asks for by
@pytest.mark.deadline(seconds).

With --beside several processes share the files, since most tests wait for something most of the time: each
takes the next one that nobody has taken, those that take longest first, so that all end at about the same
time. Files of ONE_BY_ONE run one after the other, in the first process. On few processors
one of thousands may then come too late for what it waits for: up to AGAIN tests that failed run once
more, alone. If they pass then, the run has passed, and its last lines name them, to be repaired.
The lines before say how long each process worked, which SLOWEST tests were the slowest of all, and which took
the most of the processors.
"""

import collections
import gc
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

# They look at processes that are not their own, or take names that others use.
ONE_BY_ONE = re.compile(
    r"test_(access|gpu_first_command|namespaces|restricted_jobs|sandbox|sanitized|sim\.|snap|socket_directory"
    r"|stack|transparency|user|wait|watch)"
)
# The files that take longest, first things first; what follows is taken by size.
LONGEST = """
    detected_steps python_auto_import bootstrap planted_faults torch_owners python_messages monitor_python
    bombs recorder_failures frameworks inefficient python_spans monitor_recorder crash
""".split()
TORCHES = os.path.join(os.path.dirname(__file__), "../tests/e2e/torches.py")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
LAST_LINE = re.compile(r"\d+ (passed|failed|skipped|errors?|deselected).* in [\d.]+s")
WORKERS = min(16, 4 * (os.cpu_count() or 2))
AGAIN = 12
SLOWEST = 20
NOTED = "SONDE_E2E_NOTED"  # where the processes note how long each test took, and whether it failed
FAILED_TESTS, INTERRUPTED, NOTHING_TO_RUN = 1, 2, 5


def files_of(arguments):
    """Options, and the files of what else the arguments name, those that take longest first."""
    options, found = [], []
    for argument in arguments:
        if os.path.isdir(argument):
            found += glob.glob(os.path.join(argument, "**", "test_*.py"), recursive=True)
        else:
            (found if os.path.exists(argument) else options).append(argument)

    def order(path):
        name = os.path.basename(path)[len("test_") : -len(".py")]
        long = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return long, -os.path.getsize(path), path

    return options, sorted(set(found), key=order)


class Taken:
    """Which files somebody has begun with: a directory with an empty one for each."""

    def __init__(self, directory):
        self.directory = directory

    def take(self, path):
        try:
            os.mkdir(os.path.join(self.directory, os.path.basename(path)))
        except FileExistsError:
            return False
        return True


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


def run(arguments):
    path = os.environ.get(NOTED)
    # rows of dumps are a hundred thousand small objects, and none of them is garbage
    gc.set_threshold(200_000, 20, 20)
    note = [Notes(path)] if path else []
    return int(pytest.main(arguments, plugins=[Deadline(), *note]))


def run_files(taken, arguments, is_first):
    """Until nobody has any left. The exit status: that of the worst."""
    options, files = files_of(arguments)
    one_by_one = [f for f in files if ONE_BY_ONE.match(os.path.basename(f))]
    others = [f for f in files if f not in one_by_one]
    worst = 0
    for path in one_by_one + others if is_first else others:
        if not taken.take(path):
            continue
        print(f"--- {os.path.basename(path)}", flush=True)
        status = run([*options, path])
        worst = max(worst, 0 if status == NOTHING_TO_RUN else status)
        if status == INTERRUPTED:
            break
    return worst


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


def run_beside(arguments):
    """Each other process is this program once more; its output comes when all have ended."""
    with tempfile.NamedTemporaryFile("r") as noted, tempfile.TemporaryDirectory() as taken:
        os.environ[NOTED] = noted.name
        status, counts = run_all(taken, arguments)
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
    print("of the processors, all tests:", f"{sum(busy for _, busy, _ in times):.0f} s")
    print(counts)
    return status


def run_all(taken, arguments):
    # once, not by every process at the same time: importing them takes seconds
    subprocess.run([sys.executable, TORCHES], stdout=subprocess.DEVNULL)
    running, took, counts = {}, {}, Counts()
    began = time.monotonic()
    try:
        for number in range(WORKERS):
            output = tempfile.TemporaryFile("w+", errors="replace")
            command = [sys.executable, __file__, "--worker", str(number), taken, *arguments]
            running[number] = output, subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        while len(took) < WORKERS:
            for number, (_, process) in running.items():
                if number not in took and process.poll() is not None:
                    took[number] = time.monotonic() - began
            time.sleep(0.1)
    except BaseException:
        for _, process in running.values():
            process.kill()
        raise
    for number, (output, _) in running.items():
        output.seek(0)
        text = output.read()
        output.close()
        print(f"\n--- process {number}", text, sep="\n", end="")
        counts.add(text)
    print("processes worked:", ", ".join(f"{seconds:.0f} s" for seconds in sorted(took.values())))
    return max(process.returncode for _, process in running.values()), counts


class Counts:
    """How many tests ended how, by the last line of every file's."""

    def __init__(self):
        self.of = {}

    def add(self, text):
        for line in filter(LAST_LINE.match, text.splitlines()):
            for number, word in COUNT.findall(line):
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
        return run_beside(arguments[1:])
    if arguments[:1] == ["--worker"]:
        return run_files(Taken(arguments[2]), arguments[3:], is_first=arguments[1] == "0")
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
