# SPDX-License-Identifier: MulanPSL-2.0
"""For stack.py: starts and ends what it looks at, and keeps the score."""

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from stack_control import STAY, map_control

HERE = pathlib.Path(__file__).resolve().parent
STEPS = str(HERE / "steps.py")


class Run:
    def __init__(self, args):
        self.args = args
        self.began = time.monotonic()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_stack_", dir="/tmp"))
        self.results = []
        self.started = []
        self.env = {k: v for k, v in os.environ.items() if "RANK" not in k}
        self.env["GLOO_SOCKET_IFNAME"] = "lo"

    # --- reporting ---

    def elapsed(self):
        return time.monotonic() - self.began

    def check(self, name, good, detail=""):
        good = bool(good)
        self.results.append({"name": name, "pass": good, "detail": str(detail)})
        tail = f": {detail}" if detail != "" else ""
        print(f"{'PASS' if good else 'FAIL'}  {name}{tail}", flush=True)
        return good

    def note(self, text):
        print(f"  {self.elapsed():6.1f} s  {text}", flush=True)

    def stage(self, name, function, *args):
        """A failure of one stage is told and does not keep the others from running."""
        self.note(name)
        try:
            return function(self, *args)
        except Exception as e:
            traceback.print_exc()
            self.check(name, False, f"{type(e).__name__}: {e}")
            return None

    def wait(self, what, condition, seconds):
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value or time.monotonic() > end:
                if not value:
                    self.note(f"gave up after {seconds:g} s: {what}")
                return value
            time.sleep(0.05)

    # --- programs ---

    def sonde(self, *words, timeout=60, **kw):
        return subprocess.run(
            [self.args.bin, *map(str, words)],
            env=self.env,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
            **kw,
        )

    def start_rank(self, name, rank, world, *words):
        log = open(self.work / f"{name}_{rank}.log", "w+b")
        p = subprocess.Popen(
            [sys.executable, STEPS, "--control", str(self.work / name), *words],
            env={**self.env, "RANK": str(rank), "WORLD_SIZE": str(world)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        p.rank, p.log_path = rank, log.name
        p.control = map_control(f"{self.work / name}.{rank}")
        self.started.append(p)
        return p

    def start_job(self, name, world, *words):
        return [self.start_rank(name, rank, world, *words) for rank in range(world)]

    def log_of(self, p):
        return pathlib.Path(p.log_path).read_text(errors="replace")

    def wait_ready(self, job):
        def ready():
            dead = any(p.poll() is not None for p in job)
            return dead or all("ready\n" in self.log_of(p) for p in job)

        self.wait("training", ready, 120)
        good = all(p.poll() is None and "ready\n" in self.log_of(p) for p in job)
        return self.check("the job trains", good, "" if good else self.log_of(job[0])[-500:])

    def end_job(self, job):
        for p in job:
            p.kill()
        for p in job:
            p.wait()

    # --- the end ---

    def finish(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
                p.wait()
        failed = [r["name"] for r in self.results if not r["pass"]]
        with open(pathlib.Path(self.args.out) / "results.json", "w") as f:
            json.dump({"failed": failed, "results": self.results}, f, indent=1)
        total = len(self.results)
        print(f"{total - len(failed)} of {total} checks, {self.elapsed():.0f} s")
        for name in failed:
            print(f"failed: {name}")
        shutil.rmtree(self.work, ignore_errors=True)
        return 1 if failed or not total else 0


class Watch:
    """Whether any thread of a process was ever traced or stopped."""

    def __init__(self, pids):
        self.pids, self.seen, self.looks = pids, set(), 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.over.wait(0.1):
            for pid in self.pids:
                for path in glob.glob(f"/proc/{pid}/task/*/status"):
                    self.look(path)

    def look(self, path):
        try:
            text = pathlib.Path(path).read_text()
        except OSError:
            return
        self.looks += 1
        state = re.search(r"^State:\s+(\S)", text, re.M).group(1)
        tracer = re.search(r"^TracerPid:\s+(\d+)", text, re.M).group(1)
        if tracer != "0" or state in "tT":
            self.seen.add((path, state, tracer))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def check_never_traced(run, watch, what):
    run.check(
        f"{what}: no thread was ever traced or stopped",
        not watch.seen and watch.looks,
        f"{watch.looks} looks" + (f", {sorted(watch.seen)[:3]}" if watch.seen else ""),
    )


def release(p):
    p.control[STAY] = 0
    p.stdin.write(b"\n")
    p.stdin.flush()


def goes_on(run, job):
    """Every process makes further steps."""
    before = [p.control[0] for p in job]
    return run.wait("steps", lambda: all(p.control[0] > n for p, n in zip(job, before)), 10)


def steps_per_s(p, seconds):
    before, began = p.control[0], time.perf_counter()
    time.sleep(seconds)
    return (p.control[0] - before) / (time.perf_counter() - began)
