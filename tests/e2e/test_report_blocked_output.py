# SPDX-License-Identifier: MulanPSL-2.0
"""Reports to an output that nobody reads, that is limited or stopped, and reports that are too long."""

import fcntl
import os
import pty
import resource
import select
import socket
import subprocess
import termios
import time

import pytest

from waiting import pause, wait_until

LEAK = ["--quiet", "--steps", 6, "--fault", "leak"]
FOUND = "Detected memory leaks on device 0"


def leaking(hurt):
    return [hurt.build / "sim" / "simtrain", *LEAK]


def report(hurt):
    path = hurt.recording / "report.txt"
    return path.read_text() if path.exists() else ""


def fill(fd):
    """Until not a byte more fits."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except BlockingIOError:
            pass
    fcntl.fcntl(fd, fcntl.F_SETFL, flags)


def full_pipe():
    r, w = os.pipe()
    fill(w)
    return r, w


def full_socket():
    a, b = socket.socketpair()
    fill(b.fileno())
    return a.detach(), b.detach()


@pytest.mark.parametrize("make", [full_pipe, full_socket])
def test_a_reader_that_sleeps_does_not_keep_the_job(hurt, make):
    reader, writer = make()
    job = hurt.start(*leaking(hurt), stderr=writer)
    try:
        out, _ = job.communicate(timeout=20)
    finally:
        os.close(reader)
        os.close(writer)
    assert job.returncode == 0 and b"result" in out
    assert FOUND in report(hurt)


def test_a_reader_that_is_slow_gets_all_of_it(hurt):
    reader, writer = full_pipe()
    job = hurt.start(*leaking(hurt), stderr=writer)
    os.close(writer)
    wait_until(lambda: list(hurt.out.glob("recording_*/report.txt")), "the report", 20, 0.001)
    pause(0.2, "it waits for its reader")
    text = b""
    while piece := os.read(reader, 65536):
        text += piece
    os.close(reader)
    assert job.wait(timeout=20) == 0
    job.stdout.close()
    assert text.lstrip(b"x").decode() == report(hurt)


def test_a_limit_of_file_sizes_does_not_kill_the_job(hurt):
    limit = 64 << 20
    path = hurt.tmp / "stderr"
    with open(path, "wb") as f:
        f.truncate(limit)
        f.seek(limit)
        job = hurt.start(
            *leaking(hurt),
            stderr=f,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
        out, _ = job.communicate(timeout=20)
    assert job.returncode == 0 and b"result" in out
    assert FOUND in report(hurt)


def terminal(hurt, *words, opts=(), more=b"", **kw):
    """A job on a terminal of its own; the leader's end, its own end and the job."""
    leader, follower = pty.openpty()
    kw = {"stdin": follower, "stdout": follower, "stderr": follower, **kw}
    job = hurt.start(*words, opts=opts, start_new_session=True, **kw)
    return leader, follower, job


def read_for(fd, word, seconds=10):
    text, end = b"", time.monotonic() + seconds
    while word not in text and select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        try:
            text += os.read(fd, 65536)
        except OSError:
            break
    return text


def test_a_stopped_terminal_keeps_nobody(hurt):
    words = [hurt.build / "sim" / "simtrain", *LEAK, "--step-ms", 100]
    leader, follower, job = terminal(hurt, *words, stdout=subprocess.PIPE)
    read_for(leader, b"look at it with")
    termios.tcflow(follower, termios.TCOOFF)
    begin = time.monotonic()
    out, _ = job.communicate(timeout=20)
    assert job.returncode == 0 and b"result" in out
    assert time.monotonic() - begin < 0.6 + 2.5
    hurt.session.wait_finished(seconds=5)
    assert FOUND in report(hurt)
    termios.tcflow(follower, termios.TCOON)
    os.close(follower)
    os.close(leader)


def test_stdout_on_a_terminal_and_stderr_elsewhere(hurt):
    leader, follower, job = terminal(
        hurt, *leaking(hurt), opts=["--report=stdout"], stderr=subprocess.PIPE
    )
    _, err = job.communicate(timeout=20)
    os.close(follower)
    text = read_for(leader, b"nothing that ever comes", seconds=1)
    os.close(leader)
    assert FOUND.encode() in text and err == b""


def test_what_goes_wrong_after_the_first_process(hurt):
    """On a terminal it is told when it is known."""
    job = f"{hurt.build}/sim/simtrain --quiet --steps 14 --fault leak --fault-step 8 --step-ms 50"
    leader, follower, job = terminal(hurt, "bash", "-c", f"trap '' HUP; {job} & sleep 0.2; exit 5")
    assert job.wait(timeout=20) == 5
    text = read_for(leader, b"events recorded, none lost; read")
    os.close(follower)
    os.close(leader)
    assert text.count(FOUND.encode()) == 1, text


def test_a_thousand_processes_have_a_short_report(hurt):
    r = hurt.run(hurt.target("leaky_family"), 1000, 20, opts=["--report=stderr"])
    assert (r.returncode, r.stdout) == (0, b"done\n")
    hurt.session.wait_finished()
    text = report(hurt)
    assert 1000 < len(text) < 5 * (33 << 10)
    assert "more lines, see `sonde mem leaks`." in text
    assert all(len(line) < 400 for line in text.splitlines())
    assert r.stderr.decode() in text or r.stderr.endswith(b"`.\n")
