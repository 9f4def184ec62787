# SPDX-License-Identifier: MulanPSL-2.0
"""Daemons, jobs and dyno for activity.py, and how it tells what it has found."""

import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 420  # nothing begins later
ANSWER_S = 60
# What would be an injection, if somebody has it in his environment.
OURS = re.compile(r"SONDE_|MSMONITOR_|KINETO_|(CUDA|NVTX)_INJECTION64_PATH$|LD_PRELOAD$")


class Report:
    """One line for each statement: the statement, ok or FAILED, the numbers."""

    def __init__(self):
        self.began, self.failed, self.held = time.monotonic(), [], 0

    def elapsed(self):
        return time.monotonic() - self.began

    def check(self, statement, good, numbers=""):
        print(
            f"{self.elapsed():6.1f} s  {statement}: {'ok' if good else 'FAILED'}"
            + (f" ({numbers})" if numbers != "" else ""),
            flush=True,
        )
        if good:
            self.held += 1
        else:
            self.failed.append(statement)
        return good

    def check_same(self, statement, wrong, numbers=""):
        """wrong: what differs, if anything does."""
        return self.check(statement, not wrong, str(wrong)[:300] if wrong else numbers)

    def note(self, text):
        print(f"{self.elapsed():6.1f} s  {text}", flush=True)

    def stage(self, function, *args):
        """One's failure does not keep the others from running."""
        self.note(f"--- {function.__doc__.splitlines()[0]}")
        if self.elapsed() > LIMIT_S:
            self.check(function.__name__, False, "no time is left for it")
            return
        try:
            function(*args)
        except Exception as e:
            traceback.print_exc(limit=4, file=sys.stdout)
            self.check(function.__name__, False, f"{type(e).__name__}: {e}")

    def wait(self, condition, seconds, what):
        """The first true value of condition()."""
        end = time.monotonic() + min(seconds, max(1, LIMIT_S + 20 - self.elapsed()))
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise TimeoutError(what)
            time.sleep(0.02)


class Job:
    """A process that does what lines on its standard input say, and answers each with "ok …"."""

    def __init__(self, run, name, words, monitored, daemon):
        self.run, self.name, self.profiled = run, name, 0.0
        env = {k: v for k, v in os.environ.items() if not OURS.match(k)}
        if monitored:
            env["KINETO_IPC_SOCKET_DIR"] = str(daemon.dir)
            env["SONDE_MONITOR_DIR"] = str(run.work / "sessions")
            words = [str(run.build / "bin/sonde"), "monitor", "--quiet", "--", *words]
        self.err = (run.out if monitored else run.work) / f"{name}.err"
        self.process = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.err, "w"),
            text=True,
            cwd=run.work,
        )
        self.pid = self.process.pid
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def answer(self, seconds=ANSWER_S):
        """What follows the "ok"."""
        while True:
            try:
                line = self.lines.get(timeout=seconds)
            except queue.Empty:
                raise TimeoutError(f"{self.name} does not answer") from None
            if not line:
                raise RuntimeError(f"{self.name} has ended: see {self.err}")
            said = re.match(r"(?:(.*) )?ok\b ?(.*)", line.strip())
            if said:
                return (said.group(1) or said.group(2)).strip()

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def tell(self, *words):
        self.say(*words)
        return self.answer()

    def steps(self, n):
        """Trains; seconds that a step took. The device has finished."""
        return float(self.tell("steps", n))

    def begin_steps(self, n):
        """The same; answer() waits for it."""
        self.say("steps", n)

    def profile(self, n):
        """Totals, as the job's own profiler has them."""
        path = self.run.work / f"{self.name}_profile.json"
        self.tell("profile", n, path)
        self.profiled = time.monotonic()
        return json.loads(path.read_text())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)


class TorchJob(Job):
    def __init__(self, run, name, monitored=True, daemon=None):
        words = [sys.executable, str(HERE / "activity_job.py")]
        super().__init__(run, name, words, monitored, daemon)

    def ready(self):
        self.about = self.answer(180)

    def memory(self, size):
        self.tell("memory", size)

    def batch(self, times):
        self.tell("batch", times)

    def launches(self):
        return float(self.tell("launches"))


class StressJob(Job):
    """Many threads, graphs and copies at once: activity_stress_job.py."""

    def __init__(self, run, name, daemon):
        words = [sys.executable, str(HERE / "activity_stress_job.py")]
        super().__init__(run, name, words, True, daemon)


class SimJob(Job):
    """tests/targets/cuda_job.c: for trying this out where there is no GPU."""

    def __init__(self, run, name, monitored=True, daemon=None):
        super().__init__(run, name, [str(run.build / "targets/cuda_job")], monitored, daemon)

    def ready(self):
        self.about = "simulated"
        self.tell("init")
        self.steps(3)

    def steps(self, n):
        return float(self.tell("train", n, "step"))

    def begin_steps(self, n):
        self.say("train", n, "step")

    def profile(self, n):
        path = self.run.work / f"{self.name}_profile.json"
        self.tell("profile on")
        self.steps(n)
        self.tell("sleep 50")
        self.tell("profile off")
        self.tell("totals", path)
        self.profiled = time.monotonic()
        return json.loads(path.read_text())

    def batch(self, times):
        pass

    def launches(self):
        return self.steps(20) * 1e6

    def memory(self, size):
        self.tell("alloc 3", size)
        self.tell("free 3", size)


class Daemon:
    def __init__(self, run, name):
        self.run, self.report = run, run.report
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sonde_ipc_", dir="/tmp"))
        log = run.out / f"{name}.log"
        self.process = subprocess.Popen(
            [
                *(str(run.build / "bin/sonde"), "daemon", "--port", "0", "--nohttp"),
                *("--enable-ipc-monitor", "--ipc-socket-dir", str(self.dir), "--ipc-dir-only"),
            ],
            stdout=open(log, "w"),
            stderr=subprocess.STDOUT,
        )
        found = self.report.wait(
            lambda: re.search(r"System assigned port = (\d+)", log.read_text()), 20, "the daemon"
        )
        self.port = int(found.group(1))

    def status(self):
        body = json.dumps({"fn": "getStatus"}).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(struct.pack("=i", len(body)) + body)
            with s.makefile("rb") as f:
                return json.loads(f.read(struct.unpack("=i", f.read(4))[0]))

    def until(self, state, which="npumonitor", seconds=20):
        self.report.wait(lambda: self.status()[which] == state, seconds, f"{which} {state}")

    def dyno(self, *words):
        return subprocess.run(
            [str(self.run.build / "bin/dyno"), "--port", str(self.port), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
        ).stdout

    def trace(self, where, *words):
        """nputrace; whether it is accepted, and the words of the answer."""
        said = self.dyno("nputrace", "--log-file", where, *words)
        return '"commandStatus":"effective"' in said.replace(" ", ""), said

    # --- the monitor ---

    def start(self, job, kinds="Kernel,Marker", export=None):
        """On; where its files will be."""
        words = ["--mspti-activity-kind", kinds, "--report-interval-s", 1]
        where = self.run.work / f"{export}{time.monotonic_ns()}"
        if export:
            where.mkdir()
            words += ["--log-file", where, "--export-type", export]
        self.dyno("npu-monitor", "--npu-monitor-start", *words)
        self.until("Running")
        self.until_it_sees(job)
        return where

    def until_it_sees(self, job):
        """It waits for what a profiler may still fetch, two seconds, and looks once a second."""
        time.sleep(max(0, job.profiled + 3.5 - time.monotonic()))

    def stop(self):
        """Off; seconds until its files were complete."""
        began = time.monotonic()
        self.dyno("npu-monitor", "--npu-monitor-stop")
        self.until("Idle")
        return time.monotonic() - began

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.dir, ignore_errors=True)


class Run:
    """Two monitored jobs with a daemon each, two that nobody has touched, and a daemon for more."""

    def __init__(self, args):
        self.report = Report()
        self.sim = args.sim
        self.build = pathlib.Path(args.build).resolve()
        self.out = pathlib.Path(args.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_activity_", dir="/tmp"))
        names = ("daemon", "daemon2", "daemon3")
        self.daemon, self.second, self.third = (Daemon(self, name) for name in names)
        kind = self.kind = SimJob if args.sim else TorchJob
        self.job = kind(self, "job", daemon=self.daemon)
        self.other = kind(self, "job2", daemon=self.second)
        self.plain = [kind(self, f"plain{i}", monitored=False) for i in (1, 2)]
        self.jobs = [self.job, self.other, *self.plain]
        self.per_step = {}  # kernels by name, of one step
        self.profiled = {}  # totals, as the profiler has them
        self.db = None  # what the first window left

    def ready(self):
        for job in self.jobs:
            job.ready()
        self.daemon.until("Idle", seconds=60)
        self.second.until("Idle", seconds=60)

    def start_late(self):
        """One more job, with the first daemon, which gets no order that was given before."""
        job = self.kind(self, "late", daemon=self.daemon)
        self.jobs.append(job)
        job.ready()
        self.report.wait(lambda: self.daemon.status()["nputrace"] != "Uninitialized", 30, "it")
        return job

    def batch(self, times):
        """For those whose steps are timed."""
        for job in (self.other, *self.plain):
            job.batch(times)

    def sonde(self, *words):
        done = subprocess.run(
            [str(self.build / "bin/sonde"), *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    def end(self):
        for x in (*self.jobs, self.daemon, self.second, self.third):
            x.end()
