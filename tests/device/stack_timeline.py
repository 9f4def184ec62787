# SPDX-License-Identifier: MulanPSL-2.0
"""For stack.py: what the timeline says, against the job's own clock and nvidia-smi."""

import collections
import gzip
import json
import pathlib
import re
import shutil
import subprocess
import time

from stack_run import Watch, check_never_traced
from stack_control import SLOTS, STAY

FUNCTIONS = [f"Trainer.{name}" for name in SLOTS[1:STAY]]


class Trace:
    """What a file of `sonde stack` says, checked on the way."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.data = json.load(f)
        self.names, self.processes, self.counters = {}, {}, collections.defaultdict(list)
        self.open = collections.defaultdict(list)
        self.time = collections.defaultdict(float)  # (pid, thread, function) -> us
        self.unbalanced, self.backwards = 0, 0
        self.nested = set()  # (below, between, above): who was called through C and C++
        self.last = {}
        for e in self.data["traceEvents"]:
            {"B": self.begin, "E": self.end, "M": self.meta, "C": self.counter}[e["ph"]](e)
        self.unbalanced += sum(map(len, self.open.values()))
        self.last_us = max(self.last.values(), default=0)

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
        if e["args"]["file"].endswith("steps.py"):
            self.through_native(stack)

    def through_native(self, stack):
        between = []
        for e in reversed(stack[:-1]):
            if e["args"]["file"].endswith(".py"):
                if between:
                    self.nested.add(
                        (
                            e["args"]["function"],
                            tuple(reversed(between)),
                            stack[-1]["args"]["function"],
                        )
                    )
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
            [
                "nvidia-smi",
                "--query-gpu=utilization.gpu,utilization.memory,memory.used",
                "--format=csv,noheader,nounits",
                "-lms",
                "200",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
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
    tracks = (
        ("gpu_utilization_rate", "gpu", 15),
        ("gpu_memory_usage_rate", "memory", 15),
        ("gpu_memory_used_mb", "memory_used_mb", 64),
    )
    for (name, key, most), theirs in zip(tracks, smi.columns):
        ours = trace.counters.get((name, key), [])
        run.check(
            f"{name} is what nvidia-smi says",
            len(ours) >= 20 and abs(mean(ours) - mean(theirs)) <= most,
            f"mean {mean(ours):.1f} of {len(ours)}, nvidia-smi {mean(theirs):.1f} of "
            f"{len(theirs)}",
        )


def clocks(job):
    return [(time.perf_counter_ns(), *p.control[1:STAY]) for p in job]


def check_clocks(run, trace, job, before, after, label):
    """How much of its time a rank spends in each function: by its own clock, and by the file."""
    worst, told = 0, []
    for p, b, a in zip(job, before, after):
        own = [(y - x) / (a[0] - b[0]) for x, y in zip(b[1:], a[1:])]
        seen = [trace.time[p.pid, "MainThread", f] / trace.last_us for f in FUNCTIONS]
        worst = max([worst] + [abs(x - y) for x, y in zip(own, seen)])
        if p.rank == 0:
            told = [
                f"{f[8:]} {100 * y:.1f} (own clock {100 * x:.1f})"
                for f, x, y in zip(FUNCTIONS, own, seen)
            ]
    run.check(
        f"{label}: times of functions are those of the job's own clock",
        worst < 0.03,
        f"at most {100 * worst:.1f} points apart; rank 0 in %: " + ", ".join(told),
    )


def keep(run, path):
    with open(path, "rb") as f, gzip.open(
        pathlib.Path(run.args.out) / f"{path.name}.gz", "wb"
    ) as g:
        shutil.copyfileobj(f, g)


def check_timeline(run, job, *words):
    label = " ".join(("stack", *words))
    path = run.work / f"timeline{''.join(words)}.json"
    with Watch([p.pid for p in job]) as watch, Smi() as smi:
        before = clocks(job)
        r = run.sonde("stack", "-i", "0.001", "-d", 5, "-o", path, "--json", *words)
        after = clocks(job)
    run.check(f"{label}: ends in order", r.returncode == 0, r.stderr[-300:])
    told = json.loads(r.stdout)
    s = told["sampled"]
    print(
        f"      {s['rounds']} rounds, {s['skipped_ticks']} ticks skipped, "
        f"{s['thread_samples']} stacks, {s['missed']} missed, {s['retried']} retried, "
        f"{s['torn']} torn; skew mean {s['skew_mean_us']:.0f} us, max {s['skew_max_us']:.0f} us; "
        f"{100 * told['cpu_s'] / told['seconds']:.0f} % of a core; {told['bytes'] / 1e6:.1f} MB, "
        f"RSS {told['rss_bytes'] / 1e6:.1f} MB",
        flush=True,
    )
    run.check(
        f"{label}: four processes at 1 kHz",
        told["processes"] == len(job)
        and s["rounds"] + s["skipped_ticks"] > 4900
        and s["rounds"] > 2500,
        f"{s['rounds']} rounds",
    )
    run.check(
        f"{label}: few stacks are missed",
        s["missed"] < s["thread_samples"] / 50,
        f"{100 * s['missed'] / max(1, s['thread_samples']):.2f} %",
    )
    trace = Trace(path)
    run.check(
        f"{label}: strict JSON, balanced, never back in time",
        not trace.unbalanced and not trace.backwards,
        f"{len(trace.data['traceEvents'])} events",
    )
    run.check(
        f"{label}: functions of the script on MainThread of every rank",
        all(trace.time[p.pid, "MainThread", f] for p in job for f in FUNCTIONS),
    )
    names = [trace.processes.get(p.pid, "") for p in job]
    run.check(
        f"{label}: processes are named by rank",
        all(re.search(rf"rank\W*{p.rank}\b", n, re.I) for p, n in zip(job, names)),
        names[0],
    )
    threads = trace.threads(job[0].pid)
    if "--all-threads" in words:
        run.check(
            f"{label}: the other threads are there",
            all({"MainThread", "feeder"} <= trace.threads(p.pid) for p in job),
            threads,
        )
        elsewhere = [k for k in trace.time if k[2] == "Scale.backward" and k[1] != "MainThread"]
        run.check(
            f"{label}: Python called on PyTorch's own thread is seen",
            {k[0] for k in elsewhere} == {p.pid for p in job},
            sorted({k[1] for k in elsewhere}),
        )
    else:
        run.check(f"{label}: MainThread alone", threads == {"MainThread"}, threads)
    check_clocks(run, trace, job, before, after, label)
    check_counters(run, trace, smi)
    check_never_traced(run, watch, label)
    with open(f"{path}.log") as f:
        run.note(f.read()[-1500:])
    keep(run, path)
