#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""What recording costs a step on a GPU: jobs of transformers, torchvision and JAX, untouched.

usage: cuda_cost.py --bin BUILD/bin/sonde --out DIR [--rounds N] [--only WORD,…] [--minutes M] [--no-owners]

Each job runs in six processes that live at the same time and take turns: two without recording, of
which one is compared with the other to see how far the measurement itself can be trusted, one under
`msmemscope -- python …`, one under `msmemscope --call-stack=python:10 -- …`, one with
`--analysis=decompose` besides, one that records operators and accesses, too (--no-owners: without
the last two). A turn is a burst of steps with one synchronisation at its end. What
counts is the ratio to the mean of the two without recording in the same round: median and spread of
all rounds. Bounds: 1.5 % and 3 % of a step that the device bounds, 4 % and 8 % of one that launches bound.
Prints PASS or FAIL; exits with 1 if anything failed. Takes about six minutes.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from gpu import lacking, need_gpu

HERE = pathlib.Path(__file__).resolve().parent
JOB = HERE / "cuda_cost_job.py"

# name: (role and size, the bound of the step, steps of a burst)
JOBS = {
    "GPT-2, device-bound": ("gpt2 large", "device", 8),
    "GPT-2, launch-bound": ("gpt2 small", "launch", 20),
    "ResNet-50, device-bound": ("resnet large", "device", 8),
    "ResNet-50, launch-bound": ("resnet small", "launch", 20),
    "JAX, device-bound": ("jax large", "device", 10),
    "JAX, launch-bound": ("jax small", "launch", 200),
}
PACKAGES = {"GPT": "transformers", "ResNet": "torchvision", "JAX": "jax"}
MODES = {
    "plain": None,
    "again": None,
    "default": [],
    "python:10": ["--call-stack=python:10"],
    "python:10, owners": ["--call-stack=python:10", "--analysis=leaks,decompose"],
    "python:10, owners, operators": [
        "--call-stack=python:10",
        "--analysis=leaks,decompose",
        "--events=alloc,free,launch,access",
    ],
}
BOUNDS = {"device": {"default": 1.5, "python:10": 3.0}, "launch": {"default": 4.0, "python:10": 8.0}}


class Member:
    """One process of a job; it runs bursts of steps when it is told to."""

    def __init__(self, run, mode, words):
        self.where = run.work / f"{mode.replace(':', '_').replace(', ', '_')}_{time.time_ns()}"
        command = [sys.executable, str(JOB), *words]
        options = MODES[mode]
        if options is not None:
            at = [f"--output={self.where}", "--report=off", "--format=none"]
            command = [run.msmemscope, *options, *at, "--", *command]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("cost "):
                return line.split(maxsplit=1)[1].strip()
        self.log.seek(0)
        raise RuntimeError(self.log.read().decode(errors="replace")[-800:] or "the job has ended")

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Run:
    def __init__(self, args):
        self.args = args
        self.sonde = os.path.abspath(args.bin)
        self.msmemscope = str(pathlib.Path(self.sonde).with_name("msmemscope"))
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_cuda_cost_"))
        self.modes = [mode for mode in MODES if not (args.no_owners and "owners" in mode)]
        self.results = {}
        self.failed = []
        self.until = time.monotonic() + args.minutes * 60

    def check(self, name, good, detail):
        print(f"{'PASS' if good else 'FAIL'}  {name}: {detail}", flush=True)
        if not good:
            self.failed.append(name)

    def recorded(self, member, steps):
        """Events of a step, as the recording says."""
        words = [self.sonde, "mem", "show", "--json", str(member.where)]
        done = subprocess.run(words, capture_output=True, text=True)
        try:
            return json.loads(done.stdout).get("rows", 0) / max(steps, 1)
        except ValueError:
            print("  " + (done.stderr or done.stdout)[-300:])
            return 0


def spread(ratios):
    """(median, lower and upper quartile) in percent more than without."""
    q = statistics.quantiles(ratios, n=4)
    return [100 * (v - 1) for v in (statistics.median(ratios), q[0], q[2])]


def measure(run, name):
    words, bound, burst = JOBS[name]
    members = {}
    try:
        for mode in run.modes:
            members[mode] = Member(run, mode, words.split())
        for mode in run.modes:
            ready = members[mode].answer()
        print(f"\n{name} ({bound}-bound): {ready}", flush=True)
        for member in members.values():  # all warm, none while another is
            member.ask(f"{max(burst // 2, 4)}")
        ratios = {mode: [] for mode in run.modes if mode != "plain"}
        plain_ms = []
        for number in range(run.args.rounds):
            if time.monotonic() > run.until and number >= 10:
                break
            order = list(run.modes)
            order = order[number % len(order) :] + order[: number % len(order)]
            took = {mode: float(members[mode].ask(str(burst))) for mode in order}
            plain_ms.append(took["plain"])
            alone = (took["plain"] + took["again"]) / 2
            for mode in ratios:
                ratios[mode].append(took[mode] / (took["plain"] if mode == "again" else alone))
    finally:
        for member in members.values():
            member.end()
    steps = burst * len(plain_ms) + max(burst // 2, 4)
    tell(run, name, bound, statistics.median(plain_ms), ratios, members, steps)


def tell(run, name, bound, plain_ms, ratios, members, steps):
    noise = spread(ratios["again"])
    print(f"  {plain_ms:.2f} ms a step without; the same again: {noise[0]:+.2f} % "
          f"({noise[1]:+.2f} to {noise[2]:+.2f})")
    found = {"plain_ms": plain_ms, "again": noise}
    for mode in ratios:
        if mode == "again":
            continue
        median, low, high = found[mode] = spread(ratios[mode])
        events = run.recorded(members[mode], steps)
        limit = BOUNDS[bound].get(mode)
        detail = f"{median:+.2f} % ({low:+.2f} to {high:+.2f}), {len(ratios[mode])} rounds, " \
                 f"{events:.0f} events a step"
        if limit is None:
            print(f"      {name}, {mode}: {detail}", flush=True)
            continue
        run.check(f"{name}, {mode}", median <= limit,
                  f"{detail}; at most {limit} %")
    run.results[name] = found


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    p.add_argument("--bin", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--minutes", type=float, default=6)
    p.add_argument("--only", default="", help="jobs whose names have all of these words")
    p.add_argument("--no-owners", action="store_true")
    args = p.parse_args()
    words = args.only.split(",")
    chosen = [name for name in JOBS if all(word in name for word in words)]
    if not chosen:
        p.error(f"no job is called '{args.only}'; there are {', '.join(JOBS)}")
    need_gpu()
    run = Run(args)
    for name in chosen:
        package = PACKAGES[name.split("-")[0].split(",")[0]]
        if lacking(["jax" if package == "jax" else "torch", package]):
            print(f"SKIP  {name}: this Python has no {package} or no PyTorch", flush=True)
            continue
        try:
            measure(run, name)
        except (RuntimeError, OSError, ValueError) as why:
            run.check(name, False, f"did not run: {why}")
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(args.out) / "cuda_cost.json").write_text(json.dumps(run.results, indent=1))
    shutil.rmtree(run.work, ignore_errors=True)
    print(f"\n{len(run.failed)} failed")
    return 1 if run.failed or not run.results else 0


if __name__ == "__main__":
    sys.exit(main())
