#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Prints one table: sonde beside py-spy and austin, on the same programs in the same run.

usage: compare.py [--build DIR] [--seconds S] [--threads N] [--pairs N] [PYTHON...]

PYTHON: interpreters that run the programs that are looked at; without any, one of each minor
version of ~/.pyenv/versions and PATH. The peers are installed into DIR/peers by pip; their wheels
are kept there and used again when there is no network. What cannot be had is said, and left out.

  stacks/s   stacks of threads per second at the highest rate: 8 threads of depth 32, every second
             one running, from the start of the tool to its end
  lines      frames with a wrong line, of all frames of tests/targets/python/shapes.py whose
             stack came whole
  stacks     threads of the same program whose stack is wrong or missing
  slowdown   what a program with N threads at full speed loses at 100 samples per second;
             measured in pairs with and without the tool, the median of them
  CPU, RSS   of the tool while it does that
"""

import argparse
import collections
import contextlib
import glob
import json
import mmap
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
TARGETS = REPO / "tests" / "targets" / "python"
SHAPES_LEFT_OUT = {"renamed_code"}  # has no name that can be written down in UTF-8

LINE = "%-8s %-20s %10s %14s %10s %9s %6s %8s"

Usage = collections.namedtuple("Usage", "wall_s cpu_s rss_mb")


# --- tools ---


class Sonde:
    name = "sonde"

    def __init__(self, build):
        self.program = str(build / "bin" / "sonde")

    def record(self, pid, hz, out):
        every = ["--all-threads", "--format", "collapsed"]
        return [self.program, "stack", "-p", str(pid), "-i", f"{1 / hz:.9f}", "-o", out, *every]

    def stacks(self, out):
        return collapsed(out)

    def dump(self, pid, _folder):
        every = ["--all-threads", "--exact", "--top", "0"]
        words = [self.program, "snap", "--json", "-p", str(pid), *every]
        answer = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        for group in answer["groups"]:
            frames = [(f["name"], f["file"], f["line"]) for f in group["frames"]]
            for thread in group["threads"]:
                yield thread["tid"], frames[::-1]


class PySpy:
    def __init__(self, program, blocking):
        self.program, self.blocking = program, blocking
        self.name = "py-spy" if blocking else "py-spy --nonblocking"
        self.more = [] if blocking else ["--nonblocking"]

    def record(self, pid, hz, out):
        words = ["-p", str(pid), "-r", str(hz), "-f", "raw", "-i", "-d", "unlimited", "-o", out]
        return [self.program, "record", *words, *self.more]

    def stacks(self, out):
        return collapsed(out)

    def dump(self, pid, _folder):
        words = [self.program, "dump", "--json", "-p", str(pid), *self.more]
        answer = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        for thread in answer:
            frames = [(f["name"], f["filename"], f["line"]) for f in thread["frames"]]
            yield thread["thread_id"], frames[::-1]


class Austin:
    name = "austin"

    def __init__(self, program):
        self.program = program

    def record(self, pid, hz, out):
        return [self.program, "-i", f"{max(1, 1000000 // hz)}us", "-o", out, "-p", str(pid)]

    def stacks(self, out):
        """One line is one stack; its number is a time."""
        with open(out, "rb") as f:
            return sum(line.startswith(b"P") for line in f)

    def dump(self, pid, folder):
        out = os.path.join(folder, "austin")
        watch(self.record(pid, 1000, out), 1)
        last = {}
        with open(out, encoding="utf-8", errors="replace") as f:
            for line in f:
                match = re.match(r"P\d+;T\d+:(\d+)(.*) \d+$", line.rstrip("\n"))
                if match:
                    last[int(match[1])] = match[2]
        for tid, text in last.items():
            yield tid, [austin_frame(part) for part in text.split(";")[1:]]


def austin_frame(part):
    words = part.rsplit(":", 2)
    if len(words) == 3 and words[2].isdigit():
        return words[1], words[0], int(words[2])
    return part, "", 0


def collapsed(out):
    with open(out, "rb") as f:
        return sum(int(line.rsplit(b" ", 1)[1]) for line in f if line.strip())


# --- installing the peers ---


def runs(program):
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True)
    except OSError as e:
        return None, str(e)
    text = (done.stdout + done.stderr).strip().splitlines()
    return (text[0] if done.returncode == 0 and text else None), " ".join(text)


def pip_install(venv, wanted):
    """From the network, or from the wheels that the last run left behind."""
    wheels = venv / "wheels"
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    fetched = subprocess.run(
        [*pip, "download", "--no-deps", "-d", str(wheels), wanted], capture_output=True, text=True
    )
    more = ["--no-index", "--find-links", str(wheels)]
    done = subprocess.run(
        [*pip, "install", "--upgrade", "--no-deps", *more, wanted], capture_output=True, text=True
    )
    if done.returncode:
        return (fetched.stderr + done.stderr).strip().splitlines()[-1:] or ["pip failed"]
    return []


def install(venv, program, packages):
    """The first of these packages whose program runs here."""
    why = []
    for package in packages:
        why += pip_install(venv, package)
        version, said = runs(str(venv / "bin" / program))
        if version:
            print(f"{version} ({package})")
            return str(venv / "bin" / program)
        why.append(f"{package}: {said}")
    print(f"{program} could not be had: {'; '.join(why)}")
    return None


def tools(build):
    venv = build / "peers"
    if not (venv / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    found = [Sonde(build)]
    py_spy = install(venv, "py-spy", ["py-spy"])
    if py_spy:
        found += [PySpy(py_spy, False), PySpy(py_spy, True)]
    # 4.0.0 wants a C library that is newer than its wheel says
    austin = install(venv, "austin", ["austin-dist", "austin-dist==3.7.0"])
    if austin:
        found.append(Austin(austin))
    return found


# --- programs that are looked at ---


class Target:
    def __init__(self, python, script, *words):
        self.process = subprocess.Popen(
            [python, "-B", str(TARGETS / script), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def ready(self):
        for line in self.process.stdout:
            if line.startswith("ready"):
                return self
        raise SystemExit("the program that is looked at has ended")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def start(words):
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(process, began, limit_s=30):
    """Ctrl-C, as a person ends it; what it has used."""
    peak_kb = 0
    with contextlib.suppress(OSError):
        # ru_maxrss would count ourselves before the exec
        with open(f"/proc/{process.pid}/status") as f:
            peak_kb = sum(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
    process.send_signal(signal.SIGINT)
    end = time.monotonic() + limit_s
    while True:
        pid, _status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            process.kill()
        time.sleep(0.005)
    process.returncode = 0
    used = usage.ru_utime + usage.ru_stime
    return Usage(time.monotonic() - began, used, peak_kb / 1024)


def watch(words, seconds):
    began = time.monotonic()
    process = start(words)
    time.sleep(seconds)
    return finish(process, began)


# --- what is measured ---


def rate(tool, python, seconds, folder):
    out = os.path.join(folder, "rate")
    with Target(python, "many.py", 8, 32, "mixed").ready() as target:
        used = watch(tool.record(target.pid, 100000, out), seconds)
    return tool.stacks(out) / used.wall_s


def truth(python, folder):
    """The program and what it says of its own stacks, by system id and by ident."""
    path = os.path.join(folder, "view")
    if os.path.exists(path):
        os.unlink(path)
    text = (TARGETS / "shapes.py").read_text("utf-8")
    names = re.findall(r"^@shape\n(?:@.*\n)*def (\w+)", text, re.M)
    target = Target(python, "shapes.py", path, *(n for n in names if n not in SHAPES_LEFT_OUT))
    while not os.path.exists(path):
        if target.process.poll() is not None:
            raise SystemExit("the program that is looked at has ended")
        time.sleep(0.02)
    with open(path, encoding="utf-8") as f:
        threads = json.load(f)["threads"]
    known = {}
    for thread in threads:
        frames = [tuple(f) for f in thread["frames"]]
        known[thread["tid"]] = known[thread["ident"]] = frames
    return target, known, len(threads)


def short(name):
    """Of "<genexpr>" and "a.<locals>.<lambda>" alike the last part: not all know the whole."""
    return name.rpartition(".")[2]


def same_calls(seen, true):
    return [short(f[0]) for f in seen] == [short(f[0]) for f in true]


def lines(tool, python, folder):
    """Wrong lines, frames compared, threads wrong or missing, threads."""
    target, known, count = truth(python, folder)
    wrong = compared = good = 0
    with target:
        for tid, frames in tool.dump(target.pid, folder):
            true = known.get(tid)
            if true is None or not same_calls(frames, true):
                continue
            good += 1
            compared += len(true)
            wrong += sum(a[2] != b[2] for a, b in zip(frames, true))
    return wrong, compared, count - good, count


def slowdown(tool, python, threads, pairs, folder):
    losses, cpu, rss = [], [], []
    counts = os.path.join(folder, "counts")
    with Target(python, "work.py", counts, threads).ready() as target, open(counts, "rb") as f:
        done = memoryview(mmap.mmap(f.fileno(), threads * 8, prot=mmap.PROT_READ)).cast("Q")
        while not all(done):
            time.sleep(0.01)
        for _ in range(pairs):
            without = speed(done)
            began = time.monotonic()
            process = start(tool.record(target.pid, 100, os.path.join(folder, "slow")))
            time.sleep(1)
            losses.append(100 * (1 - speed(done) / without))
            used = finish(process, began)
            cpu.append(100 * used.cpu_s / used.wall_s)
            rss.append(used.rss_mb)
    return statistics.median(losses), statistics.median(cpu), max(rss)


def speed(done, seconds=1.0):
    """done: what each thread has done so far, in memory shared with the program."""
    before, began = sum(done), time.monotonic()
    time.sleep(seconds)
    return (sum(done) - before) / (time.monotonic() - began)


# --- the table ---


def interpreters():
    home = os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")
    found = {}
    for path in [*glob.glob(home), *(f"{d}/python3" for d in os.get_exec_path())]:
        if os.access(path, os.X_OK):
            ask = "import sys; print(*sys.version_info[:2])"
            said = subprocess.run([path, "-c", ask], capture_output=True, text=True).stdout.split()
            if len(said) == 2 and int(said[1]) >= 7:
                found.setdefault(int(said[1]), path)
    return [found[minor] for minor in sorted(found)]


def version(python):
    ask = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()


def attempt(function, *words):
    """None and a reason if a tool cannot do it at all."""
    try:
        return function(*words), ""
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
        return None, f"{type(e).__name__}: {e}"


def row(tool, python, o, folder):
    fast, why1 = attempt(rate, tool, python, o.seconds, folder)
    right, why2 = attempt(lines, tool, python, folder)
    slow, why3 = attempt(slowdown, tool, python, o.threads, o.pairs, folder)
    cells = ["-" if fast is None else f"{fast:,.0f}"]
    cells += ["-", "-"] if right is None else ["%d of %d" % right[:2], "%d of %d" % right[2:]]
    if slow is None:
        cells += ["-"] * 3
    else:
        cells += ["%.1f %%" % slow[0], "%.0f %%" % slow[1], "%.0f MB" % slow[2]]
    print(LINE % (version(python), tool.name, *cells), flush=True)
    for why in filter(None, (why1, why2, why3)):
        print(f"         {tool.name}: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.environ.get("SONDE_BUILD", REPO / "build"))
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--threads", type=int, default=160)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("pythons", nargs="*")
    o = parser.parse_args()
    found = tools(pathlib.Path(o.build).resolve())
    head = ("Python", "tool", "stacks/s", "wrong lines", "stacks", "slowdown", "CPU", "RSS")
    print(LINE % head)
    for python in o.pythons or interpreters():
        with tempfile.TemporaryDirectory() as folder:
            for tool in found:
                row(tool, python, o, folder)


if __name__ == "__main__":
    main()
