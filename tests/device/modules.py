#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Which module of a model holds the memory of a real GPU: the table of `sonde mem owners --by=module`
against named_parameters(), gradients and states of optimizers, to the byte.

usage: modules.py --bin BUILD/bin/sonde --out DIR [--device gpu|cpu] [--jobs N] [CASE...]

Each case is a program of its own that trains a model, says what named_parameters() has and what torch
says is allocated, and knows nothing of who records it: gpt2 (of transformers), checkpointed (computed
again in the backward pass, fused optimizer), distributed (DDP), sharded (FSDP2, one rank), compiled.
Prints PASS or FAIL with the bytes; exits with 1 if anything failed. Half a minute with --jobs=5. With
--device=cpu everything but what torch says is allocated can be tried without a GPU.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from gpu import lacking, need_gpu

HERE = pathlib.Path(__file__).resolve()
CASES = ("gpt2", "checkpointed", "distributed", "sharded", "compiled")
KINDS = {"weight": "weights", "gradient": "gradients", "optimizer_state": "states", "buffer": "buffers"}
OPTIONS = ("--analysis=leaks,decompose", "--call-stack=python:10")
WRAPPERS = re.compile(r"(^|\.)(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.|$)")


# --- the job ---


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def tensors_of(value):
    if hasattr(value, "element_size"):
        yield local(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(one)


def held(model, optimizer, device):
    """[name, type, bytes]: what is on the device."""

    def size(*values):
        found = [t for v in values if v is not None for t in tensors_of(v)]
        return sum(t.numel() * t.element_size() for t in found if t.device.type == device)

    rows = []
    for name, p in model.named_parameters():
        name = WRAPPERS.sub("", name).lstrip(".")
        rows.append([name, "weight", size(p)])
        rows.append([name, "gradient", size(p.grad)])
        rows.append([name, "optimizer_state", size(optimizer.state.get(p, {}))])
    for name, b in model.named_buffers():
        rows.append([WRAPPERS.sub("", name).lstrip("."), "buffer", size(b)])
    return rows


def gpt2(torch, device):
    import transformers

    config = transformers.GPT2Config(n_layer=6, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).to(device).train()
    tokens = torch.randint(0, config.vocab_size, (2, 128), device=device)
    return model, lambda: model(tokens, labels=tokens).loss, {}


def small(torch, device, recompute=False):
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.ln = nn.LayerNorm(width)
            self.fc = nn.Linear(width, 4 * width)
            self.proj = nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.proj(nn.functional.gelu(self.fc(self.ln(x))))

    class Net(nn.Module):
        def __init__(self, width=256, words=3001):
            super().__init__()
            self.wte = nn.Embedding(words, width)
            self.h = nn.ModuleList(Block(width) for _ in range(4))
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.wte.weight
            self.register_buffer("scale", torch.ones(777))

        def forward(self, tokens):
            x = self.wte(tokens) * self.scale[0]
            for block in self.h:
                x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())

    model = Net().to(device)
    tokens = torch.randint(0, 3001, (4, 64), device=device)
    return model, lambda: model(tokens), {}


def checkpointed(torch, device):
    model, loss, _ = small(torch, device, recompute=True)
    return model, loss, {"fused": True}


def compiled(torch, device):
    model, _, _ = small(torch, device)
    fast = torch.compile(model, backend="aot_eager")
    tokens = torch.randint(0, 3001, (4, 64), device=device)
    return model, lambda: fast(tokens), {}


def meet(torch, device):
    store = os.path.join(tempfile.mkdtemp(), "store")
    kind = "nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(kind, init_method=f"file://{store}", rank=0, world_size=1)


def distributed(torch, device):
    meet(torch, device)
    model, _, _ = small(torch, device)
    outer = torch.nn.parallel.DistributedDataParallel(model)
    tokens = torch.randint(0, 3001, (4, 64), device=device)
    return outer, lambda: outer(tokens), {}


def sharded(torch, device):
    from torch.distributed.fsdp import fully_shard

    meet(torch, device)
    model, loss, _ = small(torch, device)
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (1,))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, loss, {}


def run_job(case, device):
    import time

    import torch

    torch.manual_seed(0)
    model, loss_of, more = globals()[case](torch, device)
    optimizer = torch.optim.AdamW(model.parameters(), **more)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()
    allocated = None
    if device == "cuda":
        torch.cuda.synchronize()
        allocated = torch.cuda.memory_allocated()
    time.sleep(0.05)
    said = {"time_ns": time.time_ns(), "allocated": allocated}
    time.sleep(0.05)
    said["held"] = held(model, optimizer, device)
    # One step more, so that whoever counts steps sees the moment inside of the run.
    loss_of().backward()
    optimizer.step()
    print("said " + json.dumps(said), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# --- what sonde says ---


class Run:
    def __init__(self, args):
        self.args = args
        self.failed = 0

    def check(self, name, good, detail):
        print(f"{'PASS' if good else 'FAIL'}  {name}: {detail}", flush=True)
        self.failed += not good
        return good

    def ask(self, *words):
        done = subprocess.run(
            [str(w) for w in (self.args.bin, "mem", *words)], capture_output=True, text=True, timeout=100
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-500:])
        return done.stdout

    def groups(self, place, at):
        words = ["--by=module", "--depth=64", f"--at={at}", "--json", "--top=100000"]
        answer = json.loads(self.ask("owners", *words, place))
        wanted = [d for d in answer["devices"] if (d["device"] == "cpu") == (self.args.device == "cpu")]
        return max(wanted, key=lambda d: d["bytes"])

    def record(self, case):
        place = self.args.out / case
        device = "cuda" if self.args.device == "gpu" else "cpu"
        job = [sys.executable, HERE, "--job", case, "--device", device]
        words = ["record", f"--output={place}", f"--device={self.args.device}", *OPTIONS, "--", *job]
        done = subprocess.run(
            [str(w) for w in (self.args.bin, "mem", *words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            cwd=str(self.args.out),
        )
        said = [json.loads(s[5:]) for s in done.stdout.splitlines() if s.startswith("said ")]
        if done.returncode != 0 or not said:
            raise RuntimeError(f"the program failed: {done.stdout}{done.stderr}"[-1500:])
        return said[0], place

    def attempt(self, case):
        if case == "gpt2" and lacking(["transformers"]):
            print("SKIP  gpt2: this Python has no transformers", flush=True)
            return
        try:
            self.check_case(case)
        except Exception as why:  # the next one may work
            self.check(case, False, f"{type(why).__name__}: {why}")

    def check_case(self, case):
        said, place = self.record(case)
        device = self.groups(place, said["time_ns"])
        by_name = {g["name"]: g for g in device["groups"]}
        wanted, sums = collections.Counter(), collections.Counter()
        for name, kind, size in said["held"]:
            if case == "sharded" and kind == "gradient":  # of what is sharded together: one block
                name = re.sub(r"^(h\.\d+)\..*", r"\1.", name)
            wanted[re.sub(r"(?<=\.)\d+(?=\.)", "*", name), kind] += size
            sums[kind] += size
        wrong = []
        for (name, kind), size in wanted.items():
            found = by_name.get(name.rstrip("."), {"types": {}})["types"].get(kind, 0)
            if found != size:
                wrong.append((name, kind, size, found))
        names = {name for name, _ in wanted}
        detail = wrong[:6] if wrong else f"{len(names)} names, {len(wanted)} sums"
        self.check(f"{case}: each parameter to the byte", not wrong, detail)
        top = [g for g in device["groups"] if g["depth"] == 1]
        for kind, words in KINDS.items():
            if sums[kind]:
                found = sum(g["types"].get(kind, 0) for g in top)
                equal = found == sums[kind]
                self.check(f"{case}: all {words}", equal, f"torch {sums[kind]}, table {found} bytes")
        self.check_sum(case, said, device, top)
        first = self.ask("owners", "--by=module", f"--at={said['time_ns']}", place).split("\n\n")[0]
        print(f"      {case}: " + " ".join(first.split()), flush=True)

    def check_sum(self, case, said, device, top):
        total = sum(g["bytes"] for g in top)
        self.check(f"{case}: the table adds up", total == device["bytes"], f"{total} of {device['bytes']}")
        if said["allocated"] is not None:
            detail = f"torch {said['allocated']}, table {total} bytes"
            # What is no block of torch's (cuBLAS, the context's own) is in the table, too.
            self.check(f"{case}: nothing that torch holds is missing", total >= said["allocated"], detail)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--out", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--jobs", type=int, default=1, help="so many cases at a time")
    parser.add_argument("--job", choices=CASES, help="for this script itself")
    parser.add_argument("case", nargs="*", default=CASES)
    args = parser.parse_args()
    if args.job:
        return run_job(args.job, args.device)
    if not (args.bin and args.out):
        parser.error("--bin and --out are needed")
    if args.device == "gpu":
        need_gpu("torch")
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as threads:
        list(threads.map(run.attempt, args.case))
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
