# SPDX-License-Identifier: MulanPSL-2.0
"""Reads the trace of calls that a program in Python has left, and a program with many kinds of
them."""

import collections
import csv
import re

HEADER = ["FuncInfo", "StartTime(ns)", "EndTime(ns)", "Thread Id", "Process Id"]

Row = collections.namedtuple("Row", "info start end tid pid")


def number(text):
    return None if text == "N/A" else int(text)


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as f:
        lines = list(csv.reader(f))
    assert lines[0] == HEADER
    rows = [Row(x[0], number(x[1]), number(x[2]), int(x[3]), int(x[4])) for x in lines[1:]]
    tid = int(re.fullmatch(r"python_trace_(\d+)_\d{14}\.csv", path.name)[1])
    assert all(r.tid == tid for r in rows), "one file per thread"
    return rows


def trace(left):
    """{tid: rows} of all processes."""
    left.wait()
    rows = {}
    for path in sorted(left.out.glob("*/device_*/dump/python_trace_*.csv")):
        of_thread = read_csv(path)
        assert of_thread and of_thread[0].tid not in rows
        rows[of_thread[0].tid] = of_thread
    for of_thread in rows.values():
        check_nesting(of_thread)
        called = {r.info for r in of_thread}
        assert not any(re.search("/python/(msmemscope|sonde)/", info) for info in called)
    return rows


def check_nesting(rows):
    """Two calls of a thread lie one in the other, or one behind the other."""
    whole = sorted((r.start, -r.end) for r in rows if r.start is not None and r.end is not None)
    open_ends = []
    for start, end in whole:
        end = -end
        assert start <= end
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], "calls overlap"
        open_ends.append(end)


def names(rows):
    """Counts what was called: functions of the script by their last name, those of C by theirs."""
    count = collections.Counter()
    for info, times in collections.Counter(r.info for r in rows).items():
        own = re.search(r"/job\.py\(\d+\): (?:.*\.)?(\S+)$", info)
        native = re.fullmatch(r"<built-in (?:function|method) (\S+).*>", info)
        if own:
            count[own[1]] += times
        elif native:
            count["C:" + native[1]] += times
    return count


def only(jobs, python, code, *args, **kw):
    """The rows of a job with one thread."""
    left = jobs.run(python, code, *args, **kw)
    assert left.returncode == 0, left
    (rows,) = trace(left).values()
    return left, rows


# Behind the prelude of python_jobs.
WORK = """
import functools, math, re

def leaf(n):
    return len([n])

def fails(n):
    if n:
        return fails(n - 1)
    raise ValueError("x")

def catches():
    try:
        fails(3)
    except ValueError:
        return "".join(["a", "b"])

def counts_to(n):
    for i in range(n):
        yield leaf(i)

def stops_early():
    g = counts_to(100)
    next(g)
    next(g)
    g.close()
    g = counts_to(3)
    next(g)
    try:
        g.throw(KeyError)
    except KeyError:
        pass
    unstarted = counts_to(3)
    unstarted.close()

def delegates():
    yield from counts_to(2)

class Awaited:
    def __await__(self):
        yield 1
        yield 2

async def inner():
    await Awaited()

async def outer():
    await inner()
    await inner()

def drives():
    c = outer()
    try:
        while True:
            c.send(None)
    except StopIteration:
        pass

class Thing:
    def __init__(self, n):
        self.n = n

    @property
    def double(self):
        return self.n * 2

    @staticmethod
    def fixed(*args, **kw):
        return math.sqrt(4.0)

    @classmethod
    def make(cls):
        return cls(3)

    def __eq__(self, other):
        return False

    def __len__(self):
        return 7

def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)

def wrapped(f):
    @functools.wraps(f)
    def around(*args):
        return f(*args)
    return around

@wrapped
def hidden(n):
    return int.from_bytes(b"ab", "big") + n

def work():
    for i in range(3):
        leaf(i)
    catches()
    sum(counts_to(3))
    list(delegates())
    stops_early()
    drives()
    t = Thing.make()
    t.double
    t.fixed(1, *[2], **{"a": 3})
    t == 1
    len(t)
    sorted([3, 1, 2], key=lambda x: -x)
    deep(50)
    hidden(1)
    getattr(t, "missing", None)
    try:
        {}.pop("missing")
    except KeyError:
        pass
    for m in re.finditer("a", "aaa"):
        m.group(0)
    list(map(leaf, [1, 2, 3]))
    exec(compile("def made(): return max(1, 2)\\nmade()", os.path.abspath(__file__), "exec"), {})
"""

# Threads of many kinds; prints [tid, how many leaves it has called] of each.
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
