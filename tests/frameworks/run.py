#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Programs of the kind that people have, without a word of ours in them: are their steps counted, and
is a leak found at their own line?

usage: run.py --bin BUILD/bin/sonde [--python PYTHON] [--device cpu|gpu] [--out DIR] [--forked] [--jobs N]
              [PROGRAM...]

Each program (the other files of this folder) runs twice: as it is, where nothing may be found, and with
the word `leak`, where the leak must be found at the line that is marked "# the leak". Its steps must be
as many as it says, and its modules must hold what it says at its end ("holds weight 1024": bytes). Programs whose packages the interpreter lacks are named and left out. Exits with 1 if
anything was wrong.

With --forked they run in processes that are forked from one that has imported torch, in one recording:
recording that import takes most of the time. Programs that start processes themselves need a run of their
own.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.py") if p.name != "run.py")
NEEDS = {
    "gpt2": "transformers",
    "resnet": "torchvision",
    "lightning_fit": "lightning",
    "accelerated": "accelerate",
    "fsdp": "torch.distributed.fsdp",
    "deepspeed_zero": "deepspeed",
    "deepspeed_zero3": "deepspeed",
    "mindspore_cells": "mindspore",
}
# Runs every list of words of its argument, a program and its arguments, in a process of its own, and says its
# pid before.
FORK = """
import gc, json, os, runpy, sys
import torch
for words in json.loads(sys.argv[1]):
    if torch.__version__ >= "2" and "torch.optim" in open(words[0]).read():
        import torch._dynamo  # else every process that makes an optimizer does it
    gc.freeze()  # looking through what that left would take longer than everything else
    child = os.fork()
    if child == 0:
        print("pid", os.getpid(), flush=True)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
        sys.exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("failed: " + " ".join(words))
"""


def line_of_leak(program):
    lines = (HERE / f"{program}.py").read_text().splitlines()
    return 1 + next(i for i, line in enumerate(lines) if "# the leak" in line)


class Checks:
    def __init__(self, sonde, python, device, out):
        self.sonde, self.python, self.device, self.out = sonde, python, device, out
        self.failed = 0

    def run(self, *words, timeout=280):
        return subprocess.run(
            [str(w) for w in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=timeout,
            cwd=str(self.out),
        )

    def lacks(self, program):
        """The package that is missing, or None."""
        need = NEEDS.get(program, "torch")
        code = f"import importlib\nimportlib.import_module({need!r})"
        if need == "torch":  # there is enough: importing it takes seconds, and the program does that
            code = "import importlib.util, sys\nsys.exit(importlib.util.find_spec('torch') is None)"
        if program == "fsdp":
            code = "from torch.distributed.fsdp import fully_shard"
        if program == "compiled":
            code = "import torch\ntorch.compile(torch.nn.Linear(1, 1), backend='aot_eager')(torch.ones(1, 1))"
        return None if self.run(self.python, "-c", code).returncode == 0 else need

    def leaves_out(self, program):
        missing = self.lacks(program)
        if missing:
            print(f"SKIP {program}: this Python has no {missing} that works", flush=True)
        return missing

    def attempt(self, name, check, of):
        try:
            check(of)
        except Exception as why:  # the next program may work
            self.say(False, name, f"{type(why).__name__}: {why}")

    def record(self, name, *job):
        """What a job printed, the answer of `sonde mem leaks`, and where the recording is."""
        place = self.out / name
        options = [f"--device={self.device}", "--analysis=leaks,decompose", "--call-stack=python:10"]
        command = [self.sonde, "mem", "record", f"--output={place}", *options, "--", self.python]
        done = self.run(*command, *job)
        if done.returncode != 0:
            raise RuntimeError(f"the program failed: {done.stdout}{done.stderr}"[-2000:])
        answer = self.run(self.sonde, "mem", "leaks", "--json", place)
        if answer.returncode != 0:
            raise RuntimeError(answer.stderr[-2000:])
        return done.stdout, json.loads(answer.stdout), place

    def say(self, good, program, what, place=None):
        said = f"{'PASS' if good else 'FAIL'} {program}: {what}"
        if not good and place:
            text = self.run(self.sonde, "mem", "leaks", place).stdout
            said += "\n    " + "\n    ".join(text.splitlines()[:25])
        self.failed += not good
        print(said, flush=True)

    def check_steps(self, program, answer, said, place):
        counted = sorted({p["steps_ended"] for p in answer["processes"] if p["steps_ended"]})
        steps = [int(n) for n in re.findall(r"^steps (\d+)$", said, re.M)]
        self.say(len(steps) == 1 and counted == steps, program, f"{steps} steps, counted {counted}", place)

    def check_healthy(self, program, said, answer, place):
        self.check_steps(program, answer, said, place)
        self.say(not answer["leaks"], program, "nothing is found in the healthy one", place)

    def check_held(self, program, said, place):
        expected = collections.Counter()  # of all ranks
        for kind, size in re.findall(r"^holds (\w+) (\d+)$", said, re.M):
            expected[kind] += int(size)
        if not expected:
            return
        words = ["owners", "--by=module", "--at=end", "--top=100000", "--json", place]
        devices = json.loads(self.run(self.sonde, "mem", *words).stdout)["devices"]
        first = [g for d in devices for g in d["groups"] if g["depth"] == 1 and not g["rest"]]
        found = {kind: sum(g["types"][kind] for g in first) for kind in expected}
        self.say(found == expected, program, f"modules hold {dict(expected)}, found {found}")

    def check_leak(self, program, said, answer, place):
        self.check_steps(f"{program} leak", answer, said, place)
        where = f"({program}.py:{line_of_leak(program)})"
        found = [leak["where"] or "" for leak in answer["leaks"]]
        good = found and all(f.endswith(where) for f in found)
        self.say(good, program, f"the leak is found at {where}", place)

    def check(self, program):
        said, answer, place = self.record(program, HERE / f"{program}.py")
        self.check_healthy(program, said, answer, place)
        self.check_held(program, said, place)
        self.check_leak(program, *self.record(f"{program}-leak", HERE / f"{program}.py", "leak"))

    def check_forked(self, programs):
        """All of them in one recording."""
        words = [[str(HERE / f"{p}.py"), *more] for p in programs for more in ((), ("leak",))]
        said, answer, place = self.record("forked", "-c", FORK, json.dumps(words))
        parts = re.split(r"^pid (\d+)$", said, flags=re.M)[1:]
        pids = [int(pid) for pid in parts[::2]]
        strange = {leak["pid"] for leak in answer["leaks"]} - set(pids)
        self.say(len(pids) == len(words) and not strange, "forked", "nothing is found elsewhere", place)
        checks = [check for _ in programs for check in (self.check_healthy, self.check_leak)]
        for check, word, pid, printed in zip(checks, words, pids, parts[1::2]):
            of = {key: [x for x in answer[key] if x["pid"] == pid] for key in ("processes", "leaks")}
            check(pathlib.Path(word[0]).stem, printed, of, place)


def run_forked(checks, programs):
    here = [p for p in programs if not checks.leaves_out(p)]
    if here:
        checks.attempt("forked", checks.check_forked, here)


def run_programs(checks, programs, jobs):
    def run(program):
        if not checks.leaves_out(program):
            checks.attempt(program, checks.check, program)

    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        list(threads.map(run, programs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the sonde binary")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--out", help="directory for the recordings; a temporary one by default")
    parser.add_argument("--forked", action="store_true", help="from one process that has imported torch")
    parser.add_argument("--jobs", type=int, default=1, help="so many programs at a time")
    parser.add_argument("program", nargs="*", default=PROGRAMS, help=", ".join(PROGRAMS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(args.out or scratch).resolve()
        out.mkdir(parents=True, exist_ok=True)
        python = shutil.which(args.python) or parser.error(f"there is no '{args.python}'")
        checks = Checks(pathlib.Path(args.bin).resolve(), os.path.abspath(python), args.device, out)
        if args.forked:
            run_forked(checks, args.program)
        else:
            run_programs(checks, args.program, args.jobs)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
