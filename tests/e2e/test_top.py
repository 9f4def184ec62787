# SPDX-License-Identifier: MulanPSL-2.0
"""What takes the time of devices: reports to the daemon, getTop, `sonde top`."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request

import pytest
from daemon import Daemon
from fabric_client import IDLE, RUNNING, Client, datagram, monitor_status
from test_guest_clients import Guest
from test_status_page import Browser
from waiting import wait_until

SECOND = 1_000_000_000
GEMM = "_Z4gemmILi128EEvPKfS1_Pfi"


@pytest.fixture
def node(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


def row(name, calls, mean, kind="Kernel", device=0):
    return {
        "kind": kind, "device": device, "name": name, "calls": calls, "total_ns": calls * mean,
        "min_ns": mean // 2, "max_ns": mean * 3, "p50_ns": mean, "p99_ns": mean * 2,
    }  # fmt: skip


def report(pid=None, rank=0, rows=None, end=None, comm=0.1, **more):
    end = end or time.time_ns()
    rows = [row(GEMM, 100, 2_000_000), row("softmax", 50, 1_000_000)] if rows is None else rows
    return {
        "pid": os.getpid() if pid is None else pid, "rank": rank, "host": "h",
        "from": end - SECOND, "to": end, "lost": 0, "interval_s": 1,
        "devices": [{"device": 0, "busy_ns": 600_000_000, "kernel_ns": 400_000_000,
                     "comm_ns": int(comm * SECOND), "copy_ns": 10_000_000}],
        "rows": rows, "others": {"calls": 3, "total_ns": 50_000_000}, "names": 7, **more,
    }  # fmt: skip


def send(client, r):
    client.send(datagram("sondeTop", r if isinstance(r, bytes) else json.dumps(r).encode()))


def top(d, **request):
    return d.call({"fn": "getTop", **request})


def dropped(d):
    return d.call({"fn": "getDaemon"})["endpoints"]["dropped"]


def sonde(d, *words, **kw):
    return d.run(d.build / "bin" / "sonde", *words, "--port", d.port, **kw)


# --- the daemon ---


def test_a_report_is_kept_until_its_process_ends(node):
    with Guest(node) as g:
        send(g, report(steps={"count": 5, "mean_ns": 200_000_000}))
        send(g, report(rows=[row(GEMM, 100, 3_000_000)]))
        r = wait_until(lambda: top(node).get("processes"))
        wait_until(lambda: top(node)["processes"][0]["rows"][0]["before_calls"] == 100)
        (p,) = top(node)["processes"]
        assert (p["pid"], p["rank"], p["lost"], p["names"]) == (os.getpid(), 0, 0, 7)
        (gemm,) = p["rows"]
        assert gemm["mean_ns"] == 3_000_000 and gemm["before_total_ns"] == 200_000_000
        assert gemm["share"] == pytest.approx(300 / 350)
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/api/top") as f:
            assert json.load(f)["processes"][0]["rows"] == p["rows"]
        url = f"http://127.0.0.1:{node.http_port}/api/v1/getTop?pids=1&limit=3"
        with urllib.request.urlopen(url) as f:
            assert json.load(f)["processes"] == []
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics").read()
        assert b'what="busy"' in metrics and b"sonde_regressions" in metrics
    child = "import sys,os,time; sys.path[:0]=%r\nimport test_top as t\nclass D: ipc_dir=%r\n" % (
        sys.path, None,
    )  # fmt: skip
    code = child.replace("ipc_dir=None", f"ipc_dir=__import__('pathlib').Path({str(node.ipc_dir)!r})")
    code += "g=t.Guest(D)\nt.send(g,t.report(rank=4))\nprint(1,flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as p:
        p.stdout.readline()
        wait_until(lambda: any(x["pid"] == p.pid for x in top(node)["processes"]))
        p.kill()
    wait_until(lambda: not any(x["pid"] == p.pid for x in top(node)["processes"]))
    assert r


def test_what_is_no_report_is_dropped_and_counted(node):
    good = report()
    bad = [
        b"", b"[]", b"{}", b"nonsense", b'{"pid":1' * 50, b"[" * 2000 + b"]" * 2000,
        json.dumps(good).encode()[:-1], json.dumps(good).encode() + b"x",
        b'{"pid":"\xff"}',
    ]  # fmt: skip
    for key, value in (
        ("pid", -1), ("pid", "1"), ("pid", 2**40), ("from", -5), ("to", 1.5), ("rows", 7),
        ("rows", [7]), ("rows", [{}]), ("rows", [row("x", 1, 1)] * 513), ("devices", [[]]),
        ("rows", [{**row("x", 1, 1), "calls": 0}]), ("rows", [{**row("x", 1, 1), "name": 3}]),
        ("rows", [{**row("x", 1, 1), "name": "n" * 4113}]), ("lost", -1), ("others", []),
        ("rows", [{**row("x", 1, 1), "total_ns": -1}]), ("steps", 3), ("rank", "0"),
        ("rows", [{**row("x", 1, 1), "kind": "k" * 33}]), ("to", 10),
    ):  # fmt: skip
        bad.append(json.dumps({**good, key: value}).encode())
    with Guest(node) as g:
        for b in bad:
            send(g, b)
        wait_until(lambda: dropped(node)["bad_json"] == len(bad))
        assert top(node)["processes"] == []
        # of a process that nobody knows, though it is there
        send(g, report(pid=os.getppid()))
        wait_until(lambda: node.call({"fn": "getDaemon"})["jobs"]["late_reports"] == 1)
        # the edges of what is a report
        send(g, report(rows=[row("n" * 4112, 1, 0)], rank=None, others=None, steps=None))
        send(g, {k: v for k, v in good.items() if k in ("pid", "from", "to")})
        wait_until(lambda: top(node)["processes"] and not top(node)["processes"][0]["rows"])


def test_only_the_owner_may_report(node, users):
    os.chmod(node.ipc_dir, 0o777)
    with Guest(node):
        with Client(node.ipc_dir / "dynolog", bind=None) as c:
            users.bob.do(lambda: send(c, report(pid=os.getppid())))
        wait_until(lambda: dropped(node)["refused"] == 1)
        assert top(node)["processes"] == []


def test_a_kernel_that_becomes_slower_is_told_once_and_when_it_is_over(node):
    sent = []

    def interval(mean, other=1_000_000):
        sent.append(mean)
        rows = [row(GEMM, 100, mean), row("softmax", 50, other)]
        send(g, report(rows=rows, rank=3, names=len(sent)))

    with Guest(node) as g:
        interval(9_000_000)  # the first launches are slow, and decide nothing
        for noise in (0, 3, -2, 1):
            interval(2_000_000 + noise * 10_000)
        for _ in range(2):  # one slow interval is none, nor are two
            interval(3_000_000)
        interval(2_000_000)
        wait_until(lambda: [p["names"] for p in top(node)["processes"]] == [len(sent)])
        assert top(node)["regressions"] == [] and "regression" not in node.log()
        for _ in range(6):
            interval(2_600_000)
        (r,) = wait_until(lambda: top(node)["regressions"])
        assert (r["name"], r["rank"], r["kind"], r["mean_ns"]) == (GEMM, 3, "Kernel", 2_600_000)
        assert abs(r["baseline_ns"] - 2_000_000) < 50_000
        node.wait_log(rf"rank 3, Kernel '{GEMM}': regression, it takes 2600.000 us, \d+ % more")
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics").read()
        line = re.search(rb"sonde_regression_ratio\{[^}]*gemm[^}]*\} ([\d.]+)", metrics)
        assert 1.25 < float(line[1]) < 1.35
        assert re.search(rb"sonde_regressions\{[^}]*\} 1\n", metrics)
        for _ in range(3):
            interval(2_010_000)
        wait_until(lambda: not top(node)["regressions"])
        node.wait_log("no regression any more")
        assert node.log().count("regression, it takes") == 1


def test_regressions_can_be_switched_off(build, tmp_path):
    with Daemon(build, tmp_path, "--regression-percent", "0", ipc=True) as d, Guest(d) as g:
        for mean in [2_000_000] * 6 + [9_000_000] * 6:
            send(g, report(rows=[row(GEMM, 100, mean)]))
        means = lambda: [p["rows"][0]["mean_ns"] for p in top(d)["processes"]]
        wait_until(lambda: means() == [9_000_000])
        assert top(d)["regressions"] == []


def test_names_of_others_do_not_write_lines_into_the_log(node):
    evil = "k\n2026-01-01 sonde: everything is fine\x1b[2J\x9b31m\u202e"
    with Guest(node) as g:
        for mean in [2_000_000] * 6 + [9_000_000] * 4:
            send(g, report(rows=[row(evil, 100, mean)]))
        node.wait_log("regression, it takes")
        assert "\n2026-01-01 sonde" not in node.log() and "\x1b" not in node.log()
        assert node.log().isascii()
        r = sonde(node, "top", "--count", "1", "--no-start")
        assert "k?2026" in r.stdout or "k\\n2026" in r.stdout, r.stdout
        assert "\x1b" not in r.stdout and "\n2026-01-01" not in r.stdout


def answer_request(g, part, words):
    """Fetches a request and replies to it: why it is not carried out, or nothing. Its number."""
    text = wait_until(g.request)
    assert part in text
    number = re.search(r"REQUEST_TRACE_ID=(\d+)", text)[1]
    g.send(datagram("sondeSaid", f"{number} {words}".encode()))
    return number


def test_the_status_page_shows_it(node, tmp_path):
    evil = "<img src=x onerror=document.title='evil'>"
    with Guest(node) as g, Browser(tmp_path) as b:
        g.send(monitor_status(RUNNING))
        for mean in [2_000_000] * 6 + [9_000_000] * 4:
            wait = row("hcom_allReduce_", 10, mean, "Communication")
            send(g, report(rows=[row(evil, 100, mean), row("other", 10, 1000), wait]))
        b.ask("Page.navigate", url=f"http://localhost:{node.http_port}/")
        b.until("document.querySelectorAll('#top tr').length === 3")
        first = b.js("document.querySelector('#top tr').innerText")
        assert evil in first and "900 ms" in first and "Kernel" in first and "87 %" in first
        words = b.js("document.getElementById('top-words').textContent")
        assert "on rank 0 takes 9 ms, 350 % more than usual" in words
        # who waits is said to wait, and is not painted as what has become slower
        assert "Waiting for other ranks: hcom_allReduce_ on rank 0 waits longer" in words
        assert b.js("document.querySelectorAll('#top-words .bad').length") == 1
        assert "hcom" not in b.js("document.querySelector('#top-words .bad').textContent")
        assert b.js("document.querySelector('#top img, #top-words img')") is None
        assert "evil" not in b.js("document.title")
        # a button reaches the guest
        result = "document.getElementById('result')"
        b.js("document.getElementById('m-stop').click()")
        reply = answer_request(g, "NPU_MONITOR_STOP=true", "")
        said = b.until(f"!{result}.hidden && {result}.textContent")
        assert "The monitor stops in 1 process" in said
        # a trace that is refused is not said to have begun, nor one that fails later to be there
        g.send(monitor_status(IDLE))
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Idle")
        click = "document.querySelector('#trace-form button').click()"
        b.js(click)
        answer_request(g, "ACTIVITIES_LOG_FILE=/tmp/trace", "no files can be written there")
        said = b.until(f"{result}.textContent.includes('Refused') && {result}.textContent")
        assert said == f"Refused by 1 process.Process {os.getpid()}: no files can be written there."
        assert b.js(f"{result}.className") == "note bad"
        b.js(click)
        reply = answer_request(g, "ACTIVITIES_LOG_FILE=/tmp/trace", "")
        b.until(f"{result}.textContent.includes('1 process will be traced')")
        g.send(datagram("sondeFiles", f"{os.getpid()} {reply} the disk is full".encode()))
        said = b.until(f"{result}.className === 'note bad' && {result}.textContent")
        assert "failed in 1 of 1" in said and "the disk is full" in said


# --- the command ---


@contextlib.contextmanager
def working(d, can_stop=True, interval=0.3):
    """A guest that reports while it is told to; gives the texts of its orders."""
    g, texts, end = Guest(d), [], threading.Event()
    mean = [2_000_000]

    def work():
        running = False
        while not end.is_set():
            text = g.request()
            if text:
                texts.append(text)
                if "NPU_MONITOR_START=true" in text or "NPU_MONITOR_STOP=true" in text:
                    running = "NPU_MONITOR_START=true" in text
                    g.send(monitor_status(RUNNING if running else IDLE))
            if running:
                send(g, report(rows=[row(GEMM, 100, mean[0]), row("a\x1bb", 9, 10)]))
                mean[0] += 100_000
            g.receive(interval)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield texts
    finally:
        end.set()
        thread.join()
        g.close()


def test_top_starts_the_monitor_shows_and_stops_it(node):
    with working(node) as texts:
        r = sonde(node, "top", "--once", "--interval", "1")
        assert r.returncode == 0, r.stderr
        assert "the monitor was off: it is started in 1 process" in r.stderr
        assert "the monitor is stopped again" in r.stderr
        # whoever has to wait for long renews it meanwhile
        told = lambda: [x for x in texts if "START=true" in x or "STOP=true" in x]
        start, stop = wait_until(lambda: len(told()) == 2 and told())
        assert "MSPTI_ACTIVITY_KIND=Kernel,Communication\n" in start
        assert "REPORT_INTERVAL_S=1\n" in start and "NPU_MONITOR_STOP=true" in stop
        assert "Devices are busy 60 % of the time" in r.stdout
        assert "gemm<128>(float const*, float const*, float*, int)" in r.stdout
        # by then some reports may have come, and each has a mean that is longer
        seen = re.search(r"\d\.\d % +100 +(\d)(\d)0 ms +\1\.\2\d ms +(\S+) ms .*Kernel", r.stdout)
        assert float(seen[3]) == pytest.approx(2 * float(f"{seen[1]}.{seen[2]}")), r.stdout
        # kernels and communication are parts of one whole: the time that there was, one second
        share, total = re.search(r"(\S+) % +100 +(\d+) ms .*Kernel", r.stdout).groups()
        assert float(share) == pytest.approx(int(total) / 10), r.stdout
        most = re.search(r"takes the most, (\d+) % of the time", r.stdout.replace("\n", " "))
        assert int(most[1]) == pytest.approx(float(share), abs=0.51), r.stdout
        assert "\x1b" not in r.stdout


def test_once_is_an_interval_that_began_after_the_command(node):
    with Guest(node) as g:
        g.send(monitor_status(RUNNING))
        send(g, report(lost=3))  # one that is over
        wait_until(lambda: top(node)["processes"])
        end, sent = threading.Event(), []

        def work():
            begun = time.time_ns()
            while not end.wait(0.7):
                now = time.time_ns()
                send(g, {**report(end=now), "from": begun})
                sent.append(begun)
                begun = now

        thread = threading.Thread(target=work)
        thread.start()
        try:
            soon = []
            for _ in range(5):
                start = time.time_ns()
                r = sonde(node, "top", "--once", "--json")
                (look,) = map(json.loads, r.stdout.splitlines())
                began, after = look["ranks"][0]["from"], [x for x in sent if x > start]
                assert began in after, r.stdout
                soon.append(began in after[:2])
                if soon[-1]:
                    break
            assert soon[-1], "it may come late once, where there is little time to be had"
            # who wants what is known already gets it
            r = sonde(node, "top", "--count", "1", "--json")
            assert json.loads(r.stdout)["ranks"][0]["from"] < time.time_ns() - SECOND // 2
        finally:
            end.set()
            thread.join()


def test_what_a_monitor_tells_at_its_end_is_no_interval(node):
    end = time.time_ns()
    with Guest(node) as g:
        moment = {"from": end - SECOND // 20, "interval_s": 2, "lost": 4}
        send(g, {**report(end=end), **moment})  # nothing to add it to
        wait_until(lambda: node.call({"fn": "getDaemon"})["jobs"]["late_reports"] == 0)
        assert top(node)["processes"] == []
        send(g, report(end=end, interval_s=1))
        wait_until(lambda: top(node)["processes"])
        busy = [{"device": 0, "busy_ns": 18 * SECOND, "comm_ns": 7}]
        send(g, {**report(end=end + SECOND, devices=busy), **moment, "to": end + SECOND // 20,
                 "from": end, "incomplete": 5, "crowded": 6, "unwritten": 7, "unsent": 8})  # fmt: skip
        (p,) = wait_until(lambda: [x for x in top(node)["processes"] if x["lost"] == 4])
        assert p["interval_s"] == 1 and p["devices"][0]["busy_ns"] == 600_000_000
        assert (p["incomplete"], p["crowded"], p["unwritten"], p["unsent"]) == (5, 6, 7, 8)
        # and whoever says so: a device is not busier than the time
        send(g, report(end=end + 2 * SECOND, devices=busy))
        wait_until(lambda: top(node)["processes"][0]["devices"][0]["busy_ns"] == SECOND)


def test_what_is_missing_is_said(node):
    losses = {"lost": 4, "incomplete": 1, "crowded": 6, "unwritten": 7, "unsent": 8}
    with Guest(node) as g:
        late = [{"device": 0, "busy_ns": SECOND // 2, "late_ns": SECOND // 4}]
        send(g, report(devices=late, **losses))
        wait_until(lambda: top(node)["processes"])
        r = sonde(node, "top", "--count", "1", "--no-start", "--json")
        look = json.loads(r.stdout)
        assert {k: look[k] for k in losses} == losses == {k: look["ranks"][0][k] for k in losses}
        for words in (
            "4 activities are missing from these numbers", "1 mark is not reported",
            "6 activities are in no sum", "7 activities are not in the files",
            "8 reports did not reach the daemon", "25 % of the time were reported too late",
        ):  # fmt: skip
            assert words in look["answer"], look["answer"]
        for p in look["ranks"]:
            assert p["told_late"] == 0.25


def test_what_is_no_longer_slower_is_said_to_be_so(node):
    def interval(mean, kind="Kernel"):
        send(g, report(rows=[row(GEMM, 100, mean, kind), row("x", 50, 1_000_000)], rank=3))
        wait_until(lambda: top(node)["processes"][0]["rows"][0]["mean_ns"] == mean)

    def answer():
        return json.loads(sonde(node, "top", "--count", "1", "--no-start", "--json").stdout)["answer"]

    with Guest(node) as g:
        send(g, report())
        wait_until(lambda: top(node)["processes"])
        for mean in [2_000_000] * 6 + [2_600_000] * 3:
            interval(mean)
        assert re.search(r"Slower than before: 'void gemm<128>.* takes 2.60 ms, 30 % more", answer())
        interval(1_990_000)
        words = answer()
        assert re.search(r"No longer slower: 'void gemm.* takes 1.99 ms again, as usual; it was", words)
        assert "Slower than before" not in words and "-0" not in words and "waits" not in words
        for mean in [1_000_000] * 6 + [1_500_000] * 3:
            interval(mean, "Communication")
        assert "the time it waits for other ranks is in it." in answer()


def test_top_only_looks(node):
    with working(node) as texts:
        r = sonde(node, "top", "--once", "--no-start")
        assert r.returncode == 3 and "the monitor is off" in r.stderr
        assert not r.stdout and not texts
        node.ctl("npu-monitor", "--npu-monitor-start")
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Running")
        r = sonde(node, "top", "--count", "3", "--json")
        assert r.returncode == 0
        looks = [json.loads(line) for line in r.stdout.splitlines()]
        assert len(looks) == 3 and looks[2]["kernels"][0]["change"] > 0
        assert looks[0]["ranks"][0]["rank"] == 0 and looks[0]["running"] == 1
        assert len(texts) == 1, "one that was on is left as it is"


def test_top_of_nobody(node):
    r = sonde(node, "top", "--once")
    assert r.returncode == 3 and "sonde monitor -- COMMAND" in r.stderr
    r = node.run(node.build / "bin" / "sonde", "top", "--once", "--port", "1")
    assert r.returncode == 1 and "cannot" in r.stderr.lower() or "refused" in r.stderr.lower()


def test_top_names_the_slowest_rank(node):
    with Guest(node) as g:
        for rank, comm in enumerate((0.31, 0.30, 0.05, 0.29)):
            code = (
                f"import sys,time,pathlib; sys.path[:0]={sys.path!r}\nimport test_top as t\n"
                f"class D: ipc_dir=pathlib.Path({str(node.ipc_dir)!r})\n"
                "g=t.Guest(D)\nprint(1,flush=True)\nsys.stdin.readline()\n"
                f"t.send(g,t.report(rank={rank},comm={comm},"
                "steps={'count':10,'mean_ns':100_000_000}))\ntime.sleep(60)"
            )
            words = [sys.executable, "-c", code]
            p = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            p.stdout.readline()
            node.children = [*getattr(node, "children", []), p]
        for p in node.children:  # all at once: none is late when the last one comes
            p.stdin.close()
        try:
            wait_until(lambda: len(top(node)["processes"]) == 4)
            s = top(node)["slowest"]
            assert s["rank"] == 2 and s["by"] == "waiting" and 0.23 < s["ratio"] < 0.26
            r = sonde(node, "top", "--count", "1", "--no-start")
            assert "Rank 2 is the slowest" in r.stdout
            assert "the others wait 25 % of the time for it, 25.0 ms a step" in r.stdout
            assert re.search(r"^ +2 .* slowest", r.stdout, re.M)
            # twice the same rank is two jobs
            send(g, report(rank=2))
            wait_until(lambda: top(node)["slowest"] is None)
            r = sonde(node, "top", "--count", "1", "--no-start", "--by", "rank")
            assert "several jobs" in r.stdout and "NAME" not in r.stdout
        finally:
            for p in node.children:
                p.kill()
                p.wait()
                p.stdout.close()


def screen_of(d, *words, keys=b"", seconds=60, end=None, rows=30, columns=100, want=b"busy",
              term="xterm", when=b"busy", then=None):  # fmt: skip
    """Runs sonde top on a terminal; gives what it wrote and its exit status. then: what is done
    when that is seen."""
    pid, fd = pty.fork()
    if not pid:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        os.chdir(d.dir)
        os.execve(
            d.build / "bin" / "sonde",
            ["sonde", "top", "--port", str(d.port), *words],
            {**d.env, "TERM": term},
        )
    seen, limit, sent = b"", time.monotonic() + seconds, False
    while True:
        assert time.monotonic() < limit, seen[-2000:]
        try:
            seen += os.read(fd, 65536)
        except OSError:
            break
        if then and when in seen:
            then()
            then = None
        if not sent and want in seen:
            sent = True
            if end:
                os.kill(pid, end)
            else:
                os.write(fd, keys)
    os.close(fd)
    return seen, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_top_on_a_terminal(node):
    with working(node) as texts:
        seen, status = screen_of(node, "--interval", "1", keys=b"q")
        assert status == 0, seen
        assert seen.startswith(b"\x1b[?1049h") and b"\x1b[?25h\x1b[?1049l" in seen
        assert b"\x1b[1mDevices are busy" in seen and b"gemm<128>" in seen
        assert b"a\x1bb" not in seen
        assert b"the monitor is stopped again" in seen
        wait_until(lambda: "NPU_MONITOR_STOP=true" in texts[-1])


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_top_stops_the_monitor_whatever_ends_it(node, end):
    with working(node) as texts:
        seen, status = screen_of(node, "--interval", "1", end=end, rows=5, columns=20)
        assert status == 0, seen
        assert seen.count(b"\x1b[?1049l") == 1
        wait_until(lambda: "NPU_MONITOR_STOP=true" in texts[-1])
        for line in re.split(rb"\r?\n", seen[: seen.rindex(b"\x1b[?1049l")]):
            plain = re.sub(rb"\x1b\[[?0-9;]*[a-zA-Z]", b"", line).decode()
            assert len(plain) <= 20, plain


def test_top_stops_the_monitor_when_nobody_reads(node):
    with working(node) as texts:
        words = [node.build / "bin" / "sonde", "top", "--port", str(node.port), "--interval", "1"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            assert p.stdout.readline()
            p.stdout.close()
            assert p.wait(60) == 1
        wait_until(lambda: "NPU_MONITOR_STOP=true" in texts[-1])


# --- the whole way: a job on the simulated stack, its monitor, its recorder, the daemon ---


@contextlib.contextmanager
def job(d, *words, **more):
    """simtrain, started as people start their jobs."""
    simtrain, mspti = d.build / "sim" / "simtrain", d.build / "sim" / "libmspti.so"
    env = {"KINETO_IPC_SOCKET_DIR": str(d.ipc_dir), **more}
    p = d.popen(
        d.build / "bin" / "sonde", "monitor", "--mspti", mspti, "--", simtrain, "--forever",
        "--quiet", *words, env=env, start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield p
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()


def test_top_of_a_job_with_a_slow_rank(node):
    with job(node, "--ranks", "4", "--step-ms", "20", "--slow-rank", "2:400"):
        wait_until(lambda: top(node)["known"] == 4)
        named = []
        for _ in range(3):  # one right behind the other: none sees the end of that before it
            before = time.time_ns()
            r = sonde(node, "top", "--once", "--json", "--interval", "1")
            (once,) = map(json.loads, r.stdout.splitlines())
            assert len(once["ranks"]) == 4, r.stdout
            for x in once["ranks"]:
                assert x["from"] >= before and x["interval_s"] >= 0.5, x
                assert 0 < x["kernels"] <= x["busy"] <= 1 and x["told_late"] < 0.2, x
            named.append(once["slowest"] and once["slowest"]["rank"])
        assert named.count(2) >= 2, named  # another one may just have been held up
        r = sonde(node, "top", "--count", "4", "--interval", "1", "--json")
        assert r.returncode == 0, r.stderr
        assert "started in 4 processes" in r.stderr and "stopped again" in r.stderr
        looks = [json.loads(line) for line in r.stdout.splitlines()]
        last = looks[-1]
        assert [x["rank"] for x in last["ranks"]] == [0, 1, 2, 3] and last["lost"] == 0
        assert {k["kind"] for k in last["kernels"]} == {"Kernel", "Communication"}
        assert any(x["slowest"] and x["slowest"]["rank"] == 2 for x in looks), r.stdout
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Idle")
        # and the monitor can be had again, for something else
        r = node.ctl("npu-monitor", "--npu-monitor-start", "--report-interval-s", "1")
        assert "request sent to 4 processes" in r.stderr
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Running")
    # killed while it was monitored: nobody is there any more, and nothing that it left
    wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Uninitialized")
    wait_until(lambda: not [f for f in os.listdir(node.ipc_dir) if f.startswith("sondeclient")])


def test_shares_of_kernels_are_parts_of_the_time_that_devices_are_busy(node):
    with job(node, "--ranks", "4", "--slow-rank", "2:1.5", SIM_NPU_TIME_SCALE="1"):
        wait_until(lambda: top(node)["known"] == 4)
        r = sonde(node, "top", "--once", "--json", "--top", "100")
        once = json.loads(r.stdout)
        mean = lambda part: sum(x[part] for x in once["ranks"]) / len(once["ranks"])
        parts = {"Kernel": mean("kernels"), "Communication": mean("communication")}
        assert parts["Communication"] > 0.05, r.stdout
        # what overlaps counts twice, and a call that began before the interval counts as a whole
        rounding = 0.01 + mean("told_late")
        for k in once["kernels"]:
            assert k["time_share"] <= parts[k["kind"]] + rounding, (k, parts, rounding)
        shares = sum(k["time_share"] for k in once["kernels"])
        assert shares <= mean("busy") + rounding, (shares, mean("busy"))
        assert shares > mean("busy") * 0.9, (shares, mean("busy"))


def test_a_kernel_of_a_job_becomes_slower(node):
    with job(node, "--ranks", "1", "--step-ms", "10", "--slower", "FlashAttentionScore:3@1200"):
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Idle")
        node.ctl("npu-monitor", "--npu-monitor-start", "--report-interval-s", "1",
                 "--mspti-activity-kind", "Kernel")  # fmt: skip
        (r,) = wait_until(lambda: top(node)["regressions"], seconds=60)
        assert r["name"] == "FlashAttentionScore" and 2.5 < r["mean_ns"] / r["baseline_ns"] < 3.5
        node.wait_log("Kernel 'FlashAttentionScore': regression, it takes")
