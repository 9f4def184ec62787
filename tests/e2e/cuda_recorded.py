# SPDX-License-Identifier: MulanPSL-2.0
"""Jobs on the simulated CUDA driver under msmemscope, and the rows of the driver's blocks."""

import json
import os
import subprocess

from dump_rows import rows_of
from recording import wait_finished

MIB = 1 << 20


class Cuda:
    """Runs tests/targets/cuda_memory.c, plain and recorded."""

    def __init__(self, build, tmp_path):
        self.build, self.tmp, self.count = build, tmp_path, 0
        self.program = str(build / "targets" / "cuda_memory")
        self.driver = build / "sim" / "libcuda.so.1"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "LC_ALL": "C.UTF-8",
            "LD_LIBRARY_PATH": str(build / "sim"),
        }

    def plain(self, *words, program=None, **env):
        env = {**self.env, **env}
        words = [program or self.program, *words]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, where, *options):
        return [self.build / "bin" / "msmemscope", f"--output={where}", "--report=off", *options, "--"]

    def record(self, *words, options=(), program=None, **env):
        """(what it printed, rows of the driver's blocks, where)"""
        self.count += 1
        where = self.tmp / f"out{self.count}"
        words = [*self.command(where, *options), program or self.program, *words]
        env = {**self.env, **env}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        for recording in where.glob("recording_*"):
            wait_finished(recording)  # a shell has no events, and does not wait for the files
        rows = [r for r in rows_of(where) if r["Event Type"] == "CUDA"]
        return done.stdout, rows, where

    def show(self, where, question="show"):
        words = [self.build / "bin" / "sonde", "mem", question, "--json", where]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def say(self, where, question="show"):
        words = [self.build / "bin" / "sonde", "mem", question, where]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        return " ".join(done.stdout.split())


def split(rows):
    """Allocations and frees; those that the recorder made up at the end are none."""
    made = [r for r in rows if r["Event"] == "MALLOC"]
    ended = [r for r in rows if r["Event"] == "FREE" and r["attr"].get("shadow") != "true"]
    return made, ended


def sizes(rows):
    return sorted(int(r["attr"]["size"]) for r in rows)


def build_library(cuda, name, source, *link):
    old = "GLIBC_2.17" if os.uname().machine == "aarch64" else "GLIBC_2.2.5"
    path, lib = cuda.tmp / f"{name}.c", cuda.tmp / f"{name}.so"
    path.write_text(source.replace("OLD", f'"{old}"'))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", path, "-o", lib, "-ldl", *link], check=True)
    return lib
