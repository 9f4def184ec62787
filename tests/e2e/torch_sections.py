# SPDX-License-Identifier: MulanPSL-2.0
"""Programs that use a real PyTorch, many in one process.

Importing torch takes seconds, so most of what is tried runs in one process per torch and file of
tests, in sections that a mark separates; a test looks at the rows and the output of its own. A file
that uses this imports the fixtures all_told, told and run.
"""

import collections
import json

import pytest

from python_jobs import Jobs
from torches import every_torch

ALL = 'msmemscope.config(events="alloc,free,launch,access", device="npu,cpu", analysis="")\n'

RUNNER = """
import contextlib, gc, io, json, torch
out = {}
for name, code in json.loads(sys.argv[1]).items():
    msmemscope.config(events="launch", device="npu,cpu", analysis="")
    msmemscope.start()
    _sonde.mark("section " + name)
    msmemscope.stop()
    names = {"msmemscope": msmemscope, "torch": torch, "os": os, "sys": sys, "time": time}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(code, names)
    names.clear()
    del names
    gc.collect()
    out[name] = said.getvalue()
print(json.dumps(out))
"""

torches = pytest.mark.parametrize("torch", every_torch(), scope="module")


def section(code):
    """The code of a section, for the test below it, which is given `told`."""

    def add(test):
        test.section = code
        return torches(test)

    return add


class Told:
    def __init__(self, rows, said, processes):
        self.rows, self.said, self.processes = rows, said, processes

    def of(self, event, *types):
        return [r for r in self.rows if r.event == event and (not types or r.type in types)]

    def started(self):
        """The operators, in their order."""
        return [op(r) for r in self.of("OP_LAUNCH", "ATEN_START")]


def check(left):
    assert left.returncode == 0, left
    assert "not collected" not in left.stderr, left
    assert "do not work" not in left.stderr, left
    return left


@pytest.fixture(scope="module")
def all_told(build, tmp_path_factory, torch, request):
    """{section: Told} of the one process for the tests of a file."""
    names = vars(request.module)
    sections = {name: names[name].section for name in names if hasattr(names[name], "section")}
    jobs = Jobs(build, tmp_path_factory.mktemp("torch"))
    env = {"OMP_NUM_THREADS": 1}
    left = check(jobs.run(torch, RUNNER, json.dumps(sections), env=env, timeout=110))
    said = json.loads(left.stdout)
    processes = left.processes
    main = max(processes, key=lambda p: len(p.rows))
    rows = collections.defaultdict(list)
    name = None
    for row in main.rows:
        if row.event == "MSTX":
            name = row.name.strip('"').split()[-1]
        rows[name].append(row)
    return {name: Told(rows[name], said[name], processes) for name in sections}


@pytest.fixture
def told(all_told, request):
    mine = all_told[request.function.__name__]
    check_pairs(mine.rows)
    return mine


@pytest.fixture
def run(build, tmp_path):
    """For what needs a process of its own."""
    jobs = Jobs(build, tmp_path)

    def run(torch, code, *args, hooks=(), **kw):
        env = {"OMP_NUM_THREADS": 1, **(jobs.recipe(hooks) if hooks else {})}
        return check(jobs.run(torch, code, *args, env=env, **kw))

    yield run
    jobs.end()


def op(row):
    """aten.mm.default of torch._ops.aten.mm.default"""
    assert row.name.startswith("torch._ops."), row
    return row.name[len("torch._ops.") :]


def check_pairs(rows):
    """Operators of a thread end in the opposite order of their beginnings; accesses lie inside."""
    running = collections.defaultdict(list)
    for row in rows:
        stack = running[row.pid, row.tid]
        if row.type == "ATEN_START":
            stack.append((row.name, row.device))
        elif row.type == "ATEN_END":
            assert stack and stack.pop() == (row.name, row.device), row
        elif row.event == "ACCESS":
            assert stack and stack[-1][0] == row.name, row
    assert not any(running.values()), running
