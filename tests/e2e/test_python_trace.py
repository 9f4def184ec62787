# SPDX-License-Identifier: MulanPSL-2.0
"""Calls of Python functions (events="traceback"): what the trace says is compared with what the
program itself counts, and with what the interpreter tells to a profile function of its own."""

import collections
import json
import re

import pytest
from python_traces import THREADS, WORK, names, only, trace
from pythons import one_per_minor

PER_MINOR = one_per_minor(oldest=8)
OLD = [p for p in PER_MINOR if p.values[0] and p.values[0].minor < 12]
NEW = [p for p in PER_MINOR if p.values[0] and p.values[0].minor >= 12]
ENDS = [PER_MINOR[0], PER_MINOR[-1]]


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
for window in range(10):
    msmemscope.start()
    for i in range(3000):
        fresh(i)
    msmemscope.stop()
    if window == 5:  # the rings have grown by then, as far as the recorder lets them
        first = rss()
print(rss() - first)
"""
    left, rows = only(jobs, python, code)
    assert names(rows)["fresh"] == 30000
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
