# SPDX-License-Identifier: MulanPSL-2.0
"""sonde ctl with many hosts: where they come from, that they are asked at once, and what is told."""

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time

import pytest
from daemon import Daemon
from fabric_client import Client

HOSTS = 5


class Fake(threading.Thread):
    """A daemon that knows only the functions it is given, as those of others do: for any other it
    ends the connection. Without any it takes connections and says nothing. A function gives JSON,
    or the bytes of an answer."""

    def __init__(self, **functions):
        super().__init__(daemon=True)
        self.functions = functions
        self.asked = []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.start()

    def run(self):
        silent = []
        with contextlib.suppress(OSError):
            while True:
                c, _ = self.sock.accept()
                if not self.functions:
                    silent.append(c)
                    continue
                with c:
                    self.answer(c)

    def answer(self, c):
        with c.makefile("rb") as f:
            while head := f.read(4):
                request = json.loads(f.read(struct.unpack("=i", head)[0]))
                self.asked.append(request)
                if request["fn"] not in self.functions:
                    return
                said = self.functions[request["fn"]](request)
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                c.sendall(struct.pack("=i", len(body)) + body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.join(10)


@pytest.fixture(scope="module")
def fleet(build, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        path = tmp_path_factory.mktemp("fleet")
        yield [stack.enter_context(Daemon(build, path, ipc=True)) for _ in range(HOSTS)]


def at(*daemons):
    return ",".join(f"127.0.0.1:{d if isinstance(d, int) else d.port}" for d in daemons)


def sonde(build, *words, status=0, path=None, program=("sonde", "ctl"), **kw):
    env = dict(os.environ)
    if path:
        env["PATH"] = f"{path}:{env['PATH']}"
    r = subprocess.run(
        [build / "bin" / program[0], *program[1:], *map(str, words)],
        capture_output=True, text=True, timeout=60, env=env, **kw,
    )  # fmt: skip
    assert r.returncode == status, (words, r.stdout, r.stderr)
    return r


def rows(text):
    """The rows of a table by host."""
    return {line.split()[0]: line for line in text.splitlines()[1:]}


def test_a_table_of_all_hosts(build, fleet):
    r = sonde(build, "status", "--hostname", at(*fleet))
    assert r.stdout.splitlines()[0].split() == "HOST NPUTRACE NPUMONITOR STEP START STOP NOTE".split()
    assert set(rows(r.stdout)) == set(at(*fleet).split(","))
    assert "certificate" not in r.stdout
    data = json.loads(sonde(build, "version", "--hostname", at(*fleet), "--json").stdout)
    assert [d["ok"] for d in data] == [True] * HOSTS and data[0]["reply"]["version"]


def test_hosts_that_fail_are_told_last_and_delay_nobody(build, fleet):
    with Fake() as silent:
        hosts = at(1, silent, *fleet)
        started = time.monotonic()
        r = sonde(build, "status", "--timeout", "1", "--hostname", hosts, status=1)
        assert time.monotonic() - started < 30
        lines = r.stdout.splitlines()
        assert len(lines) == 1 + HOSTS + 2
        assert all("failed: " in line for line in lines[-2:])
        assert "refused" in rows(r.stdout)["127.0.0.1:1"]
        assert f"2 of {HOSTS + 2} hosts failed" in r.stderr
        r = sonde(build, "ps", "--timeout", "1", "--hostname", hosts, status=1)
        assert f"2 of {HOSTS + 2} hosts failed" in r.stderr
        data = json.loads(sonde(build, "status", "--json", "--timeout", "1", "--hostname", hosts, status=1).stdout)  # fmt: skip
        assert [d["ok"] for d in data] == [False, False] + [True] * HOSTS
        assert data[1]["error"] and data[1]["reply"] is None


def test_traces_start_together(build, fleet):
    with contextlib.ExitStack() as stack:
        clients = []
        for d in fleet[:3]:
            c = stack.enter_context(Client(d.ipc_dir / "dynolog", bind=d.ipc_dir))
            c.request([os.getpid()])
            clients.append(c)
        before = time.time()
        r = sonde(
            build, "gputrace", "--log-file", "/tmp/t.json", "--hostname", at(*fleet[:3]), "--start-delay", "20"
        )
        after = time.time()
        configs = [c.request([os.getpid()]) for c in clients]
        starts = {re.search(r"PROFILE_START_TIME=(\d+)", c).group(1) for c in configs}
        assert len(starts) == 1
        assert before + 19 < int(starts.pop()) / 1000 < after + 21
        for d, config in zip(fleet, configs):
            assert f"ACTIVITIES_LOG_FILE=/tmp/t_127.0.0.1-{d.port}.json\n" in config
        assert r.stdout.splitlines()[0].split() == "HOST STATE MATCHED TRIGGERED NOTE".split()
        for row in rows(r.stdout).values():
            assert row.split()[1:4] == ["triggered", "1", "1"]
        assert "3 hosts: 3 processes matched, request sent to 3" in r.stderr
        # iterations: at the same one
        sonde(build, "gputrace", "--log-file", "/tmp/t.json", "--hostname", at(*fleet[:3]), "--iterations", "2")
        for c in clients:
            assert "PROFILE_START_ITERATION_ROUNDUP=100\n" in c.request([os.getpid()])


def test_a_host_without_processes_among_others(build, fleet):
    with Client(fleet[0].ipc_dir / "dynolog", bind=fleet[0].ipc_dir) as c:
        c.request([os.getpid()])
        words = ("gputrace", "--log-file", "/tmp/t.json", "--hostname", at(fleet[0], fleet[4]))
        r = sonde(build, *words, status=3)
        assert "triggered" in rows(r.stdout)[at(fleet[0])]
        assert "no match" in rows(r.stdout)[at(fleet[4])]
        assert "no process has registered" in rows(r.stdout)[at(fleet[4])]
        c.request([os.getpid()])
        sonde(build, *words, program=("dyno",))
        c.request([os.getpid()])


def test_clocks_that_differ_are_named(build):
    def clock(offset_s):
        return lambda request: {"time_ns": time.time_ns() + int(offset_s * 1e9)}

    def matched(request):
        return {"processesMatched": [7], "activityProfilersTriggered": [7], "activityProfilersBusy": 0}

    with contextlib.ExitStack() as stack:
        fakes = [
            stack.enter_context(Fake(getTime=clock(offset), setKinetOnDemandRequest=matched))
            for offset in (0, 0, 3600, 0, -7)
        ]
        r = sonde(build, "gputrace", "--log-file", "/tmp/t.json", "--hostname", at(*fakes))
        late = re.findall(r"the clock of (\S+) is at least ([\d.]+) s (\S+)", r.stderr)
        assert [(h, w) for h, _, w in late] == [(at(fakes[2]), "ahead"), (at(fakes[4]), "behind")]
        assert float(late[0][1]) > 3500


def test_a_daemon_of_others_gets_general_advice(build):
    functions = {
        "setKinetOnDemandRequest": lambda r: {"commandStatus": "ineffective"},
        "getStatus": lambda r: {"current_step": 3, "npumonitor": "Running", "nputrace": "Idle"},
    }
    words = ("nputrace", "--log-file", "/tmp/p", "--start-step", "9", "--iterations", "1")
    with Fake(**functions) as f:
        r = sonde(build, "--port", f.port, "--hostname", "127.0.0.1", *words, program=("dyno",))
        assert "npu-monitor is running" in r.stderr
        assert "'dyno npu-monitor --npu-monitor-stop'" in r.stderr
        assert [a["fn"] for a in f.asked] == ["setKinetOnDemandRequest", "explainRequest", "getStatus"]
        r = sonde(build, "ps", "--port", f.port, "--hostname", "127.0.0.1", status=1)
        assert r.stdout == "" and r.stderr


def test_a_refusal_that_says_why_needs_no_second_question(build):
    refused = {"commandStatus": "ineffective", "reason": "the other half is at work"}
    both = {
        "setKinetOnDemandRequest": lambda r: refused if r.get("with_reason") else
        {"commandStatus": "ineffective"},
        "explainRequest": lambda r: {"reason": "asked afterwards", "matched": [], "processes": []},
    }  # fmt: skip
    words = ("nputrace", "--log-file", "/tmp/p", "--start-step", "9", "--iterations", "1")
    with Fake(**both) as f, Fake(**both) as g:
        there = ("--hostname", at(f))
        r = sonde(build, *words, *there, status=3)
        assert "nothing was triggered: the other half is at work" in r.stderr
        assert [a["fn"] for a in f.asked] == ["setKinetOnDemandRequest"]
        r = sonde(build, *words, "--hostname", at(f, g), status=3)
        assert all(row.endswith("  the other half is at work") for row in rows(r.stdout).values())
        # what dyno prints of an answer is as it ever was
        del f.asked[:]
        r = sonde(build, *there, *words, program=("dyno",))
        assert r.stdout.splitlines()[-1] == 'response = {"commandStatus": "ineffective"}'
        assert "nothing was triggered: asked afterwards" in r.stderr
        assert "with_reason" not in f.asked[0] and f.asked[-1]["fn"] == "explainRequest"


# --- where hosts come from ---


def script(path, name, text):
    path.mkdir(exist_ok=True)
    (path / name).write_text(f"#!/bin/sh\n{text}\n")
    (path / name).chmod(0o755)
    return path


def test_a_file_of_hosts(build, fleet, tmp_path):
    listed = tmp_path / "hosts"
    listed.write_text(f"# all of them\n{at(fleet[0])} slots=8\n\n{at(*fleet[1:])}  # more\n")
    r = sonde(build, "status", "--hosts-file", listed)
    assert set(rows(r.stdout)) == set(at(*fleet).split(","))
    r = sonde(build, "status", "--hosts-file", "-", input=at(fleet[0], fleet[1]))
    assert len(rows(r.stdout)) == 2
    listed.write_bytes(b"\xef\xbb\xbf127.0.0.1\r\n")
    sonde(build, "status", "--port", fleet[0].port, "--hosts-file", listed)
    listed.write_text("a\nb c\n")
    r = sonde(build, "status", "--hosts-file", listed, status=2)
    assert "line 2: unexpected 'c'" in r.stderr
    listed.write_text("# none\n")
    assert "names no host" in sonde(build, "status", "--hosts-file", listed, status=1).stderr
    assert "none" in sonde(build, "status", "--hosts-file", tmp_path / "none", status=1).stderr


def test_the_nodes_of_a_slurm_job(build, fleet, tmp_path):
    bin_dir = script(tmp_path / "bin", "squeue", 'echo "$@" >> "$0.args"; echo "127.0.0.[1-2]"')
    port = fleet[0].port
    words = ("gputrace", "--log-file", "/tmp/t.json", "--port", port, "--slurm-job", "4711", "--timeout", "1")
    data = json.loads(sonde(build, *words, "--json", status=1, path=bin_dir).stdout)
    assert [d["host"] for d in data] == ["127.0.0.1", "127.0.0.2"]
    assert (bin_dir / "squeue.args").read_text() == "-h -j 4711 -o %N\n"
    # the job's id is that of the processes
    with Fake(setKinetOnDemandRequest=lambda r: {"processesMatched": []}) as f:
        script(bin_dir, "squeue", "echo 127.0.0.1")
        sonde(build, *words, "--port", f.port, status=3, path=bin_dir)
        assert f.asked[0]["job_id"] == 4711
    # gone from the queue, but still known
    script(bin_dir, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    script(bin_dir, "scontrol", "echo 'JobId=4711 ReqNodeList=x NodeList=127.0.0.1 BatchHost=x'")
    sonde(build, "status", "--port", port, "--slurm-job", "4711", path=bin_dir)
    script(bin_dir, "scontrol", "exit 1")
    r = sonde(build, "status", "--slurm-job", "4711", status=1, path=bin_dir)
    assert "Invalid job id specified" in r.stderr
    # tasks of an array: one waits, the others run
    script(bin_dir, "squeue", "printf '\\n127.0.0.1\\n127.0.0.[1-2] \\n'")
    data = json.loads(sonde(build, "status", "--json", "--port", port, "--slurm-job", "4711", status=1, path=bin_dir).stdout)  # fmt: skip
    assert [d["host"] for d in data] == ["127.0.0.1", "127.0.0.2"]
    script(bin_dir, "squeue", "echo")
    r = sonde(build, "status", "--slurm-job", "4711", status=1, path=bin_dir)
    assert "has no nodes now" in r.stderr
    script(bin_dir, "scontrol", "echo ' NodeList=(null) '")
    r = sonde(build, "status", "--slurm-job", "4711", status=1, path=bin_dir)
    assert "has no nodes now" in r.stderr
    # garbage is not the fault of the command line
    script(bin_dir, "squeue", "printf 'a\\033[2J\\377b'")
    r = sonde(build, "status", "--json", "--slurm-job", "4711", status=1, path=bin_dir)
    assert "nodes of Slurm job 4711" in r.stderr and "\033" not in r.stderr
    assert json.loads(r.stdout) == []
    assert "is not the number" in sonde(build, "status", "--slurm-job", "1;ls", status=2).stderr


def test_the_pods_of_a_cluster(build, fleet, tmp_path):
    pods = {
        "items": [
            {
                "metadata": {"name": "sonde-x"},
                "spec": {"nodeName": "worker-1"},
                "status": {"phase": "Running", "podIP": "127.0.0.1", "hostIP": "10.0.0.1"},
            },
            {"metadata": {"name": "sonde-y"}, "status": {"phase": "Pending"}},
        ]
    }
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    bin_dir = script(
        tmp_path / "bin", "kubectl", f'echo "$@" >> "$0.args"; cat {tmp_path / "pods.json"}'
    )
    words = ("status", "--json", "--port", fleet[0].port, "--k8s-selector", "app=sonde")
    (row,) = json.loads(sonde(build, *words, "--k8s-namespace", "ops", path=bin_dir).stdout)
    assert row["host"] == "worker-1" and row["address"] == "127.0.0.1" and row["ok"]
    assert (
        bin_dir / "kubectl.args"
    ).read_text() == "get pods -o json --selector=app=sonde --namespace=ops\n"
    (tmp_path / "pods.json").write_text('{"items":[]}')
    assert "no running pod" in sonde(build, *words, status=1, path=bin_dir).stderr
    for said in ("<html>", '{"items":7}'):
        (tmp_path / "pods.json").write_text(said)
        r = sonde(build, *words, status=1, path=bin_dir)
        assert "kubectl did not answer with" in r.stderr and r.stdout == "[]\n"
    script(bin_dir, "kubectl", "echo 'E1115 attempt' >&2; echo 'error: no configuration has been provided' >&2; exit 1")
    r = sonde(build, *words, status=1, path=bin_dir)
    assert "'kubectl' failed: error: no configuration has been provided" in r.stderr
