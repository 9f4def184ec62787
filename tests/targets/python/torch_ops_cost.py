# SPDX-License-Identifier: MulanPSL-2.0
"""What an operator of torch costs, recorded in several ways. Prints microseconds per operator.

    torch_ops_cost.py CHUNKS

The ways take turns, so that all see the same machine; the least of their chunks counts.
"""

import sys
import time

import msmemscope
import torch
from torch.utils._python_dispatch import TorchDispatchMode

CALLS = 2000


class Empty(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Recorded:
    def __init__(self, **options):
        self.options = options

    def __enter__(self):
        msmemscope.config(analysis="", **self.options)
        msmemscope.start()

    def __exit__(self, *why):
        msmemscope.stop()


class Plain:
    def __enter__(self):
        pass

    def __exit__(self, *why):
        pass


WAYS = {
    "plain": Plain(),
    "empty": Empty(),
    "launch": Recorded(events="launch", device="npu,cpu"),
    "access": Recorded(events="launch,access", device="npu,cpu"),
    "memory": Recorded(events="alloc,free", device="npu"),
    "nothing": Recorded(events="", device="npu,cpu"),
}


def chunk(a, b):
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        torch.add(a, b)
    return (time.perf_counter_ns() - begin) / CALLS / 1000


def main():
    torch.set_num_threads(1)
    a, b = torch.ones(4), torch.ones(4)
    best = {}
    for _ in range(int(sys.argv[1])):
        for name, way in WAYS.items():
            with way:
                chunk(a, b)
                took = min(chunk(a, b) for _ in range(3))
            best[name] = min(took, best.get(name, took))
    for name, took in best.items():
        print("us_per_operator", name, f"{took:.3f}")


main()
