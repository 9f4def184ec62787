# SPDX-License-Identifier: MulanPSL-2.0
"""Every way that a job can end, and every place for its files that is none: what was recorded is
there, nothing hangs, and the job does not notice."""

import re
import shutil
import signal
import subprocess

import pytest
from capabilities import lacks
from harness import wait_gone
from python_jobs import PRELUDE, Left
from pythons import one_per_minor, pythons
from waiting import pause, wait_until

PER_MINOR = one_per_minor(oldest=8)
NEWEST = [p for p in pythons() if p.minor >= 8][-1]
ENDS = [PER_MINOR[0], PER_MINOR[-1]]


# --- ends ---

END = """
import atexit, threading, gc
msmemscope.config(call_stack="python:10")
msmemscope.start()
log = open("log", "w", buffering=1)

def note(size):
    take(size)
    log.write("%d\\n" % size)

for i in range(200):
    note(100 + i)
how = sys.argv[1]
if how == "atexit":
    atexit.register(lambda: note(9001))
elif how == "daemon":
    def forever():
        while True:
            for _ in range(10):
                take(7)
            time.sleep(0.001)
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.05)
elif how == "exit":
    sys.exit(7)
elif how == "_exit":
    os._exit(8)
elif how == "abort":
    os.abort()
elif how == "kill":
    os.kill(os.getpid(), 9)
elif how == "term":
    os.kill(os.getpid(), 15)
elif how == "raise":
    raise ValueError("on purpose")
elif how == "segv":
    import ctypes
    ctypes.string_at(8)
elif how == "last":
    class Last:
        def __init__(self): self.itself, self.take = self, take
        def __del__(self): self.take(9002)
    Last()
    gc.disable()
elif how == "exec":
    os.execv(sys.executable, [sys.executable, "-c", "print('another')"])
elif how == "thread-exit":
    def leave():
        note(9003)
        os._exit(9)
    threading.Thread(target=leave).start()
    time.sleep(10)
elif how == "shutdown-error":
    class Bad:
        def __del__(self): raise RuntimeError("at the end")
    keep = Bad()
elif how == "excepthook":
    sys.excepthook = None
    raise ValueError
"""
HOWS = {
    "return": 0,
    "atexit": 0,
    "daemon": 0,
    "exit": 7,
    "_exit": 8,
    "abort": -signal.SIGABRT,
    "kill": -signal.SIGKILL,
    "term": -signal.SIGTERM,
    "raise": 1,
    "segv": -signal.SIGSEGV,
    "last": 0,
    "exec": 0,
    "thread-exit": 9,
    "shutdown-error": 0,
    "excepthook": 1,
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("python", ENDS)
def test_end_while_recording(jobs, python, how):
    """Every event that the program knows of is there, whatever it died of."""
    left = jobs.run(python, END, how)
    assert left.returncode == HOWS[how], left
    logged = [int(n) for n in (left.out.parent / "log").read_text().split()]
    sizes = [s for s in left.sizes() if s != 7]
    assert sizes[: len(logged)] == logged and len(logged) >= 200
    assert set(sizes[len(logged) :]) <= {9002}
    assert how != "atexit" or logged[-1] == 9001


@pytest.mark.parametrize("python", ENDS)
def test_kill_at_any_moment(jobs, python):
    code = """
msmemscope.start()
log = open("log", "w", buffering=1)
i = 0
while True:
    for _ in range(100):
        i += 1
        take(i)
        log.write("%d\\n" % i)
    time.sleep(0.002)
"""
    for wait in (0.0, 0.01, 0.03, 0.1):
        job, place = jobs.start(python, code)
        wait_until(lambda: (place / "log").exists() and (place / "log").stat().st_size)
        pause(wait, "any moment")
        job.kill()
        left = jobs.left(job, place)
        logged = (place / "log").read_text().split("\n")[:-1]
        sizes = left.sizes()
        assert sizes[: len(logged)] == [int(n) for n in logged]
        assert len(sizes) <= len(logged) + 1


@pytest.mark.parametrize("python", PER_MINOR)
def test_shutdown_leaves_nothing_behind(jobs, python):
    """Not a process, not a file of the rings; and the messages are those that were expected."""
    left = jobs.run(python, "msmemscope.start()\ntake(3)\n", options=["-X", "dev"])
    assert left.returncode == 0 and left.sizes() == [3], left
    said = r"\[msmemscope\] Info: Start tracing\.\n\[msmemscope\] Info: recording into "
    assert re.match(said, left.stderr)
    assert "Traceback" not in left.stderr and "Warning" not in left.stderr, left
    (session,) = left.recordings
    assert not list(session.dir.glob("*.ring"))
    wait_gone(session.recorder)


# --- places for the files ---


def test_output_that_cannot_be_written(jobs):
    """It is said where and why, once; the job goes on."""
    code = """
msmemscope.config(output_path="/proc/no/such/place")
msmemscope.start()
take(1)
msmemscope.step()
msmemscope.stop()
msmemscope.start()
print("done")
"""
    left = jobs.run(NEWEST, code)
    assert (left.returncode, left.stdout) in ((0, "done\n"), (1, "")), left
    assert "/proc/no/such/place" in left.stderr, left
    if left.returncode:
        assert "Set msmemscope trace config failed!" in left.stderr


def test_directory_that_is_read_only(jobs):
    code = """
os.chdir("/proc/self")
msmemscope.start()
take(1)
msmemscope.stop()
print("done")
"""
    left = jobs.run(NEWEST, code)
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert "nothing is recorded" in left.stderr and "memscopeDumpResults" in left.stderr, left


def test_full_disk(jobs):
    """A file system of two megabytes: what fits is there, the rest is said to be missing."""
    place = jobs.tmp / "small"
    place.mkdir()
    mount = "mount -t tmpfs -o size=2m none " + str(place)
    if subprocess.run(["unshare", "-m", "sh", "-c", mount]).returncode:
        lacks("mount", "cannot mount a tmpfs")
    code = f"""
os.chdir({str(place)!r})
msmemscope.start()
for i in range(30000):
    give(take(i + 1))
msmemscope.stop()
print("done")
"""
    script = jobs.tmp / "job.py"
    script.write_text(PRELUDE + code)
    r = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && exec {NEWEST.path} {script}"],
        env=jobs.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert (r.returncode, r.stdout) == (0, b"done\n"), r


def test_directory_is_removed_while_recording(jobs):
    code = """
import shutil
msmemscope.start()
for i in range(2000):
    give(take(i + 1))
    if i == 1000:
        shutil.rmtree("memscopeDumpResults")
msmemscope.stop()
msmemscope.start()
take(5)
msmemscope.stop()
print("done")
"""
    left = jobs.run(NEWEST, code)
    assert (left.returncode, left.stdout) == (0, "done\n"), left


def test_recorder_is_killed(jobs):
    """What was in the rings is recovered by the command; stop() does not wait for a dead one."""
    code = """
msmemscope.start()
take(1)
print("ready", flush=True)
sys.stdin.readline()
for i in range(100):
    take(100 + i)
begin = time.time()
msmemscope.stop()
assert time.time() - begin < 10
msmemscope.start()
take(2)
msmemscope.stop()
print("done")
"""
    job, place = jobs.start(NEWEST, code)
    assert job.stdout.readline() == b"ready\n"
    left = Left(place / "memscopeDumpResults", subprocess.CompletedProcess([], 0, b"", b""))
    wait_until(lambda: left.recordings and left.recordings[0].recorder)
    (session,) = left.recordings
    session.kill_recorder()
    job.stdin.write(b"\n")
    job.stdin.flush()
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out) == (0, b"done\n"), err
    r = subprocess.run(
        [str(jobs.build / "bin/sonde"), "mem", "recover", str(session.dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert r.returncode == 0, r
    sizes = left_sizes(left)
    assert sizes[:101] == [1] + [100 + i for i in range(100)], sizes


def left_sizes(left):
    import dumpcheck

    rows = [r for p in dumpcheck.check_output(left.out) for r in p.rows]
    return [
        int(r.attr["size"]) for r in rows if r.event == "MALLOC" and "shadow" not in r.attr
    ]


def test_no_program_beside_the_library(jobs, build):
    """Half an installation: it is said, and the job goes on."""
    half = jobs.tmp / "half"
    (half / "lib").mkdir(parents=True)
    shutil.copytree(build / "python", half / "python")
    shutil.copy(build / "lib/libsonde_guest.so", half / "lib")
    code = """
msmemscope.config(call_stack="python:3")
msmemscope.start()
take(1)
msmemscope.step()
msmemscope.stop()
print("done")
"""
    left = jobs.run(NEWEST, code, env={"PYTHONPATH": half / "python"})
    assert (left.returncode, left.stdout) == (0, "done\n"), left
    assert "nothing is recorded" in left.stderr, left


def test_no_library_at_all(jobs, build):
    half = jobs.tmp / "half"
    half.mkdir()
    shutil.copytree(build / "python", half / "python")
    code = """
try:
    msmemscope.start()
except RuntimeError as e:
    print("done", e)
"""
    job = code.join(["import msmemscope\n", ""])
    (jobs.tmp / "half.py").write_text(job)
    r = subprocess.run(
        [NEWEST.path, str(jobs.tmp / "half.py")],
        env=jobs.env(PYTHONPATH=half / "python"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert r.returncode == 0 and b"libsonde_guest.so" in r.stdout, r


def test_job_closes_every_descriptor(jobs):
    code = """
msmemscope.start()
take(1)
os.closerange(3, 256)
take(2)
msmemscope.stop()
msmemscope.start()
take(3)
msmemscope.stop()
os.closerange(0, 3)
msmemscope.start()
take(4)
msmemscope.stop()
msmemscope.start()
take(5)
"""
    left = jobs.run(NEWEST, code)
    assert left.returncode == 0, left
    assert left.sizes() == [1, 2, 3, 4, 5]


def test_limit_of_descriptors(jobs):
    """None is left to open anything with: nothing is recorded, nothing breaks."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
msmemscope.start()
take(1)
msmemscope.stop()
print("done")
"""
    left = jobs.run(NEWEST, code)
    assert (left.returncode, left.stdout) == (0, "done\n"), left
