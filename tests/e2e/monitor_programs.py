# SPDX-License-Identifier: MulanPSL-2.0
"""Programs in Python that use the monitor on the simulated stack. See `programs` in the tests that
use it."""

import os
import pathlib
import subprocess
import sys

import pythons
from recording import clean_env

OLDEST = 8


def usable(params):
    """Without free-threaded interpreters, which have no stable ABI."""
    return [p for p in params if not (p.values[0] and p.values[0].label.endswith("t"))]


PER_MINOR = usable(pythons.one_per_minor(oldest=OLDEST))
ENDS = [PER_MINOR[0], PER_MINOR[-1]]
SOME = [PER_MINOR[0], PER_MINOR[len(PER_MINOR) // 2], PER_MINOR[-1]]


# A device of the simulated stack, and what a job does with it.
NPU = """
import ctypes, os, sys, time

_rt, _mstx = ctypes.CDLL("libruntime.so"), ctypes.CDLL("libms_tools_ext.so")
_rt.sim_kernel_register.restype = ctypes.c_void_p
_mstx.mstxRangeStartA.restype = ctypes.c_uint64


class Npu:
    def __init__(self, device=0):
        self.stream = ctypes.c_void_p()
        assert _rt.rtSetDevice(device) == 0
        assert _rt.rtStreamCreate(ctypes.byref(self.stream), 0) == 0

    def launch(self, name, us=20):
        kernel = _rt.sim_kernel_register(name.encode(), ctypes.c_uint64(us * 1000), None)
        assert _rt.rtKernelLaunch(ctypes.c_void_p(kernel), 8, None, 0, None, self.stream) == 0

    def wait(self):
        assert _rt.rtStreamSynchronize(self.stream) == 0

    def step(self, kernels=5):
        mark = _mstx.mstxRangeStartA(b"train", self.stream)
        for i in range(kernels):
            self.launch(f"MatMul_{i}")
        self.launch("Add")
        _mstx.mstxRangeEnd(ctypes.c_uint64(mark))
        self.wait()

"""


class Programs:
    def __init__(self, build, tmp_path):
        self.build, self.tmp, self.made, self.started = build, pathlib.Path(tmp_path), 0, []

    def env(self, **more):
        scratch = self.tmp / "scratch"
        scratch.mkdir(exist_ok=True)
        return clean_env(
            self.tmp,
            **{
                "PYTHONPATH": self.build / "python",
                "LD_LIBRARY_PATH": self.build / "sim",
                "TMPDIR": scratch,
                **more,
            },
        )

    def left_in_scratch(self):
        """Names of what programs have not taken away again, but for the recorder's."""
        names = os.listdir(self.tmp / "scratch")
        return [n for n in names if not n.startswith("sonde-monitor-")]

    def command(self, code, python, args):
        self.made += 1
        script = self.tmp / f"program{self.made}.py"
        script.write_text(code)
        return [str(w) for w in (getattr(python, "path", python), script, *args)]

    def run(self, code, *args, python=sys.executable, status=0, **env):
        r = subprocess.run(
            self.command(code, python, args),
            cwd=self.tmp,
            env=self.env(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        assert status is None or r.returncode == status, f"{r.returncode}\n{r.stdout}\n{r.stderr}"
        return r

    def start(self, code, *args, python=sys.executable, **env):
        p = subprocess.Popen(
            self.command(code, python, args),
            cwd=self.tmp,
            env=self.env(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        self.started.append(p)
        return p

    def end(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.communicate()
