# SPDX-License-Identifier: MulanPSL-2.0
"""dyno … --wait: returns when the files are there, or says who refused and why; traces by time; and a
stop is effective for the next command."""

import json
import os
import re
import shutil

import pytest
from daemon import Daemon
from fabric_client import EVENTS, IDLE, READY, RUNNING, Client, monitor_status, trace_status
from monitored import Job
from traced_steps import PythonJob, Trace, daemon_for, dirs, program
from waiting import wait_until


@pytest.fixture(scope="module")
def node(build, tmp_path_factory):
    """Two processes with our library: rank 0 tells its steps, rank 1 none, as with JAX."""
    place = tmp_path_factory.mktemp("wait")
    no_steps = program(head="", step="pass")
    with daemon_for(build, place) as n, Job(build, n.daemon, place, rank=0) as steps:
        with PythonJob(build, n.daemon, place, no_steps, rank=1) as silent:
            wait_until(lambda: n.daemon.call({"fn": "listProcesses"})["total"] == 2, "both")
            n.wait_step()
            n.steps, n.silent = steps, silent
            yield n


def dyno(d, *words):
    return d.run(d.build / "bin" / "dyno", "--port", d.port, *words)


def start(d, *words):
    return d.popen(d.build / "bin" / "dyno", "--port", d.port, *words, stdout=-1, stderr=-1, text=True)


def trace(*words):
    return ["nputrace", "--start-step", "-1", "--iterations", "2", "--wait", *words]


def written(r):
    """Where each process has written, as it is printed."""
    return {int(p): path for p, path in re.findall(r"^Process (\d+): written to (.*)$", r.stdout, re.M)}


def test_it_returns_when_the_files_are_there(node, tmp_path):
    pid = node.steps.pid
    r = dyno(node.daemon, *trace("--log-file", tmp_path / "t", "--pids", pid, "--duration-ms", "5"))
    assert r.returncode == 0, r.stdout + r.stderr
    assert "DURATION" not in r.stdout  # accepted, and without effect
    (place,) = dirs(tmp_path / "t")
    assert written(r) == {pid: str(place)} and len(Trace(place).numbers()) == 2
    # the lines that scripts know come first
    assert r.stdout.splitlines()[-3:-1] == ["Trace output files will be written to:", f"    {tmp_path}/t"]
    r = dyno(node.daemon, "--json", *trace("--log-file", tmp_path / "u", "--pids", pid))
    (row,) = json.loads(r.stdout)
    (place,) = dirs(tmp_path / "u")
    assert row["wait"] == [{"pid": pid, "state": "done", "path": str(place), "why": None}]


def test_a_job_that_tells_no_steps_is_traced_by_time(node, tmp_path):
    pid = node.silent.pid
    r = dyno(node.daemon, *trace("--log-file", tmp_path / "s", "--pids", pid, "--wait-timeout", "1"))
    assert r.returncode == 3 and f"Process {pid}: not done yet" in r.stdout
    assert "--duration-ms instead of --iterations" in r.stderr
    words = ["nputrace", "--duration-ms", "150", "--log-file", tmp_path / "t", "--pids", pid, "--wait"]
    r = dyno(node.daemon, *words)
    assert r.returncode == 0 and list(written(r)) == [pid], r.stdout + r.stderr
    t = Trace(dirs(tmp_path / "t")[0])
    assert [(e["name"], round(e["dur"], -3)) for e in t.steps] == [("trace", 150000)]
    assert t.kind("Kernel") and t.about["complete"]
    r = dyno(node.daemon, *words, "--start-step", "7")
    assert r.returncode == 2 and "'--start-step' needs '--iterations'" in r.stderr


def test_who_refuses_is_named_and_why(node, tmp_path):
    (tmp_path / "file").touch()
    r = dyno(node.daemon, *trace("--log-file", tmp_path / "file" / "t", "--pids", node.steps.pid))
    assert r.returncode == 3 and not written(r)
    assert re.search(rf"^Process {node.steps.pid}: failed: no files can be written below", r.stdout, re.M)
    assert "not carried out in 1 of 1 process" in r.stderr
    # a trace that was accepted, and cannot be written at its end
    out = tmp_path / "gone"
    p = start(node.daemon, *trace("--log-file", out, "--pids", node.steps.pid)[:1], "--start-step",
              node.wait_step() + 30, "--iterations", "1", "--log-file", out, "--pids", node.steps.pid,
              "--wait")  # fmt: skip
    wait_until(out.exists, "it has been accepted")
    shutil.rmtree(out)
    out.write_text("in the way")
    told, err = p.communicate(timeout=60)
    assert p.returncode == 3, told + err
    assert re.search(rf"^Process {node.steps.pid}: failed: .*gone", told, re.M), told
    r = dyno(node.daemon, *trace("--log-file", tmp_path / "t", "--pids", "1"))
    assert r.returncode == 3 and "nothing was triggered" in r.stderr


def test_after_a_stop_the_next_command_works(node, tmp_path):
    """Without a pause: of the monitor, and of a trace that still has something to write."""
    monitor = lambda *words: dyno(node.daemon, "npu-monitor", *words)
    r = monitor("--npu-monitor-start", "--wait")
    assert r.returncode == 0 and r.stdout.count(": the monitor is on\n") == 2
    r = dyno(node.daemon, *trace("--log-file", tmp_path / "t"))
    assert r.returncode == 3 and "npu-monitor is running" in r.stderr
    monitor("--npu-monitor-stop")
    r = dyno(node.daemon, *trace("--log-file", tmp_path / "t", "--pids", node.steps.pid))
    assert r.returncode == 0 and written(r), r.stdout + r.stderr
    dyno(node.daemon, "nputrace", "--duration-ms", "60000", "--log-file", tmp_path / "u")
    node.wait("Running")
    dyno(node.daemon, "nputrace", "--stop", "--pids", node.silent.pid)
    r = dyno(node.daemon, "nputrace", "--stop", "--wait", "--pids", node.steps.pid)
    assert r.returncode == 0 and list(written(r)) == [node.steps.pid], r.stdout + r.stderr
    assert written(r)[node.steps.pid] in map(str, dirs(tmp_path / "u"))
    r = monitor("--npu-monitor-start", "--wait", "--log-file", tmp_path / "m", "--duration", "0.2",
                "--mspti-activity-kind", "Kernel")  # fmt: skip
    assert r.returncode == 0 and r.stdout.count("the monitor has run its time") == 2, r.stderr
    assert len(dirs(tmp_path / "u")) == 2 and len(list((tmp_path / "m").rglob("*.db"))) == 2
    r = monitor("--npu-monitor-stop", "--wait")
    assert r.returncode == 0 and r.stdout.count(": the monitor is off\n") == 2


@pytest.fixture
def framework(build, tmp_path):
    """A process of torch_npu: it polls, and reports states, but never replies."""
    with Daemon(build, tmp_path, ipc=True) as d, Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
        d.client = c
        c.context(0, os.getpid())
        c.request([os.getpid()])
        d.say = lambda trace=None, monitor=None: c.send(
            monitor_status(monitor, pid=os.getpid()) if trace is None else
            trace_status(trace, 1, 5, 7, pid=os.getpid()))  # fmt: skip
        d.fetch = lambda **how: wait_until(lambda: c.request([os.getpid()], **how))
        d.say(trace=IDLE)
        d.say(monitor=IDLE)
        yield d


def test_a_framework_is_waited_for_by_its_states(framework):
    d, pid = framework, os.getpid()
    p = start(d, *trace("--log-file", "/tmp/profile"))
    wait_until(lambda: "Pending" in [x["state"] for x in d.call({"fn": "listProcesses"})["processes"]])
    assert "1 process has yet to fetch a request" in dyno(d, "status").stderr  # as ps says
    assert "PROFILE_START_STEP=-1" in d.fetch()
    assert "no request is pending" in dyno(d, "status").stderr
    for state in READY, RUNNING, IDLE:  # nobody need have seen it in between
        d.say(trace=state)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and f"Process {pid}: the trace is over" in out, out + err
    # it takes no trace by time
    r = dyno(d, "--strict", "nputrace", "--duration-ms", "5", "--log-file", "/tmp/profile")
    assert r.returncode == 3 and "sonde's own monitor alone" in r.stderr
    # a trace follows a stop that was not fetched yet
    d.say(monitor=RUNNING)
    wait_until(lambda: d.call({"fn": "getStatus"})["npumonitor"] == "Running")
    dyno(d, "npu-monitor", "--npu-monitor-stop")
    r = dyno(d, "nputrace", "--start-step", "9", "--iterations", "1", "--log-file", "/tmp/profile")
    assert '"commandStatus":"effective"' in r.stdout, r.stdout + r.stderr
    assert "NPU_MONITOR_STOP=true" in d.fetch() and "PROFILE_START_STEP=9" in d.fetch()
    assert d.client.request([pid]) == ""
    # a stop that is waited for
    p = start(d, "npu-monitor", "--npu-monitor-stop", "--wait")
    d.fetch()
    d.say(monitor=IDLE)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and f"Process {pid}: the monitor is off" in out, out + err


def test_pytorchs_profiler_is_waited_for_until_its_file_is_there(build, tmp_path):
    words = ["gputrace", "--wait", "--log-file", tmp_path / "trace.json"]
    file = tmp_path / f"trace_{os.getpid()}.json"
    with Daemon(build, tmp_path, ipc=True) as d, Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
        c.request()
        for is_written in True, False:
            p = start(d, *words)
            wait_until(c.request)
            c.request(mask=EVENTS)
            wait_until(lambda: d.call({"fn": "listProcesses"})["processes"][0]["state"] == "Busy")
            wait_until(lambda: p.poll() is None and d.call({"fn": "getDaemon"})["jobs"]["delivered"])
            if is_written:
                file.write_text("{}")
            else:
                os.utime(file, (1, 1))
            end = wait_until(lambda: c.request() == "" and p.poll() is not None and [p.communicate()])
            assert p.returncode == (0 if is_written else 3), end
            told = f"Process {os.getpid()}: " + (f"written to {file}" if is_written else "failed: ")
            assert told in end[0][0], end
