#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""putils on a GPU: the checks of the end-to-end tests on cuda, and what tprint() costs there.

usage: putils.py --bin BUILD/bin/sonde --out DIRECTORY

Runs in a Python that has PyTorch with CUDA; the packages are beside the binary (BUILD/python).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from gpu import need_gpu

CHECKS = pathlib.Path(__file__).resolve().parents[1] / "targets/python/putils_checks/run.py"

COST = """
import contextlib, hashlib, os, time, torch
from putils import _native, _tensors, pprint
t = torch.randn(8, 1 << 16, 512, device="cuda")
torch.cuda.synchronize()
def seconds(function):
    with open(os.devnull, "w") as f, contextlib.redirect_stdout(f):
        began = time.perf_counter()
        function()
        return time.perf_counter() - began
host = t.cpu()
address = host.data_ptr()
ours = min(seconds(lambda: pprint.tprint(t, "x")) for _ in range(3))
copy = min(seconds(lambda: t.cpu()) for _ in range(3))
whole = _tensors._memory(_native.get(), address, 1 << 30)
md5 = min(seconds(lambda: hashlib.md5(whole).hexdigest()) for _ in range(3))
stats = min(seconds(lambda: pprint.tensor_stats(host, md5=False)) for _ in range(3))
there, plain = (
    min(seconds(lambda: pprint.tensor_stats(t, md5=False, quantiles=q)) for _ in range(3)) for q in (True, False)
)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
pprint.tensor_stats(t, md5=False, quantiles=False)
taken = (torch.cuda.max_memory_allocated() - before) >> 20
print(f"tprint of 1 GiB on {torch.cuda.get_device_name()}: {ours:.2f} s; copy alone {copy:.2f} s, "
      f"MD5 alone {md5:.2f} s, statistics alone {stats:.2f} s (x {ours / (copy + md5):.2f} of copy and MD5)")
print(f"tensor_stats(md5=False) on the device: {there * 1e3:.1f} ms with quantiles, {plain * 1e3:.1f} ms without "
      f"(x {copy / plain:.1f} as fast as a copy), {taken} MiB of device memory")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the sonde binary")
    parser.add_argument("--out", required=True, help="directory for the results")
    args = parser.parse_args()
    need_gpu("torch")
    packages = pathlib.Path(args.bin).resolve().parents[1] / "python"
    out = pathlib.Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(CHECKS), "--device", "cuda"],
        cwd=out,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=500,
    )
    outcomes = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"the run": "no output"}
    (out / "putils.json").write_text(json.dumps(outcomes, indent=1))
    failed = {name: text for name, text in outcomes.items() if text != "ok"}
    for name, text in failed.items():
        print(f"FAILED {name}\n{text}")
    subprocess.run([sys.executable, "-c", COST], cwd=out, env=env, timeout=300)
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
