# SPDX-License-Identifier: MulanPSL-2.0
"""--analysis=oom and sonde mem oom: what is recorded when memory is refused, and why it was."""

import json
import pathlib
import subprocess

import pytest

from waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def machine(record):
    """The environment of a small simulated machine whose management library can be loaded."""

    def make(hbm_mb=256, **more):
        return {"SIM_NPU_HBM_MB": hbm_mb, "LD_LIBRARY_PATH": record.sim, **more}

    return make


def ask(record, path, *words, status=0):
    r = record.sonde("mem", "oom", "--json", *words, path)
    assert r.returncode == status, r.stderr
    assert r.stderr == b""
    return json.loads(r.stdout)


def forms(record, got):
    """The recording, and its dumps in every form: the same answer is expected of all."""
    yield got.dir
    for form, compat in (("csv", "current"), ("db", "current"), ("csv", "26.0")):
        to = record.tmp / f"forms{record.runs}_{form}_{compat}"
        words = [f"--format={form}", f"--compat={compat}", "-o", to, got.dir]
        r = record.sonde("mem", "export", *words)
        assert r.returncode == 0, r.stderr
        (path,) = to.glob(f"msmemscope_*/device_0/dump/*.{form}")
        yield path


def check_verdict(record, got, verdict):
    """The last incident, that the job noticed, in every form; returns it as the recording has it."""
    first = None
    for path in forms(record, got):
        answer = ask(record, path)
        found = [i for i in answer["incidents"] if not i["granted_later"]]
        assert found and {i["verdict"] for i in found} == {verdict}, (path, answer)
        found[-1].pop("command")  # dumps do not know it
        first = first or found[-1]
        if "26.0" in str(path):  # does not tell one pool of torch from the other
            assert found[-1]["device_memory"] == first["device_memory"]
        else:
            assert found[-1] == first, path
        text = record.sonde("mem", "oom", path)
        assert text.returncode == 0 and text.stderr == b""
        assert text.stdout.startswith(b"Device memory ran out ")
        assert verdict.encode() in text.stdout.splitlines()[0]
        assert record.sonde("mem", "oom", "--fail-on=oom", path).returncode == 3
    return first


def test_real_exhaustion(record, machine):
    job = ["simtrain", "--fault", "oom", "--steps", 5, "--step-ms", 50]
    got = record(*job, opts=["--analysis=oom", "--call-stack=c"], env=machine())
    assert got.returncode == 0
    oom = check_verdict(record, got, "real exhaustion")
    assert any("allocate_until_oom" in line for line in oom["c_stack"])
    assert oom["device_memory"]["total_bytes"] == 256 * MIB
    assert oom["device_memory"]["others_bytes"] == 0
    assert oom["device_memory"]["process_bytes"] > 240 * MIB
    assert oom["own_view_only"] is False
    assert oom["step"] == 3
    assert oom["largest"][0]["bytes"] == 16 * MIB


def test_fragmentation(record, machine):
    got = record("oom_fragments", opts=["--analysis=oom", "--call-stack=c"], env=machine())
    assert b"large block refused" in got.stdout
    oom = check_verdict(record, got, "fragmentation")
    (pool,) = oom["pools"]
    assert pool["free_bytes"] >= oom["requested_bytes"] == 32 * MIB + 32
    assert pool["largest_free_bytes"] == 2 * MIB
    assert pool["free_pieces"] * 2 * MIB >= pool["free_bytes"]
    assert any("ask_for_a_large_one" in line for line in oom["c_stack"])


def test_leak(record, machine):
    job = ["simtrain", "--fault", f"leak:{4 * MIB}", "--steps", 60]
    got = record(*job, opts=["--analysis=oom", "--call-stack=c"], env=machine(128))
    oom = check_verdict(record, got, "leak")
    assert oom["leak"]["bytes"] >= 12 * MIB and oom["leak"]["places"] == 1
    text = record.sonde("mem", "oom", got.dir).stdout
    assert b"leak_one_buffer" in text


def test_other_process(record, machine):
    env = machine()
    other = subprocess.Popen(
        [record.program("hold_memory"), "128"],
        env=record.env(**env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout.readline() == b"held\n"
        job = ["simtrain", "--fault", "oom", "--steps", 4, "--step-ms", 50]
        got = record(*job, opts=["--analysis=oom"], env=env)
    finally:
        other.communicate()
    oom = check_verdict(record, got, "other process")
    assert oom["device_memory"]["others_bytes"] >= 128 * MIB


def test_clean_job(record, machine):
    got = record("simtrain", "--steps", 3, opts=["--analysis=oom"], env=machine())
    for path in forms(record, got):
        answer = ask(record, path, "--fail-on=oom")
        assert (answer["requests"], answer["incidents"]) == (0, [])
        assert b"No request for memory was refused" in record.sonde("mem", "oom", path).stdout


def test_no_management_library(record):
    """Then the verdict is from the process' own view, and nothing else changes."""
    env = {"SIM_NPU_HBM_MB": 256}
    job = ["simtrain", "--fault", "oom", "--steps", 4]
    got = record(*job, opts=["--analysis=oom", "--log-level=info"], env=env)
    assert not [r for r in got.rows if "device_used" in r.attr or r.event == "SNAPSHOT"]
    assert got.log.count("device memory is unknown") == 1
    oom = ask(record, got.dir)["incidents"][-1]
    assert oom["own_view_only"] is True and oom["device_memory"]["total_bytes"] is None
    assert "this process' view only" in oom["reason"]


def live_before(rows, trigger, device):
    """{address: row} of what the detail rows choose from, from the rows alone."""
    live = {}
    for r in rows:
        if r.id >= trigger.id:
            break
        if r.event == "MALLOC" and (r.device == device or r.type == "HAL"):
            live[r.attr["allocation_id"]] = r
        elif r.event == "FREE":
            live.pop(r.attr["allocation_id"], None)
    return list(live.values())


@pytest.mark.parametrize("k", [1, 7, 1000])
def test_detail_rows(record, machine, k):
    job = ["simtrain", "--fault", "oom", "--steps", 4]
    got = record(*job, opts=[f"--analysis=oom:{k}", "--call-stack=c:5"], env=machine())
    triggers = got.of("OOM_DETAIL", type="OOM_TRIGGER")
    assert len(triggers) >= 2
    first = triggers[0]
    assert first.name == "OOM_Trigger" and list(first.attr) == ["func", "req_size", "flag"]
    live = live_before(got.rows, first, "0")
    for kind, name, key in (
        ("OOM_RECENT_ALLOC", "OOM_RecentAlloc", lambda r: r.time),
        ("OOM_TOP_ALLOC", "OOM_TopAlloc", lambda r: int(r.attr["size"])),
    ):
        rows = got.of("OOM_DETAIL", type=kind)
        want = sorted(live, key=key, reverse=True)[:k]
        assert len(rows) == len(want) and {r.name for r in rows} == {name}
        for row in rows:
            assert list(row.attr) == ["pool", "ptr", "size", "timestamp"]
            (block,) = [
                b
                for b in live
                if (b.type, b.ptr, b.attr["size"], str(b.time))
                == tuple(row.attr[a] for a in ("pool", "ptr", "size", "timestamp"))
            ]
            assert row.c_stack == block.c_stack != ""
        said = [int(r.attr["timestamp" if key(rows[0]) == rows[0].time else "size"]) for r in rows]
        assert said == sorted((key(r) for r in want), reverse=True)


def test_stack_of_the_request_is_deep(record, machine):
    """Whatever --call-stack says: the request is recorded with 50 frames."""
    job = ["simtrain", "--fault", "oom", "--steps", 4]
    for opts in ([], ["--call-stack=c:2"]):
        got = record(*job, opts=["--analysis=oom", *opts], env=machine())
        for trigger in got.of("OOM_DETAIL", type="OOM_TRIGGER"):
            assert "allocate_until_oom" in trigger.c_stack and "main" in trigger.c_stack
        for block in got.of("OOM_DETAIL", type="OOM_TOP_ALLOC"):
            # beyond the depth, behind "...", only the innermost lines of the program itself
            asked, _, own = block.c_stack.partition("\n...\n")
            assert len(asked.splitlines()) <= 2 and len(own.splitlines()) <= 6
    got = record(*job, opts=["--analysis=leaks"], env=machine())
    assert not got.of("OOM_DETAIL")


def test_visible_without_the_analysis(record, machine):
    """A request that was refused is seen in a recording, whatever was asked for."""
    job = ["simtrain", "--fault", "oom", "--steps", 4]
    got = record(*job, opts=["--analysis=none"], env=machine())
    assert not got.of("OOM_DETAIL")
    r = record.sonde("mem", "show", "--json", got.dir)
    assert json.loads(r.stdout)["ooms"]
    assert ask(record, got.dir)["requests"] >= 2


def test_device_memory_in_rows(record, machine):
    """process_used and device_used come from samples while the job runs."""
    env = machine(1024)
    job = ["simtrain", "--steps", 12, "--step-ms", 100]
    got = record(*job, opts=["--events=alloc,free"], env=env)
    rows = [r for r in got.rows if "device_used" in r.attr]
    assert len(rows) > 50
    for r in rows:
        keys = list(r.attr)
        assert keys.index("device_used") == keys.index("process_used") + 1
        assert r.type in ("HAL", "PTA", "PTA_WORKSPACE") and "shadow" not in r.attr
        assert 0 <= int(r.attr["process_used"]) <= int(r.attr["device_used"]) + MIB
    # The samples are true: once the job runs evenly they say what the driver's blocks add up to.
    last = [r for r in rows if r.event == "MALLOC"][-1]
    hal = [r for r in got.rows if r.type == "HAL" and r.event == "MALLOC" and r.id < last.id]
    sum_bytes = sum(-(-int(r.attr["size"]) // (2 * MIB)) * 2 * MIB for r in hal)
    assert int(last.attr["process_used"]) == sum_bytes
    # Two samples a second, not more: the recording holds no more than a handful of values.
    assert len({r.attr["device_used"] for r in rows}) <= 6
    # A timeline has them as counters.
    trace = got.dir.parent / "timeline.json"
    record.sonde("timeline", "--format=json", "-o", trace, got.dir)
    events = json.loads(trace.read_text())["traceEvents"]
    shown = [e["args"]["value"] for e in events if e["name"] == "device 0 used by the process"]
    assert shown[-1] == sum_bytes and len(shown) <= 6
    assert any(e["name"] == "device 0 used by all processes" for e in events)


def test_two_processes_on_one_device(record, machine):
    """Each is told its own share; the job's other processes are no foreign ones."""
    env = machine(1024, SIM_NPU_COUNT=1)
    job = ["simtrain", "--steps", 10, "--step-ms", 100, "--procs", 2]
    got = record(*job, env=env)
    for p in got.processes:
        said = [r for r in p.rows if "device_used" in r.attr]
        shares = [(int(r.attr["process_used"]), int(r.attr["device_used"])) for r in said]
        assert any(0 < own < all_ for own, all_ in shares), shares  # while both are there


def test_job_that_dies_at_once(record, machine):
    """Refused memory before the first sample, and then the end: the sample is still taken."""
    got = record("oom_fragments", opts=["--analysis=oom"], env=machine())
    assert [r for r in got.rows if r.event == "SNAPSHOT" and r.name == "OOM_Snapshot"]


def test_bad_input(record, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("nonsense\n")
    r = record.sonde("mem", "oom", bad)
    assert r.returncode == 1 and b"bad.csv" in r.stderr
    assert record.sonde("mem", "oom").returncode == 2
    assert record.sonde("mem", "oom", "--fail-on=leak", bad).returncode == 2


def test_only_the_recorder_asks(hurt):
    """The management library is never loaded into the job."""
    words = [hurt.build / "sim" / "simtrain", "--steps", 40, "--step-ms", 50]
    env = {"LD_LIBRARY_PATH": hurt.build / "sim"}
    job = hurt.start(*words, env=env)

    def maps(pid):
        return pathlib.Path(f"/proc/{pid}/maps").read_text()

    begun = lambda: list(hurt.out.glob("recording_*/session")) and hurt.session.recorder
    recorder = wait_until(begun, "the recorder", 10)
    wait_until(lambda: "libdcmi.so" in maps(recorder), "a sample", 10)
    assert "libascend_hal.so" in maps(job.pid) and "libdcmi.so" not in maps(job.pid)
    assert job.wait(20) == 0
