# SPDX-License-Identifier: MulanPSL-2.0
"""take_snapshot() and TakeSnapshot, without an accelerator: rows of the process' own memory."""

import os
import subprocess
import sys

import pytest

from dump_rows import rows_of
from torches import a_torch

KEYS = (
    "reserved peak_reserved allocated peak_allocated total_mem free_mem device_utilization "
    "pt_utilization"
).split()


@pytest.fixture
def run(build, tmp_path):
    def run(code, python=sys.executable, wrap=()):
        done = subprocess.run(
            [*wrap, python, "-c", code],
            cwd=tmp_path,
            env=dict(os.environ, PYTHONPATH=str(build / "python")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done, [r for r in rows_of(tmp_path) if r["Event"] == "SNAPSHOT"]

    return run


def test_before_start_and_with_nothing_but_python(run):
    done, rows = run(
        """
import msmemscope
held = bytearray(64 << 20)
msmemscope.take_snapshot(name='with, "everything"')
del held
msmemscope.take_snapshot()
"""
    )
    assert [r["Name"] for r in rows] == ['with, "everything"', "Memory Snapshot"]
    assert "no accelerator is in use" in done.stderr and done.stderr.count("Info") == 1
    first, second = (r["attr"] for r in rows)
    assert list(first) == KEYS
    total = next(
        int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line[:9] == "MemTotal:"
    )
    assert int(first["total_mem"]) == total
    assert int(first["reserved"]) - int(second["reserved"]) >= 60 << 20
    assert int(second["peak_reserved"]) >= int(first["reserved"])
    used = 100 * (total - int(first["free_mem"])) / total
    assert float(first["device_utilization"]) == pytest.approx(used, abs=1e-5)
    assert all(r["Device Id"] == "cpu" and r["Event Type"] == "SNAPSHOT" for r in rows)


def test_around_a_block_and_a_function(run):
    done, rows = run(
        """
import msmemscope
with msmemscope.TakeSnapshot(name="outer"):
    with msmemscope.TakeSnapshot(0, "inner"):
        pass
@msmemscope.TakeSnapshot(name="work")
def work(n):
    "does it"
    return work(n - 1) + 1 if n else 0
assert work(1) == 1 and work.__doc__ == "does it" and work.__name__ == "work"
try:
    with msmemscope.TakeSnapshot(name="fails"):
        raise KeyError("of the job")
except KeyError as why:
    print("passed on", why)
"""
    )
    assert [r["Name"] for r in rows] == [
        *("outer Start", "inner Start", "inner End", "outer End"),
        *("work Start", "work Start", "work End", "work End"),
        *("fails Start", "fails End"),
    ]
    assert "passed on 'of the job'" in done.stdout


def test_masks(run):
    done, rows = run(
        """
import msmemscope
for mask in (None, 0, [0, 3], (1,), [], "npu:0", 1.5, [0, "x"], True, {0}):
    msmemscope.take_snapshot(mask, f"mask {mask!r}")
"""
    )
    assert len(rows) == 10  # of the process each time: there is nothing to choose from
    said = [line for line in done.stderr.splitlines() if "mask" in line]
    assert said == ["[msmemscope]: Invalid device mask, using current device!"] * 5


def test_while_recording_and_after(run):
    _, rows = run(
        """
import msmemscope
msmemscope.start()
msmemscope.take_snapshot(name="inside")
msmemscope.step()
msmemscope.stop()
msmemscope.take_snapshot(name="after")
msmemscope.start()
msmemscope.take_snapshot(name="again")
msmemscope.stop()
"""
    )
    assert [r["Name"] for r in rows] == ["inside", "after", "again"]
    times = [int(r["Timestamp(ns)"]) for r in rows]
    assert times == sorted(times)


def test_under_the_command_in_the_words_of_26_0(run, build):
    words = [str(build / "bin/msmemscope"), "--compat=26.0", "--collect-mode=deferred", "--"]
    _, rows = run("import msmemscope; msmemscope.take_snapshot()", wrap=words)
    assert list(rows[0]["attr"]) == [
        *("reserved", "max_reserved", "allocated", "max_allocated", "total", "free"),
        *("device_rate", "reserved_rate"),
    ]


def test_torch_is_neither_imported_nor_woken_up(run):
    run(
        """
import sys, msmemscope
msmemscope.take_snapshot()
assert not any(name.split(".")[0] in ("torch", "torch_npu", "numpy") for name in sys.modules)
"""
    )
    done, rows = run(
        """
import torch, msmemscope
kept = torch.ones(1 << 22)
msmemscope.start()
msmemscope.take_snapshot([0, 1], name="cpu only")
msmemscope.stop()
assert not torch.cuda.is_initialized()
print("as before")
""",
        python=a_torch().path,
    )
    assert "as before" in done.stdout
    assert [r["Device Id"] for r in rows if r["Name"] == "cpu only"] == ["cpu"]


def test_files_that_cannot_be_made(run, tmp_path):
    """The job goes on; what is wrong is said once."""
    done, rows = run(
        """
import msmemscope
msmemscope.config(output_path="/proc/no/such/place")
msmemscope.take_snapshot()
msmemscope.take_snapshot()
print("goes on")
"""
    )
    assert rows == [] and "goes on" in done.stdout
    assert done.stderr.count("no snapshot") == 1
