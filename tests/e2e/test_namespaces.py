# SPDX-License-Identifier: MulanPSL-2.0
"""Jobs in namespaces of their own: every event is recorded, and every recorder ends.

A process has other numbers, start times and clocks there than its recorder sees, and /proc may be
that of somebody else."""

import os
import pathlib
import signal
import subprocess

import pytest
from capabilities import can_unshare, lacks
from harness import FINISHED, LIVE, counted
from waiting import pause, wait_until

pytestmark = [pytest.mark.needs("root"), pytest.mark.needs("unshare")]

WRAPS = {
    "boot time": ["-T", "--boottime", "100000", "--fork"],
    "monotonic time": ["-T", "--monotonic", "100000", "--fork"],
    "outer proc": ["-p", "-f"],
    "user": ["-U", "-r", "-p", "-f", "-m", "--mount-proc"],
    "pid and time": ["-T", "--boottime", "5000", "-p", "-f"],
}


def unshare(*names):
    words = []
    for name in names:
        if not can_unshare(*(f for f in WRAPS[name] if f != "-m")):
            lacks("namespaces", f"unshare {' '.join(WRAPS[name])} is refused")
        words += ["unshare", *WRAPS[name]]
    return words


def users_of(directory):
    """Processes that map a file below it: recorders, and jobs that are recorded."""
    found = []
    for maps in pathlib.Path("/proc").glob("[1-9]*/maps"):
        try:
            if f"{directory}/" in maps.read_text():
                found.append(int(maps.parent.name))
        except OSError:
            pass
    return found


def wait_nobody(directory):
    wait_until(lambda: not users_of(directory), lambda: f"{users_of(directory)} to end", 15)


def check_all_recorded(h):
    wait_nobody(h.out)
    assert h.session.state == FINISHED
    assert not list(h.recording.glob("*.ring"))
    assert h.session.unrecorded == 0
    assert (h.fast_rows(), h.lost) == (h.counted, 0)


def run_plain(h, words, **env):
    r = subprocess.run([*map(str, words)], cwd=h.tmp, env=h.env(**env), capture_output=True,
                       timeout=60)  # fmt: skip
    assert r.returncode == 0, r


def all_kinds(h):
    """Threads that take their time, processes that fork, processes that become others."""
    steady = " ".join(map(str, h.steady(threads=2, events=2000, pace=20)))
    storm = f"{h.target('storm')} {h.count_file} forks 1 10"
    chain = f"{h.target('chain')} {h.count_file} 4 50 return"
    run = f"run:{steady} && {storm} && {chain}"
    return [h.target("phases"), h.count_file, 0, 50, "+", run, "+"]


# --- the namespaces ---


@pytest.mark.parametrize("names", [*([n] for n in WRAPS), ["outer proc", "user"]], ids=" in ".join)
def test_below_the_recorder(hurt, names):
    run_plain(hurt, hurt.command(*unshare(*names), *all_kinds(hurt)))
    check_all_recorded(hurt)


@pytest.mark.parametrize("name", WRAPS)
def test_together_with_the_recorder(hurt, name):
    run_plain(hurt, [*unshare(name), *hurt.command(*all_kinds(hurt))])
    check_all_recorded(hurt)


def test_killed_with_its_container(hurt):
    """The kernel kills the recorder when the first process of its namespace ends."""
    h = hurt
    job = h.steady(events=3000, how="_exit")
    command = ["unshare", "-p", "-f", "--mount-proc", *h.command(*job)]
    r = subprocess.run(command, cwd=h.tmp, env=h.env(), capture_output=True, timeout=60)
    assert r.returncode == 5, r
    wait_nobody(h.out)
    h.recover()
    check_all_recorded(h)


@pytest.mark.parametrize("name", ["outer proc", "user"])
def test_short_lives(hurts, name):
    """Over before the recorder has seen them. Their numbers are those of others outside."""
    for opts in ((), ("--device=npu,cpu",)) * 2:
        h = hurts()
        run_plain(h, h.command(*unshare(name), h.target("chain"), h.count_file, 1, 5, "return",
                               opts=opts))  # fmt: skip
        wait_nobody(h.out)
        assert h.session.state == FINISHED and h.lost == 0
        assert opts or h.fast_rows() == h.counted


def test_a_container_in_a_container(hurt):
    """Two processes have the number 1: that the inner one ends means nothing for the outer one."""
    h = hurt
    inner = f"run:unshare -p -f {h.target('phases')} {h.count_file} 1 50"
    steps = ["+", inner, "+", f"{inner} +", "+"]
    job = [h.target("phases"), h.count_file, 0, 50, *steps]
    run_plain(h, ["unshare", "-p", "-f", "--mount-proc", *h.command(*job)])
    check_all_recorded(h)
    assert h.counted == 4 * 100


def test_on_overlayfs(hurt):
    """There the file does not say who uses it, and containers have their files there."""
    h, upper = hurt, hurt.tmp / "upper"
    for name in ("lower", "upper", "work", "merged"):
        (h.tmp / name).mkdir()
    mount = "mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work merged"
    r = subprocess.run(["unshare", "-m", "sh", "-c", mount], cwd=h.tmp, capture_output=True)
    if r.returncode:
        lacks("mount", "overlayfs cannot be mounted here")
    h.out = h.tmp / "merged" / "out"
    inner = f"run:unshare -p -f {h.target('phases')} {h.count_file} 1 50 +"
    job = h.command(h.target("phases"), h.count_file, 0, 50, "+", inner, "+")
    wrap = ["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    run_plain(h, [*wrap, *job])
    h.out = upper / "out"
    check_all_recorded(h)


# --- who is out of sight of the recorder ---


def test_a_recorder_inside_and_a_process_outside(hurt):
    """A process in a container calls the recorder, which then cannot see the others."""
    h, go = hurt, hurt.tmp
    phases = f"{h.target('phases')} {h.count_file}"
    inside = f"{phases} 1 50 wait:{go}/a + wait:{go}/b +"
    outside = f"{phases} 2 50 wait:{go}/c + wait:{go}/d + wait:{go}/e"
    shell = f"setsid unshare -p -f {inside} >&- 2>&- & setsid {outside} >&- 2>&- & {phases} 0 50 +"
    run_plain(h, h.command("sh", "-c", shell))
    h.session.wait_finished()

    def lead(name, n):
        (go / name).touch()
        wait_until(lambda: counted(h.count_file) == n, f"{n} events", 10)

    rings = lambda: {p.name for p in h.recording.glob("*.ring")}
    try:
        lead("a", 200)
        assert h.session.state == LIVE
        (inner,) = rings()
        lead("c", 300)
        (outer,) = rings() - {inner}
        pause(0.5, "the recorder looks who is alive")
        lead("d", 400)
        assert rings() == {inner, outer}
        os.kill(int(outer.split("-")[0]), signal.SIGKILL)
        wait_until(lambda: rings() == {inner}, "the end of the process to be noticed", 30)
        lead("b", 500)
        check_all_recorded(h)
    finally:  # nobody waits for the next step for ever
        for name in "abcde":
            (go / name).touch()


# --- /proc of another namespace ---


def test_stacks_are_not_those_of_others(build):
    """The number means another process there, whose memory must not be read in place of it."""
    r = subprocess.run(["unshare", "-p", "-f", build / "bin" / "sonde", "snap", f"-p{os.getpid()}"],
                       capture_output=True, text=True, timeout=20)  # fmt: skip
    assert r.returncode != 0
    assert "/proc is that of another pid namespace" in r.stderr
