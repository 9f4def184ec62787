# SPDX-License-Identifier: MulanPSL-2.0
"""sonde mem export for viewers of others: PyTorch's memory_viz, pprof, flame graphs, speedscope. What
they show adds up to what `sonde mem show` and `peak` say."""

import collections
import gzip
import importlib.util
import json
import pickle
import pickletools
import subprocess

import pytest
from capabilities import lacks
from test_stack_output import fields, packed
from torches import FETCHED

# What the unpickler of the viewer in the browser knows.
BROWSER = set(
    "PROTO FRAME EMPTY_DICT EMPTY_LIST MARK SETITEMS SETITEM APPEND APPENDS BINUNICODE SHORT_BINUNICODE"
    " BININT BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE TUPLE1 TUPLE2 TUPLE3 TUPLE BINPUT"
    " LONG_BINPUT BINGET LONG_BINGET MEMOIZE STOP".split()
)


@pytest.fixture(scope="module")
def files(request, build, tmp_path_factory):
    """One recording, everything that is made of it, and what our own commands say about it."""
    tmp = tmp_path_factory.mktemp("viewers")
    sonde = build / "bin/sonde"

    def run(*words):
        r = subprocess.run(list(map(str, words)), cwd=tmp, capture_output=True, timeout=120)
        assert r.returncode == 0, r.stderr
        return r

    opts = ["--call-stack=c:20", "--analysis=decompose", "--report=off", f"--output={tmp / 'rec'}"]
    train = ["--quiet", "--steps", 6, "--fault", "leak"]
    run(build / "bin/msmemscope", *opts, "--", build / "sim/simtrain", *train)
    (dump,) = (tmp / "rec").glob("msmemscope_*/device_0/dump/*.csv")
    made = collections.namedtuple("Made", "run tmp dump show peak")
    show = json.loads(run(sonde, "mem", "show", "--json", "rec").stdout)
    peak = json.loads(run(sonde, "mem", "peak", "--json", "rec").stdout)
    return made(lambda *words: run(sonde, "mem", "export", *words), tmp, dump, show, peak)


def pools(files):
    return {p["pool"]: p for p in files.show["processes"][0]["pools"]}


def load(path):
    data = path.read_bytes()
    assert {op.name for op, _, _ in pickletools.genops(data)} <= BROWSER
    return pickle.loads(data)


def follow(events):
    """What is allocated at the end of a trace, and the most that ever was."""
    live, most, segments = {}, 0, {}
    for e in events:
        if e["action"] == "alloc":
            assert e["addr"] not in live
            live[e["addr"]] = e["size"]
            most = max(most, sum(live.values()))
        elif e["action"] == "free_completed":
            assert live.pop(e["addr"]) == e["size"]
        elif e["action"] == "segment_alloc":
            segments[e["addr"]] = e["size"]
        elif e["action"] == "segment_free":
            assert segments.pop(e["addr"]) == e["size"]
    return live, most, segments


def active(snapshot):
    blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
    for s in snapshot["segments"]:
        assert sum(b["size"] for b in s["blocks"]) == s["total_size"]
    return {b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"}


@pytest.mark.parametrize("source", ["recording", "dump"])
def test_torch_snapshot(files, source):
    path = files.tmp / f"{source}.pickle"
    r = files.run("--format=torch", "-o", path, "rec" if source == "recording" else files.dump)
    assert b"memory_viz" in r.stderr
    snapshot = load(path)
    (events,) = snapshot["device_traces"]
    live, _, segments = follow(events)
    left = sum(p["alive_at_end"]["bytes"] for p in pools(files).values())
    assert left == sum(live.values()) == sum(active(snapshot).values()) > 0
    assert live == active(snapshot) and not segments
    counts = collections.Counter(e["action"] for e in events)
    carved = counts["segment_alloc"]
    assert 0 < carved <= pools(files)["HAL"]["mallocs"]
    assert counts["alloc"] + carved == sum(p["mallocs"] for p in pools(files).values())
    # PyTorch's page needs the second where there is any
    assert {"HCCL", "unknown"} <= {e["category"] for e in events if "category" in e}
    assert events[-1]["action"] == "snapshot"
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] in live]
    (leak,) = {tuple(f["name"] for f in b["frames"]) for b in blocks}
    assert "leak_one_buffer" in leak and leak[-1] == "main"
    assert all(a["time_us"] <= b["time_us"] for a, b in zip(events, events[1:]))


def test_torch_snapshot_of_the_peak(files):
    path = files.tmp / "peak.pickle"
    files.run("--format=torch", "--at=peak", "-o", path, "rec")
    snapshot = load(path)
    live, _, segments = follow(snapshot["device_traces"][0])
    (device,) = files.peak["devices"]
    assert live == active(snapshot)
    reserved = {s["address"]: s["total_size"] for s in snapshot["segments"]}
    assert sum(reserved.values()) == device["driver_bytes"]
    assert {a: n for a, n in reserved.items() if a in segments} == segments
    pool = sum(p["allocated_bytes"] for p in device["pools"] if p["pool"] != "HAL")
    direct = sum(n for a, n in reserved.items() if a not in segments)
    assert sum(live.values()) == pool + direct


def test_memory_viz_of_pytorch(files):
    """Its own module; it needs nothing else of torch, whose import takes seconds."""
    found = sorted(FETCHED.glob("root/usr/lib/python3*/**/torch/cuda/_memory_viz.py"))
    if not found:
        lacks("torch-current", "tools/fetch_torch")
    path = files.tmp / "viz.pickle"
    files.run("--format=torch", "--at=peak", "-o", path, "rec")
    spec = importlib.util.spec_from_file_location("memory_viz", found[0])
    viz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viz)
    snapshot = pickle.loads(path.read_bytes())
    (device,) = files.peak["devices"]
    assert viz.segsum(snapshot).count("\n") > len(snapshot["segments"])
    assert len(viz.trace(snapshot)) > len(snapshot["device_traces"][0])
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "<script" in plot(snapshot)
    lines = viz.memory(snapshot, format_flamegraph=str).splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == device["driver_bytes"]
    assert any("train_step" in line for line in lines)


def test_pprof(files):
    for path in ("rec", files.dump):
        files.run("--format=pprof", "-o", "memory.pb.gz", path)
        top = fields(gzip.decompress((files.tmp / "memory.pb.gz").read_bytes()))
        strings = [s.decode() for s in top[6]]
        kinds = [strings[fields(t)[1][0]] for t in top[1]]
        assert kinds == ["inuse_space", "inuse_objects", "alloc_space", "alloc_objects"]
        assert strings[top[14][0]] == "inuse_space"
        sums = [sum(v) for v in zip(*(packed(s[2][0]) for s in map(fields, top[2])))]
        (device,) = files.peak["devices"]
        assert sums[0] == device["driver_bytes"]
        assert sums[3] == sum(p["mallocs"] for p in pools(files).values())
        labels = {strings[fields(x)[2][0]] for s in map(fields, top[2]) for x in s[3] if 2 in fields(x)}
        assert {"device 0, HAL", "device 0, PTA"} <= labels


def test_flame_graphs(files):
    (device,) = files.peak["devices"]
    files.run("--format=collapsed", "-o", "out.txt", "rec")
    lines = (files.tmp / "out.txt").read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == device["driver_bytes"]
    assert any("device 0, PTA;free inside the pool " in line for line in lines)
    files.run("--format=speedscope", "-o", "out.json", "rec")
    profile = json.loads((files.tmp / "out.json").read_text())
    assert {p["unit"] for p in profile["profiles"]} == {"bytes"}
    assert sum(sum(p["weights"]) for p in profile["profiles"]) == device["driver_bytes"]
    files.run("--format=collapsed", "--at=end", "-o", "end.txt", "rec")
    (line,) = (files.tmp / "end.txt").read_text().splitlines()
    assert "leak_one_buffer" in line and line.endswith(" 4194304")
    files.run("--format=svg", "--at=end", "-o", "end.svg", "rec")
    picture = (files.tmp / "end.svg").read_text()
    assert "Memory at the end: 4.00 MiB</text>" in picture
    assert '<g class="u"><title>leak_one_buffer' in picture  # the user's own code
    assert picture.count("4.00 MiB, 100.00 %</title>") >= 3


def test_words_that_do_not_fit(files, build):
    def fails(status, *words):
        r = subprocess.run(
            [build / "bin/sonde", "mem", "export", *words, files.tmp / "rec"],
            cwd=files.tmp, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert r.returncode == status and "Traceback" not in r.stderr
        return r.stderr

    assert "--format=torch" in fails(2, "--at=peak")
    assert "no moment" in fails(2, "--format=pprof", "--at=noon")
    assert "the last one is 6" in fails(1, "--format=pprof", "--at=step:99")
    assert "/nowhere" in fails(1, "--format=torch", "-o", "/nowhere/x.pickle")


def test_more_events_than_memory_takes(files, build):
    """Events wait in a file without a name; segments are known after their events were written."""
    opts = ["--report=off", "--format=none", f"--output={files.tmp / 'long'}"]
    job = [build / "sim/simtrain", "--quiet", "--steps", "60"]
    words = [build / "bin/msmemscope", *opts, "--", *job]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    files.run("--format=torch", "--at=peak", "-o", "long.pickle", "long")
    snapshot = load(files.tmp / "long.pickle")
    live, _, segments = follow(snapshot["device_traces"][0])
    assert live == active(snapshot)
    reserved = {s["address"]: s["total_size"] for s in snapshot["segments"]}
    assert segments == {a: n for a, n in reserved.items() if a in segments} != {}
    files.run("--format=torch", "-o", "whole.pickle", "long")
    assert (files.tmp / "whole.pickle").stat().st_size > 300_000
    assert follow(load(files.tmp / "whole.pickle")["device_traces"][0])[0] == {}
    assert not list(files.tmp.glob("*.tmp"))
