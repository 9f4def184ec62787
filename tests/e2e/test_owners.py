# SPDX-License-Identifier: MulanPSL-2.0
"""sonde mem owners and peak: who held what, the same from every form, adding up."""

import json

import pytest

DECOMPOSE = "--analysis=decompose"
SOURCES = {"HAL": "CANN", "MindSpore": "MINDSPORE"}
KIB = 1024


def ask(record, command, path, *words):
    r = record.sonde("mem", command, "--json", "--top=100000", *words, path)
    assert r.returncode == 0, r.stderr
    assert r.stderr == b""
    return json.loads(r.stdout)


def devices(answer):
    return {(d["pid"], d["device"]): d for d in answer["devices"]}


def flat(device):
    """{(owner, is it free): bytes} of blocks with exactly this owner; sums are checked."""
    found = {}

    def walk(node):
        key = node["owner"], node.get("free", False)
        below = [walk(n) for n in node["below"]]
        assert len(below) == node["below_total"]
        assert node["bytes"] == node["own_bytes"] + sum(below)
        if node["own_bytes"]:
            assert key not in found
            found[key] = node["own_bytes"]
        return node["bytes"]

    assert sum(walk(n) for n in device["owners"]) == device["bytes"]
    return found


class Block:
    def __init__(self, row, final_owner):
        self.type, self.ptr, self.size = row.type, int(row.ptr, 16), int(row.attr["size"])
        self.time = row.time
        self.owner = final_owner or SOURCES.get(row.type, row.type)
        self.carved = None  # type of the first pool that cut from it

    def holds(self, other):
        return self.ptr <= other.ptr < self.ptr + self.size


class Device:
    """One device of a process, row by row, without the program under test."""

    def __init__(self):
        self.live, self.used = {}, None

    def sums(self):
        driver = sum(b.size for b in self.live.values() if b.type in ("HAL", "HOST"))
        return driver, sum(b.size for b in self.live.values()) - driver

    def add(self, row, owner):
        if row.event == "MALLOC":
            b = Block(row, owner)
            if b.type not in ("HAL", "HOST"):
                (segment,) = [x for x in self.live.values() if x.type == "HAL" and x.holds(b)]
                segment.carved = segment.carved or b.type
            self.live[row.attr["allocation_id"]] = b
        else:
            del self.live[row.attr["allocation_id"]]
        if row.type == "HAL" and "used" in row.attr:
            self.used = int(row.attr["used"])

    def owners(self):
        """Called while carved may still change: the blocks are what is copied."""
        return list(self.live.values()), self.used, self.sums()


def decompose(snapshot):
    blocks, used, sums = snapshot
    found = {}
    for b in blocks:
        if b.type != "HAL" or not b.carved:
            found[b.owner, False] = found.get((b.owner, False), 0) + b.size
            continue
        inside = [x for x in blocks if x.type not in ("HAL", "HOST") and b.holds(x)]
        rest = b.size - sum(x.size for x in inside)
        assert rest >= 0
        if rest:
            key = SOURCES.get(b.carved, b.carved), True
            found[key] = found.get(key, 0) + rest
    if used is not None:
        assert sums[0] == used, "the running sum of the rows"
    return found


def followed(process, wanted):
    """{device: decomposition} of the moments that wanted(device, row) accepts; the last counts."""
    rows = [r for r in process.rows if r.event in ("MALLOC", "FREE")]
    rows = [r for r in rows if r.attr.get("alloc_type") != "file"]  # which count nowhere
    owners = {}
    for r in rows:
        if r.attr.get("owner"):
            owners[r.attr["allocation_id"]] = r.attr["owner"]
    state, chosen = {}, {}
    for r in rows:
        if r.event == "FREE" and "shadow" in r.attr:
            continue
        d = state.setdefault(r.device, Device())
        d.add(r, owners.get(r.attr["allocation_id"]))
        if wanted(d, r):
            chosen[r.device] = d.owners()
    return {device: decompose(s) for device, s in chosen.items()}


def highest():
    best = {}

    def wanted(device, row):
        if row.event != "MALLOC" or device.sums() <= best.get(id(device), (-1, -1)):
            return False
        best[id(device)] = device.sums()
        return True

    return wanted


def until(time):
    return lambda device, row: row.time <= time


JOBS = {
    "pta": ["--steps", 4, "--aten"],
    "leak": ["--steps", 4, "--fault", "leak:123456"],
    "atb": ["--steps", 3, "--pool", "atb"],
    "mindspore": ["--steps", 3, "--pool", "mindspore"],
    "many": ["--steps", 3, "--aten", "--devices", 2, "--procs", 2],
}


@pytest.mark.parametrize("form", ["csv", "db"])
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_the_peak_adds_up(record, job, form):
    opts = [DECOMPOSE, f"--format={form}", "--device=npu,cpu"]
    got = record("simtrain", *job, opts=opts)
    answer = ask(record, "owners", got.dir)
    said = devices(answer)
    want = {
        (p.pid, device): owners
        for p in got.processes
        for device, owners in followed(p, highest()).items()
    }
    assert said.keys() == want.keys()
    for key, owners in want.items():
        assert flat(said[key]) == owners, key
        assert said[key]["bytes"] == said[key]["driver_bytes"] == sum(owners.values())
        assert said[key]["outside_bytes"] == 0
    if "--aten" in job:
        assert any(o == "PTA@ops" for owners in want.values() for o, _ in owners)
    peaks = devices(ask(record, "peak", got.dir))
    assert {k: flat(d) for k, d in peaks.items()} == want
    assert all(d["peak_bytes"] == d["driver_bytes"] for d in peaks.values())
    # The files have the same to say, one by one and together.
    for p in got.processes:
        for device, path in p.files.items():
            (one,) = devices(ask(record, "owners", path)).items()
            assert one[0] == (p.pid, device)
            assert flat(one[1]) == want[one[0]]
        together = ask(record, "owners", p.dir)
        assert {k: flat(d) for k, d in devices(together).items()} == {
            k: v for k, v in want.items() if k[0] == p.pid
        }


def test_any_moment(record):
    got = record("simtrain", "--steps", 3, opts=[DECOMPOSE])
    p = got.process
    rows = [r for r in p.rows if r.event in ("MALLOC", "FREE") and r.device == "0"]
    first = min(r.time for r in p.rows)
    for i in range(0, len(rows), max(1, len(rows) // 6)):
        time = rows[i].time
        want = followed(p, until(time))["0"]
        for path in (got.dir, p.files["0"]):
            for moment in (time, f"+{time - first}ns", f"+{(time - first) / 1e6:.6f}ms"):
                (d,) = ask(record, "owners", path, f"--at={moment}")["devices"]
                assert flat(d) == want, moment
                assert d["time_ns"] == time
    (d,) = ask(record, "owners", got.dir, "--at=end")["devices"]
    assert d["bytes"] == 0 and d["owners"] == [], "the job gives everything back"


def test_a_step(record):
    got = record("simtrain", "--steps", 4, "--fault", "leak", opts=[DECOMPOSE])
    rows = got.process.rows
    starts = [r.time for r in rows if r.type == "Range_start" and r.name.strip('"') == "step start"]
    assert len(starts) == 4
    for path in (got.dir, got.process.files["0"]):
        heights = []
        for n in range(1, 5):
            (d,) = ask(record, "owners", path, f"--at=step:{n}")["devices"]
            assert d["step"] == n and d["time_ns"] >= starts[n - 1]
            assert n == 4 or d["time_ns"] < starts[n]
            assert flat(d) == followed(got.process, until(d["time_ns"]))["0"]
            heights.append((d["driver_bytes"], d["allocated_in_pools_bytes"]))
        (peak,) = ask(record, "peak", path)["devices"]
        top = (peak["driver_bytes"], peak["allocated_in_pools_bytes"])
        assert top == max(heights) == heights[peak["step"] - 1]
        following = peak["next_highest"]
        heights[peak["step"] - 1] = (0, 0)
        second = (following["driver_bytes"], following["allocated_in_pools_bytes"])
        assert second == max(heights) == heights[following["step"] - 1]


@pytest.mark.parametrize(
    "moment, status, why",
    [
        ("step:9", 1, b"there is no step 9; the last one is 2"),
        ("+1min", 1, b"there are rows from "),
        ("12345", 1, b"there are rows from "),
        ("step:0", 2, b"'step:0' is no moment; accepted are peak, end"),
        ("+5", 2, b"is no moment"),
        ("noon", 2, b"is no moment"),
    ],
)
def test_moments_that_are_not_there(record, moment, status, why):
    got = record("simtrain", "--steps", 2)
    r = record.sonde("mem", "owners", f"--at={moment}", got.dir)
    assert r.returncode == status and why in r.stderr and not r.stdout


@pytest.mark.parametrize("what", ["peak", "owners"])
def test_depth_is_about_modules(record, what):
    r = record.sonde("mem", what, "--depth=2", "nowhere")
    assert r.returncode == 2 and b"add --by=module" in r.stderr


LABELS = {
    ("PTA@weight", False): 512 * KIB,
    ("PTA@gradient", False): 256 * KIB,
    ("PTA@vllm@kv_cache@hot", False): 128 * KIB,
    ("PTA@vllm@kv_cache@outer@inner", False): 64 * KIB,
    ("PTA@loader", False): 96 * KIB,
    ("PTA", False): 900 * KIB,
}


@pytest.mark.parametrize("form", ["csv", "db"])
def test_labels(record, form):
    got = record("labels", opts=[DECOMPOSE, f"--format={form}"])
    for path in (got.dir, got.process.files["0"]):
        for command in ("owners", "peak"):
            (d,) = ask(record, command, path)["devices"]
            found = flat(d)
            (staging,) = [o for o, _ in found if o.endswith("@staging")]
            assert staging.startswith("CANN@") and found.pop((staging, False)) == 3000 * KIB
            # Blocks of the pool may be a little larger than was asked for.
            free = {k: found.pop(k) for k in list(found) if k[1]}
            assert found.keys() == LABELS.keys()
            for k, bytes_ in LABELS.items():
                assert bytes_ <= found[k] < bytes_ + 4 * KIB
            assert sum(found.values()) == d["allocated_in_pools_bytes"]
            assert sum(free.values()) == d["free_in_pools_bytes"]
        (d,) = ask(record, "owners", path, "--at=end")["devices"]
        assert {o for (o, free) in flat(d) if not free} == {"PTA@weight", "PTA@vllm@kv_cache@hot"}


def test_labels_without_decompose(record):
    got = record("labels")
    (d,) = ask(record, "owners", got.dir)["devices"]
    found = flat(d)
    assert found["PTA@weight", False] and found["PTA", False] >= 900 * KIB
    plain = record("simtrain", "--steps", 2)
    answer = ask(record, "owners", plain.dir)
    assert not answer["has_owners"]
    assert {o for (o, _) in flat(answer["devices"][0])} == {"CANN", "PTA", "PTA_WORKSPACE"}
    text = record.sonde("mem", "owners", plain.dir).stdout
    assert b"--analysis=decompose" in text


def test_peak_says_where(record):
    opts = [DECOMPOSE, "--call-stack=c:20"]
    got = record("simtrain", "--steps", 3, opts=opts)
    for path in (got.dir, got.process.files["0"]):
        (d,) = ask(record, "peak", path)["devices"]
        assert sum(p["bytes"] for p in d["places"]) + d["free_in_pools_bytes"] == d["bytes"]
        assert any("create_weights" in line for p in d["places"] for line in p["c_stack"])
        sizes = [b["bytes"] for b in d["blocks"]]
        assert sizes == sorted(sizes, reverse=True) and len(sizes) == d["blocks_total"]
        mallocs = {r.id: r for r in got.rows if r.event == "MALLOC"}
        frees = {r.attr["allocation_id"]: r for r in got.rows if r.event == "FREE"}
        for b in d["blocks"]:
            row = mallocs[b["row"]]
            assert (row.ptr, int(row.attr["size"])) == (b["address"], b["bytes"])
            assert b["age_ns"] == d["time_ns"] - row.time
            assert b["lived_on_ns"] == frees[row.attr["allocation_id"]].time - d["time_ns"]
        text = record.sonde("mem", "peak", "--top=5", path).stdout.decode()
        assert text.startswith("Device 0 peaked at ") and "The 5 largest blocks" in text


def test_limit(record):
    got = record("simtrain", "--steps", 2)
    (d,) = ask(record, "peak", got.dir)["devices"]

    def run(*words):
        return record.sonde("mem", "peak", *words, got.dir)

    assert run(f"--limit={d['peak_bytes']}", "--fail-on=limit").returncode == 0
    above = run(f"--limit={d['peak_bytes'] - 1}", "--fail-on=limit")
    assert above.returncode == 3 and b"above the limit" in above.stdout.replace(b"\n", b" ")
    assert run("--limit=1M").returncode == 0
    assert run("--limit=1.5GiB", "--fail-on=limit").returncode == 0
    assert run("--limit=1KB", "--fail-on=limit").returncode == 3
    for bad in (["--fail-on=limit"], ["--limit=1Q"], ["--limit=0"], ["--limit=G"], ["--limit=-5"]):
        r = run(*bad)
        assert r.returncode == 2 and r.stderr and not r.stdout
