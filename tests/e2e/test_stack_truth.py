# SPDX-License-Identifier: MulanPSL-2.0
"""What is shown of a Python process is what is there: names, files, lines, threads, states."""

import os
import re
import time

import pytest

from capabilities import lacks, needs
from sampled_programs import LIMIT_S, Program, Sampling, snap
from pythons import every_python, is_free_threaded, one_per_minor


def printable(text):
    """As it can be written down: a lone half of a character has no UTF-8."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def expected(thread):
    return [(printable(n), printable(f), line) for n, f, line in thread["frames"]]


# --- threads at rest ---


@pytest.mark.parametrize("python", every_python())
def test_every_shape_of_stack(build, tmp_path, python):
    """Recursion, generators, coroutines, comprehensions, exec, decorators, C in between, names."""
    with Program(python, "shapes.py", tmp_path / "view") as program:
        view = program.wait_for(tmp_path / "view")
        seen = snap(build, program.pid)
    assert len(view["threads"]) >= 38
    wrong = {}
    for thread in view["threads"]:
        found = seen.get(thread["tid"])
        if not found or found["frames"] != expected(thread) or found["name"] != thread["name"]:
            wrong[thread["name"] or "no name"] = (expected(thread), found)
    assert not wrong, describe(wrong)
    told = {t["tid"] for t in view["threads"]}
    assert [t["name"] for tid, t in seen.items() if tid not in told] == ["witness"]
    assert [t["name"] for t in seen.values() if t["main"]] == ["MainThread"]


def describe(wrong):
    """The first frame that differs, thread by thread."""
    lines = []
    for name, (true, found) in wrong.items():
        if not found:
            lines.append(f"{name}: the thread is missing")
            continue
        pairs = list(zip(true, found["frames"]))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        lines.append(
            f"{name} ({found['name']!r}): {len(true)} frames, seen {len(found['frames'])};"
            f" frame {at}: {true[at : at + 1]}, seen {found['frames'][at : at + 1]}"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("python", one_per_minor())
def test_sub_interpreters(build, tmp_path, python):
    with Program(python, "interpreters.py", tmp_path) as program:
        if program.line() == "none":
            lacks("subinterpreter", "this Python makes none")
        seen = snap(build, program.pid)
    inner = [t for t in seen.values() if t["interpreter"] != 0]
    assert len({t["interpreter"] for t in inner}) == 3
    for number in range(3):
        lines = (tmp_path / str(number)).read_text().splitlines()
        true = [(n, f, int(line)) for n, f, line in (text.split("|") for text in lines)]
        assert [t for t in inner if t["frames"][-len(true) :] == true], (true, inner)


@pytest.mark.parametrize("python", one_per_minor())
def test_names_of_threads(build, tmp_path, python):
    """Given at birth, changed later, of other alphabets, long, empty, never given."""
    path = tmp_path / "names"
    with Program(python, "names.py", path) as program:
        program.ready()
        for _ in range(2):
            path.unlink() if path.exists() else None
            program.say()
            assert program.line() == "renamed"
            names = program.wait_for(path)["names"]
            seen = snap(build, program.pid)
            assert {str(tid): t["name"] for tid, t in seen.items() if str(tid) in names} == names
    assert len(names) == 7
    unknown = [t for t in seen.values() if t["frames"][0][0] == "unknown_to_threading"]
    assert [t["name"] for t in unknown] == [""]


@pytest.mark.parametrize("python", one_per_minor())
def test_threads_in_a_container(build, python):
    """In there they have other numbers; that of the first process, 1, stands everywhere."""
    under = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    under += ["--user", "--map-root-user"] if os.geteuid() else []
    needs("namespaces", *under[1:])
    for threads in (1, 6):
        with Program(python, "many.py", threads, 8, "parked", under=under) as program:
            program.ready()
            pid = program.child()
            seen = snap(build, pid)
            assert set(seen) == {int(t) for t in os.listdir(f"/proc/{pid}/task")}
        assert [tid for tid, t in seen.items() if t["main"]] == [pid]
        assert seen[pid]["name"] == "MainThread" and len(seen) == threads


# --- states ---


@pytest.mark.parametrize("python", one_per_minor())
@pytest.mark.parametrize(
    "how, gil, collects", [("gc", True, True), ("spin", True, False), ("none", False, False)]
)
def test_gil_collector_and_state(build, python, how, gil, collects):
    with Program(python, "collector.py", how) as program:
        tid, place = int(program.ready()[1][0]), "spin" if gil else "wait"
        end = time.monotonic() + LIMIT_S
        arrived = False
        while not arrived and time.monotonic() < end:  # what it says comes before it rests
            seen = snap(build, program.pid)
            worker = seen.pop(tid)
            others = {t["state"] for t in seen.values()}
            arrived = worker["frames"][-1][0].endswith(place) and others == {"idle"}
    assert worker["frames"][-1][0].endswith(place)
    if is_free_threaded(python):  # nobody has a GIL, and who collects is not known
        assert not worker["gil"] and not worker["gc"]
    else:
        assert (worker["gil"], worker["gc"]) == (gil, collects)
    assert worker["state"] == ("running" if gil else "idle")
    for thread in seen.values():
        assert (thread["gil"], thread["gc"], thread["state"]) == (False, False, "idle")


@pytest.mark.parametrize("python", one_per_minor())
def test_many_threads(build, python):
    with Program(python, "many.py", 160, 40, "mixed") as program:
        program.ready()
        seen = snap(build, program.pid)
    assert len(seen) == 160
    others = [t for t in seen.values() if not t["main"]]
    for thread in others:
        # one that is about to begin may still wait for the others
        names = [name for name, _, _ in thread["frames"][:40]]
        last = "spin" if thread["name"].startswith("runs-") else "Gate.park"
        assert names[3:-1] == ["descend"] * 36
        assert names[-1] == (last if python.minor >= 11 else last.rpartition(".")[2])
        assert last == "spin" or (thread["state"], len(thread["frames"])) == ("idle", 40)
    assert len({t["name"] for t in others}) == 159
    assert sum(t["gil"] for t in seen.values()) <= 1


# --- threads that run ---


class Calls:
    """Which line of torn.py calls which function, as it says itself."""

    def __init__(self, lines):
        self.edges = {tuple(line.split()[1:]) for line in lines if line.startswith("edge ")}
        self.never = {tuple(line.split()[1:]) for line in lines if line.startswith("never ")}
        assert len(self.edges) > 30 and self.never

    def possible(self, frames):
        if not frames[0][0].endswith("_bootstrap"):
            return False  # all of its threads begin there
        inside = [(name, line) for name, file, line in frames if file.endswith("torn.py")]
        for (caller, line), (called, _) in zip(inside, inside[1:]):
            if (caller, str(line), called) not in self.edges:
                return False
        names = [name for name, _ in inside]
        return not any(b in names and a in names[names.index(b) :] for b, a in self.never)


def collapsed(path):
    """Stacks of a collapsed file, outermost first, and how often each was seen."""
    for text in path.read_text("utf-8").splitlines():
        stack, _, count = text.rpartition(" ")
        frames = re.findall(r"(?:^|;)([^;]*?) \(([^;]*?):(\d+)\)(?=;|$)", stack)
        yield [(name, file, int(line)) for name, file, line in frames], int(count)


@pytest.mark.parametrize("python", one_per_minor())
def test_no_stack_that_never_was(build, tmp_path, python):
    """A program whose stacks change as fast as it can, sampled as fast as we can."""
    out = tmp_path / "stacks"
    with Program(python, "torn.py") as program:
        calls = Calls(program.ready()[0])
        more = ("--format", "collapsed", "--lines", "-d", "1", "--exact")
        with Sampling(build, program.pid, out, *more, hz=20000) as s:
            status, _, said = s.result()
    assert status == 0, said
    stacks = [(frames, n) for frames, n in collapsed(out) if frames]
    running = [(f, n) for f, n in stacks if f[-1][1].endswith("torn.py") and f[-1][0] != "main"]
    assert len(running) > 10, stacks[:3]
    false = [(f, n) for f, n in running if not calls.possible(f)]
    total, bad = sum(n for _, n in running), sum(n for _, n in false)
    assert not false, f"{bad} of {total} stacks never existed, such as {false[0]}"
