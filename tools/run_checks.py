#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Runs the stages of `make check`, one line each, and stops at the first that fails.

usage: run_checks.py [--quick] [--build DIR] [--list] [STAGE...]

Every stage is a command that a person can run alone (--list prints them). Its output goes to
DIR/check/STAGE.log and is shown only when it fails. The last line adds up the unit and e2e tests.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

JOBS = os.cpu_count() or 2
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")

# What a sanitizer finds ends the test. Leaks count: our own processes free what they take.
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


class Stage:
    def __init__(self, name, command, quick=False, counts=False, limit_s=600):
        self.name = name
        self.command = command
        self.quick = quick  # part of check-quick
        self.counts = counts  # its tests go into the last line
        self.limit_s = limit_s


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
    asan = [f"O={build}-asan", "CC=clang", "SAN=address,undefined", "WERROR=1"]
    tsan = [f"O={build}-tsan", "CC=clang", "SAN=thread", "WERROR=1"]
    return [
        Stage("format", make("check-format")),
        Stage("layers", make("check-layers", py)),
        Stage("headers", make("check-headers")),
        Stage("python", make("check-python", o, py)),
        Stage("docs", make("check-docs", py)),
        Stage("clean", make("check-clean", py)),
        Stage("build-gcc", make("everything", o, "CC=gcc", "WERROR=1"), quick=True),
        Stage("build-clang", make("everything", f"O={build}-clang", "CC=clang", "WERROR=1")),
        Stage("imports", make("check-imports", o, py)),
        Stage("unit", make("unit", o), quick=True, counts=True),
        Stage("unit-asan", make("unit", *asan)),
        Stage("unit-tsan", no_aslr() + make("unit", *tsan)),
        Stage("fuzz-replay", make("fuzz-replay-run", *asan)),
        Stage("e2e", make("e2e", o, py), quick=True, counts=True, limit_s=900),
        Stage("bench-quick", make("bench-quick", o)),
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


def run(stage, log_path, env):
    """Returns the exit status; a stage over its time is ended with everything it started."""
    with open(log_path, "wb") as log:
        log.write(("$ " + " ".join(stage.command) + "\n").encode())
        log.flush()
        child = subprocess.Popen(
            stage.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            return child.wait(stage.limit_s)
        except subprocess.TimeoutExpired:
            end_group(child)
            log.write(f"\nended: over {stage.limit_s} seconds\n".encode())
            return 124
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


def unsteady(log_path):
    """Lines about tests that passed at the second attempt only (tools/run_e2e.py)."""
    with open(log_path, errors="replace") as f:
        return [line.rstrip() for line in f if line.startswith("unsteady: ")]


def tail(log_path, lines=60):
    with open(log_path, errors="replace") as f:
        return "".join(f.readlines()[-lines:])


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

    logs = os.path.join(args.build, "check")
    os.makedirs(logs, exist_ok=True)
    env = environment()
    total = {"passed": 0, "failed": 0, "skipped": 0}
    began = time.monotonic()
    red = False
    for s in todo:
        path = os.path.join(logs, s.name + ".log")
        start = time.monotonic()
        status = run(s, path, env)
        seconds = time.monotonic() - start
        found = counts(path) if s.counts else {}
        for word, number in found.items():
            total[word] += number
        note = ", ".join(f"{n} {w}" for w, n in found.items() if n)
        verdict = "ok" if status == 0 else f"FAILED (status {status})"
        print(f"{s.name:12} {seconds:6.1f} s  {verdict}  {note}".rstrip(), flush=True)
        for line in unsteady(path) if s.counts else []:
            print(f"{'':12} {line}", flush=True)
        if status:
            red = True
            print(f"\n--- the end of {path}\n{tail(path)}---")
            print("alone:", " ".join(s.command))
            break
    print(f"{'total':12} {time.monotonic() - began:6.1f} s")
    if red:
        total["failed"] = max(total["failed"], 1)
    last = f"{total['passed']} passed, {total['failed']} failed"
    if total["skipped"]:
        last += f", {total['skipped']} skipped"
    print(last, flush=True)
    return 1 if red else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
