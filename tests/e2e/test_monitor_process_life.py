# SPDX-License-Identifier: MulanPSL-2.0
"""Monitored jobs that do what jobs do: fork, exec, exit, signals, threads, descriptors."""

import collections
import contextlib
import csv
import os
import pathlib
import signal
import subprocess
import time

import pytest
from fake_daemon import *  # noqa: F403
from monitored import environment
from waiting import pause, wait_until

def test_the_last_thread_ends_the_process(fake, run):
    p = run("last-thread")
    assert finish(p, 20) == (0, "ready\n", "")


@pytest.mark.parametrize("on", [False, True])
def test_descriptors_are_the_jobs(fake, run, on):
    p = run("close-all", 4)
    if on:
        fake.order(start(), becomes=RUNNING)
    status, out, err = finish(p)
    assert status == 0, out + err


def test_a_child_keeps_its_own_files(fake, run):
    p = run("child-with-files")
    status, out, err = finish(p)
    assert status == 0, out + err


def test_stderr_that_became_a_file(fake, run, tmp_path):
    p = run("stderr", tmp_path / "mine")
    fake.order(start(log="/dev/null/x"))
    fake.order(trace("/proc/x"))
    assert finish(p)[0] == 0
    assert (tmp_path / "mine").read_text() == ""


def test_stderr_that_nobody_reads(build, fake, place, tmp_path):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    p = subprocess.Popen([build / "targets" / "monitor_life", "train", "4"], stderr=writer,
                         env=environment(build, fake, SONDE_MONITOR_DIR=place),
                         stdout=subprocess.DEVNULL, cwd=tmp_path)  # fmt: skip
    try:
        fake.order(start(log="/dev/null/x"))
        fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
        assert p.wait(30) == 0
    finally:
        p.kill()
        p.wait()
        os.close(reader)
        os.close(writer)
    wait_until(lambda: rows(tmp_path / "out"), "what was written")


@pytest.mark.parametrize("what", ["nothing", "monitor", "orders"])
def test_forks(fake, run, what):
    p = run("forks", 4)
    fake.only = p.pid
    if what != "nothing":
        fake.order(start("Kernel,Marker,AclAPI,RuntimeAPI"), becomes=RUNNING)
    end = time.monotonic() + 2.5
    while what == "orders" and time.monotonic() < end:
        fake.orders += [STOP, start()]
        fake.poke(p.pid)
        pause(0.05, "the pace of the requests")
    status, out, err = finish(p, 90)
    assert status == 0, out + err


def test_exits_of_many_threads(fake, run, tmp_path):
    for after in (3.0, 3.4):
        p = run("exits", after)
        log = tmp_path / str(p.pid)
        fake.order(start(log=log), becomes=RUNNING, pid=p.pid)
        status, _, err = finish(p, 30)
        assert status == 7, (status, err)
        # whoever of them ends it does not wait for a recorder that is busy
        wait_until(lambda log=log: any(f.stat().st_size for f in log.glob("*.jsonl")), "what was written")


def test_exit_during_orders(fake, run, tmp_path):
    for i in range(6):
        p = run("exits", 0.1 * i)
        fake.orders += [start(log=tmp_path / "out"), STOP] * 3
        wait_until(lambda: fake.clients and fake.clients[-1][0] == p.pid or p.poll() is not None)
        while p.poll() is None:
            fake.poke()
            pause(0.01, "the pace of the requests")
        fake.orders.clear()
        status, _, err = finish(p, 30)
        assert status == 7, (status, err)


def test_signals_are_the_jobs(fake, run):
    p = run("signals", 4)
    fake.order(start(), becomes=RUNNING)
    status, out, err = finish(p)
    assert (status, err) == (0, ""), out + err


def test_exec_ends_the_window(fake, run, place, tmp_path):
    p = run("exec", 4)
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    comm = pathlib.Path(f"/proc/{p.pid}/comm")
    wait_until(lambda: comm.read_text() == "sleep\n", "exec")
    ended = lambda: rows(tmp_path / "out")[-1:] and rows(tmp_path / "out")[-1]["kind"]
    wait_until(lambda: ended() == "rank_device_map", "the end of the file")
    wait_until(lambda: not recorders(place), "the recorder to leave")
    assert p.poll() is None


def test_daemonized(fake, run, place, tmp_path):
    p = run("daemonize", stdin=subprocess.PIPE)
    fake.order(start(log=tmp_path / "first"), becomes=RUNNING)
    fake.order(STOP, becomes=IDLE)
    p.stdin.write("now\n")
    p.stdin.flush()
    p.wait(20)
    wait_until(lambda: not recorders(place), "its recorder to leave")
    assert p.stdout.readline() == "ready\n"
    took = float(p.stdout.readline().split()[1])
    assert took < 2, took  # it does not wait for one
    pid = wait_until(lambda: {c[0] for c in fake.clients} - {p.pid}, "the child").pop()
    try:
        fake.order(start(log=tmp_path / "second"), becomes=RUNNING, pid=pid)
        wait_until(lambda: rows(tmp_path / "second"), "what it does")
        fake.order(STOP, becomes=IDLE, pid=pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_memory_is_recorded_beside_it(build, fake, place, tmp_path):
    """msmemscope and the monitor in one process: the same rows, and activities beside them."""

    def rows_of(name, guest):
        out = tmp_path / name
        out.mkdir()
        p = subprocess.Popen(
            [
                *(build / "bin" / "msmemscope", "--events=alloc,free", f"--output={out}", "--"),
                *(build / "sim" / "simtrain", "--quiet", "--steps", "60", "--step-ms", "80"),
            ],
            env=environment(build, fake, guest=guest, SONDE_MONITOR_DIR=place),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=out,
        )
        if guest:
            fake.order(start("Kernel", log=tmp_path / "activities"), becomes=RUNNING)
        assert p.wait(60) == 0
        counts = collections.Counter()
        for path in out.glob("**/*.csv"):
            with open(path) as f:
                counts.update((r["Event"], r["Event Type"]) for r in csv.DictReader(f))
        return counts

    plain = rows_of("plain", False)
    assert plain[("MALLOC", "PTA")] > 100
    assert rows_of("monitored", True) == plain
    wait_until(lambda: rows(tmp_path / "activities"), "what was written")
    assert not list(place.iterdir())  # its recorder is the one that is there
