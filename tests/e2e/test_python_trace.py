# SPDX-License-Identifier: MulanPSL-2.0
"""Calls of Python functions (events="traceback"): what the trace says is compared with what the
program itself counts, and with what the interpreter tells to a profile function of the program's."""

import collections
import json
import re
import signal
import sqlite3
import subprocess
import time

import pytest
from harness import Session
from python_jobs import Jobs
from python_traces import WORK, Row, names, number, only, read_csv, trace
from pythons import one_per_minor, pythons

PER_MINOR = one_per_minor(oldest=8)
OLD = [p for p in PER_MINOR if p.values[0] and p.values[0].minor < 12]
NEW = [p for p in PER_MINOR if p.values[0] and p.values[0].minor >= 12]
ENDS = [PER_MINOR[0], PER_MINOR[-1]]
ANY = [p for p in pythons() if p.minor >= 8][-1]


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.end()


# --- every call ---

ORACLE = """
import json

seen = {}

def tell(frame, event, arg):
    code = frame.f_code
    if event == "call" and code.co_filename == os.path.abspath(__file__):
        seen[code.co_name] = seen.get(code.co_name, 0) + 1
    if event == "c_call":
        name = "C:" + arg.__name__
        seen[name] = seen.get(name, 0) + 1

work()  # what is done once is done
sys.setprofile(tell)
work()
sys.setprofile(None)
print(json.dumps(seen))
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_every_call(jobs, python):
    code = WORK + ORACLE + """
msmemscope.config(events="traceback")
msmemscope.start()
work()
msmemscope.stop()
"""
    left, rows = only(jobs, python, code)
    expected = collections.Counter(json.loads(left.stdout))
    assert expected["leaf"] > 10 and expected["C:len"] > 10
    del expected["C:setprofile"]
    found = names(rows)
    stack = [r.info.split(": ", 1)[0] for r in rows if r.info.startswith(("start: ", "stop: "))]
    assert stack == ["start", "stop"], "of the program itself"
    assert found.pop("<module>") == 2 + expected["<module>"]
    del expected["<module>"]
    assert found == expected
    assert all(r.start is not None for r in rows if not r.info.startswith("stop: "))
    assert all(r.end is not None for r in rows if not r.info.startswith("start: "))


@pytest.mark.parametrize("python", PER_MINOR)
def test_recursion_to_the_limit(jobs, python):
    code = """
entered = 0

def endless():
    global entered
    entered += 1
    endless()

def runs_out():
    try:
        endless()
    except RecursionError:
        pass

msmemscope.config(events="traceback")
for limit in (100, 5000):
    sys.setrecursionlimit(limit)
    msmemscope.start()
    runs_out()
    runs_out()
    msmemscope.stop()
print(entered)
"""
    left, rows = only(jobs, python, code)
    # The last one fails where it begins: whether it has begun then is a matter of the version.
    entered = int(left.stdout)
    assert entered > 9000 and entered <= names(rows)["endless"] <= entered + 4
    assert names(rows)["runs_out"] == 4
    ended = [r for r in rows if names([r])["endless"]]
    assert all(r.start and r.end for r in ended)


@pytest.mark.parametrize("python", PER_MINOR)
def test_windows(jobs, python):
    """Nothing between stop() and start(), and every window as whole as the first."""
    code = WORK + """
def windows(n):
    msmemscope.config(events="traceback")
    for i in range(n):
        msmemscope.start()
        leaf(i)
        msmemscope.stop()
        catches()
    msmemscope.config(events="alloc,free")
    msmemscope.start()
    catches()
    msmemscope.config(events="traceback,alloc")
    leaf(1)
    msmemscope.config(events="alloc,free")
    catches()
    msmemscope.stop()

windows(20)
"""
    _, rows = only(jobs, python, code)
    found = names(rows)
    assert (found["leaf"], found["C:len"], found["catches"]) == (21, 21, 0)
    for prefix in "start", "stop":
        outer = [r for r in rows if re.match(rf"{prefix}: .*: windows$", r.info)]
        assert len(outer) == 21
        assert all((r.start is None) == (prefix == "stop") for r in outer)
        assert all((r.end is None) == (prefix == "start") for r in outer)


# --- threads ---

THREADS = """
import _thread, json, threading

def leaf(n):
    return n

def loop(n, told):
    told.append((threading.get_native_id(), n))
    for i in range(n):
        leaf(i)

def waits(event, n, told):
    event.wait()
    loop(n, told)

def starts(n, told):
    loop(n, told)
    t = threading.Thread(target=loop, args=(n + 1, told))
    t.start()
    t.join()

def main():
    told, event = [], threading.Event()
    before = [threading.Thread(target=waits, args=(event, 100 + i, told)) for i in range(3)]
    for t in before:
        t.start()
    msmemscope.config(events="traceback")
    msmemscope.start()
    event.set()
    after = [threading.Thread(target=starts, args=(200 + 2 * i, told)) for i in range(3)]
    for t in after:
        t.start()
    _thread.start_new_thread(loop, (300, told))
    for t in before + after:
        t.join()
    while len(told) < 10:
        time.sleep(0.001)
    time.sleep(0.05)
    msmemscope.stop()
    print(json.dumps(told))

main()
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_threads(jobs, python):
    left = jobs.run(python, THREADS)
    assert left.returncode == 0, left
    told = json.loads(left.stdout)
    assert len(told) == 10
    found = trace(left)
    calls = collections.Counter(t for t, rows in found.items() for r in rows if "): leaf" in r.info)
    expected = collections.Counter()
    for tid, n in told:  # the kernel may give a number twice
        expected[tid] += n
    assert calls == expected
    waiting = [r for rows in found.values() for r in rows if re.match("start: .*: waits$", r.info)]
    assert len(waiting) == 3 and all(r.start and r.end for r in waiting)


# --- others who look ---


@pytest.mark.parametrize("python", NEW)
def test_other_tools_see_what_they_did(jobs, python):
    """From 3.12 on everybody sees everything."""
    code = WORK + """
import cProfile, pstats, threading

def profiled():
    p = cProfile.Profile()
    p.enable()
    work()
    p.disable()
    return {(k[2]): v[1] for k, v in pstats.Stats(p).stats.items()}

def lines():
    seen = [0]
    def look(frame, event, arg):
        seen[0] += 1
        return look
    sys.settrace(look)
    work()
    sys.settrace(None)
    return seen[0]

def called():
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append((event, frame.f_code.co_name)))
    work()
    sys.setprofile(None)
    # Whether it sees the end of the call that set it depends on what ran before.
    return [event for event in seen if event[1] != "called"]

work()
plain = profiled(), lines(), called()
msmemscope.config(events="traceback")
msmemscope.start()
traced = profiled(), lines(), called()
msmemscope.stop()
print(traced == plain, len(plain[0]), plain[1])
"""
    left, rows = only(jobs, python, code)
    assert left.stdout.split()[0] == "True", left
    assert names(rows)["work"] == 3 and names(rows)["catches"] == 3


@pytest.mark.parametrize("python", OLD)
def test_threads_of_a_profiler_are_left_alone(jobs, python):
    """Up to 3.11 a thread has one profile function, and it stays the program's."""
    code = WORK + """
import threading
seen = []

def mine(frame, event, arg):
    seen.append(event)

def other():
    leaf(1)
    ready.set()
    go.wait()
    for i in range(40):
        leaf(i)

ready, go = threading.Event(), threading.Event()
t = threading.Thread(target=other)
t.start()
ready.wait()
sys.setprofile(mine)
msmemscope.config(events="traceback")
msmemscope.start()
go.set()
catches()
late = threading.Thread(target=lambda: leaf(1))
late.start()
late.join()
t.join()
assert sys.getprofile() is mine
sys.setprofile(None)
msmemscope.step()
fails_once = catches()
msmemscope.stop()
assert sys.getprofile() is None and threading._profile_hook is None
assert seen.count("call") > 5
"""
    left = jobs.run(python, code)
    assert left.returncode == 0, left
    assert left.stderr.count("a profiler is at work") == 1
    found = [names(rows) for rows in trace(left).values()]
    assert sorted(n["leaf"] for n in found) == [0, 1, 40]
    assert sum(n["catches"] for n in found) == 1, "from the step on the thread is free"


@pytest.mark.parametrize("python", NEW)
def test_no_tool_id_is_free(jobs, python):
    code = WORK + """
for i in (3, 4, 5):
    sys.monitoring.use_tool_id(i, "somebody")
msmemscope.config(events="traceback")
msmemscope.start()
work()
msmemscope.stop()
assert [sys.monitoring.get_tool(i) for i in range(6)] == [None] * 3 + ["somebody"] * 3
sys.monitoring.free_tool_id(4)
msmemscope.start()
assert sys.monitoring.get_tool(4) == "msmemscope"
work()
msmemscope.stop()
assert sys.monitoring.get_tool(4) is None
"""
    left, rows = only(jobs, python, code)
    assert "every tool id of sys.monitoring is in use" in left.stderr
    assert names(rows)["work"] == 1


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
        time.sleep(0.2)
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
    time.sleep(0.2)
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


# --- the shortcut ---


@pytest.mark.parametrize("python", ENDS)
def test_tracer(jobs, python):
    code = WORK + """
from sonde import _sonde
tracer = msmemscope.tracer
tracer.stop()
tracer.start()
assert _sonde.tracing()
leaf(1)
tracer.start()
tracer.stop()
assert not _sonde.tracing()
catches()
msmemscope.start()
tracer.start()
leaf(2)
tracer.stop()
assert _sonde.tracing() and _sonde.settings()["dump_events"] == 7
catches()
msmemscope.stop()
"""
    left, rows = only(jobs, python, code)
    assert names(rows)["leaf"] == 2 and names(rows)["catches"] == 0
    assert left.stderr.count("Python calls are being traced already") == 1
    assert left.stderr.count("Python calls are not being traced") == 1


@pytest.mark.parametrize("python", ENDS)
def test_under_the_command(jobs, python):
    """--events=traceback: from the beginning, as soon as the package is there."""
    left = jobs.run(python, WORK + "work()\n", cli=["--events=alloc,traceback"])
    assert left.returncode == 0, left
    (rows,) = trace(left).values()
    assert names(rows)["work"] == 1 and names(rows)["leaf"] > 10


# --- much of it ---


@pytest.mark.parametrize("python", ENDS)
def test_nothing_is_kept(jobs, python):
    """Code that comes and goes, in many windows: neither it nor we grow."""
    code = """
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4

def fresh(i):
    exec(f"def f{i}(): return {i}\\nf{i}()", {})

msmemscope.config(events="traceback")
for window in range(6):
    msmemscope.start()
    for i in range(3000):
        fresh(i)
    msmemscope.stop()
    if window == 1:
        first = rss()
print(rss() - first)
"""
    left, rows = only(jobs, python, code)
    assert names(rows)["fresh"] == 18000
    assert int(left.stdout) < 6000, "KiB; 12,000 functions have come and gone"


@pytest.mark.parametrize("python", ENDS)
def test_a_million_calls(jobs, python):
    """Many times what fits into the ring: nothing is lost, and the files are whole."""
    code = """
def leaf():
    pass

def loop():
    for i in range(500000):
        leaf()
        len("")

msmemscope.config(events="traceback")
msmemscope.start()
loop()
msmemscope.stop()
"""
    left = jobs.run(python, code)
    assert left.returncode == 0, left
    left.wait()
    (path,) = left.out.glob("*/*/dump/python_trace_*.csv")
    text = path.read_text()
    assert text.count("): leaf,") == 500000 and text.count("<built-in function len>,") == 500000
    assert text.count("\n") == 1 + 1000000 + 1 + 2, "header, loop, and the module twice"
