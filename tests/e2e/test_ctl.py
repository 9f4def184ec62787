# SPDX-License-Identifier: MulanPSL-2.0
"""sonde ctl and dyno against one daemon: what is printed, what is refused, and the exit status."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from daemon import Daemon
from fabric_client import IDLE, READY, RUNNING, Client, monitor_status, trace_status

REPO = pathlib.Path(__file__).resolve().parents[2]
NPUTRACE = ("nputrace", "--log-file", "/tmp/profile_data", "--start-step", "10", "--iterations", "2")


@pytest.fixture(scope="module")
def node(build, tmp_path_factory):
    with Daemon(build, tmp_path_factory.mktemp("ctl"), ipc=True) as d:
        yield d


@pytest.fixture
def client(node):
    """A process of ours that has registered; gone with the test."""
    with Client(node.ipc_dir / "dynolog", bind=node.ipc_dir) as c:
        yield c


def run(node, program, *words, **kw):
    first = [program] if program == "dyno" else ["sonde", "ctl"]
    return node.run(node.build / "bin" / first[0], *first[1:], "--port", node.port, *words, **kw)


def dyno(node, *words, status=0, **kw):
    r = run(node, "dyno", *words, **kw)
    assert r.returncode == status, (words, r.stdout, r.stderr)
    return r


def ctl(node, *words, status=0, **kw):
    r = run(node, "ctl", *words, **kw)
    assert r.returncode == status, (words, r.stdout, r.stderr)
    return r


# --- output as it is known ---


def test_status_and_version_print_the_json_line(node):
    r = dyno(node, "status")
    assert r.stdout.splitlines()[0] == "Running in no-certificate mode"
    assert set(json.loads(r.stdout.splitlines()[1])) >= {"current_step", "npumonitor", "nputrace"}
    assert len(r.stdout.splitlines()) == 2
    version = json.loads(dyno(node, "version").stdout.splitlines()[1])["version"]
    assert re.match(r"\d+\.\d+", version)


GPUTRACE = """\
Kineto config =\x20
ACTIVITIES_LOG_FILE=/tmp/trace.json
PROFILE_START_TIME=0
ACTIVITIES_DURATION_MSECS=500
PROFILE_REPORT_INPUT_SHAPES=true
PROFILE_WITH_STACK=false
PROFILE_WITH_FLOPS=false
PROFILE_WITH_MODULES=false
response length = {length}
response = {response}

Matched 1 processes
Trace output files will be written to:
    /tmp/trace_{pid}.json
"""


def test_gputrace_tells_the_files(node, client):
    pid = os.getpid()
    client.request([pid])
    r = dyno(node, "gputrace", "--log-file", "/tmp/trace.json", "--pids", pid, "--record-shapes")
    response = re.search(r"^response = (.*)$", r.stdout, re.M).group(1)
    assert json.loads(response)["processesMatched"] == [pid]
    # to the byte what dynolog's own client prints
    assert r.stdout == GPUTRACE.format(pid=pid, length=len(response), response=response)
    assert "request sent to 1 process;" in r.stderr
    # and the process gets it
    text = client.request([pid])
    assert "ACTIVITIES_LOG_FILE=/tmp/trace.json" in text and "REQUEST_TRACE_ID=" in text


def test_gputrace_of_memory_and_of_nobody(node, client):
    pid = os.getpid()
    client.request([pid])
    words = ("gputrace", "--log-file", "/tmp/trace.json", "--profile-memory", "--pids")
    out = dyno(node, *words, pid).stdout
    pickle = f"    /tmp/trace_{pid}.json\n      Or /tmp/memory_snapshot_{pid}.pickle\n\nMemory profiles "
    assert pickle in out and out.endswith("/understanding-gpu-memory-1/\n")
    out = dyno(node, *words, 1000009).stdout
    assert out.endswith("}\n\nNo processes were matched, please check --job-id or --pids flags\n")


def test_a_quote_and_a_backslash_in_a_path_arrive(node, client):
    client.request([os.getpid()])
    name = '/tmp/a "b" \\c.json'
    dyno(node, "gputrace", "--log-file", name, "--iterations", "3", "--with_stacks")
    text = client.request([os.getpid()])
    assert f"ACTIVITIES_LOG_FILE={name}\n" in text
    assert "ACTIVITIES_ITERATIONS=3\n" in text and "PROFILE_WITH_STACK=true\n" in text


def test_more_processes_than_the_limit(node, client):
    pids = [1000001, 1000002, 1000003, 1000004]
    for pid in pids:
        client.request([pid])
    r = dyno(node, "gputrace", "--log-file", "/tmp/t.json", "--pids", ",".join(map(str, pids)))
    assert "Matched 4 processes" in r.stdout
    assert "request sent to 3 processes;" in r.stderr
    assert "1 more matched and were left out: --process-limit is 3" in r.stderr
    # the others are busy now
    r = dyno(node, "gputrace", "--log-file", "/tmp/t.json", "--pids", "1000001")
    assert "not fetched an earlier request yet" in r.stderr


def test_npu_monitor_and_nputrace_exclude_each_other(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d, Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
        monitor_then_trace(d, c)


def monitor_then_trace(node, client):
    pid = os.getpid()
    client.context(0, pid)
    client.request([pid])
    client.send(trace_status(IDLE, 1, pid=pid))
    client.send(monitor_status(IDLE, pid=pid))
    r = dyno(node, "npu-monitor", "--npu-monitor-start", "--mspti-activity-kind", "Kernel,API")
    lines = r.stdout.splitlines()
    assert lines[1:4] == ["Npu monitor config = ", "NPU_MONITOR_START=true", "NPU_MONITOR_STOP=false"]
    assert "MSPTI_ACTIVITY_KIND=Kernel,API" in lines
    assert json.loads(lines[-1][len("response = ") :])["commandStatus"] == "effective"
    assert "NPU_MONITOR_START=true" in client.request([pid])
    client.send(monitor_status(RUNNING, pid=pid))
    r = dyno(node, *NPUTRACE)
    assert r.stdout.splitlines()[-1] == 'response = {"commandStatus":"ineffective"}'
    assert "nothing was triggered" in r.stderr and "npu-monitor" in r.stderr
    dyno(node, "--strict", *NPUTRACE, status=3)
    r = ctl(node, *NPUTRACE, status=3)
    answer = json.loads(r.stdout.splitlines()[-1][len("response = ") :])
    assert answer["commandStatus"] == "ineffective"
    assert answer["reason"].startswith("npu-monitor is running") and answer["reason"] in r.stderr
    # stopping is always possible
    dyno(node, "npu-monitor", "--npu-monitor-stop")
    assert "NPU_MONITOR_STOP=true" in client.request([pid])
    client.send(monitor_status(IDLE, pid=pid))
    r = dyno(node, *NPUTRACE, "--analyse", "--data-simplification", "false")
    lines = r.stdout.splitlines()
    assert lines[1:4] == ["NpuTrace config = ", "ACTIVITIES_LOG_FILE=/tmp/profile_data", "PROFILE_START_ITERATION=0"]  # fmt: skip
    assert lines[-3:] == ["Matched 1 processes", "Trace output files will be written to:", "    /tmp/profile_data"]  # fmt: skip
    assert "PROFILE_ANALYSE=true" in client.request([pid])
    client.send(trace_status(READY, 7, 10, 12, pid=pid))
    assert json.loads(dyno(node, "status").stdout.splitlines()[1]) == {
        "current_step": 7, "npumonitor": "Idle", "nputrace": "Ready", "start_step": 10, "stop_step": 12,
    }  # fmt: skip
    assert "waits for step 10" in dyno(node, "status").stderr
    client.send(trace_status(IDLE, 57, pid=pid))
    r = dyno(node, *NPUTRACE)
    assert "step 10 is over already, the job is at step 57" in r.stderr
    client.request([pid])


def test_what_a_command_without_effect_exits_with(node):
    words = ("gputrace", "--log-file", "/tmp/t.json", "--job-id", "77")
    r = dyno(node, *words)
    assert "No processes were matched, please check --job-id or --pids flags" in r.stdout
    assert "nothing was triggered: " in r.stderr
    dyno(node, *words, "--strict", status=3)
    ctl(node, *words, status=3)
    dyno(node, *words, "--fail-on-no-process", status=1)
    r = dyno(node, "dcgm-pause", "--duration-s", "3")
    assert "response = " in r.stdout


def test_json(node, client):
    client.request([os.getpid()])
    (row,) = json.loads(ctl(node, "status", "--json").stdout)
    assert row["ok"] and row["host"] == "localhost" and row["port"] == node.port
    assert "nputrace" in row["reply"]
    r = ctl(node, "gputrace", "--json", "--log-file", "/tmp/t.json", "--pids", os.getpid())
    (row,) = json.loads(r.stdout)
    assert row["state"] == "triggered" and row["matched"] == row["triggered"] == 1
    assert row["files"] == [f"/tmp/t_{os.getpid()}.json"]
    client.request([os.getpid()])
    (row,) = json.loads(ctl(node, "ps", "--json").stdout)
    assert os.getpid() in [p["pid"] for p in row["processes"]]


# --- what is refused ---


@pytest.mark.parametrize(
    "words, said",
    [
        (["gputrace"], "option '--log-file' is missing"),
        (["gputrace", "--log-file", "/tmp/a=b.json"], "no '='"),
        (["gputrace", "--log-file", "/tmp/a\nPROFILE_WITH_STACK"], "control character"),
        (["gputrace", "--log-file", "t", "--pids", "1],[2"], "process ids"),
        (["gputrace", "--log-file", "t", "--profile-memory", "--iterations", "2"], "--duration-ms only"),
        (["gputrace", "--log-file", "t", "--job-id", "99999999999999999999"], "2^63"),
        (["nputrace", "--start-step", "1", "--iterations", "1"], "option '--log-file' is missing"),
        (["nputrace", "--log-file", "", "--start-step", "1", "--iterations", "1"], "must be a valid directory"),
        (["nputrace", "--log-file", "/etc/passwd", "--start-step", "1", "--iterations", "1"], "must be a valid directory"),
        (["nputrace", "--log-file", "d", "--iterations", "1"], "option '--start-step' is missing"),
        ([*NPUTRACE, "--start-step", "-2"], "must be a non-negative integer or -1"),
        ([*NPUTRACE, "--iterations", "0"], "must be a positive integer"),
        ([*NPUTRACE, "--activities", "GPU"], "expected CPU,NPU, NPU,CPU, CPU or NPU"),
        ([*NPUTRACE, "--host-sys", "cpu,gpu"], "invalid NPU trace host system 'gpu'"),
        ([*NPUTRACE, "--rank-list", "1,,2"], "must be a comma-separated list of integers"),
        ([*NPUTRACE, "--rank-list", "1,x"], "invalid integer value 'x'"),
        ([*NPUTRACE, "--gc-detect-threshold", "soon"], "expected a number or None"),
        ([*NPUTRACE, "--mstx-domain-include", "x" * 1025], "too long, max allowed: 1024"),
        (["npu-monitor", "--mspti-activity-kind", "Kernel,Nix"], "invalid MSPTI activity kind 'Nix'"),
        (["npu-monitor", "--mspti-activity-kind", "kernel"], "did you mean 'Kernel'?"),
        (["npu-monitor", "--mspti-activity-kind", "Marker,Comunication"], "did you mean 'Communication'?"),
        (["npu-monitor", "--kind", "Kernel"], "did you mean '--mspti-activity-kind'?"),
        (["npu-monitor", "--duration", "-1"], "must be a positive number"),
        (["npu-monitor", "--json-rotate-log-lines", "99"], "must be an integer in [100, 500000]"),
        (["npu-monitor", "--json-rotate-log-files", "1"], "must be -1 or an integer greater than or equal to 2"),
        (["npu-monitor", "--export-type", "Text"], "expected DB or Jsonl"),
        (["status", "--hostname", "a b"], "is not a host name"),
        (["status", "--hostname", "a,,b"], "a name is missing"),
        (["status", "--hostname", "node[1-999999999]"], "more than 65536 hosts"),
        (["status", "--port", "0"], "expected a number from 1 to 65535"),
        (["status", "extra"], "unexpected argument 'extra'"),
        (["statsu"], "unknown command 'statsu'; did you mean 'status'?"),
        (["--hostnmae", "a", "status"], "did you mean '--hostname'?"),
        ([], "Commands:"),
    ],
)  # fmt: skip
def test_wrong_command_lines(build, words, said):
    for program in (["dyno"], ["sonde", "ctl"]):
        r = subprocess.run(
            [build / "bin" / program[0], *program[1:], *words], capture_output=True, text=True, timeout=30
        )
        assert r.returncode == 2, r
        assert said in r.stderr, r.stderr
        assert r.stdout == ""


@pytest.fixture
def monitored(build, tmp_path):
    """A daemon and a process of a framework that fetches what it is told."""
    with Daemon(build, tmp_path, ipc=True) as d, Client(d.ipc_dir / "dynolog", bind=d.ipc_dir) as c:
        pid = os.getpid()
        c.context(0, pid)
        c.request([pid])
        c.send(trace_status(IDLE, 1, pid=pid))
        c.send(monitor_status(IDLE, pid=pid))

        def order(program, *words, status=0):
            r = run(d, program, "npu-monitor", *words)
            assert r.returncode == status, r.stderr
            c.request([pid])
            return r.stderr

        yield order


def test_one_process_is_told_in_the_singular(monitored):
    assert "request sent to 1 process; it starts its monitor, or changes" in monitored("ctl", "--npu-monitor-start")
    assert "request sent to 1 process; it stops its monitor, if that is running" in monitored("ctl", "--npu-monitor-stop")
    assert "it changes its monitor" in monitored("ctl", "--report-interval-s", "5")


def test_a_filter_that_drops_what_is_asked_for(monitored):
    start = ("--npu-monitor-start", "--mspti-activity-kind", "Kernel,MemCpy,API")
    said = monitored("ctl", *start, "--filter", "API:launch")
    assert said.splitlines()[-1].endswith("nothing is collected of Kernel: '--filter' does not name it")
    assert "nothing is" not in monitored("ctl", *start, "--filter", "API:launch; Kernel : MatMul;")
    assert "nothing is" not in monitored("ctl", *start)


def test_a_filter_of_a_kind_that_is_not_there(monitored):
    start = ("--npu-monitor-start", "--mspti-activity-kind", "Kernel", "--filter", "Kernel:Add;Kernal:MatMul")
    said = monitored("ctl", *start, status=2)
    assert "'Kernal:MatMul' of '--filter': there is no such kind; did you mean 'Kernel'?" in said
    # scripts of dyno go on, and it is the last thing that is said
    last = monitored("dyno", *start).splitlines()[-1]
    assert "ignored: 'Kernal:MatMul'" in last and "did you mean 'Kernel'?" in last


def test_a_duration_shorter_than_the_interval(monitored):
    short = ("--npu-monitor-start", "--duration", "5")
    assert "may end before the first report" in monitored("ctl", *short)
    assert "may end" not in monitored("ctl", *short, "--log-file", "/tmp/out")


@pytest.mark.parametrize("words", [[",,"], ["--clients", ","]])
def test_certificates_for_nobody(build, tmp_path, words):
    r = subprocess.run(
        [build / "bin/sonde", "certs", "-o", tmp_path / "certs", *words],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert r.returncode == 2 and "the list of names is empty" in r.stderr, r
    assert not (tmp_path / "certs").exists()


def test_options_before_and_after_the_command(node):
    for words in (
        ["--port", node.port, "status"],
        ["status", "--port", node.port],
        ["--port", "1", "status", f"--port={node.port}"],
        ["--certs_dir", "NO_CERTS", "--port", node.port, "status"],
    ):
        r = node.run(node.build / "bin/dyno", *words)
        assert r.returncode == 0, r.stderr


def test_nobody_there(node, build):
    r = node.run(build / "bin/dyno", "--port", "1", "status")
    assert r.returncode == 1
    assert "localhost:1" in r.stderr and "refused" in r.stderr
    r = node.run(build / "bin/dyno", "--certs-dir", node.dir / "none", "status")
    assert r.returncode == 1 and "--certs-dir must be a valid directory" in r.stderr


# --- help ---


def test_help(build):
    def said(*words, status=0):
        r = subprocess.run(words, capture_output=True, text=True, timeout=30, cwd=build / "bin")
        assert r.returncode == status, r
        return r.stdout

    assert "dyno [options] <command>" in said("./dyno", "--help")
    assert "nputrace" in said("./dyno", "help")
    assert "  dyno gputrace --log-file" in said("./dyno", "help", "gputrace")
    assert "  dyno gputrace --log-file" in said("./dyno", "gputrace", "--help")
    assert "  sonde ctl ps [options]" in said("./sonde", "help", "ctl", "ps")
    assert "Commands:" in said("./sonde", "help", "ctl")
    assert re.match(r"dyno \d", said("./dyno", "--version"))
    assert said("./dyno", "-V") == said("./dyno", "--version") == said("./dyno", "status", "-V")
    assert re.match(r"sonde \d", said("./sonde", "ctl", "--version"))


@pytest.mark.parametrize("page", ["sonde-ctl", "dyno"])
def test_manual_pages_are_fresh(build, page):
    r = subprocess.run(
        [build / "bin/sonde", "help", "--man", page], capture_output=True, text=True, timeout=30
    )
    assert r.returncode == 0, r.stderr
    path = REPO / "docs/man" / f"{page}.1"
    assert path.read_text() == r.stdout, f"run: sonde help --man {page} > docs/man/{page}.1"


# --- ps and watch ---


def test_ps_lists_processes(node, client):
    client.request([os.getpid()], job=4711)
    end = time.monotonic() + 20
    while True:  # a list does not wait long for the commands
        r = ctl(node, "ps", "--job-id", "4711")
        title, row = r.stdout.splitlines()
        if "py" in row or time.monotonic() > end:
            break
    assert title.split() == "PID RANK DEV JOB USER STATE STEP SEEN COMMAND".split()
    assert row.split()[0] == str(os.getpid()) and " 4711 " in row and "py" in row
    r = ctl(node, "ps", "--job-id", "4712")
    assert "without --job-id and --pids all are listed" in r.stderr


def test_ps_of_more_processes_than_one_answer_holds(node, client):
    want = set(range(2000000, 2000600))
    for pid in want:
        client.request([pid], job=9)
    (row,) = json.loads(ctl(node, "ps", "--json", "--job-id", "9").stdout)
    assert {p["pid"] for p in row["processes"]} == want


def test_watch_writes_lines_where_there_is_no_terminal(node):
    r = ctl(node, "watch", "-n", "2")
    lines = r.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.match(r"\d\d:\d\d:\d\d localhost nputrace=\w+ npumonitor=\w+ step=-?\d+", line)


def test_watch_on_a_terminal_ends_with_ctrl_c(node, build):
    pid, fd = pty.fork()
    if pid == 0:
        path = str(build / "bin/sonde")
        os.execv(path, [path, "ctl", "--port", str(node.port), "watch"])
    seen = b""
    end = time.monotonic() + 20
    try:
        while b"NPUTRACE" not in seen or b"COMMAND" not in seen:
            assert time.monotonic() < end, seen
            if select.select([fd], [], [], 1)[0]:
                seen += os.read(fd, 65536)
        assert b"\x1b[?1049h" in seen and b"\x1b[?1049l" not in seen
        os.kill(pid, signal.SIGINT)
        while b"\x1b[?1049l" not in seen:
            assert time.monotonic() < end, seen
            seen += os.read(fd, 65536)
        _, status = os.waitpid(pid, 0)
        pid = 0
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
    finally:
        os.close(fd)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
