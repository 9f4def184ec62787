# SPDX-License-Identifier: MulanPSL-2.0
"""The simulated MSPTI behaves as its consumers know the real one, and what it tells fits together:
calls, kernels, copies, marks, and collectives between ranks that really wait."""

import collections
import json
import subprocess
import sys

import pytest
from mspti_records import (
    ACL,
    ALL,
    API,
    COMMUNICATION,
    EXTERNAL,
    HCCL,
    KERNEL,
    MARKER,
    MEMCPY,
    MEMORY,
    MEMSET,
    NODE,
    NOTHING,
    RUNTIME,
    machine,
    of_kind,
)


@pytest.fixture
def env(tmp_path):
    return machine(tmp_path)


@pytest.fixture
def preloaded(env, build):
    return dict(env, LD_PRELOAD=str(build / "sim" / "libmspti.so"))


@pytest.fixture
def calls(build):
    """Runs a mode of tests/targets/mspti_calls.c, or another program; the lines it printed."""

    def run(env, *args, status=0, program="mspti_calls"):
        r = subprocess.run(
            [build / "targets" / program, *map(str, args)],
            env=env,
            timeout=60,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert r.returncode == status, r.stderr
        run.stderr = r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]

    return run


# --- the interface ------------------------------------------------------------------------------


def test_return_codes(env, preloaded, calls):
    (got,) = calls(env, "codes")
    assert got["subscribe"] == [1, 0, 2], "one subscriber per process"
    assert got["unsubscribe"] == [1, 0, 1, 0], "and another one after him"
    assert got["register"] == [1, 0]
    #                        -1 0  1  2  3  4  5  6  7  8  9  10 11 12 13 14
    assert got["enable"] == [1, 1, 0, 0, 0, 6, 6, 6, 6, 0, 0, 0, 0, 0, 1, 1]
    assert got["enabled"] == [0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0]
    assert got["callbacks"] == [6, 6, 1, 1]
    assert got["disable"] == [0, 1, 0] and got["domain"] == [1, 0]
    assert got["external"] == [1, 0, 0, 77, 5]
    (with_preload,) = calls(preloaded, "codes")
    assert with_preload["enable"] == [1, 1] + [0] * 12 + [1, 1]
    assert with_preload["enabled"] == [0, 0] + [1] * 12 + [0, 0]
    assert with_preload["callbacks"] == [0, 0, 1, 1]


def test_a_refused_kind_is_not_collected(env, calls):
    assert calls(env, "work", MEMCPY, status=6) == []


def test_the_cursor_belongs_to_the_thread(env, calls):
    (got,) = calls(env, "cursor")
    assert got["wrong"] == [1]
    assert got["walk"] == [
        [0, 0],
        [0, 56],
        [3, 56],
        [0, 0],
    ], "3 at the end, then from the start again"
    assert got["other"] == 0
    assert got["shorter"] == 3, "another buffer goes on where the last one was left"
    assert got["strange"] == 999 and got["empty"] == 3


def test_full_buffers_come_back_from_threads_of_their_own(env, calls):
    size = 10000
    *done, end = calls(env, "buffers", size)
    assert end["records"] == end["recorded"] == 1000 and end["dropped"] == 0 and end["out"] == 0
    assert end["requests"] == [0, len(done)], "asked for when there is a record, and not before"
    assert not end["asked_by_main"], "by the thread that has the record"
    *full, last = done
    assert len(full) >= 5 and {b["size"] for b in done} == {size}
    for b in full:
        assert b["valid"] - 56 < size * 0.8 <= b["valid"], "retired at 80 %"
        assert b["thread"] == "sim-mspti"
    assert len({b["by"] for b in full}) == len(full) and last["by"] == end["main"]
    assert calls.stderr.count("2 MB or more") == len(done)


def test_flush_completes_on_the_calling_thread(env, calls):
    done, end = calls(env, "buffers", 4 << 20)
    assert done["by"] == end["main"] and done["valid"] == 56000
    assert calls.stderr == "", "a buffer of 2 MiB or more is fine"


def test_no_buffer_loses_records_and_counts_them(env, calls):
    (got,) = calls(env, "refused")
    assert got["lost"] == 50 and got["records"] == 1
    assert got["null"] >= 1, "what was refused is completed, too: NULL, 0 bytes"


def test_flush_period(env, calls):
    assert calls(env, "period")[0]["records"] == 1


def test_nothing_is_noted_while_nothing_is_on(preloaded, calls):
    assert calls(preloaded, "off") == [{"recorded": 0, "requests": 0}]


def test_callbacks(preloaded, env, calls):
    *got, end = calls(preloaded, "callbacks")
    assert end["enable"] == 0 and [c["site"] for c in got] == [0, 1]
    assert {(c["domain"], c["id"], c["name"]) for c in got} == {
        (1, 10, "rtLaunchKernelByFuncHandle")
    }
    assert {c["word"] for c in got} == {42} and {c["user"] for c in got} == {5}
    assert got[0]["correlation"] == got[1]["correlation"] > 0
    assert calls(env, "callbacks") == [{"enable": 6}]


def test_a_child_begins_with_nothing_on(env, calls):
    got = calls(env, "forked")
    assert got[0] == {"on": 0}
    assert [r["name"] for r in got[1:]] == ["Child", "Parent"]


@pytest.mark.parametrize("kind", [KERNEL, MARKER, RUNTIME])
def test_a_flood_loses_nothing(env, calls, kind):
    n = 500000
    (got,) = calls(dict(env, SIM_MSPTI_FLOOD=f"{n}:{kind}"), "flood", kind)
    assert got["records"] == n and got["dropped"] == 0
    assert got["bytes"] == n * (48 if kind == RUNTIME else 56)


# --- what a process tells -----------------------------------------------------------------------


@pytest.fixture
def told(preloaded, calls):
    *records, self = calls(preloaded, "work", ALL)
    return records, self


def test_times_are_wall_clock_and_over(told):
    records, self = told
    for r in records:
        begin, end = r.get("start", r.get("time")), r.get("end", r.get("time"))
        if begin is None:
            assert r["kind"] == EXTERNAL
            continue
        assert begin <= end <= self["now"] and self["now"] - begin < 60 * 10**9, r


def test_kernels_fit_their_launches_and_their_stream(told):
    records, _ = told
    kernels = of_kind(records, KERNEL)
    names = collections.Counter(k["name"] for k in kernels)
    assert names == {"Even": 10, "Odd": 10, "Launched": 5, "OnCpu": 1, "InRange": 1}
    assert {k["type"] for k in kernels} == {"KERNEL_AICORE", "KERNEL_AICPU"}
    by_call = collections.defaultdict(dict)
    for r in of_kind(records, API, ACL, NODE, RUNTIME):
        assert r["kind"] not in by_call[r["correlation"]], "one record of a kind per call"
        by_call[r["correlation"]][r["kind"]] = r
    assert len({k["correlation"] for k in kernels}) == len(kernels)
    for k in kernels:
        layers = by_call[k["correlation"]]
        assert {API, NODE, RUNTIME} <= set(layers)
        assert layers[API]["name"] == k["name"] and layers[NODE]["name"] == "launch"
        assert layers[RUNTIME]["name"].startswith("rt")
        outside = [layers[kind] for kind in (ACL, API, NODE, RUNTIME) if kind in layers]
        for outer, inner in zip(outside, outside[1:]):
            assert outer["start"] <= inner["start"] <= inner["end"] <= outer["end"]
        assert k["start"] >= layers[RUNTIME]["start"] >= outside[0]["start"]
        if k["name"] in ("Even", "Odd", "InRange"):
            assert layers[ACL]["name"] == "aclrtLaunchKernel"
        if k["name"] == "OnCpu":
            assert ACL not in layers and layers[RUNTIME]["name"] == "rtAicpuKernelLaunchExWithArgs"
    assert {k["device"] for k in kernels} == {1}
    for stream in {k["stream"] for k in kernels}:
        mine = [k for k in kernels if k["stream"] == stream]
        for a, b in zip(mine, mine[1:]):
            assert a["end"] <= b["start"], "a stream does one after the other"
    assert all(k["end"] - k["start"] == 4000 for k in kernels if k["name"] in ("Even", "Odd"))


def test_calls_of_every_layer(told):
    records, self = told
    names = {kind: {r["name"] for r in of_kind(records, kind)} for kind in (ACL, RUNTIME)}
    assert {
        "aclrtMalloc",
        "aclrtFree",
        "aclrtMemcpy",
        "aclrtMemcpyAsync",
        "aclrtMemset",
        "aclrtSynchronizeStream",
        "aclrtSynchronizeDevice",
    } <= names[ACL]
    assert {
        "rtMalloc",
        "rtFree",
        "rtMemcpy",
        "rtMemcpyAsync",
        "rtMemset",
        "rtStreamSynchronize",
    } <= names[RUNTIME]
    assert {(r["pid"], r["tid"]) for r in of_kind(records, API, ACL, NODE, RUNTIME)} == {
        (self["pid"], self["tid"])
    }


def test_memory_and_copies(told):
    records, self = told
    got, given = of_kind(records, MEMORY)
    assert (got["operation"], given["operation"], got["memory"]) == (0, 1, 1)
    assert got["address"] == given["address"] and got["bytes"] == given["bytes"] == 8192
    assert got["device"] == 1 and got["stream"] == NOTHING and got["pid"] == self["pid"]
    to_device, to_host = of_kind(records, MEMCPY)
    assert (to_device["value"], to_device["bytes"], to_device["async"]) == (2, 1000, 0)
    assert (to_host["value"], to_host["bytes"], to_host["async"], to_host["device"]) == (
        3,
        3000,
        1,
        1,
    )
    assert to_device["stream"] == NOTHING and to_host["stream"] != NOTHING
    (fill,) = of_kind(records, MEMSET)
    assert (fill["value"], fill["bytes"], fill["async"]) == (7, 2000, 0)
    calls_by_id = {r["correlation"]: r["name"] for r in of_kind(records, ACL)}
    assert [calls_by_id[r["correlation"]] for r in (got, given, to_device, to_host, fill)] == [
        "aclrtMalloc",
        "aclrtFree",
        "aclrtMemcpy",
        "aclrtMemcpyAsync",
        "aclrtMemset",
    ]


def test_marks_on_host_and_device(told):
    records, self = told
    marks = of_kind(records, MARKER)
    by_name = {m["name"]: m for m in marks if m["name"]}
    assert set(by_name) == {
        "a range",
        "a range with stream",
        "a mark",
        "a mark with stream",
        "an early domain",
    }
    flags = collections.defaultdict(list)
    for m in marks:
        flags[m["id"]].append((m["source"], m["flag"]))
    assert flags[by_name["a range"]["id"]] == [(0, 2), (0, 4)]
    assert sorted(flags[by_name["a range with stream"]["id"]]) == [
        (0, 16),
        (0, 32),
        (1, 16),
        (1, 32),
    ]
    assert flags[by_name["a mark"]["id"]] == [(0, 1)]
    assert sorted(flags[by_name["a mark with stream"]["id"]]) == [(0, 8), (1, 8)]
    assert by_name["a range with stream"]["domain"] == "wanted"
    assert by_name["an early domain"]["domain"] == "early", "also of a domain that was there before"
    assert by_name["a mark"]["domain"] is None
    on_device = [m for m in marks if m["source"] == 1]
    assert all(m["name"] is None and m["domain"] is None and m["device"] == 1 for m in on_device)
    assert all(
        (m["pid"], m["tid"]) == (self["pid"], self["tid"]) for m in marks if m["source"] == 0
    )
    # The kernel between start and end of the range lies between them on the device, too.
    start, end = [m["time"] for m in on_device if m["flag"] in (16, 32)]
    (kernel,) = [k for k in of_kind(records, KERNEL) if k["name"] == "InRange"]
    assert start <= kernel["start"] <= kernel["end"] <= end
    host = {(m["id"], m["flag"]): m["time"] for m in marks if m["source"] == 0}
    assert all(m["time"] >= host[m["id"], m["flag"]] for m in on_device)


def test_external_correlation_names_the_calls_between_push_and_pop(told):
    records, _ = told
    external = of_kind(records, EXTERNAL)
    assert {(r["external_kind"], r["external"]) for r in external} == {(3, 4711)}
    kernels = {k["correlation"] for k in of_kind(records, KERNEL) if k["name"] != "InRange"}
    assert {r["correlation"] for r in external} == kernels


@pytest.mark.parametrize("kind", [MARKER, KERNEL, API, COMMUNICATION, ACL, NODE, RUNTIME])
def test_only_what_is_enabled(env, calls, kind):
    *records, _ = calls(env, "work", kind)
    assert {r["kind"] for r in records} == ({kind} if kind != COMMUNICATION else set())
    assert not {r.get("name") for r in records} & {"Before", "After", "after"}


# --- collectives --------------------------------------------------------------------------------


def test_collectives_wait_and_compute(preloaded, calls):
    lines = calls(
        dict(preloaded, SIM_NPU_TIME_SCALE="1"),
        f"{COMMUNICATION},{HCCL},{KERNEL},{API}",
        program="mspti_collectives",
    )
    ranks = [x for x in lines if "rank" in x]
    assert [r["error"] for r in ranks] == [0] * 4
    assert [r["words"] for r in ranks] == [[600, 300, 600 + 4 * i, 300] for i in range(4)]
    groups = collections.defaultdict(list)
    for r in of_kind(lines, COMMUNICATION):
        groups[r["name"]].append(r)
    assert set(groups) == {
        "hcom_allReduce_",
        "hcom_allGather_",
        "hcom_reduceScatter_",
        "hcom_broadcast_",
        "hcom_barrier_",
    }
    for records in groups.values():
        assert len(records) == 4 and len({r["end"] for r in records}) == 1, "all ranks end together"
        assert all(r["start"] < r["end"] for r in records)
        assert {r["comm"] for r in records} == {"group_name_0"}
    first = {r["device"]: r for r in groups["hcom_allReduce_"]}
    assert {r["type"] for r in first.values()} == {4} and {r["count"] for r in first.values()} == {
        256
    }
    assert {r["type"] for r in groups["hcom_broadcast_"]} == {3}
    assert max(first, key=lambda d: first[d]["start"]) == 1, "the slow rank comes last"
    (slow,) = [k for k in of_kind(lines, KERNEL) if k["name"] == "SlowKernel"]
    assert first[1]["start"] >= slow["end"]
    assert not [k for k in of_kind(lines, KERNEL) if k["name"].startswith("hcom")], "not told twice"
    apis = {
        r["correlation"]: r["name"] for r in of_kind(lines, API) if r["name"].startswith("Hccl")
    }
    assert {apis[r["correlation"]] for r in groups["hcom_allGather_"]} == {"HcclAllGather"}
    hccl = of_kind(lines, HCCL)
    assert len(hccl) == 20 and {r["comm"] for r in hccl} == {"group_name_0"}
    assert all(r["bandwidth"] > 0 for r in hccl if r["name"] != "HcclBarrier")


@pytest.mark.parametrize("how", ["end", "stop"])
def test_a_lost_rank_does_not_hold_the_others(env, calls, how):
    (got,) = calls(dict(env, HCCL_EXEC_TIMEOUT="1"), "lost", how, program="mspti_collectives")
    assert got == {"first": 0, "second": 507018, "third": 507018}


TABLE = """
import ctypes, json, os, sys, threading
SIM, path = sys.argv[1:]
h = ctypes.CDLL(SIM + "/libhccl.so")
json.dump({"server_list": [{"device": [{"rank_id": "0"}, {"rank_id": "1"}]}]}, open(path, "w"))
def join(rank, out):
    c, n = ctypes.c_void_p(), ctypes.c_uint32()
    r = h.HcclCommInitClusterInfo(path.encode(), rank, ctypes.byref(c))
    if not r:
        h.HcclGetRankSize(c, ctypes.byref(n))
        name = ctypes.create_string_buffer(128)
        h.HcclGetCommName(c, name)
        out[rank] = (r, n.value, name.value.decode())
    else:
        out[rank] = (r,)
out = {}
os.environ["HCCL_CONNECT_TIMEOUT"] = "1"
ctypes.CDLL(None).setenv(b"HCCL_CONNECT_TIMEOUT", b"1", 1)
join(0, out)                       # nobody else comes
alone = out.pop(0)
threads = [threading.Thread(target=join, args=(r, out)) for r in (0, 1)]
[t.start() for t in threads]
[t.join() for t in threads]
path += ".none"
none = {}
join(0, none)
print(json.dumps([alone, out[0], out[1], none[0]]))
"""


def test_ranks_of_one_table_meet(env, build, tmp_path):
    r = subprocess.run(
        [sys.executable, "-c", TABLE, build / "sim", tmp_path / "table.json"],
        env=env,
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    world = [0, 2, "hccl_world_group"]
    assert json.loads(r.stdout) == [[9], world, world, [10]]
    assert [
        p.name for p in (tmp_path / "npu").iterdir() if p.name.startswith("hccl")
    ] == [], "nothing stays behind"
