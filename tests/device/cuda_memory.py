#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Every block of the CUDA driver on a real GPU: against NVML, PyTorch, CuPy and JAX, to the byte.

usage: cuda_memory.py --bin BUILD/bin/sonde --out DIR [--target PROGRAM] [--only STAGE,…]

PROGRAM is tests/targets/cuda_memory.c; without it gcc builds it. Stages: kinds, pairs, cycles, nvml,
torch, expandable, cupy, jax, preallocated, pinned, host, profiler, kill, reset. A framework that is not
installed is skipped and said. Prints PASS or FAIL for each statement with its numbers; exits with 1
if anything failed. Takes about four minutes.
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

from gpu import need_gpu

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
TIMEOUT = 150

# --- jobs: run under msmemscope, by the name of the stage ---


class Steps:
    """What a job says at moments that the rows are compared with."""

    def __init__(self):
        self.lines = []

    def note(self, **facts):
        time.sleep(0.02)  # nothing else happens around that moment
        self.lines.append({"ns": time.time_ns(), **facts})
        time.sleep(0.02)

    def write(self):
        pathlib.Path(os.environ["SONDE_JOB_FACTS"]).write_text(json.dumps(self.lines))


def nvml_bytes():
    """Bytes that NVML says this device has in use; there is one job on it."""

    class Memory(ctypes.Structure):
        _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]

    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    handle, memory = ctypes.c_void_p(), Memory()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return memory.used


def job_nvml(steps):
    """Blocks of whole pages of the device, by every call; used bytes before, between and after."""
    cu = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    cu.cuInit(0)
    cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cu.cuCtxSetCurrent(context)
    first = ctypes.c_ulonglong()
    cu.cuMemAlloc_v2(ctypes.byref(first), ctypes.c_size_t(2 * MIB))
    steps.note(used=nvml_bytes())
    blocks = []
    for n in (64, 2, 300, 1024):
        address = ctypes.c_ulonglong()
        assert cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(n * MIB)) == 0
        blocks.append(address)
        steps.note(used=nvml_bytes())
    for address in blocks[::2]:
        cu.cuMemFree_v2(address)
        steps.note(used=nvml_bytes())


def job_torch(steps):
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        x = torch.randn(64 + 512 * (step % 3), 2048, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if step == 4:
            torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats()
        steps.note(
            reserved=stats["reserved_bytes.all.current"],
            allocated=stats["allocated_bytes.all.current"],
            used=nvml_bytes(),
        )
    print("checksum", float(sum(p.double().sum() for p in model.parameters())))


def job_pinned(steps):
    import torch

    torch.zeros(1, device="cuda")
    kept = []
    for n in (1, 3, 8):
        kept.append(torch.empty(n * MIB, dtype=torch.uint8).pin_memory())
        steps.note(pinned=sum(1 << (len(bin(k.numel() - 1)) - 2) for k in kept))


PINNED = {
    "cuMemHostAlloc": 3 * MIB + 4096 * 5,
    "cuMemAllocHost_v2": 3 * MIB + 4096 * 7,
    "registered": 3 * MIB + 4096 * 9,
}


def job_host(steps):
    """Host memory that the driver pins, by each call; sizes that nobody else has."""
    cu, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    context, at = ctypes.c_void_p(), ctypes.c_void_p()
    cu.cuInit(0)
    cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cu.cuCtxSetCurrent(context)
    size = {name: ctypes.c_size_t(n) for name, n in PINNED.items()}
    assert cu.cuMemHostAlloc(ctypes.byref(at), size["cuMemHostAlloc"], 0) == 0
    assert cu.cuMemAllocHost_v2(ctypes.byref(at), size["cuMemAllocHost_v2"]) == 0
    assert cu.cuMemFreeHost(at) == 0
    own = ctypes.c_void_p(libc.aligned_alloc(ctypes.c_size_t(4096), size["registered"]))
    assert cu.cuMemHostRegister_v2(own, size["registered"], 0) == 0
    steps.note()
    assert cu.cuMemHostUnregister(own) == 0


def job_cupy(steps):
    import cupy

    pool, kept = cupy.get_default_memory_pool(), []
    for n in range(6):
        kept.append(cupy.zeros((n + 1) * MIB, dtype=cupy.float32))
        if n == 3:
            del kept[:3]
            pool.free_all_blocks()
        cupy.cuda.Device().synchronize()
        steps.note(reserved=pool.total_bytes(), allocated=pool.used_bytes(), used=nvml_bytes())


def job_jax(steps):
    import jax
    import jax.numpy as jnp

    x = jnp.ones((4096, 4096))
    for _ in range(5):
        x = (x @ x) / 4096
        x.block_until_ready()
        stats = jax.devices()[0].memory_stats()
        steps.note(
            reserved=stats.get("pool_bytes") or stats.get("bytes_reserved") or 0,
            allocated=stats["bytes_in_use"],
            used=nvml_bytes(),
        )


def job_profiler(steps):
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(512, 512, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(50):
            x = (x @ x).tanh()
        torch.cuda.synchronize()
    kernels = sum(1 for e in seen.events() if str(e.device_type).endswith("CUDA"))
    print("kernels", kernels)


def job_reset(steps):
    """What a reset of the device ends: memory of streams, too?"""
    cu = ctypes.CDLL("libcuda.so.1")
    context, a, b = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_ulonglong()
    cu.cuInit(0)
    cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cu.cuCtxSetCurrent(context)
    cu.cuMemAlloc_v2(ctypes.byref(a), ctypes.c_size_t(512 * MIB))
    steps.note(used=nvml_bytes())
    cu.cuMemAllocAsync(ctypes.byref(b), ctypes.c_size_t(1024 * MIB), None)
    cu.cuCtxSynchronize()
    steps.note(used=nvml_bytes())
    print("reset", cu.cuDevicePrimaryCtxReset_v2(0))
    steps.note(used=nvml_bytes())


# --- reading what was recorded ---


class Run:
    def __init__(self, args):
        self.args, self.failed = args, 0
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_cuda_"))
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.facts = {}

    def check(self, name, good, detail=""):
        self.failed += not good
        print(f"{'PASS' if good else 'FAIL'}  {name}: {detail}", flush=True)

    def plain(self, title, words, env=None):
        env = dict(os.environ, SONDE_JOB_FACTS=os.devnull, **(env or {}))
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode:
            self.check(title, False, f"ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def target(self):
        if not self.args.target:
            self.args.target = str(self.work / "cuda_memory")
            source = HERE.parent / "targets" / "cuda_memory.c"
            include = HERE.parent.parent / "sim" / "include"
            words = ["gcc", "-D_GNU_SOURCE", "-O2", f"-I{include}", str(source)]
            subprocess.run([*words, "-o", self.args.target, "-lpthread", "-ldl"], check=True)
        return self.args.target

    def msmemscope(self, where, *options):
        program = pathlib.Path(self.args.bin).with_name("msmemscope")
        return [str(program), f"--output={where}", "--report=off", *options, "--"]

    def record(self, name, words, options=("--analysis=decompose",), env=None):
        where = self.work / f"{name}_{time.time_ns()}"
        where.mkdir()
        facts = where / "facts.json"
        env = dict(os.environ, SONDE_JOB_FACTS=str(facts), **(env or {}))
        before = [self.args.bin, "mem", "record", "--output", str(where), "--"]
        if options is not None:
            before = self.msmemscope(where, *options)
        done = subprocess.run(
            [*before, *words],
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        (self.out / f"{name}.txt").write_text(done.stdout[-4000:] + done.stderr[-8000:])
        if done.returncode:
            raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-1500:]}")
        told = json.loads(facts.read_text()) if facts.exists() else []
        return where, done, told

    def job(self, role, env=None, options=("--analysis=decompose",)):
        words = [sys.executable, __file__, "--job", role]
        return self.record(role, words, options, env)

    def sonde(self, *words):
        done = subprocess.run([self.args.bin, *words], capture_output=True, text=True, timeout=TIMEOUT)
        return done.stdout


ATTR = re.compile(r"(\w+):([^,}]*)")


def rows_of(where):
    """(ns, +bytes or -bytes, owner, kind of event) of the driver's blocks, in order of time."""
    import csv

    csv.field_size_limit(1 << 30)
    owners, rows = {}, []
    for path in where.rglob("memscope_dump_*.csv"):
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                if row["Event Type"] != "CUDA" or row["Event"] not in ("MALLOC", "FREE"):
                    continue
                attr = dict(ATTR.findall(row["Attr"]))
                key = (row["Process Id"], attr["allocation_id"])
                owners.setdefault(key, attr.get("owner", "CUDA"))
                size = int(attr["size"]) * (1 if row["Event"] == "MALLOC" else -1)
                shadow = attr.get("shadow") == "true"
                rows.append((int(row["Timestamp(ns)"]), size, owners[key], shadow))
    return sorted(rows)


def alive(rows, ns, owner=""):
    return sum(size for at, size, who, _ in rows if at <= ns and owner in who)


def events_of(done):
    found = re.search(r"(\d+) events recorded, none lost", done.stderr + done.stdout)
    return int(found.group(1)) if found else -1


def lacks(module):
    import importlib.util

    if importlib.util.find_spec(module) is None:
        print(f"SKIP  {module} is not installed", flush=True)
        return True
    return False


# --- stages ---


def stage_kinds(run):
    plain = run.plain("the program without us", [run.target(), "runtime", "all"])
    for way in ("runtime", "old", "dlsym"):
        where, done, _ = run.record("kinds_" + way, [run.target(), way, "all"])
        rows = rows_of(where)
        allocs = sum(size > 0 for _, size, _, _ in rows)
        frees = sum(size < 0 and not shadow for _, size, _, shadow in rows)
        run.check(f"{way}: results are the same", done.stdout == plain, done.stdout.split())
        run.check(f"{way}: every kind, once", (allocs, frees) == (8, 7), (allocs, frees))
    where, done, _ = run.record("contexts", [run.target(), "runtime", "contexts"])
    rows = rows_of(where)
    ended = sum(size < 0 and not shadow for _, size, _, shadow in rows)
    run.check("a context's end ends its blocks", (len(rows), ended) == (14, 7), (len(rows), ended))


def rate(run, name, what, n, expected):
    plain, recorded = [], []
    for _ in range(3):
        done = subprocess.run(
            [run.target(), "runtime", what, str(n)], capture_output=True, text=True, timeout=TIMEOUT
        )
        plain.append(float(re.search(r"ns_per_\w+ ([\d.]+)", done.stdout).group(1)))
        where, done, _ = run.record(name, [run.target(), "runtime", what, str(n)], None)
        recorded.append(float(re.search(r"ns_per_\w+ ([\d.]+)", done.stdout).group(1)))
        shutil.rmtree(where)
    p, r = statistics.median(plain), statistics.median(recorded)
    seen = events_of(done)
    run.check(f"{n} {name}: every event once", seen in expected, f"{seen} events, none lost")
    run.check(
        f"{n} {name}: cost",
        r - p < 1000,
        f"{p:.0f} ns without, {r:.0f} ns recorded: {(r - p) / 2:.0f} ns an event",
    )


def stage_pairs(run):
    # beside the pairs: device, library, context, name; what the pool holds, now and then
    rate(run, "pairs", "pairs", 10**6, range(2 * 10**6 + 2, 2 * 10**6 + 2000))


def stage_cycles(run):
    rate(run, "cycles", "cycles", 10**5, range(2 * 10**5 + 4, 2 * 10**5 + 40))


def compare_nvml(run, title, rows, told, exact=True):
    rest = [t["used"] - alive(rows, t["ns"]) for t in told]
    spread = max(rest) - min(rest)
    run.check(
        f"{title}: live blocks and a constant are what NVML says",
        spread == 0 if exact else spread <= 64 * MIB,
        f"rest {min(rest) / MIB:.1f} to {max(rest) / MIB:.1f} MiB in {len(told)} steps",
    )


def stage_nvml(run):
    where, _, told = run.job("nvml")
    compare_nvml(run, "plain blocks", rows_of(where), told)


def compare_reserved(run, title, rows, told, owner):
    worst = max(abs(alive(rows, t["ns"], owner) - t["reserved"]) for t in told)
    owners = {}
    for at, size, who, _ in rows:
        if at <= told[-1]["ns"]:
            owners[who] = owners.get(who, 0) + size
    text = ", ".join(f"{w} {b / MIB:.1f} MiB" for w, b in sorted(owners.items()))
    run.check(f"{title}: blocks of {owner} are what it says", worst == 0, f"off by {worst}; {text}")


def torch_job(run, title, env):
    words = [sys.executable, __file__, "--job", "torch"]
    env = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **env}
    plain = run.plain(f"{title} without us", words, env)
    again = run.plain(f"{title} without us, again", words, env)
    run.check(f"{title}: two runs without us agree", plain == again, plain.strip())
    where, done, told = run.job("torch", env)
    rows = rows_of(where)
    compare_reserved(run, title, rows, told, "CUDA@torch")
    compare_nvml(run, title, rows, told, exact=False)
    run.check(f"{title}: results are the same", done.stdout == plain, done.stdout.strip())


def stage_torch(run):
    if not lacks("torch"):
        torch_job(run, "torch", {})


def stage_expandable(run):
    if not lacks("torch"):
        setting = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        torch_job(run, "torch, expandable segments", setting)


def stage_cupy(run):
    if lacks("cupy"):
        return
    where, _, told = run.job("cupy")
    compare_reserved(run, "CuPy", rows_of(where), told, "CUDA@CuPy")


def stage_jax(run, env=None, title="JAX without preallocation"):
    if lacks("jax"):
        return
    env = env or {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    where, _, told = run.job("jax", env)
    rows = rows_of(where)
    run.facts[title] = [(t["reserved"], alive(rows, t["ns"], "XLA")) for t in told]
    if any(t["reserved"] for t in told):
        compare_reserved(run, title, rows, told, "CUDA@XLA")
    compare_nvml(run, title, rows, told, exact=False)


def stage_preallocated(run):
    stage_jax(run, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}, "JAX, half of the device at once")


def stage_pinned(run):
    if lacks("torch"):
        return
    where, _, told = run.job("pinned", options=["--device=gpu,cpu", "--analysis=decompose"])
    found = run.sonde("mem", "show", "--json", str(where))
    run.facts["pinned"] = told
    run.check("pinned memory is in the recording", "pinned" in found.lower() or "host" in found.lower(), len(found))


def stage_host(run):
    """Each byte once, whoever has it from whom; what is larger holds more than the block alone."""
    import memory_dumps

    where, _, _ = run.job("host", options=["--device=gpu,cpu"])
    rows = [r for r in memory_dumps.rows_of(where) if r["Event"] == "MALLOC" and r["Device Id"] == "cpu"]
    for name, size in PINNED.items():
        found = [(r["Event Type"], r["attr"].get("alloc_type")) for r in rows if int(r["attr"]["size"]) == size]
        run.check(f"{name}: {size} bytes of the host, once", len(found) == 1, found)


def stage_profiler(run):
    if lacks("torch"):
        return
    words = [sys.executable, __file__, "--job", "profiler"]
    plain = run.plain("the profiler without us", words)
    _, done, _ = run.job("profiler")
    run.check("torch.profiler sees the same kernels", done.stdout == plain, done.stdout.strip())


def stage_kill(run):
    """What a line was printed for had been recorded before."""
    lost = []
    for _ in range(10):
        where = run.work / f"kill_{time.time_ns()}"
        job = subprocess.Popen(
            [*run.msmemscope(where), run.target(), "runtime", "churn"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        job.stdout.readline()
        time.sleep(random.uniform(0, 0.3))
        job.kill()
        lines = job.stdout.read().splitlines()
        job.wait()
        printed = int(lines[-2] if len(lines) > 1 else 1)
        found = json.loads(run.sonde("mem", "show", "--json", str(where)))
        lost.append(max(printed - found["counts"]["mallocs"], 0))
    run.check("kill -9, ten times: nothing recorded is lost", sum(lost) == 0, lost)


def stage_reset(run):
    where, done, told = run.job("reset")
    rows = rows_of(where)
    used = [round(t["used"] / MIB) for t in told]
    mine = [round(alive(rows, t["ns"]) / MIB) for t in told]
    # memory of streams is of a pool of the device, which a reset does not end
    run.check(
        "a reset ends the context's blocks, and no others",
        mine == [512, 1536, 1024] and used[1] - used[2] >= 512,
        f"blocks {mine}, NVML {used} MiB",
    )


STAGES = {name[6:]: fn for name, fn in list(globals().items()) if name.startswith("stage_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin")
    parser.add_argument("--out")
    parser.add_argument("--target")
    parser.add_argument("--only")
    parser.add_argument("--job")
    args = parser.parse_args()
    if args.job:
        steps = Steps()
        globals()["job_" + args.job](steps)
        steps.write()
        return 0
    if not (args.bin and args.out):
        parser.error("--bin and --out are needed")
    only = args.only.split(",") if args.only else list(STAGES)
    for name in only:
        if name not in STAGES:
            parser.error(f"there is no stage '{name}'; there are {', '.join(STAGES)}")
    need_gpu()
    args.bin = os.path.abspath(args.bin)
    run = Run(args)
    for name in only:
        print(f"-- {name}", flush=True)
        try:
            STAGES[name](run)
        except Exception as why:
            traceback.print_exc()
            run.check(name, False, f"{type(why).__name__}: {why}")
    (run.out / "facts.json").write_text(json.dumps(run.facts))
    shutil.rmtree(run.work, ignore_errors=True)
    print(f"{run.failed} failed", flush=True)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
