# SPDX-License-Identifier: MulanPSL-2.0
"""Whatever kills the job, the recorder or both: every event that the job counted is there, once."""

import os
import random
import signal
import subprocess
import sys

import pytest

from harness import FINISHED, SOAK, counted, wait_gone
from waiting import pause

TRIES = 100 if SOAK else 20
soak = pytest.mark.needs("soak")


def kill_at_random(h, random_ms=60):
    """In the steady state: some events are through, then any moment of the next ones."""
    h.wait_counted(100)
    pause(random.random() * random_ms / 1000, "any moment")


@pytest.mark.soak
@pytest.mark.deadline(600)
def test_kill_9_at_any_moment(hurts):
    random.seed(os.getpid())
    for i in range(TRIES):
        threads = 1 + i % 4
        h = hurts()
        h.start(*h.steady(threads=threads, pace=100 if i % 3 else 500))
        kill_at_random(h)
        h.job.kill()
        assert h.job.wait() == -signal.SIGKILL
        h.session.wait_finished()
        h.check_exact(threads)
        if i % 5 == 0:
            assert h.lost == 0
            h.processes()


@pytest.mark.parametrize(
    "how,status",
    [
        ("segv", -signal.SIGSEGV),
        ("abort", -signal.SIGABRT),
        ("kill", -signal.SIGKILL),
        ("_exit", 5),
        ("quick_exit", 6),
        ("exit", 7),
        ("thread-exit", 7),
    ],
)
@pytest.mark.parametrize("threads", [1, 4])
def test_the_job_ends_itself(hurts, how, status, threads):
    """`exit` with other threads at work: they go on allocating until the process is gone."""
    if how == "thread-exit" and threads == 1:
        threads = 2
    for _ in range(5 if SOAK else 2):
        h = hurts()
        h.start(*h.steady(threads=threads, events=4000, how=how))
        assert h.job.wait() == status
        h.session.wait_finished()
        h.check_exact(threads)
    assert h.lost == 0
    if threads == 1:
        h.processes()


def test_files_are_complete_when_the_job_has_returned(hurts):
    """Nobody has to wait for the recorder after an ordinary end."""
    for threads in (1, 4):
        h = hurts()
        r = h.run(*h.steady(threads=threads, events=2000, how="leak"))
        assert (r.returncode, r.stdout) == (0, b"done\n")
        assert h.session.state == FINISHED
        assert h.rows() == h.counted
        assert h.lost == 0


def test_killed_with_its_parent(hurts):
    h = hurts()
    command = h.command(*h.steady(threads=2, pace=100, how="orphan"))
    code = f"import subprocess, time; subprocess.Popen({command!r}); time.sleep(60)"
    h.job = subprocess.Popen([sys.executable, "-c", code], cwd=h.tmp, env=h.env())
    kill_at_random(h)
    h.job.kill()
    h.job.wait()
    h.session.wait_finished()
    h.check_exact(2)


def kill_both(h):
    """Job and recorder stop, then both die: neither sees the other's end."""
    pids = [h.job.pid, h.session.recorder]
    random.shuffle(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    h.job.wait()
    wait_gone(h.session.recorder)


def check_recovered(h, threads):
    before = h.counted
    h.recover()
    h.check_exact(threads)
    files = {p: p.read_bytes() for p in h.out.glob("**/*") if p.is_file() and p.name != "session"}
    assert "nothing to recover" in h.recover()
    again = {p: p.read_bytes() for p in h.out.glob("**/*") if p.is_file() and p.name != "session"}
    assert files == again
    assert h.counted == before and h.lost == 0
    assert h.session.state == FINISHED


@pytest.mark.soak
@pytest.mark.deadline(900)
def test_job_and_recorder_killed_together(hurts):
    for i in range(TRIES):
        threads = 1 + i % 4
        h = hurts()
        h.start(*h.steady(threads=threads, pace=(50, 1000, 0)[i % 3]))
        kill_at_random(h, 40)
        kill_both(h)
        check_recovered(h, threads)


@pytest.mark.parametrize("form", ["csv", "db"])
def test_recovered_files_are_whole(hurts, form):
    h = hurts()
    h.start(*h.steady(threads=3, pace=100), opts=[f"--format={form}", "--call-stack=c:8"])
    kill_at_random(h)
    kill_both(h)
    h.recover()
    h.check_exact(3, h.rows())
    assert h.lost == 0


@pytest.mark.soak
@pytest.mark.deadline(900)
def test_recorder_killed_while_it_writes(hurts):
    """Under full load; the job goes on, ends by itself, and what is in its buffers comes back."""
    for i in range(TRIES // 2):
        threads = 1 + i % 3
        h = hurts()
        h.start(*h.steady(threads=threads, events=150000 if SOAK else 30000))
        h.wait_counted(100)
        pause(random.random() * 0.05, "any moment")
        h.session.kill_recorder()
        out, err = h.job.communicate(timeout=30)
        assert (h.job.returncode, out, err) == (0, b"done\n", b"")
        h.show()  # readable up to there
        h.recover()
        assert h.fast_rows() + h.lost == h.counted
        assert "nothing to recover" in h.recover()


def test_recover_waits_for_its_turn(hurts):
    """Neither a recorder at work nor a job that still writes is disturbed."""
    h = hurts()
    h.start(*h.steady(threads=1, pace=100))
    h.wait_counted(100)
    r = h.sonde("mem", "recover", h.recording)
    assert r.returncode == 1 and "still at work" in r.stderr
    h.session.kill_recorder()
    r = h.sonde("mem", "recover", h.recording)
    assert r.returncode == 1 and f"process {h.job.pid} of the job is still running" in r.stderr
    h.job.kill()
    h.job.wait()
    check_recovered(h, 1)


def test_a_recovery_that_was_killed_is_done_again(hurts):
    h = hurts()
    h.start(*h.steady(threads=2))
    h.wait_counted(400000)
    kill_both(h)
    for _ in range(10):
        p = subprocess.Popen(
            [h.build / "bin" / "sonde", "mem", "recover", h.recording],
            stdout=subprocess.DEVNULL,
            env=h.env(),
        )
        pause(random.random() * 0.1, "any moment")
        p.kill()
        p.wait()
    h.sonde("mem", "recover", h.recording)
    h.check_exact(2)


def test_recovery_after_exec(hurts):
    """Arenas of former images are read too, each once."""
    h = hurts()
    h.start(h.target("chain"), h.count_file, 7, 300, "stay")
    h.wait_counted(7 * 600)
    pause(0.02, "the recorder reads some of it")
    kill_both(h)
    h.recover()
    h.check_exact(1)
    assert sum(1 for p in h.processes() if p.pid == h.job.pid) == 7


def test_recovery_of_images_that_no_recorder_saw(hurts):
    """The recorder is gone when a child becomes other programs; the first process is read up to there."""
    h = hurts()
    chained = h.tmp / "chained"
    steady = " ".join(map(str, h.steady(pace=50)))
    chain = f"{h.target('chain')} {chained} 3 100 leave"
    script = f"{steady} & read go; {chain}; kill -9 $!; wait"
    h.start("sh", "-c", script, stdin=subprocess.PIPE)
    h.wait_counted(200)
    h.session.kill_recorder()
    h.job.communicate(b"go\n", timeout=30)
    h.recover()
    made = h.counted + counted(chained)
    assert counted(chained) == 3 * 200 and made <= h.fast_rows() <= made + 1
    assert h.lost == 0
