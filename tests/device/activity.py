#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The monitor in PyTorch jobs on a real NVIDIA GPU. By hand, on a machine that has both.

usage: activity.py --build DIR --out DIR [--sim] [--only STAGE,…]

DIR has bin/, lib/ and python/: a build, or what tools/device_bundle makes of one for a machine that
cannot build. Jobs are plain PyTorch (activity_job.py), two of them started by `sonde monitor`, two
not at all touched; dyno does the rest. Each statement is a line that ends with ok or FAILED and the
numbers; the exit status is 1 if one failed. About six minutes on an H200, never more than eight.

With --sim the jobs are tests/targets/cuda_job.c on the simulated driver: everything but Kineto can
be tried out where there is no GPU. Its times mean nothing.
"""

import argparse
import collections
import contextlib
import glob
import json
import os
import shutil
import statistics
import sys
import time

import activity_files as files
from activity_run import Run, StressJob
from gpu import need_gpu

STEPS = 40
SHARE = 0.005  # of the device's time: kernels with less are counted, and not timed
NEAR = 1.0  # percent
TIMED, ROUNDS, CYCLES = 20, 16, 15
BUSY_BATCH = 4  # times as large, so that the device never waits for the host
BATCH = 10
COPY, SET = 4 << 20, (90, 12345)  # bytes that a step copies; value and bytes that it sets
SIM_COPY, SIM_SET = 4096, (0, 64)
MEMORY = 192 << 20
TRACED = 5


def percent(x):
    return f"{x:+.2f} %"


def differing(got, want):
    """Names whose counts are not the same."""
    return {n: (got.get(n, 0), want.get(n, 0)) for n in {*got, *want} if got.get(n) != want.get(n)}


def counts_of(totals):
    return {n: t[0] for n, t in totals.items()}


# --- 1: the same as PyTorch's profiler says ---


def check_times(run, label, got, before, after):
    """Kernel by kernel, against the mean of the profiles before and after."""
    mean = {n: (t[1] + after.get(n, t)[1]) / 2 for n, t in before.items()}
    whole = sum(mean.values())
    rows = []
    for name in (n for n, us in mean.items() if us >= SHARE * whole):
        off = (got.get(name, [0, 0.0])[1] / mean[name] - 1) * 100
        noise = abs(before[name][1] - after.get(name, [0, 0.0])[1]) / mean[name] * 100
        rows.append((abs(off), noise, name))
    worst = max(rows)
    told = f"{len(rows)} kernels with {SHARE * 100} % of the time or more, worst {worst[0]:.2f} %"
    told += f", profiles differ from each other by {max(r[1] for r in rows):.2f} % at most"
    for off, noise, name in sorted(rows, reverse=True):
        if off > NEAR:
            why = "not decidable: the profiles differ by more" if noise > NEAR else "it is wrong"
            run.report.note(f"{name[:90]}: {off:.2f} %, profiles {noise:.2f} %: {why}")
    run.report.check(f"{label}: kernel by kernel within 1 %", worst[0] <= NEAR, told)
    both = (sum(t[1] for t in got.values()) / whole - 1) * 100
    run.report.check(f"{label}: all kernels together", abs(both) <= NEAR, percent(both))


def window(run, export):
    where = run.daemon.start(run.job, export=export)
    run.job.steps(STEPS)
    took = run.daemon.stop()
    read = files.Db(where) if export == "DB" else files.Jsonl(where)
    run.report.note(f"{export}: complete {took:.2f} s after it was stopped")
    return where, read


def agreement(run):
    """Profile, monitor, profile, monitor, profile: as many steps each."""
    profiles, seen = [run.job.profile(STEPS)], {}
    for export in ("DB", "Jsonl"):
        where, seen[export] = window(run, export)
        if export == "DB":
            run.db = where
        profiles.append(run.job.profile(STEPS))
    for i, (export, read) in enumerate(seen.items()):
        got = files.totals(read.kernels)
        wrong = differing(counts_of(got), counts_of(profiles[i]))
        n = f"{len(read.kernels)} of {len(got)} names"
        run.report.check_same(f"{export}: every kernel is counted", wrong, n)
        check_times(run, export, got, profiles[i], profiles[i + 1])
        run.report.check(f"{export}: nothing is lost", read.lost == 0 and read.sound, read.lost)
        marks = collections.Counter(m[0] for m in read.marks)
        good = marks["step"] == marks["forward"] == STEPS
        run.report.check(f"{export}: NVTX ranges of every step", good, dict(marks))
    same = files.counts(seen["DB"].kernels) == files.counts(seen["Jsonl"].kernels)
    run.report.check("DB and Jsonl count the same in as many steps", same)
    counted = counts_of(profiles[0])
    run.report.check(
        "a step is like the other", all(c % STEPS == 0 for c in counted.values()), len(counted)
    )
    run.per_step = {n: c // STEPS for n, c in counted.items()}
    run.profiled = profiles[0]


def same_steps(run):
    """One window as DB, Jsonl and xlsx, read by stock libraries."""
    out = run.work / "exported"
    run.sonde("activity", "export", "--format=jsonl", "-o", out, run.db)
    run.sonde("activity", "export", "--format=xlsx", "-o", f"{out}.xlsx", run.db)
    db, jsonl, xlsx = files.Db(run.db), files.Jsonl(out), files.Xlsx(f"{out}.xlsx")
    n = f"{len(db.kernels)} kernels, {len(db.marks)} marks"
    good = sorted(jsonl.kernels) == sorted(db.kernels) and sorted(jsonl.marks) == sorted(db.marks)
    run.report.check("Jsonl has the rows of the DB", good and jsonl.sound, n)
    cells = sorted(map(files.kernel_cells, db.kernels))
    good = sorted(map(files.cells_kernel, xlsx.kernels)) == cells
    good = good and len(xlsx.marks) == len(db.marks)
    run.report.check("xlsx has the rows of the DB", good, f"{n}, read by {xlsx.by}")
    if not run.sim:
        path = run.work / "saved.xlsx"
        run.job.tell("xlsx", 4, path, run.build / "python")
        saved = collections.Counter(files.demangled(r[0]) for r in files.Xlsx(path).kernels)
        wrong = differing(saved, {n: 4 * c for n, c in run.per_step.items()})
        run.report.check_same("Monitor.save() has every kernel", wrong)


# --- 2: what it costs ---


def timed(job):
    job.steps(3)
    return job.steps(TIMED)


def middle(values):
    """Their median in percent, and between which two of them it is with a chance of 95 %."""
    ordered, n = sorted(values), len(values)
    low = max(0, int(n / 2 - 0.98 * n**0.5))
    return statistics.median(ordered), ordered[low], ordered[n - 1 - low]


def rounds(run, n):
    """Seconds of a step: monitored, not, and of a job that nobody has touched, in turns. None of
    the jobs has seen a profiler: that would stay, and cost."""
    seen = collections.defaultdict(list)
    for i in range(n):
        for kind in ("on", "off") if i % 2 else ("off", "on"):
            if kind == "on":
                run.second.start(run.other)
            seen[kind].append(timed(run.other))
            if kind == "on":
                run.second.stop()
        for name, job in zip(("plain1", "plain2"), run.plain):
            seen[name].append(timed(job))
    return seen


def overhead(run):
    """Time of a step that its device needs: on, off, untouched, in turns."""
    run.batch(BUSY_BATCH)
    seen = rounds(run, 3 if run.sim else ROUNDS)
    run.batch(1)

    def more(a, b):
        return middle([(x / y - 1) * 100 for x, y in zip(seen[a], seen[b])])

    def told(m):
        return f"{m[0]:+.2f} %, by 95 % between {m[1]:+.2f} and {m[2]:+.2f}"

    on, off, alike = more("on", "off"), more("off", "plain1"), more("plain2", "plain1")
    step = statistics.median(seen["off"]) * 1e3
    numbers = f"{told(on)}; a step takes {step:.2f} ms, {len(seen['on'])} rounds"
    good = run.sim or on[0] <= 2
    run.report.check("at most 2 % longer with Kernel and Marker", good, numbers)
    numbers = f"{told(off)}; two untouched jobs: {told(alike)}"
    good = run.sim or off[0] <= max(abs(alike[0]), 0.3)
    run.report.check("nothing while off", good, numbers)
    for name, values in seen.items():
        run.report.note(f"{name:6} ms " + " ".join(f"{x * 1e3:.2f}" for x in values))


def overhead_of_launches(run):
    """Time that the host needs for a launch: never on, on, off again, in turns with an untouched."""
    states = {}

    def measure(name):
        """The least of each: what else the machine does only makes it more."""
        pairs = [(run.other.launches(), run.plain[0].launches()) for _ in range(2 if run.sim else 10)]
        ours, plain = map(min, zip(*pairs, *states.get(name, [])))
        states[name] = [(ours, plain)]

    measure("never on")
    for _ in range(2):
        run.second.start(run.other)
        measure("on")
        run.second.stop()
        measure("off again")
    for name, limit in (("never on", 0.5), ("on", 3.0), ("off again", 3.0)):
        ((ours, plain),) = states[name]
        more = ours - plain
        told = f"{more:+.3f} us; untouched {plain:.3f} us"
        good = run.sim or more <= limit
        run.report.check(f"{name}: a launch takes at most {limit} us longer", good, told)


def stress(run):
    """On and off, again and again, in a job with threads, graphs, captures and copies."""
    if run.sim:
        run.report.note("not shown: there are no graphs in a simulated job")
        return
    job = StressJob(run, "stress", run.third)
    run.jobs.append(job)
    job.answer(120)
    job.say("begin")
    job.answer()
    run.third.until("Idle", seconds=30)
    kernels = 0
    for i in range(CYCLES):
        kinds = "Kernel,Marker,MemCpy,MemSet" if i % 2 else "Kernel,RuntimeAPI,API,Memory"
        where = run.third.start(job, kinds, "Jsonl")
        time.sleep(0.15)
        run.third.stop()
        kernels += len(files.Jsonl(where).kernels)
    said = json.loads(job.tell("end"))
    told = f"{CYCLES} times, {kernels} kernels told; {said['done']}"
    run.report.check_same("all results are right", said["wrong"], told)


# --- 3: traces ---


def trace(run):
    """nputrace of some steps, which nobody tells but PyTorch's optimizer."""
    where = run.work / "trace"
    run.job.begin_steps(200 if not run.sim else 4000)
    words = ("--start-step", -1, "--iterations", TRACED, "--analyse", "--msprof-tx")
    good, said = run.daemon.trace(where, *words)
    run.report.check("nputrace is accepted", good, "" if good else said[-300:])
    run.job.answer()
    (made,) = run.report.wait(lambda: glob.glob(f"{where}/*_sonde"), 30, "a trace")
    run.daemon.until("Idle", "nputrace")
    with open(f"{made}/trace.json") as f:
        got = json.load(f)
    about, spans = got["sonde"], [e for e in got["traceEvents"] if e["ph"] == "X"]
    steps = about["stop_step"] - about["start_step"]
    good = about["complete"] and steps == TRACED and about["lost"] == about["left_out"] == 0
    told = {k: about[k] for k in ("start_step", "stop_step", "complete", "lost", "left_out")}
    run.report.check(f"a trace of exactly {TRACED} steps", good, told)

    def of(kind):
        return [e for e in spans if e.get("args", {}).get("kind") == kind]

    counted = collections.Counter(files.demangled(e["name"]) for e in of("Kernel"))
    wrong = differing(counted, {n: TRACED * c for n, c in run.per_step.items()})
    told = f"{sum(counted.values())} kernels"
    run.report.check_same("with every kernel that they launched, and no other", wrong, told)
    calls = collections.Counter(e["name"] for e in of("RuntimeAPI"))
    copy, (_, size) = (SIM_COPY, SIM_SET) if run.sim else (COPY, SET)
    copies = [e["name"] for e in of("MemCpy") if e["args"]["bytes"] == copy]
    copies = sum(name.endswith("HtoD") for name in copies)
    sets = sum(e["args"]["bytes"] == size for e in of("MemSet"))
    marks = sum(e["name"] == "forward" for e in of("Marker"))
    told = f"{copies} copies, {sets} sets, {marks} marks, {sum(calls.values())} calls"
    good = copies == sets == marks == TRACED and calls["cudaLaunchKernel"]
    run.report.check("and copies, sets, marks and calls of each step", good, told)
    words = glob.glob(f"{where}/summary_*.txt")
    text = open(words[0]).read() if words else ""
    run.report.check("--analyse says where the time went", "a step takes" in text)
    run.report.note(text.splitlines()[0] if text else "no summary")
    with contextlib.suppress(OSError):
        shutil.copy(words[0], run.out / "summary.txt")


def kinds(run):
    """Copies, sets, memory and calls."""
    where = run.daemon.start(run.job, "Kernel,MemCpy,MemSet,Memory,RuntimeAPI,API", "DB")
    run.job.memory(MEMORY)
    run.job.steps(BATCH)
    run.daemon.stop()
    db = files.Db(where)
    copy, (value, size) = (SIM_COPY, SIM_SET) if run.sim else (COPY, SET)
    n = db.copies.count((2, copy))  # 2: to the device
    run.report.check("MemCpy: a copy to the device in every step", n == BATCH, f"{n}, {copy} bytes")
    n = db.sets.count((value, size))
    run.report.check("MemSet: a set in every step", n == BATCH, f"{n}, value {value}, {size} bytes")
    taken = [m[2] for m in db.memory if m[:2] == (0, MEMORY)]
    given = [m[2] for m in db.memory if m[:2] == (1, MEMORY)]
    good = len(taken) == 1 and taken == given
    run.report.check("Memory: what the driver gave and got back", good, len(db.memory))
    calls = collections.Counter()
    for kind, name, n in db.calls:
        calls[name] += n
    kernels = len(db.kernels)
    n = sum(c for name, c in calls.items() if name.startswith(("cudaLaunch", "cuLaunch")))
    told = f"{n} launches, {kernels} kernels, {len(calls)} different calls"
    run.report.check("RuntimeAPI and API: a launch for each kernel", n >= kernels > 0, told)
    run.report.check("nothing of it is lost", db.lost == 0, db.lost)


def live(run):
    """sonde top while the job trains."""
    run.job.begin_steps(600 if not run.sim else 4000)
    said = run.sonde("top", "--once", "--json", "--top", 60, "--port", run.daemon.port)
    run.job.answer()
    top = json.loads(said)
    (run.out / "top.json").write_text(said)
    known = {n: t[1] * 1000 / t[0] for n, t in run.profiled.items()}
    rows = [r for r in top["kernels"] if r["kind"] == "Kernel"]
    unknown = [r["name"][:80] for r in rows if files.demangled(r["name"]) not in known]
    run.report.check_same("every name of the table is a kernel's", unknown, f"{len(rows)} of them")
    offs = [abs(r["mean_ns"] / known[files.demangled(r["name"])] - 1) for r in rows[:10]]
    told = f"the ten with the most time; worst {max(offs, default=1) * 100:.2f} %"
    run.report.check("their means are those of the profile within 3 %", max(offs) <= 0.03, told)
    run.report.note(" ".join(top["answer"]) if isinstance(top["answer"], list) else top["answer"])
    run.daemon.until("Idle")


def stopped(run):
    """A trace of a job that does not go on, ended by nputrace --stop."""
    where = run.work / "stopped"
    run.job.steps(2)
    good, said = run.daemon.trace(where, "--start-step", -1, "--iterations", 50)
    run.job.steps(BATCH)
    run.daemon.until("Running", "nputrace")
    said = run.daemon.dyno("nputrace", "--stop")
    (made,) = run.report.wait(lambda: glob.glob(f"{where}/*_sonde"), 30, "a trace")
    run.daemon.until("Idle", "nputrace")
    with open(f"{made}/trace.json") as f:
        about = json.load(f)["sonde"]
    told = f"{about['note']}, steps {about['start_step']} to {about['stop_step']}"
    run.report.check("what there is by then is a trace", not about["complete"], told)


def no_alarms(run):
    """Nothing has become slower, and nobody says so."""
    alarms = [x for x in (run.out / "daemon.log").read_text().splitlines() if "regression" in x]
    run.report.check_same("no regression is told", alarms)


# --- 4: beside others ---


def batches_of(run, n, between=None):
    """Trains so many times; (begin, end) of each on the wall clock."""
    out = []
    for _ in range(n):
        began = time.time_ns()
        time.sleep(0.005)  # clocks of devices are not quite the host's
        run.job.steps(BATCH)
        time.sleep(0.005)
        out.append((began, time.time_ns()))
        if between and between():
            break
    return out


def check_batches(run, label, kernels, batches):
    """All of them whole but one piece in the middle, in which others had the device."""
    times = sorted((k[1], files.demangled(k[0])) for k in kernels)
    want = {n: BATCH * c for n, c in run.per_step.items()}
    whole = []
    for began, end in batches:
        whole.append(collections.Counter(n for t, n in times if began <= t < end) == want)
    before = next((i for i, w in enumerate(whole) if not w), len(whole))
    after = next((i for i, w in enumerate(reversed(whole)) if not w), len(whole))
    gap = whole[before : len(whole) - after]
    told = f"{before} whole batches before, {after} after, {len(gap)} between"
    run.report.check(f"{label}, whole before and after", before and after and not any(gap), told)


def beside_profiler(run):
    """torch.profiler in the program while the monitor is on."""
    alone = counts_of(run.job.profile(BATCH))
    where = run.daemon.start(run.job, export="Jsonl")
    batches = batches_of(run, 3)
    beside = counts_of(run.job.profile(BATCH))
    wrong = differing(beside, alone)
    run.report.check_same("a profile while the monitor is on is whole", wrong)
    run.daemon.until_it_sees(run.job)
    batches += batches_of(run, 3)
    run.daemon.stop()
    check_batches(run, "the monitor's file", files.Jsonl(where).kernels, batches)
    wrong = differing(counts_of(run.job.profile(BATCH)), alone)
    run.report.check_same("and so is a profile afterwards", wrong)


def beside_kineto(run):
    """gputrace by the daemon while the monitor is on."""
    if run.sim:
        run.report.note("not shown: there is no Kineto in a simulated job")
        return
    where = run.daemon.start(run.job, export="Jsonl")
    batches = batches_of(run, 3)
    stem = f"/tmp/activity_{os.getpid()}"
    run.daemon.dyno("gputrace", "--iterations", 5, "--log-file", stem + ".json")
    path, ends, found = f"{stem}_{run.job.pid}.json", time.monotonic() + 60, {}

    def read():
        with contextlib.suppress(OSError, ValueError):
            with open(path) as f:
                found.update(json.load(f))
        return found or time.monotonic() > ends

    batches += batches_of(run, 10**6, read)
    events = found.get("traceEvents", [])
    counted = collections.Counter(
        files.demangled(e["name"]) for e in events if e.get("cat") == "kernel"
    )
    # An iteration may straddle an edge of the trace: a step more or less is Kineto's business.
    steps = [c / (run.per_step[n] or 1) for n, c in counted.items() if n in run.per_step]
    good = len(steps) == len(run.per_step) and all(4 <= s <= 6 for s in steps)
    told = f"{sum(counted.values())} kernels, {min(steps, default=0)} to {max(steps, default=0)}"
    run.report.check("Kineto's trace is whole", good, f"{told} steps of 5 that were asked for")
    run.daemon.until("Running", seconds=30)
    run.job.profiled = time.monotonic()
    run.daemon.until_it_sees(run.job)
    batches += batches_of(run, 3)
    run.daemon.stop()
    check_batches(run, "the monitor's file", files.Jsonl(where).kernels, batches)
    with contextlib.suppress(OSError):
        os.unlink(path)


# --- 5: the end ---


def kill(run, daemon, job, where, read, states):
    """What is older than a second or two survives."""
    job.steps(BATCH)
    time.sleep(2.5)
    job.begin_steps(10000)
    time.sleep(0.5)
    run.report.check("it is Running", daemon.status()["npumonitor"] == "Running")
    job.kill()
    began = time.monotonic()
    run.report.wait(lambda: daemon.status()["npumonitor"] in states, 20, str(states))
    took, kind = time.monotonic() - began, read.__name__
    run.report.check(f"{kind}: not Running a second after", took <= 1, f"{took:.3f} s")
    got = read(where)
    counted = files.counts(got.kernels)
    short = {n: counted[n] for n, c in run.per_step.items() if counted[n] < BATCH * c}
    told = str(short)[:300] if short else f"{len(got.kernels)} kernels"
    run.report.check(f"{kind}: readable, with what was older", got.sound and not short, told)


def killed(run):
    """Jobs that are killed while they are monitored; another one came meanwhile."""
    where = run.daemon.start(run.job, export="DB")
    late = run.start_late()
    kill(run, run.daemon, run.job, where, files.Db, ["Idle"])
    late.begin_steps(100 if not run.sim else 4000)
    where = run.work / "late"
    good, said = run.daemon.trace(where, "--start-step", -1, "--iterations", 1)
    run.report.check("nputrace is accepted at once", good, "" if good else said[-300:])
    late.answer()
    made = run.report.wait(lambda: glob.glob(f"{where}/*_sonde"), 30, "a trace")
    run.report.check("and carried out", len(made) == 1, made)
    where = run.second.start(run.other, export="Jsonl")
    kill(run, run.second, run.other, where, files.Jsonl, ["Idle", "Uninitialized"])


STAGES = (
    agreement, same_steps, overhead_of_launches, overhead, trace, live, stopped, kinds,
    beside_profiler, beside_kineto, no_alarms, stress, killed,
)  # fmt: skip


def about(run):
    with open(f"/proc/{run.job.pid}/maps") as f:
        cupti = {line.split()[-1] for line in f if "libcupti" in line}
    run.report.note(f"{run.job.about}; {', '.join(sorted(cupti)) or 'no libcupti yet'}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--sim", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if not args.sim:
        need_gpu("torch")
    only = set(args.only.split(",")) if args.only else None
    if only and only != {"overhead_of_launches"}:
        only.add("agreement")  # what a step launches
    run = Run(args)
    try:
        run.ready()
        about(run)
        for stage in STAGES:
            if not only or stage.__name__ in only:
                run.report.stage(stage, run)
    finally:
        run.end()
        shutil.rmtree(run.work, ignore_errors=True)
    report = run.report
    print(f"{report.held} ok, {len(report.failed)} FAILED, {report.elapsed():.0f} s", flush=True)
    return 1 if report.failed or not report.held else 0


if __name__ == "__main__":
    sys.exit(main())
