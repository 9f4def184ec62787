# SPDX-License-Identifier: MulanPSL-2.0
"""What a recording of a training job contains. Every run here also passes dumpcheck.py."""

import json
import re
import collections
import subprocess
import sys

import dumpcheck
import pytest
from recording import clean_env, wait_finished

POOLS = {"pta": {"HAL", "PTA", "PTA_WORKSPACE"}, "mindspore": {"HAL", "MindSpore"}}
POOLS.update({"atb": {"HAL", "ATB"}, "hal": {"HAL"}})
ALL = "--events=alloc,free,launch,access"


def blocks(rows):
    return [r for r in rows if r.event in ("MALLOC", "FREE")]


@pytest.mark.parametrize("form", ["csv", "db"])
@pytest.mark.parametrize("pool", POOLS)
def test_pools(record, pool, form):
    args = ["simtrain", "--steps", 4, "--pool", pool]
    got = record(*args, opts=[f"--format={form}"])
    assert {r.type for r in blocks(got.rows)} == POOLS[pool]
    assert got.process.files.keys() == {"0"}
    assert not [r for r in blocks(got.rows) if "shadow" in r.attr], "everything is freed by itself"
    plain = record.plain(*args)
    assert (got.stdout, got.stderr, got.returncode) == (plain.stdout, plain.stderr, 0)


def test_the_last_line_is_in_a_log(build, tmp_path):
    """A file is for people; --quiet leaves it out, and a pipe may be read by a script."""
    said = " events recorded, none lost"
    record = [build / "bin/sonde", "mem", "record"]
    for command, options, expected in (
        ([build / "bin/msmemscope"], [], True),
        ([build / "bin/msmemscope"], ["--quiet"], False),
        ([build / "bin/msmemscope"], ["--report=off"], False),
        (record, [], True),
        (record, ["--quiet"], False),
    ):
        words = [*command, *options, "--device=cpu", "-o", tmp_path / "out", "--", "/bin/true"]
        with open(tmp_path / "log", "w+") as log:
            subprocess.run(words, stderr=log, check=True, env=clean_env(tmp_path), timeout=60)
            log.seek(0)
            assert (said in log.read()) == expected, words


@pytest.mark.parametrize("way", ["option", "command"])
def test_the_recording_alone(record, way):
    """No dump and no report; the recording answers, and gives the dump later."""
    job = ["simtrain", "--steps", 4, "--fault", "leak"]
    opts = ["--device=npu,cpu", "--call-stack=c:4"]
    if way == "option":
        opts.append("--data-format=none")
    else:
        record.msmemscope = (str(record.build / "bin" / "sonde"), "mem", "record")
    out, result = record.raw(*job, opts=opts)
    plain = record.plain(*job)
    (only,) = out.iterdir()
    wait_finished(only)
    closing = b""
    if way == "command":  # our own command, no drop-in: it says where the recording is
        said = r"\[msmemscope\] Info: [0-9]+ events recorded, none lost; read them with: sonde mem show "
        closing = re.search(f"{said}{re.escape(str(only))}\n".encode(), result.stderr)[0]
    assert (result.stdout, result.stderr) == (plain.stdout, plain.stderr + closing)
    found = {p.name for p in only.iterdir()}
    assert found == {"config.json", "events.sonde", "msmemscope.log", "session"}
    questions = ["show", "peak", "owners", "gaps", "inefficient", "oom", "watch"]
    for question in questions if way == "option" else []:
        assert record.sonde("mem", question, out).returncode == 0, question
    said = record.sonde("mem", "leaks", "--fail-on=leak", out)
    assert said.returncode == 3 and b"leak" in said.stdout
    shown = json.loads(record.sonde("mem", "show", "--json", out).stdout)
    assert record.sonde("mem", "export", "-o", record.tmp / "later", out).returncode == 0
    (process,) = dumpcheck.check_output(record.tmp / "later")
    assert len(process.rows) == shown["rows"] > 0
    assert "nothing to recover" in record.sonde("mem", "recover", only).stdout.decode()
    assert list(out.iterdir()) == [only]


def test_the_first_answer_names_a_line(build, tmp_path):
    """Without any option for it, since whoever must record twice has lost an hour."""
    script = tmp_path / "leak.py"
    script.write_text("kept = []\ndef keep():\n    kept.append(bytearray(9 << 20))\nfor _ in range(3):\n    keep()\n")
    sonde, env = build / "bin/sonde", clean_env(tmp_path)
    words = [sonde, "mem", "record", "--device=cpu", "-o", tmp_path / "out", "--", sys.executable, script]
    subprocess.run(words, env=env, check=True, timeout=60)
    peak = subprocess.run([sonde, "mem", "peak", tmp_path / "out"], env=env, capture_output=True, text=True)
    assert "keep (leak.py:3)" in peak.stdout, peak.stdout


def test_findings_of_a_recording_alone(record):
    """They are reported if that is asked for, all the same."""
    opts = ["--format=none", "--report=stderr"]
    out, result = record.raw("simtrain", "--steps", 6, "--fault", "leak", opts=opts)
    assert b"leak" in result.stderr
    assert not list(out.glob("msmemscope_*"))


def test_devices_threads_and_processes(record):
    got = record("simtrain", "--steps", 3, "--devices", 3, "--procs", 2, "--threads", 2)
    assert len(got.processes) == 2
    assert [sorted(p.files) for p in sorted(got.processes, key=lambda p: min(p.files))] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
    ]
    for p in got.processes:
        assert len({r.tid for r in blocks(p.rows)}) >= 3
        for device, rows in p.by_device.items():
            assert {r.type for r in blocks(rows)} == POOLS["pta"]
            # What has no device stands in every file.
            assert [r for r in rows if r.type == "ACL_INIT"]
    a, b = got.processes
    assert a.pid != b.pid


def test_host_memory(record):
    opts = ["--device=npu,cpu"]
    got = record("simtrain", "--steps", 3, "--threads", 2, "--fault", "leak", opts=opts)
    assert got.process.files.keys() == {"0", "cpu"}
    rows = blocks(got.process.by_device["cpu"])
    assert {r.type for r in rows} == {"HOST"}
    assert [r for r in rows if "pinned" in r.attr], "batches are pinned"
    assert [r for r in rows if "total" in r.attr]
    # Only host memory.
    got = record("simtrain", "--steps", 3, "--threads", 2, opts=["--device=cpu"])
    assert got.process.files.keys() == {"cpu"}


def test_host_memory_of_an_interpreter(record):
    """Thousands of small blocks, threads, a fork; realloc moves blocks and keeps the books."""
    code = (
        "import os, threading; keep = [bytearray(n) for n in range(1, 20000, 7)]; b = bytearray();\n"
        "for n in range(2000): b.extend(b'x' * 1000)\n"
        "t = [threading.Thread(target=lambda: [bytes(5000) for _ in range(500)]) for _ in range(3)]\n"
        "[x.start() for x in t]; [x.join() for x in t]; del keep\n"
        "pid = os.fork()\n"
        "x = [bytes(3000) for _ in range(100)]\n"
        "if pid: print(os.waitpid(pid, 0)[1])\n"
    )
    got = record(sys.executable, "-c", code, opts=["--device=cpu"])
    assert (got.returncode, got.stdout, got.stderr) == (0, b"0\n", b"")
    assert len(got.processes) == 2
    assert sum(len(p.rows) for p in got.processes) > 10000


def test_leaks_end_with_the_process(record):
    got = record("simtrain", "--steps", 5, "--fault", "leak:4096", "--fault-step", 2)
    made_up = [r for r in got.of("FREE") if "shadow" in r.attr]
    assert [int(r.attr["size"]) for r in made_up if r.type == "PTA"] == [4096] * 4
    assert not any("used" in r.attr for r in made_up)
    last = max(r.time for r in got.rows if r not in made_up)
    assert {r.time for r in made_up} != set() and min(r.time for r in made_up) >= last


def test_aten(record):
    got = record("simtrain", "--aten", "--steps", 3, opts=[ALL])
    kinds = collections.Counter(r.type for r in got.of("OP_LAUNCH"))
    assert kinds["ATEN_START"] == kinds["ATEN_END"] > 0
    accesses = got.of("ACCESS")
    assert {r.type for r in accesses} >= {"READ", "WRITE"}
    for r in accesses:
        assert "allocation_id" in r.attr, r
        assert r.attr["type"] == "PTA" and r.attr["dtype"].startswith("torch."), r
        assert r.attr["shape"].startswith("torch.Size(["), r
        assert r.name.startswith("torch._ops."), r
    assert not [r for r in got.of("MSTX") if "memscope-aten" in r.name]


@pytest.mark.parametrize("pool", ["mindspore", "hal"])
def test_accesses_know_blocks_of_any_pool(record, pool):
    got = record("simtrain", "--aten", "--steps", 2, "--pool", pool, opts=[ALL])
    assert got.of("ACCESS")
    assert all("allocation_id" in r.attr for r in got.of("ACCESS"))


def test_launches_of_both_levels(record):
    job = ["simtrain", "--aten", "--steps", 2, "--layers", 2]
    op = record(*job, opts=["--level=op"])
    assert op.of("OP_LAUNCH") and not op.of("KERNEL_LAUNCH")
    kernel = record(*job, opts=["--level=kernel"])
    assert kernel.of("KERNEL_LAUNCH") and not kernel.of("OP_LAUNCH")
    both = record(*job, opts=["--level=op,kernel"])
    assert both.of("KERNEL_LAUNCH") and both.of("OP_LAUNCH")
    assert len(both.of("OP_LAUNCH")) == len(op.of("OP_LAUNCH"))


def test_kernels_have_names_streams_and_tasks(record):
    got = record("simtrain", "--steps", 2, "--layers", 2, opts=["--level=kernel"])
    launches = got.of("KERNEL_LAUNCH", type="KERNEL_LAUNCH")
    assert launches
    assert not [r for r in launches if r.name.startswith("0x")], "names are known"
    tasks = {(r.attr["streamId"], r.attr["taskId"]) for r in launches}
    assert len(tasks) == len(launches)


def test_marks_ranges_and_steps(record):
    got = record("simtrain", "--steps", 4)
    marks = [r.name for r in got.of("MSTX", type="Mark")]
    assert marks == ["forward", "backward", "optimizer"] * 4
    starts, ends = got.of("MSTX", type="Range_start"), got.of("MSTX", type="Range_end")
    assert [r.name for r in starts] == ["step start"] * 4
    assert [r.name for r in ends] == [f"Range end from id {n}" for n in range(1, 5)]
    for a, b in zip(starts, ends):
        assert a.time < b.time
    assert [r.type for r in got.of("SYSTEM")] == ["ACL_INIT", "ACL_FINI"]


def frames(stack):
    """One frame a line, innermost first; inlined ones belong to the next line."""
    return sum("[inlined]" not in line for line in stack.splitlines())


def test_call_stacks(record):
    got = record("simtrain", "--steps", 4, "--fault", "leak", opts=["--call-stack=c:20"])
    stacks = [r.c_stack for r in got.of("MALLOC")]
    assert all(stacks) and not any(r.py_stack for r in got.rows)
    assert max(frames(s) for s in stacks) <= 20
    leaked = [r for r in got.of("FREE") if "shadow" in r.attr and r.type == "PTA"]
    ids = {r.attr["allocation_id"] for r in leaked}
    who = [r.c_stack for r in got.of("MALLOC") if r.attr["allocation_id"] in ids]
    assert who and all("leak_one_buffer" in s for s in who)
    shallow = record("simtrain", "--steps", 2, opts=["--call-stack=c:2"])
    stacks = [r.c_stack for r in shallow.of("MALLOC")]
    # Up to four of the program itself follow, and a word for what is left out, if it is not among them.
    assert {frames(s) for s in stacks} <= {2, 2 + 4, 2 + 1 + 4}
    assert all("simtrain(" in s for s in stacks) and any("\n...\n" in s for s in stacks)


DIFFERENT_STACKS = """
#include <stdlib.h>
static void *left(unsigned path, unsigned deep), *right(unsigned path, unsigned deep);
static void *(*volatile next[])(unsigned, unsigned) = {left, right};
static void *go(unsigned path, unsigned deep)
{
	void *p = deep ? next[path & 1](path >> 1, deep - 1) : malloc(100);
	*(volatile char *)p = 1;
	return p;
}
static void *left(unsigned path, unsigned deep)
{
	void *p = go(path, deep);
	*(volatile char *)p = 2;
	return p;
}
static void *right(unsigned path, unsigned deep)
{
	void *p = go(path, deep);
	*(volatile char *)p = 3;
	return p;
}
int main(void)
{
	for (unsigned path = 0; path < 16384; path++)
		free(go(path, 400));
}
"""


@pytest.mark.parametrize("depth, missing", [(1000, True), (20, False)])
def test_call_stacks_without_room_are_said(hurt, depth, missing):
    """Thousands of different ones of 800 frames: the last line says what is missing, and the answer."""
    source, program = hurt.tmp / "deep.c", hurt.tmp / "deep"
    source.write_text(DIFFERENT_STACKS)
    subprocess.run(["cc", "-O0", "-o", program, source], check=True)
    r = hurt.run(program, opts=["--device=cpu", "--format=none", f"--call-stack=c:{depth}"])
    hurt.session.wait_finished()
    lost = hurt.show()["lost"]
    assert (lost["events"], lost["stacks"] > 0) == (0, missing), lost
    said = re.search(r"none lost; (\d+) of them without their call stacks, for which", r.stderr.decode())
    assert bool(said) == missing and (not said or 0 < int(said[1]) <= lost["stacks"]), r.stderr


def test_no_device_memory_refused_is_lost(record):
    got = record("simtrain", "--fault", "oom", "--steps", 4, opts=["--analysis=oom"])
    (row,) = got.of("OOM_DETAIL", type="OOM_TRIGGER")[:1]
    assert row.attr["func"] == "halMemAlloc" and int(row.attr["req_size"]) > 0
    assert not record("simtrain", "--fault", "oom", "--steps", 4).of("OOM_DETAIL")


@pytest.mark.parametrize("again", range(8))
def test_images_of_a_process_are_told_apart(record, again):
    """The recorder may or may not be done with an image when the next one begins."""
    got = record("exec_images", 4)
    r = json.loads(record.sonde("mem", "show", "--json", got.dir).stdout)
    assert [p["command"].split()[-1] for p in r["processes"]] == ["4", "3", "2", "1"]
    pools = [p["pools"][0] for p in r["processes"]]
    assert [x["mallocs"] for x in pools] == [200] * 4
    assert [x["alive_at_end"]["blocks"] for x in pools] == [4, 3, 2, 1]
    assert r["devices"][0]["peak_bytes"] == 200 * 4096


def test_one_file_per_image_of_a_process(record):
    """A process that becomes another program within a second keeps the rows of both."""
    got = record("exec_after_alloc", record.program("simtrain"), "--steps", 2)
    assert len(got.processes) == 2
    a, b = got.processes
    assert a.pid == b.pid and a.dir != b.dir
    assert sorted(len(p.rows) > 10 for p in got.processes) == [False, True]


def test_a_script_with_several_programs(record, tmp_path):
    script = tmp_path / "user.sh"
    script.write_text(
        f"echo begin; ls / > /dev/null\n{record.program('simtrain')} --steps 2 --quiet\n"
        f"( {record.program('simtrain')} --steps 2 --pool hal --quiet & wait )\n"
        f"{record.program('simtrain')} --steps 2 --quiet | cat\nexit 5\n"
    )
    got = record("bash", script)
    assert got.returncode == 5
    assert len(got.processes) == 3
    assert len({p.pid for p in got.processes}) == 3
    plain = record.plain("bash", script)
    assert (got.stdout, got.stderr) == (plain.stdout, plain.stderr)


def test_a_job_that_records_itself(record, tmp_path):
    """msmemscope inside msmemscope: the inner one has the events, nobody crashes."""
    inner = tmp_path / "inner"
    out, result = record.raw(
        *record.msmemscope, f"--output-path={inner}", "--", record.program("simtrain"), "--steps", 2
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert record.read(inner, result).rows
    record.runs += 1
    assert not record.read(out, result).processes


def test_spelling_of_26_0(record):
    job = ["simtrain", "--steps", 2]
    assert {r.type for r in blocks(record(*job).rows)} == {"HAL", "PTA", "PTA_WORKSPACE"}
    old = record.raw(*job, opts=["--compat=26.0", "--analysis=decompose"])[0]
    text = next(old.glob("*/*/dump/*.csv")).read_text()
    assert ",PTA_WORKSPACE," not in text and "owner:PTA_WORKSPACE" in text
    old = record.raw(*job, "--pool", "mindspore", opts=["--compat=26.0"])[0]
    text = next(old.glob("*/*/dump/*.csv")).read_text()
    assert ",MINDSPORE," in text and "MindSpore" not in text
    old = record.raw(*job, "--pool", "mindspore", env={"SONDE_COMPAT": "26.0"})[0]
    assert ",MINDSPORE," in next(old.glob("*/*/dump/*.csv")).read_text()
    # Exported in the words of today.
    (recording,) = old.glob("recording_*")
    r = record.sonde("mem", "export", "-o", record.tmp / "new", recording)
    assert r.returncode == 0
    assert ",MindSpore," in next((record.tmp / "new").glob("*/*/dump/*.csv")).read_text()
