# SPDX-License-Identifier: MulanPSL-2.0
"""Jobs under seccomp filters, limits, signal masks and on shared volumes are recorded all the same."""

import resource
import subprocess
import sys

import pytest

from harness import Hurt, counted
from recording import clean_env

root = pytest.mark.needs("root")


def test_a_filter_that_forbids_almost_everything(hurt):
    plain = hurt.plain(hurt.target("filtered"), "allow")
    r = hurt.run(hurt.target("filtered"), "allow")
    assert (r.returncode, r.stdout, r.stderr) == (3, plain.stdout, plain.stderr)


def test_first_event_in_a_vfork_child_without_kcmp(hurt):
    r = hurt.run(hurt.target("filtered"), "kcmp", hurt.count_file)
    assert r.returncode == 0, r
    hurt.session.wait_finished()
    assert hurt.counted == 2 * 1003
    assert hurt.rows() == hurt.counted and hurt.lost == 0


def test_a_recorder_short_of_descriptors(hurt):
    """What cannot be opened now is not dead."""

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    r = hurt.run(hurt.target("storm"), hurt.count_file, "forks", 4, 15, preexec_fn=few)
    assert r.returncode == 0, r
    hurt.session.wait_finished()
    assert hurt.records == hurt.counted and hurt.lost == 0


def test_limited_address_space_stays_the_jobs(hurt):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    r = hurt.run(*hurt.steady(threads=1, events=2000), preexec_fn=limit)
    assert r.returncode == 0, r
    hurt.session.wait_finished()
    assert hurt.rows() == hurt.counted and hurt.lost == 0


@root
def test_a_umask_that_takes_everything(users):
    """As a user who is not root, whom the mask really stops."""
    hurt = Hurt(users.build, users.alice.home)
    users.alice.do(hurt.count_file.touch)
    job = f"umask 0777; exec {hurt.target('steady')} {hurt.count_file} 1 500 0 return"
    r = users.alice.run(*hurt.command("sh", "-c", job))
    assert r.returncode == 0, r
    hurt.session.wait_finished()
    assert hurt.fast_rows() == hurt.counted > 0


@root
def test_two_recordings_with_the_same_pid_and_second(build, tmp_path):
    """Containers that share a volume: each process is number 1 there."""
    env = clean_env(tmp_path)
    jobs = []
    for i in range(3):
        job = [build / "targets/steady", tmp_path / f"c{i}", "1", "400", "0", "return"]
        cmd = ["unshare", "-p", "-f", "--mount-proc", build / "bin/msmemscope"]
        cmd += ["--output-path", tmp_path / "out", "--"] + job
        jobs.append(subprocess.Popen(cmd, env=env))
    assert [j.wait(60) for j in jobs] == [0, 0, 0]
    rows = 0
    for dump in (tmp_path / "out").glob("msmemscope_*/device_0/dump/*.csv"):
        text = dump.read_text().splitlines()
        assert sum(line.startswith("ID,") for line in text) == 1
        rows += sum(",MALLOC," in line or ",FREE," in line for line in text)
    counts = sum(counted(tmp_path / f"c{i}") for i in range(3))
    assert rows == counts > 0


def test_an_output_path_longer_than_the_libraries_can_hold(build, tmp_path):
    deep = tmp_path
    while len(str(deep)) < 950:
        deep = deep / ("d" * 100)
    r = subprocess.run(
        [build / "bin/msmemscope", "-o", deep, "--", "true"], capture_output=True, text=True
    )
    assert r.returncode == 1 and "at most 900" in r.stderr


@pytest.mark.parametrize("what", ["heap", "driver", "fork", "beside", "thread"])
def test_signal_handlers_on_a_stack_of_4_kib(hurt, what):
    """Less than a call stack needs is left there: events go without one, and the last line says so."""
    job = [hurt.target("small_stack"), what]
    plain = hurt.plain(*job)
    r = hurt.run(*job, opts=["--device=npu,cpu", "--call-stack=c:50,python:50"])
    said = r.stderr[len(plain.stderr) :]  # the loss below, and nothing else
    assert (r.returncode, r.stdout, r.stderr) == (3, plain.stdout, plain.stderr + said)
    assert said.count(b"\n") == 1 and (b" 23980 lost;" in said) == (what == "fork"), said
    assert what == "fork" or (b"none lost; 24000 of them without their call stacks" in said), said
    hurt.session.wait_finished()
    lost = hurt.show()["lost"]
    assert lost["stacks"] == 24000 and hurt.records >= 24000
    # What a child does there before it has joined is lost; once outside, it joins.
    assert lost["events"] == (2 * (12000 - 10) if what == "fork" else 0)


@pytest.mark.parametrize("how", ["unmap", "protect", "advise", "replace"])
def test_a_job_that_takes_our_memory_away(hurt, how):
    """As checkpointers do with what they do not know."""
    job = [hurt.target("unmaps"), how]
    plain = hurt.plain(*job)
    r = hurt.run(*job, opts=["--device=npu,cpu", "--call-stack=c:10"])
    assert (r.returncode, r.stdout, r.stderr) == (3, plain.stdout, plain.stderr)
    hurt.session.wait_finished()
    show = hurt.show()
    assert show["lost"]["events"] == 0
    if how == "replace":
        mapped = "mapped memory of its own over sonde's buffers"
        assert any(mapped in note for note in show["notes"]), show["notes"]
        assert 10000 <= hurt.records < 30000
    else:
        assert hurt.records >= 30000 and not show["notes"]


def test_mpi_finds_the_c_library(hurt):
    """Libraries that patch munmap() look it up: what the C library calls itself must be that."""
    code = (
        "import ctypes, ctypes.util\n"
        "own, c = ctypes.CDLL(None), ctypes.CDLL('libc.so.6')\n"
        "at = lambda lib, n: ctypes.cast(getattr(lib, n), ctypes.c_void_p).value\n"
        "print([n for n in ('munmap', 'mmap', 'mremap', 'madvise') if at(own, n) != at(c, n)])\n"
    )
    r = hurt.run(sys.executable, "-c", code)
    assert (r.returncode, r.stdout) == (0, b"[]\n"), r
