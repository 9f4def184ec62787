# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde monitor`: runs a job so that it can be monitored."""

import json
import os
import subprocess
import sys

GPU_SIGNS = [
    "/dev/nvidiactl",
    "/proc/driver/nvidia",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    f"/usr/lib/{os.uname().machine}-linux-gnu/libcuda.so.1",
]


def monitor(build, *words, env=None, **kw):
    clean = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}
    return subprocess.run(
        [build / "bin" / "sonde", "monitor", *words], env={**clean, **(env or {})},
        capture_output=True, text=True, timeout=60, **kw,
    )  # fmt: skip


def test_monitor_runs_the_job_with_what_it_needs(build, tmp_path):
    lib = f"{build.resolve()}/lib/libsonde_monitor.so"
    show = [sys.executable, "-S", "-c", "import os,json; print(json.dumps(dict(os.environ)))"]
    r = monitor(build, "--", *show)
    env = json.loads(r.stdout)
    assert env["LD_PRELOAD"] == lib and env["MSMONITOR_USE_DAEMON"] == "1"
    assert env["CUDA_INJECTION64_PATH"] == env["NVTX_INJECTION64_PATH"] == lib
    assert env["KINETO_USE_DAEMON"] == "1"
    assert "sonde top" in r.stderr and r.stderr.count("\n") == 1
    # what NPUs need is missed only where nothing speaks for a GPU
    assert ("--mspti" in r.stderr) == (not any(map(os.path.exists, GPU_SIGNS)))
    assert "--mspti" not in monitor(build, "--", "true", env={"CUDA_HOME": "/x"}).stderr
    assert "--mspti" not in monitor(build, "--mspti", "none", "--", "true").stderr
    # a job that goes elsewhere finds its libraries
    os.symlink(lib, tmp_path / "libmspti.so")
    words = ["--quiet", "--mspti", "./libmspti.so", "--", *show]
    r = monitor(build, *words, cwd=tmp_path)
    assert json.loads(r.stdout)["LD_PRELOAD"] == f"{lib}:{tmp_path}/libmspti.so"
    r = monitor(build, *words[:3], "--", "sh", "-c", "cd / && exec true", cwd=tmp_path)
    assert (r.returncode, r.stderr) == (0, "")
    # what is there stays
    home = tmp_path / "ascend"
    (home / "lib64").mkdir(parents=True)
    mspti = home / "lib64" / "libmspti.so"
    os.symlink(lib, mspti)
    before = {"CUDA_INJECTION64_PATH": "/theirs", "LD_PRELOAD": "", "ASCEND_HOME_PATH": str(home)}
    r = monitor(build, "--quiet", "--", *show, env=before)
    env = json.loads(r.stdout)
    assert env["CUDA_INJECTION64_PATH"] == "/theirs" and env["NVTX_INJECTION64_PATH"] == lib
    assert env["LD_PRELOAD"] == f"{lib}:{mspti}" and not r.stderr
    r = monitor(build, "--quiet", "--", *show, env={"LD_PRELOAD": lib})
    assert json.loads(r.stdout)["LD_PRELOAD"] == lib
    r = monitor(build, "--mspti", "none", "--print-env", env=before)
    assert f"export LD_PRELOAD='{lib}'\n" in r.stdout and "libmspti" not in r.stdout
    assert "SONDE_PREPARE_ATTRIBUTE" not in r.stdout
    r = monitor(build, "--attribute", "--mspti", "none", "--print-env", env=before)
    assert "export SONDE_PREPARE_ATTRIBUTE='1'\n" in r.stdout
    words = f"{r.stdout}\necho $MSMONITOR_USE_DAEMON$NVTX_INJECTION64_PATH"
    assert subprocess.run(["sh", "-c", words], capture_output=True, text=True).stdout == f"1{lib}\n"


def test_monitor_is_the_job(build):
    assert monitor(build, "--", "sh", "-c", "exit 7").returncode == 7
    assert monitor(build, "--", "sh", "-c", "kill -9 $$").returncode == -9
    r = monitor(build, "--", "/no/such/program")
    assert r.returncode == 127 and "/no/such/program" in r.stderr
    r = monitor(build)
    assert r.returncode == 2 and "no program to run" in r.stderr
    r = monitor(build, "--mspti", "/no/such/lib.so", "--", "true")
    assert r.returncode == 1 and "/no/such/lib.so" in r.stderr
