# SPDX-License-Identifier: MulanPSL-2.0
"""No recorder, no disk, no directory: the job does what it always does, and the loss is reported."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from harness import Hurt, wait_gone
from waiting import pause, wait_until

root = pytest.mark.needs("root")


def ends_well(job, timeout=60, said=None):
    """said: what its one line on stderr has."""
    out, err = job.communicate(timeout=timeout)
    assert (job.returncode, out, err.count(b"\n")) == (0, b"done\n", said is not None), err
    assert (said or b"") in err


# --- without a recorder ---


def test_recorder_killed_alone(hurts):
    """The job is neither harmed nor slowed, and all that fits its buffer comes back."""
    events = 200000
    h = hurts()
    begin = time.monotonic()
    r = h.run(*h.steady(threads=2, events=events))
    recorded = time.monotonic() - begin
    assert r.returncode == 0
    h = hurts("killed")
    begin = time.monotonic()
    h.start(*h.steady(threads=2, events=events))
    h.wait_counted(1000)
    h.session.kill_recorder()
    ends_well(h.job)
    assert time.monotonic() - begin < 3 * recorded + 1
    assert any("recorder was killed" in n for n in h.show()["notes"])
    text = h.recover()
    assert "Recovered" in text
    assert h.fast_rows() + h.lost == h.counted


def test_recorder_killed_and_buffer_full(hurts):
    """What came after the buffer was full is lost; how much is known to the event."""
    h = hurts()
    h.start(*h.steady(threads=2, events=300000), opts=["--buffer-mb=1", "--wait-ms=50"])
    h.wait_counted(1000)
    h.session.kill_recorder()
    begin = time.monotonic()
    ends_well(h.job)
    # At most three seconds until the recorder counts as dead, at a wait per look.
    assert time.monotonic() - begin < 15
    h.recover()
    assert h.lost > 0
    assert h.fast_rows() + h.lost == h.counted
    assert f"{h.lost}" in h.sonde("mem", "show", h.recording).stdout.replace(",", "")


@pytest.mark.parametrize("wait", [0, 20])
def test_recorder_stopped(hurts, wait):
    """Stopped, not dead: the job does not hang, drops are counted exactly."""
    h = hurts()
    h.start(*h.steady(threads=2, events=100000), opts=["--buffer-mb=1", f"--wait-ms={wait}"])
    h.wait_counted(1000)
    recorder = h.session.recorder
    os.kill(recorder, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        ends_well(h.job, 30, b"the files are still being written")
        assert time.monotonic() - begin < 12  # three seconds at the exit included
    finally:
        os.kill(recorder, signal.SIGCONT)
    h.session.wait_finished()
    assert h.lost > 0
    assert h.records + h.lost == h.counted and h.fast_rows() <= h.records


def test_a_full_budget_is_counted_exactly(hurts):
    h = hurts()
    h.start(*h.steady(threads=1, events=400000, pace=0), opts=["--buffer-mb=1", "--wait-ms=0"])
    h.wait_counted(100)
    recorder = h.session.recorder
    for _ in range(5):
        os.kill(recorder, signal.SIGSTOP)
        pause(0.02, "the buffer fills")
        os.kill(recorder, signal.SIGCONT)
        pause(0.01, "some of it is read")
    ends_well(h.job, 30, said=b" lost; read them with: ")
    h.session.wait_finished()
    # A FREE whose MALLOC was dropped is in the recording and has no row.
    assert h.records + h.lost == h.counted
    assert h.fast_rows() <= h.records and h.lost > 0
    h.processes()


# --- the disk ---


def run_on_small_disk(h, words, megabytes, fill=0, opts=(), during=""):
    """In a mount namespace of its own, with a tmpfs of that size as output; gives what is on it."""
    disk, keep = h.tmp / "disk", h.tmp / "kept"
    disk.mkdir()
    command = " ".join(f"'{w}'" for w in h.command(*words, opts=opts))
    script = f"""
        set -e
        mount -t tmpfs -o size={megabytes}m none {disk}
        [ {fill} = 0 ] || dd if=/dev/zero of={disk}/filler bs=1M count={fill} 2>/dev/null
        set +e
        {command} & job=$!
        {during}
        wait $job; status=$?
        i=0; while [ "$(od -An -tu4 -j12 -N4 {h.out}/recording_*/session)" -ne 2 ] && [ $i -lt 500 ]
        do sleep 0.02; i=$((i + 1)); done
        rm -f {disk}/filler
        cp -a {h.out} {keep}
        exit $status
    """
    r = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=h.env(),
        cwd=h.tmp,
        capture_output=True,
        timeout=100,
    )
    h.out = keep
    return r


@root
def test_disk_full(hurts):
    """Dumps end before the disk does, so that the recording goes on; the cause is named, once."""
    h = hurts("disk/out")
    h.count_file = h.tmp / "count"
    r = run_on_small_disk(h, h.steady(threads=2, events=400000), 16)
    assert (r.returncode, r.stdout) == (0, b"done\n")
    (line,) = r.stderr.decode().splitlines()
    assert "; the dumps lack " in line and "the disk of " in line
    shown = h.show()
    (said,) = [n for n in shown["notes"] if "dump files lack" in n]
    assert "No space left on device" in said and "This recording has them" in said
    assert not [n for n in shown["notes"] if "could not be written to the recording" in n]
    assert len((h.recording / "msmemscope.log").read_text().splitlines()) < 10
    for path in h.out.glob("msmemscope_*/device_*/dump/*.csv"):
        assert path.read_bytes().endswith(b"\n")
    # Everything that the job counted is in the recording or counted there as lost. Not by rows: a
    # FREE whose MALLOC was lost has none.
    assert shown["lost"]["exact"] and h.records + shown["lost"]["events"] == h.counted


@root
def test_no_room_for_a_buffer(hurts):
    """Not even the arena fits: the process is not recorded, and that is told."""
    h = hurts("disk/out")
    h.count_file = h.tmp / "count"
    r = run_on_small_disk(h, h.steady(threads=2, events=1000), 1)
    assert (r.returncode, r.stdout) == (0, b"done\n")
    (line,) = r.stderr.decode().splitlines()
    said = "0 events recorded, none lost; 1 process could not be recorded at all, since the disk is full ("
    assert said in line and " are left, a buffer begins with 1.82 MiB), in " in line
    assert h.session.unrecorded == 1
    assert any("1 process could not be recorded" in n for n in h.show()["notes"])


@root
def test_disk_full_for_a_while(hurts):
    h = hurts("disk/out")
    h.count_file = h.tmp / "count"
    r = run_on_small_disk(
        h,
        h.steady(threads=1, events=3000, pace=5),
        24,
        fill=12,
        during=f"for i in $(seq 500); do ls {h.out}/*/device_*/dump/*.csv 2>/dev/null && break; "
        f"sleep 0.02; done >/dev/null; dd if=/dev/zero of={h.tmp}/disk/more bs=1M 2>/dev/null; sleep 0.3; "
        f"rm -f {h.tmp}/disk/more",
    )
    assert (r.returncode, r.stdout, r.stderr.count(b"\n")) == (0, b"done\n", 1)
    shown = h.show()
    lost = shown["lost"]["events"]
    assert (f" {lost} lost" if lost else " none lost") in r.stderr.decode()
    assert h.records + shown["lost"]["events"] == h.counted
    missing = [n for n in shown["notes"] if "dump files lack" in n]
    assert len(missing) == 1 and h.fast_rows() < h.counted
    if shown["lost"]["events"]:
        (said,) = [n for n in shown["notes"] if "could not be written to the recording" in n]
        assert "No space left on device" in said and "not all" in missing[0]


def test_directory_removed(hurts):
    h = hurts()
    h.start(*h.steady(threads=2, events=2000, pace=10))
    h.wait_counted(200)
    recorder = h.session.recorder
    wait_until(lambda: list(h.out.glob("msmemscope_*/device_*/dump/*.csv")), "the first file")
    shutil.rmtree(h.out)
    ends_well(h.job, said=b" was deleted while the job ran")
    wait_gone(recorder)
    assert not h.out.exists(), "what somebody removed is not made again"


def test_directory_removed_is_said(hurts):
    """On a terminal, where the last line says where the recording is."""
    h = hurts()
    words = " ".join(map(str, h.steady(events=100)))
    remove = f"until rm -rf {h.out} 2>&-; do :; done"  # the recorder may make a file meanwhile
    command = " ".join(f"'{w}'" for w in h.command("sh", "-c", f"{words}; {remove}; {words}"))
    r = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env=h.env(),
        cwd=h.tmp,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "was deleted while the job ran" in r.stdout, r.stdout
    assert "events recorded" not in r.stdout


def test_directory_removed_before_children(hurts):
    """Processes that join later find no session: they run unrecorded, and nothing comes back."""
    h = hurts()
    script = f"{' '.join(map(str, h.steady(events=100)))}; sleep 0.2; until rm -rf {h.out} 2>&-; do :; done; "
    script += f"{' '.join(map(str, h.steady(events=100)))}; exit 3"
    r = h.run("sh", "-c", script)
    assert (r.returncode, r.stdout, r.stderr) == (3, b"done\ndone\n", b"")
    pause(0.1, "nothing comes back")
    assert not list(h.out.glob("recording_*"))


def test_unwritable_output(users):
    """The launcher says so and runs nothing; the environment recipe runs the job unrecorded."""
    h = Hurt(users.build, users.alice.home)
    h.out = users.root.mkdir("out")
    words = h.steady(events=100)
    r = users.alice.run(*h.command(*words))
    assert r.returncode == 1 and "was not run" in r.stderr and r.stdout == ""
    plain = users.alice.run(*words)
    libs = ":".join(str(p) for p in sorted((users.build / "lib").glob("lib*hook.so")))
    r = users.alice.run(*words, env={"LD_PRELOAD": libs}, cwd=h.out)
    assert (r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert not list(h.out.iterdir())


@root
def test_read_only_from_the_start(hurts):
    h = hurts("disk/out")
    disk = h.tmp / "disk"
    disk.mkdir()
    command = " ".join(f"'{w}'" for w in h.command(*h.steady(events=100)))
    script = f"mount -t tmpfs -o ro none {disk} && {command}"
    r = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=h.env(), capture_output=True, cwd=h.tmp
    )
    assert r.returncode == 1 and b"was not run" in r.stderr


def test_the_program_is_missing(hurts, build, tmp_path):
    """Libraries without the sonde program beside them: the environment recipe records nothing."""
    lib = tmp_path / "alone" / "lib"
    shutil.copytree(build / "lib", lib)
    h = hurts()
    plain = h.plain(*h.steady(events=2000))
    libs = ":".join(str(p) for p in sorted(lib.glob("lib*hook.so")))
    begin = time.monotonic()
    r = h.plain(*h.steady(events=2000), env={"LD_PRELOAD": libs})
    assert (r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert time.monotonic() - begin < 2
