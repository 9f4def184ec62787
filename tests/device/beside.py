#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""A recording beside other tools in the same process, on a real NVIDIA GPU: all of them stay whole.

usage: beside.py --build DIR --out DIR [--only STAGE,…] [--sim]

Stages: cudart (C++, with CUDA's runtime inside and shared), sanitizer (compute-sanitizer's memcheck),
ncu (Nsight Compute), shims (a library that interposes dlsym, in front of ours and behind it), profiler
(torch.profiler), gputrace (PyTorch's profiler by way of the daemon), monitor (ours), cupy (memcheck).
Each tool says the same with a recording as without; each recording has every block that the program
asked for, once, and no other. Prints PASS, FAIL or SKIP for each statement; exits with 1 if one failed.
At most 150 s.

With --sim the daemon and the monitor are tried out on the simulated driver, without a GPU.
"""

import argparse
import collections
import csv
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import activity_files as files
from activity_run import OURS, Daemon, Job, Report, SimJob
from gpu import lacking, need_gpu
from memory_dumps import rows_of

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 130  # nothing begins later
ONE_S = 25  # of a program that is run to its end
STEPS = 10
ROUNDS = 8  # of beside_kernels.cu


class Said(Report):
    def check(self, statement, good, numbers=""):
        print(f"{'PASS' if good else 'FAIL'}  {statement}: {str(numbers)[:400]}", flush=True)
        if good:
            self.held += 1
        else:
            self.failed.append(statement)
        return good


def skip(name, why):
    print(f"SKIP  {name}: {why}", flush=True)


def find_program(name):
    """On PATH, or where CUDA's packages put it."""
    places = ("/usr/local/cuda*/bin", "/usr/local/cuda*/*", "/opt/nvidia/*/*", "/opt/nvidia/*")
    found = [p for place in places for p in sorted(glob.glob(f"{place}/{name}"), reverse=True)]
    found = [p for p in found if os.path.isfile(p) and os.access(p, os.X_OK)]
    return shutil.which(name) or next(iter(found), None)


class Done:
    """A program that has been run to its end, or until its time was over."""

    def __init__(self, words, env, seconds):
        began = time.monotonic()
        job = subprocess.Popen(
            [*map(str, words)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            self.text = job.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            self.text = job.communicate()[0] + f"\nit did not end within {seconds} s\n"
        self.status, self.took = job.returncode, time.monotonic() - began

    def lines(self, word):
        return [s[len(word) + 1 :] for s in self.text.splitlines() if s.startswith(word + " ")]


class Run:
    def __init__(self, args):
        self.report, self.sim = Said(), args.sim
        self.build = pathlib.Path(args.build).resolve()
        self.out = pathlib.Path(args.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_beside_", dir="/tmp"))
        self.env = {k: v for k, v in os.environ.items() if not OURS.match(k)}
        self.programs, self.jobs, self.daemon = {}, {}, None
        self.sums = set()

    def msmemscope(self, where, *options):
        return [self.build / "bin/msmemscope", f"--output={where}", "--report=off", *options, "--"]

    def run(self, name, words, seconds=ONE_S, **env):
        done = Done(words, {**self.env, **env}, seconds)
        kept = self.out / (re.sub(r"\W+", "_", name) + ".txt")
        kept.write_text(" ".join(map(str, words)) + "\n" + done.text[-100000:])
        return done

    def sonde(self, *words):
        words = [self.build / "bin/sonde", *words]
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60)
        return done.stdout

    def about(self, where):
        """What is said of a recording, once its files are complete."""
        try:
            return json.loads(self.sonde("mem", "show", "--json", where))
        except ValueError:
            return None

    # --- jobs of PyTorch, which begin while others are looked at ---

    def start_jobs(self, names):
        self.daemon = Daemon(self, "daemon")
        kind = SimulatedJob if self.sim else TorchJob
        for name in ("plain", *names):
            self.jobs[name] = kind(self, name, monitored=name == "monitor", daemon=self.daemon)

    def ready(self, name):
        """The job; the plain one has said what a step launches."""
        for which in ("plain", name):
            job = self.jobs[which]
            if not job.is_ready:
                job.ready()
                job.is_ready = True
        if not self.jobs["plain"].per_step:
            self.jobs["plain"].per_step = counts(self.jobs["plain"].profile(STEPS))
        return self.jobs[name], self.jobs["plain"].per_step

    def end(self):
        for x in (*self.jobs.values(), self.daemon):
            if x:
                x.end()
        shutil.rmtree(self.work, ignore_errors=True)


def counts(totals):
    return {name: t[0] for name, t in totals.items()}


def differing(got, want):
    """Names whose counts are not the same."""
    return {n: (got.get(n, 0), want.get(n, 0)) for n in {*got, *want} if got.get(n) != want.get(n)}


# --- programs that are run to their end ---


def build(run, cudart="static"):
    """beside_kernels.cu, once; an empty text if that fails."""
    if cudart not in run.programs:
        nvcc, run.programs[cudart] = find_program("nvcc"), ""
        path = run.work / f"beside_kernels_{cudart}"
        if nvcc:
            words = [nvcc, "-O1", "-o", path, HERE / "beside_kernels.cu", "-cudart", cudart]
            done = run.run(f"nvcc {cudart}", words, 60)
            if run.report.check(f"nvcc builds, {cudart}", done.status == 0, done.text[-300:]):
                run.programs[cudart] = path
        else:
            skip("the program in C++", "there is no nvcc")
    return run.programs[cudart]


def events(rows, kind, owner=""):
    """(ns, bytes, is it a free) of the blocks of that kind and owner, in order of time. Ends that the
    recorder made up are none."""
    owners, out = {}, []
    for r in rows:
        a, end = r["attr"], r["Event"] == "FREE"
        if r["Event Type"] != kind or r["Event"] not in ("MALLOC", "FREE") or a.get("shadow") == "true":
            continue
        key = r["Process Id"], a["allocation_id"]
        if not end:
            owners[key] = a.get("owner", ""), int(a["size"])
        of, size = owners.get(key, ("", 0))
        if owner in of:
            out.append((int(r["Timestamp(ns)"]), size, end))
    return out


def sizes(rows, end, owner=""):
    return collections.Counter(size for _, size, is_end in events(rows, "CUDA", owner) if is_end == end)


def check_recorded(run, title, done, where):
    """Every block that the program has said, once; what a tool has beside them is its own."""
    about = run.about(where)
    lost = about["lost"]["events"] if about else "no recording"
    rows = rows_of(where) if about else []
    wrong = {}
    for end, word in ((False, "alloc"), (True, "free")):
        said = collections.Counter(map(int, done.lines(word)))
        lacking_here = said - sizes(rows, end)
        too_many = sizes(rows, end, "beside_kernels") - said
        wrong.update({f"no {word} of": dict(lacking_here)} if lacking_here else {})
        wrong.update({f"{word} too often": dict(too_many)} if too_many else {})
    n = sum(sizes(rows, False).values()) - len(done.lines("alloc"))
    told = f"{len(done.lines('alloc'))} allocations, {len(done.lines('free'))} frees, lost {lost}"
    told += f", {n} blocks of others" if n else ""
    good = not wrong and lost == 0 and done.lines("alloc")
    run.report.check(f"{title}: the recording is whole", good, f"{told} {wrong or ''}")
    sums = {*done.lines("sum")}
    run.sums |= sums
    run.report.check(f"{title}: results are the same", len(sums) == 1 and len(run.sums) == 1, run.sums)


def orders(run, tool, words):
    """The ways in which people put two tools in front of a program: (title, words, where)"""
    for title, outer in ((f"msmemscope -- {tool}", True), (f"{tool} msmemscope --", False)):
        where = run.work / f"{tool}_{outer}_{time.monotonic_ns()}"
        ours = run.msmemscope(where)
        yield title, [*ours, *words] if outer else [*words, *ours], where


def stage_cudart(run):
    for cudart in ("static", "shared"):
        program = build(run, cudart)
        if program:
            where = run.work / f"cudart_{cudart}"
            lib = pathlib.Path(find_program("nvcc")).resolve().parent.parent / "lib64"
            env = {"LD_LIBRARY_PATH": f"{lib}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
            done = run.run(f"cudart {cudart}", [*run.msmemscope(where), program, "clean"], **env)
            check_recorded(run, f"CUDA's runtime, {cudart}", done, where)


def errors_of(done):
    """What compute-sanitizer has found: kinds of invalid accesses, and its own sum."""
    found = re.findall(r"^=+\s+(Invalid .*|ERROR SUMMARY: \d+ errors?)\s*$", done.text, re.M)
    return sorted(found)


def memcheck():
    return [find_program("compute-sanitizer"), "--tool", "memcheck", "--target-processes", "all"]


def stage_sanitizer(run):
    if not memcheck()[0]:
        return skip("sanitizer", "there is no compute-sanitizer")
    if not build(run):
        return None
    for mode, wanted in (("clean", "ERROR SUMMARY: 0 errors"), ("broken", "Invalid __global__ write")):
        words = memcheck()
        alone = run.run(f"sanitizer {mode} alone", [*words, build(run), mode])
        want = errors_of(alone)
        if not any(w.startswith(wanted) for w in want):
            skip(f"sanitizer, {mode}", f"it does not find it without us either: {alone.text[-300:]!r}")
            continue
        for title, words, where in orders(run, "compute-sanitizer", words):
            done = run.run(f"{title} {mode}", [*words, build(run), mode])
            title = f"{title}, {mode}"
            found = errors_of(done)
            run.report.check(f"{title}: it says the same", found == want, found or done.text[-300:])
            check_recorded(run, title, done, where)
    return None


CUPY = """
import cupy
pool, kept = cupy.get_default_memory_pool(), [cupy.ones(1 << 20, dtype=cupy.float32) for _ in range(3)]
print("total", pool.total_bytes(), flush=True)
beyond = cupy.RawKernel('extern "C" __global__ void beyond(float *x, long at) { x[at] = 1; }', "beyond")
beyond((1,), (1,), (kept[0], cupy.int64(1 << 28)))
try:
    cupy.cuda.Device().synchronize()
except Exception as why:
    print("broken", type(why).__name__, flush=True)
"""


def stage_cupy(run):
    if not memcheck()[0] or lacking(["cupy"]):
        return skip("cupy", "there is no compute-sanitizer, or no CuPy")
    where = run.work / "cupy"
    words = [*run.msmemscope(where), *memcheck(), sys.executable, "-c", CUPY]
    done = run.run("sanitizer cupy", words, 40)
    title = "CuPy under memcheck"
    found = errors_of(done)
    good = any("Invalid" in f for f in found)
    run.report.check(f"{title}: the planted error is found", good, found or done.text[-300:])
    about = run.about(where)
    mine = sizes(rows_of(where), False, "CuPy") if about else collections.Counter()
    total = [*map(int, done.lines("total"))]
    good = about and total == [sum(mine.elements())] and about["lost"]["events"] == 0
    run.report.check(f"{title}: the recording is whole", good, f"{dict(mine)}, its pool {total}")
    return None


def kernels_of(done):
    """Nsight Compute's table of what it has measured: {kernel: how many times}."""
    lines = done.text.splitlines()
    begin = next((i for i, s in enumerate(lines) if s.startswith('"ID"')), None)
    if begin is None:
        return {}
    table = [s for s in lines[begin:] if s.startswith('"')]
    names = (row["Kernel Name"].split("(")[0] for row in csv.DictReader(table))
    return dict(collections.Counter(names))


def stage_ncu(run):
    ncu = find_program("ncu")
    if not ncu:
        return skip("ncu", "there is no Nsight Compute")
    if not build(run):
        return None
    words = [ncu, "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv"]
    words += ["--target-processes", "all"]
    alone = run.run("ncu alone", [*words, build(run), "clean"])
    want = kernels_of(alone)
    if want.get("scale") != ROUNDS or want.get("add") != ROUNDS:
        why = re.findall(r"^==(?:ERROR|WARNING)==.*", alone.text, re.M) or [alone.text[-300:]]
        return skip("ncu", f"it does not measure here without us either: {want} {why[0]}")
    for title, words, where in orders(run, "ncu", words):
        done = run.run(title, [*words, build(run), "clean"])
        got = kernels_of(done)
        run.report.check(f"{title}: every kernel is measured", got == want, got or done.text[-300:])
        check_recorded(run, title, done, where)
    return None


def stage_shims(run):
    """As a library that shares GPUs among containers does it."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if not cc:
        return skip("shims", "there is no compiler")
    if not build(run):
        return None
    shim = run.work / "dlsym_shim.so"
    words = [cc, "-shared", "-fPIC", "-O1", HERE / "dlsym_shim.c", "-o", shim, "-ldl"]
    subprocess.run([*map(str, words)], check=True)
    front = run.work / "front"
    front.write_text(f'#!/bin/sh\nLD_PRELOAD="{shim}:$LD_PRELOAD" exec "$@"\n')
    front.chmod(0o755)

    def calls(name, words, **env):
        path = run.work / f"calls_{time.monotonic_ns()}"
        done = run.run(name, words, SHIM_CALLS=str(path), **env)
        return done, path.read_text().split() if path.exists() else []

    alone, want = calls("shim alone", [front, build(run), "clean"])
    run.report.note(f"a shim of dlsym without us sees {want} calls of cuMemAlloc, of {ROUNDS + 1}")
    for title, words, env in (
        ("a shim behind us", [], {"LD_PRELOAD": str(shim)}),
        ("a shim in front of us", [front], {}),
    ):
        where = run.work / title.replace(" ", "_")
        done, got = calls(title, [*run.msmemscope(where), *words, build(run), "clean"], **env)
        run.report.check(f"{title} sees what it saw without us", got == want, got or done.text[-300:])
        check_recorded(run, title, done, where)
    return None


# --- in a job of PyTorch ---


class TorchJob(Job):
    """activity_job.py, recorded, with PyTorch's profiler waiting for the daemon. The plain one is not."""

    program = [sys.executable, HERE / "activity_job.py"]
    is_ready, per_step = False, None

    def __init__(self, run, name, monitored, daemon):
        self.where, self.notes, words = run.work / f"recorded_{name}", [], []
        if name != "plain" and not monitored:
            words = ["env", "KINETO_USE_DAEMON=1", f"KINETO_IPC_SOCKET_DIR={daemon.dir}"]
        if name != "plain":
            words += run.msmemscope(self.where)
        Job.__init__(self, run, name, [*map(str, [*words, *self.program])], monitored, daemon)

    def ready(self):
        self.about = self.answer(100)

    def note(self):
        """What torch says of its memory, at a moment when nothing happens."""
        ns, allocated, reserved = map(int, self.tell("stats").split())
        self.notes.append({"ns": ns, "allocated": allocated, "reserved": reserved})

    def finish(self):
        """Its input ends, and so does it."""
        self.process.stdin.close()
        return self.process.wait(40)


class SimulatedJob(TorchJob, SimJob):
    """tests/targets/cuda_job.c in its place: it has no words about memory."""

    ready, profile = SimJob.ready, SimJob.profile

    def __init__(self, run, *words, **more):
        self.program = [run.build / "targets/cuda_job"]
        super().__init__(run, *words, **more)

    def note(self):
        pass


def alive(blocks, ns):
    """Bytes of those blocks at that time."""
    return sum(-size if end else size for at, size, end in blocks if at <= ns)


def check_job_recorded(run, title, job):
    if run.sim:
        return run.report.note("not shown: torch's memory in a simulated job")
    status = job.finish()
    about = run.about(job.where)
    rows = rows_of(job.where) if about else []
    lost = about["lost"]["events"] if about else "no recording"
    for kind, owner, key in (("CUDA", "CUDA@torch", "reserved"), ("TORCH", "", "allocated")):
        blocks = events(rows, kind, owner)
        off = [alive(blocks, n["ns"]) - n[key] for n in job.notes]
        told = f"off by {off} of {job.notes[-1][key] if job.notes else 0} bytes, lost {lost}"
        good = off and not any(off) and lost == 0 and status == 0
        run.report.check(f"{title}: the recording is whole, {key}", good, told)
    return None


def check_kernels(run, statement, got, per_step, steps=STEPS):
    want = {name: n // STEPS * steps for name, n in per_step.items()}
    wrong = differing(got, want)
    told = str(wrong)[:300] if wrong else f"{sum(got.values())} kernels of {len(got)} names"
    run.report.check(statement, not wrong, told)


def stage_profiler(run):
    """Before and after gputrace, which has the same job."""
    job, per_step = run.ready("recorded")
    job.note()
    check_kernels(run, "torch.profiler in a recorded job has every kernel", counts(job.profile(STEPS)), per_step)
    job.note()
    if run.only and "gputrace" not in run.only:
        check_job_recorded(run, "beside torch.profiler", job)


def stage_gputrace(run):
    if run.sim:
        return skip("gputrace", "there is no Kineto in a simulated job")
    job, per_step = run.ready("recorded")
    stem = run.work / "trace"
    run.report.wait(lambda: str(job.pid) in run.daemon.dyno("ps", "--json"), 20, "a job that polls the daemon")
    run.daemon.dyno("gputrace", "--pids", job.pid, "--iterations", STEPS, "--log-file", f"{stem}.json")
    path, ends, found = f"{stem}_{job.pid}.json", time.monotonic() + 45, {}
    while not found and time.monotonic() < ends:
        job.steps(1)
        time.sleep(0.1)  # some hundred steps are enough to look through
        try:
            with open(path) as f:
                found = json.load(f)
        except (OSError, ValueError):
            pass
    job.note()
    kernels = [e for e in found.get("traceEvents", []) if e.get("cat") == "kernel"]
    counted = collections.Counter(files.demangled(e["name"]) for e in kernels)
    # an iteration may straddle an edge of the trace: a step more or less is Kineto's business
    steps = {name: counted[name] * STEPS / n for name, n in per_step.items()}
    good = steps and not set(counted) - set(per_step) and all(abs(n - STEPS) <= 1 for n in steps.values())
    told = f"{len(kernels)} kernels, {min(steps.values())} to {max(steps.values())} steps of {STEPS}"
    run.report.check("dyno gputrace of a recorded job is whole", good, told)
    check_kernels(run, "and so is a profile afterwards", counts(job.profile(STEPS)), per_step)
    job.note()
    check_job_recorded(run, "beside torch.profiler and gputrace", job)
    return None


def stage_monitor(run):
    job, per_step = run.ready("monitor")
    run.daemon.until("Idle", seconds=30)
    for n in range(2):  # it is switched on twice
        job.note()
        where = run.daemon.start(job, export="DB")
        job.steps(STEPS)
        job.note()
        run.daemon.stop()
        db = files.Db(where)
        title = f"the monitor in a recorded job, window {n + 1}"
        check_kernels(run, f"{title}: every kernel", counts(files.totals(db.kernels)), per_step)
        run.report.check(f"{title}: nothing is lost", db.lost == 0 and db.sound, db.lost)
    check_job_recorded(run, "beside the monitor", job)


STAGES = {name[6:]: fn for name, fn in list(globals().items()) if name.startswith("stage_")}
STAGES["cupy"] = STAGES.pop("cupy")  # the last: it takes the longest
IN_TORCH = {"profiler": "recorded", "gputrace": "recorded", "monitor": "monitor"}
WITHOUT_GPU = ("profiler", "gputrace", "monitor")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--sim", action="store_true")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(WITHOUT_GPU if args.sim else STAGES)
    for name in names:
        if name not in STAGES:
            parser.error(f"there is no stage '{name}'; there are {', '.join(STAGES)}")
    if not args.sim:
        need_gpu()
    run = Run(args)
    run.only = names if args.only else ()
    no_torch = not args.sim and lacking(["torch"])
    try:
        if not no_torch and set(names) & set(IN_TORCH):
            run.start_jobs(sorted({IN_TORCH[name] for name in names if name in IN_TORCH}))
        for name in names:
            run.report.note(f"--- {name}")
            if name in IN_TORCH and no_torch:
                skip(name, "this Python has no torch")
            elif run.report.elapsed() > LIMIT_S:
                run.report.check(name, False, "no time is left for it")
            else:
                try:
                    STAGES[name](run)
                except Exception as why:
                    traceback.print_exc(limit=4, file=sys.stdout)
                    run.report.check(name, False, f"{type(why).__name__}: {why}")
    finally:
        run.end()
    report = run.report
    print(f"{report.held} passed, {len(report.failed)} failed, {report.elapsed():.0f} s", flush=True)
    return 1 if report.failed or not report.held else 0


if __name__ == "__main__":
    sys.exit(main())
