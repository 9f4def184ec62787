# SPDX-License-Identifier: MulanPSL-2.0
"""A CUDA job on the simulated driver and libcupti (tests/targets/cuda_job.c), told what to do."""

import collections
import os
import pathlib
import subprocess

from monitored import lines

KERNEL = 10  # of CUPTI's kinds


class CudaJob:
    """tests/targets/cuda_job.c, which does what it is told; below: words that start it."""

    def __init__(self, build, tmp_path, preload=False, inject=True, nvtx=True, below=(), **env):
        self.build, self.out = build, tmp_path / "out"
        self.out.mkdir()
        self.lib = str(build / "lib" / "libsonde_monitor.so")
        self.env = dict(os.environ, MONITOR_LIB=self.lib, **env)
        for name, wanted in (
            ("CUDA_INJECTION64_PATH", inject),
            ("NVTX_INJECTION64_PATH", inject and nvtx),
            ("LD_PRELOAD", preload),
        ):
            self.env.pop(name, None)
            if wanted:
                self.env[name] = self.lib
        self.err = open(tmp_path / "job.err", "w+")
        self.process = subprocess.Popen(
            [*below, build / "targets" / "cuda_job"],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.err,
            text=True,
            cwd=tmp_path,
        )
        self.pid = self.process.pid

    def __enter__(self):
        self.tell("init")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.err.close()

    def tell(self, *commands):
        """What it said to the last of them."""
        for command in commands:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            said = self.process.stdout.readline().strip()
            assert said.endswith("ok"), said
        return said[:-2].strip()

    def order(self, start=True, kinds="Kernel"):
        text = (
            f"NPU_MONITOR_START={start};NPU_MONITOR_STOP={not start};REPORT_INTERVAL_S=1;"
            f"DURATION=0;MSPTI_ACTIVITY_KIND={kinds};NPU_MONITOR_LOG_FILE={self.out};"
            "NPU_MONITOR_EXPORT_TYPE=Jsonl"
        )
        return self.tell(f"order {text}")

    def start(self, kinds="Kernel"):
        assert self.order(True, kinds) == "0"

    def stop(self):
        assert self.order(False) == "0"

    def profile(self, *commands):
        """Runs them under the job's own profiler; the numbers that it ends with."""
        self.tell("profile on", *commands)
        words = self.tell("profile off").split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0

    def said(self):
        """On its standard error."""
        self.err.seek(0)
        return self.err.read()

    def rows(self, kind=None):
        files = sorted(pathlib.Path(self.out).glob("*.jsonl"))
        rows = [row for f in files for row in lines(f)]
        return [r for r in rows if kind in (None, r["kind"])]

    def names(self, kind="Kernel"):
        return collections.Counter(r["name"] for r in self.rows(kind))


def enabled(job):
    return [k for k in range(1, 60) if job.tell(f"enabled {k}") == "1"]
