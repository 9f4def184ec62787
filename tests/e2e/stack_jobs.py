# SPDX-License-Identifier: MulanPSL-2.0
"""For tests of `sonde stack`: Python programs to look at, and files to look into."""

import collections
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys

# Says "ready" and stands at a known place until its standard input ends.
PARKED = """
import sys, threading

def innermost(gate):
    gate.wait()

def outermost(gate):
    innermost(gate)

gate = threading.Event()
for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 0):
    threading.Thread(target=outermost, args=(gate,), name="helper %d" % i, daemon=True).start()

def wait_here():
    sys.stdin.readline()

print("ready", flush=True)
wait_here()
"""

# Is in alpha() and beta() by turns.
BUSY = """
import sys, time

def alpha():
    time.sleep(0.02)

def beta():
    time.sleep(0.02)

def loop(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        alpha()
        beta()

print("ready", flush=True)
loop(float(sys.argv[1]))
"""


class Jobs:
    """Starts programs and samplers; all of them are ended with the test."""

    def __init__(self, build, tmp_path):
        self.bin = pathlib.Path(build) / "bin"
        self.tmp = pathlib.Path(tmp_path)
        self.running = []

    def env(self, **more):
        base = {"HOME": str(self.tmp), "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        base.update(more)
        return base

    def script(self, text, name="job.py"):
        path = self.tmp / name
        path.write_text(text)
        return path

    def python(self, text, *words, python=sys.executable, name="job.py", env=None):
        """Starts it and waits until it says that it is ready."""
        job = self.start(
            str(python), str(self.script(text, name)), *words, env=env, stdin=subprocess.PIPE
        )
        assert job.stdout.readline().strip() == "ready"
        return job

    def start(self, *words, env=None, **kw):
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        kw.setdefault("cwd", self.tmp)
        job = subprocess.Popen(
            [str(w) for w in words],
            env=self.env(**(env or {})),
            universal_newlines=True,
            **kw,
        )
        self.running.append(job)
        return job

    def sonde(self, *words, name="sonde", env=None, timeout=60, **kw):
        kw.setdefault("cwd", self.tmp)
        return subprocess.run(
            [str(self.bin / name), *map(str, words)],
            env=self.env(**(env or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=timeout,
            **kw,
        )

    def stack(self, *words, **kw):
        return self.sonde("stack", *words, **kw)

    def begin(self, *words, env=None, **kw):
        """A sampler that goes on while the test does something."""
        return self.start(self.bin / "sonde", "stack", *words, env=env, **kw)

    def close(self):
        for job in self.running:
            if job.poll() is None:
                job.send_signal(signal.SIGCONT)
                job.kill()
            if job.stdin and job.stdin.closed:
                job.stdin = None
            job.communicate()


def holds(path, text):
    """Whether the file is there and has the text in it."""
    try:
        return text in pathlib.Path(path).read_text()
    except FileNotFoundError:
        return False


def read(path):
    """The events of a complete file."""
    data = pathlib.Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    trace = json.loads(data)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    return trace["traceEvents"]


def repaired(path):
    """The events of a file that is being written, or was when its writer was killed."""
    text = pathlib.Path(path).read_text()
    try:
        trace = json.loads(text)
    except ValueError:
        trace = json.loads(text + ("}" if text[0] == "{" else "]"))
    return trace if isinstance(trace, list) else trace["traceEvents"]


def check(events):
    """B and E balance in every thread, names match, time does not go back."""
    stacks, last = collections.defaultdict(list), collections.defaultdict(float)
    for e in events:
        if e["ph"] not in "BE":
            continue
        key = (e["pid"], e["tid"])
        assert e["ts"] >= last[key], e
        last[key] = e["ts"]
        if e["ph"] == "B":
            stacks[key].append(e["name"])
        else:
            assert stacks[key].pop() == e["name"], e
    assert not any(stacks.values())
    return events


def functions(events, pid=None, tid=None):
    """The functions that were seen, in the order they were first seen."""
    seen = []
    for e in events:
        if e["ph"] != "B" or (pid and e["pid"] != pid) or (tid and e["tid"] != tid):
            continue
        if e["args"]["function"] not in seen:
            seen.append(e["args"]["function"])
    return seen


def named(events, what, pid=None):
    return [
        e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == what and (pid is None or e["pid"] == pid)
    ]


def pids(events):
    return {e["pid"] for e in events if e["ph"] == "B"}
