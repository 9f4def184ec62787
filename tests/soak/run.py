#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The long tests, and one table of what they found.

usage: run.py [--build DIR] [--rounds N] [--seed N] [--part NAME] [--round SEED:NUMBER]
              [--fuzzers NAMES] [--benches PATHS] [kill|tests|fuzz|bench]...

kill    the kill matrix: N rounds (kill_matrix.py); a round that fails prints its name, keeps its
        directory below DIR/soak/rounds, and runs again alone by --round
tests   end-to-end tests that have a long version
fuzz    every fuzz target for FUZZ_SECONDS, with the corpus in FUZZ_CORPUS (fuzz.py)
bench   every program of bench/

Without a name all four. The exit status is 1 when anything failed.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "soak"), str(ROOT / "tests" / "e2e")]
sys.dont_write_bytecode = True

import fuzz  # noqa: E402
import kill_matrix  # noqa: E402

KINDS = ("kill", "tests", "fuzz", "bench")
FAILED = "FAILED"


class Table:
    """Rows of one kind under its heads; numbers to the right."""

    def __init__(self, *heads):
        self.heads, self.rows, self.failed = heads, [], []

    def add(self, *cells):
        self.rows.append([f"{c:.1f}" if isinstance(c, float) else str(c) for c in cells])

    def __str__(self):
        lines = [list(self.heads), *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.heads))]
        return "\n".join(
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
            .rstrip()
            for line in lines
        )


def run_kill(args):
    table = Table("kill matrix", "rounds", "exact", "loss stated", "failed", "seconds")
    build = args.build / "soak"
    seed, _, number = (args.round or args.seed).partition(":")
    print(f"kill matrix: seed {seed}, " + (f"round {number}" if number else f"{args.rounds} rounds"), flush=True)
    if not kill_matrix.can_mount():
        print("without root or mount namespaces: no rounds with a full disk")
    matrix = kill_matrix.Matrix(build, build / "rounds", seed)
    try:
        matrix.run_round(int(number)) if number else matrix.run(args.rounds, args.part)
    except KeyboardInterrupt:
        matrix.failed.append("interrupted")
    table.failed = matrix.failed
    for row in matrix.rows():
        table.add(*row)
    sums = [sum(column) for column in zip(*(row[1:] for row in matrix.rows()))]
    if len(table.rows) > 1:
        table.add("all", *sums)
    return table


def run_tests(args):
    table = Table("tests", "passed", "failed", "skipped", "seconds")
    began = time.monotonic()
    command = [sys.executable, ROOT / "tools" / "run_e2e.py", "-q", "-rs", "-m", "soak", ROOT / "tests" / "e2e"]
    env = {"SONDE_BUILD": str(args.build), **os.environ, "SOAK": "1", "SONDE_TEST_DEADLINE": "14400"}
    ran = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
    counts = {}
    for line in ran.stdout:
        print(line, end="", flush=True)
        found = {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", line)}
        counts = found or counts
        if line.startswith(("FAILED", "ERROR")):
            table.failed.append(line.split()[1])
    if ran.wait() and not table.failed:
        table.failed.append(f"pytest ended with {ran.returncode}")
    bad = counts.get("failed", 0) + counts.get("error", 0)
    table.add("soak", counts.get("passed", 0), bad, counts.get("skipped", 0), time.monotonic() - began)
    return table


def run_fuzz(args):
    table = Table("fuzz", "runs", "new", "inputs", "cov", "ft", "crashes", "seconds")
    folder = args.build.with_name(args.build.name + "-fuzz")
    corpus = pathlib.Path(os.environ.get("FUZZ_CORPUS") or folder / "corpus").resolve()
    seconds = int(os.environ.get("FUZZ_SECONDS") or 60)
    print(f"fuzz: {len(args.fuzzers)} targets, {seconds} s each, corpus {corpus}", flush=True)
    for program in fuzz.programs(folder / "fuzz", args.fuzzers):
        found = fuzz.fuzz(program, ROOT / "tests" / "fuzz" / "corpus", corpus, corpus / "crashes", seconds)
        ok = found.runs and not found.crashes
        table.add(found.name, found.runs, found.fresh, found.inputs, found.cov, found.ft,
                  len(found.crashes) or (0 if ok else FAILED), found.seconds)  # fmt: skip
        print(f"fuzz {found.name}: {found.runs} runs, {found.fresh} new inputs", flush=True)
        if not ok:
            words = " ".join(map(str, found.crashes)) or f"see {corpus / found.name}.log"
            table.failed.append(f"{found.name}: {words}")
            print(f"fuzz {found.name}: {FAILED}: {words}", flush=True)
    return table


def run_bench(args):
    table = Table("bench", "outcome", "seconds")
    for program in args.benches:
        began = time.monotonic()
        env = {**os.environ, "SONDE_BUILD": str(args.build)}
        status = subprocess.run([program], env=env, cwd=ROOT).returncode
        name = os.path.basename(program)
        table.add(name, "ok" if status == 0 else FAILED, time.monotonic() - began)
        if status:
            table.failed.append(name)
    return table


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default="build", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("SOAK_ROUNDS") or 1000))
    parser.add_argument("--seed", default=os.environ.get("SOAK_SEED") or str(int(time.time())))
    parser.add_argument("--part", action="append", choices=sorted(kill_matrix.PARTS))
    parser.add_argument("--round", default=os.environ.get("SOAK_ROUND"), metavar="SEED:NUMBER")
    parser.add_argument("--fuzzers", type=str.split, default=[])
    parser.add_argument("--benches", type=str.split, default=[])
    parser.add_argument("kind", nargs="*", metavar="|".join(KINDS))
    args = parser.parse_args()
    if set(args.kind) - set(KINDS):
        parser.error(f"one of {', '.join(KINDS)}")
    args.kind = args.kind or KINDS
    return args


def enter_namespace(args):
    """Small disks are mounted where nobody else sees them."""
    if "kill" in args.kind and not os.environ.get("SOAK_NAMESPACE") and kill_matrix.can_unshare():
        os.environ["SOAK_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])


def main():
    args = parse()
    enter_namespace(args)
    run = {"kill": run_kill, "tests": run_tests, "fuzz": run_fuzz, "bench": run_bench}
    tables = [run[kind](args) for kind in KINDS if kind in args.kind]
    for table in tables:
        print(f"\n{table}")
    failed = [name for table in tables for name in table.failed]
    print(f"\n{len(failed)} failed" + "".join(f"\n  {name}" for name in failed), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
