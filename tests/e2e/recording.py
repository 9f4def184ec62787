# SPDX-License-Identifier: MulanPSL-2.0
"""Runs jobs under msmemscope and reads what they left. See the fixture `record` in conftest.py."""

import os
import pathlib
import struct
import subprocess

import dumpcheck
from waiting import wait_until

HOOKS = [
    "libleaks_ascend_hal_hook.so",
    "libascend_mstx_hook.so",
    "libascend_kernel_hook.so",
    "libatb_abi_0_hook.so",
    "libatb_abi_1_hook.so",
]
FINISHED = 2


def clean_env(tmp_path, **more):
    """An environment of our own, with a simulated machine of our own."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
        "SIM_NPU_STATE": str(tmp_path / "npu"),
    }
    env.update({k: str(v) for k, v in more.items()})
    return env


def session_state(recording):
    with open(recording / "session", "rb") as f:
        magic, _version, state = struct.unpack("<8sII", f.read(16))
    assert magic == b"SESSION1"
    return state


def wait_finished(recording, seconds=20):
    """Until the recorder has left: only then is everything in its final form."""
    what = f"the recorder of {recording} to finish"
    ended = lambda: session_state(recording) == FINISHED and not list(recording.glob("*.ring"))
    wait_until(ended, what, seconds, 0.005)
    # State first, then the last frame and the files.
    last = lambda: b"FRM1\x05" in (recording / "events.sonde").read_bytes()[-24:]
    wait_until(last, what, seconds, 0.005)


class Recording:
    def __init__(self, build, out, result, scratch):
        self.build, self.out, self.result, self.scratch = build, out, result, scratch
        (self.dir,) = sorted(out.glob("recording_*"))
        self.stdout, self.stderr = result.stdout, result.stderr
        self.returncode = result.returncode
        wait_finished(self.dir)
        self.processes = dumpcheck.check_output(out)
        dumpcheck.check_replay(build, self.dir, out, scratch)

    @property
    def process(self):
        (only,) = self.processes
        return only

    @property
    def rows(self):
        return self.process.rows

    def of(self, *events, **fields):
        """Rows of these events whose fields have these values."""
        return [
            r
            for r in self.rows
            if (not events or r.event in events)
            and all(getattr(r, k) == v for k, v in fields.items())
        ]

    @property
    def log(self):
        return (self.dir / "msmemscope.log").read_text()


class Recorder:
    """`record(program, args…)` with options in opts; several calls make several outputs."""

    def __init__(self, build, tmp_path):
        self.build, self.tmp = build, tmp_path
        self.runs = 0
        self.sim = build / "sim"
        self.targets = build / "targets"
        self.msmemscope = (str(build / "bin" / "msmemscope"),)

    def env(self, **more):
        return clean_env(self.tmp, **more)

    def program(self, name):
        for place in (self.targets, self.sim):
            if (place / str(name)).exists():
                return str(place / name)
        return str(name)

    def plain(self, *words, env=None, **kw):
        """The same run without us."""
        kw.setdefault("cwd", self.tmp)
        return subprocess.run(
            [self.program(words[0]), *map(str, words[1:])],
            env=self.env(**(env or {})),
            capture_output=True,
            timeout=60,
            **kw,
        )

    def start(self, *words, opts=(), env=None, **kw):
        self.runs += 1
        out = self.tmp / f"out{self.runs}"
        kw.setdefault("cwd", self.tmp)
        return out, [
            *self.msmemscope,
            f"--output-path={out}",
            *opts,
            "--",
            self.program(words[0]),
            *map(str, words[1:]),
        ]

    def raw(self, *words, opts=(), env=None, **kw):
        """Output directory and result of a recorded run, nothing checked."""
        out, command = self.start(*words, opts=opts)
        kw.setdefault("cwd", self.tmp)
        result = subprocess.run(
            command, env=self.env(**(env or {})), capture_output=True, timeout=60, **kw
        )
        return out, result

    def __call__(self, *words, **kw):
        out, result = self.raw(*words, **kw)
        return self.read(out, result)

    def read(self, out, result):
        return Recording(self.build, pathlib.Path(out), result, self.tmp / f"scratch{self.runs}")

    def sonde(self, *words, **kw):
        return subprocess.run(
            [str(self.build / "bin" / "sonde"), *map(str, words)],
            env=self.env(),
            capture_output=True,
            timeout=60,
            cwd=self.tmp,
            **kw,
        )
