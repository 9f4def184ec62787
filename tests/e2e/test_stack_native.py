# SPDX-License-Identifier: MulanPSL-2.0
"""Native frames: functions of C between, below and above those of Python, in one stack."""

import json
import os
import signal
import subprocess
import sys

import pytest

from capabilities import lacks, needs
from pythons import every_python
from stack_jobs import PARKED, Jobs, check, read
from waiting import pause, wait_until

# C calls Python: qsort() of the C library, its comparison in Python, which stands still.
CALLBACK = """
import ctypes, time

libc = ctypes.CDLL(None)
Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

def wait_here():
    time.sleep(1000)

def compare(a, b):
    print("ready", flush=True)
    wait_here()
    return 0

def sort_all():
    libc.qsort((ctypes.c_int * 3)(3, 1, 2), 3, 4, Compare(compare))

def outermost():
    sort_all()

outermost()
"""

# Threads of which each does something else.
THREADS = """
import sys, threading, time

lock = threading.Lock()
lock.acquire()

def hold_the_gil():
    while True:
        sum(range(1000))

def want_the_lock():
    lock.acquire()

for f in hold_the_gil, hold_the_gil, want_the_lock:
    threading.Thread(target=f, name=f.__name__, daemon=True).start()

print("ready", flush=True)
sys.stdin.readline()
"""

# Deeper than the interpreter likes, and as many calls in C where each Python call is one.
DEEP = """
import sys, time
sys.setrecursionlimit(3000)

def down(n):
    if n:
        return down(n - 1)
    print("ready", flush=True)
    time.sleep(1000)

down(500)
"""

# Says a dot when it is interrupted; it ends after so many, and says how many there were.
COUNTING = """
import os, signal, sys, time

seen, wanted = 0, int(sys.argv[1])

def on_signal(*_):
    global seen
    seen += 1
    os.write(1, b".")

signal.signal(signal.SIGUSR1, on_signal)
print("ready", flush=True)
while seen < wanted:
    time.sleep(0.001)
print(seen, flush=True)
"""


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def snap(jobs, pid, *words):
    """Thread name -> its frames as (kind, function), outermost first."""
    done = jobs.sonde("snap", "-p", pid, "--native", "--json", *words)
    assert done.returncode == 0, done.stderr
    threads = {}
    for group in json.loads(done.stdout)["groups"]:
        frames = [(f["kind"], f["name"]) for f in reversed(group["frames"])]
        for thread in group["threads"]:
            threads.setdefault(thread["name"], []).append(frames)
    return threads


def main_stack(jobs, pid, *words):
    (frames,) = snap(jobs, pid, *words)["MainThread"]
    return frames


def position(frames, kind, *names):
    """Where the first frame of that kind is whose name begins with one of these."""
    for i, (k, name) in enumerate(frames):
        if k == kind and name.startswith(names):
            return i
    raise AssertionError(f"no {kind} {names} in {frames}")


def is_asleep(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "S"


@pytest.mark.parametrize("python", every_python())
def test_c_and_python_take_turns(jobs, python):
    job = jobs.python(CALLBACK, python=python.path)
    wait_until(lambda: is_asleep(job.pid))
    frames = main_stack(jobs, job.pid)
    names = [name for kind, name in frames if kind == "python"]
    assert names == ["<module>", "outermost", "sort_all", "compare", "wait_here"]
    below = position(frames, "python", "sort_all")
    qsort = position(frames, "native", "qsort")
    above = position(frames, "python", "compare")
    assert below < qsort < above
    # The thread begins in C and ends there, and the interpreter's own machinery is not shown.
    assert frames[0][0] == "native" and frames[-1][0] == "native"
    assert not [name for _, name in frames if "_PyEval_EvalFrame" in name]
    asleep = [name for _, name in frames[position(frames, "python", "wait_here") :]]
    assert any(name.endswith(("select", "clock_nanosleep")) for name in asleep)
    assert job.poll() is None


@pytest.mark.parametrize("python", every_python())
def test_deep_stacks(jobs, python):
    job = jobs.python(DEEP, python=python.path)
    wait_until(lambda: is_asleep(job.pid))
    frames = main_stack(jobs, job.pid)
    assert [name for kind, name in frames if kind == "python"] == ["<module>"] + ["down"] * 501
    first, last = position(frames, "python", "<module>"), len(frames) - 1
    while frames[last][0] == "native":
        last -= 1
    assert all(kind == "python" for kind, _ in frames[first:last])


def test_threads_and_their_locks(jobs):
    job = jobs.python(THREADS)

    def inside(frames, function, *names):
        """Whether that function of Python called one of these, and is in it."""
        try:
            return position(frames, "native", *names) > position(frames, "python", function)
        except AssertionError:
            return False

    def all_are_there():
        threads = snap(jobs, job.pid, "--all-threads")
        assert len(threads["hold_the_gil"]) == 2
        (locked,), (main,) = threads["want_the_lock"], threads["MainThread"]
        gil = "take_gil", "pthread_cond_timedwait"
        return (
            any(inside(frames, "hold_the_gil", *gil) for frames in threads["hold_the_gil"])
            and inside(locked, "want_the_lock", "PyThread_acquire_lock", "_PySemaphore_Wait")
            and inside(main, "<module>", "read", "__read", "__GI___libc_read", "__libc_read")
        )

    wait_until(all_are_there)


def test_only_the_threads_that_are_asked_for_are_stopped(jobs):
    job = jobs.python(THREADS)
    threads = snap(jobs, job.pid)
    assert set(threads) == {"MainThread"}


def test_the_process_does_not_notice(jobs):
    job = jobs.python(COUNTING, "200")
    sampler = jobs.begin(
        "-p", job.pid, "--native", "--all-threads", "-i", "0.002", "-o", jobs.tmp / "trace.json"
    )
    wait_until(lambda: (jobs.tmp / "trace.json").exists())
    for _ in range(200):  # one after the other: signals of one kind that wait are one
        job.send_signal(signal.SIGUSR1)
        assert job.stdout.read(1) == "."
        pause(0.002, "the pace of the signals")
    assert sampler.wait(30) == 0, sampler.stderr.read()
    assert job.wait(30) == 0
    assert job.stdout.read() == "200\n"
    events = check(read(jobs.tmp / "trace.json"))
    functions = {e["args"]["function"] for e in events if e["ph"] == "B"}
    assert "<module>" in functions
    assert any("nanosleep" in f or "select" in f for f in functions)


def test_a_stopped_process_stays_stopped(jobs):
    job = jobs.python(PARKED)
    wait_until(lambda: is_asleep(job.pid))
    job.send_signal(signal.SIGSTOP)

    def state():
        with open(f"/proc/{job.pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    wait_until(lambda: state() == "T")
    frames = main_stack(jobs, job.pid)
    assert position(frames, "python", "wait_here")
    assert state() == "T"
    job.send_signal(signal.SIGCONT)
    job.stdin.write("\n")
    job.stdin.close()
    assert job.wait(30) == 0


def test_a_killed_sampler_leaves_nothing_stopped(jobs):
    job = jobs.python(COUNTING, "1")
    for i in range(5):
        out = jobs.tmp / f"{i}.json"
        sampler = jobs.begin("-p", job.pid, "--native", "-i", "0.001", "-o", out)
        wait_until(lambda: out.exists() and out.stat().st_size > 500)
        pause(0.03 + 0.007 * i, "any moment")
        sampler.kill()
        sampler.wait(30)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(30) == 0


DEBUGGER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0  # PTRACE_SEIZE
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_debugger_keeps_its_process(jobs):
    job = jobs.python(PARKED)
    debugger = jobs.python(DEBUGGER, str(job.pid), name="debugger.py")
    done = jobs.sonde("snap", "-p", job.pid, "--native")
    debugger.kill()
    debugger.wait(30)
    # The Python stack is there all the same, and it is said why there is no more.
    assert "wait_here" in done.stdout
    assert "is traced by process" in done.stderr


@pytest.mark.needs("root")
def test_a_process_in_another_mount_namespace_and_deleted(jobs, tmp_path):
    """Files are looked for where the process sees them, and as it has them open."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = jobs.script(CALLBACK)
    shell = (
        f"mount -t tmpfs none {hidden} && cp $(readlink -f {sys.executable}) {hidden}/py && "
        f"PYTHONHOME={sys.base_prefix} {hidden}/py {script} & pid=$!; wait $pid"
    )
    needs("unshare")
    job = jobs.start("unshare", "-m", "sh", "-c", shell)
    line = job.stdout.readline().strip()
    if line != "ready":
        lacks("mount", f"cannot mount a tmpfs: {job.stderr.read()}")
    children = subprocess.run(
        ["pgrep", "-f", f"{hidden}/py {script}"], stdout=subprocess.PIPE, text=True, check=True
    )
    pid = int(children.stdout.split()[-1])
    try:
        wait_until(lambda: is_asleep(pid))
        frames = main_stack(jobs, pid)
        names = [name for kind, name in frames if kind == "python"]
        assert names == ["<module>", "outermost", "sort_all", "compare", "wait_here"]
        assert position(frames, "native", "qsort")
        os.unlink(f"/proc/{pid}/root{hidden}/py")
        frames = main_stack(jobs, pid)
        assert position(frames, "native", "qsort") < position(frames, "python", "compare")
    finally:
        os.kill(pid, signal.SIGKILL)
