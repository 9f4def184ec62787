# SPDX-License-Identifier: MulanPSL-2.0
"""`msmemscope -- PROGRAM` of a GPU user, without an option: with the simulated driver and, where
the real frameworks need a GPU, with what looks like them."""

import json
import re
import sys

import pytest
from torches import quickest_torch

MIB = 1 << 20


def ask(record, question, out, *words):
    r = record.sonde("mem", question, *words, out)
    return " ".join(r.stdout.decode().split()) if "--json" not in words else json.loads(r.stdout)


@pytest.fixture(name="sim")
def simulated_driver(record):
    return {"LD_LIBRARY_PATH": str(record.sim)}


# --- torch's pool, by the function that it reports its blocks with ---


@pytest.fixture(name="torch_pool")
def a_job_with_torchs_pool(record, sim):
    r = record("torch_pool", 4, env=sim)
    assert r.returncode == 0, r.stderr
    return r


def test_torchs_pool_is_recorded_and_equal_at_every_step(record, torch_pool):
    said = [list(map(int, line.split()[1:])) for line in torch_pool.stdout.decode().splitlines()]
    assert len(said) == 4
    used = total = 0
    steps = iter(said)
    for row in torch_pool.rows:
        if row.type == "TORCH" and "used" in row.attr:
            used, total = int(row.attr["used"]), int(row.attr["total"])
        elif row.type == "STEP":
            _, allocated, reserved = next(steps)
            assert (used, total) == (allocated, reserved)
    assert next(steps, None) is None
    segments = [row for row in torch_pool.of("MALLOC") if row.type == "CUDA"]
    assert len(segments) == 1  # the driver's block, once
    begin = int(segments[0].attr["addr"], 16)
    for row in torch_pool.of("MALLOC", type="TORCH"):
        assert begin <= int(row.attr["addr"], 16) < begin + 64 * MIB

    out = torch_pool.dir
    assert "Who asked for it: torch_pool 64.00 MiB." in ask(record, "show", out)
    owners = ask(record, "owners", out, "--json")
    (device,) = owners["devices"]
    assert device["driver_bytes"] == 64 * MIB and device["outside_bytes"] == 0
    assert device["allocated_in_pools_bytes"] + device["free_in_pools_bytes"] == 64 * MIB


def test_a_program_that_reports_blocks_to_nobody_is_unharmed(record, sim):
    plain, mine = record.plain("torch_pool", 3, env=sim), record.raw("torch_pool", 3, env=sim)[1]
    assert (plain.stdout, plain.returncode) == (mine.stdout, mine.returncode)


def test_refused_memory_of_a_program_in_c(record, sim):
    r = record("torch_pool", 2, "refuse", opts=["--call-stack=c:5"], env=sim)
    text = ask(record, "oom", r.dir)
    assert "oversized request" in text and "200.00 GiB" in text and "80.00 GiB in all" in text
    assert "main (torch_pool.c" in text and "cuMemAlloc" in text


# --- nothing was recorded: why, and what to try ---


def test_no_device_was_used(record):
    out, r = record.raw("/bin/echo", "two words", "x")
    text = ask(record, "show", out)
    assert r.stdout == b"two words x\n"
    assert "no process of it has initialised one" in text
    assert "msmemscope --device=npu,cpu -- /bin/echo 'two words' x" in text


def test_no_gpu_is_visible(record, sim):
    out, _ = record.raw("cuda_memory", "runtime", "all", env=dict(sim, CUDA_VISIBLE_DEVICES="-1"))
    text = ask(record, "show", out)
    assert "initialised CUDA, which found no GPU; CUDA_VISIBLE_DEVICES was '-1'" in text


def test_the_device_was_left_out(record, sim):
    out, _ = record.raw("torch_pool", 1, opts=["--device=gpu:7"], env=sim)
    text = ask(record, "show", out)
    assert "which --device has left out. Record it with: msmemscope --" in text


# --- the package comes into a program that uses CUDA, and no other ---

DRIVER = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def begin():
    context, device = ctypes.c_void_p(), ctypes.c_int()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
def take(size):
    at = ctypes.c_ulonglong()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)) == 0
def wait_for_package(seconds):
    until = time.monotonic() + seconds
    while "msmemscope" not in sys.modules and time.monotonic() < until:
        time.sleep(0.001)
    return "msmemscope" in sys.modules
"""

OPERATORS = """
import types
from msmemscope import _devices, _ops
from sonde import _sonde
_devices._gpu_is_here = lambda: True
torch = sys.modules["torch"] = types.ModuleType("torch")
print("half imported:", _devices.may_be_used())
torch.version = types.SimpleNamespace(cuda="13.0", hip=None)
settings = {"events": _sonde.EVENT_ALLOC | _sonde.EVENT_ACCESS, "level": 0, "cpu": False, "watch": False}
for asked in (False, True):
    print("asked for:", asked, _ops.wanted({**settings, "events_asked": asked}))
torch.version.cuda = None
print("for the CPU:", _devices.may_be_used())
"""


def test_operators_of_gpus_are_recorded_if_they_were_asked_for(record, sim):
    """Also where our package came while the program was importing torch."""
    code = DRIVER + "begin()\ntake(1 << 20)\nassert wait_for_package(30)\n" + OPERATORS
    _, r = record.raw(sys.executable, "-c", code, opts=["--analysis=decompose"], env=sim)
    said = dict(line.rsplit(" ", 1) for line in r.stdout.decode().splitlines())
    assert said == {
        "half imported:": "True",
        "asked for: False": "False",
        "asked for: True": "True",
        "for the CPU:": "False",
    }, r.stderr


# What of jax is looked at, with numbers that the test knows.
JAX = """
import sys, types
jax = types.ModuleType("jax")
bridge = types.ModuleType("jax._src.xla_bridge")
class Device:
    id = local_hardware_id = 0
    used = 0
    def memory_stats(self):
        return {"bytes_in_use": self.used, "peak_bytes_in_use": self.used, "bytes_limit": 60 << 30,
                "pool_bytes": 60 << 30, "peak_pool_bytes": 60 << 30}
class Client:
    def local_devices(self):
        return [gpu]
gpu = Device()
bridge._backends = {"cpu": object(), "cuda": Client()}
sys.modules["jax"], sys.modules["jax._src.xla_bridge"] = jax, bridge
"""

JAX_JOB = (
    DRIVER
    + JAX
    + """
begin()
take(60 << 30)
print(wait_for_package(20))
import msmemscope
for step in range(1, 4):
    gpu.used = step << 30
    msmemscope.step()
"""
)


def test_jax_says_what_is_in_use_inside_its_block(record, sim):
    r = record(sys.executable, "-c", JAX_JOB, env=sim)
    assert r.stdout.split() == [b"True"] and r.stderr == b"", r.stderr
    said = [int(row.attr["allocated"]) >> 30 for row in r.of("SNAPSHOT", name="XLA")]
    assert said[-3:] == [1, 2, 3]
    text = ask(record, "show", r.dir)
    assert re.search(r"XLA holds 75 % of device 0(, 60.00 GiB| as one block of 60.00 GiB)", text)
    assert "live buffers inside: 3.00 GiB" in text
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in text
    (pool,) = ask(record, "show", r.dir, "--json")["devices"][0]["pools_inside"]
    assert pool["name"] == "XLA" and pool["used_bytes"] == 3 << 30


REFUSED_JOB = (
    DRIVER
    + JAX
    + """
begin()
take(60 << 30)
wait_for_package(20)
import msmemscope
gpu.used = 59 << 30
msmemscope.step()
class XlaRuntimeError(RuntimeError):
    pass
def allocate():
    raise XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB with allocator GPU_0_bfc on device 0."
                          " [tf-allocator-allocation-error='']")
allocate()
"""
)


def test_jax_has_no_room_in_its_own_block(record, sim):
    out, r = record.raw(sys.executable, "-c", REFUSED_JOB, env=sim)
    assert r.returncode == 1 and b"RESOURCE_EXHAUSTED" in r.stderr
    text = ask(record, "oom", out)
    assert "ran out once" in text and "asked for 2.00 GiB" in text, text
    assert "allocate (<string>" in text or "allocate" in text


def test_without_a_framework_and_without_cuda_it_does_not_come(record, sim):
    out, r = record.raw(sys.executable, "-c", DRIVER + "begin(); print(wait_for_package(0.3))", env=sim)
    assert r.stdout.split() == [b"False"], r.stderr
    out, r = record.raw(sys.executable, "-c", DRIVER + JAX + "print(wait_for_package(0.3))", env=sim)
    assert r.stdout.split() == [b"False"], r.stderr


CUPY_JOB = (
    DRIVER
    + """
import types
class Pool:
    used, total = 1 << 20, 4 << 20
    def used_bytes(self): return self.used
    def total_bytes(self): return self.total
cupy = types.ModuleType("cupy")
cupy.get_default_memory_pool = lambda pool=Pool(): pool
cupy.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))
sys.modules["cupy"] = cupy
begin()
take(4 << 20)
print(wait_for_package(20))
import msmemscope
msmemscope.step()
Pool.used = 3 << 20
msmemscope.step()
"""
)


def test_cupy_says_what_is_in_use_inside_its_pool(record, sim):
    r = record(sys.executable, "-c", CUPY_JOB, env=sim)
    assert r.stdout.split() == [b"True"], r.stderr
    said = [(row.attr["allocated"], row.attr["reserved"]) for row in r.of("SNAPSHOT", name="CuPy")]
    assert said[-2:] == [(str(1 << 20), str(4 << 20)), (str(3 << 20), str(4 << 20))]


# --- the real torch behind the hook ---

PROFILED = """
import torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
    x = torch.ones(1000, 100)
    y = x @ x.T
print(sorted((e.key, e.self_cpu_memory_usage) for e in p.key_averages() if e.self_cpu_memory_usage))
"""


def test_torchs_profiler_sees_its_memory_as_without_us(record):
    python = quickest_torch().path
    plain = record.plain(python, "-c", PROFILED)
    assert plain.returncode == 0, plain.stderr
    _, mine = record.raw(python, "-c", PROFILED)
    assert mine.stdout == plain.stdout and b"4000000" in mine.stdout
