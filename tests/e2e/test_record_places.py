# SPDX-License-Identifier: MulanPSL-2.0
"""sonde record in odd places: full disks, other namespaces, no descriptors, a terminal that goes away; and a
flight recorder for long. The job must not notice, and what is said is true."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys

import pytest
from capabilities import can_unshare, lacks
from harness import SOAK
from recording import clean_env, wait_finished
from test_record_everything import Flight, names_in, read_timeline, recorder_of, simtrain
from waiting import wait_until

NAP = """
import os, sys, time
def nap():
    while not os.path.exists(sys.argv[1]): time.sleep(0.005)
nap()
"""


def test_a_full_disk(build, tmp_path):
    """The job hears once why nothing of it is recorded, however long it runs, and what is said is no more than is known."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_unshare("-m"):
        lacks("mount", "cannot mount a tmpfs")
    words = [build / "bin/sonde", "record", "--mspti", build / "sim/libmspti.so", "-o", disk / "rec", "--"]
    words += simtrain(build, "--steps", "150", "--step-ms", "5")
    script = f'mount -t tmpfs -o size=300k none {disk} && exec "$@"'
    r = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *words], capture_output=True, text=True,
                       env=clean_env(tmp_path, SIM_NPU_TIME_SCALE="1"), timeout=60)  # fmt: skip
    assert r.returncode == 0, r.stderr
    assert r.stderr.count("[msmonitor] ") == 1 and "has no room for a buffer; its disk may be full" in r.stderr
    assert "1 process could not be recorded at all, since the disk is full" in r.stderr
    assert "no work of a device was reported." in r.stderr and "no process has used one" not in r.stderr


@pytest.mark.needs("root")
@pytest.mark.needs("unshare")
def test_numbers_of_other_processes(build, tmp_path):
    """In a pid namespace with the /proc of another nothing is said about processes that are not the job's."""
    script, stop, out = tmp_path / "job.py", tmp_path / "stop", tmp_path / "rec"
    script.write_text(NAP)
    words = [build / "bin/sonde", "record", "-o", out, "--interval=5ms", "--", sys.executable, script, stop]
    job = subprocess.Popen(["unshare", "-p", "-f", *words], env=clean_env(tmp_path), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
    wait_until(lambda: "host: processors busy, %" in read_timeline(build, tmp_path, out), "counters, twice")
    stop.touch()
    said = job.communicate(timeout=30)[1]
    assert "1 Python process could not be read: /proc is that of another pid namespace" in said
    assert not any("process" in name.split(":")[0] for name in read_timeline(build, tmp_path, out))


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_without_descriptors(build, tmp_path, closed):
    """What is opened in place of a standard descriptor is none of the job's."""
    words = [build / "bin/sonde", "record", "-o", tmp_path / "rec", "--", sys.executable, "-c",
             "import os, sys; open(sys.argv[1], 'w').write(' '.join(str(n) for n in range(20) if os.path.exists(f'/proc/self/fd/{n}')))"]  # fmt: skip
    plain, seen = tmp_path / "plain", tmp_path / "seen"
    for command, path in ((words[5:], plain), (words, seen)):
        script = f'exec "$@" {closed}'
        subprocess.run(["sh", "-c", script, "sh", *command, path], env=clean_env(tmp_path), check=True, timeout=60)
    assert plain.read_text() == seen.read_text()
    (recording,) = (tmp_path / "rec").glob("recording_*")
    wait_finished(recording)


def test_the_terminal_goes_away(build, tmp_path):
    """The job gets its SIGHUP, and what there was of it is in the recording."""
    script, stop, out = tmp_path / "job.py", tmp_path / "stop", tmp_path / "rec"
    script.write_text(NAP)
    words = [build / "bin/sonde", "record", "-o", out, "--interval=5ms", "--", sys.executable, script, stop]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(words[0], list(map(str, words)), clean_env(tmp_path))
    wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
    wait_until(lambda: "nap" in names_in(read_timeline(build, tmp_path, out)), "stacks")
    os.close(terminal)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGHUP
    (recording,) = out.glob("recording_*")
    wait_finished(recording)
    answer = json.loads((recording / "answer.json").read_text())
    assert answer["running"] is False and answer["stack_samples"] > 0
    assert "nap" in names_in(read_timeline(build, tmp_path, out))


# --- the flight recorder ---


@pytest.mark.needs("children")
@pytest.mark.parametrize("why", ["crash", "asked"])
def test_frozen_by_a_signal(build, tmp_path, why):
    """One program of two is killed by a signal, and the other goes on; or the recorder is asked by SIGUSR1."""
    job = ["sh", "-c", '"$@" & "$@" & wait; wait', "sh", *simtrain(build, "--forever", "--step-ms", "10")]
    with Flight(build, tmp_path, job, "--last", "1s") as f:
        wait_until(lambda: len(f.steps(f.dir)) > 3, "steps")
        if why == "crash":
            children = pathlib.Path(f"/proc/{f.job.pid}/task/{f.job.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGSEGV)
        else:
            os.kill(recorder_of(f.dir), signal.SIGUSR1)
        copy = f.frozen(why)
        assert len(f.steps(copy)) > 3 and "MatMulV2" in names_in(read_timeline(build, tmp_path, copy))
        for pid in pathlib.Path(f"/proc/{f.job.pid}/task/{f.job.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_a_copy_of_a_healthy_job(build, tmp_path):
    """Nothing was lost up to that moment, and so it says; whatever becomes of the copy, and of the job."""
    with Flight(build, tmp_path, simtrain(build, "--forever", "--step-ms", "5"), "--last", "5s") as f:
        wait_until(lambda: len(f.steps(f.dir)) > 3, "steps")
        sonde = lambda *words: subprocess.run(
            [build / "bin/sonde", *words], capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
        copy = pathlib.Path(sonde("record", "--dump", str(f.job.pid)).stdout.strip())
        moved = copy.rename(tmp_path / "moved")
        for _ in range(2):
            text = sonde("mem", "leaks", moved).stdout
            assert "Incomplete" not in text and "unknown" not in text, text
            assert "This copy was made while the job ran" in text
            lost = json.loads(sonde("mem", "leaks", "--json", moved).stdout)["lost"]
            assert lost["exact"] and not lost["events"]
            assert "nothing to recover" in sonde("mem", "recover", moved).stdout
            f.job.kill()
            f.job.wait()


def test_how_much_was_dropped(build, tmp_path):
    """Of a job that never joined, since it uses no device: seconds of the job, and not since the machine was started."""
    with Flight(build, tmp_path, [sys.executable, "-c", "import time; time.sleep(60)"], "--last", "1s") as f:
        ask = lambda: subprocess.run(
            [build / "bin/sonde", "mem", "leaks", "--json", f.dir], capture_output=True, text=True, timeout=60)  # fmt: skip
        dropped = lambda: json.loads(ask().stdout or "{}").get("dropped")
        d = wait_until(dropped, "a cut")
        assert 0 < d["until_ns"] - d["from_ns"] < 60e9


def peak_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


@pytest.mark.soak
@pytest.mark.deadline(300)
def test_the_last_part_of_a_long_job(build, tmp_path):
    """The newest 60th of a job, as --last 60s of an hour: two cuts for each 60th. Disk and memory do not grow."""
    turns, first = (120, 12) if SOAK else (10, 4)
    job = simtrain(build, "--ranks", "2", "--forever", "--step-ms", "5")
    with Flight(build, tmp_path, job, "--last", "1s", "--interval", "5ms") as f:
        events = f.dir / "events.sonde"
        recorder = wait_until(lambda: recorder_of(f.dir), "the recorder")
        sizes, peaks, most = [], [], 0
        for _ in range(turns):
            before = events.stat().st_ino

            def is_cut(before=before):
                nonlocal most
                most = max(most, sum(p.stat().st_size for p in f.dir.glob("events*")))
                return events.stat().st_ino != before

            wait_until(is_cut, "a cut")
            sizes.append(most)
            peaks.append(peak_kib(recorder))
        print(f"disk: at most {most >> 10} KiB, {sizes[first] >> 10} KiB in the beginning; "
              f"the recorder's memory: at most {peaks[-1]} KiB, {peaks[first]} KiB in the beginning")  # fmt: skip
        assert most < 4 * sizes[first] and peaks[-1] < 2 * peaks[first]
        kept = f.steps(f.dir)
        assert min(kept) > 1 and len(kept) > 5
