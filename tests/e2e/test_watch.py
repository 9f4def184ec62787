# SPDX-License-Identifier: MulanPSL-2.0
"""--watch: who changes memory that is not his, from the operator to the sentence."""

import csv
import json
import re

import pytest

from capabilities import lacks
from waiting import pause, wait_until

WATCH = "--watch=aten.start.default:out0,aten.last.default"
OOB = "--watch=aten.mul_.Scalar:out0,aten._fused_adamw_.default"
ATB = {"ATB_HOME_PATH": "/opt/atb/cxx_abi_1"}
QUIET = ["--report=off"]
HEADER = ["Tensor info", "Check data sum"]


def asked(record, where, *words):
    r = record.sonde("mem", "watch", *words, where)
    assert r.returncode in (0, 3), r.stderr
    return r.returncode, " ".join(r.stdout.decode().split())


def answer(record, where):
    r = record.sonde("mem", "watch", "--json", where)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def checksums(out):
    rows = []
    for path in sorted(out.glob("msmemscope_*/device_*/watch_dump/watch_dump_data_check_sum_*.csv")):
        assert path.stat().st_mode & 0o777 == 0o600
        with open(path, newline="") as f:
            header, *more = list(csv.reader(f))
        assert header == HEADER
        rows += more
    assert all(len(r) == 2 and re.fullmatch("[0-9a-f]{16}", r[1]) for r in rows)
    return rows


# --- the planted fault ---


@pytest.mark.parametrize("form", ["csv", "db"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_out_of_bounds(record, seed, form):
    args = ["simtrain", "--aten", "--fault", "oob", "--steps", 4, "--seed", seed]
    got = record(*args, opts=[OOB, f"--format={form}"])
    assert got.stdout == record.plain(*args).stdout
    assert b"overwritten" in got.stdout
    status, text = asked(record, got.dir, "--fail-on=corruption")
    assert status == 3
    assert text.startswith("1 corruption of memory found. ")
    m = re.search(
        r"Block 0x[0-9a-f]+ \(8192 bytes, output 0 of aten\.mul_\.Scalar #(\d+)\) changed during "
        r"operator aten\.mul_\.Scalar #(\d+), which should not write it\. It writes the \d+ bytes "
        r"right before it: an overrun is likely\.",
        text,
    )
    assert m, text
    first, second = map(int, m.groups())
    assert second == first + 1
    (one,) = answer(record, got.dir)["corruption"]
    assert (one["kind"], one["to"]["operator"], one["to"]["call"]) == (
        "during_operator",
        "aten.mul_.Scalar",
        second,
    )
    assert one["before"] != one["after"] and one["pool"] == "PTA"
    # The dump holds what was asked for, not what the analysis needs besides.
    assert not got.of("ACCESS")
    tid = one["to"]["tid"]
    name = "torch._ops.aten.mul_.Scalar"
    sums = checksums(got.out)
    at = sums.index([f"0_{tid}/{name}_{first}-{name}_0_after.bin", one["before"]])
    assert sums[at + 1 : at + 3] == [
        [f"0_{tid}/{name}_{second}-{name}_0_before.bin", one["before"]],
        [f"0_{tid}/{name}_{second}-{name}_0_after.bin", one["after"]],
    ]


def test_the_lines_of_the_user(record):
    """Of the operator (ATB's own hooks know the caller) and of the block that it overwrites."""
    args = ["simtrain", "--fault", "oob", "--steps", 4, "--pool", "atb"]
    opts = ["--watch=Muls:out0,ApplyAdamW", "--level=op", "--call-stack=c:20"]
    got = record(*args, opts=opts, env=ATB)
    (one,) = answer(record, got.dir)["corruption"]
    assert re.fullmatch(r"\w+ \(op\.c:\d+\)", one["to"]["where"])
    assert re.fullmatch(r"corrupt_neighbour \(fault\.c:\d+\)", one["where"])
    _, text = asked(record, got.dir)
    assert f"operator called by {one['to']['where']}" in text
    assert f"block allocated by {one['where']}" in text


@pytest.mark.parametrize("pool", ["pta", "mindspore", "atb", "hal"])
def test_every_pool(record, pool):
    got = record("simtrain", "--aten", "--fault", "oob", "--steps", 4, "--pool", pool, opts=[OOB])
    assert answer(record, got.dir)["corruptions"] == 1


@pytest.mark.parametrize("level", ["op", "kernel", "op,kernel"])
def test_atb_operators(record, level):
    args = ["simtrain", "--fault", "oob", "--steps", 4, "--pool", "atb"]
    opts = ["--watch=Muls:out0,ApplyAdamW", f"--level={level}"]
    got = record(*args, opts=opts, env=ATB)
    assert got.stdout == record.plain(*args).stdout
    status, text = asked(record, got.dir, "--fail-on=corruption")
    assert status == 3
    assert "1 corruption of memory found." in text and "an overrun is likely" in text
    (one,) = answer(record, got.dir)["corruption"]
    assert "Muls" in one["to"]["operator"] and one["kind"] == "during_operator"


def test_kernel_inside_an_operator(record):
    args = ["simtrain", "--aten", "--fault", "oob", "--steps", 4]
    got = record(*args, opts=[OOB, "--level=op,kernel"])
    assert got.stdout == record.plain(*args).stdout
    status, text = asked(record, got.dir)
    assert re.search(r"during operator Muls #\d+ \(inside operator aten\.mul_\.Scalar\)", text)
    assert "an overrun is likely" in text


@pytest.mark.parametrize("args", [[], ["--pool", "atb"], ["--devices", 2, "--procs", 2, "--threads", 2]])
@pytest.mark.parametrize("level", ["op", "op,kernel"])
@pytest.mark.parametrize("start", ["aten.mm.default", "aten.gelu.default", "aten.mm_backward.default"])
def test_clean_jobs(record, args, level, start):
    words = ["simtrain", "--aten", "--steps", 4, *args]
    opts = [f"--watch={start},aten._fused_adamw_.default", f"--level={level}", *QUIET]
    out, r = record.raw(*words, opts=opts, env=ATB)
    assert r.stdout == record.plain(*words).stdout and r.stderr == b""
    got = answer(record, out)
    assert got["corruptions"] == got["unjudged"] == got["failed"] == got["missed"] == 0
    assert got["blocks"] >= 4 and got["samples"] >= 20
    assert asked(record, out, "--fail-on=corruption")[0] == 0


# --- small stories ---


@pytest.mark.parametrize(
    "story", ["good", "during", "between", "nested", "named", "freed", "threads", "forks"]
)
def test_the_job_does_not_notice(record, story):
    r = record.plain("watched", story)
    got = record("watched", story, opts=[WATCH, *QUIET])
    assert r.returncode == got.returncode == 0
    assert (got.stdout, got.stderr) == (r.stdout, r.stderr)


def test_announced_changes(record):
    got = answer(record, record("watched", "good", opts=[WATCH]).dir)
    assert (got["corruptions"], got["announced"], got["blocks"]) == (0, 20, 1)
    assert got["samples"] == 1 + 2 * 22


def test_during_and_between(record):
    _, text = asked(record, record("watched", "during", opts=[WATCH]).dir)
    assert "changed during operator aten.guilty.default #1, which should not write it" in text
    got = record("watched", "between", opts=[WATCH])
    _, text = asked(record, got.dir)
    assert (
        "changed between operator aten.one.default #1 and operator aten.two.default #1, while no "
        "operator that may write it ran." in text
    )


def test_the_report_at_the_end(record):
    out, r = record.raw("watched", "during", opts=[WATCH, "--analysis=none"])
    text = " ".join(r.stderr.decode().split())
    assert text.startswith("1 corruption of memory found.")
    assert "during operator aten.guilty.default #1, which should not write it." in text
    out, r = record.raw("watched", "good", opts=[WATCH, "--analysis=none"])
    assert r.stderr == b""


def test_nested(record):
    _, text = asked(record, record("watched", "nested", opts=[WATCH]).dir)
    assert "1 corruption of memory found." in text
    assert (
        "changed during operator aten.guilty.default #1 (inside operator aten.outer.default), "
        "which should not write it." in text
    )


def test_a_writer_in_another_thread(record):
    got = answer(record, record("watched", "threads", opts=[WATCH]).dir)
    assert (got["corruptions"], got["announced"]) == (0, 1)


def test_freed_memory_is_not_read(record):
    got = record("watched", "freed", opts=[WATCH])
    assert len(checksums(got.out)) == 3


def test_a_forked_child_watches_nothing(record):
    out, r = record.raw("watched", "forks", opts=[WATCH])
    assert r.returncode == 0
    got = answer(record, out)
    assert (got["blocks"], got["samples"], got["corruptions"]) == (1, 3, 0)


@pytest.mark.parametrize("opts", [[], ["--watch=,aten.never"]])
def test_blocks_that_the_program_names(record, opts):
    got = record("watched", "named", opts=opts)
    assert got.stdout == b"11\ndone\n"
    told = answer(record, got.dir)
    assert told["samples"] == 4 and told["blocks"] == 2
    (one,) = told["corruption"]
    assert one["name"] == "kv cache" and one["output"] is None
    assert "aten.guilty.default" in one["text"]


# --- names ---


@pytest.mark.parametrize("start", ["aten.start.default", "torch._ops.aten.start.default", "start.default", "aten::start.default"])
def test_spellings(record, start):
    got = record("watched", "during", opts=[f"--watch={start},torch._ops.aten.last.default"])
    assert answer(record, got.dir)["corruptions"] == 1


def test_an_operator_that_never_comes(record):
    got = record("watched", "during", opts=["--watch=aten.absent.default,aten.last.default"])
    status, text = asked(record, got.dir, "--fail-on=corruption")
    assert status == 0 and text.startswith("No memory was watched.")
    assert checksums(got.out) == []


# --- contents ---


def test_full_content(record):
    got = record("watched", "during", opts=[WATCH + ",full-content"])
    tid = answer(record, got.dir)["corruption"][0]["to"]["tid"]
    (folder,) = got.out.glob("msmemscope_*/device_0/watch_dump")
    files = {p.name: p for p in folder.glob("*.bin")}
    assert sorted(files) == sorted(name.replace("/", ".") for name, _ in checksums(got.out))
    start = f"0_{tid}.torch._ops.aten.%s_1-torch._ops.aten.start.default_0_%s.bin"
    before = files[start % ("guilty.default", "before")]
    assert before.read_bytes() == b"\x01" * 100000
    assert before.stat().st_mode & 0o777 == 0o600
    assert files[start % ("guilty.default", "after")].read_bytes() == b"\x03" * 100000
    assert not (got.dir / "watch").exists()


@pytest.mark.needs("root")
def test_a_full_disk(record):
    """The job does not notice, the checksums are there, and what is missing is told."""
    import subprocess

    disk = record.tmp / "disk"
    disk.mkdir()
    out, words = record.start("watched", "during", opts=[WATCH + ",full-content", "--buffer-mb=1"])
    words = [w.replace(str(out), str(disk / "out")) for w in words]
    keep = record.tmp / "kept"
    script = f"""
        mount -t tmpfs -o size=14m none {disk} || exit 99
        mkdir {disk}/out
        dd if=/dev/zero of={disk}/filler bs=1k count=100000 2>/dev/null
        truncate -s -$((9600 * 1024)) {disk}/filler
        {' '.join(f"'{w}'" for w in words)}; status=$?
        sleep 1; rm {disk}/filler; cp -a {disk}/out {keep}; umount {disk}; exit $status
    """
    r = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=record.env(), capture_output=True, timeout=60
    )
    if r.returncode == 99:
        lacks("mount", "cannot mount a tmpfs")
    assert (r.returncode, r.stdout) == (0, b"done\n"), r.stderr
    got = answer(record, keep)
    assert got["corruptions"] == 1 and got["failed"] == 0


# --- ends ---


def test_killed_in_the_middle(hurt):
    hurt.start(hurt.target("watched"), "killed", opts=[WATCH])
    out, _ = hurt.job.communicate(timeout=30)
    assert hurt.job.returncode == -9 and out == b""
    hurt.session.wait_finished()
    r = hurt.sonde("mem", "watch", "--fail-on=corruption", hurt.recording)
    assert r.returncode == 3
    assert "aten.guilty.default #1" in r.stdout
    (path,) = hurt.out.glob("msmemscope_*/device_0/watch_dump/*.csv")
    assert len(path.read_text().splitlines()) == 1 + 7


def test_killed_with_its_recorder(hurt):
    words = [hurt.build / "sim" / "simtrain", "--aten", "--steps", 2000, "--step-ms", 5]
    opts = ["--watch=aten.mm.default,aten.never.default"]
    hurt.start(*words, opts=opts)
    dumps = lambda: list(hurt.out.glob("msmemscope_*/device_0/watch_dump/*.csv"))
    wait_until(lambda: dumps() and dumps()[0].read_bytes().count(b"\n") > 25, "samples", 20)
    hurt.session.kill_recorder()
    pause(0.2, "the job goes on without it")
    hurt.job.kill()
    hurt.job.wait()
    hurt.recover()
    r = hurt.sonde("mem", "watch", "--json", hurt.recording)
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got["samples"] > 20 and got["corruptions"] == got["missed"] == 0


# --- files by themselves ---


def test_a_file_of_checksums(record):
    got = record("watched", "during", opts=[WATCH])
    (path,) = got.out.glob("msmemscope_*/device_0/watch_dump/*.csv")
    status, text = asked(record, path)
    assert status == 0 and text.startswith("1 change of watched memory found.")
    assert "changed during operator aten.guilty.default #1." in text
    r = record.sonde("mem", "watch", "--fail-on=corruption", path)
    assert r.returncode == 1, "whether the change was meant is unknown"
    assert b"--fail-on: insufficient data in the input" in r.stderr
    path.write_text(path.read_text() + "what is this\n")
    assert "1 lines are not understood" in asked(record, path)[1]


def test_wrong_files(record):
    for name, data in [("empty", b""), ("other", b"ID,Event\n1,2\n"), ("bytes", bytes(range(256)))]:
        path = record.tmp / name
        path.write_bytes(data)
        r = record.sonde("mem", "watch", path)
        assert r.returncode == 1 and b"sonde mem watch: " in r.stderr, name
    assert record.sonde("mem", "watch", "absent").returncode == 1
    assert record.sonde("mem", "watch").returncode == 2
    assert record.sonde("mem", "watch", "--fail-on=what", "x").returncode == 2


@pytest.mark.parametrize("form", ["csv", "db"])
def test_a_dump_has_no_checksums(record, form):
    """It cannot tell whether anything was watched, so it must not be taken for good news."""
    got = record("watched", "during", opts=[WATCH, f"--format={form}"])
    (project,) = got.out.glob("msmemscope_*")
    (dump,) = project.glob(f"device_0/dump/*.{form}")
    for path in (dump, project):
        r = record.sonde("mem", "watch", "--fail-on=corruption", path)
        assert r.returncode == 1 and not r.stdout
        assert b"has no checksums: name the recording" in r.stderr


def test_export_writes_the_checksums_again(record):
    got = record("watched", "during", opts=[WATCH])
    again = record.tmp / "again"
    r = record.sonde("mem", "export", "-o", again, got.dir)
    assert r.returncode == 0, r.stderr
    assert checksums(again) == checksums(got.out) != []


def test_steps(record):
    """Only what happens in a listed step is told."""
    args = ["simtrain", "--aten", "--fault", "oob", "--steps", 5]
    one = record(*args, opts=[OOB, "--steps=3"])
    other = record(*args, opts=[OOB, "--steps=2,4"])
    assert answer(record, one.dir)["corruptions"] == 1
    assert answer(record, other.dir)["samples"] == 0
