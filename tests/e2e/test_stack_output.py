# SPDX-License-Identifier: MulanPSL-2.0
"""The files of `sonde stack`: loadable at every moment, complete when they say so, and readable by
programs that are not ours."""

import collections
import gzip
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import zlib

import pytest

from browser import Browser
from capabilities import lacks
from harness import SOAK
from stack_jobs import BUSY, Jobs, check, named, read
from waiting import pause, wait_until

# Deep and ever changing, so that a file grows by some hundred kilobytes in a second.
RESTLESS = """
import sys, threading, time

def left(n):
    return down(n - 1)

def right(n):
    return down(n - 1)

def down(n):
    if n == 0:
        time.sleep(0.0005)
        return 0
    return (left if time.perf_counter_ns() >> 8 & 1 else right)(n)

def restless():
    while True:
        down(5)

for i in range(3):
    threading.Thread(target=restless, name="restless;%d" % i, daemon=True).start()
print("ready", flush=True)
restless()
"""

FAST = ("-i", "0.001", "--all-threads", "-q")


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def one_character(text):
    """Strict JSON, if need be with the one character that the guide names."""
    try:
        return json.loads(text), False
    except ValueError:
        return json.loads(text + ("}" if text[0] == "{" else "]")), True


def events_of(trace):
    return trace if isinstance(trace, list) else trace["traceEvents"]


def check_nesting(events):
    """As check(), of a file that ends somewhere: every E ends the B that was last."""
    stacks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "B":
            stacks[e["pid"], e["tid"]].append(e["name"])
        elif e["ph"] == "E":
            assert stacks[e["pid"], e["tid"]].pop() == e["name"], e


# --- a sampler that is killed ---


@pytest.mark.soak
def test_killed_at_any_moment(jobs, tmp_path):
    job, out = jobs.python(RESTLESS), tmp_path / "trace.json"
    dice, lacking, sizes = random.Random(5), 0, []
    for i in range(150 if SOAK else 25):
        out.unlink(missing_ok=True)
        # every fourth is killed about when it completes its file
        end = dice.uniform(0.05, 0.1)
        words = ("-d", str(end)) if i % 4 == 3 else ()
        sampler = jobs.begin("-p", job.pid, "-o", out, *FAST, *words)
        wait_until(out.exists)
        pause(end if words else dice.uniform(0, 0.25), "any moment")
        sampler.kill()
        sampler.wait()
        trace, lacked = one_character(out.read_text())
        check_nesting(events_of(trace))
        lacking += lacked
        sizes.append(len(events_of(trace)))
    print(f"{len(sizes)} kills, {max(sizes)} events at most, {lacking} lacked a character")
    assert max(sizes) > 100


def members(data):
    """The text of all whole members of a gzip file, and whether something was left over."""
    text = b""
    while data:
        unpack = zlib.decompressobj(31)
        try:
            part = unpack.decompress(data)
        except zlib.error:
            return text, True
        if not unpack.eof:
            return text, True
        text += part
        data = unpack.unused_data
    return text, False


def test_killed_while_it_packs(jobs, tmp_path):
    job, out = jobs.python(RESTLESS), tmp_path / "trace.json.gz"
    dice, sizes = random.Random(6), []
    for _ in range(20 if SOAK else 4):
        out.unlink(missing_ok=True)
        sampler = jobs.begin("-p", job.pid, "-o", out, "--gzip", *FAST)
        wait_until(out.exists)
        pause(dice.uniform(0.05, 0.5), "any moment")
        sampler.kill()
        sampler.wait()
        text, cut = members(out.read_bytes())
        trace = json.loads(text + (b"\n]}" if cut else b""))
        check_nesting(trace["traceEvents"])
        sizes.append(len(trace["traceEvents"]))
    assert max(sizes) > 100


def test_a_file_that_is_read_while_it_grows(jobs, tmp_path):
    job, out = jobs.python(RESTLESS), tmp_path / "trace.json"
    sampler = jobs.begin("-p", job.pid, "-o", out, *FAST)
    wait_until(out.exists)
    grown = set()
    while sampler.poll() is None and len(grown) <= 5:
        # A reader may come between the two halves of a write; what is before its end stays.
        text = out.read_text().rstrip()
        try:
            trace, _ = one_character(text)
        except ValueError:
            pause(0.001, "the other half comes")
            continue
        grown.add(len(events_of(trace)))
        pause(0.02, "the pace of the reader")
    sampler.send_signal(signal.SIGINT)
    assert sampler.wait(30) == 0 and len(grown) > 5
    check(read(out))


# --- copies, pieces ---


def test_copies_while_it_goes_on(jobs, tmp_path):
    job, out, saved = jobs.python(RESTLESS), tmp_path / "trace.json", tmp_path / "saved.json"
    sampler = jobs.begin(
        *("-p", job.pid, "-o", out, "--autosave-interval", "0.1", "--autosave-output", saved),
        *("--autosave-snapshot-interval", "0.3", "-d", "2", *FAST),
    )
    wait_until(saved.exists)
    sizes = set()
    while sampler.poll() is None:
        sizes.add(len(check(read(saved))))  # complete and balanced, each time
        pause(0.02, "the pace of the reader")
    assert sampler.returncode == 0, sampler.communicate()
    assert len(sizes) >= 3
    tag = re.compile(r"trace\.\d{8}_\d{6}_\d{3}\.json")
    tagged = [p for p in tmp_path.iterdir() if tag.fullmatch(p.name)]
    assert len(tagged) >= 2
    for path in tagged:
        check(read(path))
    assert len(check(read(out))) > max(sizes) * 0.9
    assert not list(tmp_path.glob("*.tmp"))


def numbered(out):
    found = [(int(p.name.split(".")[1]), p) for p in out.parent.glob("trace.*.json")]
    return [p for _, p in sorted(found)]


def sample_until(condition, jobs, *words):
    """How fast a file grows is a matter of how much time the sampler gets."""
    sampler = jobs.begin(*words, *FAST)
    wait_until(condition)
    sampler.send_signal(signal.SIGINT)
    _, err = sampler.communicate(timeout=30)
    assert sampler.returncode == 0, err


def test_rotated_files_stand_alone(jobs, tmp_path):
    job, out = jobs.python(RESTLESS), tmp_path / "trace.json"
    words = ("-p", job.pid, "-o", out, "--rotate-size", "100k")
    sample_until(lambda: len(numbered(out)) >= 2, jobs, *words)
    pieces = [*numbered(out), out]
    assert len(pieces) >= 3
    last = 0
    for path in pieces:
        events = check(read(path))
        times = [e["ts"] for e in events if e["ph"] in "BE"]
        assert min(times) >= last  # one begins where the one before it ended
        last = max(times)
        assert "MainThread" in named(events, "thread_name")
        assert len(named(events, "process_name", job.pid)) == 1


def test_few_pieces_are_kept(jobs, tmp_path):
    job, out = jobs.python(RESTLESS), tmp_path / "trace.json"
    words = ("-p", job.pid, "-o", out, "--rotate-size", "50k", "--keep", "2")
    sample_until(lambda: (tmp_path / "trace.3.json").exists(), jobs, *words)
    first = numbered(out)
    assert len(first) == 2
    # The next run goes on counting, and drops the oldest.
    sample_until(lambda: not any(path.exists() for path in first), jobs, *words)
    second = numbered(out)
    assert len(second) == 2 and not set(first) & set(second)
    for path in second:
        check(read(path))


def test_a_full_disk(jobs, tmp_path):
    job, out = jobs.python(RESTLESS), tmp_path / "trace.json"

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150000, resource.RLIM_INFINITY))

    words = ("-p", job.pid, "-o", out, "-d", "20", "-i", "0.001", "--all-threads")
    r = jobs.stack(*words, preexec_fn=small_files)
    assert r.returncode != 0
    assert str(out) in r.stderr and "File too large" in r.stderr
    trace, _ = one_character(out.read_text())
    check_nesting(events_of(trace))
    assert len(events_of(trace)) > 100


# --- other formats ---


def profile(jobs, tmp_path, kind, name):
    job = jobs.python(RESTLESS)
    r = jobs.stack(
        *("-p", job.pid, "-o", name, "-d", "1", "--format", kind, "--json"), *FAST
    )
    assert r.returncode == 0, r.stderr
    return job, tmp_path / name


def test_collapsed(jobs, tmp_path):
    job, path = profile(jobs, tmp_path, "collapsed", "stacks.txt")
    total, threads = 0, set()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        process, thread, *frames = stack.split(";")
        assert str(job.pid) in process
        assert frames and all(re.fullmatch(r".+ \(.+:\d+\)", f) for f in frames), frames
        total += int(count)
        threads.add(thread)
    assert total > 100
    assert len(threads) == 4
    assert sum("restless:0" in t for t in threads) == 1  # no semicolon of a name splits a line


def test_speedscope(jobs, tmp_path):
    _, path = profile(jobs, tmp_path, "speedscope", "speedscope.json")
    text = json.loads(path.read_text())
    assert text["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(text) == {
        *("$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter")
    }
    frames = text["shared"]["frames"]
    assert {"down", "left", "right", "restless"} <= {f["name"] for f in frames}
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"}
    assert len(text["profiles"]) == 4
    for p in text["profiles"]:
        assert set(p) == {
            *("type", "name", "unit", "startValue", "endValue", "samples", "weights")
        }
        assert p["type"] == "sampled" and p["unit"] == "nanoseconds"
        assert len(p["samples"]) == len(p["weights"])
        assert sum(p["weights"]) == p["endValue"] - p["startValue"]
        assert all(0 <= i < len(frames) for s in p["samples"] for i in s)
        assert len(set(map(tuple, p["samples"]))) == len(p["samples"])


# A name that would be a script of any page that believed it.
NAMED = """
import time
code = "def f():\\n    while True:\\n        time.sleep(0.0005)\\n"
made = {"time": time}
exec(compile(code, "</text><script>window.hit = 1</script>.py", "exec"), made)
code, name = made["f"].__code__, "<img src=x onerror='window.hit = 2'>"
names = {k: name for k in ("co_name", "co_qualname") if hasattr(code, k)}
made["f"].__code__ = code.replace(**names)
print("ready", flush=True)
made["f"]()
"""


def test_a_flame_graph_in_a_browser(jobs, tmp_path):
    job = jobs.python(NAMED)
    out = tmp_path / "flame.svg"
    r = jobs.stack("-p", job.pid, "-o", out, "-d", "0.5", "--format", "svg", *FAST)
    assert r.returncode == 0, r.stderr
    boxes = "[...document.querySelectorAll('#flame-boxes > g:not(.hidden)')]"
    with Browser(tmp_path) as b:
        b.ask("Page.navigate", url=out.as_uri())
        wait_until(lambda: b.js("!!document.getElementById('flame-search')"))
        titles = b.js(f"{boxes}.map(g => g.querySelector('title').textContent)")
        assert titles[0].startswith("all: ") and titles[0].endswith("100.00 %")
        named = [t for t in titles if "onerror='window.hit = 2'>" in t]
        assert named and "<script>window.hit = 1</script>.py:1)" in named[0]
        assert b.js("window.hit") is None and not b.js("document.querySelector('img')")
        width = lambda n: b.js(f"+{boxes}[{n}].querySelector('rect').getAttribute('width')")
        last = len(titles) - 1
        before, full = width(last), width(0)
        b.js(f"{boxes}[{last}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        assert width(b.js(f"{boxes}.length") - 1) == pytest.approx(full) and before <= full
        b.js("dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
        assert b.js(f"{boxes}.length") == len(titles) and width(last) == pytest.approx(before)
        errors = [e for e in b.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
        assert not errors


def fields(data):
    """The fields of a protocol buffer: {number: [int or bytes]}."""

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    found, at = collections.defaultdict(list), 0
    while at < len(data):
        tag = varint()
        assert tag & 7 in (0, 2)
        value = varint()
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        found[tag >> 3].append(value)
    return found


def packed(data):
    """A field of packed varints."""
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


def test_pprof(jobs, tmp_path):
    job, path = profile(jobs, tmp_path, "pprof", "profile.pb.gz")
    top = fields(gzip.decompress(path.read_bytes()))
    strings = [s.decode() for s in top[6]]
    assert strings[0] == ""
    kinds = [tuple(strings[fields(t)[i][0]] for i in (1, 2)) for t in top[1]]
    assert kinds == [("samples", "count"), ("wall", "nanoseconds")]
    functions = {f[1][0]: f for f in map(fields, top[5])}
    locations = {place[1][0]: fields(place[4][0]) for place in map(fields, top[4])}
    seen = collections.Counter()
    for sample in map(fields, top[2]):
        count, wall = packed(sample[2][0])
        assert wall == count * top[12][0] == count * 1000000
        names = [
            strings[functions[locations[i][1][0]][2][0]] for i in packed(sample[1][0])
        ]
        assert names[-1] in ("<module>", "Thread._bootstrap", "_bootstrap")
        labels = {strings[label[1][0]]: label for label in map(fields, sample[3])}
        assert labels["pid"][3] == [job.pid]
        seen[strings[labels["thread"][2][0]]] += count
    assert len(seen) == 4 and min(seen.values()) > 20
    for line in locations.values():
        function = functions[line[1][0]]
        if strings[function[2][0]] == "down":
            start = RESTLESS[: RESTLESS.index("def down")].count("\n") + 1
            assert function[5] == [start] and start <= line[2][0] <= start + 4
            assert strings[function[4][0]] == str(tmp_path / "job.py")


def pprof_program():
    """`pprof` itself, or the one that comes with some versions of Go ready to run."""
    found = shutil.which("pprof")
    if found or not shutil.which("go"):
        return found
    done = subprocess.run(["go", "env", "GOTOOLDIR"], stdout=subprocess.PIPE, timeout=60)
    return shutil.which("pprof", path=done.stdout.decode().strip())


def test_pprof_by_its_own_program(jobs, tmp_path):
    program = pprof_program()
    if not program:
        lacks("pprof", "not on this machine")
    _, path = profile(jobs, tmp_path, "pprof", "profile.pb.gz")
    shown = subprocess.run(
        [program, "-top", "-sample_index=samples", str(path)],
        env=jobs.env(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"Type: samples", shown.stdout)
    assert re.search(r"^.* restless$", shown.stdout, re.M), shown.stdout


def test_an_empty_profile_is_one(jobs, tmp_path):
    """What is there when no sample has been taken yet."""
    job = jobs.python(BUSY, "5")
    for kind in ("collapsed", "speedscope", "pprof", "svg"):
        out = tmp_path / kind
        jobs.begin("-p", job.pid, "-i", "30", "-o", out, "--format", kind, "-q")
        wait_until(lambda: out.exists() and (out.stat().st_size or kind == "collapsed"))
    assert json.loads((tmp_path / "speedscope").read_text())["shared"] is not None
    gzip.decompress((tmp_path / "pprof").read_bytes())
    assert (tmp_path / "svg").read_text().endswith("</svg>\n")


# --- what others do to the file ---


@pytest.mark.parametrize("more", [(), ("--gzip",), ("--rotate-time", "0.3")])
@pytest.mark.parametrize("how", ["removed", "moved", "cut"])
def test_a_file_that_is_taken_away_is_begun_anew(jobs, tmp_path, how, more):
    job = jobs.python(RESTLESS)
    path, away = tmp_path / "t.json", tmp_path / "away.json"
    sampler = jobs.begin("-p", job.pid, *FAST, "-o", path, *more)
    wait_until(lambda: path.exists() and path.stat().st_size > 1000)
    inode = path.stat().st_ino
    if how == "removed":
        path.unlink()
    elif how == "moved":
        path.rename(away)
    else:
        with open(path, "r+b") as f:
            f.truncate(0)
    wait_until(lambda: path.exists() and path.stat().st_ino != inode)
    begun = path.stat().st_size
    wait_until(lambda: path.exists() and path.stat().st_size > begun + 500)
    sampler.send_signal(signal.SIGTERM)
    _, err = sampler.communicate(timeout=30)
    assert sampler.returncode == 0, err
    events = check(read(path))
    assert "MainThread" in named(events, "thread_name")
    if how == "moved":
        check(read(away))


def test_two_samplers_do_not_write_the_same_file(jobs, tmp_path):
    job = jobs.python(RESTLESS)
    first = jobs.begin("-p", job.pid, *FAST, "-o", "t.json", "--rotate-time", "0.2")
    wait_until(lambda: (tmp_path / "t.1.json").exists())
    r = jobs.stack("-p", job.pid, *FAST, "-d", "0.1", "-o", "t.json")
    assert r.returncode == 1 and "is being written by another process" in r.stderr
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    check(read(tmp_path / "t.json"))
    r = jobs.stack("-p", job.pid, *FAST, "-d", "0.1", "-o", "t.json")
    assert r.returncode == 0, r.stderr


def test_a_pipe_stays_a_pipe(jobs, tmp_path):
    job = jobs.python(RESTLESS)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sampler = jobs.begin("-p", job.pid, *FAST, "-d", "0.2", "--format", "speedscope", "-o", pipe)
    profile = json.loads(pipe.read_text())
    assert sampler.wait(30) == 0 and profile["profiles"]
    assert pipe.is_fifo()
    r = jobs.stack("-p", job.pid, "-d", "0.1", "-o", pipe)
    assert r.returncode == 1 and "needs a file, not a pipe" in r.stderr
    assert pipe.is_fifo()
