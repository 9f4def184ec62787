# SPDX-License-Identifier: MulanPSL-2.0
"""Where autograd keeps the numbers of operations, as two of them show that are made for it. With them
an extension knows whose gradient a thread computes."""

import os

from msmemscope import _addresses


def follow(torch, tell):
    """tell: autograd_follow() of an extension. False: not in this version of PyTorch."""
    with _addresses.unseen(torch), torch.inference_mode(False), torch.enable_grad():
        off = torch._C._DisableTorchDispatch()  # as long as it lives
        try:
            first = torch.zeros(1, device="cpu", requires_grad=True).view(1)
            second = first.view(1)
        finally:
            del off
    nodes = [tensor.grad_fn for tensor in (first, second)]
    numbers = [node._sequence_nr() for node in nodes]
    return tell(_library("libtorch_cpu.so"), nodes[0], numbers[0], nodes[1], numbers[1])


def _library(name):
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").split(None, 5)[-1]
            if os.path.basename(path).startswith(name):
                return path
    return name
