# SPDX-License-Identifier: MulanPSL-2.0
"""What the collection options let through: events, devices, steps."""

import pytest

JOB = ["simtrain", "--aten", "--steps", 3, "--layers", 2]


def events(got):
    return {r.event for r in got.rows} - {"MSTX", "SYSTEM"}


@pytest.mark.parametrize(
    "mask, want",
    [
        ("alloc", {"MALLOC", "FREE"}),
        ("free", {"MALLOC", "FREE"}),
        ("alloc,free", {"MALLOC", "FREE"}),
        ("launch", {"OP_LAUNCH"}),
        ("access", {"MALLOC", "FREE", "ACCESS"}),
        ("alloc，launch", {"MALLOC", "FREE", "OP_LAUNCH"}),
        ("launch,access", {"MALLOC", "FREE", "ACCESS", "OP_LAUNCH"}),
    ],
)
def test_events(record, mask, want):
    # leaks, the default analysis, needs blocks, but does not write them.
    got = record(*JOB, opts=[f"--events={mask}"])
    assert events(got) == want
    assert got.of("MSTX"), "marks are always written"


def test_no_events(record):
    got = record(*JOB, opts=["--events=none", "--analysis=none"])
    assert events(got) == set()


@pytest.mark.parametrize("device, want", [("npu:1", "1"), ("npu:0,npu:2", "02"), ("npu", "012")])
def test_devices(record, device, want):
    job = ["simtrain", "--aten", "--devices", 3, "--steps", 3]
    got = record(*job, opts=[f"--device={device}", "--events=alloc,access,launch"])
    assert got.process.files.keys() == set(want)
    for rows in got.process.by_device.values():
        assert {"MALLOC", "ACCESS", "OP_LAUNCH"} <= {r.event for r in rows}


def test_a_device_that_is_not_used(record):
    assert record("simtrain", "--steps", 2, opts=["--device=npu:7"]).processes == []


def test_visible_devices(record):
    """Files and rows have the numbers of the cards, not those the job sees."""
    env = {"ASCEND_RT_VISIBLE_DEVICES": "5,3"}
    job = ["simtrain", "--aten", "--devices", 2, "--steps", 2]
    opts = ["--events=alloc,free,launch,access", "--level=op,kernel"]
    got = record(*job, opts=opts, env=env)
    assert got.process.files.keys() == {"3", "5"}
    for rows in got.process.by_device.values():
        assert {r.type for r in rows if r.event == "MALLOC"} == {"HAL", "PTA", "PTA_WORKSPACE"}
        assert [r for r in rows if r.event == "ACCESS" and "allocation_id" in r.attr]
        assert {"OP_LAUNCH", "KERNEL_LAUNCH"} <= {r.event for r in rows}
    assert {r.device for r in got.of("MSTX")} == {"5"}, "logical device 0 announces the steps"
    got = record(*job, opts=[*opts, "--device=npu:3"], env=env)
    assert got.process.files.keys() == {"3"}


def test_visible_devices_that_make_no_sense(record):
    got = record("simtrain", "--steps", 2, env={"ASCEND_RT_VISIBLE_DEVICES": "x"})
    plain = record.plain("simtrain", "--steps", 2, env={"ASCEND_RT_VISIBLE_DEVICES": "x"})
    assert (got.returncode, got.stdout) == (plain.returncode, plain.stdout)


def test_steps(record):
    every = record("simtrain", "--aten", "--steps", 5)
    got = record("simtrain", "--aten", "--steps", 5, opts=["--steps=2,4"])
    starts = got.of("MSTX", type="Range_start")
    ends = got.of("MSTX", type="Range_end")
    assert [r.name for r in ends] == ["Range end from id 2", "Range end from id 4"]
    assert len(starts) == 2 and len(got.of("MSTX", type="Mark")) == 6
    ops = [r.time for r in got.of("OP_LAUNCH")]
    assert all(any(a.time <= t <= b.time for a, b in zip(starts, ends)) for t in ops)
    assert len(ops) * 5 == len(every.of("OP_LAUNCH")) * 2
    # The weights were there before; they are freed after the last step of all.
    weights = [r for r in got.of("MALLOC") if "shadow" in r.attr]
    assert {r.time for r in weights} <= {r.time for r in starts}
    assert not got.of("SYSTEM"), "both lie outside"


def test_a_step_that_never_comes(record):
    assert record("simtrain", "--steps", 3, opts=["--steps=9"]).processes == []


def test_decompose_names_owners(record):
    got = record("simtrain", "--steps", 2, opts=["--analysis=decompose"])
    owners = {r.attr["owner"] for r in got.of("MALLOC")}
    assert {"PTA", "PTA_WORKSPACE"} <= owners
    assert {o.split("@")[0] for o in owners} == {"CANN", "PTA", "PTA_WORKSPACE"}
    assert not any("owner" in r.attr for r in record("simtrain", "--steps", 2).of("MALLOC"))
