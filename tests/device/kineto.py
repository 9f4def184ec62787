#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The daemon against a real PyTorch on a real NVIDIA GPU. By hand, on a machine that has both.

usage: kineto.py --bin build/bin/sonde [--lib-dir DIR] --out DIR

Starts the daemon and training processes that find it by both kinds of socket, asks for traces by
duration and by iterations with `sonde ctl gputrace`, and looks into what PyTorch wrote. Prints
PASS or FAIL for each statement, writes results.json and what is needed to understand a failure to
--out, and exits with 1 if anything failed. Takes about two minutes, at most five. Traces are
written below /tmp, where PyTorch allows them.
"""

import argparse
import glob
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

from gpu import need_gpu

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 280
POLL_S = 5  # libkineto asks every five seconds
JOB = 77  # of the processes with a socket directory
ITERATIONS = 5
DURATION_MS = 5000  # with the warm-up longer than two polls, so that each is seen busy
ITERATION_MS = 20


class Run:
    def __init__(self, args):
        self.args = args
        self.began = time.monotonic()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_kineto_", dir="/tmp"))
        self.sockets = self.work / "sockets"
        self.sockets.mkdir()
        self.results = []
        self.facts = {}
        self.trainers = []
        self.daemon = None
        self.env = dict(os.environ)
        for name in ("KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "SLURM_JOB_ID"):
            self.env.pop(name, None)
        self.sonde_env = dict(self.env)
        if args.lib_dir:
            self.sonde_env["LD_LIBRARY_PATH"] = os.path.abspath(args.lib_dir)

    # --- reporting ---

    def elapsed(self):
        return time.monotonic() - self.began

    def check(self, name, good, detail=""):
        good = bool(good)
        self.results.append({"name": name, "pass": good, "detail": detail, "at_s": self.elapsed()})
        print(f"{'PASS' if good else 'FAIL'}  {name}{': ' if detail else ''}{detail}", flush=True)
        return good

    def note(self, text):
        print(f"  {self.elapsed():6.1f} s  {text}", flush=True)

    def stage(self, name, function, *args):
        """A failure of one stage is told and does not keep the others from running."""
        self.note(name)
        try:
            return function(*args)
        except Exception as e:
            traceback.print_exc()
            self.check(name, False, f"{type(e).__name__}: {e}")
            return None

    def wait(self, what, condition, seconds):
        end = min(time.monotonic() + seconds, self.began + LIMIT_S)
        while True:
            value = condition()
            if value or time.monotonic() > end:
                if not value:
                    self.note(f"gave up after {seconds:g} s: {what}")
                return value
            time.sleep(0.05)

    # --- the daemon ---

    def start_daemon(self):
        log = open(self.work / "daemon.log", "wb")
        self.daemon = subprocess.Popen(
            [
                *(self.args.bin, "daemon", "--port", "0", "--http-port", "0"),
                *("--enable-ipc-monitor", "--ipc-socket-dir", str(self.sockets)),
                *("--enable-gpu-monitor=auto", "--dcgm-reporting-interval-s", "1"),
                *("--kernel-monitor-reporting-interval-s", "1"),
            ],
            env=self.sonde_env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

        def port(pattern):
            m = re.search(pattern, self.daemon_log())
            return int(m.group(1)) if m else None

        self.port = self.wait("rpc port", lambda: port(r"System assigned port = (\d+)"), 10)
        self.http = self.wait("http port", lambda: port(r"http port = (\d+)"), 5)
        return self.check(
            "the daemon serves", self.port and self.http, f"rpc {self.port}, http {self.http}"
        )

    def daemon_log(self):
        return (self.work / "daemon.log").read_text(errors="replace")

    def call(self, request):
        body = json.dumps(request).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(struct.pack("=i", len(body)) + body)
            data = b""
            while len(data) < 4 or len(data) < 4 + struct.unpack_from("=i", data)[0]:
                piece = s.recv(65536)
                if not piece:
                    raise ConnectionError(f"no whole answer to {request['fn']}")
                data += piece
        return json.loads(data[4:])

    def processes(self, pids=None):
        rows = self.call({"fn": "listProcesses"})["processes"]
        return [p for p in rows if pids is None or p["pid"] in pids]

    def ctl(self, *words):
        r = subprocess.run(
            [self.args.bin, "ctl", "--port", str(self.port), *map(str, words)],
            env=self.sonde_env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
        )
        if r.returncode:
            self.note(f"ctl {' '.join(map(str, words))}: status {r.returncode}\n{r.stdout}")
        return r

    # --- training ---

    def start_trainers(self, name, n, first_rank, **env):
        group = []
        for i in range(n):
            log = open(self.work / f"trainer_{name}_{i}.log", "w+b")
            p = subprocess.Popen(
                [sys.executable, str(HERE / "train.py"), "--ms", str(ITERATION_MS)],
                env={**self.env, "KINETO_USE_DAEMON": "1", "RANK": str(first_rank + i), **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            p.log_path = self.work / f"trainer_{name}_{i}.log"
            p.rank = first_rank + i
            group.append(p)
        self.trainers += group
        return group

    def wait_ready(self, group):
        def ready():
            if any(p.poll() is not None for p in group):
                return True
            return all("ready" in p.log_path.read_text(errors="replace") for p in group)

        self.wait("training", ready, 120)
        dead = [p.rank for p in group if p.poll() is not None]
        return self.check("processes train", not dead and ready(), f"ended: {dead}" if dead else "")


# --- what is looked at ---


def alive(group):
    return [p for p in group if p.poll() is None]


def trace_files(stem, group):
    return {p.pid: f"{stem}_{p.pid}.json" for p in group}


def read_trace(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def kernels(trace):
    return [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]


def counted(trace):
    """Iterations by the one kernel of which each has exactly one (train.py)."""
    return sum("hypot" in e["name"] for e in kernels(trace))


def whole(path):
    """Whether PyTorch has finished writing it."""
    try:
        return bool(read_trace(path)["traceEvents"])
    except (OSError, ValueError, KeyError):
        return False


def check_files(run, label, files, check_one):
    good, told = True, []
    for pid, path in sorted(files.items()):
        try:
            ok, text = check_one(read_trace(path))
        except (OSError, ValueError, KeyError) as e:
            ok, text = False, f"{type(e).__name__}: {e}"
        good = good and ok
        told.append(f"{pid}: {text}")
    run.check(label, good, "; ".join(told))
    if label.startswith("abstract"):  # one of each kind is enough
        keep_sample(run, label, files)


def keep_sample(run, label, files):
    for path in files.values():
        if os.path.exists(path) and os.path.getsize(path) < 64 << 20:
            name = re.sub(r"\W+", "_", label) + ".json.gz"
            with open(path, "rb") as f, gzip.open(pathlib.Path(run.args.out) / name, "wb") as g:
                shutil.copyfileobj(f, g)
            return


def check_registered(run, name, group, endpoint, job):
    pids = {p.pid for p in group}

    def found():
        return len(run.processes(pids)) == len(pids)

    ok = run.wait("registration", found, 3 * POLL_S)
    rows = {p["pid"]: p for p in run.processes(pids)}
    run.check(f"{name}: every process is registered", ok, f"{len(rows)} of {len(pids)}")
    run.check(
        f"{name}: by its endpoint and job",
        rows and all(p["endpoint"] == endpoint and p["job_id"] == job for p in rows.values()),
        str(sorted({(p["endpoint"], p["job_id"]) for p in rows.values()})),
    )
    run.check(
        f"{name}: rank and command line are known",
        rows
        and all(
            rows[p.pid]["rank"] == p.rank and "train.py" in (rows[p.pid]["command"] or "")
            for p in group
            if p.pid in rows
        ),
        str(sorted(str(p["rank"]) for p in rows.values())),
    )


def order(run, name, stem, group, *how):
    job = group[0].job
    pids = ",".join(str(p.pid) for p in group)
    r = run.ctl(
        *("gputrace", "--job-id", job, "--pids", pids, "--process-limit", 16),
        *("--log-file", f"{stem}.json", *how),
    )
    said = r.stdout[-200:].strip().replace("\n", " | ")
    run.check(f"{name}: gputrace {how[0]} is carried out", r.returncode == 0, said)
    return r.returncode == 0


def all_fetched(run, pids):
    rows = run.processes(pids)
    return len(rows) == len(pids) and not any(p["pending"] for p in rows)


def check_group(run, name, group):
    """A trace by duration, and while it runs an order by iterations, which must wait for it."""
    pids = {p.pid for p in group}
    by_time, by_count = f"{run.work}/{name}_duration", f"{run.work}/{name}_iterations"
    time_files, count_files = trace_files(by_time, group), trace_files(by_count, group)

    order(run, name, by_time, group, "--duration-ms", DURATION_MS)
    fetched = run.wait("fetching", lambda: all_fetched(run, pids), 2 * POLL_S + 2)
    run.check(f"{name}: the config is fetched within two polls", fetched)

    # now all are in their warm-up: what they are given has to wait
    order(run, name, by_count, group, "--iterations", ITERATIONS)
    asked = time.monotonic()

    def polled_since():
        rows = run.processes(pids)
        past = time.monotonic() - asked
        return len(rows) == len(pids) and all(p["last_seen_s"] < past for p in rows)

    busy_seen = run.wait("a poll of every busy process", polled_since, POLL_S + 2)
    waiting = run.processes(pids)
    kept = len(waiting) == len(pids) and all(p["pending"] for p in waiting)
    run.check(
        f"{name}: busy processes leave the next config with the daemon",
        busy_seen and kept,
        str([(p["pid"], p["state"], p["pending"]) for p in waiting]),
    )
    early = [f for f in count_files.values() if os.path.exists(f)]
    run.check(f"{name}: and it is not begun meanwhile", not early, str(early) if early else "")

    run.wait("traces by duration", lambda: all(map(whole, time_files.values())), 40)

    def by_duration(trace):
        ks = kernels(trace)
        span = (max(e["ts"] + e["dur"] for e in ks) - min(e["ts"] for e in ks)) / 1000 if ks else 0
        n = counted(trace)
        # as many iterations as fit, give or take half of them
        fits = DURATION_MS / ITERATION_MS
        return (
            bool(ks) and DURATION_MS / 2 < span < DURATION_MS * 2 and n > fits / 4,
            f"{len(ks)} kernels in {span:.0f} ms, {n} iterations",
        )

    check_files(run, f"{name}: traces of {DURATION_MS} ms", time_files, by_duration)

    run.wait("traces by iterations", lambda: all(map(whole, count_files.values())), 3 * POLL_S + 10)

    def by_iterations(trace):
        n = counted(trace)
        # an iteration may straddle an edge of the trace
        return abs(n - ITERATIONS) <= 1, f"{len(kernels(trace))} kernels, {n} iterations"

    check_files(run, f"{name}: traces of {ITERATIONS} iterations", count_files, by_iterations)


def check_death(run, name, group):
    victim = alive(group)[-1]
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    began = time.monotonic()
    gone = run.wait("death noticed", lambda: not run.processes({victim.pid}), 3)
    took = time.monotonic() - began
    told = f"{took * 1000:.0f} ms"
    run.check(f"{name}: a killed process is forgotten at once", gone and took < 1, told)
    left = {p.pid for p in alive(group)}
    run.check(f"{name}: the others are still there", len(run.processes(left)) == len(left))


def check_ps(run):
    r = run.ctl("ps", "--json")
    (run.work / "ps.json").write_text(r.stdout)
    pids = {p.pid for p in alive(run.trainers)}
    run.check("ctl ps --json lists every process", all(str(p) in r.stdout for p in pids))
    r = run.ctl("ps")
    run.check("ctl ps lists every process", all(str(p) in r.stdout for p in pids))
    print(r.stdout)


def smi():
    """What nvidia-smi says of the first GPU."""
    names = "name,utilization.gpu,power.draw,clocks.sm,memory.used,memory.total"
    r = subprocess.run(
        ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits", "-i", "0"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    values = [v.strip() for v in r.stdout.strip().split(",")]
    return dict(zip(names.split(","), values))


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def scrape(run):
    with urllib.request.urlopen(f"http://127.0.0.1:{run.http}/metrics", timeout=5) as r:
        return r.read().decode()


def sample_of(text, name):
    """The value of a metric of device 0, whatever else it is labelled with."""
    for m in re.finditer(rf"^{name}(\{{[^}}]*\}})?\s+(\S+)", text, re.M):
        labels = m.group(1) or ""
        if "device" not in labels or re.search(r'device="0"', labels):
            return number(m.group(2))
    return None


def check_metrics(run):
    run.wait("gpu metrics", lambda: "gpu_power_draw" in scrape(run), 10)
    text, said = scrape(run), smi()
    (run.work / "metrics.txt").write_text(text)
    run.facts["nvidia-smi"] = said
    power, want = sample_of(text, "gpu_power_draw"), number(said.get("power.draw"))
    run.check(
        "gpu_power_draw is what nvidia-smi says, about",
        power is not None and want is not None and abs(power - want) < max(60, want / 2),
        f"{power} W, nvidia-smi {want} W",
    )
    clock, want = sample_of(text, "gpu_frequency_mhz"), number(said.get("clocks.sm"))
    run.check(
        "gpu_frequency_mhz too",
        clock is not None and want is not None and abs(clock - want) <= max(300, want / 2),
        f"{clock} MHz, nvidia-smi {want} MHz",
    )
    busy = sample_of(text, "gpu_device_utilization")
    run.check(
        "gpu_device_utilization is a percentage of a busy device",
        busy is not None and 0 < busy <= 100,
        f"{busy}, nvidia-smi {said.get('utilization.gpu')}",
    )
    used = sample_of(text, "gpu_memory_utilization")
    good = used is not None and 0 <= used <= 100
    run.check("gpu_memory_utilization is a percentage", good, str(used))
    used, want = sample_of(text, "gpu_memory_used_bytes"), number(said.get("memory.used"))
    run.check(
        "gpu_memory_used_bytes is what nvidia-smi says, about",
        used and want and abs(used / (1 << 20) - want) < max(2048, want / 2),
        f"{(used or 0) / (1 << 20):.0f} MiB, nvidia-smi {want} MiB",
    )
    cpu = sample_of(text, "cpu_util")
    run.check("cpu_util is a percentage", cpu is not None and 0 <= cpu <= 100, str(cpu))


# --- all of it ---


def scenario(run):
    if not run.stage("daemon", run.start_daemon):
        return
    abstract = run.start_trainers("abstract", 3, 0)
    directory = run.start_trainers(
        "dir", 2, 3, KINETO_IPC_SOCKET_DIR=str(run.sockets), SLURM_JOB_ID=str(JOB)
    )
    for group, job in ((abstract, 0), (directory, JOB)):
        for p in group:
            p.job = job
    run.stage("training", run.wait_ready, run.trainers)
    groups = (("abstract", abstract, 0), ("dir", directory, JOB))
    for name, group, job in groups:
        run.stage(f"{name}: registration", check_registered, run, name, group, name, job)
    run.stage("ps", check_ps, run)
    for name, group, _ in groups:
        run.stage(f"{name}: traces", check_group, run, name, group)
    run.stage("metrics", check_metrics, run)
    for name, group, _ in groups:
        run.stage(f"{name}: death", check_death, run, name, group)
    run.check("the daemon is alive at the end", run.daemon.poll() is None)


def finish(run):
    for p in run.trainers:
        if p.poll() is None:
            p.kill()
    if run.daemon and run.daemon.poll() is None:
        run.daemon.terminate()
        try:
            status = run.daemon.wait(5)
            run.check("the daemon ends in order", status == 0, f"status {status}")
        except subprocess.TimeoutExpired:
            run.daemon.kill()
            run.check("the daemon ends in order", False, "killed")
    out = pathlib.Path(run.args.out)
    for name in ("daemon.log", "metrics.txt", "ps.json"):
        if (run.work / name).exists():
            shutil.copy(run.work / name, out / name)
    with open(out / "trainers.log", "w") as f:
        for path in sorted(glob.glob(f"{run.work}/trainer_*.log")):
            text = pathlib.Path(path).read_text(errors="replace")[-20000:]
            f.write(f"--- {os.path.basename(path)}\n{text}\n")
    failed = [r["name"] for r in run.results if not r["pass"]]
    with open(out / "results.json", "w") as f:
        seconds = round(run.elapsed(), 1)
        told = {"facts": run.facts, "seconds": seconds, "failed": failed, "results": run.results}
        json.dump(told, f, indent=1)
    if failed:
        last = [line[:200] for line in run.daemon_log().splitlines()[-20:]]
        print("\n".join(["--- end of the daemon's log", *last]))
    print(f"{len(run.results) - len(failed)} passed, {len(failed)} failed, {run.elapsed():.0f} s")
    if not run.args.keep:
        shutil.rmtree(run.work, ignore_errors=True)
    return 1 if failed or not run.results else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the sonde binary")
    parser.add_argument("--lib-dir", help="LD_LIBRARY_PATH of it, for libraries carried along")
    parser.add_argument("--out", required=True, help="directory for the results")
    parser.add_argument("--keep", action="store_true", help="keep the directory of traces")
    args = parser.parse_args()
    need_gpu("torch")
    args.bin = os.path.abspath(args.bin)
    os.makedirs(args.out, exist_ok=True)
    run = Run(args)
    try:
        import torch

        run.facts["torch"] = torch.__version__
        run.facts["gpu"] = torch.cuda.get_device_name(0)
        scenario(run)
    except Exception as e:
        traceback.print_exc()
        run.check("the run as a whole", False, f"{type(e).__name__}: {e}")
    finally:
        status = finish(run)
    return status


if __name__ == "__main__":
    sys.exit(main())
