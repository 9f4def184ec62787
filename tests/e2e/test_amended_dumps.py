# SPDX-License-Identifier: MulanPSL-2.0
"""Findings that go into dumps when a process has ended: whatever happens meanwhile."""

import os
import pathlib
import re
import signal
import sqlite3
import subprocess

import pytest

from capabilities import lacks, needs
from harness import LIVE, process_state, wait_gone
from waiting import pause, wait_until

EVENTS = "--events=alloc,free,launch,access"
ANALYSES = "--analysis=leaks,inefficient,decompose"
FOUND = b"inefficient"


OPTIONS = [EVENTS, ANALYSES]


def simtrain(hurt, steps, *more):
    """Its steps are long: some findings come when the rows of their blocks are in the file."""
    words = [hurt.build / "sim" / "simtrain", "--quiet", "--aten", "--layers", 400]
    return [*words, "--steps", steps, *more]


def dumps(hurt):
    return sorted(hurt.out.glob("msmemscope_*/device_*/dump/*"))


def found(hurt):
    (dump,) = (p for p in dumps(hurt) if p.suffix == ".csv")
    return dump.read_bytes().count(FOUND)


def helpers(hurt):
    """Processes that the recorder has made."""
    needs("children")
    path = pathlib.Path("/proc") / str(hurt.session.recorder) / "task"
    return [int(pid) for task in path.iterdir() for pid in (task / "children").read_text().split()]


def wait_amending(hurt):
    """Until a helper amends the dump, which is large."""

    def begun():
        assert hurt.job.poll() is None
        return dumps(hurt) and helpers(hurt)

    wait_until(begun, "a helper", every=0.0005)


@pytest.fixture
def expected(hurts):
    """How many rows a run that nobody hurts has findings in."""
    whole = hurts("whole")
    assert whole.run(*simtrain(whole, 3), opts=[*OPTIONS, "--log-level=info"]).returncode == 0
    log = (whole.recording / "msmemscope.log").read_text()
    n, late = found(whole), int(re.search(r"(\d+) rows of .* amended", log).group(1))
    assert 0 < late < n, "some are known at once, some late"
    (dump,) = dumps(whole)
    assert dump.read_bytes().count(b",room:") >= late  # where they were written
    return n


@pytest.mark.parametrize("delay", [0, 0.01])
def test_killed_in_the_middle(hurt, expected, delay):
    hurt.start(*simtrain(hurt, 3), opts=OPTIONS)
    wait_amending(hurt)
    pause(delay, "some of it is written")
    hurt.session.kill_recorder()
    assert hurt.job.wait(timeout=30) == 0
    # Each row is the old one or the new one.
    hurt.fast_rows()
    assert 0 < found(hurt) <= expected
    hurt.recover()
    assert found(hurt) == expected
    hurt.processes()
    assert len(dumps(hurt)) == 1, "something is left beside the dump"


def test_its_helper_killed(hurt, expected):
    """What it had not written yet is told, and can be made good."""
    hurt.start(*simtrain(hurt, 3), opts=OPTIONS)
    wait_amending(hurt)
    for pid in helpers(hurt):
        os.kill(pid, signal.SIGKILL)
    assert hurt.job.wait(timeout=30) == 0
    hurt.session.wait_finished()
    if found(hurt) != expected:
        log = (hurt.recording / "msmemscope.log").read_text()
        assert "is not amended: it was interrupted" in log
        hurt.recover()
    assert found(hurt) == expected


def test_a_file_without_room(hurt, expected):
    """As other tools write it: a second file takes its place, and if that is killed, the old one is
    as it was."""
    opts = [EVENTS, "--report=off"]
    assert hurt.run(*simtrain(hurt, 3), opts=opts).returncode == 0
    (dump,) = dumps(hurt)
    before = dump.read_bytes()
    assert b"room:" not in before and b"inefficient" not in before
    words = [hurt.build / "bin" / "sonde", "mem", "inefficient", dump]
    job = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    wait_until(lambda: job.poll() is not None or len(dumps(hurt)) > 1, "a second file", every=0.0005)
    job.kill()
    if job.wait() == -signal.SIGKILL and dump.read_bytes() == before:
        for left in dumps(hurt):
            assert left == dump or left.name.startswith(dump.name + "."), left
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    assert dump.read_bytes().count(FOUND) == expected
    assert dump.stat().st_size - len(before) < 100 * expected


def test_others_go_on_meanwhile(hurt):
    """One process ends and has a large dump; that takes longer than another's buffer lasts."""
    large = " ".join(map(str, simtrain(hurt, 8)))
    other = "timeout 60 " + " ".join(map(str, hurt.steady(events=0, pace=20)))
    go = hurt.tmp / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    begun = f"while [ ! -e {hurt.count_file} ]; do sleep 0.01; done"
    script = f"{other} & {begun}; {large} >/dev/null; {wait}; kill %1; wait; exit 0"
    hurt.start("bash", "-c", script, opts=[*OPTIONS, "--buffer-mb=1", "--wait-ms=1000"])
    wait_amending(hurt)
    (helper,) = helpers(hurt)
    os.kill(helper, signal.SIGSTOP)
    wait_until(lambda: process_state(helper) in "TZX", "it to stop", every=0.001)
    if process_state(helper) != "T":
        go.touch()
        lacks("slow-enough", "the helper was through before it could be stopped")
    hurt.wait_counted(hurt.counted + 60000)  # twice what the buffer holds
    go.touch()
    # The end of the job is not put off for ever either.
    assert hurt.job.wait(timeout=30) == 0
    assert hurt.session.state == LIVE
    os.kill(helper, signal.SIGCONT)
    hurt.session.wait_finished()
    lost = {p["command"]: p["lost"]["events"] for p in hurt.show()["processes"]}
    assert [n for command, n in lost.items() if "steady" in command] == [0], lost
    assert sum(p.read_bytes().count(FOUND) for p in dumps(hurt)) > 0


def test_two_large_dumps_at_once(hurt):
    """The copies that amend do not keep each other's files locked."""
    r = hurt.run(*simtrain(hurt, 3, "--procs", 4), opts=OPTIONS)
    assert r.returncode == 0
    hurt.session.wait_finished()
    log = (hurt.recording / "msmemscope.log").read_text()
    assert "[ERROR]" not in log and log.count(" amended") == 4, log


def test_owners_need_no_second_file(hurt):
    """They come a moment after the MALLOC rows, which are kept back that long."""
    opts = [EVENTS, "--analysis=decompose", "--log-level=info"]
    words = [hurt.build / "sim" / "simtrain", "--quiet", "--aten", "--steps", 20]
    assert hurt.run(*words, opts=opts).returncode == 0
    hurt.session.wait_finished()
    (process,) = hurt.processes()
    owners = {"MALLOC": {}, "FREE": {}}
    for row in process.rows:
        if row.event in owners and "allocation_id" in row.attr:
            owners[row.event][row.attr["allocation_id"]] = row.attr.get("owner")
    late = [i for i, owner in owners["FREE"].items() if owner and owners["MALLOC"][i] != owner]
    assert len(owners["FREE"]) > 500 and not late
    log = (hurt.recording / "msmemscope.log").read_text()
    assert "ended" in log and " amended" not in log, log


def test_no_process_is_left(hurt):
    r = hurt.run(*simtrain(hurt, 3), opts=OPTIONS)
    assert r.returncode == 0
    hurt.session.wait_finished()
    wait_gone(hurt.session.recorder)


@pytest.mark.needs("root")
def test_no_room_for_a_journal(hurt):
    """The rows are all there. What they lack is told, and `recover` brings it once there is room."""
    disk = hurt.tmp / "disk"
    disk.mkdir()
    hurt.out = disk / "out"
    opts = [EVENTS, ANALYSES, "--buffer-mb=1", "--report=off", "--format=db"]
    words = [hurt.build / "sim" / "simtrain", "--quiet", "--aten", "--steps", 8]
    words += ["--fault", "late", "--step-ms", 100]
    command = " ".join(f"'{w}'" for w in hurt.command(*words, opts=opts))
    script = f"""
        mount -t tmpfs -o size=48m none {disk} || exit 99
        mkdir {disk}/out
        {command} & sleep 0.6
        dd if=/dev/zero of={disk}/filler bs=64k 2>/dev/null
        truncate -s -700K {disk}/filler
        wait %1; status=$?
        sleep 0.5
        grep -h ERROR {disk}/out/recording_*/msmemscope.log > {hurt.tmp}/errors
        rm {disk}/filler
        {hurt.build}/bin/sonde mem recover {disk}/out/recording_* > {hurt.tmp}/recovered
        cp -a {disk}/out {hurt.tmp}/kept; umount {disk}; exit $status
    """
    r = subprocess.run(
        ["unshare", "-m", "bash", "-c", script], env=hurt.env(), capture_output=True, timeout=60
    )
    if r.returncode == 99:
        lacks("mount", "cannot mount a tmpfs")
    assert r.returncode == 0, r
    errors = (hurt.tmp / "errors").read_text()
    if not errors:
        lacks("slow-enough", "there was room after all")
    assert "written anew" in (hurt.tmp / "recovered").read_text()
    hurt.out = hurt.tmp / "kept"
    (path,) = dumps(hurt)
    db = sqlite3.connect(path)
    sql = "SELECT count(*) FROM memscope_dump WHERE Attr LIKE '%inefficient%'"
    assert db.execute(sql).fetchone()[0] > 0
    db.close()
