# SPDX-License-Identifier: MulanPSL-2.0
"""What the protocol says in tables, cell by cell; and the daemon in networks that lack something."""

import os
import pathlib
import subprocess
import sys
import tempfile

import fabric_client as fc
import pytest
from daemon import Daemon
from test_ctl_fleet import Fake, script, sonde

UNKNOWN = 7
STATES = {-1: "Uninitialized", 0: "Idle", 1: "Running", 2: "Ready", UNKNOWN: "unknown"}
NPU_TRACE = "ACTIVITIES_LOG_FILE=/tmp/t\nPROFILE_START_ITERATION=0\nPROFILE_START_STEP=1"
NPU_MONITOR = "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false"
RESULTS = {
    *("activityProfilersBusy", "activityProfilersTriggered", "eventProfilersBusy"),
    *("eventProfilersTriggered", "processesMatched"),
}


def monitor_is(trace, monitor):
    if trace == fc.RUNNING or monitor == fc.UNINITIALIZED:
        return "ineffective"
    return "effective" if trace in (fc.IDLE, fc.READY) else "unknown"


def trace_is(trace, monitor):
    if monitor == fc.RUNNING or trace == fc.UNINITIALIZED:
        return "ineffective"
    return "effective" if monitor == fc.IDLE else "unknown"


def order(d, config):
    return d.call({"fn": "setKinetOnDemandRequest", "config": config, "pids": [0]})


def test_every_state_and_what_may_be_ordered_in_it(build, tmp_path):
    pid = os.getpid()
    with Daemon(build, tmp_path, ipc=True) as d, fc.Client(d.ipc_dir / "dynolog") as c:
        c.context(0, pid)
        c.request([pid])
        for trace in STATES:
            for monitor in (-1, 0, 1, UNKNOWN):
                c.send(fc.trace_status(trace, 4, 5, 10))
                c.send(fc.monitor_status(monitor))
                c.request([pid])  # answered behind both
                want = {
                    "current_step": 4,
                    "nputrace": STATES[trace],
                    "npumonitor": STATES[monitor],
                }
                if trace in (fc.RUNNING, fc.READY):
                    want |= {"start_step": 5, "stop_step": 10}
                assert d.call({"fn": "getStatus"}) == want
                for config, expected in ((NPU_MONITOR, monitor_is), (NPU_TRACE, trace_is)):
                    reply = order(d, config)
                    status = reply.pop("commandStatus")
                    assert status == expected(trace, monitor), (want, config)
                    assert set(reply) == (RESULTS if status == "effective" else set())
                    assert bool(c.request([pid])) == (status == "effective")


# A process of its own that reports the two states of each line that it reads.
NPU_PROCESS = """
import os, sys
import fabric_client as fc
with fc.Client(sys.argv[1]) as c:
    for line in sys.stdin:
        trace, monitor = map(int, line.split())
        c.send(fc.trace_status(trace))
        c.send(fc.monitor_status(monitor))
        c.request([os.getpid()])
        print("told", flush=True)
"""


def test_libkineto_is_never_gated(build, tmp_path):
    """Whatever state an NPU process beside it is in, and the answer has no commandStatus."""
    pid = os.getpid()
    with Daemon(build, tmp_path, ipc=True) as d, fc.Client(d.ipc_dir / "dynolog") as c:
        c.request([pid])
        npu = subprocess.Popen(
            [sys.executable, "-c", NPU_PROCESS, d.ipc_dir / "dynolog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)},
        )
        with npu:
            for trace in STATES:
                for monitor in (-1, 0, 1, UNKNOWN):
                    print(trace, monitor, file=npu.stdin, flush=True)
                    assert npu.stdout.readline() == "told\n"
                    assert d.call({"fn": "getStatus"})["nputrace"] == STATES[trace]
                    reply = order(d, "ACTIVITIES_LOG_FILE=/tmp/t.json\nPROFILE_START_TIME=0")
                    assert set(reply) == RESULTS and reply["activityProfilersTriggered"] == [pid]
                    assert "/tmp/t.json" in c.request([pid])


def test_the_socket_directory_of_the_environment(build, tmp_path):
    flags = ["--port=0", "--http-port=0", "--enable-ipc-monitor", "--ipc-dir-only"]
    with tempfile.TemporaryDirectory(prefix="sonde_ipc_") as sockets:  # short: 107 bytes
        env = {"KINETO_IPC_SOCKET_DIR": sockets}
        with Daemon(build, tmp_path, *flags, defaults=False, env=env) as d:
            with fc.Client(pathlib.Path(sockets) / "dynolog", bind=sockets) as c:
                assert c.request([os.getpid()]) == ""
            assert d.call({"fn": "listProcesses"})["processes"][0]["endpoint"] == "dir"


@pytest.fixture
def without_ipv6(build, tmp_path):
    """A build directory whose daemon finds no IPv6 in its network namespace."""
    shadow = tmp_path / "shadow"
    (shadow / "bin").mkdir(parents=True)
    program = shadow / "bin" / "sonde"
    program.write_text(
        "#!/bin/sh\n"
        "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done\n"
        f'exec {build}/bin/sonde "$@"\n'
    )
    program.chmod(0o755)
    return shadow


@pytest.mark.parametrize("bind", [(), ("--bind", "0.0.0.0")])
def test_a_machine_without_ipv6(without_ipv6, build, tmp_path, bind):
    with Daemon(without_ipv6, tmp_path, *bind, namespace=True) as d:
        for host in ("127.0.0.1", "localhost"):
            r = d.run(build / "bin/dyno", "--port", d.port, "--hostname", host, "version")
            assert r.returncode == 0, r.stderr
        d.wait_log("ready")
        assert "[::1]" not in d.log()


def test_ipv4_and_ipv6_whatever_the_system_s_default(build, tmp_path):
    """net.ipv6.bindv6only decides what "::" means where nobody says otherwise."""
    shadow = tmp_path / "shadow"
    (shadow / "bin").mkdir(parents=True)
    program = shadow / "bin" / "sonde"
    program.write_text(
        f'#!/bin/sh\necho 1 >/proc/sys/net/ipv6/bindv6only\nexec {build}/bin/sonde "$@"\n'
    )
    program.chmod(0o755)
    made = tmp_path / "certs"
    sonde(build, "-o", made, "--key-type", "ec", "localhost", program=("sonde", "certs"))
    with Daemon(shadow, tmp_path, "--certs-dir", made / "server-localhost", namespace=True) as d:
        for host in ("127.0.0.1", "::1"):
            words = ("--port", d.port, "--certs-dir", made / "client", "--hostname", host, "version")
            r = d.run(build / "bin/dyno", *words)
            assert r.returncode == 0, r.stderr


def test_npu_orders_for_the_nodes_of_a_slurm_job(build, tmp_path):
    """The number of the job says which nodes: NPU processes register without one."""
    bin_dir = script(tmp_path / "bin", "squeue", "echo 127.0.0.1")
    reply = {"commandStatus": "effective", **{k: [] for k in RESULTS}}
    with Fake(setKinetOnDemandRequest=lambda _: reply) as f:
        where = ("--port", f.port, "--slurm-job", "4711")
        for words in (
            ("nputrace", "--start-step", "9", "--iterations", "1", "--log-file", "/tmp/p"),
            ("npu-monitor", "--npu-monitor-start"),
        ):
            sonde(build, *words, *where, program=("dyno",), path=bin_dir)
        orders = [r for r in f.asked if r["fn"] == "setKinetOnDemandRequest"]
        assert [o["job_id"] for o in orders] == [0, 0]
        assert orders[1]["pids"] == [0] and orders[1]["process_limit"] == 3
