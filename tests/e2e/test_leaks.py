# SPDX-License-Identifier: MulanPSL-2.0
"""sonde mem leaks and gaps: planted leaks are found at their function, clean jobs are clean."""

import concurrent.futures
import json
import random
import re
import signal
import subprocess

import pytest

STACKS = "--call-stack=c:10"


def ask(record, command, path, *words, status=0):
    r = record.sonde("mem", command, "--json", *words, path)
    assert r.returncode == status, r.stderr
    assert r.stderr == b""
    answer = json.loads(r.stdout)
    for key in ("input", "job", "coverage"):  # what only a recording knows
        del answer[key]
    return answer


def leaks(record, path, *words, **kw):
    return ask(record, "leaks", path, *words, **kw)


def same_everywhere(record, got, command, *words, status=0):
    """The answer for a recording of one device; its csv and its db give the same one."""
    r = record.sonde("mem", "export", "--format=db", "-o", record.tmp / "as-db", got.dir)
    assert r.returncode == 0, r.stderr
    (db,) = (record.tmp / "as-db").rglob("device_0/dump/*.db")
    answers = [
        ask(record, command, path, *words, status=status)
        for path in (got.dir, got.process.files["0"], db)
    ]
    for a in answers:
        del a["notes"]
        for p in a.get("processes", ()):
            del p["command"]
    assert answers[0] == answers[1] == answers[2]
    return answers[0]


# --- the planted leak of the simulated training ---


def planted(seed):
    """A job with a leak: its words, and what must be said about it."""
    r = random.Random(seed)
    pool = ["pta", "mindspore", "atb", "hal"][seed % 4]
    first, lost = r.randint(1, 4), r.randint(2, 4)
    steps = max(first, 2) + lost
    size = r.choice([512, 4096, 70000, 1 << 20, 5 << 20]) + r.choice([0, 1, 512, 1234])
    words = ["--quiet", "--seed", seed, "--steps", steps, "--pool", pool]
    words += ["--layers", r.randint(1, 3), "--devices", r.choice([1, 1, 2])]
    if r.random() < 0.3:
        words += ["--threads", 1]
    fault = ["--fault", f"leak:{size}", "--fault-step", first]
    room = size if pool == "hal" else -(-size // 512) * 512
    name = {"pta": "PTA", "mindspore": "MindSpore", "atb": "ATB", "hal": "HAL"}[pool]
    want = {
        "device": "0",
        "pool": name,
        "blocks": lost,
        "bytes": lost * room,
        "steps": lost,
        "first_step": max(first, 2),
        "last_step": steps - 1,
        "bytes_per_step": room,
    }
    return words, fault, want


def of_leader(answer):
    """The leaks of device 0. Other devices of simtrain have threads that do not wait for each
    other, so that one may still be setting up while the steps of the first go by."""
    assert answer["findings"] == len(answer["leaks"])
    return [x for x in answer["leaks"] if x["device"] == "0"]


@pytest.mark.parametrize("part", range(5))
def test_planted_leaks_are_found(record, part):
    """50 seeds, each with and without the leak."""

    def judge(job):
        seed, with_leak, out, command = job
        env = record.env(SIM_NPU_STATE=record.tmp / f"npu-{seed}-{with_leak}")
        r = subprocess.run(command, env=env, capture_output=True, timeout=60, cwd=record.tmp)
        assert r.returncode == 0, r.stderr
        return leaks(record, out)

    jobs = []
    for seed in range(part * 10, part * 10 + 10):
        words, fault, _ = planted(seed)
        for with_leak in (True, False):
            more = fault if with_leak else []
            out, command = record.start("simtrain", *words, *more, opts=[STACKS])
            jobs.append((seed, with_leak, out, command))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(judge, jobs))
    for (seed, with_leak, _, command), a in zip(jobs, answers):
        found = of_leader(a)
        said = (seed, command, found)
        assert len(found) == with_leak, said
        if not with_leak:
            continue
        (leak,) = found
        want = planted(seed)[2]
        assert {k: leak[k] for k in want} == want, said
        assert leak["where"].startswith("leak_one_buffer (fault.c:"), said


@pytest.mark.parametrize("form", ["csv", "db"])
def test_every_form_tells_the_same(record, form):
    opts = [STACKS, f"--format={form}"]
    got = record("simtrain", "--steps", 8, "--fault", "leak:2097152", opts=opts)
    a = leaks(record, got.dir)
    for path in (got.process.files["0"], got.out, got.dir / "events.sonde"):
        b = leaks(record, path)
        assert (a["leaks"], a["kept"]) == (b["leaks"], b["kept"])
    (leak,) = a["leaks"]
    assert (leak["blocks"], leak["bytes"]) == (5, 5 << 21)
    rows = {r.id: r for r in got.rows}
    for block in leak["allocations"]:
        row = rows[block["row"]]
        assert row.event == "MALLOC" and row.type == "PTA" and row.ptr == block["address"]
        assert int(row.attr["size"]) == block["bytes"]


def test_the_text(record):
    got = record("simtrain", "--steps", 6, "--fault", "leak:2097152", opts=[STACKS])
    text = record.sonde("mem", "leaks", got.dir).stdout.decode()
    flat = " ".join(text.split("\n\n")[0].split())
    assert re.fullmatch(
        rf"Process {got.process.pid} loses 2.00 MiB of device 0 in every step: leak_one_buffer "
        r"\(fault.c:\d+\), 3 blocks \(6.00 MiB\) since step 3, of 4 left at the end "
        r"\(the first step's and the youngest do not count\).",
        flat,
    )
    assert "Mb(s)" not in text and "======" not in text and "leak_one_buffer" in text
    text = record.sonde("mem", "leaks", "--compat=26.0", got.dir).stdout.decode()
    assert flat == " ".join(text.split("\n\n")[0].split())
    assert "\n====== ERROR: Detected memory leaks on device 0 ======\nDirect Pytorch " in text
    lines = re.findall(
        r"^Direct Pytorch Caching memory pool leak of 2.000000 Mb\(s\) at 0x([0-9a-f]+) in "
        r"kernel_\d+ at step (\d).$",
        text,
        re.M,
    )
    assert [s for _, s in lines] == ["3", "4", "5"]
    left = {int(r.ptr, 16) for r in got.of("FREE", type="PTA") if "shadow" in r.attr}
    assert {int(p, 16) for p, _ in lines} < left
    assert "\n====== SUMMARY: 6 Mb(s) leaked in 3 allocation(s) ======\n" in text


def test_the_report_when_the_job_ends(record):
    """In the same words, behind what the job itself wrote; a clean job has no leaks to tell of."""
    got = record("simtrain", "--quiet", "--steps", 6, "--fault", "leak:2097152", opts=[STACKS])
    said = got.stderr.decode()
    assert " loses 2.00 MiB of device 0 in every step: leak_one_buffer " in " ".join(said.split())
    text = record.sonde("mem", "leaks", "--compat=26.0", got.dir).stdout.decode()
    block = text[text.index("====== ERROR") : text.index("Call sites that")]
    assert block in said and "Gap Analysis" not in said, "the leak is what makes steps uneven"
    clean = record("simtrain", "--quiet", "--steps", 6, opts=["--report=stderr"])
    assert clean.stderr.startswith(b"No leaks: ") and b"Gap Analysis of Device 0" in clean.stderr


def test_status_for_scripts(record):
    got = record("simtrain", "--steps", 6, "--fault", "leak:2097152")
    assert record.sonde("mem", "leaks", "--fail-on=leak", got.dir).returncode == 3
    assert record.sonde("mem", "leaks", got.dir).returncode == 0
    few = ["--fail-on=leak", f"--min-bytes={3 * 2097152 + 1}"]
    assert record.sonde("mem", "leaks", *few, got.dir).returncode == 0
    clean = record("simtrain", "--steps", 6)
    r = record.sonde("mem", "leaks", "--fail-on=leak", clean.dir)
    assert r.returncode == 0 and r.stdout.startswith(b"No leaks: process ")
    for words in (["--min-bytes=x"], ["--start=1"], ["--mark="], ["--mark=a", "--start=-1"]):
        r = record.sonde("mem", "leaks", *words, clean.dir)
        assert r.returncode == 2 and r.stderr, words
    r = record.sonde("mem", "leaks", record.tmp / "nowhere")
    assert r.returncode == 1 and b"nowhere" in r.stderr


# --- steps told by calls and by ranges; what is no leak ---


@pytest.mark.parametrize("how", ["call", "range"])
def test_a_leak_beside_what_looks_like_one(record, how):
    got = record("leaky", how, 20, opts=[STACKS])
    a = same_everywhere(record, got, "leaks")
    (leak,) = a["leaks"]
    assert leak["where"].startswith("lose_memory (leaky.c:")
    assert (leak["blocks"], leak["bytes"]) == (18, 18 * 5000)
    assert (leak["first_step"], leak["last_step"]) == (2, 19)
    kinds = {k["kind"]: k for k in a["kept"]}
    assert kinds.keys() == {"once", "rolling"}
    assert (kinds["once"]["bytes"], kinds["once"]["first_step"]) == (9000, 3)
    assert kinds["rolling"]["bytes"] == 2 * 7000
    (p,) = a["processes"]
    assert p["steps_ended"] == 20
    assert (p["driver_left"]["blocks"], p["driver_left"]["bytes"]) == (20, 20 * 5000)
    text = record.sonde("mem", "leaks", got.dir).stdout.decode()
    assert "\nNot given back to the driver at exit:\n" in text


def test_without_call_stacks(record):
    got = record("leaky", "range", 12)
    (leak,) = same_everywhere(record, got, "leaks")["leaks"]
    assert leak["where"] is None and leak["block_bytes"] == 5000 and leak["blocks"] == 10


def test_without_steps(record):
    got = record("api", "windows")
    a = same_everywhere(record, got, "leaks")
    assert a["findings"] == 0
    text = record.sonde("mem", "leaks", got.dir).stdout
    assert text.startswith(b"No step ended in this recording")
    assert b"Left at the end" in text


def test_blocks_that_cross_steps_are_none(record):
    got = record("api", "ranges")
    a = same_everywhere(record, got, "leaks")
    assert a["findings"] == 0 and a["processes"][0]["steps_ended"] == 5


def test_killed_in_the_middle(hurt):
    train = str(hurt.build / "sim" / "simtrain")
    words = ["--steps", 100000, "--step-ms", 4, "--fault", "leak:8192"]
    job = hurt.start(train, *words, opts=[STACKS])
    while not job.stdout.readline().startswith(b"step 40 "):
        assert job.poll() is None
    job.send_signal(signal.SIGKILL)
    job.wait()
    hurt.session.wait_finished()
    r = hurt.sonde("mem", "leaks", "--json", hurt.recording)
    assert r.returncode == 0, r.stderr
    a = json.loads(r.stdout)
    (p,) = a["processes"]
    assert p["last_step"] > 20
    (leak,) = a["leaks"]
    assert leak["where"].startswith("leak_one_buffer")
    assert leak["blocks"] == p["last_step"] - 3
    assert (leak["first_step"], leak["last_step"]) == (3, p["last_step"] - 1)


def test_ranks_are_told_apart(record):
    """The leak is in the first device of the first process."""
    words = ["--steps", 7, "--procs", 2, "--fault", "leak:4096"]
    got = record("simtrain", *words, opts=[STACKS])
    (leak,) = leaks(record, got.dir)["leaks"]
    assert (leak["device"], leak["blocks"]) == ("0", 4)
    owner = [p for p in got.processes if p.pid == leak["pid"]]
    assert sum(r.event == "FREE" and "shadow" in r.attr for r in owner[0].by_device["0"]) > 0
    for p in got.processes:  # a directory with the dumps of a process
        (device, *_) = p.files.values()
        a = leaks(record, device.parents[2])
        assert a["findings"] == (p.pid == leak["pid"])


def test_host_memory(record):
    opts = ["--device=npu,cpu", STACKS]
    got = record("simtrain", "--steps", 8, "--fault", "leak:65536", "--threads", 2, opts=opts)
    a = leaks(record, got.dir)
    assert [x["pool"] for x in a["leaks"]] == ["PTA"]


# --- marks ---


def test_marks(record):
    got = record("leaky", "marks", 5, opts=[STACKS])
    for start in (0, 2):
        a = same_everywhere(record, got, "leaks", "--mark=round", f"--start={start}")
        (d,) = a["devices"]
        assert (d["device"], d["marks"], d["blocks"], d["bytes"]) == ("0", 5, 1, 5000)
        (place,) = d["places"]
        assert any("lose_memory" in line for line in place["c_stack"])
    (block,) = d["allocations"]
    words = ["mem", "leaks", "--mark=round", "--start=2", got.dir]
    text = record.sonde(*words).stdout.decode()
    assert "lose_memory" in text and "Mb(s)" not in text and "INFO" not in text
    text = record.sonde(*words, "--compat=26.0").stdout.decode()
    assert (
        "INFO: Starting to analyze data for device 0...\n\n"
        "Leak Analysis Results for the Custom Range:\n"
        "====== ERROR: Detected memory leaks on device 0 ======\n"
        f"Direct Hal memory leak of {5000 / 1024 / 1024} Mb(s) at {block['address']} in Index "
        f"{block['row']}.\n"
    ) in text
    r = record.sonde("mem", "leaks", "--mark=round", "--fail-on=leak", got.dir)
    assert r.returncode == 3


def test_marks_that_do_not_suffice(record):
    got = record("leaky", "marks", 4)
    a = same_everywhere(record, got, "leaks", "--mark=round", "--start=2", status=1)
    assert a["failed"] and a["devices"][0]["error"] == "start is out of bounds"
    r = record.sonde("mem", "leaks", "--mark=round", "--start=2", "--compat=26.0", got.dir)
    assert r.returncode == 1
    said = b"INFO: Start index 2 is out of bounds. Device 0 has a total of 4 MSTX events.\n"
    assert said in r.stdout
    r = record.sonde("mem", "leaks", "--mark=roun", "--compat=26.0", got.dir)
    assert r.returncode == 1
    assert (
        b"ERROR: Device 0 has fewer than 3 data points. Please re-collect the data points.\n"
        in r.stdout
    )
    assert record.sonde("mem", "leaks", "--mark=round, of course", got.dir).returncode == 0


# --- gaps ---


def counted_gaps(rows):
    """{(device, pool): [(ratio, least, step)]}, counted without the program under test."""
    step, last, level, seen, found = 0, None, {}, {}, {}
    for r in rows:
        if r.event == "MSTX" and r.type == "Range_start" and r.name == "step start":
            step += 1
            last = r
        elif r.event in ("MALLOC", "FREE") and "used" in r.attr:
            key, used = (r.device, r.type), int(r.attr["used"])
            if step >= 2:  # a step begins with what there was before
                seen.setdefault(key, [level.get(key, 0)]).append(used)
            level[key] = used
        elif r.event == "MSTX" and r.type == "Range_end" and last:
            last = None
            for key, values in seen.items():
                if step >= 2 and max(values):
                    ratio = min(values) / max(values)
                    found.setdefault(key, []).append((ratio, min(values), step))
            seen = {}
    return found


def test_gaps(record):
    got = record("simtrain", "--steps", 9, "--fault", "leak:3145728")
    a = same_everywhere(record, got, "gaps")
    want = counted_gaps(got.rows)
    assert {(p["device"], p["pool"]) for p in a["pools"]} == want.keys()
    text = record.sonde("mem", "gaps", got.dir).stdout.decode()
    assert text.startswith("Within a step, the PTA memory of process ")
    for p in a["pools"]:
        values = want[p["device"], p["pool"]]
        assert p["steps"] == len(values)
        low = min(values, key=lambda v: v[0])
        high = max(values, key=lambda v: v[0])
        for said, (ratio, least, step) in ((p["min_gap"], low), (p["max_gap"], high)):
            assert (said["ratio"], said["min_bytes"], said["step"]) == (ratio, least, step)
            column = f"{100 * ratio:.4f}".ljust(25) + f"{least / 2**20:.4f}".ljust(25)
            assert f"\t{column}{step}\n" in text
    title = "======= Pytorch Caching memory pool Gap Analysis of Device 0 =======\n"
    assert title + "\tMinAlloc/MaxAlloc(%)     MinAllocMem(MiB)         StepId\nMinGap\t" in text
    assert "======= HAL memory Gap Analysis of Device 0 =======\n" in text
    assert "does not change" not in text, "a single block of the driver is a change, too"


def test_gaps_for_scripts(record):
    got = record("simtrain", "--steps", 6, "--fault", "leak:50000000")
    words = ["--fail-on=uneven", "--spread=1"]
    assert record.sonde("mem", "gaps", *words, got.dir).returncode == 3
    assert record.sonde("mem", "gaps", "--fail-on=uneven", "--spread=100", got.dir).returncode == 0
