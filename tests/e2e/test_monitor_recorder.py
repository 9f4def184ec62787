# SPDX-License-Identifier: MulanPSL-2.0
"""A recorder of the monitor that is killed while it works, and a program that begins to record
memory beside it."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from daemon import Daemon
from fake_daemon import *  # noqa: F403
from monitor_programs import NPU, Programs
from monitored import Job, dyno, environment, state, trains
from python_jobs import PRELUDE, Left
from test_monitor import ONE_FILE, files, kernels, reports, so_far
from test_monitor import recorder_of as any_recorder_of
from waiting import pause, wait_until

START = ("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1)
STOP = ("npu-monitor", "--npu-monitor-stop")
KERNELS = ("--mspti-activity-kind", "Kernel")


@pytest.fixture
def daemon(build, tmp_path):
    with Daemon(build, tmp_path, "--use_JSON", ipc=True) as d:
        yield d


@pytest.fixture
def job(build, daemon, place, tmp_path):
    with Job(build, daemon, tmp_path, env={"SONDE_MONITOR_DIR": place}) as j:
        wait_until(lambda: state(daemon) == "Idle", "the job")
        yield j
        assert j.process.poll() is None, j.said()


@pytest.fixture
def order(build, daemon):
    def give(*args, becomes=None):
        out = dyno(build, daemon, *args)
        if becomes:
            wait_until(lambda: state(daemon) == becomes, becomes)
        return out

    return give


def recorder_of(job, other_than=None):
    """Its recorder, when it is there; another one than that."""

    def found():
        pid = any_recorder_of(job)
        return pid if pid != other_than else None

    return wait_until(found, "its recorder")


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    return pid


def kill_and_wait(pid):
    """Until it is dead: on a busy machine that takes a while."""
    stat = pathlib.Path(f"/proc/{kill(pid)}/stat")

    def is_dead():
        with contextlib.suppress(OSError):
            return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
        return True

    wait_until(is_dead, "its death")
    return pid


def losses(job):
    return [int(n) for n in re.findall(r"goes on with another one; (\d+) activities", job.said())]


def test_metrics_go_on(daemon, job, order, place):
    order(*START, *KERNELS, becomes="Running")
    wait_until(lambda: reports(daemon), "a report")
    trains(daemon)
    first = kill(recorder_of(job))
    recorder_of(job, first)
    before = len(reports(daemon))
    wait_until(lambda: len(reports(daemon)) > before + 1, "reports of the next one")
    assert state(daemon) == "Running"
    [lost] = losses(job)
    assert lost > 0  # since the last report, at least
    wait_until(lambda: len(list(place.iterdir())) == 1, "what the first one left to go")
    maps = pathlib.Path(f"/proc/{job.pid}/maps")
    wait_until(lambda: ".ring (deleted)" not in maps.read_text(), "its rings to be given back")
    order(*STOP, becomes="Idle")


@pytest.mark.parametrize("form, ending", [("DB", ".db"), ("Jsonl", ".jsonl")])
def test_files_go_on(build, daemon, job, order, tmp_path, form, ending):
    """What was written stays as it was; the rest is in another file, which knows what is lost."""
    out = tmp_path / "out"
    words = ONE_FILE if form == "Jsonl" else ("--export-type", form)
    order(*START, *KERNELS, "--log-file", out, *words, becomes="Running")
    wait_until(lambda: files(out, ending) and files(out, ending)[0].stat().st_size > 30000, "a file")
    trains(daemon)
    first = kill(recorder_of(job))
    wait_until(lambda: any_recorder_of(job) != first, "its last write")
    [path] = files(out, ending)
    was = path.read_bytes()
    recorder_of(job, first)
    wait_until(lambda: len(files(out, ending)) == 2, "another file")
    trains(daemon)
    order(*STOP, becomes="Idle")
    assert path.read_bytes() == was
    assert len(files(out, ending)) == 2
    [other] = [p for p in files(out, ending) if p != path]
    shown = json.loads(
        subprocess.run([build / "bin" / "sonde", "activity", "show", "--json", other], check=True,
                       capture_output=True, text=True).stdout
    )  # fmt: skip
    [lost] = losses(job)
    assert lost > 0 and shown["lost"] == lost, shown
    if form == "DB":
        names = [{k[0] for k in kernels(p)} for p in (path, other)]
        assert names[0] and names[0] == names[1]
        assert max(k[1] for k in kernels(path)) < min(k[1] for k in kernels(other))


def test_what_was_changed_stays_changed(daemon, job, order):
    order(*START, *KERNELS, becomes="Running")
    order(*START, "--mspti-activity-kind", "AclAPI")
    wait_until(lambda: any(r["kind"] == "AclAPI" for r in reports(daemon)), "the other kind")
    first = kill(recorder_of(job))
    recorder_of(job, first)
    pause(0.5, "what the first one sent last arrives")
    before = len(reports(daemon))
    wait_until(lambda: len(reports(daemon)) > before + 2, "reports of the next one")
    assert {r["kind"] for r in reports(daemon)[before:]} == {"AclAPI"}
    order(*STOP, becomes="Idle")


@pytest.mark.parametrize("changed", [False, True], ids=["as ordered", "changed"])
def test_not_for_ever(daemon, job, order, changed):
    """Something kills every recorder: there is an end, and a reason. The next order counts anew."""
    order(*START, *KERNELS, becomes="Running")
    if changed:
        order(*START, "--mspti-activity-kind", "AclAPI")
        wait_until(lambda: any(r["kind"] == "AclAPI" for r in reports(daemon)), "the other kind")
    ended = lambda: "npu-monitor has ended: its recorder was killed, again and again" in job.said()
    killed = []
    while not ended() and len(killed) < 20:
        pid = any_recorder_of(job)
        if pid and pid not in killed:
            killed.append(kill(pid))
        pause(0.1, "the next one starts")
    assert 3 <= len(killed) < 10
    wait_until(lambda: state(daemon) == "Idle", "Idle")
    daemon.wait_log("again and again")
    order(*START, *KERNELS, becomes="Running")
    before = len(reports(daemon))
    wait_until(lambda: len(reports(daemon)) > before, "a report")
    order(*STOP, becomes="Idle")


def test_killed_at_the_last_moment(job, order, tmp_path):
    """Nobody has seen that it is gone when the end comes: what that cost is told all the same."""
    out = tmp_path / "out"
    for n in range(3):
        order(*START, *KERNELS, "--log-file", out / str(n), "--export-type", "Jsonl",
              becomes="Running")  # fmt: skip
        wait_until(lambda n=n: files(out / str(n), ".jsonl"), "a file")
        pause(0.5, "activities of the next interval are in the buffer")
        kill(recorder_of(job))
        order(*STOP, becomes="Idle")
    told = lambda: re.findall(r"was killed: (?:\D*; )?(\d+) activities", job.said())
    wait_until(lambda: len(told()) == 3, "what was lost")
    assert all(map(int, told())), job.said()


def test_killed_while_it_writes_the_end(job, order, tmp_path):
    order(*START, *KERNELS, "--log-file", tmp_path / "out", "--export-type", "Jsonl",
          becomes="Running")  # fmt: skip
    wait_until(lambda: files(tmp_path / "out", ".jsonl"), "a file")
    pid = recorder_of(job)
    os.kill(pid, signal.SIGSTOP)
    pause(0.5, "activities wait in the buffer")
    order(*STOP)
    pause(0.5, "the end waits for it")
    kill(pid)
    told = lambda: re.search(r"was killed: (\d+) activities are lost", job.said())
    assert int(wait_until(told, "what was lost")[1])


def test_a_trace_is_lost_and_the_next_one_is_not(daemon, job, order, tmp_path):
    trace = lambda: state(daemon, "nputrace")
    order("nputrace", "--start-step", -1, "--iterations", 100000, "--log-file", tmp_path / "first")
    wait_until(lambda: trace() == "Running", "the trace")
    kill(recorder_of(job))
    wait_until(lambda: trace() == "Idle", "its end")
    killed = "the recorder of this process was killed, and the trace is lost"
    wait_until(lambda: killed in job.said(), "words")
    daemon.wait_log("the trace is lost with it")
    # and who ends it before that is noticed is not told that files are on their way
    order("nputrace", "--start-step", -1, "--iterations", 100000, "--log-file", tmp_path / "other")
    wait_until(lambda: trace() == "Running", "the trace")
    kill_and_wait(recorder_of(job))
    told = order("nputrace", "--stop")
    assert "ended in step" not in told and "files are complete" not in told, told
    wait_until(lambda: job.said().count("the trace is lost with it") == 2, "words")
    wait_until(lambda: trace() == "Idle", "its end")
    out = tmp_path / "second"
    order("nputrace", "--start-step", -1, "--iterations", 2, "--log-file", out)
    wait_until(lambda: list(out.glob("*_sonde/trace.json")), "the next trace")
    wait_until(lambda: trace() == "Idle", "its end")


def test_one_that_stands_still_is_not_dead(daemon, job, order, tmp_path):
    order(*START, *KERNELS, "--log-file", tmp_path / "out", becomes="Running")
    pid = recorder_of(job)
    os.kill(pid, signal.SIGSTOP)
    pause(6, "longer than it takes without a sign of life to look more closely")
    os.kill(pid, signal.SIGCONT)
    assert not losses(job)
    order(*STOP, becomes="Idle")
    assert recorder_of(job) == pid
    assert len(files(tmp_path / "out", ".db")) == 1


def test_threads_of_the_job_do_not_wait(build, daemon, place, tmp_path, order):
    """Steps of a job take what they take while its recorder is killed, and another one comes."""
    with Job(build, daemon, tmp_path, step_ms=5, env={"SONDE_MONITOR_DIR": place}) as job:
        wait_until(lambda: state(daemon) == "Idle", "the job")
        order(*START, *KERNELS, becomes="Running")
        step = lambda: int(daemon.call({"fn": "getStatus"})["current_step"])
        pid = None
        for _ in range(3):
            pid = kill(recorder_of(job, pid))
            first, at = step(), time.monotonic()
            wait_until(lambda f=first: step() > f + 20, "steps", 20)
            assert time.monotonic() - at < 15
        assert job.process.poll() is None


@pytest.mark.parametrize("what, status", [("forks", 0), ("exits", 7)])
def test_jobs_with_many_threads_and_children(fake, run, place, what, status):
    """Every recorder is killed while they do what jobs do."""
    p = run(what, 9)
    fake.only = p.pid
    fake.order(start("Kernel,Marker,AclAPI,RuntimeAPI"), becomes=RUNNING)
    killed = []
    while p.poll() is None:
        for pid in recorders(place):
            if pid not in killed:
                killed.append(pid)
                with contextlib.suppress(ProcessLookupError):
                    kill(pid)
        pause(0.05, "the next one starts")
    ended, out, err = finish(p, 90)
    assert ended == status, out + err
    assert len(killed) > 1


# --- memory of a program that is monitored ---

MEMORY = (
    NPU
    + PRELUDE
    + """
def train():
    for i in range(5):
        held = [take(4096 * (i + 1)) for _ in range(8)]
        npu.step()
        for address in held[1:]:
            give(address)
        msmemscope.step()


def wait_for(file):
    while not os.path.exists(file):
        npu.step()
        {step}
        time.sleep(0.02)


npu = Npu()
if os.environ.get("MSMONITOR_USE_DAEMON"):
    ctypes.CDLL(None).rtSetDevice(0)  # as a program does that is linked with the runtime
wait_for("go")
{config}
msmemscope.start()
train()
{child}
msmemscope.stop()
print(_sonde.session(), flush=True)
wait_for("end")
"""
)
CHILD = """
child = os.fork()
if not child:
    take(12345)
    os._exit(0)
os.waitpid(child, 0)
"""


class Trainer:
    """That program in a directory of its own, as it is or monitored."""

    def __init__(self, programs, build, cwd, daemon=None, place=None, **parts):
        cwd.mkdir()
        self.programs, self.tmp = programs, cwd
        script = cwd / "job.py"
        code = MEMORY
        for name in ("config", "child", "step"):
            code = code.replace("{%s}" % name, parts.get(name, ""))
        script.write_text(code)
        env = programs.env()
        if daemon:
            given = environment(build, daemon, SONDE_MONITOR_DIR=place)
            env.update({k: given[k] for k in ("MSMONITOR_USE_DAEMON", "KINETO_IPC_SOCKET_DIR",
                                              "LD_PRELOAD", "SONDE_MONITOR_DIR")})  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, script], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        programs.started.append(self.process)
        self.pid = self.process.pid

    def train(self):
        """Has it record memory; gives the directory of its recording."""
        (self.tmp / "go").touch()
        return self.process.stdout.readline().decode().strip()

    def finish(self, out="memscopeDumpResults"):
        (self.tmp / "end").touch()
        stdout, stderr = self.process.communicate(timeout=60)
        done = subprocess.CompletedProcess([], self.process.returncode, stdout, stderr)
        left = Left(self.tmp / out, done)
        assert left.returncode == 0, left
        return left


@pytest.fixture
def programs(build, tmp_path):
    p = Programs(build, tmp_path)
    yield p
    p.end()


def told(left):
    """Rows without what is different in every run."""
    return sorted((r.event, r.type, r.attr.get("size"), "shadow" in r.attr) for r in left.rows)


def said(left):
    """The same of messages."""
    text = re.sub(r"recording_\d+_\d+|\d+", "N", left.stderr)
    return [line for line in text.splitlines() if line.startswith("[msmemscope]")]


CONFIG = 'msmemscope.config(events="alloc,free", call_stack="python:5", output_path="mine")'


@pytest.mark.parametrize("config", ["", CONFIG], ids=["defaults", "config"])
def test_memory_is_recorded_as_ever(build, daemon, programs, place, order, tmp_path, config):
    """Files, recording, children and messages of a program are those that it has without us; and
    what devices do is told before, while and after."""
    out = "mine" if config else "memscopeDumpResults"
    plain = Trainer(programs, build, tmp_path / "plain", config=config, child=CHILD)
    plain.train()
    plain = plain.finish(out)

    job = Trainer(programs, build, tmp_path / "job", daemon, place, config=config, child=CHILD)
    wait_until(lambda: state(daemon) == "Idle", "the job")
    order(*START, *KERNELS, "--log-file", tmp_path / "activities", becomes="Running")
    wait_until(lambda: so_far(tmp_path / "activities"), "kernels")
    session = job.train()
    assert os.path.dirname(session) == str(tmp_path / "job" / out)
    wait_until(lambda: not list(place.iterdir()), "the monitor's own session to end")
    assert state(daemon) == "Running"
    wait_until(lambda: len(files(tmp_path / "activities", ".db")) == 2, "another file")
    order(*STOP, becomes="Idle")
    left = job.finish(out)

    assert told(left) == told(plain) and told(left)
    assert [len(left.recordings), len(plain.recordings)] == [1, 1]
    shown = [
        json.loads(subprocess.run([build / "bin" / "sonde", "mem", "show", "--json", x.out],
                                  check=True, capture_output=True, text=True).stdout)
        for x in (left, plain)
    ]  # fmt: skip
    assert [len(s["processes"]) for s in shown] == [2, 2]
    place_of = lambda x, name: [line.replace(f"/{name}/", "/") for line in said(x)]
    assert place_of(left, "job") == place_of(plain, "plain")
    first, second = files(tmp_path / "activities", ".db")
    assert kernels(first) and kernels(second)
    assert max(k[1] for k in kernels(first)) < min(k[1] for k in kernels(second))


def test_memory_when_there_is_no_place_for_it(build, daemon, programs, place, order, tmp_path):
    """It is said, as ever, and the monitor goes on as before."""
    config = 'msmemscope.config(output_path="/dev/null/x")'
    job = Trainer(programs, build, tmp_path / "job", daemon, place, config=config)
    wait_until(lambda: state(daemon) == "Idle", "the job")
    order(*START, *KERNELS, becomes="Running")
    job.train()
    before = len(reports(daemon))
    wait_until(lambda: len(reports(daemon)) > before, "a report")
    assert state(daemon) == "Running"
    left = job.finish()
    assert "nothing is recorded: the recorder could not be started" in left.stderr
    assert "/dev/null/x/recording_" in left.stderr


def test_memory_while_a_trace_is_taken(build, daemon, programs, place, order, tmp_path):
    """The trace ends where that begins: what it has is written, and it says why."""
    step = "import sonde; sonde.step()"
    job = Trainer(programs, build, tmp_path / "job", daemon, place, step=step)
    wait_until(lambda: state(daemon) == "Idle", "the job")
    out = tmp_path / "trace"
    order("nputrace", "--start-step", -1, "--iterations", 10000, "--log-file", out)
    wait_until(lambda: state(daemon, "nputrace") == "Running", "the trace")
    trains(daemon)
    job.train()
    wait_until(lambda: state(daemon, "nputrace") == "Idle", "its end")
    left = job.finish()
    [trace] = wait_until(lambda: list(out.glob("*_sonde/trace.json")), "its file")
    assert "MatMul_0" in trace.read_text()
    assert "has begun to record memory" in left.stderr
    assert told(left) and len(left.recordings) == 1
