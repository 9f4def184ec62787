# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde stack live`: where Python spends its time, live; and samples of threads that run or have the GIL."""

import collections
import json
import os
import re
import signal
import subprocess

import pytest
from screens import ESCAPE, Screen
from stack_jobs import PARKED, Jobs, read
from waiting import wait_until

# MainThread sleeps; a thread computes, in a function whose file has a hostile name.
WORK = '''
import threading, time

def sleep_here():
    time.sleep(1000)

source = """
def compute():
    n = 0
    while True:
        n += 1

def outer():
    compute()
"""
scope = {}
exec(compile(source, "/tmp/b\\x1b]0;t\\x07\\u202e<b>.py", "exec"), scope)
threading.Thread(target=scope["outer"], name="worker", daemon=True).start()
print("ready", flush=True)
sleep_here()
'''


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def live(jobs, *words, status=0):
    words = [jobs.bin / "sonde", "stack", "live", *map(str, words)]
    r = subprocess.run(words, env=jobs.env(), capture_output=True, text=True, timeout=60)
    assert r.returncode == status, r
    return r.stdout if status == 0 else r.stderr


def rows(jobs, *words):
    return json.loads(live(jobs, "--once", "--json", "--every", "0.5", *words))


def test_a_reader_that_has_enough(jobs):
    """As head: it closes the pipe, and that is nothing to talk about."""
    job = jobs.python(PARKED)
    reading, writing = os.pipe()
    os.close(reading)
    words = [jobs.bin / "sonde", "stack", "live", "-p", str(job.pid), "--every", "0.2"]
    with os.fdopen(writing, "wb") as pipe:
        r = subprocess.run(words, env=jobs.env(), stdout=pipe, stderr=subprocess.PIPE, timeout=60)
    assert r.returncode == 1 and not r.stderr, r


def row(answer, part):
    return next((r for r in answer["rows"] if part in r["name"]), None)


def test_lines_and_functions(jobs):
    several = [jobs.python(PARKED) for _ in range(3)]
    which = ["-p", ",".join(str(p.pid) for p in several)]
    got = rows(jobs, *which)
    assert got["processes"] == 3 and got["stacks"] >= 3 and got["by"] == "line"
    first = got["rows"][0]
    assert first["name"].startswith("wait_here (") and first["self"] == first["total"] == 1
    assert first["processes"] == 3 and "job.py:15" in first["name"]
    outside = row(got, "<module>")
    assert outside["self"] == 0 and outside["total"] == 1 and outside["processes"] == 3
    assert "wait_here" in got["answer"] and "in 3 of 3 processes" in got["answer"]
    # time of threads since the beginning: three of them for a turn
    assert abs(first["self_s"] - 3 * got["seconds"]) < 0.01 * got["seconds"]
    got = rows(jobs, *which, "--by", "function", "--sort", "total", "--filter", "WAIT_")
    assert [r["name"] for r in got["rows"]] == [r["name"] for r in got["rows"] if "job.py:14" in r["name"]] != []
    text = live(jobs, *which, "--once", "--every", "0.2")
    assert "Most time is in wait_here" in text and re.search(r"100 %.*100 %.*  3 ", text)


def test_only_what_runs_and_who_has_the_gil(jobs):
    p = jobs.python(WORK)
    which = ["-p", str(p.pid), "--all-threads"]
    by = ["--by", "function"]
    got = rows(jobs, *which, *by)
    assert 0.4 < row(got, "sleep_here")["self"] < 0.6 and 0.4 < row(got, "compute")["self"] < 0.6
    for option in ("--running", "--gil"):
        got = rows(jobs, *which, option, *by)
        # shares are of all stacks, so numbers with and without a filter can be compared
        assert not row(got, "sleep_here") and 0.3 < row(got, "compute")["self"] < 0.6
        assert got[option[2:]] > 0.3 and got["stacks_shown"] < got["stacks"]
    # MainThread alone never runs
    got = rows(jobs, "-p", str(p.pid), "--running")
    assert got["rows"] == [] and "No thread ran" in got["answer"]
    # the same in files: profiles count those stacks, a timeline shows the thread as if it ran nothing
    for option in ("--running", "--gil"):
        out = jobs.tmp / f"out{option}.txt"
        words = ["sonde", "stack", *which, option, "-q", "-d", "0.5", "-i", "0.01", "-o", out]
        subprocess.run([jobs.bin / words[0], *words[1:], "--format", "collapsed"], env=jobs.env(), check=True)
        assert "compute" in out.read_text() and "sleep_here" not in out.read_text()
        trace = jobs.tmp / f"out{option}.json"
        subprocess.run([jobs.bin / words[0], *words[1:-1], trace], env=jobs.env(), check=True)
        names = collections.Counter(e["args"].get("function") for e in read(trace) if e["ph"] == "B")
        assert names["compute"] and not names["sleep_here"]


def test_the_screen(jobs):
    p = jobs.python(WORK)
    words = [jobs.bin / "sonde", "stack", "live", "-p", p.pid, "--all-threads", "--every", "0.2"]
    with Screen(words, jobs.env(), lines=18, columns=100) as s:
        has = lambda x, part: any(part in y for y in x)
        lines = s.until(lambda x: has(x, "compute") and has(x, "sleep_here"))
        assert "q: end" in lines[0] and len(lines) < s.lines
        s.key("r", lambda x: has(x, "running only") and has(x, "compute") and not has(x[3:], "sleep_here"))
        s.key("rg", lambda x: has(x, "with the GIL only") and not has(x[3:], "sleep_here"))
        s.key("g", lambda x: has(x, "sleep_here"))
        s.key("v", lambda x: has(x, "by function") and has(x, "run ("))
        s.key("/comp\r", lambda x: has(x, "filter 'comp'") and not has(x, "sleep_here ("))
        s.key(ESCAPE + "vs", lambda x: has(x, "sorted by total"))
        s.key("p", lambda x: has(x, "paused"))
        s.key("p", lambda x: not has(x, "paused"))
        s.key("h", lambda x: has(x, "any key ends it"))
        s.resize(10, 40)
        s.key("x", lambda x: has(x, "SELF") and max(map(len, x)) <= 40 and len(x) < 10)
        assert b"\x1b]" not in s.seen and b"\x07" not in s.seen and "\u202e".encode() not in s.seen
        p.kill()
        p.wait()
        seen = s.ends().rpartition(b"\x1b[?1049l")[2].decode()
        assert s.status == 0 and "process" in seen and "\x1b" not in seen


def test_ends_and_errors(jobs):
    assert "no Python process found" in live(jobs, "--name", "no such program", status=1)
    p = jobs.python(PARKED)
    follow = jobs.start(str(jobs.bin / "sonde"), "stack", "live", "-p", str(p.pid), "--json", "--every", "0.1")
    assert json.loads(follow.stdout.readline())["processes"] == 1
    follow.send_signal(signal.SIGINT)
    assert follow.wait(30) == 0
    follow = jobs.start(str(jobs.bin / "sonde"), "stack", "live", "-p", str(p.pid), "--json", "--every", "0.1")
    follow.stdout.readline()
    p.kill()
    p.wait()
    assert follow.wait(30) == 0
    assert p.returncode == -signal.SIGKILL
    p = jobs.python(PARKED)
    assert len(live(jobs, "-p", p.pid, "-d", "0.5", "--every", "0.2", "--json").splitlines()) >= 1
    wait_until(lambda: p.poll() is None)
