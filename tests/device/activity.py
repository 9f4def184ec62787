#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The monitor in a PyTorch job on a real NVIDIA GPU. By hand, on a machine that has both.

usage: activity.py --build DIR --out DIR [--lib-dir DIR] [--driver libactivity_driver.so]

DIR has bin/sonde, lib/libsonde_monitor.so and python/; --lib-dir what those need on that machine.
With --driver the source is measured alone, without daemon and recorder (activity_driver.c).

The job (activity_job.py) is plain PyTorch: the driver brings the monitor into it, dyno switches it.
Kernel by kernel, counts and times are compared with what torch.profiler says of as many steps, in
all three kinds of files; both in one process, in either order; Kineto's trace by the daemon in
between; the time of a step with the monitor on and off, in turns. Prints PASS or FAIL for each
statement and exits with 1 if anything failed. About three minutes.
"""

import argparse
import contextlib
import glob
import json
import os
import pathlib
import re
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 40
TIMED = 20
ROUNDS = 12
KERNEL_AND_MARKER = 1 << 2 | 1 << 1
LIMIT_S = 280


class Run:
    def __init__(self, args):
        self.args = args
        self.build = pathlib.Path(args.build).resolve()
        self.out = pathlib.Path(args.out).resolve()
        self.work = self.out / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.lib = self.build / "lib" / "libsonde_monitor.so"
        self.tool = str(pathlib.Path(args.driver).resolve() if args.driver else self.lib)
        self.env = dict(os.environ)
        if args.lib_dir:
            self.env["LD_LIBRARY_PATH"] = os.path.abspath(args.lib_dir)
        self.failed = 0
        self.began = time.monotonic()
        self.daemon = self.job = self.port = None
        self.profiled = 0.0  # when the last profile was over

    def check(self, name, good, detail=""):
        self.failed += not good
        at = time.monotonic() - self.began
        print(f"{'PASS' if good else 'FAIL'}  {at:5.1f} s  {name}: {detail}", flush=True)
        return good

    def stage(self, function):
        try:
            function(self)
        except Exception as e:  # one stage's failure does not keep the others from running
            traceback.print_exc()
            self.check(function.__name__, False, f"{type(e).__name__}: {e}")

    def wait(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > min(end, self.began + LIMIT_S):
                raise TimeoutError(what)
            time.sleep(0.02)

    # --- the job ---

    def start_job(self):
        env = dict(self.env, CUDA_INJECTION64_PATH=self.tool, NVTX_INJECTION64_PATH=self.tool)
        if not self.args.driver:
            env.update(
                MSMONITOR_USE_DAEMON="1",
                KINETO_USE_DAEMON="1",
                KINETO_IPC_SOCKET_DIR=str(self.work),
                PYTHONPATH=str(self.build / "python"),
            )
        more = ["--driver", self.tool] if self.args.driver else []
        self.job = subprocess.Popen(
            [sys.executable, str(HERE / "activity_job.py"), *more],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.out / "job.err", "w"),
            text=True,
            cwd=self.work,
        )
        self.answer()

    def answer(self):
        for line in self.job.stdout:
            if line.startswith("ok"):
                return line[2:].strip()
        raise RuntimeError("the job has ended: see job.err")

    def tell(self, *words):
        self.job.stdin.write(" ".join(map(str, words)) + "\n")
        self.job.stdin.flush()
        return self.answer()

    def profile(self, steps=STEPS):
        path = self.work / "profile.json"
        self.tell("profile", steps, path)
        self.profiled = time.monotonic()
        return json.loads(path.read_text())

    # --- the daemon ---

    def start_daemon(self):
        log = self.out / "daemon.log"
        self.daemon = subprocess.Popen(
            [
                *(str(self.build / "bin" / "sonde"), "daemon", "--port", "0", "--nohttp"),
                *("--enable-ipc-monitor", "--ipc-socket-dir", str(self.work)),
            ],
            env=self.env,
            stdout=open(log, "w"),
            stderr=subprocess.STDOUT,
        )

        def port():
            m = re.search(r"System assigned port = (\d+)", log.read_text())
            self.port = int(m.group(1)) if m else None
            return self.port

        self.wait(port, 10, "the daemon")

    def call(self, request):
        body = json.dumps(request).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(struct.pack("=i", len(body)) + body)
            with s.makefile("rb") as f:
                return json.loads(f.read(struct.unpack("=i", f.read(4))[0]))

    def dyno(self, *words):
        done = subprocess.run(
            [str(self.build / "bin" / "dyno"), "--port", str(self.port), *map(str, words)],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
        )
        return done.stdout

    def until_state(self, state):
        self.wait(lambda: self.call({"fn": "getStatus"})["npumonitor"] == state, 20, state)

    # --- the monitor, by either ---

    def start(self, export=None):
        """Gives where its files will be."""
        if self.args.driver:
            self.tell("start", KERNEL_AND_MARKER)
            self.until_it_sees()
            return None
        words = ["--mspti-activity-kind", "Kernel,Marker", "--report-interval-s", 1]
        where = self.work / f"{export}{time.monotonic_ns()}"
        if export:
            where.mkdir()
            words += ["--log-file", where, "--export-type", export]
        self.dyno("npu-monitor", "--npu-monitor-start", *words)
        self.until_state("Running")
        self.until_it_sees()
        return where

    def until_it_sees(self):
        """It waits for what a profiler may still fetch, two seconds; it looks once a second."""
        if not self.args.driver:
            time.sleep(max(0, self.profiled + 3.5 - time.monotonic()))
            return
        for _ in range(50):
            if self.tell("aside") == "0":
                return
            time.sleep(0.1)
            self.tell("flush")

    def stop(self):
        if self.args.driver:
            self.tell("stop")
            return
        self.dyno("npu-monitor", "--npu-monitor-stop")
        self.until_state("Idle")

    def read(self, where, export):
        if self.args.driver:
            path = self.work / "totals.json"
            lost = self.tell("totals", path)
            self.check("nothing is lost", lost == "0", lost)
            return json.loads(path.read_text())
        return totals(READERS[export](where))


# --- files ---


def demangled(names):
    """By name as it is in the file."""
    names = sorted(names)
    try:
        r = subprocess.run(
            ["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True
        )
        return dict(zip(names, r.stdout.splitlines()))
    except (OSError, subprocess.CalledProcessError):
        return {n: n for n in names}


def totals(rows):
    """[count, microseconds] by name."""
    rows = list(rows)
    plain = demangled({name for name, _, _ in rows})
    out = {}
    for name, start, end in rows:
        t = out.setdefault(plain[name], [0, 0.0])
        t[0] += 1
        t[1] += (end - start) / 1000
    return out


def read_jsonl(where):
    for path in glob.glob(f"{where}/*.jsonl"):
        with open(path) as f:
            for row in map(json.loads, f):
                if row["kind"] == "Kernel":
                    yield row["name"], row["startNs"], row["endNs"]


def read_db(where):
    for path in glob.glob(f"{where}/*.db"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as c:
            yield from c.execute(
                "select s.value, t.startNs, t.endNs from TASK t"
                " join COMPUTE_TASK_INFO i using (globalTaskId) join STRING_IDS s on s.id = i.name"
            )


def read_xlsx(path):
    import openpyxl

    rows = openpyxl.load_workbook(path, read_only=True)["Kernel"].iter_rows(values_only=True)
    next(rows)
    for row in rows:
        yield row[0], float(row[1]) * 1000, float(row[2]) * 1000


READERS = {"Jsonl": read_jsonl, "DB": read_db}


def compare(got, want):
    """Counts that differ, and the largest difference of a kernel that has 1 % of the time, in %."""
    counts = {n: (got.get(n, [0])[0], want.get(n, [0])[0]) for n in got.keys() | want.keys()}
    wrong = {n: c for n, c in counts.items() if c[0] != c[1]}
    whole = sum(t[1] for t in want.values())
    worst = max(
        (abs(got[n][1] / t[1] - 1) * 100, n)
        for n, t in want.items()
        if n in got and t[1] > whole / 100
    )
    return wrong, worst, (sum(t[1] for t in got.values()) / whole - 1) * 100


# --- what is shown ---


def agreement(run):
    """Profile, monitor, profile: the profiler differs from itself, too."""
    before = run.profile()
    seen = {}
    for export in ["Jsonl", "DB"]:
        where = run.start(export)
        run.tell("steps", STEPS)
        run.stop()
        seen[export] = run.read(where, export)
        if run.args.driver:
            break
    after = run.profile()
    mean = {n: [t[0], (t[1] + after.get(n, t)[1]) / 2] for n, t in before.items()}
    _, noise, _ = compare(before, after)
    print(f"      two profiles differ by {noise[0]:.2f} % at most")
    for export, got in seen.items():
        wrong, worst, whole = compare(got, mean)
        run.check(f"{export}: every kernel is counted", not wrong, str(wrong)[:300])
        run.check(f"{export}: all kernels together", abs(whole) <= 1, f"{whole:+.3f} %")
        told = f"{worst[0]:.2f} %: {worst[1][:80]}"
        run.check(f"{export}: kernel by kernel", worst[0] <= max(1, noise[0]), told)
    if not run.args.driver:
        xlsx(run, mean)


def xlsx(run, mean):
    path = run.work / "kernels.xlsx"
    run.tell("xlsx", 4, path)
    got = totals(read_xlsx(path))
    want = {n: [t[0] * 4 // STEPS, t[1] * 4 / STEPS] for n, t in mean.items()}
    wrong, _, whole = compare(got, want)
    run.check("xlsx: every kernel is counted", not wrong, str(wrong)[:300])
    run.check("xlsx: all kernels together", abs(whole) <= 2, f"{whole:+.3f} %")


def beside_a_profiler(run):
    alone = run.profile(20)
    where = run.start("Jsonl")
    run.tell("steps", STEPS)
    beside = run.profile(20)
    wrong, _, _ = compare(beside, alone)
    run.check("a profile taken while the monitor is on is whole", not wrong, str(wrong)[:300])
    run.until_it_sees()
    run.tell("steps", STEPS)
    run.stop()
    got = run.read(where, "Jsonl")
    want = {n: [t[0] * 2 * STEPS // 20, t[1]] for n, t in alone.items()}
    wrong, _, _ = compare(got, want)
    run.check("and so is what the monitor saw before and after", not wrong, str(wrong)[:300])
    again = run.profile(20)
    wrong, _, _ = compare(again, alone)
    run.check("and a profile afterwards", not wrong, str(wrong)[:300])


def kineto_trace(run):
    """gputrace of the daemon while the monitor is on."""
    if run.args.driver:
        return
    run.start("Jsonl")
    stem = f"/tmp/activity_{os.getpid()}"
    run.dyno("gputrace", "--iterations", 5, "--log-file", stem + ".json")
    path = f"{stem}_{run.job.pid}.json"

    def whole():
        run.tell("steps", 10)
        with contextlib.suppress(OSError, ValueError):
            with open(path) as f:
                return json.load(f)["traceEvents"]
        return None

    run.wait(whole, 60, "Kineto's trace")
    kernels = [e for e in whole() if e.get("cat") == "kernel"]
    run.check("Kineto's trace by the daemon has kernels", len(kernels) > 1000, str(len(kernels)))
    run.stop()
    os.unlink(path)


def overhead(run):
    on, off = [], []
    for _ in range(ROUNDS):
        run.start()
        run.tell("steps", 2)
        on.append(float(run.tell("steps", TIMED)))
        run.stop()
        run.tell("steps", 2)
        off.append(float(run.tell("steps", TIMED)))
    ratio = statistics.median(a / b for a, b in zip(on, off)) - 1
    spread = statistics.median(abs(a / b - 1) for a, b in zip(off, off[1:]))
    told = f"{ratio * 100:+.2f} % (two rounds without it differ by {spread * 100:.2f} %)"
    run.check("a step takes at most 2 % longer with Kernel and Marker", ratio <= 0.02, told)
    print("      on  ms", *(f"{x * 1e3:.2f}" for x in on))
    print("      off ms", *(f"{x * 1e3:.2f}" for x in off))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--lib-dir")
    parser.add_argument("--driver")
    run = Run(parser.parse_args())
    try:
        if not run.args.driver:
            run.start_daemon()
        run.start_job()
        if not run.args.driver:
            run.until_state("Idle")
        for stage in (agreement, beside_a_profiler, kineto_trace, overhead):
            run.stage(stage)
    finally:
        for process in (run.job, run.daemon):
            if process and process.poll() is None:
                process.terminate()
                process.wait(20)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
