#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""putils on a GPU: checkpoints of tensors there, profilers, loads, the chip's peak.

usage: putils_tools.py [BUILD]      with a Python that has torch and a GPU; prints "N passed, M failed"
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from gpu import need_gpu

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
CHECKS = ROOT / "tests/targets/python/putils_tool_checks.py"
ENV = dict(os.environ, PYTHONPATH=str(BUILD / "python"))


def program(*words, cwd, timeout=300):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env=ENV,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=timeout,
    )


def checks(folder):
    done = program(CHECKS, "cuda", cwd=folder)
    if done.returncode:
        return {"checks": done.stderr[-2000:]}
    return json.loads(done.stdout.splitlines()[-1])


def burn_reaches(folder):
    """bfloat16 products of this size reach more than half of the peak on every chip in the table."""
    words = ("--dtype", "bfloat16", "--size", "8192", "--sleep", "0", "--seconds", "5", "--interval", "1")
    done = program("-m", "putils.burn", *words, "--lock-dir", os.path.join(folder, "locks"), "--json", cwd=folder)
    if done.returncode:
        return done.stdout[-500:] + done.stderr[-1500:]
    found = json.loads(done.stdout.splitlines()[-1])
    code = "from putils.MFU import device_name, peak_tflops; print(peak_tflops(), device_name())"
    peak, _, name = program("-c", code, cwd=folder).stdout.strip().partition(" ")
    print(f"{name}: peak {peak} TFLOPS; burn: {found['tflops']}")
    if not all(0.5 < tflops / float(peak) < 1.05 for tflops in found["tflops"].values()):
        return f"{found['tflops']} of {peak}"
    return ""


def affinity(folder):
    out = os.path.join(folder, "affinity")
    done = program("-m", "putils.npu_affinity_benchmark", "--profile", "medium", "--output-dir", out, cwd=folder)
    print(done.stdout.strip())
    if done.returncode or "Device 0: most products per second" not in done.stdout:
        return done.stdout[-500:] + done.stderr[-1500:]
    return ""


def main():
    need_gpu("torch")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "checks"))
        found = checks(os.path.join(folder, "checks"))
        found["burn"] = burn_reaches(folder)
        found["affinity"] = affinity(folder)
    for name, why in found.items():
        if why:
            print(f"FAILED {name}\n{why}")
    failed = sum(bool(why) for why in found.values())
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
