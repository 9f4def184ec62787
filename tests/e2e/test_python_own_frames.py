# SPDX-License-Identifier: MulanPSL-2.0
"""Functions of the package stand between the program's own; they are not in its call stacks."""

import pytest

from pythons import one_per_minor

SIZE = 1234567

JOB = f"""
import sys
import msmemscope

@msmemscope.describe.describer(owner="cache")
def allocate():
    return bytearray({SIZE - 57})

@msmemscope.RecordFunction("outer")
def outer():
    with msmemscope.TakeSnapshot(name="around"):
        return allocate()

msmemscope.start()
kept = outer()
msmemscope.stop()
"""


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
def test_only_the_programs_own(record, build, python, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    opts = ["--device=cpu", "--call-stack=python:2", "--collect-mode=deferred"]
    env = {"PYTHONPATH": str(build / "python")}
    r = record(python.path, str(tmp_path / "job.py"), opts=opts, env=env)
    assert r.returncode == 0, r.stderr
    rows = [x for x in r.of("MALLOC", type="HOST") if abs(int(x.attr["size"]) - SIZE) < 100]
    assert rows, "the block is there"
    places = [line.rsplit("/", 1)[-1] for line in rows[0].py_stack.strip('"').splitlines()]
    assert places == ["job.py(7): allocate", "job.py(12): outer"]
