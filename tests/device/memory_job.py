#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The jobs that memory.py looks at. By hand only: usage: memory_job.py ROLE DIR TOLD [OPTIONS]

Says in the file TOLD, as JSON, what torch itself knows; the recording goes to DIR.
"""

import argparse
import gc
import json
import os
import sys
import threading
import time

import torch

import msmemscope
from memory_model import Model, one_step
from msmemscope import _history

MIB = 1 << 20
STEPS = 10


def stats():
    s = torch.cuda.memory_stats()
    return {
        "requested": s["requested_bytes.all.current"],
        "allocated": s["allocated_bytes.all.current"],
        "active": s["active_bytes.all.current"],
        "reserved": s["reserved_bytes.all.current"],
    }


def importer():
    events, seconds = _history.cost()
    return {
        "missed": _history._importer.missed,
        "events": events,
        "us_per_event": seconds / max(events, 1) * 1e6,
    }


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def train(args):
    told = {"steps": [], "snapshots": []}
    config(args)
    if args.late:
        hoard = [torch.empty(n * 1000, device="cuda") for n in range(1, 50)]
    else:
        hoard = []
    msmemscope.start()
    model = Model().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    for step in range(1, STEPS * (6 if args.rare_steps else 1) + 1):
        one_step(model, optimizer)
        scratch = torch.empty(96 * MIB, dtype=torch.uint8, device="cuda")
        told["largest_line"] = line() - 1
        with torch.cuda.stream(side):
            scratch.add_(1)
        scratch.record_stream(side)  # freed while the other stream is still using it
        del scratch
        if hoard:
            hoard.pop()
        if args.empty_cache and step % 3 == 0:
            torch.cuda.empty_cache()
        if args.rare_steps and step % 30:
            continue
        torch.cuda.synchronize()
        if step == 5:
            name = f"after step {step}"
            msmemscope.take_snapshot(name=name)
            told["snapshots"].append(snapshot(name))
        msmemscope.step()
        number = len(told["steps"]) + 1
        told["steps"].append({"step": number, **stats()})
    told["model"] = {
        "weight": bytes_of(model.parameters()),
        "gradient": bytes_of(p.grad for p in model.parameters()),
        "optimizer_state": bytes_of(
            t
            for state in optimizer.state.values()
            for t in state.values()
            if torch.is_tensor(t) and t.is_cuda
        ),
    }
    told.update(importer())
    if not args.launched:
        msmemscope.stop()
    return told


def line():
    return sys._getframe(1).f_lineno


def snapshot(name):
    free, total = torch.cuda.mem_get_info()
    return {
        "name": name,
        "reserved": torch.cuda.memory_reserved(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.memory_allocated(),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "total_mem": total,
        "free_mem": free,
    }


def config(args):
    options = {"analysis": args.analysis, "output_path": args.dir, "events": "alloc,free"}
    if args.stacks:
        options["call_stack"] = "python:10"
    msmemscope.config(**options)


def oom(args):
    args.stacks = True
    config(args)
    msmemscope.start()
    free, _ = torch.cuda.mem_get_info()
    hoard = 8 << 30
    held = [torch.empty(hoard, dtype=torch.uint8, device="cuda") for _ in range(free // hoard - 1)]
    msmemscope.step()
    time.sleep(1)  # so that what others have is known, as in a job that runs for a while
    held.append(torch.empty(1, device="cuda"))
    msmemscope.take_snapshot(name="full")
    asked = 40 << 30
    try:
        held.append(torch.empty(asked, dtype=torch.uint8, device="cuda"))
        told = {"exception": "none", "message": "", "line": 0}
    except torch.OutOfMemoryError as why:
        told = {"exception": type(why).__name__, "message": str(why)}
        told["line"] = why.__traceback__.tb_lineno
    told.update(asked=asked, hoard=hoard)
    msmemscope.stop()
    return told


def oom_fragmented(args):
    """A limit, and within it every other block freed: enough is free, but in no one piece."""
    args.stacks = True
    config(args)
    msmemscope.start()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((2 << 30) / total)
    # Blocks of less than a megabyte share segments of two.
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(900 << 10, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    told = {"blocks": len(blocks)}
    del blocks[::2]
    msmemscope.step()
    try:
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        told["exception"] = None
    except torch.OutOfMemoryError as why:
        told["exception"] = type(why).__name__
    msmemscope.stop()
    return told


def odd(args):
    """Threads with streams of their own, a graph with its private pool, a fork, many windows."""
    config(args)
    held, told = [], {"steps": []}

    def step():
        torch.cuda.synchronize()
        msmemscope.step()
        told["steps"].append({"step": len(told["steps"]) + 1, **stats()})

    def work(n):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(300):
                x = torch.ones(1000 * (n + 1) + i, device="cuda")
                if i % 50 == 0:
                    held.append(x)

    msmemscope.start()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    step()
    graph, x = torch.cuda.CUDAGraph(), torch.ones(1 << 20, device="cuda")
    with torch.cuda.graph(graph):
        y = (x * 2 + 1).relu()
    graph.replay()
    step()
    child = os.fork()
    if child == 0:
        msmemscope.step()
        os._exit(0)
    told["child"] = os.waitpid(child, 0)[1]
    del graph, y
    held.clear()
    torch.cuda.empty_cache()
    step()
    missed = _history._importer.missed
    for _ in range(100):
        msmemscope.stop()
        held.append(torch.ones(5000, device="cuda"))
        msmemscope.start()
    told["threads"] = sum(t.name == "msmemscope" for t in threading.enumerate())
    step()
    told.update(importer())
    told["missed"] += missed
    msmemscope.stop()
    return told


def users_history(args):
    """The program has its own history on, before and after ours."""
    torch.cuda.memory._record_memory_history(max_entries=50000)
    config(args)
    model = Model().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    one_step(model, optimizer)
    made = len(torch.cuda.memory._snapshot()["device_traces"][0])
    msmemscope.start()
    told = {"steps": []}
    for step in range(1, 6):
        one_step(model, optimizer)
        torch.cuda.synchronize()
        msmemscope.step()
        told["steps"].append({"step": step, **stats()})
    msmemscope.stop()
    kept = len(torch.cuda.memory._snapshot()["device_traces"][0])
    told.update(
        notes_made=made, notes_kept=kept, enabled_after=torch._C._cuda_isHistoryEnabled()
    )
    return told


def notes(args):
    """Real notes of the allocator for tests that have no GPU: small, and with what torch says."""
    record = torch.cuda.memory._record_memory_history
    held, shots = [], []
    torch.cuda.init()
    held.append(torch.empty(3000, device="cuda"))  # alive before anything is noted down
    options = dict(enabled="all", context="all", stacks="python", max_entries=10000)
    record(**options)

    def shot():
        s = torch.cuda.memory._snapshot()
        try:
            record(clear_history=True, **options)
        except TypeError:
            record(**options)
        shots.append({"snapshot": s, "stats": stats(), "monotonic_ns": time.monotonic_ns()})

    shot()
    side = torch.cuda.Stream()
    for n in range(2):
        held.append(torch.zeros(1000 + n, device="cuda"))
        temporary = torch.ones(700, 700, device="cuda")
        with torch.cuda.stream(side):
            temporary.mul_(2)
        temporary.record_stream(side)
        del temporary
        held.append(torch.empty(24 * MIB + n, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        shot()
    held[2:] = []
    gc.collect()
    torch.cuda.empty_cache()
    shot()
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    shot()
    record(enabled=None)
    return {"torch": torch.__version__, "shots": shots}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role")
    p.add_argument("dir")
    p.add_argument("told")
    for flag in ("--stacks", "--late", "--rare-steps", "--empty-cache", "--launched"):
        p.add_argument(flag, action="store_true")
    p.add_argument("--analysis", default="leaks,decompose,oom")
    args = p.parse_args()
    told = globals()[args.role](args)
    with open(args.told + ".part", "w") as f:
        json.dump(told, f)
    os.rename(args.told + ".part", args.told)


if __name__ == "__main__":
    main()
