# SPDX-License-Identifier: MulanPSL-2.0
"""What is left of the trace of calls: however processes come and end, beside the memory events, as
CSV files and as databases."""

import re
import signal
import sqlite3
import subprocess

import pytest
from harness import Session
from python_traces import THREADS, WORK, Row, names, number, only, read_csv, trace
from pythons import one_per_minor, pythons
from waiting import pause

PER_MINOR = one_per_minor(oldest=8)
ENDS = [PER_MINOR[0], PER_MINOR[-1]]
ANY = [p for p in pythons() if p.minor >= 8][-1]


# --- processes and their ends ---

FORK = WORK + """
msmemscope.config(events="traceback")
msmemscope.start()
leaf(0)

def in_child():
    leaf(1)
    leaf(2)

def parent():
    pid = os.fork()
    if pid == 0:
        in_child()
        os._exit(0)
    os.waitpid(pid, 0)
    leaf(3)

parent()
msmemscope.stop()
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_fork(jobs, python):
    left = jobs.run(python, FORK)
    assert left.returncode == 0, left
    found = trace(left)
    assert len(found) == 2
    parent, child = sorted(found.values(), key=lambda rows: -names(rows)["parent"])
    if names(child)["in_child"] == 0:
        parent, child = child, parent
    assert names(parent)["leaf"] == 2 and names(parent)["in_child"] == 0
    assert names(child)["leaf"] == 2 and names(child)["in_child"] == 1
    assert {r.pid for r in parent}.isdisjoint({r.pid for r in child})
    begun = [r.info.rsplit(": ", 1)[1] for r in child if r.info.startswith("start: ")]
    assert begun[:2] == ["<module>", "parent"], "what the child was doing when it came to be"
    assert not any(r.info.startswith("stop: ") for r in child)


@pytest.mark.parametrize("python", ENDS)
@pytest.mark.parametrize("end", ["exit", "error", "_exit", "kill", "daemons"])
def test_ends(jobs, python, end):
    """However the job ends: what has ended is there, and so is what has not."""
    code = WORK + """
import threading

def busy(n):
    while True:
        leaf(n)
        time.sleep(0.0002)

def last(how):
    leaf(1)
    if how == "exit":
        sys.exit(3)
    if how == "error":
        raise KeyError("planned")
    if how == "_exit":
        os._exit(3)
    if how == "daemons":
        for i in range(3):
            threading.Thread(target=busy, args=(i,), daemon=True).start()
        time.sleep(0.02)
        sys.exit(3)
    print("ready", flush=True)
    time.sleep(60)

msmemscope.config(events="traceback")
msmemscope.start()
last(sys.argv[1])
"""
    job, place = jobs.start(python, code, end)
    if end == "kill":
        assert job.stdout.readline() == b"ready\n"
        pause(0.2, "the recorder reads what there is")
        job.send_signal(signal.SIGKILL)
    left = jobs.left(job, place)
    expected = {"error": 1, "kill": -9}.get(end, 3)
    assert left.returncode == expected, left
    found = trace(left)
    rows = found[min(found)]
    assert names(rows)["leaf"] == 1
    (last,) = [r for r in rows if re.match(r".*: last$", r.info) and r.start]
    assert (last.end is None) == (end in ("_exit", "kill"))
    if end == "kill":
        (sleep,) = [r for r in rows if r.info == "<built-in function sleep>"]
        assert sleep.start and sleep.end is None
    if end == "daemons":
        assert len(found) == 4


def test_both_killed(jobs):
    """The job and its recorder at once: what is left in the buffers comes back."""
    code = WORK + """
def last():
    for i in range(1000):
        leaf(i)
    print("ready", flush=True)
    time.sleep(60)

msmemscope.config(events="traceback")
msmemscope.start()
last()
"""
    job, place = jobs.start(ANY, code)
    assert job.stdout.readline() == b"ready\n"
    pause(0.2, "the recorder reads what there is")
    (session,) = [Session(d) for d in (place / "memscopeDumpResults").glob("recording_*")]
    session.kill_recorder()
    job.kill()
    left = jobs.left(job, place)
    subprocess.run(
        [jobs.build / "bin/sonde", "mem", "recover", session.dir],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    (rows,) = trace(left).values()
    assert names(rows)["leaf"] == 1000 and names(rows)["C:len"] == 1000
    (last,) = [r for r in rows if r.info.endswith(": last")]
    assert last.start and last.end is None


def exported(jobs, left, name):
    (recording,) = [s.dir for s in left.recordings]
    to = left.out.parent / name
    subprocess.run(
        [jobs.build / "bin/sonde", "mem", "export", recording, f"--output-path={to}"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return to


@pytest.mark.parametrize("python", ENDS)
def test_an_export_has_the_same_files(jobs, python):
    left = jobs.run(python, THREADS)
    assert left.returncode == 0, left
    trace(left)
    to = exported(jobs, left, "again")
    first = {p.relative_to(left.out): p.read_bytes() for p in left.out.glob("*/*/*/python_trace*")}
    again = {p.relative_to(to): p.read_bytes() for p in to.glob("*/*/*/python_trace*")}
    assert len(first) >= 9 and first == again


# --- beside the memory events ---

CLOCK = """
def inside():
    address = take(4096)
    give(address)

def main():
    for i in range(5):
        inside()

if __name__ == "__main__":
    msmemscope.config(events="alloc,free,traceback", format=sys.argv[1])
    msmemscope.start()
    main()
    msmemscope.stop()
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_one_clock(jobs, python):
    left, rows = only(jobs, python, CLOCK, "csv")
    calls = sorted((r.start, r.end) for r in rows if r.info.endswith(": inside"))
    events = sorted((int(r.time), r.event) for r in left.of("MALLOC") + left.of("FREE"))
    assert len(calls) == 5 and len(events) == 10
    for i, (start, end) in enumerate(calls):
        (taken, malloc), (given, free) = events[2 * i : 2 * i + 2]
        assert (malloc, free) == ("MALLOC", "FREE") and start <= taken <= given <= end
    (path,) = left.out.glob("*/*/dump/python_trace_*.csv")
    assert path.parent.parent.name == "device_0", "beside the dump of the device"
    assert list(path.parent.glob("memscope_dump_*.csv"))


def tables(path):
    with sqlite3.connect(path) as db:
        return {
            name: db.execute(f"SELECT * FROM {name}").fetchall()
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }


@pytest.mark.parametrize("python", ENDS)
def test_databases(jobs, python):
    left = jobs.run(python, CLOCK, "db")
    assert left.returncode == 0, left
    left.wait()
    (path,) = left.out.glob("*/device_0/dump/*.db")
    found = tables(path)
    (name,) = [n for n in found if n.startswith("python_trace_")]
    rows = [Row(r[0], number(r[1]), number(r[2]), r[3], r[4]) for r in found[name]]
    assert name == f"python_trace_{rows[0].pid}" and names(rows)["inside"] == 5
    assert len(found["memscope_dump"]) >= 10
    (mains,) = [r for r in rows if r.info.endswith(": main")]
    times = [r[4] for r in found["memscope_dump"] if r[1] in ("MALLOC", "FREE")]
    assert all(mains.start <= t <= mains.end for t in times)
    assert [r for r in rows if r.info.startswith("start: ")][0].end is None
    again = exported(jobs, left, "again")  # as CSV
    (file,) = again.glob("*/device_0/dump/python_trace_*.csv")
    assert read_csv(file) == rows


def test_a_database_without_a_dump(jobs):
    code = WORK + """
msmemscope.config(events="traceback", format="db")
msmemscope.start()
leaf(1)
msmemscope.stop()
"""
    left = jobs.run(ANY, code)
    assert left.returncode == 0, left
    left.wait()
    (path,) = left.out.glob("*/device_cpu/dump/*.db")
    assert re.fullmatch(r"python_trace_\d{14}\.db", path.name)
    ((name, rows),) = tables(path).items()
    assert name.startswith("python_trace_") and any(r[0].endswith(": leaf") for r in rows)
    shown = words(jobs, "show", left)
    assert shown.startswith(f"{len(rows)} calls of Python functions were traced, of 1 thread: see")
    assert "the table python_trace_<pid> of the .db" in shown and "no events" not in shown


def words(jobs, question, left):
    command = [jobs.build / "bin" / "sonde", "mem", question, left.out]
    r = subprocess.run(command, capture_output=True, timeout=60)
    assert r.returncode == 0, r.stderr
    return " ".join(r.stdout.decode().split())


def test_questions_about_calls_alone(jobs):
    code = WORK + """
import threading
msmemscope.config(events="traceback")
msmemscope.start()
kept = [take(1000) for _ in range(5)]
thread = threading.Thread(target=lambda: [leaf(i) for i in range(2000)])
thread.start()
thread.join()
msmemscope.stop()
"""
    left = jobs.run(ANY, code)
    assert left.returncode == 0, left
    calls = sum(len(rows) for rows in trace(left).values())
    shown = words(jobs, "show", left)
    assert shown.startswith(f"{calls:,} calls of Python functions were traced, of 2 threads: see")
    assert "python_trace_<thread>_<time>.csv" in shown
    assert "not asked for (--events)" in shown and "no events in this" not in shown
    leaks = words(jobs, "leaks", left)
    assert "left" not in leaks and "not asked for (--events)" in leaks


def test_text_is_quoted(jobs):
    """Names that hold what a CSV file is made of."""
    code = """
msmemscope.config(events="traceback")
msmemscope.start()
strange = 'a,"b"\\nc'
exec(compile("def f(): pass\\nf()", strange, "exec"), {})
with msmemscope.RecordFunction('x,"y"\\nz \\u8bad'):
    pass
msmemscope.stop()
"""
    _, rows = only(jobs, ANY, code)
    infos = [r.info for r in rows]
    assert 'a,"b"?c(1): f' in infos and 'x,"y"\nz 训' in infos
