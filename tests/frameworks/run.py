#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Programs of the kind that people have, without a word of ours in them: are their steps counted, and
is a leak found at their own line?

usage: run.py --bin BUILD/bin/sonde [--python PYTHON] [--device cpu|gpu] [--out DIR] [PROGRAM...]

Each program (the other files of this folder) runs twice: as it is, where nothing may be found, and with
the word `leak`, where the leak must be found at the line that is marked "# the leak". Its steps must be
as many as it says. Programs whose packages the interpreter lacks are named and left out. Exits with 1 if
anything was wrong.
"""

import argparse
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
}


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
        if program == "fsdp":
            code = "from torch.distributed.fsdp import fully_shard"
        if program == "compiled":
            code = "import torch\ntorch.compile(torch.nn.Linear(1, 1), backend='aot_eager')(torch.ones(1, 1))"
        return None if self.run(self.python, "-c", code).returncode == 0 else need

    def record(self, program, *words):
        """The answer of `sonde mem leaks`, how many steps the program had, and where the recording is."""
        place = self.out / "-".join((program, *words))
        job = [self.python, HERE / f"{program}.py", *words]
        options = [f"--device={self.device}", "--analysis=leaks,decompose", "--call-stack=python:10"]
        done = self.run(self.sonde, "mem", "record", f"--output={place}", *options, "--", *job)
        said = re.search(r"^steps (\d+)$", done.stdout, re.M)
        if done.returncode != 0 or not said:
            raise RuntimeError(f"the program failed: {done.stdout}{done.stderr}"[-2000:])
        answer = self.run(self.sonde, "mem", "leaks", "--json", place)
        if answer.returncode != 0:
            raise RuntimeError(answer.stderr[-2000:])
        return json.loads(answer.stdout), int(said.group(1)), place

    def say(self, good, program, what, place=None):
        self.failed += not good
        print(f"{'PASS' if good else 'FAIL'} {program}: {what}", flush=True)
        if not good and place:
            text = self.run(self.sonde, "mem", "leaks", place).stdout
            print("    " + "\n    ".join(text.splitlines()[:25]), flush=True)

    def check_steps(self, program, answer, steps, place):
        counted = sorted({p["steps_ended"] for p in answer["processes"] if p["steps_ended"]})
        self.say(counted == [steps], program, f"{steps} steps, counted {counted}", place)

    def check(self, program):
        answer, steps, place = self.record(program)
        self.check_steps(program, answer, steps, place)
        self.say(not answer["leaks"], program, "nothing is found in the healthy one", place)
        answer, steps, place = self.record(program, "leak")
        self.check_steps(f"{program} leak", answer, steps, place)
        where = f"({program}.py:{line_of_leak(program)})"
        found = [leak["where"] or "" for leak in answer["leaks"]]
        good = found and all(f.endswith(where) for f in found)
        self.say(good, program, f"the leak is found at {where}", place)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the sonde binary")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--out", help="directory for the recordings; a temporary one by default")
    parser.add_argument("program", nargs="*", default=PROGRAMS, help=", ".join(PROGRAMS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(args.out or scratch).resolve()
        out.mkdir(parents=True, exist_ok=True)
        python = shutil.which(args.python) or parser.error(f"there is no '{args.python}'")
        checks = Checks(pathlib.Path(args.bin).resolve(), os.path.abspath(python), args.device, out)
        for program in args.program:
            missing = checks.lacks(program)
            if missing:
                print(f"SKIP {program}: this Python has no {missing} that works", flush=True)
                continue
            try:
                checks.check(program)
            except Exception as why:  # the next program may work
                checks.say(False, program, f"{type(why).__name__}: {why}")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
