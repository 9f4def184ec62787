# SPDX-License-Identifier: MulanPSL-2.0
"""What can be measured here: `sonde metrics` and the daemon on the simulated machine."""

import json
import os
import subprocess
import time

import pytest
from daemon import Daemon
from recording import clean_env
from waiting import wait_until

GIB = 1 << 30


@pytest.fixture
def metrics(build, tmp_path):
    """Runs `sonde metrics --json`; libraries=True: with the simulated vendors' libraries."""

    def run(*words, libraries=True, path=None, status=0, **env):
        e = clean_env(tmp_path, **env)
        if libraries:
            e["LD_LIBRARY_PATH"] = str(build / "sim")
        if path:
            e["PATH"] = f"{path}:{e['PATH']}"
        r = subprocess.run([build / "bin" / "sonde", "metrics", "--json", *words], env=e, text=True,
                           timeout=60, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert r.returncode == status, r.stderr
        return json.loads(r.stdout) if status == 0 else r.stderr

    return run


@pytest.fixture
def held(build, tmp_path):
    """A job that holds 3 GiB of device 0, with the environment of a batch system."""
    env = clean_env(tmp_path, LD_LIBRARY_PATH=build / "sim", SLURM_JOB_ID=77, USER="alice",
                    SLURM_JOB_ACCOUNT="lab", SLURM_JOB_PARTITION="p0")
    p = subprocess.Popen([build / "targets" / "hold_memory", "3072"], env=env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"held\n"
    yield p.pid
    p.stdin.close()
    p.wait(timeout=20)


OWNER = {"job_id": "77", "username": "alice", "slurm_account": "lab", "slurm_partition": "p0"}


def by_device(answer, source):
    return {s["device"]: s["metrics"] for s in answer["samples"] if s["source"] == source}


def test_this_machine(metrics):
    answer = metrics("--source", "kernel", libraries=False)
    (sample,) = answer["samples"]
    assert abs(sample["time_ns"] / 1e9 - time.time()) < 60 and "device" not in sample
    got = sample["metrics"]
    for name in ("uptime", "cpu_u", "cpu_s", "cpu_i", "cpu_util", "cpu_u_ms", "cpu_z_ms",
                 "cpu_guest", "mem_total", "mem_available", "mem_used", "load_1m",
                 "rx_bytes.lo", "rx_packets.lo", "rx_errors.lo", "rx_drops.lo",
                 "tx_bytes.lo", "tx_packets.lo", "tx_errors.lo", "tx_drops.lo"):
        assert name in got, name
    assert 0 <= got["cpu_util"] <= 100 and got["mem_used"] + got["mem_available"] == got["mem_total"]
    assert answer["missing"] == {}


def test_npus_by_library_and_by_program_are_the_same(metrics, held, build):
    by_library = by_device(metrics("--source", "npu", SIM_NPU_COUNT=2), "npu")
    assert set(by_library) == {0, 1}
    got = by_library[0]
    assert got["npu_name"] == "910B3" and got["npu_health"] == 0
    assert got["hbm_total_bytes"] == 64 * GIB and got["hbm_used_bytes"] >= 3 * GIB
    assert abs(got["hbm_utilization"] - 100 * got["hbm_used_bytes"] / (64 * GIB)) < 0.01
    assert got["npu_processes"] == 1 and got[f"npu_process_bytes.{held}"] >= 3 * GIB
    assert got["npu_temperature_c"] > 0 and got["npu_power_draw_w"] > 0
    assert {k: got.get(k) for k in OWNER} == OWNER
    assert by_library[1]["npu_processes"] == 0 and "job_id" not in by_library[1]

    program = metrics("--source", "npu", libraries=False, path=build / "sim", SIM_NPU_COUNT=2)
    by_program = by_device(program, "npu")
    assert set(by_program) == {0, 1}
    only_library = {"vector_core_utilization", "npu_utilization", "hbm_bandwidth_utilization"}
    for device, got in by_program.items():
        assert got == {k: v for k, v in by_library[device].items() if k not in only_library}


def test_gpus(metrics, held):
    got = by_device(metrics("--source", "gpu", SIM_GPU_COUNT=2, SIM_GPU_PID=held), "gpu")
    assert set(got) == {0, 1}
    one = got[1]
    assert one.pop("gpu_power_draw") == pytest.approx(251.5)
    ratios = {"graphics_engine_active_ratio": 1, "sm_active_ratio": 2, "sm_occupancy": 3,
              "tensorcore_active": 5, "hbm_mem_bw_util": 10, "fp32_active": 12, "fp16_active": 13}
    for name, number in ratios.items():
        assert one.pop(name) == pytest.approx((number + 0.1) / 100), name
    traffic = {"pcie_tx_bytes": 20, "pcie_rx_bytes": 21, "nvlink_rx_bytes": 60,
               "nvlink_tx_bytes": 61}
    for name, number in traffic.items():
        assert one.pop(name) == pytest.approx((number + 0.1) * (1 << 20), abs=1), name
    assert one == {
        "gpu_name": "NVIDIA SIM 80GB HBM3", "minor_id": 1, "dcgm_error": 0, "gpu_processes": 1,
        "gpu_uuid": "GPU-00000000-0000-0000-0000-000000000001", "gpu_device_utilization": 41,
        "gpu_memory_utilization": 20, "gpu_frequency_mhz": 1755, "gpu_temperature_c": 51,
        "gpu_memory_used_bytes": 11 * GIB, "gpu_memory_total_bytes": 80 * GIB, **OWNER,
    }  # and no fp64_active: this one has none


def test_gpus_too_old_for_ratios(metrics):
    got = by_device(metrics("--source", "gpu", SIM_GPU_COUNT=1, SIM_GPU_GPM=0), "gpu")[0]
    assert got["pcie_tx_bytes"] == 1000000 and got["pcie_rx_bytes"] == 2000000
    assert got["gpu_device_utilization"] == 40 and "sm_active_ratio" not in got


def test_what_is_not_there(metrics, build):
    """Unless asked for by name it is left out; then it is told why."""
    answer = metrics(libraries=False)
    assert "kernel" in {s["source"] for s in answer["samples"]}
    assert "libnvidia-ml.so.1" in answer["missing"]["gpu"]
    assert "libdcmi.so" in answer["missing"]["npu"] and "npu-smi" in answer["missing"]["npu"]
    words = metrics("--source", "gpu", status=1)  # the library is there, and no GPU
    assert "sonde metrics: gpu: " in words and "Driver Not Loaded" in words
    assert "'xpu'" in metrics("--source", "npu,xpu", status=2)


def test_a_reader_that_goes_away(build, tmp_path):
    """--watch goes on until nobody reads."""
    p = subprocess.Popen([build / "bin" / "sonde", "metrics", "--watch", "1", "--source", "kernel"],
                         env=clean_env(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.readline() == b"kernel\n"
    p.stdout.close()
    assert p.wait(timeout=20) != 0
    p.stderr.close()


def find(tree, key):
    """The first value under this key, at any depth."""
    if isinstance(tree, dict):
        if key in tree:
            return tree[key]
        tree = list(tree.values())
    for v in tree if isinstance(tree, list) else ():
        got = find(v, key)
        if got is not None:
            return got
    return None


def test_the_daemon_pauses_the_counters(build, tmp_path):
    env = {"LD_LIBRARY_PATH": str(build / "sim"), "SIM_GPU_COUNT": "1",
           "SIM_NPU_STATE": str(tmp_path / "npu")}
    with Daemon(build, tmp_path, "--enable-gpu-monitor", "--dcgm-reporting-interval-s", "1",
                env=env) as d:
        def ratio():
            return find(d.call({"fn": "getMetrics"}), "sm_active_ratio")

        wait_until(lambda: ratio() == pytest.approx(0.02), "the ratio")
        assert d.call({"fn": "dcgmProfPause", "duration_s": 300}) == {"status": True}
        wait_until(lambda: ratio() is None, "no ratio while it is paused")
        assert find(d.call({"fn": "getMetrics"}), "gpu_device_utilization") == 40
        assert d.call({"fn": "dcgmProfResume"}) == {"status": True}
        wait_until(lambda: ratio() == pytest.approx(0.02), "the ratio")


def test_the_daemon_outlives_a_program_that_hangs(build, tmp_path):
    """npu-smi hangs with its driver, as it does on a lost device: the others are sampled on."""
    (tmp_path / "npu-smi").write_text("#!/bin/sh\nsleep 30\n")
    os.chmod(tmp_path / "npu-smi", 0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with Daemon(build, tmp_path, "--enable-npu-monitor", "--kernel-monitor-reporting-interval-s",
                "1", env=env) as d:
        sampled = lambda: find(d.call({"fn": "getMetrics"}), "cpu_util")
        wait_until(lambda: sampled() is not None, "the other metrics")
        begin = time.monotonic()
    assert time.monotonic() - begin < 15  # nor does it hold up the end
