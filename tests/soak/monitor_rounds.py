# SPDX-License-Identifier: MulanPSL-2.0
"""Rounds with a daemon and a monitored job: windows of the monitor, traces of steps. The job launches
one kernel after the other, so that the correlation ids in the files show what is missing."""

import json
import pathlib
import re
import subprocess

from daemon import Daemon
from faults import SIGNALS
from harness import counted
from monitored import dyno, environment, lines, state
from rounds import Silent, open_db, require
from waiting import wait_until

START = ("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1)
STOP = ("npu-monitor", "--npu-monitor-stop")
KERNELS_PER_STEP = 5
LOST = re.compile(r"(\d+) activities (?:are|were) lost")
WINDOW_ENDED = re.compile(r"npu-monitor has ended")
TRACE_LOST = re.compile(r"trace is lost|trace has ended|ended before|trace was")


class Node:
    """A daemon and one job; the daemon may be replaced by another one at the same place."""

    def __init__(self, r):
        self.round = r
        self.ipc_dir = r.short_dir / "ipc"
        self.ipc_dir.mkdir()
        self.sessions = r.dir / "sessions"
        self.sessions.mkdir(mode=0o700)
        self.start_daemon()
        self.start_job()

    def start_daemon(self):
        r = self.round
        words = ("--port", 0, "--http-port", 0, "--enable-ipc-monitor")
        place = ("--ipc-socket-dir", self.ipc_dir, "--ipc-dir-only")
        self.daemon = Daemon(r.build, r.dir, *words, *place, defaults=False, env=r.env())
        self.daemon.ipc_dir.rmdir()
        self.daemon.ipc_dir = self.ipc_dir
        r.started(self.daemon.process)

    def start_job(self):
        """Another one replaces it, with files of its own."""
        r = self.round
        number = len(r.processes)
        self.count_file, self.errors = r.dir / f"count{number}", r.dir / f"job{number}.err"
        pace = r.rng.choice((500, 2000, 5000))
        words = [r.build / "targets" / "steady_kernels", self.count_file, str(pace)]
        env = environment(r.build, self.daemon, 0, SONDE_MONITOR_DIR=self.sessions, **r.env())
        with open(self.errors, "w") as errors:
            self.job = r.started(
                subprocess.Popen(words, env=env, cwd=r.dir, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=errors)
            )  # fmt: skip
        wait_until(lambda: self.state() == "Idle", "the job to register")

    def state(self, key="npumonitor"):
        return state(self.daemon, key)

    def dyno(self, *words):
        return dyno(self.round.build, self.daemon, *words)

    def said(self):
        return self.errors.read_text(errors="replace")

    @property
    def counted(self):
        return counted(self.count_file)

    def wait_launched(self, more, seconds=20):
        end = self.counted + more
        wait_until(lambda: self.counted >= end or self.job.poll() is not None, "kernels", seconds)

    def victim_pids(self):
        r = self.round
        pids = {"job": [self.job.pid], "daemon": [self.daemon.pid]}
        return pids.get(r.victim) or r.recorders()

    def replace_daemon(self):
        """Where it has ended: it was killed, or says why."""
        r, process = self.round, self.daemon.process
        if r.victim == "daemon" and r.fault in SIGNALS:
            process.wait(30)
        if process.poll() is None:
            return False
        status, log = process.returncode, self.daemon.log()
        r.note(f"the daemon ended with {status}: {log[-300:]}")
        killed = r.victim == "daemon" and r.fault == "kill" and status == -9
        ordered = r.victim == "daemon" and r.fault == "term" and status == 0
        starved = r.fault in ("malloc", "memory") and status == 70 and "out of memory" in log
        require(killed or ordered or starved, f"the daemon ended with {status}: {log[-500:]}")
        self.start_daemon()
        return True

    def end_job(self, killed=False):
        """It ends by itself unless it was killed, and its recorder with it."""
        r = self.round
        self.job.stdin.close()
        status, out = self.job.wait(60), self.job.stdout.read()
        r.note(f"the job ended with {status}, {out!r}; it said: {self.said()[-700:]}")
        if killed:
            require(status == -SIGNALS[r.fault], f"the job ended with {status}")
        else:
            # With its memory limited the C library has no buffer to print from.
            fine = out == b"done\n" or (r.victim, r.fault) == ("job", "memory")
            require(status == 0 and fine, f"the job ended with {status}, {out!r}")
        wait_until(lambda: not r.recorders(), lambda: f"{r.recorders()} to end", 30)

    def end(self):
        """What a killed recorder left goes with the next one of the same user; then the daemon ends."""
        r = self.round
        if any(self.sessions.iterdir()):
            require(r.victim == "recorder", f"left behind: {list(self.sessions.iterdir())}")
            self.start_job()
            self.dyno(*START, "--mspti-activity-kind", "Kernel")
            mine = f"monitor_{self.job.pid}_*"
            others = lambda: [p for p in self.sessions.iterdir() if not p.match(mine)]
            wait_until(lambda: not others(), lambda: f"{others()} to be swept", 20)
            self.end_job()
        status = self.daemon.stop()
        require(status == 0, f"the daemon ended with {status}: {self.daemon.log()[-500:]}")


# --- windows ---


def run_monitor(r):
    node, out = Node(r), r.dir / "out"
    form = r.rng.choice(("DB", "Jsonl"))
    node.dyno(*START, "--mspti-activity-kind", "Kernel", "--log-file", out, "--export-type", form)
    wait_until(lambda: node.state() == "Running", "the window")
    first = node.counted
    node.wait_launched(r.rng.choice((1, 20, 100)))
    r.wait_any_moment(400)
    r.strike(*node.victim_pids())
    node.wait_launched(100)
    r.lift_faults()
    alive = node.job.poll() is None
    replaced = node.replace_daemon()
    if alive:
        wait_until(lambda: node.state() in ("Running", "Idle"), "the job to be known again", 30)
    last = node.counted
    ended = node.state() == "Idle"  # by itself, with words
    if alive and not ended:
        node.dyno(*STOP)
        wait_until(lambda: node.state() == "Idle", "the end of the window", 40)
    r.note(f"daemon replaced: {replaced}, ended before the stop: {ended}")
    node.end_job(killed=r.victim == "job" and r.fault in SIGNALS)
    verdict = check_window(r, node, out, last - first if alive else 0)
    node.end()
    r.wait_alone()
    r.check_left_files()
    return verdict


def check_window(r, node, out, launched):
    """`launched`: kernels between two moments that the window covered."""
    files = sorted(out.glob("*")) if out.exists() else []
    seen, stated = [], [0]
    for path in files:
        seen += kernels_in(path)
        stated.append(lost_in(r.build, path))
    # A job that loses its recorder says what that cost, and the next file has it, too.
    said = sum(map(int, LOST.findall(node.said())))
    lost = max(sum(stated), said)
    span = max(seen) - min(seen) + 1 if seen else 0
    missing = max(span, launched) - len(seen)
    r.note(f"{len(files)} files, {len(seen)} kernels of {span} and of {launched} launched; lost {stated}"
           f" in files, {said} by the job's words")  # fmt: skip
    require(len(set(seen)) == len(seen), "a kernel stands twice")
    require(missing <= lost or WINDOW_ENDED.search(node.said()), f"{missing} kernels missing, {lost} stated")
    return "loss" if missing > 0 or lost else "exact"


def kernels_in(path):
    """Correlation ids, of a file that must be whole. Kernels launched before the window have none."""
    if path.suffix == ".jsonl":
        ids = [row["correlationId"] for row in lines(path) if row["kind"] == "Kernel"]
        return [i for i in ids if i]
    if path.suffix != ".db":
        raise Silent(f"left behind: {path}")
    with open_db(path) as db:
        return [i for (i,) in db.execute("select connectionId from TASK where connectionId <> 0")]


def lost_in(build, path):
    r = subprocess.run([build / "bin" / "sonde", "activity", "show", "--json", path],
                       capture_output=True, text=True)  # fmt: skip
    require(r.returncode == 0, f"sonde activity show {path}: {r.stderr}")
    return json.loads(r.stdout)["lost"]


# --- traces ---


def run_trace(r):
    node, out = Node(r), r.dir / "out"
    steps = r.rng.randint(2, 30)
    words = ("nputrace", "--start-step", -1, "--iterations", steps, "--log-file", out)
    node.dyno(*words)
    if r.rng.random() < 0.7:
        running = lambda: node.state("nputrace") == "Running" or list(out.glob("*"))
        wait_until(running, "the trace", 20)
    r.wait_any_moment(400)
    r.strike(*node.victim_pids())
    node.wait_launched(50)
    r.lift_faults()
    alive = node.job.poll() is None
    taken = not node.replace_daemon() or out.exists()
    if alive:
        outcome = lambda: traces(out) or errors_in(out) or trace_lost(node) or not taken
        done = lambda: outcome() and node.state("nputrace") == "Idle"
        wait_until(done, lambda: f"the outcome of the trace: {node.state('nputrace')}", 40)
    node.end_job(killed=r.victim == "job" and r.fault in SIGNALS)
    verdict = check_traces(r, node, out, steps)
    require(verdict or not alive or not taken, "no trace, and nobody said why")
    node.end()
    r.wait_alone()
    r.check_left_files()
    return verdict or "loss"


def trace_lost(node):
    return TRACE_LOST.search(node.said())


def errors_in(out):
    """What is there in place of a trace that could not be written; on a dead disk it has no words."""
    found = [*out.glob("*.error.txt"), *out.parent.glob(f"{out.name}.error.txt")]
    return [f"{path}: {path.read_text()}" for path in found]


def traces(out):
    return sorted(out.glob("*_sonde/trace.json")) if out.exists() else []


def check_traces(r, node, out, steps):
    """Every trace that is there is whole, and has what it says it has."""
    said = errors_in(out)
    r.note(f"{said}")
    verdict = "loss" if trace_lost(node) or said else None
    for path in traces(out):
        made = json.loads(pathlib.Path(path).read_text())
        about = made["sonde"]
        ran = [e for e in made["traceEvents"] if e["ph"] == "X" and e.get("args", {}).get("kind") == "Kernel"]
        r.note(f"{path}: {len(ran)} kernels, {about}")
        if about["complete"]:
            want = (about["stop_step"] - about["start_step"]) * KERNELS_PER_STEP
            require(about["stop_step"] - about["start_step"] == steps, f"{about}")
            enough = len(ran) + about["lost"] >= want or "is missing" in about["note"]
            require(enough and len(ran) <= want, f"{len(ran)} kernels of {want}: {about}")
        lossy = about["lost"] or about["note"] or not about["complete"]
        verdict = "loss" if lossy else verdict or "exact"
        for db in path.parent.glob("*.db"):
            kernels_in(db)
    return verdict
