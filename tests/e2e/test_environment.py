# SPDX-License-Identifier: MulanPSL-2.0
"""Recording without the command: LD_PRELOAD of the five libraries, as the user guide has it."""

import itertools
import os
import random
import subprocess

import pytest

from recording import HOOKS, wait_finished


@pytest.fixture
def preloaded(record):
    """Runs a program with these libraries preloaded, in a directory of its own."""
    count = itertools.count()

    def run(libs, *words, **env):
        cwd = record.tmp / f"run{next(count)}"
        cwd.mkdir()
        lib = record.build / "lib"
        env = record.env(
            LD_PRELOAD=":".join(str(lib / name) for name in libs), LD_LIBRARY_PATH=lib, **env
        )
        result = subprocess.run(
            [record.program(words[0]), *map(str, words[1:])],
            env=env,
            cwd=cwd,
            capture_output=True,
            timeout=60,
        )
        return cwd, result

    return run


def unharmed(result, plain):
    assert (result.returncode, result.stdout, result.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


TRAIN = ["simtrain", "--steps", 2, "--layers", 2, "--aten", "--threads", 1]


@pytest.mark.parametrize("lib", HOOKS)
def test_each_alone(record, preloaded, lib):
    plain = record.plain(*TRAIN)
    cwd, result = preloaded([lib], *TRAIN)
    unharmed(result, plain)
    # One of them is enough to load what the C API needs.
    cwd, result = preloaded([lib], "api", "windows")
    unharmed(result, record.plain("api", "windows"))


def test_any_order(record, preloaded):
    orders = list(itertools.permutations(HOOKS))
    random.Random(1).shuffle(orders)
    plain = record.plain(*TRAIN)
    for libs in orders[:12]:
        cwd, result = preloaded(libs, *TRAIN)
        unharmed(result, plain)
    for libs in itertools.combinations(HOOKS, 2):
        cwd, result = preloaded(libs, *TRAIN, "--pool", "atb")
        unharmed(result, record.plain(*TRAIN, "--pool", "atb"))


def test_nothing_is_recorded_until_asked(record, preloaded):
    """Not even a directory is left behind by programs that have no events."""
    for words in (["true"], ["bash", "-c", "ls / | wc -l"]):
        cwd, result = preloaded(HOOKS, *words)
        unharmed(result, record.plain(*words))
        assert os.listdir(cwd) == []
    cwd, result = preloaded(HOOKS, *TRAIN)
    assert list(cwd.glob("memscopeDumpResults/msmemscope_*/device_*")) == []


def test_start_and_stop_in_the_job(record, preloaded):
    for libs in (HOOKS, HOOKS[::-1]):
        cwd, result = preloaded(libs, "api", "windows")
        unharmed(result, record.plain("api", "windows"))
        record.runs += 1
        got = record.read(cwd / "memscopeDumpResults", result)
        sizes = {int(r.attr["size"]) for r in got.of("MALLOC")}
        assert sizes == {1000, 3000, 4000, 5000, 7000}


def test_children_join_the_recording_of_their_parent(record, preloaded, tmp_path):
    api = record.program("api")
    cwd, result = preloaded(HOOKS, "bash", "-c", f"{api} windows; {api} windows; cd /; {api} marks")
    record.runs += 1
    got = record.read(cwd / "memscopeDumpResults", result)
    assert len(got.processes) == 2


def test_one_directory_for_each_job(record, preloaded):
    """Without a common parent that is preloaded, each job has its own."""
    lib = record.build / "lib"
    preload = ":".join(str(lib / name) for name in HOOKS)
    api = record.program("api")
    r = record.plain(
        "bash",
        "-c",
        f"export LD_PRELOAD={preload} LD_LIBRARY_PATH={lib}; {api} windows; {api} windows",
    )
    assert (r.returncode, r.stderr) == (0, b"")
    found = list((record.tmp / "memscopeDumpResults").glob("recording_*"))
    assert len(found) == 2
    for recording in found:
        wait_finished(recording)


def test_sourced(record):
    """source msmemscope --load-api-env, then the job, then out of the way again."""
    script = (
        f"source {record.msmemscope[0]} --load-api-env >/dev/null; {record.program('api')} windows;"
        f" source {record.msmemscope[0]} --unload-api-env >/dev/null;"
        " echo ${LD_PRELOAD-gone} ${LD_LIBRARY_PATH-gone}"
    )
    r = record.plain("bash", "-c", script)
    assert (r.returncode, r.stdout, r.stderr) == (0, b"done\ngone gone\n", b"")
    record.runs += 1
    assert record.read(record.tmp / "memscopeDumpResults", r).of("MALLOC")


def test_the_command_in_a_loaded_shell(record):
    """msmemscope itself, started where its libraries are already preloaded."""
    out = record.tmp / "inner"
    script = (
        f"source {record.msmemscope[0]} --load-api-env >/dev/null;"
        f" {record.msmemscope[0]} --output-path={out} -- {record.program('simtrain')} --steps 2"
    )
    r = record.plain("bash", "-c", script)
    assert (r.returncode, r.stderr) == (0, b"")
    assert r.stdout == record.plain("simtrain", "--steps", 2).stdout
    record.runs += 1
    assert record.read(out, r).rows


def test_a_directory_that_cannot_be_written(record, preloaded):
    """The job runs as if nothing were there."""
    plain = record.plain("api", "windows")
    lib = record.build / "lib"
    env = record.env(LD_PRELOAD=lib / HOOKS[0], LD_LIBRARY_PATH=lib)
    r = subprocess.run([record.program("api"), "windows"], env=env, cwd="/proc", capture_output=True)
    unharmed(r, plain)
