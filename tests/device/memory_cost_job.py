#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""How long a step takes, with and without: usage: memory_cost_job.py ROLE DIR TOLD [OPTIONS]

Every kind of recording takes turns with none in one process: what changes meanwhile, changes both.
"""

import argparse
import json
import os
import time

import torch
from memory_model import Model, one_step
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = os.environ.get("SONDE_TEST_DEVICE", "cuda")
WARM = 3  # steps of each turn that do not count

MEMORY = {"events": "alloc,free", "analysis": "", "call_stack": ""}
KINDS = {
    "memory": MEMORY,
    "memory, python:10": {**MEMORY, "call_stack": "python:10"},
    "memory, owners": {**MEMORY, "analysis": "decompose"},
    "memory, operators": {**MEMORY, "events": "alloc,free,launch"},
    "memory, operators, accesses": {**MEMORY, "events": "alloc,free,launch,access"},
    "memory, python:10, owners, leaks": {
        **MEMORY,
        "analysis": "leaks,decompose",
        "call_stack": "python:10",
    },
    "calls of Python": {**MEMORY, "events": "traceback"},
    "a dispatch mode of torch that does nothing": None,  # what operators cannot do without
}


class Steps:
    def __init__(self, large):
        if large:
            self.shape, model = (4, 256), Model(width=2048, layers=8)
        else:
            self.shape, model = (8, 128), Model()
        self.model = model.to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def fit(self, ms):
        """The step is made as long as this, at least."""
        while True:
            now = sorted(self.times(5))[2]
            if now >= ms or self.shape[0] > 512:
                return
            self.shape = (self.shape[0] * 2, self.shape[1])

    def times(self, n, end=lambda: None):
        found = []
        for _ in range(n):
            synchronize()
            begin = time.perf_counter()
            one_step(self.model, self.optimizer, *self.shape)
            synchronize()
            end()
            found.append((time.perf_counter() - begin) * 1e3)
        return found


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def kinds(args):
    import msmemscope

    msmemscope.config(output_path=args.dir)
    steps = Steps(args.large)
    steps.times(10)
    if args.large:
        steps.fit(40)
    told = {name: {"on": [], "off": [], "start_ms": [], "stop_ms": []} for name in KINDS}
    for _ in range(args.turns):
        for name, options in KINDS.items():
            mine = told[name]
            if options is None:
                with Nothing():
                    mine["on"] += steps.times(args.steps)[WARM:]
                mine["off"] += steps.times(args.steps)[WARM:]
                continue
            msmemscope.config(**options)
            begin = time.perf_counter()
            msmemscope.start()
            mine["start_ms"].append((time.perf_counter() - begin) * 1e3)
            mine["on"] += steps.times(args.steps, msmemscope.step)[WARM:]
            begin = time.perf_counter()
            msmemscope.stop()
            mine["stop_ms"].append((time.perf_counter() - begin) * 1e3)
            mine["off"] += steps.times(args.steps)[WARM:]
    return told


def idle(args):
    """In a process that the package is not in; then it is, and recording has begun and ended."""
    steps = Steps(args.large)
    steps.times(10 if args.large else 40)
    told = {"before": steps.times(args.steps)}
    if args.package:
        import msmemscope

        if not args.launched:
            msmemscope.config(output_path=args.dir)
            msmemscope.config(analysis="decompose", events="alloc,free,launch")
        msmemscope.start()
        steps.times(5, msmemscope.step)
        msmemscope.stop()
        steps.times(5)
        told["after"] = steps.times(args.steps)
    return told


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role")
    p.add_argument("dir")
    p.add_argument("told")
    p.add_argument("--large", action="store_true")
    p.add_argument("--package", action="store_true")
    p.add_argument("--launched", action="store_true")
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--turns", type=int, default=4)
    args = p.parse_args()
    told = globals()[args.role](args)
    with open(args.told + ".part", "w") as f:
        json.dump(told, f)
    os.rename(args.told + ".part", args.told)


if __name__ == "__main__":
    main()
