#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde stack` and `sonde snap` against PyTorch on a real NVIDIA GPU. By hand, where both are.

usage: stack.py --bin build/bin/sonde --out DIR [--only STAGE,...]

Looks at the four ranks of an unmodified training job (steps.py) that train on one GPU and add up
their gradients: where they are, who is stuck, what ran when; compares the timeline with the job's
own clocks and with nvidia-smi; measures what being looked at costs a training process. Prints PASS
or FAIL for each statement, writes results.json and a trace to --out, and exits with 1 if anything
failed. Takes about four minutes.
"""

import argparse
import collections
import glob
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from steps import IN_BATCH, IN_SCALE, SLOTS, STAY, map_control

HERE = pathlib.Path(__file__).resolve().parent
STEPS = str(HERE / "steps.py")
RANKS = 4
ODD = 2  # the rank that is kept in load_batch()
FUNCTIONS = [f"Trainer.{name}" for name in SLOTS[1:STAY]]
PARTS = 30  # of each kind when the cost is measured
PART_S = 0.5

# Memory of the host, a lot of it from C++, and an exit status of its own.
ON_CPU = """
import sys, torch

def make_batches(n):
    return [torch.randn(64, 256) for _ in range(n)]

def train(batches):
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches:
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()

torch.manual_seed(1)
torch.set_num_threads(2)
print("loss %.6f" % train(make_batches(200)))
sys.exit(7)
"""


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
    run.check(f"{what}: no thread was ever traced or stopped", not watch.seen and watch.looks,
              f"{watch.looks} looks" + (f", {sorted(watch.seen)[:3]}" if watch.seen else ""))


def release(p):
    p.control[STAY] = 0
    p.stdin.write(b"\n")
    p.stdin.flush()


def goes_on(run, job):
    """Every process makes further steps."""
    before = [p.control[0] for p in job]
    return run.wait("steps", lambda: all(p.control[0] > n for p, n in zip(job, before)), 10)


# --- one look ---


def check_snap(run, job):
    began = time.monotonic()
    r = run.sonde("snap")
    took = time.monotonic() - began
    first = (r.stdout.splitlines() or [r.stderr])[0]
    run.check("snap finds the ranks by itself", r.returncode == 0 and first.startswith("4 ranks: "),
              f"{first} ({took:.2f} s)")
    run.note(r.stdout)
    data = json.loads(run.sonde("snap", "--json").stdout)
    told = {p["pid"]: p["rank"] for p in data["processes"]}
    run.check("with pid and rank of each", told == {p.pid: p.rank for p in job}, told)
    run.check("on their card", all(p["device"] == 0 for p in data["processes"]),
              {p["device"] for p in data["processes"]})
    run.check("and the version of Python",
              all(p["python"].startswith("%d.%d." % sys.version_info[:2])
                  for p in data["processes"]), {p["python"] for p in data["processes"]})
    ranks = sorted(rank for place in data["places"] for rank in place["ranks"])
    run.check("every rank is at one place", ranks == list(range(RANKS)), ranks)
    files = {f["file"] for g in data["groups"] for f in g["frames"] if f["home"] == "job"}
    run.check("places are of the job's own file", files == {STEPS}, files)
    run.check("all were looked at within a millisecond", 0 < data["skew_ns"] < 1e6,
              f"{data['skew_ns'] / 1000:.0f} us")
    r = run.sonde("stack", "--debug-pid-discovery", "-v", "-d", "0.5", "-o", "found.json")
    how = [line for line in r.stderr.splitlines() if "NVML" in line or "nvidia" in line]
    run.check("they are found through NVML", any("NVML" in line for line in how),
              " | ".join(how[:2]) or r.stderr[-300:])
    r = run.sonde("snap", "--hang", 2, "--for", 4)
    run.check("a job that trains does not hang", r.returncode == 0, r.stdout.split("\n")[0])


def places_of(run):
    data = json.loads(run.sonde("snap", "--json").stdout)
    return {tuple(p["ranks"]): p["frame"]["name"] for p in data["places"]}


def check_odd(run, job):
    others = [r for r in range(RANKS) if r != ODD]
    with Watch([p.pid for p in job]) as watch:
        job[ODD].control[STAY] = IN_BATCH
        stuck = {tuple(others): "Trainer.reduce_gradients", (ODD,): "Trainer.load_batch"}
        run.wait("all ranks to stand", lambda: places_of(run) == stuck, 10)
        r = run.sonde("snap", "--locals", "load_batch")
        lines = r.stdout.splitlines()
        place = r"4 ranks: 3 in Trainer\.reduce_gradients at steps\.py:\d+ > all_reduce \(.*\), " \
                r"1 in Trainer\.load_batch at steps\.py:\d+ \(rank 2\)"
        run.check("the stuck rank is in the first line", re.match(place, lines[0]), lines[0])
        run.check("and said to be elsewhere", lines[1].startswith("Rank 2 is elsewhere"), lines[1])
        run.note(r.stdout)
        step = re.search(r"^ *step = (\d+)$", r.stdout, re.M)
        run.check("its variables are read", step and int(step.group(1)) == job[ODD].control[0],
                  step and step.group(0).strip())
        began = time.monotonic()
        r = run.sonde("snap", "--hang", 2)
        took = time.monotonic() - began
        lines = r.stdout.splitlines()
        run.check("--hang 2 ends with status 3", r.returncode == 3, f"{took:.1f} s")
        run.check("and names it first", "load_batch" in lines[0] and "(rank 2)" in lines[0] and
                  lines[1].startswith("Rank 2 has not moved"), lines[0])
        run.note("\n".join(lines[:4]))
        release(job[ODD])
    run.check("the job goes on afterwards", goes_on(run, job))
    check_never_traced(run, watch, "snap and --hang")


# --- the timeline ---


class Trace:
    """What a file of `sonde stack` says, checked on the way."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.data = json.load(f)
        self.names, self.processes, self.counters = {}, {}, collections.defaultdict(list)
        self.open = collections.defaultdict(list)
        self.time = collections.defaultdict(float)  # (pid, thread, function) -> us
        self.files = collections.defaultdict(set)  # (pid, thread) -> files of its functions
        self.unbalanced, self.backwards = 0, 0
        self.nested = set()  # (below, between, above): who was called through C and C++
        self.last = {}
        for e in self.data["traceEvents"]:
            {"B": self.begin, "E": self.end, "M": self.meta, "C": self.counter}[e["ph"]](e)
        self.unbalanced += sum(map(len, self.open.values()))

    def meta(self, e):
        if e["name"] == "thread_name":
            self.names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["name"] == "process_name":
            self.processes[e["pid"]] = e["args"]["name"]

    def counter(self, e):
        for key, value in e["args"].items():
            self.counters[e["name"], key].append(value)

    def forward(self, e):
        key = e["pid"], e["tid"]
        self.backwards += e["ts"] < self.last.get(key, 0)
        self.last[key] = e["ts"]
        return key

    def begin(self, e):
        key = self.forward(e)
        stack = self.open[key]
        stack.append(e)
        function, file = e["args"]["function"], e["args"]["file"]
        self.files[key[0], self.names.get(key)].add(file)
        if file.endswith("steps.py"):
            self.through_native(stack)

    def through_native(self, stack):
        between = []
        for e in reversed(stack[:-1]):
            if e["args"]["file"].endswith(".py"):
                if between:
                    self.nested.add((e["args"]["function"], tuple(reversed(between)),
                                     stack[-1]["args"]["function"]))
                return
            between.append(e["args"]["function"])

    def end(self, e):
        key = self.forward(e)
        stack = self.open[key]
        if not stack or stack[-1]["name"] != e["name"]:
            self.unbalanced += 1
            return
        b = stack.pop()
        function = b["args"]["function"]
        if not any(o["args"]["function"] == function for o in stack):
            self.time[key[0], self.names.get(key), function] += e["ts"] - b["ts"]

    def threads(self, pid):
        return {name for (p, _), name in self.names.items() if p == pid and name}


class Smi:
    """nvidia-smi beside the sampler."""

    def __enter__(self):
        self.p = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=utilization.gpu,utilization.memory,memory.used",
             "--format=csv,noheader,nounits", "-lms", "200"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return self

    def __exit__(self, *_):
        self.p.terminate()
        text = self.p.communicate()[0]
        rows = [line.split(",") for line in text.splitlines() if line.count(",") == 2]
        self.columns = [[float(v) for v in column] for column in zip(*rows)]


def mean(values):
    return sum(values) / len(values) if values else float("nan")


def check_counters(run, trace, smi):
    if not smi.columns:
        run.check("nvidia-smi answers", False)
        return
    tracks = (("gpu_utilization_rate", "gpu", 15), ("gpu_memory_usage_rate", "memory", 15),
              ("gpu_memory_used_mb", "memory_used_mb", 64))
    for (name, key, most), theirs in zip(tracks, smi.columns):
        ours = trace.counters.get((name, key), [])
        run.check(f"{name} is what nvidia-smi says",
                  len(ours) >= 20 and abs(mean(ours) - mean(theirs)) <= most,
                  f"mean {mean(ours):.1f} of {len(ours)}, nvidia-smi {mean(theirs):.1f} of "
                  f"{len(theirs)}")


def clocks(job):
    return [(time.perf_counter_ns(), *p.control[1:STAY]) for p in job]


def check_clocks(run, trace, job, before, after, label):
    """How much of its time a rank spends in each function: by its own clock, and by the file."""
    window = trace.data["otherData"].get("seconds") or None
    worst, told = 0, []
    for p, b, a in zip(job, before, after):
        own = [(y - x) / (a[0] - b[0]) for x, y in zip(b[1:], a[1:])]
        whole = window or trace.last_us / 1e6
        seen = [trace.time[p.pid, "MainThread", f] / 1e6 / whole for f in FUNCTIONS]
        worst = max([worst] + [abs(x - y) for x, y in zip(own, seen)])
        if p.rank == 0:
            told = [f"{f[8:]} {100 * y:.1f} (own clock {100 * x:.1f})"
                    for f, x, y in zip(FUNCTIONS, own, seen)]
    run.check(f"{label}: times of functions are those of the job's own clock", worst < 0.03,
              f"at most {100 * worst:.1f} points apart; rank 0 in %: " + ", ".join(told))


def keep(run, path):
    with open(path, "rb") as f, gzip.open(pathlib.Path(run.args.out) / f"{path.name}.gz", "wb") as g:
        shutil.copyfileobj(f, g)


def check_timeline(run, job, *words):
    label = " ".join(("stack", *words))
    path = run.work / ("all.json" if words else "main.json")
    with Watch([p.pid for p in job]) as watch, Smi() as smi:
        before = clocks(job)
        r = run.sonde("stack", "-i", "0.001", "-d", 5, "-o", path, "--json", *words)
        after = clocks(job)
    run.check(f"{label}: ends in order", r.returncode == 0, r.stderr[-300:])
    told = json.loads(r.stdout)
    s = told["sampled"]
    print(f"      {s['rounds']} rounds, {s['skipped_ticks']} ticks skipped, "
          f"{s['thread_samples']} stacks, {s['missed']} missed, {s['retried']} retried, "
          f"{s['torn']} torn; skew mean {s['skew_mean_us']:.0f} us, max {s['skew_max_us']:.0f} us; "
          f"{100 * told['cpu_s'] / told['seconds']:.0f} % of a core; {told['bytes'] / 1e6:.1f} MB, "
          f"RSS {told['rss_bytes'] / 1e6:.1f} MB", flush=True)
    run.check(f"{label}: four processes at 1 kHz",
              told["processes"] == RANKS and s["rounds"] + s["skipped_ticks"] > 4900 and
              s["rounds"] > 2500, f"{s['rounds']} rounds")
    run.check(f"{label}: few stacks are missed", s["missed"] < s["thread_samples"] / 50,
              f"{100 * s['missed'] / max(1, s['thread_samples']):.2f} %")
    trace = Trace(path)
    trace.last_us = max(trace.last.values())
    run.check(f"{label}: strict JSON, balanced, never back in time",
              not trace.unbalanced and not trace.backwards,
              f"{len(trace.data['traceEvents'])} events")
    run.check(f"{label}: functions of the script on MainThread of every rank",
              all(trace.time[p.pid, "MainThread", f] for p in job for f in FUNCTIONS))
    names = [trace.processes.get(p.pid, "") for p in job]
    run.check(f"{label}: processes are named by rank",
              all(re.search(rf"rank\W*{p.rank}\b", n, re.I) for p, n in zip(job, names)), names[0])
    threads = trace.threads(job[0].pid)
    if words:
        run.check(f"{label}: the other threads are there",
                  all({"MainThread", "feeder"} <= trace.threads(p.pid) for p in job), threads)
        elsewhere = [k for k in trace.time if k[2] == "Scale.backward" and k[1] != "MainThread"]
        run.check(f"{label}: Python called on PyTorch's own thread is seen",
                  {k[0] for k in elsewhere} == {p.pid for p in job},
                  sorted({k[1] for k in elsewhere}))
    else:
        run.check(f"{label}: MainThread alone", threads == {"MainThread"}, threads)
    check_clocks(run, trace, job, before, after, label)
    check_counters(run, trace, smi)
    check_never_traced(run, watch, label)
    if words:
        with open(f"{path}.log") as f:
            run.note(f.read()[-1500:])
        keep(run, path)


# --- what it costs ---


def steps_per_s(p, seconds):
    before, began = p.control[0], time.perf_counter()
    time.sleep(seconds)
    return (p.control[0] - before) / (time.perf_counter() - began)


def start_sampler(run, p, name, words):
    """It stands still until it is measured."""
    sampler = subprocess.Popen(
        [run.args.bin, "stack", "-p", str(p.pid), "-i", "0.001", "-o", f"{name}.json", "--json",
         *words],
        cwd=run.work, env=run.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    run.started.append(sampler)
    time.sleep(1)
    sampler.send_signal(signal.SIGSTOP)
    return sampler


def end_sampler(sampler):
    sampler.send_signal(signal.SIGCONT)
    sampler.terminate()
    return json.loads(sampler.communicate(timeout=20)[0])


def part(p, sampler):
    if sampler is None:
        return steps_per_s(p, PART_S)
    sampler.send_signal(signal.SIGCONT)
    time.sleep(0.02)
    rate = steps_per_s(p, PART_S)
    sampler.send_signal(signal.SIGSTOP)
    return rate


def check_cost(run, p):
    kinds = {
        "unsampled": None,
        "--all-threads": start_sampler(run, p, "proved", ["--all-threads"]),
        "--all-threads --fast": start_sampler(run, p, "fast", ["--all-threads", "--fast"]),
    }
    rates = collections.defaultdict(list)
    with Watch([p.pid]) as watch:
        for i in range(PARTS):
            order = list(kinds)  # who is first changes: a slow drift cancels
            for name in order[i % 3:] + order[:i % 3]:
                rates[name].append(part(p, kinds[name]))
    plain = rates["unsampled"]
    quarters = statistics.quantiles(plain, n=4)
    print(f"      unsampled: {statistics.median(plain):.1f} steps/s "
          f"(middle half {quarters[0]:.1f} to {quarters[2]:.1f})")
    for name in list(kinds)[1:]:
        s = end_sampler(kinds[name])["sampled"]
        sampled_s = 1 + PARTS * (PART_S + 0.02)
        losses = [100 * (1 - with_ / without) for with_, without in zip(rates[name], plain)]
        quarters = statistics.quantiles(losses, n=4)
        told = (f"median loss {statistics.median(losses):.2f} % of {PARTS} pairs (middle half "
                f"{quarters[0]:.1f} to {quarters[2]:.1f}); {s['rounds'] / sampled_s:.0f} rounds/s, "
                f"{s['missed']} of {s['thread_samples']} missed, {s['retried']} retried")
        run.check(f"{name} at 1 kHz costs a training process less than 1 %",
                  statistics.median(losses) < 1, told)
    check_never_traced(run, watch, "1 kHz")


# --- C and C++ ---


def is_torch(name):
    return re.search(r"\b(torch|at|c10)::|THP|^cu[A-Z]|^cuda", name)


def check_between(run, p):
    """C++ that has called a function of Python, which waits."""

    def look():
        r = run.sonde("snap", "--native", "-t", 0, "-p", p.pid, "--json")
        frames = json.loads(r.stdout)["groups"][0]["frames"]
        look.frames = [(f["kind"], f["name"]) for f in reversed(frames)]
        return ("python", "Scale.forward") in look.frames

    p.control[STAY] = IN_SCALE
    run.wait("the function that waits", look, 10)
    release(p)
    names = [name for _, name in look.frames]
    here = names.index("Scale.forward") if "Scale.forward" in names else 0
    kinds = [kind for kind, _ in look.frames[:here]]
    run.check("C++ is between two functions of Python",
              here and kinds[-1] == "native" and "python" in kinds and
              any(is_torch(name) for name in names[:here]), " > ".join(names)[-400:])


def check_native(run, p):
    rate = steps_per_s(p, 3)
    began = time.monotonic()
    r = run.sonde("snap", "--native", "-t", 0, "-p", p.pid, "--all-threads", "--json")
    took = time.monotonic() - began
    groups = json.loads(r.stdout)["groups"]
    frames = [f for g in groups for f in g["frames"]]
    kinds = collections.Counter(f["kind"] for f in frames)
    run.check("snap --native", r.returncode == 0 and kinds["native"] and kinds["python"],
              f"{dict(kinds)}, {took:.2f} s")
    r = run.sonde("stack", "--native", "-i", "0.02", "-d", 5, "-o", "native.json", "--json",
                  "-p", p.pid, timeout=90)
    told = json.loads(r.stdout)
    s = told["sampled"]
    run.check("stack --native: native frames are found in most rounds",
              s["rounds"] > 50 and s["native_failed"] <= s["thread_samples"] / 10,
              f"{s['rounds']} rounds, {s['native_failed']} without, {s['skipped_ticks']} ticks "
              f"skipped, {100 * told['cpu_s'] / told['seconds']:.0f} % of a core")
    trace = Trace(run.work / "native.json")
    names = {k[2] for k in trace.time}
    torch = sorted(n for n in names if is_torch(n))
    run.check("functions of PyTorch and CUDA are among them", len(torch) > 20,
              f"{len(torch)}: " + ", ".join(n[:50] for n in torch[:6]))
    run.check("CUDA's own", any(re.match(r"cu[A-Z]|cuda[A-Z]", n) for n in names),
              sorted(n for n in names if re.match(r"cu[A-Z]|cuda[A-Z]", n))[:6])
    forward = [n for n in trace.nested if n[2] == "Scale.forward"]
    run.check("the timeline has C++ between two functions of Python",
              any(is_torch(" ".join(n[1])) for n in forward),
              forward[0] if forward else sorted(trace.nested)[:2])
    run.check("balanced", not trace.unbalanced and not trace.backwards)
    keep(run, run.work / "native.json")
    check_between(run, p)
    threads = [pathlib.Path(f).read_text() for f in glob.glob(f"/proc/{p.pid}/task/*/status")]
    run.check("nobody is left traced or stopped",
              all("TracerPid:\t0" in t and not re.search(r"State:\s+[tT]", t) for t in threads),
              f"{len(threads)} threads")
    later = steps_per_s(p, 3)
    run.check("and the process trains as before", later > 0.8 * rate,
              f"{later:.1f} steps/s, before {rate:.1f}")


# --- beside jobs ---


def check_torchrun(run):
    began = time.monotonic()
    r = run.sonde("stack", "run", "-i", "0.01", "-o", "run.json", "--json", "--",
                  sys.executable, "-m", "torch.distributed.run", "--standalone",
                  "--nproc-per-node", 2, STEPS, "--control", run.work / "torchrun",
                  "--meet", "env://", "--steps", 200, timeout=120)
    run.check("stack run -- torchrun: the job's output and status",
              r.returncode == 0 and r.stdout.count("done after 200 steps, finite: True") == 2,
              f"{time.monotonic() - began:.1f} s; {r.stdout[-300:] if r.returncode else ''}")
    trace = Trace(run.work / "run.json")
    found = {k[0] for k in trace.time if k[2] == "Trainer.train_step"}
    run.check("both ranks are in the timeline, from their imports on",
              len(found) == 2 and not trace.unbalanced and
              all(any(k[0] == pid and k[2] == "_find_and_load" for k in trace.time)
                  for pid in found),
              [trace.processes[pid] for pid in sorted(trace.processes)])


def check_msmemscope(run):
    script = run.work / "on_cpu.py"
    script.write_text(ON_CPU)
    recorder = pathlib.Path(run.args.bin).parent / "msmemscope"
    if not recorder.exists():
        run.note("no msmemscope beside sonde")
        return
    out = run.work / "memory"
    words = [sys.executable, str(script)]
    began = time.monotonic()
    plain = subprocess.run(words, capture_output=True, text=True, env=run.env, timeout=120)
    took = time.monotonic() - began
    began = time.monotonic()
    r = subprocess.run(
        [str(recorder), "--call-stack=python:10", "--device=cpu", "-o", str(out), "--", *words],
        capture_output=True, text=True, env=run.env, timeout=240)
    run.check("msmemscope --call-stack=python: status and output are those of the job",
              (r.returncode, r.stdout, r.stderr) == (7, plain.stdout, plain.stderr) and
              plain.returncode == 7 and plain.stdout,
              f"{r.returncode} {r.stdout.strip()!r} {r.stderr[-300:]!r}, "
              f"{time.monotonic() - began:.1f} s, plain {took:.1f} s")
    check_dump(run, out)


def check_dump(run, out):
    """The whole of it is gigabytes: importing PyTorch is millions of allocations."""

    def log():
        return "".join(pathlib.Path(f).read_text() for f in glob.glob(f"{out}/rec*/*.log"))

    run.wait("the recorder", lambda: "processor time" in log(), 60)
    run.note(log()[-700:])
    rows = {b"on_cpu.py": 0, b"make_batches": 0}
    size = 0
    for path in glob.glob(f"{out}/**/memscope_dump_*.csv", recursive=True):
        size += os.path.getsize(path)
        with open(path, "rb") as f:
            for line in f:
                for word in rows:
                    rows[word] += word in line
    run.check("and the script's functions are in the dump", all(rows.values()),
              f"{size / 1e6:.0f} MB, {rows}")


# --- all of it ---


def scenario(run):
    def wanted(*stages):
        return not run.args.only or set(stages) & set(run.args.only.split(","))

    if wanted("snap", "odd", "timeline"):
        run.note("training starts")
        job = run.start_job("ranks", RANKS, "--meet", f"file://{run.work}/meet")
        if run.wait_ready(job):
            if wanted("snap"):
                run.stage("snap", check_snap, job)
            if wanted("odd"):
                run.stage("the odd one", check_odd, job)
            if wanted("timeline"):
                run.stage("timeline", check_timeline, job)
                run.stage("timeline of all threads", check_timeline, job, "--all-threads")
            run.check("the job still trains", goes_on(run, job))
        run.end_job(job)
    if wanted("native", "cost"):
        run.note("one process starts")
        job = run.start_job("one", 1)
        if run.wait_ready(job):
            if wanted("cost"):
                run.stage("cost", check_cost, job[0])
            if wanted("native"):
                run.stage("native frames", check_native, job[0])
        run.end_job(job)
    if wanted("torchrun"):
        run.stage("torchrun", check_torchrun)
    if wanted("msmemscope"):
        run.stage("msmemscope", check_msmemscope)


def finish(run):
    for p in run.started:
        if p.poll() is None:
            p.kill()
            p.wait()
    failed = [r["name"] for r in run.results if not r["pass"]]
    with open(pathlib.Path(run.args.out) / "results.json", "w") as f:
        json.dump({"failed": failed, "results": run.results}, f, indent=1)
    total = len(run.results)
    print(f"{total - len(failed)} of {total} checks, {run.elapsed():.0f} s")
    for name in failed:
        print(f"failed: {name}")
    shutil.rmtree(run.work, ignore_errors=True)
    return 1 if failed or not total else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the sonde binary")
    parser.add_argument("--out", required=True, help="directory for the results")
    parser.add_argument("--only", help="snap, odd, timeline, cost, native, torchrun, msmemscope")
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    os.makedirs(args.out, exist_ok=True)
    run = Run(args)
    try:
        scenario(run)
    except Exception as e:
        traceback.print_exc()
        run.check("the run as a whole", False, f"{type(e).__name__}: {e}")
    finally:
        status = finish(run)
    return status


if __name__ == "__main__":
    sys.exit(main())
