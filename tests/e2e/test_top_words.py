# SPDX-License-Identifier: MulanPSL-2.0
"""What `sonde top` says, and how it fits on a terminal."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from daemon import Daemon
from fabric_client import RUNNING, monitor_status
from test_guest_clients import Guest
from test_top import GEMM, job, report, row, screen_of, send, sonde, top, working
from waiting import wait_until

KEYS = (
    "q: end, k: kernels, r: ranks, b: both, h: help", "q: end; k, r, b: tables; h: help",
    "q: end, h: help", "q: end",
)  # fmt: skip
LONG = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


@pytest.fixture
def node(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


def look(d, *words):
    r = sonde(d, "top", "--count", "1", "--no-start", "--json", *words)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def sentences(d):
    return look(d)["answer"].splitlines()


@contextlib.contextmanager
def ranks(d, n):
    """Processes of their own that report what they are told, a line of JSON each."""
    code = (
        f"import sys,json,pathlib; sys.path[:0]={sys.path!r}\nimport test_top as t\n"
        f"class D: ipc_dir=pathlib.Path({str(d.ipc_dir)!r})\n"
        "g=t.Guest(D)\nprint('ready',flush=True)\n"
        "for line in sys.stdin: t.send(g,t.report(**json.loads(line)))"
    )
    words, pipe = [sys.executable, "-c", code], subprocess.PIPE
    all_ = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in range(n)]

    def tell(rank, **what):
        all_[rank].stdin.write(json.dumps({"rank": rank, **what}) + "\n")
        all_[rank].stdin.flush()

    try:
        for p in all_:  # what is told to the first is not old when the last one is there
            assert p.stdout.readline() == "ready\n"
        yield tell
    finally:
        for p in all_:
            p.stdin.close()
            p.stdout.close()
            p.kill()
            p.wait()


# --- terminals ---


def last_screen(seen):
    """The lines of the last whole picture, without what takes no columns."""
    pictures = seen[: seen.rindex(b"\x1b[?1049l")].decode().split("\x1b[H")
    lines = re.split(r"\r?\n", pictures[-1])
    return [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", x) for x in lines]


@pytest.mark.parametrize("columns", [120, 80, 60, 40])
def test_nothing_is_cut_in_the_middle(node, columns):
    with ranks(node, 2) as tell:
        rows = [
            row(LONG, 100, 2_000_000), row("hcom_allReduce_", 50, 3_000_000, "Communication"),
            row("MatMulV2", 1234567, 1_000),
        ]  # fmt: skip
        for rank in range(2):
            tell(rank, rows=rows, comm=0.3 if rank else 0.05, lost=3,
                 steps={"count": 3, "mean_ns": 300_000_000})  # fmt: skip
        wait_until(lambda: len(top(node)["processes"]) == 2)
        seen, status = screen_of(
            node, "--no-start", "--interval", "1", keys=b"q", columns=columns, rows=40,
            want=b"MOST TIME IN",
        )  # fmt: skip
        assert status == 0
    lines = last_screen(seen)
    assert all(len(x) <= columns for x in lines), lines
    # the sentences are there, word for word, whatever line they are on
    text = re.sub(r"\s+", " ", " ".join(lines))
    for words in (
        "Devices are busy 60 % of the time: kernels 40 %, communication", "Rank 0 is the slowest",
        "activities are missing from these numbers.",
    ):  # fmt: skip
        assert words in text, text
    assert not re.search(r"^ *%", "\n".join(lines), re.M), lines
    assert any(k in x for x in lines for k in KEYS[:2]), lines
    # tables: each value stands below its title
    (head,) = [x for x in lines if x.strip().startswith("SHARE")]
    body = lines[lines.index(head) + 1 :][:3]
    at = head.index("NAME")
    for line, name in zip(body, ("MatMul", "void at", "hcom_")):
        assert line[at:].startswith(name), lines
    assert all(x[at - 1] == " " for x in body)
    (head,) = [x for x in lines if x.startswith("RANK")]
    first = lines[lines.index(head) + 1]
    end = head.index("BUSY") + 4
    assert first[:end].endswith("60 %") and "slowest" in first
    assert ("KERNELS" in head) == ("COPIES" in head) == (columns >= 80)


def test_ranks_are_seen_on_a_low_terminal(node):
    with ranks(node, 4) as tell:
        rows = [row(f"kernel{i}", 100, 1_000_000) for i in range(15)]
        for rank in range(4):
            tell(rank, rows=rows)
        wait_until(lambda: len(top(node)["processes"]) == 4)
        words = ("--no-start", "--interval", "1")
        seen, _ = screen_of(node, *words, keys=b"q", columns=80, rows=24, want=b"MOST TIME IN")
    lines = last_screen(seen)
    head = [i for i, x in enumerate(lines) if x.startswith("RANK")][0]
    assert len(lines) <= 24
    assert [x.split()[0] for x in lines[head + 1 : head + 5]] == ["0", "1", "2", "3"]
    assert sum("Kernel" in x for x in lines[:head]) >= 4


# --- nobody there ---


@pytest.mark.parametrize("words", [(), ("--once",), ("--count", "3"), ("--json",)])
def test_a_daemon_that_is_not_there(build, words):
    with socket.socket() as s:  # nobody listens where one is bound
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
        r = subprocess.run(
            [build / "bin" / "sonde", "top", "--hostname", "127.0.0.1", "--port", port, *words],
            capture_output=True, text=True, timeout=15,
        )  # fmt: skip
        assert r.returncode == 1 and r.stdout == ""
        assert r.stderr.count("\n") == 1, r.stderr
        assert "connection refused" in r.stderr and "sonde daemon --enable-ipc-monitor" in r.stderr
        r = subprocess.run(
            [build / "bin" / "sonde", "top", "--port", port, "--hostname", "127.0.0.1,localhost"],
            capture_output=True, text=True, timeout=15,
        )  # fmt: skip
        assert r.returncode == 1 and r.stderr.count("\n") == 1, r.stderr
        assert "none of 2 hosts answers; connection refused" in r.stderr


def test_a_daemon_that_is_not_there_leaves_no_screen(node):
    d = node
    d._ports["rpc"] = 1
    seen, status = screen_of(d)
    assert status == 1 and b"\x1b" not in seen and seen.count(b"\n") == 1, seen
    assert b"sonde daemon --enable-ipc-monitor" in seen


def test_a_daemon_that_ends_is_said_to(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d, Guest(d) as g:
        g.send(monitor_status(RUNNING))
        send(g, report())
        wait_until(lambda: top(d)["processes"])
        d.port  # noqa: B018 (the log goes with it)
        want = b"1 of 1 hosts did not answer"
        seen, status = screen_of(d, "--interval", "1", keys=b"q", want=want, then=d.process.kill)
        assert status == 1 and b"connection refused" in seen[seen.rindex(b"\x1b[?1049l") :]


# --- causes ---


def test_the_cause_comes_before_its_victims(node):
    """Rank 1 computes slower; what the others see is that they wait, and much longer."""

    def interval(gemm, wait, number=[0]):
        number[0] += 1
        for rank in range(3):
            rows = [
                row("allReduce", 100, wait if rank != 1 else 500_000, "Communication"),
                row(GEMM, 100, gemm if rank == 1 else 2_000_000),
                row("small", 100, gemm // 20 if rank == 1 else 100_000),
            ]
            tell(rank, rows=rows, names=number[0])
        wait_until(lambda: [p["names"] for p in top(node)["processes"]] == [number[0]] * 3)

    with ranks(node, 3) as tell:
        for rank in range(3):
            tell(rank)
        wait_until(lambda: len(top(node)["processes"]) == 3)
        for _ in range(6):
            interval(2_000_000, 500_000)
        for _ in range(4):
            interval(2_600_000, 9_500_000)
        names = lambda answer, key: [(r["name"], r["rank"]) for r in answer[key]]
        for answer in look(node), top(node):  # three things: what computes, who waits, the slowest
            assert names(answer, "regressions") == [(GEMM, 1), ("small", 1)]
            assert sorted(names(answer, "waits")) == [("allReduce", 0), ("allReduce", 2)]
        assert node.log().count("regression, it takes") == 2  # no word about who waits
        assert "allReduce" not in node.log()
        counts = node.call({"fn": "getDaemon"})["jobs"]
        assert (counts["regressions"], counts["waits"]) == (2, 2)
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics").read().decode()
        values = re.findall(r"^(sonde_(?:regression|wait|slowest)\w+)\{(.*)\} (\S+)$", metrics, re.M)
        told = [(n, re.findall('[{,](?:name|rank|by)="([^"]*)"', "," + x)) for n, x, _ in values]
        assert {n: v for n, _, v in values if n in ("sonde_regressions", "sonde_waits")} == {
            "sonde_regressions": "2", "sonde_waits": "2",
        }  # fmt: skip
        ranks_of = lambda n: sorted(x[1] for x in told if x[0] == n)
        assert ranks_of("sonde_wait_ratio") == [["0", "allReduce"], ["2", "allReduce"]]
        assert ranks_of("sonde_regression_ratio") == [["1", GEMM], ["1", "small"]]
        slow = [s for s in sentences(node) if "than before: " in s]
        assert len(slow) == 3 and "gemm<128>" in slow[0] and "on rank 1 takes 2.60 ms" in slow[0]
        assert "'allReduce' on rank 0 and 1 more takes 9.50 ms, 19 times the usual" in slow[2]
        assert slow[2].endswith("the time it waits for other ranks is in it.")


def test_after_a_restart_nothing_is_slower_until_there_is_a_history(build, tmp_path, node):
    def interval(g, d, mean, number=[0]):
        number[0] += 1
        send(g, report(rows=[row(GEMM, 100, mean), row("x", 50, 1_000_000)], names=number[0]))
        wait_until(lambda: [p["names"] for p in top(d)["processes"]] == [number[0]])

    with Guest(node) as g:
        for mean in [2_000_000] * 6 + [3_000_000] * 4:
            interval(g, node, mean)
        assert len(top(node)["regressions"]) == 1
    node.process.kill()
    node.process.wait()
    with Daemon(
        build, tmp_path, "--port", 0, "--http-port", 0, "--enable-ipc-monitor",
        "--ipc-socket-dir", node.ipc_dir, "--ipc-dir-only", defaults=False,
    ) as again, Guest(node) as g:  # fmt: skip
        for mean in [3_000_000] * 12:
            interval(g, again, mean)
            assert top(again)["regressions"] == []
        assert not any("slower" in s.lower() for s in sentences(again))
        assert "regression" not in again.log()
        for mean in [4_500_000] * 3:  # by then it knows
            interval(g, again, mean)
        (r,) = top(again)["regressions"]
        assert r["baseline_ns"] == 3_000_000


# --- what is not collected ---


def test_what_is_not_collected_is_not_zero(node):
    def ask(kinds, **more):
        send(g, report(kinds=kinds, names=len(kinds or []) + 100, **more))
        wait_until(lambda: [p["names"] for p in top(node)["processes"]] == [len(kinds or []) + 100])
        return look(node, "--by", "rank")

    with Guest(node) as g:
        r = ask(["Kernel"], comm=0)
        assert "kernels 40 %; not collected: communication, copies." in r["answer"]
        assert r["ranks"][0]["communication"] is None and r["ranks"][0]["copies"] is None
        assert r["ranks"][0]["kernels"] == 0.4
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics").read()
        assert b'what="kernel"' in metrics and b'what="communication"' not in metrics
        table = sonde(node, "top", "--count", "1", "--no-start", "--by", "rank").stdout
        assert "COMM" not in table and "COPIES" not in table and "KERNELS" in table
        r = ask(["Kernel", "Communication", "MemCpy"])
        assert "kernels 40 %, communication 10 %, copies 1.0 %." in r["answer"]
        assert r["ranks"][0]["communication"] == 0.1
        # marks alone say nothing of devices
        r = ask(["Marker"] * 5, rows=[], devices=[])
        assert "busy" not in r["answer"] and "runs with other kinds" in r["answer"]
        assert r["ranks"][0]["busy"] is None
        # who does not tell is believed
        r = ask(None)
        assert "kernels 40 %, communication 10 %, copies 1.0 %." in r["answer"]
        send(g, json.dumps(report(kinds=7)).encode())
        send(g, json.dumps(report(kinds=[7])).encode())
        wait_until(lambda: node.call({"fn": "getDaemon"})["endpoints"]["dropped"]["bad_json"] == 2)


def test_a_monitor_tells_its_kinds(node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        r = sonde(node, "top", "--once", "--json", "--interval", "1", "--kinds", "Kernel")
        one = json.loads(r.stdout)
        assert one["ranks"][0]["communication"] is None and one["ranks"][0]["kernels"] > 0
        assert "not collected: communication, copies." in one["answer"]


def test_a_job_that_ends_is_said_to_have_ended(node):
    with Guest(node), ranks(node, 1) as tell:
        tell(0)
        wait_until(lambda: top(node)["processes"])
        p = node.popen(
            node.build / "bin" / "sonde", "top", "--port", node.port, "--count", "9", "--no-start",
            "--pids", top(node)["processes"][0]["pid"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert any("busy" in p.stdout.readline() for _ in range(3))
    _, err = p.communicate(timeout=40)
    assert p.returncode == 3 and "The processes have ended." in err


# --- beside ---


def test_dyno_says_a_directory_once(node):
    words = (node.build / "bin" / "dyno", "--port", node.port, "nputrace", "--start-step", "-1",
             "--iterations", "2", "--log-file", "/tmp/profile")  # fmt: skip
    with ranks(node, 3):
        wait_until(lambda: top(node)["known"] == 3)
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Idle")
        r = node.run(*words)
        assert r.stdout.splitlines()[-3:] == [
            "Matched 3 processes", "Trace output files will be written to:",
            "    /tmp/profile (3 processes)",
        ]  # fmt: skip
        assert "root" not in r.stderr


# --- where it is shown ---


def test_top_on_a_terminal_that_cannot_draw(node):
    """As in a file: no line of it is taken back."""
    with working(node):
        seen, status = screen_of(node, "--interval", "1", end=signal.SIGINT, term="dumb")
        assert status == 0 and b"Devices are busy" in seen and b"\x1b" not in seen, seen


def test_top_says_why_it_cannot_write(node):
    with working(node) as texts:
        command = f"{node.build}/bin/sonde top --port {node.port} --interval 1 --count 2"
        r = node.run("sh", "-c", f"exec {command} > /dev/full")
        assert r.returncode == 1 and "cannot write the output: No space left" in r.stderr, r.stderr
        wait_until(lambda: "NPU_MONITOR_STOP=true" in texts[-1])
