# SPDX-License-Identifier: MulanPSL-2.0
"""npu-monitor inside a job that has our library, on the simulated NPU."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time

import pytest
from daemon import Daemon
from monitored import Job, dyno, environment, lines, state, trains
from waiting import pause, wait_until

START = ("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1)
STOP = ("npu-monitor", "--npu-monitor-stop")
ONE_FILE = ("--export-type", "Jsonl", "--json-rotate-log-lines", 500000)
ADAM = "ApplyAdamW"  # the last kernels of a step


@pytest.fixture
def daemon(build, tmp_path):
    with Daemon(build, tmp_path, "--use_JSON", ipc=True) as d:
        yield d


@pytest.fixture
def job(build, daemon, tmp_path):
    with Job(build, daemon, tmp_path, rank=3) as j:
        wait_until(lambda: state(daemon) == "Idle", "the job")
        yield j


@pytest.fixture
def order(build, daemon):
    def give(*args, becomes=None, **kw):
        out = dyno(build, daemon, *args, **kw)
        if becomes:
            wait_until(lambda: state(daemon) == becomes, becomes)
        return out

    return give


def files(where, ending):
    return sorted(pathlib.Path(where).glob(f"*{ending}"))


def reports(daemon):
    """What the daemon was told, as it logs it."""
    out = []
    for line in daemon.log().splitlines():
        _, found, text = line.partition(" data = ")
        if found and '"kind"' in text:
            out.append(json.loads(text))
    return out


def kernels(db):
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as c:
        return c.execute(
            "select s.value, t.startNs, t.endNs, t.connectionId from TASK t"
            " join COMPUTE_TASK_INFO i using (globalTaskId) join STRING_IDS s on s.id = i.name"
            " order by t.startNs"
        ).fetchall()


def so_far(where):
    """The kernels in the first database there, which may be being made at this moment."""
    with contextlib.suppress(sqlite3.OperationalError, IndexError):
        return kernels(files(where, ".db")[0])
    return []


def recorder_of(job):
    """The process of ours that works for this job; None: there is none."""
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = p.read_bytes().split(b"\0")
            if words[:2] == [b"sonde", b"recorder"] and b"/monitor_%d_" % job.pid in words[2]:
                return int(p.parent.name)


def test_metrics_and_nothing_is_lost_at_stop(daemon, job, order):
    order(*START[:2], "--report-interval-s", 3600, "--mspti-activity-kind", "Kernel,Marker,AclAPI",
          becomes="Running")  # fmt: skip
    trains(daemon)
    assert not reports(daemon)  # the interval is an hour
    order(*STOP, becomes="Idle")
    kinds = lambda: {(r["kind"], r["deviceId"]) for r in reports(daemon)}
    wait_until(lambda: {("Kernel", "0"), ("AclAPI", "host")} <= kinds(), "the last reports")
    wait_until(lambda: any(r["kind"] == "Marker" and r.get("name") == "step start"
                      for r in reports(daemon)), "marks")  # fmt: skip
    assert all(int(r["duration"]) >= 0 for r in reports(daemon))


def test_reports_come_every_interval(daemon, job, order):
    order(*START, "--mspti-activity-kind", "Kernel", becomes="Running")
    told = lambda: [r for r in reports(daemon) if r["kind"] == "Kernel"]
    wait_until(lambda: len(told()) >= 3, "three reports")
    assert all(int(r["duration"]) > 0 for r in told())
    order(*STOP, becomes="Idle")


def test_jsonl(daemon, job, order, tmp_path):
    order(*START, "--mspti-activity-kind", "Kernel,API,AclAPI,RuntimeAPI,NodeAPI,Marker",
          *ONE_FILE, "--log-file", tmp_path / "out", becomes="Running")  # fmt: skip
    trains(daemon)
    order(*STOP, becomes="Idle")
    [path] = files(tmp_path / "out", ".jsonl")
    assert path.name.startswith(f"msmonitor_{job.pid}_") and path.name.endswith("_3.jsonl")
    rows = lines(path)
    launched = {r["correlationId"]: r for r in rows if r["kind"].endswith("API")}
    ran = [r for r in rows if r["kind"] == "Kernel"]
    assert ran and all(r["endNs"] >= r["startNs"] for r in ran)
    # whatever was launched before the window is not in it; all others follow their launch
    both = [(r, launched[r["correlationId"]]) for r in ran if r["correlationId"] in launched]
    assert len(both) > len(ran) / 2
    assert all(r["startNs"] >= call["startNs"] for r, call in both)
    marks = [r for r in rows if r["kind"] == "Marker"]
    assert {m["sourceKind"] for m in marks} == {"Host", "Device"}
    assert rows[-1] == {"device": [0], "kind": "rank_device_map", "rank": 3}
    now = time.time_ns()
    assert all(now - 60e9 < r["startNs"] < now for r in ran)


def test_kinds_and_filter_change_while_it_runs(daemon, job, order, tmp_path):
    out = ("--log-file", tmp_path / "out", *ONE_FILE)
    seen = lambda: lines(files(tmp_path / "out", ".jsonl")[0])
    order(*START, "--mspti-activity-kind", "Kernel", *out, becomes="Running")
    wait_until(lambda: files(tmp_path / "out", ".jsonl") and seen(), "the first kernels")
    order(*START, "--mspti-activity-kind", "AclAPI", *out)
    wait_until(lambda: seen()[-1]["kind"] == "AclAPI", "calls instead")
    count = lambda kind: sum(r["kind"] == kind for r in seen())

    def only_calls():
        ran, called = count("Kernel"), count("AclAPI")
        pause(1.2, "longer than buffers wait")
        return count("AclAPI") > called and count("Kernel") == ran

    wait_until(only_calls, "what was in buffers to be out")
    before = len(seen())
    order(*START, "--mspti-activity-kind", "Kernel,AclAPI", "--filter", "Kernel:Gelu", *out)
    wait_until(lambda: seen()[-1].get("name") == "Gelu", "the filter")
    pause(1.2, "longer than buffers wait")
    order(*STOP, becomes="Idle")
    rows = [r for r in seen() if r["kind"] in ("Kernel", "AclAPI")]
    assert {r["name"] for r in rows[before:] if r["kind"] == "Kernel"} == {"Gelu"}
    assert len(files(tmp_path / "out", ".jsonl")) == 1  # it is one window


def test_duration(daemon, job, order, tmp_path):
    order(*START, "--mspti-activity-kind", "Kernel", "--duration", "4", "--log-file",
          tmp_path / "out", becomes="Running")  # fmt: skip
    wait_until(lambda: state(daemon) == "Idle", "its end")
    assert kernels(files(tmp_path / "out", ".db")[0])
    assert "effective" in order(*START, "--mspti-activity-kind", "Kernel", becomes="Running")
    order(*STOP, becomes="Idle")


@pytest.mark.parametrize("form", ["DB", "Jsonl"])
def test_killed(build, daemon, job, order, tmp_path, form):
    order(*START, "--mspti-activity-kind", "Kernel,Marker", "--log-file", tmp_path / "out",
          "--export-type", form, becomes="Running")  # fmt: skip

    def written():
        if form == "DB":
            return so_far(tmp_path / "out")
        rows = [r for p in files(tmp_path / "out", ".jsonl") for r in lines(p)]
        return [r for r in rows if r["kind"] == "Kernel"]

    before = len(wait_until(lambda: len(written()) > 100 and written(), "kernels"))
    job.process.kill()
    job.process.wait()
    dead = time.monotonic()
    wait_until(lambda: state(daemon) in ("Idle", "Uninitialized"), "Idle")
    took = time.monotonic() - dead
    assert took < 5, f"Idle after {took:.2f} s"
    assert len(files(tmp_path / "out", "." + form.lower())) == 1
    assert len(written()) >= before
    with Job(build, daemon, tmp_path, rank=0):
        wait_until(lambda: state(daemon, "nputrace") == "Idle", "another job")
        out = order("nputrace", "--start-step", -1, "--iterations", 1, "--log-file", tmp_path / "t")
        assert '"commandStatus":"effective"' in out
        wait_until(lambda: list((tmp_path / "t").glob("*_sonde/trace.json")), "its trace")
    wait_until(lambda: not recorder_of(job), "its recorder to leave", 20)


def test_a_job_that_ends_is_in_the_file_to_its_last_kernel(build, daemon, tmp_path, order):
    with Job(build, daemon, tmp_path, steps=300) as j:
        wait_until(lambda: state(daemon) == "Idle", "the job")
        order(*START, "--mspti-activity-kind", "Kernel", "--log-file", tmp_path / "out",
              becomes="Running")  # fmt: skip
        assert j.process.wait(60) == 0
        wait_until(lambda: not recorder_of(j), "the recorder to leave")
        names = [r[0] for r in kernels(files(tmp_path / "out", ".db")[0])]
    # the last step launches every kernel of a step, which those before did, too
    ends = [i + 1 for i, pair in enumerate(zip(names, names[1:])) if pair[0] == ADAM != pair[1]]
    assert names[-1] == ADAM and names[ends[-1] :] == names[ends[-2] : ends[-1]]
    assert names[ends[-1] :].count(ADAM) == 8


def test_names_that_are_no_text(build, daemon, tmp_path, order):
    with Job(build, daemon, tmp_path, "--bad-names") as j:
        wait_until(lambda: state(daemon) == "Idle", "the job")
        for form in ("Jsonl", "DB"):
            order(*START, "--mspti-activity-kind", "Kernel", "--log-file", tmp_path / form,
                  "--export-type", form, becomes="Running")  # fmt: skip
            trains(daemon)
            order(*STOP, becomes="Idle")
        assert j.process.poll() is None
    names = {r["name"] for r in lines(files(tmp_path / "Jsonl", ".jsonl")[0]) if "name" in r}
    assert any("\ufffd" in n for n in names), names
    assert any("\ufffd" in r[0] for r in kernels(files(tmp_path / "DB", ".db")[0]))


def test_off_it_holds_nothing(daemon, job, order, tmp_path):
    maps = lambda: pathlib.Path(f"/proc/{job.pid}/maps").read_text()
    place = pathlib.Path(os.environ.get("TMPDIR") or "/tmp") / f"sonde-monitor-{os.getuid()}"
    mine = lambda: list(place.glob(f"monitor_{job.pid}_*"))
    assert not mine()  # no recorder before it is needed
    order(*START, "--mspti-activity-kind", "Kernel", becomes="Running")
    wait_until(lambda: mine(), "its session")
    order(*STOP, becomes="Idle")
    before = maps().count("\n")
    for _ in range(5):
        order(*START, "--mspti-activity-kind", "Kernel", becomes="Running")
        order(*STOP, becomes="Idle")
    assert maps().count("\n") <= before + 3  # buffers went back
    job.process.kill()
    wait_until(lambda: not mine(), "the session to go with the job", 20)


def test_a_recorder_that_was_killed(daemon, job, order, tmp_path):
    order(*START, "--mspti-activity-kind", "Kernel", becomes="Running")
    os.kill(wait_until(lambda: recorder_of(job), "its recorder"), signal.SIGKILL)
    order(*STOP, becomes="Idle")
    order(*START, "--mspti-activity-kind", "Kernel", "--log-file", tmp_path / "out",
          becomes="Running")  # fmt: skip
    trains(daemon)
    order(*STOP, becomes="Idle")
    assert kernels(files(tmp_path / "out", ".db")[0])
    assert job.process.poll() is None


def test_a_daemon_that_comes_later_and_again(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as first:
        env = environment(build, first)
        first.process.kill()
        job = subprocess.Popen([build / "sim" / "simtrain", "--quiet", "--steps", "1000000",
                                "--step-ms", "20"], env=env, stdout=subprocess.DEVNULL)  # fmt: skip
        try:
            for _ in range(2):
                with Daemon(build, tmp_path, "--port", "0", "--http-port", "0",
                            "--enable-ipc-monitor", "--ipc-socket-dir", first.ipc_dir,
                            "--ipc-dir-only", defaults=False) as d:  # fmt: skip
                    wait_until(lambda d=d: state(d) == "Idle", "the job")
                    dyno(build, d, *START, "--mspti-activity-kind", "Kernel")
                    wait_until(lambda d=d: state(d) == "Running", "Running")
                    d.process.kill()
                    d.process.wait()
                    (first.ipc_dir / "dynolog").unlink(missing_ok=True)
                with Daemon(build, tmp_path, "--port", "0", "--http-port", "0",
                            "--enable-ipc-monitor", "--ipc-socket-dir", first.ipc_dir,
                            "--ipc-dir-only", defaults=False) as d:  # fmt: skip
                    wait_until(lambda d=d: state(d) == "Running", "what runs since before")
                    dyno(build, d, *STOP)
                    wait_until(lambda d=d: state(d) == "Idle", "Idle")
            assert job.poll() is None
        finally:
            job.kill()
            job.wait()


def test_files_that_cannot_be_made(daemon, job, order, tmp_path):
    (tmp_path / "file").write_text("")
    out = order(*START, "--mspti-activity-kind", "Kernel", "--log-file", tmp_path / "file" / "x")
    assert '"commandStatus":"effective"' in out
    wait_until(lambda: "not carried out" in job.said(), "words")
    assert "a part of this path is not a directory" in job.said()
    assert state(daemon) == "Idle" and job.process.poll() is None


def test_the_job_does_not_notice(build, daemon, tmp_path):
    """Same output, same status, with the library and without, monitored and not."""
    run = lambda env, *args: subprocess.run(
        [build / "sim" / "simtrain", "--steps", "60", *args], env=env, capture_output=True,
        text=True, cwd=tmp_path, timeout=60)  # fmt: skip
    plain = run(environment(build, daemon, guest=False))
    quiet = run(environment(build, daemon))
    assert (quiet.stdout, quiet.stderr, quiet.returncode) == (plain.stdout, plain.stderr, 0)
    with subprocess.Popen(
        [build / "sim" / "simtrain", "--steps", "60", "--step-ms", "100"], text=True, cwd=tmp_path,
        env=environment(build, daemon), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as p:  # fmt: skip
        listed = lambda: daemon.call({"fn": "listProcesses"}).get("processes", [])
        wait_until(lambda: [x["npumonitor"] for x in listed() if x["pid"] == p.pid] == ["Idle"])
        dyno(build, daemon, *START, "--mspti-activity-kind", "Kernel,Marker")
        out, err = p.communicate()
    assert (out, err, p.returncode) == (plain.stdout, plain.stderr, 0)


def test_processes_that_are_no_jobs_cost_nothing(build, daemon, tmp_path):
    script = "ls / > /dev/null; cat /proc/self/status | grep Threads; true"
    r = subprocess.run(["bash", "-c", script], env=environment(build, daemon), text=True,
                       capture_output=True, cwd=tmp_path)  # fmt: skip
    assert (r.stdout, r.stderr, r.returncode) == ("Threads:\t1\n", "", 0)
    assert not daemon.call({"fn": "listProcesses"}).get("processes", [])
