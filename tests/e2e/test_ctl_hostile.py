# SPDX-License-Identifier: MulanPSL-2.0
"""sonde ctl and dyno against daemons that answer oddly, and at terminals that are small, full or
closed."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from capabilities import lacks
from test_ctl_fleet import Fake, at, rows, sonde

FUNCTIONS = ("getStatus", "getVersion", "listProcesses", "setKinetOnDemandRequest", "dcgmProfResume")
COMMANDS = (
    ["status"],
    ["version"],
    ["ps"],
    ["watch", "-n", "1"],
    ["gputrace", "--log-file", "/tmp/t.json"],
    ["nputrace", "--log-file", "/tmp/p", "--start-step", "-1", "--iterations", "1"],
    ["npu-monitor", "--npu-monitor-start"],
    ["dcgm-resume"],
)
# what a terminal obeys: escape sequences in both spellings, a bell, the direction of the text
EVIL = "\x1b[2J\x07\x9b31m\x7f\u202eevil"


def saying(answer):
    """A daemon that says the same to everything."""
    return Fake(**{name: lambda request: answer for name in FUNCTIONS})


def obeyed(text):
    return re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)


def run(build, *words):
    """Whatever the exit status of an answer."""
    r = subprocess.run(
        [build / "bin/dyno", *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert r.returncode in (0, 1), (words, r)
    return r


def evil_answer():
    return {
        "nputrace": EVIL, "npumonitor": EVIL, "current_step": 3, "version": EVIL, "status": EVIL,
        "processes": [{"pid": 1, "user": EVIL, "state": EVIL, "command": EVIL}], "total": 1,
    }  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_text_of_a_daemon_moves_a_terminal(build, words):
    escaped = json.dumps(evil_answer()).encode()
    # the same without escapes, as far as JSON allows, and with lines of its own
    plain = json.dumps(evil_answer(), ensure_ascii=False, indent=1).replace("\n", "\r\n").encode()
    for answer in (escaped, plain):
        with saying(answer) as f:
            for hosts in (at(f), at(f, 1)):
                r = run(build, "--hostname", hosts, *words)
                assert not obeyed(r.stdout + r.stderr), r


def test_an_answer_is_printed_as_the_same_json(build):
    want = evil_answer()
    with saying(json.dumps(want, ensure_ascii=False, indent=1).encode()) as f:
        lines = run(build, "--hostname", at(f), "status").stdout.splitlines()
        assert len(lines) == 2 and json.loads(lines[1]) == want


def odd_answers():
    yield b"hello"
    yield b"[1]"
    yield b'{"a":"\xff"}'
    yield b'{"a":"\\u0000"}'
    yield b'{"current_step":99999999999999999999999999}'
    yield b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}"
    yield ('{"status":"x' + "é" * 400 + '"}').encode()
    yield {}
    yield {
        "nputrace": 5, "npumonitor": [], "current_step": "x", "version": 7, "status": [1],
        "processesMatched": ["a", None, {}], "activityProfilersTriggered": ["x", 1.5],
        "activityProfilersBusy": "no", "commandStatus": 3, "next": "z", "total": "t",
        "processes": [1, "a", None, {"pid": "x", "last_seen_s": "u", "command": 7}],
    }  # fmt: skip


def test_json_has_a_row_for_every_host_whatever_they_say(build):
    with contextlib.ExitStack() as stack:
        fakes = [stack.enter_context(saying(answer)) for answer in odd_answers()]
        for words in COMMANDS:
            r = run(build, "--hostname", at(1, *fakes), "--json", *words)
            data = json.loads(r.stdout)
            assert [d["port"] for d in data] == [1, *(f.port for f in fakes)], (words, r.stderr)
            assert all(d["ok"] or d["error"] for d in data)
            assert r.returncode == 1


def test_a_list_without_end_ends(build):
    page = {"processes": [{"pid": 1}], "next": 1}
    with saying(page) as f:
        (row,) = json.loads(run(build, "--hostname", at(f), "ps", "--json").stdout)
        assert len(row["processes"]) == 2 and len(f.asked) == 2


def test_daemons_of_others(build):
    with Fake(getStatus=lambda r: {"status": 1}) as f:
        assert "the daemon is up" in run(build, "--hostname", at(f), "status").stderr
        line = run(build, "--hostname", at(f), "watch", "-n", "1").stdout
        assert line.endswith(" nputrace=- npumonitor=- step=- processes=-\n")
        # nobody listed processes: whether there are any is not known
        r = run(build, "--hostname", at(f, 1), "ps")
        assert r.returncode == 1 and "has registered" not in r.stderr
    functions = {
        "setKinetOnDemandRequest": lambda r: {"commandStatus": "ineffective"},
        "getStatus": lambda r: {"current_step": -1, "npumonitor": "Uninitialized", "nputrace": "Uninitialized"},
    }  # fmt: skip
    with Fake(**functions) as f:
        r = run(build, "--hostname", at(f), "gputrace", "--log-file", "/tmp/t.json")
        assert "traces no others" in r.stderr
        r = sonde(build, "status", "--hostname", at(f, 1), status=1)
        assert rows(r.stdout)[at(f)].split()[1:] == ["Uninitialized", "Uninitialized", "-", "-", "-"]


# --- outputs ---


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_an_output_that_is_full_is_a_failure(build, words):
    answer = {"processesMatched": [7], "activityProfilersTriggered": [7], "status": True, "processes": []}
    with saying(answer) as f, open("/dev/full", "w") as full:
        r = subprocess.run(
            [build / "bin/dyno", "--hostname", at(f), *words],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
        assert r.returncode == 1 and "cannot write the output" in r.stderr, r


def test_watch_writes_json_by_the_line(build):
    with saying({"nputrace": "Idle"}) as f:
        lines = run(build, "--hostname", at(f), "watch", "-n", "2", "--json").stdout.splitlines()
        assert [json.loads(line)[0]["reply"] for line in lines] == [{"nputrace": "Idle"}] * 2


class Screen:
    """A command at a terminal of its own."""

    def __init__(self, path, words, columns, lines):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.read(0, 1)  # until the size is set
            os.execv(path, [str(path), *map(str, words)])
        self.pid = pid
        self.seen = b""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.write(self.fd, b"\n")

    def wait_for(self, what, times=1):
        end = time.monotonic() + 20
        while self.seen.count(what) < times:
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 1)[0]:
                self.seen += os.read(self.fd, 65536)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def two_wide(request):
    return {
        "nputrace": "Idle", "npumonitor": "Idle", "current_step": 3, "total": 2,
        "processes": [
            {"pid": 7, "user": "人民", "state": "ok", "command": "训练" * 40},
            {"pid": 8, "user": "root", "state": "ok", "command": "x" * 80},
        ],
    }  # fmt: skip


def columns_of(text):
    return sum(2 if ord(c) > 0x2E80 else 1 for c in text)


def frame_of(screen):
    """The lines of the first picture."""
    text = screen.seen.split(b"\x1b[H")[1].split(b"\x1b[J")[0].decode()
    return [re.sub("\x1b\\[K", "", line) for line in text.split("\r\n")], text.split("\r\n")


@pytest.mark.parametrize("columns", [20, 60, 120])
def test_watch_fits_its_terminal(build, columns):
    with Fake(getStatus=two_wide, listProcesses=two_wide) as f:
        words = ("--hostname", at(f), "watch", "--interval", "100")
        with Screen(build / "bin/dyno", words, columns, 30) as s:
            s.wait_for(b"\x1b[J")
            lines, raw = frame_of(s)
            assert max(map(columns_of, lines)) <= columns, lines
            # cleared before it is written: behind a full line that would take its last character
            for line, bare in zip(raw, lines):
                assert line == "\x1b[K" + bare or not bare
            if columns == 120:
                first, second = (line for line in lines if "训练" in line or "xx" in line)
                assert columns_of(first[: first.index("训")]) == second.index("xx")
            # another size is seen at once, not after the interval
            fcntl.ioctl(s.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns + 10, 0, 0))
            s.wait_for(b"\x1b[J", 2)


def test_ctrl_z_gives_the_screen_back(build):
    with Fake(getStatus=two_wide, listProcesses=two_wide) as f:
        words = ("--hostname", at(f), "watch", "--interval", "100")
        with Screen(build / "bin/dyno", words, 80, 24) as s:
            s.wait_for(b"\x1b[J")
            os.kill(s.pid, signal.SIGTSTP)
            s.wait_for(b"\x1b[?1049l")
            _, status = os.waitpid(s.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            os.kill(s.pid, signal.SIGCONT)
            s.wait_for(b"\x1b[?1049h", 2)
            s.wait_for(b"\x1b[J", 2)


# --- sonde metrics ---


def test_metrics_are_json_when_there_are_none(build, tmp_path):
    env = {"PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}
    words = [build / "bin/sonde", "metrics", "--json", "--source", "npu"]
    r = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    if r.returncode == 0:
        lacks("no-npu", "this machine has one")
    assert r.returncode == 1 and "sonde metrics: npu: " in r.stderr
    data = json.loads(r.stdout)
    assert data["samples"] == [] and data["missing"]["npu"]


def test_metrics_are_json_by_the_line(build):
    words = [build / "bin/sonde", "metrics", "--json", "--source", "kernel", "--watch", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as p:
        try:
            for _ in range(2):
                assert json.loads(p.stdout.readline())["samples"][0]["source"] == "kernel"
        finally:
            p.kill()
