#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The jobs that memory_python.py looks at: usage: memory_python_job.py ROLE DIR TOLD [OPTIONS]

Says in the file TOLD, as JSON, what it knows by itself; the recording goes to DIR.
"""

import argparse
import collections
import json
import os
import pathlib
import sys
import time

import memory_model
import torch

import msmemscope
from memory_model import Model, digest, one_step
from msmemscope import _history, _owners

ALL = "alloc,free,launch,access"
DEVICE = os.environ.get("SONDE_TEST_DEVICE", "cuda")
ON_CUDA = DEVICE == "cuda"


def configure(args, **options):
    where = "gpu" if ON_CUDA else "cpu"
    msmemscope.config(**{"output_path": args.dir, "device": where, **options})


def nothing():
    pass


def synchronize():
    if ON_CUDA:
        torch.cuda.synchronize()


def compared(args, work, **options):
    """What the work returns unrecorded, again, recorded, and after that."""
    made = {"plain": work(), "again": work()}
    configure(args, **options)
    msmemscope.start()
    made["recorded"] = work(msmemscope.step)
    msmemscope.stop()
    made["after"] = work()
    return made


# --- operators, and what they read and write ---


def ops(args):
    def work(after=nothing):
        return [memory_model.train(DEVICE, after=after), streams(after)]

    told = compared(args, work, events=ALL, analysis="", call_stack="")
    told["main"] = os.getpid()
    a, b = torch.ones(64, 32, device=DEVICE), torch.ones(32, 16, device=DEVICE)
    msmemscope.start()
    c = a.mm(b)
    d = a[1:3] + 1
    synchronize()
    msmemscope.stop()
    told["exact"] = [
        ["aten.mm.default", "READ", a.data_ptr(), a.data_ptr()],
        ["aten.mm.default", "READ", b.data_ptr(), b.data_ptr()],
        ["aten.mm.default", "WRITE", c.data_ptr(), c.data_ptr()],
        ["aten.add.Tensor", "READ", a[1:3].data_ptr(), a.data_ptr()],
        ["aten.add.Tensor", "WRITE", d.data_ptr(), d.data_ptr()],
    ]
    return told


def streams(after):
    """Work that goes to and fro between several streams."""
    if not ON_CUDA:
        return ""
    torch.manual_seed(2)
    x = torch.randn(256, 256, device=DEVICE)
    made = []
    lanes = [torch.cuda.Stream() for _ in range(4)]
    for turn in range(3):
        for lane in lanes:
            lane.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(lane):
                y = (x @ x).tanh_()
                y.record_stream(lane)
                made.append(y.cosh())
            torch.cuda.current_stream().wait_stream(lane)
        x = x + made[-1] / 100
        after()
    synchronize()
    return digest(x, *made)


def corners(args):
    """The corners of torch that tests/targets has, with tensors on the device."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "targets/python"))
    import torch_corners

    # Workers that are forked after CUDA has begun are the program's mistake, not a corner.
    skip = ("loaders", "default_device")
    torch_corners.CORNERS[:] = [c for c in torch_corners.CORNERS if c.__name__ not in skip]
    torch.set_default_device(DEVICE)

    def work(after=nothing):
        return torch_corners.run_all(after)

    return compared(args, work, events=ALL, analysis="decompose,inefficient")


# --- calls ---


def calls(args):
    counts = collections.Counter()

    def count(module, inputs):
        counts[type(module).__name__] += 1

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    memory_model.train(DEVICE)
    hook.remove()

    def work(after=nothing):
        return memory_model.train(DEVICE, after=after)

    told = compared(args, work, events="alloc,free,traceback", analysis="")
    told["modules"] = counts
    told["monitoring"] = hasattr(sys, "monitoring")
    return told


# --- owners ---

FORWARD, BACKWARD, OPTIMIZER = 7_000_001, 7_100_001, 7_200_001  # bytes, of nobody else


def scratch(size):
    return torch.empty(size, dtype=torch.uint8, device=DEVICE)


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        scratch(FORWARD)
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        scratch(BACKWARD)
        return grad * 1


class MarkedModel(Model):
    def forward(self, x):
        return Marked.apply(super().forward(x))


class MarkedAdam(torch.optim.AdamW):
    def step(self, closure=None):
        scratch(OPTIMIZER)
        return super().step(closure)


def owners(args):
    configure(args, events="alloc,free", analysis="decompose", call_stack="")
    msmemscope.start()
    model = MarkedModel(width=128, layers=2).to(DEVICE)
    optimizer = MarkedAdam(model.parameters())
    threads = []
    for _ in range(5):
        one_step(model, optimizer)
        threads.append(len(_owners._autograd_threads.get(os.getpid(), ())))
        msmemscope.step()
    told = {
        "threads": threads,
        "sizes": {"activation": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER},
        "model": model_bytes(model, optimizer),
    }
    msmemscope.stop()
    return told


def model_bytes(model, optimizer):
    def size(tensors):
        return sum(t.numel() * t.element_size() for t in map(local, tensors))

    states = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
    return {
        "weight": size(model.parameters()),
        "gradient": size(p.grad for p in model.parameters()),
        "optimizer_state": size(t for t in states if t.device.type == DEVICE),
    }


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


# --- the compiler ---


def compiled(args):
    """Compiled before recording begins or, with --first, while it is under way."""
    frames = torch._dynamo.utils.counters

    def work(after=nothing):
        torch.manual_seed(1)
        for p, old in zip(model.parameters(), start):
            p.data.copy_(old)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            losses.append(one_step(fast, optimizer))
            after()
        values.append([loss.item() for loss in losses])
        return digest(*losses, *model.parameters())

    torch.manual_seed(0)
    model = Model(width=128, layers=2).to(DEVICE)
    # Randomness differs between compiled graphs that are cut differently.
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    start = [p.detach().clone() for p in model.parameters()]
    fast = torch.compile(model)
    values = []
    options = dict(events=ALL, analysis="decompose,leaks", call_stack="python:10")
    if args.first:
        configure(args, **options)
        msmemscope.start()
        told = {"recorded": work(msmemscope.step)}
        msmemscope.stop()
        told["plain"] = work()
    else:
        told = compared(args, work, **options)
    told["losses"] = values
    told["graphs"] = frames["stats"]["unique_graphs"]
    told["breaks"] = sum(frames["graph_break"].values())
    return told


# --- several processes ---


def spawned(args):
    if not args.launched:
        os.environ.pop("LD_PRELOAD", None)
    torch.multiprocessing.spawn(child, (args,), nprocs=2)
    return [json.loads(pathlib.Path(f"{args.told}.{n}").read_text()) for n in range(2)]


def child(rank, args):
    memory_model.reproducible()
    if not args.launched:
        configure(args, events="alloc,free", analysis="leaks,decompose")
    msmemscope.start()
    steps = []

    def after():
        synchronize()
        msmemscope.step()
        stats = torch.cuda.memory_stats()
        keys = ("requested_bytes", "allocated_bytes", "reserved_bytes")
        steps.append([stats[f"{k}.all.current"] for k in keys])

    kept = torch.empty((rank + 1) << 20, device=DEVICE)
    out = memory_model.train(DEVICE, steps=5, after=after)
    told = {"pid": os.getpid(), "steps": steps, "digest": out, "kept": kept.nbytes}
    told["missed"] = _history._importer.missed
    msmemscope.stop()
    pathlib.Path(f"{args.told}.{rank}").write_text(json.dumps(told))


# --- a model in shards ---


def sharded(args):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1")
    backend = "nccl" if ON_CUDA else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    mesh = dist.device_mesh.init_device_mesh(DEVICE, (1,))

    def prepare(model):
        for layer in model.layers.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def work(after=nothing):
        torch.manual_seed(1)
        model = prepare(Model(width=128, layers=2).to(DEVICE))
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []
        for _ in range(4):
            losses.append(one_step(model, optimizer))
            after()
        if after is not nothing:
            told["model"] = model_bytes(model, optimizer)
            held.append((model, optimizer))  # until the process ends
        return digest(*losses, *map(local, model.parameters()))

    told, held = {}, []
    told.update(compared(args, work, events=ALL, analysis="decompose,leaks"))
    dist.destroy_process_group()
    return told


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role")
    p.add_argument("dir")
    p.add_argument("told")
    p.add_argument("--first", action="store_true")
    p.add_argument("--launched", action="store_true")
    args = p.parse_args()
    memory_model.reproducible()
    begin = time.monotonic()
    told = globals()[args.role](args)
    if isinstance(told, dict):
        told["seconds"] = time.monotonic() - begin
    with open(args.told + ".part", "w") as f:
        json.dump(told, f)
    os.rename(args.told + ".part", args.told)


if __name__ == "__main__":
    main()
