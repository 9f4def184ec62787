# SPDX-License-Identifier: MulanPSL-2.0
"""A job on the simulated NPU whose device idles for reasons that are planted: a step runs one kernel, then
waits for data, collects garbage, saves, allocates, each when its letter is in the plan. It writes when it
did what, so that a test knows what is true.

idle_devices.py PLAN TRUTH [ROOT RANK RANKS]     plan: d=20,g,s=15,a (milliseconds); h: healthy, the device
                                                is never without work; n=20: ends after so many steps
"""

import ctypes
import gc
import os
import sys
import time

import sonde
from torch import serialization
from torch.utils.data.dataloader import DataLoader

PLAN = dict((part.split("=") + ["0"])[:2] for part in sys.argv[1].split(",") if part)
truth = open(sys.argv[2], "w", buffering=1)

npu = ctypes.CDLL(None)
npu.sim_kernel_register.restype = ctypes.c_void_p
stream, comm = ctypes.c_void_p(), ctypes.c_void_p()
assert npu.rtSetDevice(0) == 0
assert npu.rtStreamCreate(ctypes.byref(stream), 0) == 0
kernel = ctypes.c_void_p(npu.sim_kernel_register(b"MatMul", ctypes.c_uint64(10_000_000), None))


def join(root, rank, ranks):
    """The others read what the first one has made."""
    info = ctypes.create_string_buffer(4108)
    if rank == 0:
        assert hccl.HcclGetRootInfo(info) == 0
        with open(root + ".part", "wb") as f:
            f.write(info.raw)
        os.rename(root + ".part", root)
    while not os.path.exists(root):
        time.sleep(0.01)
    with open(root, "rb") as f:
        info.raw = f.read()
    assert hccl.HcclCommInitRootInfo(ranks, info, rank, ctypes.byref(comm)) == 0


class timed:
    """Writes from when to when the block ran."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.began = time.time_ns()

    def __exit__(self, *_):
        truth.write(f"{self.what} {self.began} {time.time_ns()}\n")


class Rows:
    def __getitem__(self, i):
        time.sleep(float(PLAN["d"]) / 1000)
        return i


def forward():
    assert npu.rtKernelLaunch(kernel, 8, None, 0, None, stream) == 0


def reduce_gradients():
    if comm:
        data = ctypes.c_void_p(block.value)
        assert hccl.HcclAllReduce(data, data, ctypes.c_uint64(16), 4, 0, comm, stream) == 0


def allocate():
    more = ctypes.c_void_p()
    assert npu.rtMalloc(ctypes.byref(more), ctypes.c_uint64(1 << 20), 0, 0) == 0
    assert npu.rtFree(more) == 0


def train_step(loader, i):
    if "d" in PLAN:
        with timed("data loader"):
            next(loader)
    forward()
    reduce_gradients()
    if "h" in PLAN and i % 4:
        return
    assert npu.rtStreamSynchronize(stream) == 0
    if "g" in PLAN:
        with timed("garbage collection"):
            gc.collect()
    if "s" in PLAN:
        with timed("checkpoint"):
            serialization.save(None, float(PLAN["s"]) / 1000)
    if "a" in PLAN:
        with timed("allocation"):
            allocate()


block = ctypes.c_void_p()
assert npu.rtMalloc(ctypes.byref(block), ctypes.c_uint64(1 << 20), 0, 0) == 0
if len(sys.argv) > 3:
    hccl = ctypes.CDLL("libhccl.so")
    join(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
gc.disable()
kept = [[] for _ in range(200000)]
loader, i = iter(DataLoader(Rows())), 0
if "h" in PLAN:
    for _ in range(8):
        forward()
while not ("n" in PLAN and i >= int(PLAN["n"])):
    train_step(loader, i)
    i += 1
    sonde.step()
