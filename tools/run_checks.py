#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Runs the stages of `make check`, one line each, and stops at the first that fails.

usage: run_checks.py [--quick] [--build DIR] [--list] [STAGE...]

Every stage is a command that a person can run alone (--list prints them). Its output goes to
DIR/check/STAGE.log and is shown only when it fails. The last lines name the slowest tests, and those that
took the most of the processors, and add up the unit and e2e tests.

End-to-end tests wait about a third of their time. Stages that are marked `beside` use it: they run
one after the other in the background, with low priority, while the list goes on; a stage that is
marked `alone` begins when they have ended.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

JOBS = os.cpu_count() or 2
SLOWEST = 20
LOW_PRIORITY = ["nice", "-n", "5"]
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")

# What a sanitizer finds ends the test. Leaks count: our own processes free what they take.
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


class Stage:
    def __init__(self, name, command, quick=False, counts=False, limit_s=900, beside=False, alone=False):
        self.name = name
        self.command = command
        self.quick = quick  # part of check-quick
        self.counts = counts  # its tests go into the last line
        self.limit_s = limit_s
        self.beside = beside  # in the background
        self.alone = alone  # with nothing in the background: it measures


def make(*words):
    return ["make", "--no-print-directory", f"-j{JOBS}", *words]


def no_aslr():
    """The thread sanitizer does not know the address layouts of some newer kernels."""
    prefix = ["setarch", os.uname().machine, "-R"]
    if not shutil.which("setarch"):
        return []
    probe = subprocess.run(prefix + ["true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return prefix if probe.returncode == 0 else []


def stages(build):
    o = f"O={build}"
    py = f"PYTHON={sys.executable}"
    # -O0: a quarter of the time to build, with the same warnings (guest code is optimized: Makefile)
    clang = ["CC=clang", "OPT=-O0", "WERROR=1"]
    asan = [f"O={build}-asan", "SAN=address,undefined", *clang]
    tsan = [f"O={build}-tsan", "SAN=thread", *clang]
    threads = f"{build}/unit.threads"  # tests for the thread sanitizer (tests/unit/main.c)
    return [
        Stage("format", make("check-format")),
        Stage("layers", make("check-layers", py)),
        Stage("files", make("check-files", py)),
        Stage("python", make("check-python", o, py)),
        Stage("docs", make("check-docs", py)),
        Stage("clean", make("check-clean", py)),
        Stage("build-gcc", make("everything", o, "CC=gcc", "WERROR=1"), quick=True),
        Stage("headers", make("check-headers"), beside=True),
        Stage("build-clang", make("not-sanitized", f"O={build}-clang", *clang), beside=True),
        Stage("unit-asan", make("unit", *asan), beside=True),
        Stage("unit-tsan", no_aslr() + make("unit", *tsan, f"UNIT_LIST={threads}"), beside=True),
        Stage("fuzz-replay", make("fuzz-replay-run", *asan), beside=True),
        Stage("bench-beside", make("bench-quick-beside", o), beside=True),
        Stage("imports", make("check-imports", o, py)),
        # while the first of those beside it are built: unit-tsan wants its list
        Stage("unit", make("unit", o, f"UNIT_NOTE_THREADS={threads}"), quick=True, counts=True),
        # ./bootstrap test holds the lock until everything is there that later stages use
        Stage("environments", ["flock", f"{build}/environments.lock", "true"], quick=True),
        Stage("e2e", make("e2e", o, py), quick=True, counts=True, limit_s=1800),
        Stage("bench-quick", make("bench-quick", o), alone=True),
    ]


def environment():
    env = dict(os.environ)
    # the stages set their own variables: what `make check` was called with must not leak in
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        env.pop(name, None)
    env.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    for name, value in SANITIZERS.items():
        env.setdefault(name, value)
    return env


def wait(child, seconds):
    """(exit status, seconds of processors with all that it waited for), or None: it still runs."""
    end = time.monotonic() + seconds
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            ended = os.WIFSIGNALED(status)
            child.returncode = -os.WTERMSIG(status) if ended else os.WEXITSTATUS(status)
            return child.returncode, usage.ru_utime + usage.ru_stime
        if time.monotonic() > end:
            return None
        time.sleep(0.05)


def run(stage, log_path, env, stop):
    """Returns the exit status, None where `stop` was set meanwhile, and the seconds of processors; a
    stage over its time is ended with everything it started."""
    end = time.monotonic() + stage.limit_s
    with open(log_path, "wb") as log:
        log.write(("$ " + " ".join(stage.command) + "\n").encode())
        log.flush()
        child = subprocess.Popen(
            LOW_PRIORITY * stage.beside + stage.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            while True:
                ended = wait(child, 0.2)
                if ended:
                    return ended
                if stop.is_set():
                    end_group(child)
                    return None, 0
                if time.monotonic() > end:
                    end_group(child)
                    log.write(f"\nended: over {stage.limit_s} seconds\n".encode())
                    return 124, 0
        except BaseException:
            end_group(child)
            raise


def end_group(child):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sig)
        except ProcessLookupError:
            pass
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            pass


def counts(log_path):
    """The last line of the log that counts tests, as {"passed": n, "failed": n, "skipped": n}."""
    out = {"passed": 0, "failed": 0, "skipped": 0}
    with open(log_path, errors="replace") as f:
        lines = [line for line in f if COUNT.search(line)]
    for number, word in COUNT.findall(lines[-1]) if lines else []:
        out["failed" if word.startswith("error") else word] += int(number)
    return out


def lines_of(log_path, word):
    """Lines that begin like this: `unsteady: `, `slow: ` and `busy: ` of tools/run_e2e.py."""
    with open(log_path, errors="replace") as f:
        return [line.rstrip() for line in f if line.startswith(word)]


def shorten(line, most=300):
    """The command that links all unit tests has thousands of words."""
    return line if len(line) <= most else line[:most] + " …\n"


def tail(log_path, lines=60):
    with open(log_path, errors="replace") as f:
        return "".join(shorten(line) for line in f.readlines()[-lines:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="build, unit and e2e only")
    parser.add_argument("--build", default="build", metavar="DIR")
    parser.add_argument("--list", action="store_true", help="print the stages and their commands")
    parser.add_argument("stage", nargs="*", help="only these")
    args = parser.parse_args()

    todo = stages(args.build)
    unknown = set(args.stage) - {s.name for s in todo}
    if unknown:
        parser.error("no such stage: " + ", ".join(sorted(unknown)))
    if args.quick:
        todo = [s for s in todo if s.quick]
    if args.stage:
        todo = [s for s in todo if s.name in args.stage]
    if args.list:
        for s in todo:
            print(f"{s.name:12} {' '.join(s.command)}")
        return 0

    return Run(args.build).run(todo)


class Run:
    def __init__(self, build):
        self.logs = os.path.join(build, "check")
        os.makedirs(self.logs, exist_ok=True)
        self.env = environment()
        self.total = {"passed": 0, "failed": 0, "skipped": 0}
        self.slow = []
        self.busy = []
        self.stop = threading.Event()  # a stage has failed, or the run is interrupted
        self.printing = threading.Lock()

    def run(self, todo):
        began = time.monotonic()
        background = threading.Thread()
        try:
            for i, s in enumerate(todo):
                if s.beside and (i == 0 or not todo[i - 1].beside):
                    background = self.start([x for x in todo if x.beside])
                if s.alone and background.is_alive():
                    background.join()
                if not s.beside and not self.stop.is_set():
                    self.run_stage(s)
            if background.is_alive():
                background.join()
        finally:
            interrupted = sys.exc_info()[0] is not None
            if interrupted:
                self.stop.set()
                if background.is_alive():
                    background.join()
        return self.report(time.monotonic() - began)

    def start(self, stages):
        def work():
            for s in stages:
                if not self.stop.is_set():
                    self.run_stage(s)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def run_stage(self, s):
        path = os.path.join(self.logs, s.name + ".log")
        start = time.monotonic()
        status, busy = run(s, path, self.env, self.stop)
        if status is None:
            return
        seconds = time.monotonic() - start
        found = counts(path) if s.counts else {}
        note = ", ".join(f"{n} {w}" for w, n in found.items() if n)
        verdict = "ok" if status == 0 else f"FAILED (status {status})"
        where = "  beside" if s.beside else ""
        with self.printing:
            for word, number in found.items():
                self.total[word] += number
            times = f"{seconds:6.1f} s, processors {busy:6.1f} s{where}"
            print(f"{s.name:12} {times}  {verdict}  {note}".rstrip(), flush=True)
            for line in lines_of(path, "unsteady: ") if s.counts else []:
                print(f"{'':12} {line}", flush=True)
            self.slow += lines_of(path, "slow: ") if s.counts else []
            self.busy += lines_of(path, "busy: ") if s.counts else []
            if status:
                self.stop.set()
                print(f"\n--- the end of {path}\n{tail(path)}---")
                print("alone:", " ".join(s.command), flush=True)

    def report(self, seconds):
        for line in sorted(self.slow, key=lambda x: -float(x.split()[1]))[:SLOWEST]:
            print(line)
        for line in sorted(self.busy, key=lambda x: -float(x.split()[4]))[:SLOWEST]:
            print(line)
        print(f"{'total':12} {seconds:6.1f} s")
        if self.stop.is_set():
            self.total["failed"] = max(self.total["failed"], 1)
        last = f"{self.total['passed']} passed, {self.total['failed']} failed"
        if self.total["skipped"]:
            last += f", {self.total['skipped']} skipped"
        print(last, flush=True)
        return 1 if self.stop.is_set() else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
