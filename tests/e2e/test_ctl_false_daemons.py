# SPDX-License-Identifier: MulanPSL-2.0
"""dyno and sonde ctl against something at that port that is no daemon, or one that means harm:
words and a status, at once; no commands reach the terminal."""

import contextlib
import json
import re
import socket
import struct
import subprocess
import threading

import pytest

COMMANDS = "\x1b]0;owned\x07\x1b[31m\x9b31m\u202e\x7f\n"
ORDERS = [
    ["status"],
    ["version"],
    ["ps"],
    ["gputrace", "--log-file", "/tmp/t.json"],
    ["nputrace", "--start-step", "1", "--iterations", "1", "--log-file", "/tmp/p"],
    ["npu-monitor", "--npu-monitor-start"],
    ["npu-monitor", "--npu-monitor-start", "--wait", "--wait-timeout", "1"],
    ["dcgm-pause"],
]
ROW = {
    "pid": 5, "rank": 2.5, "device": "x", "job_id": -1, "user": COMMANDS, "state": COMMANDS,
    "current_step": 10**17, "last_seen_s": 1e308, "command": COMMANDS,
}  # fmt: skip


def frame(body, length=None):
    return struct.pack("=i", len(body) if length is None else length) + body


ANSWERS = {
    "nothing": b"",
    "half a length": b"\x10\0",
    "no length": frame(b""),
    "a length below zero": frame(b"{}" * 50, -5),
    "a length that nobody has": frame(b"{}" * 50, 2**31 - 1),
    "less than it says": frame(b'{"a":1', 100),
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no object": frame(b"[1,2]"),
    "no JSON": frame(b"hello"),
    "deep JSON": frame(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a NUL": frame(b'{"a":"\0"}'),
    "no UTF-8": frame(b'{"a":"\xff\xfe"}'),
    "an overflow": frame(b'{"a":1e999}'),
}
ODD = {
    "other types": {
        "processesMatched": 5, "activityProfilersTriggered": "x", "activityProfilersBusy": -1,
        "commandStatus": 7, "current_step": "z", "npumonitor": [], "nputrace": {}, "version": {},
        "status": COMMANDS, "processes": {"a": 1}, "next": "x", "reason": COMMANDS,
    },
    "rows of other types": {"processes": [None, 1, "x", [], {}, ROW], "next": None},
    "an old daemon": {"status": 1},
    "only a status": {"commandStatus": "ineffective"},
    "outcomes that mean harm": {
        "processesMatched": [5, 6, "x"], "activityProfilersTriggered": [5, 6, None], "processes": [ROW],
        "requestTraceId": "7", "expected": [5, 6], "waiting": 3, "failed": [{"pid": 5, "why": COMMANDS}],
        "written": {"pid": 6}, "not_written": [7, {"pid": 6, "why": 4}], "told": None,
    },
}  # fmt: skip


@contextlib.contextmanager
def port_that_says(answer):
    """Gives every connection these bytes, or what the function returns, once it has asked something."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                c, _ = server.accept()
                with c, contextlib.suppress(OSError):
                    c.settimeout(5)
                    c.recv(65536)
                    c.sendall(answer() if callable(answer) else answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def dyno(build, port, *words):
    return subprocess.run(
        [build / "bin/dyno", "--port", str(port), "--timeout", "2", *words],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip


def check_terminal(r):
    for said in (r.stdout, r.stderr):
        assert not set(said) & set("\x1b\x07\x7f\x9b\u202e"), said


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_answer(build, name):
    with port_that_says(ANSWERS[name]) as port:
        for words in ORDERS:
            r = dyno(build, port, *words)
            assert r.returncode == 1 and "dyno " in r.stderr, r
            check_terminal(r)
        rows = json.loads(dyno(build, port, "--json", "status").stdout)
        assert not rows[0]["ok"] and rows[0]["error"] and rows[0]["reply"] is None


@pytest.mark.parametrize("name", ODD)
def test_an_answer_of_another_kind(build, name):
    body = json.dumps(ODD[name]).encode()
    with port_that_says(frame(body)) as port:
        for words in ORDERS:
            r = dyno(build, port, *words)
            assert r.returncode in ((0, 1, 3) if "--wait" in words else (0, 1)), r
            check_terminal(r)
            assert json.loads(dyno(build, port, "--json", *words).stdout)


def test_a_host_says_little_of_each_rank(build):
    """The page of several hosts has them beside those of others: numbers and short words, and no more than asked for."""
    long = {k: COMMANDS * 2000 for k in ("rank", "device", "job_id", "state", "current_step", "step_age_s")}
    odd = {"pid": {"a": [1]}, "rank": [2], "state": {"a": 1}, "step_age_s": True}
    reply = {"status": "x" * 200_000, "total": 3, "processes": [long, odd, None, 5, ROW, *[{}] * 100_000]}
    with port_that_says(frame(json.dumps(reply).encode())) as port:
        words = ["ctl", "watch", "--json", "--ranks", "-n", "1", "--port", str(port)]
        r = subprocess.run([build / "bin/sonde", *words], capture_output=True, text=True, timeout=30)
    assert r.returncode == 0 and len(r.stdout) < 256 * 300, len(r.stdout)
    ((host,),) = [json.loads(line) for line in r.stdout.splitlines()]
    assert host["ok"] and host["total"] == 3 and "reply" not in host and len(host["ranks"]) == 256
    for rank in host["ranks"][:2]:
        assert all(rank[k] is None for k in (*long, "pid")), rank
    assert host["ranks"][4]["pid"] == 5 and host["ranks"][4]["rank"] == 2.5


def test_ps_waits_for_what_is_being_read(build):
    """A daemon answers a first list before it has read of the processes what /proc knows."""
    rows = [{"pid": 5, "rank": None, "command": None, "facts_pending": True, "state": "Idle"}]
    body = lambda: frame(json.dumps({"processes": rows, "total": 1, "next": None}).encode())
    asked = []

    def answer():
        asked.append(1)
        if len(asked) == 3:
            rows[0].update(rank=2, command="train.py", facts_pending=False)
        return body()

    with port_that_says(answer) as port:
        r = dyno(build, port, "ps")
    assert r.returncode == 0 and re.search(r"^ *5 +2 .* train\.py$", r.stdout, re.M), r
    assert len(asked) == 3
