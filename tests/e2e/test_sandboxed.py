# SPDX-License-Identifier: MulanPSL-2.0
"""Jobs that limit their own system calls (seccomp) live on, and are recorded as far as that goes."""

import os
import subprocess

import pytest

ALL = ["--device=npu,cpu", "--call-stack=c:20"]
JOBS = [
    ("kill", "heap"),
    ("kill", "driver"),
    ("kill", "late"),
    ("kill", "threads"),
    ("kill", "forks"),
    ("trap", "heap"),
    ("trap", "threads"),
    ("errno", "heap"),
    ("seccomp", "driver"),
    ("seccomp", "threads"),
    ("thread", "heap"),
    ("strict", "heap"),
    ("strict", "driver"),
    ("exec", "heap"),
]


def like_plain(h, *words, opts=ALL):
    plain = h.plain(*words)
    r = h.run(*words, opts=opts)
    assert (r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert r.returncode == 3
    h.session.wait_finished()
    return int(r.stdout.split()[2])


@pytest.mark.parametrize("how, what", JOBS)
def test_the_job_lives(hurt, how, what):
    blocks = like_plain(hurt, hurt.target("sandboxed"), how, what)
    show = hurt.show()
    notes = " ".join(show["notes"])
    assert "limited its system calls (seccomp)" in notes
    assert show["lost"]["events"] == 0
    if how == "exec":  # what it allows nobody knows
        assert "1 process could not be recorded at all" in notes and 200 <= hurt.records < 400
    elif what == "forks":
        assert "3 processes could not be recorded at all" in notes
    else:
        assert 2 * blocks <= hurt.records <= 2 * blocks + 300  # a few of other libraries


def test_call_stacks_that_are_known_go_on(hurt):
    like_plain(hurt, hurt.target("sandboxed"), "kill", "heap")
    hurt.session.wait_finished()
    (dump,) = hurt.out.glob("msmemscope_*/device_*/dump/*.csv")
    assert dump.read_text().count("churn") > 30000 and hurt.show()["lost"]["stacks"] < 1000


def test_more_than_there_is_room_for_is_counted(hurt):
    """The recorder stands still: what was made before the filter fills up, and nobody waits."""
    job = hurt.start(hurt.target("sandboxed"), "kill", "fill", opts=["--device=npu,cpu"])
    out = job.communicate(timeout=60)
    assert (job.returncode, out[1]) == (3, b"")
    blocks = int(out[0].split()[2])
    hurt.session.wait_finished()
    lost = hurt.lost
    assert 0 < lost < 2 * blocks
    assert hurt.records + lost >= 2 * blocks and hurt.records > 100000


@pytest.mark.parametrize("how", ["kill", "trap", "seccomp"])
def test_under_the_monitor(build, tmp_path, how):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SIM_NPU_STATE": str(tmp_path / "npu")}
    job = [build / "targets/sandboxed", how, "device"]
    plain = subprocess.run(job, env=env, capture_output=True, timeout=60)
    words = [build / "bin/sonde", "monitor", "--quiet", "--", *job]
    r = subprocess.run(words, env=env, capture_output=True, timeout=60)
    assert (r.returncode, r.stdout) == (plain.returncode, plain.stdout) == (3, plain.stdout)
    assert r.stderr == b"[msmonitor] the job limits its system calls (seccomp): it is not monitored any more\n"


def test_a_filter_that_was_refused_changes_nothing(hurt):
    """Programs ask in this way whether there are filters."""
    blocks = like_plain(hurt, hurt.target("sandboxed"), "refused", "forks")
    show = hurt.show()
    assert not any("seccomp" in n for n in show["notes"]) and show["lost"]["events"] == 0
    assert hurt.records >= 2 * (blocks - 21 + 3000)  # its three children end with 7 each
