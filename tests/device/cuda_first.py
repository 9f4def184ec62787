#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The first command of a GPU user on a real GPU: `msmemscope -- python job`, and no option.

usage: cuda_first.py --bin BUILD/bin/sonde --out DIR [--only gpt2,jax,cupy,triton,nccl,torch_oom,jax_oom,empty]

GPT-2 of transformers, a training step of JAX, CuPy: what the recording says at each step is compared
with memory_stats() of torch, device.memory_stats() of JAX, CuPy's pool; driver blocks and the context
with NVML. Kernels of Triton; one rank with NCCL. A refusal in torch and in JAX; a job that uses no GPU.
Prints PASS or FAIL with numbers; exits with 1 if anything failed. Takes less than three minutes.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from gpu import lacking, need_gpu
from memory_dumps import rows_of

MIB = 1 << 20

# Each prints lines of JSON: what the framework says after each step.
COMMON = """
import json, sys, time
def wait_for_package():
    until = time.monotonic() + 20
    while "msmemscope" not in sys.modules and time.monotonic() < until:
        time.sleep(0.005)
def step(**said):
    time.sleep(0)
    sys.modules["msmemscope"].step()
    print("said " + json.dumps(said), flush=True)
"""

GPT2 = COMMON + """
import torch, transformers
config = transformers.GPT2Config(n_layer=6, use_cache=False)
model = transformers.GPT2LMHeadModel(config).cuda()
wait_for_package()
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, config.vocab_size, (4, 256), device="cuda")
for _ in range(8):
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    s = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    step(allocated=s["allocated_bytes.all.current"], reserved=s["reserved_bytes.all.current"],
         used=total - free)
"""

JAX = COMMON + """
import jax, jax.numpy as jnp
device = jax.devices()[0]
kept = [jnp.ones((1024, 1024))]
jax.block_until_ready(kept)
wait_for_package()
for n in range(5):
    kept.append(jnp.ones((1024, 1024)) * n)
    jax.block_until_ready(kept)
    s = device.memory_stats()
    step(used=s["bytes_in_use"], peak=s["peak_bytes_in_use"], limit=s["bytes_limit"])
"""

CUPY = COMMON + """
import cupy
kept = [cupy.zeros(1 << 20)]
wait_for_package()
pool = cupy.get_default_memory_pool()
for n in range(5):
    kept.append(cupy.zeros(1 << 20))
    step(used=pool.used_bytes(), total=pool.total_bytes())
"""

TRITON = COMMON + """
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
size, kept = 1 << 20, []
x = torch.ones(size, device="cuda")
wait_for_package()
for _ in range(5):
    kept.append(torch.empty_like(x))
    add[(size // 1024,)](x, x, kept[-1], size, BLOCK=1024)
    torch.cuda.synchronize()
    s = torch.cuda.memory_stats()
    step(allocated=s["allocated_bytes.all.current"], reserved=s["reserved_bytes.all.current"],
         right=bool((kept[-1] == 2).all()))
"""

NCCL = COMMON + """
import torch
x = torch.ones(1 << 20, device="cuda")
wait_for_package()
where = "tcp://127.0.0.1:29517"
torch.distributed.init_process_group("nccl", init_method=where, world_size=1, rank=0)
for _ in range(5):
    torch.distributed.all_reduce(x)
    x = x @ x.view(1 << 20, 1) * x / x.sum()  # cuBLAS
    torch.cuda.synchronize()
    s = torch.cuda.memory_stats()
    step(allocated=s["allocated_bytes.all.current"], reserved=s["reserved_bytes.all.current"])
torch.distributed.destroy_process_group()
"""

TORCH_OOM = """
import torch
kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda")]
try:
    while True:
        kept.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    print("refused")
"""

JAX_OOM = """
import jax, jax.numpy as jnp
kept = [jnp.ones((1 << 20,))]
while True:
    kept.append(jnp.ones((1 << 31,)))
    jax.block_until_ready(kept)
"""


class Run:
    def __init__(self, args):
        self.args = args
        self.sonde_path = os.path.abspath(args.bin)
        self.msmemscope = str(pathlib.Path(self.sonde_path).with_name("msmemscope"))
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sonde_cuda_first_"))
        self.failed = 0

    def check(self, name, good, detail=""):
        print(f"{'PASS' if good else 'FAIL'}  {name}: {detail}", flush=True)
        self.failed += not good

    def job(self, name, text):
        """(what the framework said, rows, where) of a job that nobody has touched."""
        where = self.work / name
        path = self.work / f"{name}.py"  # Triton reads its kernels from there
        path.write_text(text)
        words = [self.msmemscope, f"--output={where}", "--", sys.executable, str(path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        said = [json.loads(s[5:]) for s in done.stdout.splitlines() if s.startswith("said ")]
        if not said:
            print(done.stdout[-500:], done.stderr[-1500:])
        return said, rows_of(where) if where.exists() else [], where, done

    def sonde(self, *words):
        done = subprocess.run([self.sonde_path, "mem", *map(str, words)], capture_output=True, text=True)
        return " ".join(done.stdout.split())


def at_steps(rows):
    """At each STEP row: the sums of pools, and the newest snapshot of each name."""
    live, torch, snapshots, found = {}, (0, 0), {}, []
    for row in rows:
        a = row["attr"]
        if row["Event Type"] == "CUDA" and row["Event"] == "MALLOC":
            live[a["allocation_id"]] = int(a["size"])
        elif row["Event Type"] == "CUDA" and row["Event"] == "FREE":
            live.pop(a["allocation_id"], None)
        elif row["Event Type"] == "TORCH" and "used" in a:
            torch = int(a["used"]), int(a["total"])
        elif row["Event"] == "SNAPSHOT":
            snapshots[row["Name"]] = {k: int(a[k]) for k in ("allocated", "reserved", "peak_allocated")}
        elif row["Event Type"] == "STEP":
            found.append({"torch": torch, "cuda": sum(live.values()), **snapshots})
    return found


def gpt2(run):
    said, rows, where, _ = run.job("gpt2", GPT2)
    mine = at_steps(rows)
    run.check("GPT-2: steps", len(said) == len(mine) == 8, f"{len(said)} and {len(mine)}")
    worst = max((abs(m["torch"][0] - s["allocated"]) for m, s in zip(mine, said)), default=-1)
    run.check("GPT-2: memory_allocated() at every step", worst == 0, f"difference {worst}")
    worst = max((abs(m["torch"][1] - s["reserved"]) for m, s in zip(mine, said)), default=-1)
    run.check("GPT-2: memory_reserved() at every step", worst == 0, f"difference {worst}")
    rest = [s["used"] - m["cuda"] for m, s in zip(mine, said)]
    steady = bool(rest) and max(rest) - min(rest) <= 4 * MIB and 0 < rest[0] < 2048 * MIB
    run.check("GPT-2: driver blocks + context = what the device has in use", steady,
              f"context {[r / MIB for r in rest]} MiB")
    text = run.sonde("show", where)
    print("      " + text[:600])
    run.check("GPT-2: who asked", "Who asked for it: torch" in text)


def jax(run):
    said, rows, where, _ = run.job("jax", JAX)
    mine = at_steps(rows)
    same = [m.get("XLA", {}).get("allocated") == s["used"] for m, s in zip(mine, said)]
    run.check("JAX: memory_stats() at every step", len(same) == 5 and all(same), same)
    text = run.sonde("show", where)
    print("      " + text[:900])
    run.check("JAX: its preallocation is explained", "XLA_PYTHON_CLIENT_PREALLOCATE" in text)


def cupy(run):
    said, rows, where, _ = run.job("cupy", CUPY)
    mine = at_steps(rows)
    same = [
        (m.get("CuPy", {}).get("allocated"), m.get("CuPy", {}).get("reserved"))
        == (s["used"], s["total"])
        for m, s in zip(mine, said)
    ]
    run.check("CuPy: its pool at every step", len(same) == 5 and all(same), same)
    less = [m["cuda"] - s["total"] for m, s in zip(mine, said)]
    run.check("CuPy: driver blocks cover the pool", bool(less) and min(less) >= 0, less)


def torch_at_steps(run, title, said, rows):
    mine = [m["torch"] for m in at_steps(rows)]
    want = [(s["allocated"], s["reserved"]) for s in said]
    run.check(f"{title}: torch's sums at every step", len(want) == 5 and mine == want, (mine, want))


def triton(run):
    said, rows, _, _ = run.job("triton", TRITON)
    torch_at_steps(run, "Triton", said, rows)
    run.check("Triton: its kernels are right", said and all(s["right"] for s in said), len(said))


def nccl(run):
    said, rows, where, _ = run.job("nccl", NCCL)
    torch_at_steps(run, "NCCL", said, rows)
    devices = json.loads(run.sonde("show", "--json", where))["devices"]
    asked = {a["name"]: f"{a['bytes'] / MIB:.1f} MiB" for d in devices for a in d["askers"]}
    run.check("NCCL: it has its own name", "NCCL" in asked and "torch" in asked, asked)


def oom(run, name, text):
    _, _, where, done = run.job(f"oom_{name}", text)
    answer = run.sonde("oom", where)
    print("      " + answer[:500])
    run.check(f"{name}: the refusal is explained",
              "ran out once: real exhaustion" in answer or "oversized" in answer, done.returncode)


def torch_oom(run):
    oom(run, "torch", TORCH_OOM)


def jax_oom(run):
    oom(run, "jax", JAX_OOM)


def empty(run):
    _, _, where, _ = run.job("empty", "print('nothing')")
    text = run.sonde("show", where)
    run.check("a job without a GPU: why, and the command", "--device=npu,cpu -- " in text, text[:300])


STAGES = {
    "gpt2": (gpt2, ["torch", "transformers"]),
    "jax": (jax, ["jax"]),
    "cupy": (cupy, ["cupy"]),
    "triton": (triton, ["torch", "triton"]),
    "nccl": (nccl, ["torch"]),
    "torch_oom": (torch_oom, ["torch"]),
    "jax_oom": (jax_oom, ["jax"]),
    "empty": (empty, []),
}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bin", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--only", default="")
    args = p.parse_args()
    only = args.only.split(",") if args.only else list(STAGES)
    for name in only:
        if name not in STAGES:
            p.error(f"there is no '{name}'; there are {', '.join(STAGES)}")
    need_gpu()
    run = Run(args)
    for name in only:
        stage, packages = STAGES[name]
        if lacking(packages):
            print(f"SKIP  {name}: this Python has no {' and no '.join(lacking(packages))}")
            continue
        try:
            stage(run)
        except Exception as why:
            run.check(name, False, f"{type(why).__name__}: {why}")
    shutil.rmtree(run.work, ignore_errors=True)
    print(f"{run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
