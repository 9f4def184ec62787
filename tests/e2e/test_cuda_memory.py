# SPDX-License-Identifier: MulanPSL-2.0
"""Every block of the CUDA driver, whichever way the job asks for its functions (simulated driver)."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess

import pytest

from cuda_recorded import MIB, Cuda, build_library, sizes, split
from dump_rows import rows_of
from harness import SOAK
from waiting import pause

KINDS = {"alloc", "managed", "array", "async", "create"}


@pytest.fixture
def cuda(build, tmp_path):
    return Cuda(build, tmp_path)


@pytest.mark.parametrize("way", ["runtime", "old", "dlsym", "dlvsym", "linked"])
def test_every_kind_once_by_every_way(cuda, way):
    env = {"LD_PRELOAD": str(cuda.driver)} if way == "linked" else {}
    said, rows, where = cuda.record(way, "all", options=["--analysis=decompose"], **env)
    made, ended = split(rows)
    assert said == cuda.plain(way, "all", **env)
    assert sizes(made) == sorted(
        [MIB, 10240, 3 * MIB, 16384, 4096, 5 * MIB, 6 * MIB, 2 * MIB]
    )
    assert sizes(ended) == sorted(set(sizes(made)) - {4096})
    assert {r["attr"]["alloc_type"] for r in made} == KINDS
    assert {r["attr"]["owner"] for r in made} == {"CUDA@cuda_memory"}
    assert {r["Device Id"] for r in rows} == {"0"}


def test_pinned_memory_counts_once(cuda):
    """What the driver pins it has from the C library here: in one row. With host memory alone, too."""
    for devices, blocks in (("npu,cpu", 8), ("cpu", 0)):
        said, rows, where = cuda.record("runtime", "all", options=[f"--device={devices}"])
        assert said == cuda.plain("runtime", "all")
        assert len(split(rows)[0]) == blocks
        host = [r for r in rows_of(where) if r["Device Id"] == "cpu" and r["Event"] == "MALLOC"]
        # allocated by the driver; allocated and then registered by the program
        assert sizes(r for r in host if int(r["attr"]["size"]) == 8192) == [8192, 8192]


STACKS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def make_batch():
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(3 << 20)) == 0
def train():
    make_batch()
train()
assert cuda.cuMemFree_v2(at) == 0
"""


def test_call_stacks_of_the_caller(cuda):
    """Native and Python, of allocations and frees."""
    _, rows, _ = cuda.record("-c", STACKS, program="/usr/bin/python3", options=["--call-stack=python:5,c:5"])
    (made,), (ended,) = split(rows)
    python = made["Call Stack(Python)"].splitlines()
    assert "make_batch" in python[0] and "train" in python[1] and "<module>" in python[2]
    assert made["Call Stack(C)"] and "<module>" in ended["Call Stack(Python)"]


def test_contexts_end_with_their_blocks(cuda):
    said, rows, _ = cuda.record("runtime", "contexts")
    made, ended = split(rows)
    assert said == cuda.plain("runtime", "contexts")
    assert len(made) == len(ended) == 7
    # in the order in which their contexts end
    assert [int(r["attr"]["size"]) // MIB for r in ended] == [2, 1, 1, 1, 1, 4, 8]


def test_old_drivers(cuda):
    """Of CUDA 10.1: no cuGetProcAddress, no pools, no virtual memory. Of 11.3: its first form."""
    old = {"LD_LIBRARY_PATH": str(cuda.build / "sim" / "old"), "SIM_CUDA_VERSION": "10010"}
    said, rows, _ = cuda.record("runtime", "all", **old)
    assert said == cuda.plain("runtime", "all", **old)
    assert sizes(split(rows)[0]) == sorted([MIB, 10240, 3 * MIB, 16384, 4096])
    newer = {"SIM_CUDA_VERSION": "11040"}
    said, rows, _ = cuda.record("old", "all", **newer)
    assert said == cuda.plain("old", "all", **newer)
    assert len(split(rows)[0]) == 8


def test_pointers_that_were_equal_stay_equal(cuda):
    assert cuda.record("runtime", "pointers")[0] == cuda.plain("runtime", "pointers")


def test_visible_devices_have_the_machines_numbers(cuda):
    _, rows, _ = cuda.record("runtime", "all", SIM_GPU_COUNT="4", CUDA_VISIBLE_DEVICES="2,0")
    assert {r["Device Id"] for r in rows} == {"2"}
    named = "GPU-00000000-0000-0000-0000-000000000003"
    _, rows, _ = cuda.record("runtime", "all", SIM_GPU_COUNT="4", CUDA_VISIBLE_DEVICES=named)
    assert {r["Device Id"] for r in rows} == {"0"}  # as the job counts


def check_devices(rows, numbers, processes=1):
    """What use_devices() of the program does on each: the job's n-th is this device of the machine."""
    made, ended = split(rows)
    for n, number in enumerate(numbers, 1):
        mine = [r for r in made if r["Device Id"] == str(number)]
        assert sizes(mine) == sorted([n * MIB] + [n << 12] * 200) * processes
        # also what was freed in a context of another device
        assert sizes(r for r in ended if r["Device Id"] == str(number)) == sizes(mine)
    assert len(made) == len(ended) == 201 * len(numbers) * processes


def test_several_devices_and_processes(cuda):
    """One process with a thread for each device; and one process for each, as launchers start them."""
    env = {"SIM_GPU_COUNT": "4"}
    said, rows, _ = cuda.record("runtime", "devices", **env)
    assert said == cuda.plain("runtime", "devices", **env)
    check_devices(rows, [0, 1, 2, 3])
    check_devices(cuda.record("runtime", "devices", CUDA_VISIBLE_DEVICES="3,1", **env)[1], [3, 1])
    each = 'for i in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$i "$@" & done; wait'
    words = ["-c", each, "sh", cuda.program, "runtime", "devices"]
    _, rows, where = cuda.record(*words, program="/bin/sh", **env)
    for device in "0123":
        check_devices([{**r, "Device Id": "0"} for r in rows if r["Device Id"] == device], [0])
    assert len({r["Process Id"] for r in rows}) == 4
    found = cuda.show(where)["devices"]
    assert sorted((d["device"], d["gpu"], d["mps"]) for d in found) == [
        (str(n), "NVIDIA SIM 80GB HBM3", False) for n in range(4)
    ]


LIBRARY = r"""
#include <stddef.h>
int cuMemAlloc_v2(unsigned long long *, size_t);
int take(size_t bytes) { unsigned long long at; return cuMemAlloc_v2(&at, bytes); }
"""


@pytest.mark.needs("cc")
def test_owners_are_the_libraries_that_ask(cuda):
    """By their files' names: what people know them by, or the name itself."""
    for name in ("libnccl.so.2", "libcublas.so.12", "libmine.so"):
        source = cuda.tmp / "library.c"
        source.write_text(LIBRARY)
        link = ["-L", cuda.build / "sim", "-lcuda"]
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", cuda.tmp / name, *link], check=True)
    take = (
        "import ctypes\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "ctx = ctypes.c_void_p()\n"
        "assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0\n"
        "assert cuda.cuCtxSetCurrent(ctx) == 0\n"
        "for name, mib in (('libnccl.so.2', 3), ('libcublas.so.12', 2), ('libmine.so', 1)):\n"
        f"    assert ctypes.CDLL('{cuda.tmp}/' + name).take(ctypes.c_size_t(mib << 20)) == 0\n"
    )
    _, rows, where = cuda.record("-c", take, program="/usr/bin/python3")
    assert sizes(split(rows)[0]) == [MIB, 2 * MIB, 3 * MIB]
    asked = {a["name"]: a["bytes"] // MIB for a in cuda.show(where)["devices"][0]["askers"]}
    assert asked == {"NCCL": 3, "cuBLAS": 2, "libmine": 1}
    said = cuda.say(where)
    assert "Who asked for it: NCCL 3.00 MiB, cuBLAS 2.00 MiB, " in said


@pytest.mark.parametrize(
    "env", [{"SIM_CUDA_MIG": "1"}, {"SIM_CUDA_MPS": "1"}, {"SIM_CUDA_INIT_ERROR": "805"}]
)
def test_shared_devices_and_failures(cuda, env):
    said, rows, where = cuda.record("runtime", "all", **env)
    assert said == cuda.plain("runtime", "all", **env)
    assert len(split(rows)[0]) == (0 if "SIM_CUDA_INIT_ERROR" in env else 8)
    words = {
        "SIM_CUDA_MIG": "Device 0 is NVIDIA SIM 80GB HBM3 MIG 1g.10gb, a part of a GPU (MIG), of 10.00 GiB.",
        "SIM_CUDA_MPS": "Device 0 is shared by way of the MPS server",
        "SIM_CUDA_INIT_ERROR": "the MPS server could not be reached",
    }
    assert words[next(iter(env))] in cuda.say(where)


def test_refusals(cuda):
    said, _, where = cuda.record("runtime", "refuse", options=["--analysis=oom"])
    assert said == cuda.plain("runtime", "refuse")
    found = [r for r in rows_of(where) if "OOM" in r["Event Type"] or "OOM" in r["Name"]]
    text = json.dumps(found)
    for call in ("cuMemAlloc", "cuMemAllocAsync", "cuMemCreate"):
        assert f'"{call}"' in text or call in text
    assert cuda.show(where)["counts"]["ooms"] == 3


def test_children(cuda):
    """Made before the driver is initialised they record for themselves; a child that has the
    parent's driver goes on as it would."""
    for how, blocks in (("spawn", [1, 2, 3]), ("fork", [1, 2])):
        said, rows, _ = cuda.record("runtime", how)
        assert said == cuda.plain("runtime", how)
        assert [n // MIB for n in sizes(split(rows)[0])] == blocks
        assert len({r["Process Id"] for r in rows}) == len(blocks)


def test_a_million_pairs_and_cycles(cuda):
    """Every event once: from two threads, and by sonde mem record."""
    words = ["runtime", "pairs", "500000", "2"]
    where = cuda.tmp / "pairs"
    sonde = [cuda.build / "bin" / "sonde", "mem", "record", "--output", where, "--"]
    done = subprocess.run(
        [*sonde, cuda.program, *words], env=cuda.env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and "none lost" in done.stderr, done.stderr
    counts = cuda.show(where)["counts"]
    assert (counts["mallocs"], counts["frees"]) == (10**6, 10**6)
    where = cuda.tmp / "cycles"
    sonde[4] = where
    cycles = 10**6
    words = ["runtime", "cycles", str(cycles)]
    done = subprocess.run(
        [*sonde, cuda.program, *words], env=cuda.env, capture_output=True, text=True, timeout=100
    )
    recorded = int(re.search(r"(\d+) events recorded, none lost", done.stderr).group(1))
    assert 2 * cycles + 4 <= recorded < 2 * cycles + 20
    assert cuda.show(where)["counts"]["frees"] == 1


def kill_once(cuda, where):
    """(allocations that it had finished, that were recorded)"""
    job = subprocess.Popen(
        [*cuda.command(where), cuda.program, "runtime", "churn"],
        env=cuda.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    job.stdout.readline()
    pause(random.random() * 0.02, "any moment")
    job.kill()
    lines = job.stdout.read().split(b"\n")
    job.stdout.close()
    assert job.wait() == -signal.SIGKILL
    printed = int(lines[-2]) if len(lines) > 1 else 1
    return printed, cuda.show(where)["counts"]["mallocs"]


@pytest.mark.deadline(300)
def test_kill_9_at_any_moment(cuda):
    random.seed(os.getpid())
    for i in range(200 if SOAK else 50):
        printed, recorded = kill_once(cuda, cuda.tmp / f"killed{i}")
        # at most one more had been allocated, and was not said yet
        assert printed <= recorded <= printed + 1


def test_nvml_counts_what_the_driver_has_handed_out(cuda):
    """Context, blocks and the context's end, in the file that both simulated libraries share."""
    ask = (
        "import ctypes, subprocess, sys\n"
        "class M(ctypes.Structure): _fields_ = [(n, ctypes.c_ulonglong) for n in 'tfu']\n"
        "nvml, h, m = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.c_void_p(), M()\n"
        "assert nvml.nvmlInit_v2() == 0\n"
        "nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h))\n"
        "def used():\n"
        "    nvml.nvmlDeviceGetMemoryInfo(h, ctypes.byref(m))\n"
        "    return m.u >> 20\n"
        "before = used()\n"
        "job = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "job.stdout.readline()\n"
        "print(used() - before)\n"
        "job.communicate(b'x')\n"
    )
    env = {"SIM_GPU_COUNT": "1", "SIM_GPU_STATE": str(cuda.tmp / "gpus")}
    words = ["-c", ask, cuda.program, "runtime", "hold"]
    said = cuda.plain(*words, program="/usr/bin/python3", **env)
    recorded, rows, _ = cuda.record(*words, program="/usr/bin/python3", **env)
    assert said == recorded == f"{256 + 7}\n"
    assert sizes(split(rows)[0]) == [7 * MIB]


# --- beside others ---

SHIM = (pathlib.Path(__file__).parents[1] / "device" / "dlsym_shim.c").read_text()


@pytest.mark.needs("cc")
@pytest.mark.parametrize("way", ["dlsym", "runtime"])
def test_another_library_that_interposes_dlsym(cuda, way):
    """Behind us (LD_PRELOAD of the user comes after ours), and before us, as a wrapper script has it."""
    shim = build_library(cuda, "shim", SHIM)
    calls = cuda.tmp / "calls"
    env = {"LD_PRELOAD": str(shim), "SHIM_CALLS": str(calls)}
    plain = cuda.plain(way, "all", **env)
    assert plain == cuda.plain(way, "all")
    said, rows, _ = cuda.record(way, "all", **env)
    assert said == plain
    assert len(split(rows)[0]) == 8
    wrapper = cuda.tmp / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nLD_PRELOAD="{shim}:$LD_PRELOAD" exec "$@"\n')
    wrapper.chmod(0o755)
    said, rows, _ = cuda.record(cuda.program, way, "all", program=str(wrapper), SHIM_CALLS=str(calls))
    assert said == plain
    assert len(split(rows)[0]) == 8
    # it has seen the program's two calls of cuMemAlloc each time, so what it limits stays limited
    assert calls.read_text() == "2\n2\n2\n"


@pytest.mark.needs("cc")
def test_a_job_that_interposes_dlsym_itself(cuda):
    source = cuda.tmp / "job.c"
    main = r"""
    #include <stdio.h>
    int main(void)
    {
    	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
    	int (*retain)(void **, int) =
    		(int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
    	int (*set)(void *) = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
    	int (*alloc)(unsigned long long *, size_t) =
    		(int (*)(unsigned long long *, size_t))dlsym(lib, "cuMemAlloc_v2");
    	unsigned long long a = 0;
    	void *ctx = 0;
    	int r = init(0) + retain(&ctx, 0) + set(ctx) + alloc(&a, 1 << 20);
    	printf("%d %d\n", r, shim_calls);
    	return 0;
    }
    """
    source.write_text(SHIM + main)
    job = cuda.tmp / "job"
    subprocess.run(["cc", "-rdynamic", source, "-o", job, "-ldl"], check=True)
    said, rows, _ = cuda.record(program=str(job))
    assert said == cuda.plain(program=str(job)) == "0 1\n"
    assert sizes(split(rows)[0]) == [MIB]


def test_programs_without_a_driver_find_none(cuda):
    """What we export is no driver: a job that asks whether there is one is told the truth."""
    ask = (
        "import ctypes\n"
        "dlsym = ctypes.CDLL(None).dlsym\n"
        "dlsym.restype, dlsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)\n"
        "print(dlsym(None, b'cuMemAlloc_v2'), hasattr(ctypes.CDLL(None), 'cuInit'))\n"
    )
    said, rows, _ = cuda.record("-c", ask, program="/usr/bin/python3")
    assert said == "None False\n" and not rows


def test_no_driver_is_found_where_there_is_none(cuda):
    program = str(cuda.build / "targets" / "driver_names")
    said, _, _ = cuda.record(program=program, LD_LIBRARY_PATH="")
    assert said == cuda.plain(program=program, LD_LIBRARY_PATH="") and "cuInit 0 0" in said
