#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Prints one table: `sonde mem record` of host memory beside memray and heaptrack, on the same programs.

usage: host_peers.py [--build DIR] [--rounds N] [--python PYTHON] [PROGRAM...]

PROGRAM: alloc (a Python program that allocates), import (import torch), train (a small training with
PyTorch), new (C++ with 10^6 `new` and `delete`); all of them without any. PYTHON should have torch:
without it two programs are left out, which is said. memray is installed into DIR/host_peers by pip
with PYTHON; heaptrack is the system's. A peer that cannot be had is said, and left out.

Stacks are of the same depth: `sonde python` has Python frames, as memray; `sonde c` has frames of C
and C++, as heaptrack. Every round runs each tool once, in turn, so that a busy machine hurts all.

  wall       seconds from start to end of the command, the median of the rounds
  times      of the run without a tool
  MB         what was written
  events     allocations and frees that are in it; heaptrack does not tell
  B/event    bytes of each
  verdict    of sonde: slower than its peer, or more than 3 times memray's bytes, or more than 8
             bytes for an event, or something of it lost; "ok" else
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
LINE = "%-8s %-14s %7s %6s %9s %10s %8s  %s"

ALLOC = """
def make(n):
    return [bytearray(600 + i % 3000) for i in range(n)]
kept = []
for _ in range(300):
    make(1000)
    kept.append({str(i): "x" * (600 + i) for i in range(200)})
    if len(kept) > 20:
        kept.pop(0)
"""
TRAIN = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
step = torch.optim.Adam(net.parameters())
for _ in range(200):
    step.zero_grad()
    net(torch.randn(64, 256)).square().mean().backward()
    step.step()
"""
NEW = """
#include <vector>
int main()
{
	std::vector<char *> kept;
	kept.reserve(1024);
	for (long i = 0; i < 1000000; i++) {
		char *p = new char[16 + i * 37 % 480];
		p[0] = 1;
		kept.push_back(p);
		if (kept.size() < 1024)
			continue;
		for (char *q : kept)
			delete[] q;
		kept.clear();
	}
	for (char *q : kept)
		delete[] q;
}
"""

Run = collections.namedtuple("Run", "wall_s bytes events lost", defaults=(0,))


def succeed(words, **kw):
    """None where it cannot be done: what cannot be had is left out."""
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True, **kw).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def timed(words, cwd):
    begin = time.monotonic()
    r = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    took = time.monotonic() - begin
    if r.returncode:
        sys.exit(f"{' '.join(words)}: {r.stderr[-500:]}")
    return took


# --- tools: each runs a program in an empty directory ---


class Plain:
    name = "none"

    def run(self, program, cwd):
        return Run(timed(program, cwd), 0, 0)


class Sonde:
    def __init__(self, build, kind, depth):
        self.program, self.kind, self.depth = str(build / "bin" / "sonde"), kind, depth
        self.name = f"sonde {kind}"

    def run(self, program, cwd):
        stacks = f"--call-stack={self.kind}:{self.depth}"
        words = [self.program, "mem", "record", "--device=cpu", stacks, "-o", "out", "--"]
        took = timed(words + program, cwd)
        (recording,) = (pathlib.Path(cwd) / "out").glob("recording_*")
        shown = succeed([self.program, "mem", "show", "--json", str(recording)])
        answer = json.loads(shown)
        events = answer["counts"]["mallocs"] + answer["counts"]["frees"]
        lost = answer["lost"]["events"] + answer["lost"]["stacks"]
        return Run(took, (recording / "events.sonde").stat().st_size, events, lost)


class Memray:
    name = "memray"

    def __init__(self, python):
        self.python = python

    def run(self, program, cwd):
        words = [self.python, "-m", "memray", "run", "-q", "-o", "m.bin", *program[1:]]
        took = timed(words, cwd)
        ask = "import memray; print(memray.FileReader('m.bin').metadata.total_allocations)"
        events = subprocess.run(
            [self.python, "-c", ask], cwd=cwd, capture_output=True, text=True, check=True
        ).stdout
        return Run(took, (pathlib.Path(cwd) / "m.bin").stat().st_size, int(events))


class Heaptrack:
    name = "heaptrack"

    def run(self, program, cwd):
        took = timed(["heaptrack", "-o", "h", *program], cwd)
        written = sum(f.stat().st_size for f in pathlib.Path(cwd).glob("h.*"))
        return Run(took, written, 0)


def find_memray(build, python):
    """A Python with memray and all that PYTHON has."""
    folder = build / "host_peers"
    own = folder / "bin" / "python"
    if not own.exists():
        succeed([python, "-m", "venv", "--system-site-packages", str(folder)])
    if not succeed([str(own), "-c", "import memray"]):
        succeed([str(own), "-m", "pip", "install", "-q", "memray"])
    return str(own) if succeed([str(own), "-c", "import memray"]) is not None else None


# --- programs ---


def write_programs(folder, python, wanted):
    """Command lines by name; what cannot run is said."""
    programs = {}
    has_torch = succeed([python, "-c", "import torch"]) is not None
    for name, text in ("alloc", ALLOC), ("import", "import torch\n"), ("train", TRAIN):
        if name not in wanted:
            continue
        if name != "alloc" and not has_torch:
            print(f"{name}: left out, {python} has no torch (--python=PYTHON)")
            continue
        (folder / f"{name}.py").write_text(text)
        programs[name] = [python, str(folder / f"{name}.py")]
    if "new" in wanted:
        (folder / "new.cpp").write_text(NEW)
        out = str(folder / "new")
        if succeed(["g++", "-O2", "-o", out, str(folder / "new.cpp")]) is None:
            print("new: left out, there is no g++")
        else:
            programs["new"] = [out]
    return programs


def measure(tools, program, rounds):
    runs = collections.defaultdict(list)
    for _ in range(rounds):
        for tool in tools:
            with tempfile.TemporaryDirectory() as cwd:
                runs[tool.name].append(tool.run(program, cwd))
    return {
        name: of[-1]._replace(wall_s=statistics.median(r.wall_s for r in of))
        for name, of in runs.items()
    }


def verdict(name, mine, results, is_python):
    """What the numbers of sonde are called beside the peer that has the same stacks."""
    peer = results.get("memray" if name == "sonde python" else "heaptrack")
    said = []
    if peer and mine.wall_s > peer.wall_s:
        said.append("slower")
    if peer and name == "sonde python" and mine.bytes > 3 * peer.bytes:
        said.append(f"{mine.bytes / peer.bytes:.1f} times memray's bytes")
    if not is_python and mine.bytes > 8 * mine.events:
        said.append("more than 8 bytes for an event")
    if mine.lost:
        said.append(f"{mine.lost} events or call stacks lost")
    return ", ".join(said) or ("ok" if peer else "no peer")


def print_results(program, results, is_python):
    plain = results["none"].wall_s
    for name, r in results.items():
        print(
            LINE
            % (
                program,
                name,
                f"{r.wall_s:.2f}",
                f"{r.wall_s / plain:.1f}",
                f"{r.bytes / 1e6:.2f}" if r.bytes else "",
                r.events or "",
                f"{r.bytes / r.events:.1f}" if r.events else "",
                verdict(name, r, results, is_python) if name.startswith("sonde") else "",
            )
        )


def main():
    about = argparse.ArgumentParser(usage=re.search(r"usage: (.*)", __doc__)[1])
    about.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    about.add_argument("--rounds", type=int, default=3)
    about.add_argument("--python", default="/usr/bin/python3")
    about.add_argument("programs", nargs="*", metavar="PROGRAM")
    args = about.parse_args()
    build = args.build.resolve()
    memray = find_memray(build, args.python)
    heaptrack = shutil.which("heaptrack")
    if not memray:
        print("memray: left out, pip cannot install it")
    if not heaptrack:
        print("heaptrack: left out, it is not installed")
    with tempfile.TemporaryDirectory() as folder:
        wanted = args.programs or ["alloc", "import", "train", "new"]
        programs = write_programs(pathlib.Path(folder), memray or args.python, wanted)
        print(LINE % ("program", "tool", "wall", "times", "MB", "events", "B/event", "verdict"))
        for name, program in programs.items():
            tools = [Plain(), *([Heaptrack()] if heaptrack else []), Sonde(build, "c", 64)]
            if name != "new":
                tools += [*([Memray(memray)] if memray else []), Sonde(build, "python", 64)]
            print_results(name, measure(tools, program, args.rounds), name != "new")


if __name__ == "__main__":
    main()
