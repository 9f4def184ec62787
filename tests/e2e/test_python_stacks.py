# SPDX-License-Identifier: MulanPSL-2.0
"""Python call stacks of memory events: taken inside the job, as the interpreter itself sees them."""

import json
import pathlib

import pytest

from pythons import every_python, one_per_minor

TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"


def stacks_of(rows, attr="py_stack"):
    return [getattr(r, attr).strip('"').splitlines() for r in rows]


def job(python, build, name="allocates.py"):
    return [python.path, str(TARGETS / name), str(build / "sim")]


def read(record, python, build, *opts):
    r = record(*job(python, build), opts=opts)
    assert r.returncode == 0, r.stderr
    return r, json.loads(r.stdout)


@pytest.mark.parametrize("python", every_python())
def test_the_interpreters_own_view(record, build, python):
    r, told = read(record, python, build, "--call-stack=python:100")
    rows = sorted(r.of("MALLOC", type="HAL"), key=lambda x: int(x.time))
    assert len(told) == 10 and stacks_of(rows) == told
    assert len(told[3]) > 20 and any("训练" in place for place in told[2])


@pytest.mark.parametrize("python", one_per_minor(oldest=12, newest=12))
@pytest.mark.parametrize("form", ["csv", "db"])
def test_depth_and_both_kinds(record, build, python, form):
    r, told = read(record, python, build, "--call-stack=python:3,c:5", f"--format={form}")
    rows = sorted(r.of("MALLOC", type="HAL"), key=lambda x: int(x.time))
    assert stacks_of(rows) == [places[:3] for places in told]
    assert all(0 < len(native) <= 8 for native in stacks_of(rows, "c_stack")), "inlined ones count"


@pytest.mark.parametrize("python", one_per_minor())
def test_host_memory_of_a_busy_interpreter(hurt, build, python):
    """Threads, coroutines, fork, exec, the collector and the end of the interpreter itself."""
    words = [python.path, "-W", "ignore", str(TARGETS / "busy.py")]
    plain = hurt.plain(*words)
    r = hurt.run(*words, opts=["--device=npu,cpu", "--call-stack=python:10"])
    assert (r.returncode, r.stdout) == (plain.returncode, plain.stdout), r.stderr
    hurt.session.wait_finished()
    assert hurt.lost == 0


def test_no_python_no_stack(record, build):
    r = record(build / "sim/simtrain", "--steps=2", opts=["--call-stack=python:10"])
    assert r.returncode == 0
    assert {tuple(s) for s in stacks_of(r.rows)} == {()}
