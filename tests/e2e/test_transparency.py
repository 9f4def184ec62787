# SPDX-License-Identifier: MulanPSL-2.0
"""A recorded job behaves as it does without us: output, status, signals, what it sees."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from waiting import wait_until


def same(record, *words, env=None, closing=None, **kw):
    """`closing`: what follows on stderr, as a format with the recording's place."""
    plain = record.plain(*words, env=env, **kw)
    out, got = record.raw(*words, env=env, **kw)
    last = b""
    if closing:
        (place,) = out.glob("recording_*")
        last = closing.format(place).encode()
    assert (got.returncode, got.stdout, got.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr + last,
    )
    return record.read(out, got)


@pytest.mark.parametrize(
    "how, status",
    [
        ("exit", 3),
        ("segv", -signal.SIGSEGV),
        ("abort", -signal.SIGABRT),
        ("kill", -signal.SIGKILL),
    ],
)
@pytest.mark.parametrize("form", ["csv", "db"])
def test_ends(record, how, status, form):
    words = ["simtrain", "--steps", 5, "--fault", f"crash:{how}", "--fault-step", 3]
    plain = record.plain(*words)
    out, result = record.raw(*words, opts=[f"--format={form}"])
    assert (result.returncode, result.stdout, result.stderr) == (
        status,
        plain.stdout,
        plain.stderr,
    )
    got = record.read(out, result)
    # What had no time to be freed ends with the process.
    assert [r for r in got.of("FREE") if "shadow" in r.attr]
    assert len(got.of("MSTX", type="Range_start")) == 3


def test_normal_end(record):
    assert same(record, "simtrain", "--steps", 3, "--threads", 2).rows


def test_terminated_from_outside(record):
    def run(command):
        job = subprocess.Popen(
            command, env=record.env(), cwd=record.tmp, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        job.stdout.readline()  # it is running
        first = job.stdout.readline()
        job.send_signal(signal.SIGTERM)
        rest = job.communicate(timeout=30)
        return first, job.returncode, rest[1]

    words = ["simtrain", "--steps", 100000, "--step-ms", 5]
    plain = run([record.program(words[0]), *map(str, words[1:])])
    out, command = record.start(*words)
    assert run(command) == plain
    result = subprocess.CompletedProcess(command, plain[1], b"", b"")
    got = record.read(out, result)
    assert got.of("MALLOC") and got.of("MSTX")


def test_stdin_and_pipes(record):
    same(record, "cat", input=b"some\0bytes\n" * 1000)
    train = record.program("simtrain")
    same(record, "bash", "-c", f"echo 5 | (read n; {train} --steps $n --quiet) | tr a-z A-Z")
    same(record, "bash", "-c", f"{train} --steps 100000 | head -c 10; exit ${{PIPESTATUS[0]}}")
    same(record, "bash", "-c", "exec 3>&1; echo to three >&3; exit 7")
    same(record, "bash", "-c", "kill -USR1 $$")


def test_nobody_holds_the_pipe(record):
    """The recorder must not keep the job's stdout open: its reader ends with the job."""
    out, command = record.start("bash", "-c", f"{record.program('simtrain')} --quiet & exec true")
    t = time.monotonic()
    r = subprocess.run(command, env=record.env(), capture_output=True, timeout=30, cwd=record.tmp)
    assert r.returncode == 0 and time.monotonic() - t < 10
    (recording,) = out.glob("recording_*")


@pytest.mark.parametrize("what", ["alloc", "nothing"])
def test_what_a_process_sees_of_itself(record, what):
    me = {"PARENT": os.getpid(), "GROUP": os.getpgid(0), "SID": os.getsid(0)}
    with open("/dev/null") as extra:
        same(record, "self", what, env=me, pass_fds=[extra.fileno()], stdin=subprocess.DEVNULL)


def test_ignored_children(record):
    """With SIGCHLD ignored, as some daemons start their jobs, there is nothing to wait for."""
    me = {"PARENT": os.getpid(), "GROUP": os.getpgid(0), "SID": os.getsid(0)}
    ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # noqa: E731
    # Not through the script: a shell makes SIGCHLD the default.
    record.msmemscope = (str(record.build / "bin" / "sonde"), "mem", "record", "--format=csv")
    closing = "[msmemscope] Info: 2 events recorded, none lost; read them with: sonde mem show {}\n"
    got = same(record, "self", "alloc", env=me, closing=closing, preexec_fn=ignore)
    assert b"signal 17 ignored" in got.stdout


def test_blocked_signals(record):
    me = {"PARENT": os.getpid(), "GROUP": os.getpgid(0), "SID": os.getsid(0)}
    block = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # noqa: E731
    got = same(record, "self", "alloc", env=me, preexec_fn=block)
    assert b"signal 15 ? 1" in got.stdout


def test_no_variable_but_ours(record):
    plain = record.plain("env").stdout.splitlines()
    out, got = record.raw("env")
    extra = {line.split(b"=")[0] for line in set(got.stdout.splitlines()) - set(plain)}
    extra -= {b"PWD"}  # set by /bin/sh, which runs the script
    assert extra == {b"ASAN_OPTIONS", b"LD_PRELOAD", b"SONDE_SESSION", b"MSMEMSCOPE_CONFIG_PATH"}


# --- on a terminal ---


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command, record):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(record.tmp)
            os.execve(command[0], command, record.env(TERM="dumb"))
        self.text = b""

    def until(self, what, seconds=20):
        end = time.monotonic() + seconds
        while what not in self.text:
            assert time.monotonic() < end, self.text
            if not self.more():
                break
        assert what in self.text, self.text

    def more(self):
        if not select.select([self.fd], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.text += data
        return bool(data)

    def end(self):

        def ended():
            self.more()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (status,) if pid else None

        (status,) = wait_until(ended, lambda: f"its end: {self.text}", 20)
        return os.waitstatus_to_exitcode(status)


CHILD = (
    "import os,sys,time; print([os.isatty(n) for n in range(3)], os.getpgrp() == os.tcgetpgrp(0),"
    " os.get_terminal_size() is not None, flush=True); line = sys.stdin.readline();"
    " print('got', line.strip(), flush=True); time.sleep(60)"
)


@pytest.mark.parametrize("recorded", [False, True])
def test_terminal(record, recorded):
    words = [sys.executable, "-c", CHILD]
    out, command = record.start(*words)
    t = Terminal(command if recorded else words, record)
    t.until(b"[True, True, True] True True")
    os.write(t.fd, b"hello\n")
    t.until(b"got hello")
    os.write(t.fd, b"\x03")
    t.until(b"KeyboardInterrupt")
    assert t.end() in (-signal.SIGINT, 130)


def test_interrupt_of_a_recorded_job_keeps_its_rows(record):
    out, command = record.start("simtrain", "--steps", 100000, "--step-ms", 5)
    t = Terminal(command, record)
    t.until(b"step 3 ")
    os.write(t.fd, b"\x03")
    assert t.end() == -signal.SIGINT
    got = record.read(out, subprocess.CompletedProcess(command, 0, b"", b""))
    assert len(got.of("MSTX", type="Range_start")) >= 3
