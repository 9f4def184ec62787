# SPDX-License-Identifier: MulanPSL-2.0
"""The report of the analyses when a job ends: where it goes, and whom it leaves alone."""

import os
import pty
import subprocess
import sys

import pytest

LEAK = ["simtrain", "--quiet", "--steps", 6, "--fault", "leak"]
CLEAN = ["simtrain", "--quiet", "--steps", 4]
FOUND = b"====== ERROR: Detected memory leaks on device 0 ======\n"
GAPS = b"======= Pytorch Caching memory pool Gap Analysis of Device 0 =======\n"


def run(record, *words, opts=(), **kw):
    plain = record.plain(*words)
    out, got = record.raw(*words, opts=opts, **kw)
    assert got.returncode == plain.returncode
    (recording,) = out.glob("recording_*")
    report = recording / "report.txt"
    return plain, got, report.read_bytes() if report.exists() else b""


def test_a_finding_goes_to_stderr(record):
    plain, got, report = run(record, *LEAK)
    assert got.stdout == plain.stdout
    assert FOUND in got.stderr and GAPS not in got.stderr, "uneven because of the leak"
    assert got.stderr == report
    assert b"\x1b" not in got.stderr


def test_nothing_found_nothing_said(record):
    plain, got, report = run(record, *CLEAN)
    assert (got.stdout, got.stderr) == (plain.stdout, plain.stderr)
    assert GAPS in report and FOUND not in report


def test_asked_for_it_is_always_told(record):
    _, got, report = run(record, *CLEAN, opts=["--report=stderr"])
    assert GAPS in got.stderr and got.stderr == report


@pytest.mark.parametrize("opts", [["--report=stdout"], ["--compat=26.0"]])
def test_stdout_for_scripts_that_read_it_there(record, opts):
    plain, got, report = run(record, *LEAK, opts=opts)
    assert got.stderr == plain.stderr
    assert sorted((plain.stdout + report).splitlines()) == sorted(got.stdout.splitlines())
    assert (GAPS in report) == (opts == ["--compat=26.0"])


@pytest.mark.parametrize("opts", [["--report=off"], ["--analysis=none"]])
def test_off(record, opts):
    plain, got, _ = run(record, *LEAK, opts=opts)
    assert (got.stdout, got.stderr) == (plain.stdout, plain.stderr)


def test_a_script_passes_it_on(record):
    script = f"{record.program('simtrain')} --quiet --steps 6 --fault leak; exit 7"
    out, got = record.raw("bash", "-c", script)
    assert got.returncode == 7
    assert FOUND in got.stderr


def test_a_reader_that_is_gone_does_not_kill_the_job(record):
    out, command = record.start(*LEAK)
    r, w = os.pipe()
    os.close(r)
    job = subprocess.Popen(
        command, env=record.env(), stdout=subprocess.PIPE, stderr=w, cwd=record.tmp
    )
    os.close(w)
    stdout, _ = job.communicate(timeout=60)
    assert job.returncode == 0
    assert b"result" in stdout


@pytest.mark.parametrize("other", [True, False])
def test_a_reused_descriptor_is_left_alone(record, tmp_path, other):
    data = tmp_path / "data"
    out, got = record.raw("stderr_reused", data if other else "-")
    assert (got.returncode, got.stdout, got.stderr) == (0, b"done\n", b"")
    (recording,) = out.glob("recording_*")
    assert FOUND in (recording / "report.txt").read_bytes()
    if other:
        assert data.read_bytes() == b""


def read_all(fd):
    text = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            return text
        if not piece:
            return text
        text += piece


def test_on_a_terminal_a_killed_job_has_its_report_too(record):
    out, command = record.start(*CLEAN, "--fault", "crash:kill", "--fault-step", 3)
    code = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode == -9)"
    leader, follower = pty.openpty()
    job = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        env=record.env(TERM="xterm"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=record.tmp,
        start_new_session=True,
    )
    os.close(follower)
    text = read_all(leader)
    assert job.wait(timeout=60) == 1
    os.close(leader)
    assert b"Not given back to the driver at exit" in text
