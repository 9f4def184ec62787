# SPDX-License-Identifier: MulanPSL-2.0
"""simtrain as a job of ranks, seen by a tool that uses the simulated MSPTI in each of them."""

import collections
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from mspti_records import COMMUNICATION, KERNEL, MARKER, machine, of_kind
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def env(tmp_path):
    return machine(tmp_path)


WATCH = r"""
#include "mspti_consumer.h"
static __attribute__((constructor)) void begin(void)
{
	char path[512];
	const char *rank = getenv("RANK");
	snprintf(path, sizeof(path), "%s.%s", getenv("WATCH_OUT"), rank ? rank : "launcher");
	records_to = fopen(path, "w");
	if (!records_to || consumer_start(getenv("WATCH_KINDS")))
		_exit(9);
}
static __attribute__((destructor)) void end(void)
{
	mspti.msptiActivityFlushAll(1);
	fclose(records_to);
}
"""


@pytest.fixture(scope="module")
def watch(build, tmp_path_factory):
    """A tool to preload that writes the records of every rank into a file."""
    where = tmp_path_factory.mktemp("watch")
    (where / "watch.c").write_text(WATCH)
    subprocess.run(
        [
            "cc",
            "-D_GNU_SOURCE",
            "-O1",
            "-shared",
            "-fPIC",
            "-w",
            f"-I{ROOT}/sim/include",
            f"-I{ROOT}/tests/targets",
            where / "watch.c",
            "-o",
            where / "libwatch.so",
            "-lpthread",
            "-ldl",
        ],
        check=True,
        timeout=60,
    )
    return where / "libwatch.so"


def train(build, env, *args, **kw):
    kw.setdefault("timeout", 60)
    return subprocess.run(
        [build / "sim" / "simtrain", *map(str, args)],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kw,
    )


def watched(build, env, watch, tmp_path, kinds, *args, **more):
    """(result of the job, records per rank)"""
    out = tmp_path / "records"
    e = dict(
        env,
        LD_PRELOAD=str(watch),
        LD_LIBRARY_PATH=str(build / "sim"),
        WATCH_OUT=str(out),
        WATCH_KINDS=kinds,
        **more,
    )
    r = train(build, e, *args)
    assert r.returncode == 0, r.stderr
    records = {
        p.suffix[1:]: [json.loads(line) for line in p.read_text().splitlines()]
        for p in tmp_path.glob("records.*")
    }
    return r, {int(rank): rows for rank, rows in records.items() if rank != "launcher"}


def test_ranks_repeat_themselves_and_do_not_notice_a_tool(build, env, watch, tmp_path):
    plain = [train(build, env, "--ranks", 4, "--steps", 3) for _ in range(2)]
    assert plain[0].stdout == plain[1].stdout and plain[0].stderr == ""
    assert [line.split()[0] for line in plain[0].stdout.splitlines()] == [
        "simtrain:",
        "step",
        "step",
        "step",
        "result",
    ]
    assert train(build, env, "--ranks", 4, "--steps", 3, "--seed", 2).stdout != plain[0].stdout
    with_tool, records = watched(
        build, env, watch, tmp_path, "1,2,3,9,10,11,12", "--ranks", 4, "--steps", 3
    )
    assert with_tool.stdout == plain[0].stdout
    assert sorted(records) == [0, 1, 2, 3]


def test_a_slow_rank_makes_the_others_wait(build, env, watch, tmp_path):
    steps, layers, slow = 6, 2, 5
    _, records = watched(
        build,
        env,
        watch,
        tmp_path,
        "1,2,9",
        "--ranks",
        8,
        "--steps",
        steps,
        "--layers",
        layers,
        "--quiet",
        "--slow-rank",
        f"{slow}:6",
        SIM_NPU_TIME_SCALE="1",
    )
    together = {rank: of_kind(rows, COMMUNICATION) for rank, rows in records.items()}
    assert len(records) == 8
    for rank, rows in together.items():
        assert len(rows) == steps * layers * 2
        assert {r["name"] for r in rows} == {"hcom_allReduce_"} and {r["device"] for r in rows} == {
            rank
        }
    for op in zip(*together.values()):
        assert len({r["end"] for r in op}) == 1 and len({r["count"] for r in op}) > 1
        assert all(r["start"] < r["end"] for r in op)
    waited = {rank: sum(r["end"] - r["start"] for r in rows) for rank, rows in together.items()}
    assert min(waited, key=waited.get) == slow
    busy = {
        rank: sum(r["end"] - r["start"] for r in of_kind(rows, KERNEL))
        for rank, rows in records.items()
    }
    assert all(5.9 < busy[slow] / busy[rank] < 6.1 for rank in busy if rank != slow)
    for rows in records.values():
        starts = [m for m in of_kind(rows, MARKER) if m["name"] == "step start"]
        assert [(m["flag"], m["source"]) for m in starts] == [
            (16, 0)
        ] * steps, "every rank announces its steps"
        on_stream = sorted((r["start"], r["end"]) for r in of_kind(rows, KERNEL, COMMUNICATION))
        assert all(a[1] <= b[0] for a, b in zip(on_stream, on_stream[1:]))


def test_a_kernel_gets_slower_from_a_step_on(build, env, watch, tmp_path):
    _, records = watched(
        build,
        dict(env, RANK="0"),
        watch,
        tmp_path,
        "1,2",
        "--steps",
        6,
        "--quiet",
        "--slower",
        "MatMulV2:3@4",
        SIM_NPU_TIME_SCALE="0.5",
    )
    starts = sorted(m["time"] for m in of_kind(records[0], MARKER) if m["name"] == "step start")
    per_step = collections.defaultdict(set)
    others = set()
    for k in of_kind(records[0], KERNEL):
        step = sum(t <= k["start"] for t in starts)
        if k["name"] == "MatMulV2":
            per_step[step].add(k["end"] - k["start"])
        elif k["name"] == "Gelu":
            others.add(k["end"] - k["start"])
    assert dict(per_step) == {s: {125000 if s < 4 else 375000} for s in range(1, 7)}
    assert others == {30000}


def test_names_that_are_not_utf8(build, env, watch, tmp_path):
    _, records = watched(
        build, dict(env, RANK="0"), watch, tmp_path, "1,2", "--steps", 1, "--bad-names"
    )
    raw = {k["name"].encode("latin-1") for k in of_kind(records[0], KERNEL)}
    assert b"MatMulV2\xff\xc3(\xe2\x82" in raw
    for name in raw:
        with pytest.raises(UnicodeDecodeError):
            name.decode()
    assert b"mark \xff\xfe that is not text" in {
        (m["name"] or "").encode("latin-1") for m in of_kind(records[0], MARKER)
    }
    plain, bad = train(build, env, "--steps", 2), train(build, env, "--steps", 2, "--bad-names")
    assert plain.stdout == bad.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["--ranks", 0],
        ["--ranks", 65],
        ["--ranks", 2, "--devices", 2],
        ["--ranks", 2, "--procs", 2],
        ["--slow-rank", "x:2"],
        ["--slow-rank", "0"],
        ["--slow-rank", "0:0"],
        ["--ranks", 2, "--slow-rank", "2:2"],
        ["--slower", "MatMulV2"],
        ["--slower", "MatMulV2:x"],
        ["--slower", "Nothing:2"],
        ["--slower", "MatMulV2:2@0"],
        ["--ranks", 1, "--rank-of", "0:77"],
    ],
)
def test_wrong_options_are_refused_in_words(build, env, args):
    r = train(build, env, *args)
    assert r.returncode == 2 and r.stdout == "" and "simtrain" in r.stderr


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def job(build, env, tmp_path):
    """Four ranks that go on for ever, once they train; none outlives its test."""
    out = open(tmp_path / "out", "w+")
    p = subprocess.Popen(
        [build / "sim" / "simtrain", "--ranks", "4", "--forever", "--step-ms", "5"],
        env=env,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
    )

    def trains():
        assert p.poll() is None
        return "step 3" in (tmp_path / "out").read_text()

    wait_until(trains, "step 3", 30)
    p.ranks = children(p.pid)
    yield p
    p.kill()
    p.wait()


def gone(pids, seconds=20):
    wait_until(lambda: not any(alive(p) for p in pids), "the ranks to end", seconds)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_every_rank_is_a_process_that_knows_its_number(job):
    ranks = {}
    for pid in job.ranks:
        e = dict(
            v.split("=", 1)
            for v in Path(f"/proc/{pid}/environ").read_text().split("\0")
            if "=" in v
        )
        ranks[int(e["RANK"])] = (
            e["WORLD_SIZE"],
            e["LOCAL_RANK"],
            Path(f"/proc/{pid}/comm").read_text().strip(),
        )
    assert ranks == {i: ("4", str(i), "simtrain") for i in range(4)}


def test_a_killed_rank_ends_the_job(job):
    os.kill(job.ranks[2], signal.SIGKILL)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 1 and err.count("another rank is gone") == 3
    gone(job.ranks)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_their_launcher(job, how):
    job.send_signal(how)
    assert job.wait(timeout=30) == -how
    gone(job.ranks)
