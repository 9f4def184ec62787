# SPDX-License-Identifier: MulanPSL-2.0
"""What recording the modules of models costs.

    module_cost.py CHUNKS

Prints microseconds of a call of a module that does nothing, and milliseconds of a step of training
of a tiny transformer: plain, with two global hooks of the program's that do nothing (so much torch
itself takes for letting anybody see a module), recorded with owners, and as --attribute follows it. The ways take turns, so
that all see the same machine; the least of their chunks counts.
"""

import sys
import time

import msmemscope
import torch
from sonde import _attribute
from torch import nn

CALLS = 2000
STEPS = 10


class Plain:
    def __enter__(self):
        pass

    def __exit__(self, *why):
        pass


class Hooked:
    def __enter__(self):
        module = nn.modules.module
        self.handles = [
            module.register_module_forward_pre_hook(lambda module, args: None),
            module.register_module_forward_hook(lambda module, args, result: None),
        ]

    def __exit__(self, *why):
        for handle in self.handles:
            handle.remove()


class Recorded:
    def __enter__(self):
        msmemscope.config(analysis="decompose", events="alloc,free", device="npu")
        msmemscope.start()

    def __exit__(self, *why):
        msmemscope.stop()


class Attributed:
    """Which module runs is told as for the monitor's --attribute; where does not matter."""

    def __enter__(self):
        msmemscope.config(analysis="leaks", events="alloc,free", device="npu")
        msmemscope.start()
        _attribute._changed(True)

    def __exit__(self, *why):
        _attribute._changed(False)
        msmemscope.stop()


WAYS = {
    "plain": Plain(),
    "hooked": Hooked(),
    "recorded": Recorded(),
    "attributed": Attributed(),
}


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        for _ in range(CALLS):
            self.inner(x)
        return x


def time_calls(model, x):
    begin = time.perf_counter_ns()
    model(x)
    return (time.perf_counter_ns() - begin) / CALLS / 1e3


def time_steps(model, optimizer, x):
    begin = time.perf_counter_ns()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimizer.step()
    return (time.perf_counter_ns() - begin) / STEPS / 1e6


def main():
    torch.set_num_threads(1)
    calls, x = Calls(), torch.ones(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 6)
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.rand(2, 4, 16)
    best = {}
    for _ in range(int(sys.argv[1])):
        for name, way in WAYS.items():
            with way:
                calls(x), time_steps(model, optimizer, batch)
                found = (time_calls(calls, x), time_steps(model, optimizer, batch))
            best[name] = [min(pair) for pair in zip(best.get(name, found), found)]
    for name, (call, step) in best.items():
        print(f"module {name} {call:.4f} {step:.4f}")


main()
