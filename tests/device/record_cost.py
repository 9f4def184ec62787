#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""What `sonde record` with its defaults costs a step on a GPU: models of transformers and torchvision.

usage: record_cost.py --bin BUILD/bin/sonde --out DIR [--only WORD,…] [--minutes M] [--groups N] [--parts]

The jobs are those of cuda_cost_job.py. Each runs in processes that live at the same time and take turns in
bursts of steps: two alone and one under `sonde record`. What counts is its time divided by the mean of the
two in the same round; one of the two divided by the other says how far that can be trusted. Processes of one
program differ from each other for as long as they live, so each job is measured in --groups (2) groups of new
ones. With --parts there are processes that record memory, kernels, stacks with counters alone, to see which
of them takes the time. Bounds for the median of all rounds: 3 % of a step that the device bounds, 6 % of one
that launches bound. What was recorded must be in the recording. Prints PASS or FAIL; exits with 1 if anything
failed. Takes --minutes (5.5).
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from gpu import lacking, need_gpu

JOB = pathlib.Path(__file__).resolve().parent / "cuda_cost_job.py"

# name: (role and size, bound of the median in percent, steps of a burst, package)
JOBS = {
    "GPT-2, launch-bound": ("gpt2 small", 6.0, 12, "transformers"),
    "GPT-2, device-bound": ("gpt2 large", 3.0, 5, "transformers"),
    "ResNet-50, launch-bound": ("resnet small", 6.0, 20, "torchvision"),
    "ResNet-50, device-bound": ("resnet large", 3.0, 5, "torchvision"),
}
ALONE = ("alone", "again")
PARTS = {"memory": ["--only=memory"], "kernels": ["--only=kernels"], "stacks": ["--only=stacks,counters"]}
LEAST_ROUNDS = 10
ENDED_S = 60


class Member:
    """One process of a job; it runs bursts of steps when it is told to."""

    def __init__(self, sonde, work, words, options):
        self.steps = 0
        self.where = pathlib.Path(tempfile.mkdtemp(dir=work))
        command = [sys.executable, str(JOB), *words]
        if options is not None:
            command = [sonde, "record", "-q", "-o", str(self.where), *options, "--", *command]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("cost "):
                return line.split(maxsplit=1)[1].strip()
        self.log.seek(0)
        raise RuntimeError(self.log.read().decode(errors="replace")[-800:] or "the job has ended")

    def burst(self, steps):
        """Milliseconds of a step."""
        self.steps += steps
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(ENDED_S)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def recorded(self):
        """The recording's own last words."""
        until = time.monotonic() + ENDED_S
        while time.monotonic() < until:
            for path in self.where.glob("*/answer.json"):
                answer = json.loads(path.read_text())
                if not answer["running"]:
                    return answer
            time.sleep(0.05)
        raise RuntimeError(f"the recording in {self.where} has no end")


class Rounds:
    """The times of one job, of all its groups."""

    def __init__(self, modes):
        self.modes = modes
        self.alone_ms, self.ratios, self.medians = [], {mode: [] for mode in modes}, []

    def add(self, took):
        alone = (took["alone"] + took["again"]) / 2
        self.alone_ms.append(alone)
        for mode in self.modes:
            self.ratios[mode].append(took[mode] / (took["alone"] if mode == "again" else alone))

    def percent(self, mode):
        """(median, lower and upper quartile, how uncertain the median is) in percent more than alone."""
        ratios = self.ratios[mode]
        low, median, high = (100 * (v - 1) for v in statistics.quantiles(ratios, n=4))
        return median, low, high, 0.93 * (high - low) / len(ratios) ** 0.5


class Run:
    def __init__(self, args):
        self.args, self.sonde = args, os.path.abspath(args.bin)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_record_cost_"))
        self.modes = {"alone": None, "again": None, "record": [], **(PARTS if args.parts else {})}
        self.until = time.monotonic() + args.minutes * 60
        self.results, self.failed = {}, []

    def check(self, name, good, detail):
        print(f"{'PASS' if good else 'FAIL'}  {name}: {detail}", flush=True)
        if not good:
            self.failed.append(name)

    def measure_group(self, name, rounds, until):
        """Rounds of one group of processes; the answers of what it has recorded."""
        words, _, burst, _ = JOBS[name]
        members = {}
        try:
            for mode, options in self.modes.items():
                members[mode] = Member(self.sonde, self.work, words.split(), options)
            for member in members.values():
                member.answer()
            for member in members.values():  # all warm, none while another is
                member.burst(burst)
            done = 0
            while done < LEAST_ROUNDS or time.monotonic() < until:
                order = random.sample(list(members), len(members))
                rounds.add({mode: members[mode].burst(burst) for mode in order})
                done += 1
        finally:
            for member in members.values():
                member.end()
        return {mode: (m.recorded(), m.steps) for mode, m in members.items() if mode not in ALONE}

    def measure(self, name, seconds):
        rounds = Rounds([mode for mode in self.modes if mode != "alone"])
        begin, answers = time.monotonic(), []
        for group in range(self.args.groups):
            answers.append(self.measure_group(name, rounds, begin + seconds * (group + 1) / self.args.groups))
        self.tell(name, rounds)
        for answer in answers:
            self.check_recorded(name, *answer["record"])

    def tell(self, name, rounds):
        limit, count = JOBS[name][1], len(rounds.alone_ms)
        alone = statistics.median(rounds.alone_ms)
        print(f"\n{name}: {alone:.2f} ms a step alone, {count} rounds in {self.args.groups} groups")
        self.results[name] = {"alone_ms": alone, "rounds": count}
        for mode in rounds.modes:
            median, low, high, error = self.results[name][mode] = rounds.percent(mode)
            detail = f"{median:+.2f} % (± {error:.2f}; quartiles {low:+.2f} to {high:+.2f})"
            if mode == "record":
                self.check(f"{name}, sonde record", median <= limit, f"{detail}; at most {limit:.0f} %")
            else:
                print(f"      {'the same again' if mode == 'again' else f'{mode} alone'}: {detail}", flush=True)

    def check_recorded(self, name, answer, steps):
        """A recording in which something is missing would cost nothing."""
        kinds = ("events", "activities", "stack_samples")
        lost = sum(answer[f"lost_{kind}"] for kind in kinds)
        found = ", ".join(f"{answer[kind] / steps:.1f} {kind.replace('_', ' ')}" for kind in kinds)
        good = all(answer[kind] for kind in kinds) and not lost and not answer["unreadable_processes"]
        self.check(f"{name}, recorded", good, f"{found} a step, {lost} lost")


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    p.add_argument("--bin", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--only", default="", help="jobs whose names have all of these words")
    p.add_argument("--minutes", type=float, default=5.5)
    p.add_argument("--groups", type=int, default=2)
    p.add_argument("--parts", action="store_true")
    args = p.parse_args()
    words = args.only.split(",")
    chosen = [name for name in JOBS if all(word in name for word in words)]
    if not chosen:
        p.error(f"no job is called '{args.only}'; there are {', '.join(JOBS)}")
    need_gpu("torch")
    run = Run(args)
    for number, name in enumerate(chosen):
        if lacking([JOBS[name][3]]):
            print(f"SKIP  {name}: this Python has no {JOBS[name][3]}", flush=True)
            continue
        left = run.until - time.monotonic()
        try:
            run.measure(name, left / (len(chosen) - number))
        except (RuntimeError, OSError, ValueError) as why:
            run.check(name, False, f"did not run: {why}")
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(args.out) / "record_cost.json").write_text(json.dumps(run.results, indent=1))
    shutil.rmtree(run.work, ignore_errors=True)
    print(f"\n{len(run.failed)} failed")
    return 1 if run.failed or not run.results else 0


if __name__ == "__main__":
    sys.exit(main())
