# SPDX-License-Identifier: MulanPSL-2.0
"""Threads, forks, execs, signals, loading and the end: the job never notices, nothing is lost."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from capabilities import needs
from harness import FINISHED, SOAK, Hurt
from waiting import wait_until

root = pytest.mark.needs("root")


def recorded_like_plain(h, *words, opts=(), **kw):
    """Runs it without and with us; same output and status, rows as many as the job counted."""
    plain = h.plain(*words, **kw)
    h.count_file.unlink(missing_ok=True)
    r = h.run(*words, opts=opts, **kw)
    assert (r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert r.returncode == 0, r
    h.session.wait_finished()
    return r


# --- threads and processes ---


@pytest.mark.soak
@pytest.mark.parametrize("total,at_once", [(10000, 20), (2000, 200)])
def test_threads_come_and_go(hurt, total, at_once):
    recorded_like_plain(hurt, hurt.target("storm"), hurt.count_file, "threads", total, at_once)
    assert hurt.counted == 4 * total
    assert hurt.fast_rows() == hurt.counted and hurt.lost == 0


@pytest.mark.soak
def test_fork_storm(hurt):
    """Several threads fork at once; children record or not, fork again, exec, leave by _exit."""
    threads, each = (8, 100) if SOAK else (4, 25)
    recorded_like_plain(hurt, hurt.target("storm"), hurt.count_file, "forks", threads, each)
    assert hurt.fast_rows() == hurt.counted and hurt.lost == 0
    assert not list(hurt.recording.glob("*.ring"))
    assert hurt.session.unrecorded == 0
    hurt.processes()


def test_exec_under_the_same_pid(hurt):
    recorded_like_plain(hurt, hurt.target("chain"), hurt.count_file, 12, 50, "return")
    assert hurt.counted == 12 * 100
    assert hurt.rows() == hurt.counted and hurt.lost == 0
    processes = hurt.processes()
    assert len(processes) == 12 and len({p.pid for p in processes}) == 1


@pytest.mark.parametrize("way", ["vfork", "vfork-first", "spawn", "clone-vm", "clone-first"])
def test_children_of_every_kind(hurt, way):
    recorded_like_plain(hurt, hurt.target("spawned"), hurt.count_file, way)
    assert hurt.rows() == hurt.counted and hurt.lost == 0


def test_a_daemon_outlives_the_job(hurt):
    """Its first event comes after the recorder has left: another one goes on where it stopped."""
    r = hurt.run(hurt.target("spawned"), hurt.count_file, "daemon")
    assert (r.returncode, r.stdout) == (0, b"spawned\n")
    hurt.session.wait_finished()
    first, before = hurt.session.recorder, hurt.counted
    assert hurt.rows() == before == 400
    pathlib.Path(f"{hurt.count_file}.go").touch()
    hurt.wait_counted(before + 400)
    second = lambda: hurt.session.recorder != first and hurt.session.state == FINISHED
    wait_until(second, "the second recorder to finish", 10)
    assert hurt.rows() == hurt.counted == before + 400
    assert len(hurt.processes()) == 2
    assert hurt.show()["counts"]["mallocs"] == (before + 400) // 2


# --- signals ---


@pytest.mark.soak
@pytest.mark.parametrize("how", ["plain", "altstack", "nested", "jump"])
def test_signal_handlers_allocate_too(hurt, how):
    """A thousand times a second, inside our hooks as well. What cannot be kept is counted."""
    ms = 1500 if SOAK else 150
    r = hurt.run(hurt.target("signals"), hurt.count_file, how, ms)
    assert (r.returncode, r.stdout) == (0, b"signals\n")
    rows, lost = hurt.fast_rows(), hurt.lost
    said = r.stderr.decode().splitlines()
    assert len(said) == (lost > 0) and all(f" {lost:,} lost;" in line for line in said), (said, lost)
    # Not by rows: where an allocation was lost there is none for its free, which was kept.
    assert hurt.records + lost >= hurt.counted, (hurt.records, rows, lost)
    assert hurt.records - lost <= rows <= hurt.records
    assert hurt.show()["lost"]["damaged_bytes"] == 0
    if how in ("plain", "altstack"):
        assert (rows, lost) == (hurt.counted, 0)
    # A jump out of a hook costs events around it, not those of the rest of the job.
    assert lost < 2 * ms


# --- loading and the end ---


def test_before_main_and_after_it(hurt):
    recorded_like_plain(hurt, hurt.target("late"), hurt.count_file)
    assert hurt.rows() == hurt.counted and hurt.lost == 0
    (only,) = hurt.processes()
    assert not [r for r in only.rows if "shadow" in r.attr], "what was freed late was seen"


def test_a_driver_opened_privately(hurt):
    """dlopen(RTLD_LOCAL), dlclose, again: by a program that is not linked with it."""
    library = hurt.build / "sim" / "libascend_hal.so"
    recorded_like_plain(hurt, hurt.target("plugin"), hurt.count_file, library)
    assert hurt.rows() == hurt.counted == 600


def test_the_environment_recipe(hurt, build):
    """No launcher: the first event starts the recorder, which is nobody's child."""
    libs = ":".join(str(p) for p in sorted((build / "lib").glob("lib*hook.so")) if "host" not in p.name)
    cwd = hurt.tmp / "here"
    cwd.mkdir()
    config = cwd / "config.json"
    words = [hurt.target("spawned"), hurt.count_file, "spawn"]
    plain = hurt.plain(*words)
    hurt.count_file.unlink()
    r = hurt.plain(*words, env={"LD_PRELOAD": libs}, cwd=cwd)
    assert (r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    hurt.out = cwd / "memscopeDumpResults"
    hurt.session.wait_finished()
    assert not config.exists()
    shown = hurt.show()
    assert shown["lost"]["events"] == 0  # it collects only once it is asked to


# --- what the job inherits ---


def surroundings(h, shell=True, **kw):
    """shell=False: not by bin/msmemscope, whose sh takes SIGCHLD for itself."""
    plain = h.plain(h.target("surroundings"), **kw)
    if shell:
        r = h.run(h.target("surroundings"), **kw)
    else:
        words = ["msmemscope", f"--output-path={h.out}", "--", h.target("surroundings")]
        r = h.plain(h.build / "bin" / "sonde", *words, **kw)
    assert r.stdout.decode() == plain.stdout.decode()
    assert (r.returncode, r.stderr) == (plain.returncode, plain.stderr)
    return r.stdout.decode()


def test_inherited_as_without_us(hurt):
    assert "children none" in surroundings(hurt)


def test_inherited_signals(hurt):
    def prepare():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGUSR1, signal.SIGRTMIN])

    text = surroundings(hurt, shell=False, preexec_fn=prepare)
    assert f"signal {signal.SIGCHLD:d} ignored blocked\n" in text


def test_inherited_blocked_sigchld(hurt):
    """Starting the recorder leaves no SIGCHLD behind, pending or not."""
    text = surroundings(
        hurt, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    )
    assert f"signal {signal.SIGCHLD:d}  blocked\n" in text


def test_inherited_descriptors_limits_umask(hurt):
    import resource

    def prepare():
        os.umask(0o137)
        resource.setrlimit(resource.RLIMIT_NOFILE, (777, 4096))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(3)
        os.dup2(1, 300)

    text = surroundings(hurt, preexec_fn=prepare, close_fds=False)
    assert "umask 137" in text and "fd 300" in text


def test_no_standard_descriptors(hurt):
    def prepare():
        os.close(0)
        os.close(2)

    h = hurt
    plain = h.plain(*h.steady(events=10), preexec_fn=prepare)
    h.count_file.unlink()
    r = h.run(*h.steady(events=10), preexec_fn=prepare)
    assert (r.returncode, r.stdout) == (plain.returncode, plain.stdout) == (0, b"done\n")
    h.session.wait_finished()
    assert h.rows() == h.counted


def test_a_pipe_ends_with_the_job(hurt):
    """The recorder holds no descriptor of the job, however high its number."""
    read, write = os.pipe()
    os.dup2(write, 4000)

    def prepare():
        os.set_inheritable(4000, True)

    job = hurt.start(*hurt.steady(events=100), pass_fds=[4000], preexec_fn=prepare)
    os.close(write)
    os.close(4000)
    job.communicate(timeout=60)
    os.set_blocking(read, True)
    signal.alarm(5)
    assert os.read(read, 1) == b""
    os.close(read)


def test_file_size_limit(hurt):
    """An arena larger than RLIMIT_FSIZE would earn the job a SIGXFSZ."""
    import resource

    for limit, recorded in ((60 << 20, True), (1 << 20, False)):
        h = Hurt(hurt.build, hurt.tmp, f"out{limit}")

        def prepare():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        r = h.run(*h.steady(events=1000), preexec_fn=prepare)
        said = "[msmemscope] Info: 0 events recorded, none lost; 1 process could not be recorded at all, in "
        said = b"" if recorded else f"{said}{h.session.dir}\n".encode()
        assert (r.returncode, r.stdout, r.stderr) == (0, b"done\n", said)
        h.session.wait_finished()
        assert h.session.unrecorded == (0 if recorded else 1)
        assert (h.rows() if recorded else h.counted) == h.counted


# --- containers ---


@root
def test_the_first_process_of_a_container(hurt):
    """pid 1 adopts orphans: the recorder must not be one that its wait() finds."""
    needs("unshare")
    h = hurt
    r = subprocess.run(
        ["unshare", "-p", "-f", "--mount-proc", *h.command(*h.steady(threads=2, events=3000))],
        cwd=h.tmp,
        env=h.env(),
        capture_output=True,
        timeout=60,
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, b"done\n", b"")
    assert h.session.state == FINISHED
    assert h.rows() == h.counted and h.lost == 0


@root
def test_an_init_that_waits_for_all_its_children(hurt):
    h = hurt
    code = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen({[str(w) for w in h.steady(events=1000)]!r})\n"
        "while True:\n    try: os.wait()\n    except ChildProcessError: break\n"
        "print('all gone', os.getpid(), flush=True)"
    )
    r = subprocess.run(
        ["unshare", "-p", "-f", "--mount-proc", *h.command(sys.executable, "-c", code)],
        cwd=h.tmp,
        env=h.env(),
        capture_output=True,
        timeout=30,
    )
    assert (r.returncode, r.stdout) == (0, b"done\nall gone 1\n"), r
    assert h.session.state == FINISHED
    assert h.rows() == h.counted


@root
def test_a_container_inside_the_job(hurt):
    """Its processes have other numbers than the recorder sees."""
    h = hurt
    r = h.run("unshare", "-p", "-f", "--mount-proc", *h.steady(threads=2, events=20000, pace=100))
    assert (r.returncode, r.stdout, r.stderr) == (0, b"done\n", b"")
    h.session.wait_finished()
    assert h.fast_rows() == h.counted and h.lost == 0
