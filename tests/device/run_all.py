#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Everything of this folder that a GPU has to show, in parts of less than ten minutes.

usage: run_all.py --build DIR --out DIR [--part NAME,…] [--minutes M] [--list]

DIR has bin/, lib/ and python/: a build, or what tools/device_bundle makes of one. Without --part all
parts run, one after the other, each with M minutes (9). A script that does not end in its time is
ended; what did not get its turn is named. What a script says is in OUT/<script>.txt. Ends with a table,
and with 1 if anything failed or was not run.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from gpu import lacking, why_no_gpu

HERE = pathlib.Path(__file__).resolve().parent
FRAMEWORKS = HERE.parent / "frameworks" / "run.py"
PACKAGES = ("torch", "transformers", "torchvision", "jax", "cupy", "triton", "lightning", "accelerate")

BUILD = ("--build", "{build}", "--out", "{out}")
BIN = ("--bin", "{build}/bin/sonde", "--out", "{out}")
# name of the part: (what it shows, [(script, its words, seconds that it takes at most)])
PARTS = {
    "memory": (
        "the first command of a GPU user, every block of the driver, steps and leaks of programs",
        [
            ("cuda_first.py", BIN, 220),
            ("cuda_memory.py", BIN, 300),
            (FRAMEWORKS, (*BIN, "--device=gpu", "gpt2"), 120),
        ],
    ),
    "beside": (
        "a recording beside compute-sanitizer, Nsight Compute, profilers, the monitor, other interposers",
        [("beside.py", BUILD, 170)],
    ),
    "cost": (
        "what recording costs a step",
        [("cuda_cost.py", (*BIN, "--minutes", "{cost_minutes}"), 520)],
    ),
    "record": ("what sonde record costs a step", [("record_cost.py", BIN, 400)]),
    "time": (
        "device time and memory by module, what --attribute costs; the other programs",
        [
            ("attribute.py", BUILD, 240),
            ("modules.py", (*BIN, "--jobs=5"), 120),
            (
                FRAMEWORKS,
                (*BIN, "--device=gpu", "--jobs=4", "resnet", "accumulation", "gan", "server", "loader", "compiled",
                 "accelerated", "lightning_fit"),
                180,
            ),
        ],
    ),
    "torch": (
        "torch's own notes of its pool, owners, operators, refusals, two processes",
        [("memory.py", (*BIN, "--python-path", "{build}/python"), 540)],
    ),
    "monitor": ("the monitor in PyTorch jobs", [("activity.py", BUILD, 500)]),
    "rest": (
        "traces on demand, Python stacks, putils",
        [
            ("kineto.py", BIN, 280),
            ("stack.py", BIN, 200),
            ("putils.py", BIN, 90),
        ],
    ),
}  # fmt: skip

GOOD = re.compile(r"^PASS\b|: ok( \(|$)| PASS( |$)")
BAD = re.compile(r"^FAIL\b|: FAILED( \(|$)| FAIL( |$)|^FAILED ")
LEFT_OUT = re.compile(r"^(SKIP|skip)")
COUNTED = re.compile(r"(\d+) passed, (\d+) failed")  # putils, which names only what failed


class Step:
    def __init__(self, script, words, limit, values):
        self.path = HERE / script
        self.name = self.path.name if self.path.parent == HERE else f"{self.path.parent.name}/{self.path.name}"
        self.words, self.limit, self.values = words, limit, values
        self.good = self.left_out = 0
        self.bad, self.took, self.end = [], 0.0, "no time was left"

    def command(self):
        out = self.values["out"] / self.name.replace("/", "_").replace(".py", "")
        out.mkdir(parents=True, exist_ok=True)
        return [sys.executable, self.path, *(w.format(**{**self.values, "out": out}) for w in self.words)]

    def run(self, seconds):
        """With at most so much time; its lines are counted, kept and shown."""
        began = time.monotonic()
        kept = self.values["out"] / (self.name.replace("/", "_").replace(".py", "") + ".txt")
        print(f"-- {self.name}", flush=True)
        with open(kept, "wb+") as text:
            job = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = job.wait(min(seconds, self.limit))
                self.end = "" if status == 0 else f"exit status {status}"
            except subprocess.TimeoutExpired:
                self.end = f"did not end within {min(seconds, self.limit):.0f} s"
            finally:
                # what it has left behind, too
                try:
                    os.killpg(job.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                job.wait()
            text.seek(0)
            self.count(text.read().decode("utf-8", "replace").splitlines())
        self.took = time.monotonic() - began

    def count(self, lines):
        for line in lines:
            if BAD.search(line):
                self.bad.append(line)
                print("   " + line[:300], flush=True)
            elif GOOD.search(line):
                self.good += 1
            elif LEFT_OUT.search(line):
                self.left_out += 1
        counted = [COUNTED.search(line) for line in lines]
        if not self.good:
            self.good = sum(int(found[1]) for found in counted if found)
        if self.end and not self.bad:
            for line in lines[-3:]:
                print("   " + line[:300], flush=True)
        if not self.end and not self.good and not self.bad:
            self.end = "it says nothing that could be counted"

    def failed(self):
        return bool(self.bad or self.end)


def run_part(steps, minutes):
    until = time.monotonic() + 60 * minutes
    for step in steps:
        left = until - time.monotonic()
        if left > 10:
            step.run(left)


def say_table(ran):
    print(f"\n{'part':<9}{'script':<22}{'s':>6}{'passed':>8}{'failed':>8}{'left out':>10}")
    for part, steps in ran.items():
        for s in steps:
            print(f"{part:<9}{s.name:<22}{s.took:6.0f}{s.good:8}{len(s.bad):8}{s.left_out:10}  {s.end}")
    failed = [(s, line) for steps in ran.values() for s in steps for line in s.bad]
    for step, line in failed[:30]:
        print(f"{step.name}: {line[:240]}")
    if len(failed) > 30:
        print(f"and {len(failed) - 30} more")


def say_machine():
    missing = lacking(PACKAGES)
    has = [p for p in PACKAGES if p not in missing]
    print(f"{sys.executable} has {', '.join(has) or 'none of the frameworks'}", end="")
    print(f", and no {', '.join(missing)}" if missing else "", flush=True)
    tool = shutil.which("nvidia-smi")
    if tool:
        query = [tool, "--query-gpu=index,name,driver_version,memory.used", "--format=csv,noheader"]
        subprocess.run(query, check=False)


def parse():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    p.add_argument("--build")
    p.add_argument("--out")
    p.add_argument("--part", default="", help=", ".join(PARTS))
    p.add_argument("--minutes", type=float, default=9)
    p.add_argument("--list", action="store_true", help="what there is, and nothing else")
    args = p.parse_args()
    names = args.part.split(",") if args.part else list(PARTS)
    for name in names:
        if name not in PARTS:
            p.error(f"there is no part '{name}'; there are {', '.join(PARTS)}")
    if not args.list and not (args.build and args.out):
        p.error("--build and --out are needed")
    return p, args, names


def main():
    p, args, names = parse()
    if args.list:
        for name in names:
            what, steps = PARTS[name]
            print(f"{name:<9}{what}: " + ", ".join(pathlib.Path(s[0]).name for s in steps))
        return 0
    build, out = pathlib.Path(args.build).resolve(), pathlib.Path(args.out).resolve()
    if not os.access(build / "bin/sonde", os.X_OK):
        p.error(f"there is no {build}/bin/sonde")
    why = why_no_gpu()
    if why:
        sys.exit(f"cannot run here: {why}; only a machine with an NVIDIA GPU can show this")
    out.mkdir(parents=True, exist_ok=True)
    say_machine()
    values = {"build": build, "out": out, "cost_minutes": max(args.minutes - 1.5, 0.5)}
    ran = {name: [Step(*step, values) for step in PARTS[name][1]] for name in names}
    for name in names:
        run_part(ran[name], args.minutes)
    say_table(ran)
    return 1 if any(s.failed() for steps in ran.values() for s in steps) else 0


if __name__ == "__main__":
    sys.exit(main())
