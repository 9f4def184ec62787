# SPDX-License-Identifier: MulanPSL-2.0
"""Programs in Python that use the package msmemscope, and what they leave. See `jobs` in the tests
that use it.

A program begins with PRELUDE: take(size) and give(address) are events of a device's memory in any
interpreter, with or without preloaded libraries.
"""

import os
import pathlib
import subprocess

import dumpcheck
from harness import Session
from recording import HOOKS, clean_env

PRELUDE = """
import os, sys, time
import msmemscope
from sonde import _sonde

_last = [0x7000000000 + (os.getpid() << 20)]


def take(size):
    _last[0] += 0x100000
    address = _last[0]
    _sonde.block_alloc(address, size, 0, _sonde.POOL_PTA)
    return address


def give(address):
    _sonde.block_free(address, 0, 0, _sonde.POOL_PTA)

"""


class Left:
    """What a job has left: its result, and the rows of all its processes."""

    def __init__(self, out, result):
        self.out, self.result = pathlib.Path(out), result
        self.returncode = result.returncode
        self.stdout, self.stderr = result.stdout.decode(), result.stderr.decode("utf-8", "replace")

    def __repr__(self):
        return f"exit {self.returncode}\n{self.stdout[-2000:]}\n{self.stderr[-6000:]}"

    @property
    def recordings(self):
        return [Session(d) for d in sorted(self.out.glob("recording_*"))]

    def wait(self, seconds=30):
        for session in self.recordings:
            session.wait_finished(seconds)
        return self

    @property
    def processes(self):
        self.wait()
        return dumpcheck.check_output(self.out)

    @property
    def rows(self):
        """Of all processes."""
        return [row for process in self.processes for row in process.rows]

    def of(self, event, *types):
        return [r for r in self.rows if r.event == event and (not types or r.type in types)]

    def sizes(self, pid=None):
        """Of what was taken while recording, in order."""
        return [
            int(r.attr["size"])
            for r in self.of("MALLOC")
            if "shadow" not in r.attr and (pid is None or int(r.pid) == pid)
        ]


class Jobs:
    def __init__(self, build, tmp_path):
        self.build, self.tmp, self.made = build, pathlib.Path(tmp_path), 0
        self.started = []

    def env(self, **more):
        return clean_env(self.tmp, **{"PYTHONPATH": self.build / "python", **more})

    def recipe(self, hooks=HOOKS):
        """The environment that the documents tell users to set."""
        lib = self.build / "lib"
        return {
            "LD_PRELOAD": ":".join(str(lib / h) for h in hooks),
            "LD_LIBRARY_PATH": f"{lib}:",
        }

    def place(self):
        self.made += 1
        place = self.tmp / f"job{self.made}"
        place.mkdir()
        return place

    def command(self, python, code, *args, cli=None, options=(), place):
        script = place / "job.py"
        script.write_text(PRELUDE + code)
        words = [getattr(python, "path", python), *options, script, *args]
        if cli is not None:
            out = place / "memscopeDumpResults"
            words = [self.build / "bin/msmemscope", f"--output-path={out}", *cli, "--", *words]
        return [str(w) for w in words]

    def run(self, python, code, *args, cli=None, env=None, options=(), timeout=60, **kw):
        """Runs the program in a directory of its own; `cli`: under msmemscope, with these options."""
        place = self.place()
        command = self.command(python, code, *args, cli=cli, options=options, place=place)
        result = subprocess.run(
            command,
            cwd=place,
            env=self.env(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
            **kw,
        )
        return Left(place / "memscopeDumpResults", result)

    def start(self, python, code, *args, cli=None, env=None, options=(), **kw):
        """The same in the background: the process and its directory."""
        place = self.place()
        command = self.command(python, code, *args, cli=cli, options=options, place=place)
        job = subprocess.Popen(
            command,
            cwd=place,
            env=self.env(**(env or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **kw,
        )
        self.started.append(job)
        return job, place

    def left(self, job, place, timeout=60):
        out, err = job.communicate(timeout=timeout)
        result = subprocess.CompletedProcess(job.args, job.returncode, out, err)
        return Left(place / "memscopeDumpResults", result)

    def end(self):
        for job in self.started:
            if job.poll() is None:
                job.kill()
                job.communicate()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
