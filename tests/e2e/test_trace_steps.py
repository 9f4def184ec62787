# SPDX-License-Identifier: MulanPSL-2.0
"""nputrace without a framework's profiler, from the guest's records on: the real producer and the real recorder."""

import collections
import json
import re
import os
import sqlite3
import subprocess

import pytest

from waiting import wait_until

ORDER = """\
ACTIVITIES_LOG_FILE={out}
PROFILE_START_STEP={start}
ACTIVITIES_ITERATIONS={steps}
PROFILE_ACTIVITIES=CPU,NPU
PROFILE_ANALYSE=true
PROFILE_HOST_SYS=cpu,mem
PROFILE_L2_CACHE=true
REQUEST_TRACE_ID=4711"""
CALLS = 100


class Traced:
    def __init__(self, build, tmp_path):
        self.build = build
        self.out = tmp_path / "trace"
        self.sessions = tmp_path / "sessions"
        self.sessions.mkdir()

    def run(self, ranks, steps, start, traced, *kill):
        order = ORDER.format(out=self.out, start=start, steps=traced)
        lib = self.build / "lib/libsonde_guest.so"
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        args = [lib, self.sessions, order, ranks, steps, CALLS, *kill]
        job = subprocess.run(
            [self.build / "targets/trace_steps", *map(str, args)], env=env, timeout=60
        )
        assert job.returncode == 0
        self.wait(ranks)

    def directories(self):
        return sorted(self.out.glob("*_sonde")) if self.out.exists() else []

    def wait(self, ranks):
        """Until all is written and the recorder has gone."""
        left = lambda: list(self.sessions.iterdir())
        done = lambda: len(self.directories()) == ranks and not left()
        wait_until(done, lambda: f"{ranks} traces: {self.directories()} {left()}", every=0.05)

    def traces(self):
        """By rank."""
        made = [json.loads((d / "trace.json").read_text()) for d in self.directories()]
        return {t["distributedInfo"]["rank"]: t for t in made}

    def summary(self):
        return json.loads((self.out / "summary_4711.json").read_text())


@pytest.fixture
def traced(build, tmp_path):
    return Traced(build, tmp_path)


def spans(trace):
    return collections.Counter(e["name"] for e in trace["traceEvents"] if e["ph"] == "X")


def test_exactly_the_asked_steps_on_every_rank(traced):
    traced.run(4, 7, 2, 3)
    traces = traced.traces()
    assert sorted(traces) == [0, 1, 2, 3]
    for trace in traces.values():
        assert spans(trace) == {
            "launch": 3 * CALLS,
            **{f"kernel_s{s}": CALLS for s in (2, 3, 4)},
            **{f"ProfilerStep#{s}": 1 for s in (2, 3, 4)},
        }
        about = trace["sonde"]
        assert (about["start_step"], about["stop_step"], about["complete"]) == (2, 5, True)
        assert about["lost"] == 0 and about["left_out"] == 0
        assert about["not_honoured"] == ["PROFILE_L2_CACHE"]


def test_what_readers_of_torch_traces_need(traced, monkeypatch):
    """HTA takes the rank from the text itself, drops what has no category, joins by correlation."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    traced.run(2, 5, 1, 2)
    for d in traced.directories():
        text = (d / "trace.json").read_text()
        trace = json.loads(text)
        assert re.search(r'"rank":\s+(\d+)', text).group(1) == str(trace["distributedInfo"]["rank"])
        assert trace["distributedInfo"]["world_size"] == 2
        slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        assert {e["cat"] for e in slices} == {"kernel", "cuda_runtime", "user_annotation"}
        calls = collections.Counter(
            e["args"]["correlation"] for e in slices
            if e["cat"] == "cuda_runtime" and "correlation" in e["args"])
        for e in slices:
            if e["cat"] == "kernel":
                assert e["args"]["device"] >= 0 and e["args"]["stream"] >= 0
                assert calls[e["args"]["correlation"]] == 1


def test_files_agree_with_each_other(traced):
    traced.run(1, 5, 1, 2)
    (d,) = traced.directories()
    (db,) = d.glob("*.db")
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as c:
        names = c.execute(
            "SELECT value, count(*), sum(endNs - startNs) FROM COMPUTE_TASK_INFO i JOIN TASK t"
            " ON t.globalTaskId = i.globalTaskId JOIN STRING_IDS s ON s.id = i.name GROUP BY value"
        ).fetchall()
    assert names == [(f"kernel_s{s}", CALLS, CALLS * 50000) for s in (1, 2)]
    rank = json.loads((d / "summary.json").read_text())
    kernels = {k["name"]: (k["calls"], k["total_ns"]) for k in rank["kernels"]}
    assert kernels == {n: (calls, ns) for n, calls, ns in names}
    for step in rank["devices"][0]["steps"]:
        parts = [step[p + "_ns"] for p in ("compute", "communication", "copy", "idle")]
        assert sum(parts) == step["step_ns"] and parts[0] > 0
    # What the first step's queue held from before is in its time; what the last left comes later.
    assert rank["after_ns"] > 0


def test_killed_in_a_traced_step(traced):
    traced.run(3, 8, 3, 3, 1, 4)
    traces = traced.traces()
    assert sorted(traces) == [0, 1, 2]
    killed = traces[1]
    assert spans(killed)["kernel_s3"] == spans(killed)["kernel_s4"] == CALLS
    assert not killed["sonde"]["complete"] and "killed" in killed["sonde"]["note"]
    assert traces[0]["sonde"]["complete"] and spans(traces[0])["kernel_s5"] == CALLS
    whole = {r["rank"]: [s["whole"] for s in r["steps"]] for r in traced.summary()["ranks"]}
    assert whole == {0: [True] * 3, 1: [True, False], 2: [True] * 3}


def test_one_summary_of_all_ranks(traced):
    traced.run(3, 4, 1, 2)
    made = traced.summary()
    assert [r["rank"] for r in made["ranks"]] == [0, 1, 2] and made["notes"] == []
    words = (traced.out / "summary_4711.txt").read_text()
    assert words.startswith("Steps 1 to 2 of 3 ranks: a step takes ")
    for args, want in ((), words), (("--json",), None):
        told = subprocess.run(
            [traced.build / "bin/sonde", "activity", "summary", *args, traced.out],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        assert told == want if want else json.loads(told) == made
    assert not [p for p in traced.out.iterdir() if p.name.startswith(".")]
