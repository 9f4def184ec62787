# SPDX-License-Identifier: MulanPSL-2.0
"""sonde mem inefficient: planted waste is found at its place, healthy jobs are left alone, and rows
carry what the rules say, taken literally."""

import collections
import json
import shutil

import pytest

import dumpcheck

EARLY, LATE, IDLE = "early_allocation", "late_deallocation", "temporary_idleness"
OPTS = ["--events=alloc,free,launch,access", "--call-stack=c:20"]
JOBS = {"PTA": ["simtrain", "--aten"], "ATB": ["simtrain", "--pool", "atb"]}
ATB = {"ATB_HOME_PATH": "/usr/local/atb/cxx_abi_1"}
FAULT_BYTES = 768 << 10
PLACES = {"early": "allocate_too_early", "late": "use_buffer_once", "idle": "leave_buffer_idle"}
KINDS = {"early": EARLY, "late": LATE, "idle": IDLE}


def faults(names):
    return [word for name in names for word in ("--fault", name)]


def ask(record, *words, status=0):
    r = record.sonde("mem", "inefficient", *words)
    assert r.returncode == status, r.stderr
    return r.stdout.decode()


def answer(record, *words, **kw):
    o = json.loads(ask(record, "--json", "--top=1000", *words, **kw))
    del o["notes"], o["input"], o["job"], o["coverage"]
    for p in o["pools"]:
        del p["command"]  # which dumps do not know
    return o


def places(o, kind):
    return [p for p in o["places"] if p["kind"] == kind]


def names(place):
    return "\n".join(place["c_stack"])


# --- the rules as they stand in the documents, over the rows of one device ---


class Calls:
    """The clock of one pool."""

    def __init__(self):
        self.now = self.last_malloc = self.last_free = 0
        self.depth = collections.Counter()
        self.open = {}

    def start(self, tid):
        if not self.depth[tid]:
            self.now += 1
            self.open[tid] = [self.now, set()]
        self.depth[tid] += 1

    def end(self, tid):
        if self.depth[tid]:
            self.depth[tid] -= 1
            if not self.depth[tid]:
                self.close(*self.open.pop(tid))

    def close(self, call, events):
        if "MALLOC" in events:
            self.last_malloc = max(call, self.last_malloc)
        if "FREE" in events:
            self.last_free = max(call, self.last_free)

    def memory(self, tid, event):
        if tid in self.open:
            self.open[tid][1].add(event)
            return self.open[tid][0]
        self.now += 1
        self.close(self.now, {event})
        return self.now


def judged(rows, family, idle=3000):
    """{allocation_id: [kinds]}"""
    ops = {"PTA": ("ATEN_START", "ATEN_END"), "ATB": ("ATB_START", "ATB_END")}[family]
    calls, blocks, found = Calls(), {}, collections.defaultdict(list)
    for r in rows:
        if r.type in ops:
            (calls.start if r.type == ops[0] else calls.end)(r.tid)
        of_pool = r.event in ("MALLOC", "FREE") and r.type == family
        if not of_pool and not (r.event == "ACCESS" and r.attr.get("type") == family):
            continue
        if "shadow" in r.attr:
            continue
        block = r.attr.get("allocation_id")
        now = calls.memory(r.tid, r.event)
        if r.event == "MALLOC":
            blocks[block] = [(r.event, now)]
        if r.event == "MALLOC" or block not in blocks:
            continue
        past = blocks[block]
        (event, last), born = past[-1], past[0][1]
        if r.event == "ACCESS":
            if event == "ACCESS" and now - last > idle and IDLE not in found[block]:
                found[block].append(IDLE)
            first = not any(e == "ACCESS" and c != born for e, c in past)
            if first and now != born and 0 < calls.last_free and born < calls.last_free < now:
                found[block].append(EARLY)
        elif event == "ACCESS" and 0 < calls.last_malloc and last < calls.last_malloc < now:
            found[block].append(LATE)
        past.append((r.event, now))
    return {k: ",".join(v) for k, v in found.items() if v}


def marked(rows):
    return {
        r.attr["allocation_id"]: r.attr["inefficient"]
        for r in rows
        if r.event == "MALLOC" and "inefficient" in r.attr
    }


# --- planted faults ---


@pytest.mark.parametrize("pool", JOBS)
@pytest.mark.parametrize("fault", PLACES)
def test_a_planted_fault_is_found_at_its_place(record, pool, fault):
    job = [*JOBS[pool], "--steps", 5, *faults([fault])]
    got = record(*job, opts=OPTS, env=ATB)
    o = answer(record, got.dir)
    (place,) = [p for p in o["places"] if PLACES[fault] in names(p)]
    assert (place["kind"], place["blocks"], place["bytes"]) == (KINDS[fault], 1, FAULT_BYTES)
    assert (place["pool"], place["device"], place["pid"]) == (pool, "0", got.process.pid)
    (example,) = place["examples"]
    at = [r.attr["allocation_id"] for r in got.of("MALLOC", ptr=example["address"], type=pool)]
    assert str(example["allocation_id"]) in at
    (in_pool,) = o["pools"]
    if fault == "idle":  # after backward, when little is held
        assert {p["kind"] for p in o["places"]} == {IDLE}
        assert example["calls"] > 3200
    else:
        assert o["places_total"] == 1, "and nothing else"
        assert place["at_peak_bytes"] == FAULT_BYTES == in_pool["unused_at_peak_bytes"]
        assert in_pool["kinds"][KINDS[fault]]["at_peak_bytes"] == FAULT_BYTES
    said = ask(record, got.dir)
    assert PLACES[fault] in said
    assert ask(record, "--fail-on=waste", got.dir, status=3) == said


@pytest.mark.parametrize("pool", JOBS)
def test_several_faults_at_once(record, pool):
    job = [*JOBS[pool], "--steps", 6, *faults([*PLACES, "leak"]), "--fault-step", 2]
    got = record(*job, opts=OPTS, env=ATB)
    o = answer(record, got.dir)
    for fault, place in PLACES.items():
        (found,) = [p for p in places(o, KINDS[fault]) if place in names(p)]
        assert (found["blocks"], found["bytes"]) == (1, FAULT_BYTES)
    assert not [p for p in o["places"] if "create_weights" in names(p)], "the model is no waste"


@pytest.mark.parametrize("pool", JOBS)
def test_no_finding_in_a_healthy_job(record, pool):
    """Fifty different ones. The plain rules hit only what is set up before the first step."""
    for seed in range(1, 51):
        job = [*JOBS[pool], "--steps", 1 + seed % 4, "--layers", 1 + seed % 5, "--seed", seed]
        if seed % 10 == 0:
            job += ["--devices", 2, "--threads", 1]
        out, result = record.raw(*job, opts=OPTS, env=ATB)
        assert result.returncode == 0, result.stderr
        o = answer(record, out)
        assert o["judged"] and o["accesses"] > 10
        assert o["places_total"] == 0, (job, o["places"])
        for p in o["pools"]:
            kinds = p["kinds"]
            assert kinds[LATE]["marked_blocks"] == kinds[IDLE]["marked_blocks"] == 0, job
            assert kinds[EARLY]["marked_blocks"] <= 6 * (1 + seed % 5) + 1, job
        assert ask(record, "--fail-on=waste", out).startswith("No inefficient memory: of ")
        shutil.rmtree(out)


# --- rows ---


@pytest.mark.parametrize("form", ["csv", "db"])
@pytest.mark.parametrize("pool", JOBS)
def test_rows_carry_what_the_rules_say(record, pool, form):
    job = [*JOBS[pool], "--steps", 5, *faults(PLACES)]
    got = record(*job, opts=[*OPTS, f"--format={form}"], env=ATB)
    dump = got.process.files["0"]
    want = judged(got.rows, pool)
    assert {EARLY, LATE, IDLE} <= set(want.values())
    whole, kept = answer(record, got.dir), dump.read_bytes()
    assert answer(record, "--no-write", dump) == whole
    assert dump.read_bytes() == kept
    assert answer(record, dump) == whole
    (after,) = dumpcheck.check_output(got.out, form)
    assert marked(after.rows) == want
    for a, b in zip(got.rows, after.rows):
        a.attr.pop("inefficient", None)
        b.attr.pop("inefficient", None)
    assert after.rows == got.rows, "nothing else has changed"
    assert answer(record, dump) == whole, "a second time it is the same"


def test_rows_with_filters(record):
    got = record("simtrain", "--aten", "--steps", 4, *faults(PLACES), opts=OPTS)
    dump = got.process.files["0"]
    want = judged(got.rows, "PTA")
    sizes = {r.attr["allocation_id"]: int(r.attr["size"]) for r in got.of("MALLOC", type="PTA")}

    def after(*words):
        copy = record.tmp / "memscope_dump_copy.csv"
        shutil.copy(dump, copy)
        answer(record, *words, copy)
        return marked(dumpcheck.read_csv(copy))

    def only(keep):
        rest = {k: ",".join(t for t in v.split(",") if keep(k, t)) for k, v in want.items()}
        return {k: v for k, v in rest.items() if v}

    assert after() == want
    assert after("--mem-size=768K") == only(lambda k, _: sizes[k] >= 768 << 10) != want
    assert after("--type=early,late_deallocation") == only(lambda _, t: t in (EARLY, LATE))
    assert after("--type=idle", "--mem-size=99G") == {}
    lower = judged(got.rows, "PTA", idle=20)
    assert after("--idle-threshold=20") == lower != want


def test_compat_names_the_attribute(record):
    got = record("simtrain", "--aten", "--steps", 4, "--fault", "late", opts=OPTS)
    dump = got.process.files["0"]
    ask(record, "--compat=26.0", dump)
    assert b"inefficient_type:late_deallocation" in dump.read_bytes()


def test_a_recording_is_not_changed(record):
    got = record("simtrain", "--aten", "--steps", 4, "--fault", "late", opts=OPTS)
    before = (got.dir / "events.sonde").read_bytes()
    assert "`sonde mem export`" in ask(record, got.dir)
    assert "`sonde mem export`" not in ask(record, "--no-write", got.dir)
    assert (got.dir / "events.sonde").read_bytes() == before


def test_a_directory_of_dumps(record):
    job = ["simtrain", "--aten", "--steps", 4, "--devices", 2, "--procs", 2, "--fault", "early"]
    got = record(*job, opts=OPTS)
    moved = record.tmp / "dumps"
    for p in got.processes:
        shutil.copytree(p.files[min(p.files)].parents[2], moved / str(p.pid))
    o = answer(record, moved)
    assert len(o["pools"]) == 4
    assert o["places_total"] == 1 and o == answer(record, "--no-write", got.dir)
    for p in got.processes:
        for device, path in p.files.items():
            (copy,) = (moved / str(p.pid) / f"device_{device}").rglob("*.csv")
            assert marked(dumpcheck.read_csv(copy)) == judged(p.by_device[device], "PTA") != {}


# --- while the job runs ---


def test_online(record):
    """Rows and console of the job itself; what was collected for it is in the recording alone."""
    job = ["simtrain", "--aten", "--steps", 5, "--fault", "late"]
    plain = record.plain(*job)
    opts = ["--analysis=inefficient", "--call-stack=c:20"]
    got = record(*job, opts=opts)
    assert got.stdout == plain.stdout
    assert b"Freed too late: 768.00 KiB in 1 block" in got.stderr
    assert b"use_buffer_once" in got.stderr
    assert not got.of("ACCESS")
    (late,) = [r for r in got.of("MALLOC") if r.attr.get("inefficient") == LATE]
    assert int(late.attr["size"]) == FAULT_BYTES and "use_buffer_once" in late.c_stack
    assert answer(record, got.dir)["places_total"] == 1
    assert answer(record, got.process.files["0"])["judged"] is False
    every = record(*job, opts=[*opts, OPTS[0]])
    assert marked(every.rows) == judged(every.rows, "PTA") != {}
    healthy = record(*job[:4], opts=opts)
    assert b"too late" not in healthy.stderr and b"too early" not in healthy.stderr


# --- what cannot be told, and wrong words ---


def test_without_accesses(record):
    got = record("simtrain", "--aten", "--steps", 3, "--fault", "late", opts=["--events=alloc"])
    o = answer(record, got.process.files["0"])
    assert o["judged"] is False and o["places"] == []
    said = ask(record, "--fail-on=waste", got.process.files["0"], status=1)
    assert said.startswith("Whether memory was used well is unknown: no operator") and "--analysis=inefficient" in said
    host = record("simtrain", "--pool", "hal", "--steps", 2)
    assert ask(record, host.dir).startswith("Nothing to judge")


@pytest.mark.parametrize(
    "words, part",
    [
        (["--mem-size=x"], "'x'"),
        (["--mem-size=1Q"], "'1Q'"),
        (["--mem-size=-1"], "'-1'"),
        (["--mem-size=99999999999G"], "'99999999999G'"),
        (["--type=early,never"], "'early,never'"),
        (["--type="], "type"),
        (["--idle-threshold=0"], "'0'"),
        (["--idle-threshold=x"], "'x'"),
        (["--fail-on=leak"], "waste"),
        (["--compat=1"], "'1'"),
    ],
)
def test_wrong_options(record, words, part):
    r = record.sonde("mem", "inefficient", *words, "x.csv")
    assert r.returncode == 2 and r.stdout == b""
    assert part in r.stderr.decode()


def test_a_file_that_cannot_be_written(record):
    got = record("simtrain", "--aten", "--steps", 4, "--fault", "late", opts=OPTS)
    dump = got.process.files["0"]
    gone = record.tmp / "gone" / "memscope_dump_1.csv"
    assert record.sonde("mem", "inefficient", gone).returncode == 1
    notes = record.tmp / "memscope_dump_notes.csv"
    notes.write_text("one,two\n1,2\n")
    r = record.sonde("mem", "inefficient", notes)
    assert r.returncode == 1 and b"memscope_dump_notes.csv" in r.stderr
    assert ask(record, "--no-write", dump)


def test_a_job_without_operators_is_not_told_to_record_them(record):
    got = record("simtrain", "--steps", 2, opts=["--analysis=inefficient"])
    text = " ".join(record.sonde("mem", "inefficient", got.dir).stdout.decode().split())
    assert "the job announced no operator that used it" in text and "--analysis" not in text
    r = record.sonde("mem", "inefficient", "--no-write", got.process.files["0"])
    assert b"--analysis=inefficient" in r.stdout  # a dump does not say what was asked for
