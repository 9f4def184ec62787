# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde mem live`: the memory of a job while it is recorded, on a terminal and for programs."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from harness import Session
from recording import clean_env, wait_finished
from screens import ESCAPE, Screen
from waiting import wait_until

HELD_KIB = 300  # by each call of keep()
NAME = "évil\x1b]0;title\x07\n中"
JOB = f'''
import os, sys
kept = []
def keep(n):
    kept.append(bytearray({HELD_KIB << 10}))
def waste(n):
    return len(bytearray(1 << 20))
exec(compile("def hostile():\\n    kept.append(bytearray(200000))\\n", {NAME!r} + ".py", "exec"))
for line in sys.stdin:
    for i in range(-int(line)):
        bytes(1000 + i % 9)  # many events, little memory
    for i in range(int(line)):
        keep(i)
        waste(i)
    hostile()
    print(len(kept), flush=True)
'''


class Job:
    """A Python program that is recorded, and allocates when it is told to."""

    def __init__(self, build, tmp_path, *options):
        self.build, self.tmp = build, tmp_path
        self.env = {**clean_env(tmp_path), "PYTHONMALLOC": "malloc"}
        (tmp_path / "job.py").write_text(JOB)
        words = [build / "bin/sonde", "mem", "record", "--device=cpu", "--call-stack=python:6", "--quiet", *options]
        words += ["-o", tmp_path / "out", "--", sys.executable, "-S", tmp_path / "job.py"]
        self.process = subprocess.Popen(words, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def grow(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @property
    def dir(self):
        (only,) = (self.tmp / "out").iterdir()
        return only

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        wait_finished(self.dir)

    def live(self, *words):
        words = [self.build / "bin/sonde", "mem", "live", *words]
        return subprocess.run(words, env=self.env, capture_output=True, timeout=60)

    def now(self, *words):
        r = self.live("--once", "--json", "--top=1000000", *words)
        assert r.returncode == 0, r
        return json.loads(r.stdout)

    def screen(self, *words, lines=24, columns=110, **env):
        words = [self.build / "bin/sonde", "mem", "live", self.dir, *words]
        return Screen(words, {**self.env, **env}, lines, columns)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def job(build, tmp_path):
    with Job(build, tmp_path) as j:
        yield j


def group(answer, part):
    return next((g for g in answer["groups"] if part in g["name"]), {"blocks": 0, "bytes": 0, "allocations": 0})


def kept(answer):
    """How many buffers keep() holds; the objects around them are small blocks of their own."""
    return group(answer, "keep (job.py:5)")["bytes"] // (HELD_KIB << 10)


def test_numbers_grow_with_the_job(job):
    job.grow(4)
    wait_until(lambda: kept(job.now(job.dir)) == 4, every=0.2)
    first = job.now(job.dir)
    assert first["state"] == "running" and first["lost"]["events"] == 0
    wasted = group(first, "waste")
    assert wasted["bytes"] < 1 << 20 and 4 << 20 <= wasted["allocated_bytes"] < 5 << 20
    # by the number of the process, too, which has the recording mapped
    job.grow(6)
    pid = first["processes"][-1]["pid"]
    wait_until(lambda: kept(job.now(str(pid))) == 10, every=0.2)
    second = job.now(str(pid), "--sort=calls", "--filter=EEP")
    assert [g["name"] for g in second["groups"]] == ["keep (job.py:5)"]
    (whole,) = [m for m in second["memory"] if m["pid"] is None]
    assert whole["device"] == "cpu" and whole["peak_bytes"] >= whole["bytes"] >= 10 * HELD_KIB << 10
    assert max(whole["over_time"]) == whole["peak_bytes"] and len(whole["over_time"]) <= 240
    job.end()
    last = job.now(job.dir)
    assert last["state"] == "ended" and "at the end" in last["answer"][0]
    # what is said live of a recording that is over is what the other commands say
    words = [job.build / "bin/sonde", "mem", "show", "--json", job.dir]
    shown = json.loads(subprocess.run(words, env=job.env, capture_output=True, check=True).stdout)
    (host,) = [p for x in shown["processes"] for p in x["pools"] if p["pool"] == "HOST" and p["peak_bytes"] > 1 << 20]
    (whole,) = [m for m in last["memory"] if m["pid"] is None]
    assert whole["peak_bytes"] == host["peak_bytes"]


def test_a_screen_that_follows(job):
    job.grow(3)
    with job.screen() as s:
        lines = s.until(lambda x: any("keep (job.py:5)" in y for y in x))
        assert "q: end" in lines[0] and len(lines) < s.lines
        row = lambda x: next((y for y in x if y.endswith("keep (job.py:5)")), "0 B 0 0")
        job.grow(40)
        held = f"{43 * HELD_KIB / 1024:.1f}"
        lines = s.until(lambda x: row(x).strip().startswith(held))
        assert any("host" in y and "█" in y for y in lines), lines
        text = b"".join(s.seen.split(b"\x1b]"))
        assert b"\x1b]" not in s.seen and b"\x07" not in text  # what the job calls its files
        s.key("ss", lambda x: "sorted by allocated" in x[0])
        lines = s.key("/hostile", lambda x: any("filter" in y and "hostile_" in y for y in x))
        s.key("\r", lambda x: any("hostile (?vil" in y or "hostile (évil?]0;title??中" in y for y in x))
        s.key(ESCAPE, lambda x: any("keep" in y for y in x))
        s.key("v", lambda x: "by owner" in x[0])
        s.key("vv", lambda x: "by line" in x[0])
        s.key("p", lambda x: any(y.startswith("paused") for y in x))
        s.key("p", lambda x: not any(y.startswith("paused") for y in x))
        s.key("\t", lambda x: any(re.match(r"Process \d+", y) for y in x))
        s.key("h", lambda x: any("any key ends it" in y for y in x))
        s.key("x", lambda x: any("HELD" in y for y in x))
        s.resize(12, 40)
        lines = s.until(lambda x: any("HELD" in y for y in x) and max(map(len, x)) <= 40 and len(x) < 12)
        # the recording ends: the screen goes, the last words stay
        job.end()
        seen = s.ends().rpartition(b"\x1b[?1049l")[2].decode()
        assert s.status == 0 and "at the end" in seen and "keep (job.py:5)" in seen


def test_a_terminal_without_utf8(job):
    job.grow(5)
    with job.screen(LC_ALL="C") as s:
        lines = s.until(lambda x: any("keep (job.py:5)" in y for y in x))
        assert all(y.isascii() for y in lines) and any("####" in y for y in lines)


def test_without_a_terminal(job):
    """A pipe gets one block after the other, and the last one is of the end."""
    job.grow(2)
    words = [job.build / "bin/sonde", "mem", "live", "--json", job.dir]
    follow = subprocess.Popen(words, env=job.env, stdout=subprocess.PIPE, text=True)
    assert json.loads(follow.stdout.readline())["state"] == "running"
    job.end()
    rest = follow.stdout.read().splitlines()
    assert follow.wait(60) == 0 and json.loads(rest[-1])["state"] == "ended"
    assert b"at the end" in job.live(job.dir).stdout


def test_a_killed_recorder(job):
    """What it had written is shown, and that there may be more."""
    job.grow(7)
    wait_until(lambda: kept(job.now(job.dir)) == 7, every=0.2)
    Session(job.dir).kill_recorder()
    job.process.kill()
    got = job.now(job.dir)
    assert got["state"] == "killed" and kept(got) == 7
    assert any("sonde mem recover" in x for x in got["answer"])
    # half a frame at the end is not complete yet, and no damage
    with open(job.dir / "events.sonde", "ab") as f:
        f.write(b"FRM1\x07\0\0\0\xff\xff\0\0\xff\xff\1\0" + bytes(8) + b"half")
    again = job.now(job.dir)
    assert group(again, "keep") == group(got, "keep") and not again["lost"]["damaged_bytes"]


def test_words_for_what_is_not_there(build, tmp_path, users):
    sonde = [build / "bin/sonde", "mem", "live"]
    run = lambda *w, **kw: subprocess.run([*sonde, *w], capture_output=True, text=True, env=clean_env(tmp_path), **kw)
    r = run(str(os.getpid()))
    assert r.returncode == 1 and "is not being recorded" in r.stderr and "sonde mem record" in r.stderr
    r = run(tmp_path / "nothing")
    assert r.returncode == 1 and "nothing" in r.stderr
    (tmp_path / "file").write_bytes(b"x" * 100)
    r = run(tmp_path / "file")
    assert r.returncode == 1 and "is not a sonde recording" in r.stderr
    assert run().returncode == 2 and run("--pid=1", "--rank=x", tmp_path).returncode in (1, 2)


def test_the_oldest_part_is_dropped_meanwhile(build, tmp_path):
    """With --max-size another file takes the name: it goes on with that one."""
    with Job(build, tmp_path, "--max-size=1M") as job:
        job.grow(2)
        words = [build / "bin/sonde", "mem", "live", "--json", job.dir]
        follow = subprocess.Popen(words, env=job.env, stdout=subprocess.PIPE, text=True)
        follow.stdout.readline()
        first = os.stat(job.dir / "events.sonde").st_ino
        wait_until(lambda: (job.grow(-20000), os.stat(job.dir / "events.sonde").st_ino != first)[1])
        n = job.grow(1)
        job.end()
        last = json.loads(follow.stdout.read().splitlines()[-1])
        assert follow.wait(60) == 0 and last["state"] == "ended"
        assert group(last, "keep")["blocks"] > 0 and n > 0


def test_ctrl_c_ends_it_and_leaves_the_job_alone(job):
    job.grow(1)
    with job.screen() as s:
        s.until(lambda x: any("HELD" in y for y in x))
        os.kill(s.pid, signal.SIGINT)
        assert s.ends().endswith(b"\x1b[?25h\x1b[?1049l") and s.status == 0
    assert job.grow(1) == 4
