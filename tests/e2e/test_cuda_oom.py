# SPDX-License-Identifier: MulanPSL-2.0
"""Why memory of a GPU ran out, as `sonde mem oom` says it: programs in C++, and the pool of a framework
(simulated driver). More of others on the device: test_cuda_odd_jobs.py."""

import pathlib

import pytest

from cuda_recorded import MIB, Cuda, build_library

SMALL = {"SIM_GPU_COUNT": "1", "SIM_GPU_MEMORY_MIB": "512"}


@pytest.fixture
def cuda(build, tmp_path):
    return Cuda(build, tmp_path)


@pytest.fixture
def refused(cuda):
    """(the one incident, the answer in words) of a program and its words; it prints what it does without us."""

    def run(program, *words, options=(), **env):
        env = {**SMALL, "SIM_GPU_STATE": str(cuda.tmp / "gpus"), **env}
        program = str(cuda.build / "targets" / program)
        said, _, where = cuda.record(*words, program=program, options=options, **env)
        assert said == cuda.plain(*words, program=program, **env)
        (incident,) = cuda.show(where, "oom")["incidents"]
        return incident, cuda.say(where, "oom")

    return run


# context 256 of 512 MiB: 12 segments of 20, and 16 are left
POOL = {
    "fill": ("real exhaustion", "this process holds 240.00 MiB of the 512.00 MiB of device 0"),
    "leak": ("leak", "and not freed since; without them the 20.00 MiB would have fitted."),
    "shatter": (
        "fragmentation",
        "the TORCH pool has 120.00 MiB free in all, but in 60 pieces, the largest of 2.00 MiB; 32.00 MiB were",
    ),
}


@pytest.mark.parametrize("how", POOL)
def test_the_pool_of_a_framework(cuda, refused, how):
    """As torch's: its segments are the driver's blocks, and what it reports lies in them."""
    incident, text = refused("torch_pool", "0", how, options=["--call-stack=c:10"])
    verdict, sentence = POOL[how]
    assert incident["verdict"] == verdict and sentence in text, text
    (pool,) = incident["pools"]
    assert pool["pool"] == "TORCH" and pool["reserved_bytes"] == (240 if how != "leak" else 220) * MIB
    assert pool["allocated_bytes"] == {"fill": 240, "leak": 220, "shatter": 120}[how] * MIB
    if how == "shatter":
        assert (pool["free_pieces"], pool["largest_free_bytes"]) == (60, 2 * MIB)
        assert "expandable_segments:True" in incident["advice"]
    if how == "leak":
        assert "torch_pool.c:" in incident["leak"]["where"]


def test_a_device_in_pieces(refused):
    """A program in C++: there is enough, and the driver finds no piece of that size."""
    many = {"SIM_GPU_MEMORY_MIB": "4096", "SIM_CUDA_REFUSE_BYTES": str(300 * MIB)}
    incident, text = refused("cuda_odd", "fill", "300", **many)
    assert incident["verdict"] == "fragmentation"
    assert "device 0 still has 3.60 GiB free of 4.00 GiB, but the driver found no piece of 300.00 MiB" in text
    assert "(cuda_odd.c:" in text


@pytest.mark.needs("cc")
def test_a_share_of_a_device(cuda, refused):
    """A library that shares GPUs lets the process use 300 MiB of 4 GiB: what is free there is not the process'."""
    source = (pathlib.Path(__file__).parents[1] / "device" / "dlsym_shim.c").read_text()
    shim = build_library(cuda, "shim", source)
    env = {"SIM_GPU_MEMORY_MIB": "4096", "SHIM_LIMIT_MIB": "300", "LD_PRELOAD": str(shim)}
    incident, text = refused("cuda_odd", "fill", "200", **env)
    assert incident["verdict"] == "real exhaustion", text
    assert incident["device_memory"]["limit_bytes"] == 300 * MIB
    assert "150.00 MiB of the 300.00 MiB that it may use of device 0" in text
    assert "150.00 MiB are free; 200.00 MiB more were asked for" in text and "larger share" in text
    incident, text = refused("cuda_odd", "fill", "400", **env)
    assert incident["verdict"] == "real exhaustion", text
    assert "400.00 MiB were asked for, and this process may use of device 0 300.00 MiB" in text
