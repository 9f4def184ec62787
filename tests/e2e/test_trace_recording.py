# SPDX-License-Identifier: MulanPSL-2.0
"""`dyno nputrace` of a running job leaves a recording beside its files: what reads one of `sonde record` reads it."""

import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from capabilities import lacks
from monitored import environment
from traced_steps import PythonJob, daemon_for, dirs, functions, program
from waiting import wait_until

OPTIONS = ["--activities", "CPU,NPU", "--msprof-tx", "--profile-memory", "--host-sys", "cpu,mem,disk,network"]
RANKS, STEPS = 3, 12


def sonde(build, *words, cwd=None):
    r = subprocess.run([build / "bin/sonde", *map(str, words)], capture_output=True, text=True, timeout=60, cwd=cwd)
    assert r.returncode in (0, 3), r.stderr
    return r


def timeline(build, tmp_path, path):
    return json.loads(sonde(build, "timeline", "--json", "-o", tmp_path / "t.pftrace", path).stdout)


@pytest.fixture(scope="module")
def python_trace(build, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("python")
    with daemon_for(build, tmp) as node, PythonJob(build, node.daemon, tmp, program()):
        node.wait_step(3)
        return node.trace("--with-stack", *OPTIONS, steps=STEPS)


@pytest.fixture(scope="module")
def job(build, tmp_path_factory):
    """Ranks whose memory msmemscope records, and that lose some in each step: dyno's words, the directory of the trace."""
    tmp = tmp_path_factory.mktemp("job")
    with daemon_for(build, tmp) as node:
        env = {k: v for k, v in environment(build, node.daemon).items() if k != "RANK"}
        words = [build / "bin/msmemscope", "--report=off", "--format=none", "--output=rec", "--"]
        words += [build / "sim/simtrain", "--quiet", "--ranks", RANKS, "--step-ms", 20, "--forever", "--fault", "leak"]
        job = subprocess.Popen(list(map(str, words)), env=env, cwd=tmp, stdout=subprocess.DEVNULL)
        listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
        try:
            wait_until(lambda: len(listed()) == RANKS, "ranks")
            wait_until(lambda: min(p["current_step"] for p in listed()) > 2, "steps")
            dyno = [build / "bin/dyno", "--port", node.daemon.port, "nputrace", "--start-step=-1", "--wait"]
            dyno += [f"--iterations={STEPS}", "--log-file", tmp / "trace", *OPTIONS]
            r = subprocess.run(list(map(str, dyno)), capture_output=True, text=True, timeout=60)
            assert r.returncode == 0, r.stderr
        finally:
            for p in listed():
                os.kill(p["pid"], signal.SIGKILL)
            job.kill()
            job.wait()
    return r.stderr, tmp / "trace"


def test_the_last_words_name_commands_that_answer(build, job, tmp_path):
    words, out = job
    found = re.search(rf"to see it as a page: sonde (report) {out}; other commands for this directory: (.*)\n", words)
    commands = [found.group(1), *(c.removeprefix("sonde ") for c in found.group(2).split(", "))]
    assert commands == ["report", "timeline", "activity summary"]
    for command in commands:
        sonde(build, *command.split(), out, cwd=tmp_path)


def test_the_same_as_the_trace_beside_it(build, job, python_trace, tmp_path):
    _, out = job
    for d in [*dirs(out), python_trace.path]:
        trace, recording = (timeline(build, tmp_path, d / name) for name in ("trace.json", "events.sonde"))
        assert recording["counters"] >= trace["counters"] > 0
        assert recording["arrows"] == trace["arrows"] > 0
        for key in ("first_ns", "last_ns"):
            assert abs(recording[key] - trace[key]) < 1_000_000
        assert (d / "events.sonde").stat().st_size < (d / "trace.json").stat().st_size / 5


def test_the_directory_is_read_once(build, job, tmp_path):
    _, out = job
    sums = [timeline(build, tmp_path, d / "trace.json")["slices"] for d in dirs(out)]
    assert timeline(build, tmp_path, out)["slices"] == sum(sums)

    def calls(path):
        shown = json.loads(sonde(build, "activity", "show", "--json", "--top=1000", path).stdout)
        return {k["name"]: k["calls"] for k in shown["kernels"]}

    alone = [calls(d / "events.sonde") for d in dirs(out)]
    for name, n in calls(out).items():
        # A recording also has the work of earlier steps that runs in these.
        assert n <= sum(a.get(name, 0) for a in alone) <= n + 10 * RANKS, name


def test_steps_are_split_as_in_the_summary(build, job, tmp_path):
    for d in dirs(job[1]):
        os.makedirs(tmp_path / d.name[:-6])
        os.link(d / "events.sonde", tmp_path / d.name[:-6] / "events.sonde")
        got = json.loads(sonde(build, "activity", "summary", "--json", tmp_path / d.name[:-6]).stdout)["ranks"][0]
        want = json.loads((d / "summary.json").read_text())
        assert [s["step"] for s in got["steps"]] == [s["step"] for s in want["steps"]]
        assert got["rank"] == want["rank"] and got["pid"] == want["pid"]
        for key, ns in want["devices"][0]["all"].items():
            if key.endswith("_ns"):
                assert got["devices"][0]["all"][key] == ns, key


def test_stacks_are_those_of_the_trace(build, python_trace, tmp_path):
    total, _ = functions(python_trace)
    sonde(build, "timeline", "--format=json", "-o", tmp_path / "t.json", python_trace.path / "events.sonde")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lines, seen, around = collections.defaultdict(set), collections.Counter(), collections.defaultdict(list)
    for e in events:
        if e["ph"] == "B":
            around[e["tid"]].append(e)
        elif e["ph"] == "E":
            begin = around[e["tid"]].pop()
            seen[begin["name"]] += (e["ts"] - begin["ts"]) / 1e6
            lines[begin["name"]].add(begin.get("args", {}).get("line"))
    for name in ("forward", "wait", "busy"):
        assert seen[name] == pytest.approx(total[name], rel=0.01)
        assert len(lines[name]) == 1
    page = json.loads(sonde(build, "report", "--json", "-o", tmp_path / "r.html", python_trace.path).stdout)
    assert page["profiles"] == 1


def test_memory_of_a_job_that_is_recorded(build, job):
    for d in dirs(job[1]):
        answer = json.loads(sonde(build, "mem", "leaks", "--json", d).stdout)
        text = sonde(build, "mem", "leaks", d).stdout
        rank = json.loads((d / "summary.json").read_text())["rank"]
        assert ("loses 1.00 MiB of device 0 in every step" in text) == (rank == 0), text
        assert any("blocks from before it are unknown" in n for n in answer["notes"])
        assert "peaked" in sonde(build, "mem", "peak", d).stdout
    r = subprocess.run([build / "bin/sonde", "mem", "leaks", job[1]], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and "has traces of several processes: name the directory of one" in r.stderr


def test_of_one_process_the_newest_trace_counts(build, job, tmp_path):
    first = dirs(job[1])[0]
    shutil.copytree(first, tmp_path / first.name)
    assert "peaked" in sonde(build, "mem", "peak", tmp_path).stdout
    stem, _, later = first.name.removesuffix("_sonde").rpartition("_")
    shutil.copytree(first, tmp_path / f"{stem}_{int(later) + 1}_sonde")
    assert "peaked" in sonde(build, "mem", "peak", tmp_path).stdout


def test_a_trace_without_memory_says_why(build, python_trace):
    shown = " ".join(sonde(build, "mem", "show", python_trace.path).stdout.split())
    assert "A trace of a running job has blocks of memory only if msmemscope records the job" in shown
    assert "cannot be read" not in shown


def test_a_page_has_the_stacks_of_all_ranks(build, tmp_path):
    with daemon_for(build, tmp_path) as node:
        jobs = [PythonJob(build, node.daemon, tmp_path, program(), rank=r) for r in range(2)]
        with jobs[0], jobs[1]:
            listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
            wait_until(lambda: len(listed()) == 2 and min(p["current_step"] for p in listed()) > 1, "steps")
            answer, out = node.order("--with-stack", *OPTIONS, steps=4)
            assert answer["commandStatus"] == "effective", answer
            node.traces(out, 2)
    page = json.loads(sonde(build, "report", "--json", "-o", tmp_path / "r.html", out).stdout)
    assert (page["profiles"], page["recordings"], page["activities"]) == (2, 0, 1)
    assert page["notes"] == ["The memory of a traced job is shown for one process: name the directory of its trace."]
    (alone,) = [json.loads(sonde(build, "report", "--json", "-o", tmp_path / "r.html", d).stdout) for d in dirs(out)[:1]]
    assert (alone["profiles"], alone["recordings"], alone["notes"]) == (1, 1, [])


@contextlib.contextmanager
def disk_of(place, kib):
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", place], capture_output=True)
    if mount.returncode:
        lacks("mount", "cannot mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.needs("root")
def test_a_disk_that_is_nearly_full(build, tmp_path):
    """A trace that has room is there, and its recording takes no more than it needs; without room for it the trace is there,
    and a word. Nothing is shown where nothing was written."""
    with daemon_for(build, tmp_path) as node, PythonJob(build, node.daemon, tmp_path, program()) as job:
        node.wait_step(3)
        dyno = [build / "bin/dyno", "--port", node.daemon.port, "nputrace", "--start-step=-1", "--wait", "--iterations=2"]

        def trace(out):
            r = subprocess.run(list(map(str, [*dyno, "--log-file", out])), capture_output=True, text=True, timeout=60)
            left = {f.name if f.parent != out else f.suffix: f.stat().st_size for f in out.rglob("*") if f.is_file()}
            return r.returncode, "to see it as a page" in r.stderr, left

        status, shown, whole = trace(tmp_path / "whole")
        assert status == 0 and shown and whole.pop("events.sonde")
        kib = sum(-(-size // 4096) * 4 for size in whole.values())
        for more, has_trace, has_recording in ((-40, False, False), (8, True, False), (80, True, True)):
            with disk_of(tmp_path / f"disk{more}", kib + more) as out:
                status, shown, left = trace(out)
            assert (status == 0, shown) == (has_trace, has_trace), left
            assert ("trace.json" in left, "summary.json" in left) == (has_trace, has_trace), left
            assert has_recording == ("events.sonde" in left), left
            assert ("events.sonde.error.txt" in left) == (has_trace and not has_recording), left
            assert has_trace or list(left) == [".txt"], left
        assert job.process.poll() is None
