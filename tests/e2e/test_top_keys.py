# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde top` on a terminal with keys: scrolling, sorting, filter, pause, help; and that the slowest rank is
always there."""

import json
import multiprocessing
import re

import pytest
from daemon import Daemon
from screens import DOWN, END, ESCAPE, HOME, PAGE_DOWN, UP, Screen
from test_guest_clients import Guest
from test_top import report, row, send, sonde, top
from waiting import pause, wait_until

RANKS, SLOWEST = 12, 10


def reports(rank, mean):
    """What a rank reports, again and again: kernels, and a collective in which it waits."""
    rows = [row(f"kernel{i}", 10 + i, mean - 50_000 * i) for i in range(8)]
    rows.append(row("hcom_allReduce_", 90, 3_000_000, "Communication"))
    return report(rank=rank, rows=rows, comm=0.01 if rank == SLOWEST else 0.5 + rank / 1000)


def be_a_rank(d, rank, mean):
    with Guest(d) as g:
        while True:
            send(g, reports(rank, mean.value))
            pause(0.2, "as a recorder reports")


@pytest.fixture(scope="module")
def node(build, tmp_path_factory):
    """Twelve ranks, one of which the others wait for."""
    mean = multiprocessing.Value("i", 1_000_000)
    context = multiprocessing.get_context("fork")
    with Daemon(build, tmp_path_factory.mktemp("keys"), ipc=True) as d:
        assert d.port
        jobs = [context.Process(target=be_a_rank, args=(d, r, mean), daemon=True) for r in range(RANKS)]
        for j in jobs:
            j.start()
        wait_until(lambda: len(top(d)["processes"]) == RANKS)
        d.mean = mean
        yield d
        for j in jobs:
            j.kill()
            j.join()


def screen(d, *words, lines=20):
    words = [d.build / "bin" / "sonde", "top", "--port", str(d.port), "--no-start", *words]
    return Screen(words, d.env, lines)


def rank_rows(lines):
    start = next((i for i, s in enumerate(lines) if "RANK" in s and "PID" in s), len(lines))
    return [int(m[1]) for s in lines[start + 1 :] if (m := re.match(r" *(\d+) +\d+ ", s))]


def names(lines):
    start = next((i for i, s in enumerate(lines) if "SHARE" in s), len(lines))
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return [s.split()[-1] for s in lines[start + 1 : end] if "%" in s]


def test_the_slowest_rank_is_always_there(node):
    with screen(node, lines=15) as s:
        lines = s.until(rank_rows)
        assert len(lines) < s.lines  # nothing is cut off
        assert rank_rows(lines)[0] == SLOWEST and 0 in rank_rows(lines)
        assert any("slowest" in x for x in lines)
        assert re.search(r"ranks 1 to \d+ of 12", lines[-1]), lines
        # scrolled to where it is, it is there once, and in its place
        lines = s.key("\t" + END, lambda x: 11 in rank_rows(x))
        assert rank_rows(lines).count(SLOWEST) == 1 and rank_rows(lines)[-2:] == [SLOWEST, 11]
        lines = s.key(HOME + DOWN, lambda x: 1 in rank_rows(x) and 0 not in rank_rows(x))
        assert rank_rows(lines)[:2] == [SLOWEST, 1]
        lines = s.key(UP, lambda x: 0 in rank_rows(x))
        lines = s.key("r" + PAGE_DOWN, lambda x: not names(x) and 0 not in rank_rows(x))
        assert SLOWEST in rank_rows(lines)
        # the least communication is the sign of the slowest
        lines = s.key("sssi" + HOME, lambda x: "ranks by comm, inverted" in "\n".join(x))
        assert rank_rows(lines)[:2] == [SLOWEST, 0]


def test_how_busy_the_devices_were(node):
    """A line of the course of time, report by report; on a low terminal there is no room for it."""
    with screen(node, lines=24) as s:
        lines = s.until(lambda x: any(re.match(r"Busy over time: [▄▅]{2,}$", y) for y in x))
        assert len(lines) < s.lines
        s.resize(14, 60)
        s.until(lambda x: rank_rows(x) and not any("over time" in y for y in x))


def test_kernels_are_sorted_filtered_and_scrolled(node):
    with screen(node) as s:
        lines = s.key("k", lambda x: names(x) and not rank_rows(x))
        assert names(lines)[0] == "hcom_allReduce_"
        lines = s.key("s", lambda x: "kernels by calls" in "\n".join(x))
        assert names(lines)[:3] == ["hcom_allReduce_", "kernel7", "kernel6"]
        lines = s.key("i", lambda x: "by calls, inverted" in "\n".join(x))
        assert names(lines)[0] == "kernel0"
        lines = s.key("/KERNEL3", lambda x: "KERNEL3_" in "\n".join(x))
        assert names(lines) == ["kernel3"]
        s.key("\x7f9\r", lambda x: any("Nothing here has 'KERNEL9'" in y for y in x))
        s.key(ESCAPE, lambda x: len(names(x)) > 5)
        lines = s.key("h", lambda x: any("any key ends it" in y for y in x))
        assert not names(lines)
        s.key("x", names)


def test_a_pause_shows_what_was_there(node):
    mean = lambda lines: [s.split()[5] for s in lines if s.endswith("kernel0")]
    with screen(node, "--by", "kernel", "--interval", "1") as s:
        first = mean(s.until(names))
        s.key("p", lambda x: "paused" in "\n".join(x))
        node.mean.value = 9_000_000
        slower = lambda p: any(r["mean_ns"] == 9_000_000 for r in p["rows"])
        wait_until(lambda: all(slower(p) for p in top(node)["processes"]))
        lines = s.key("r", rank_rows)  # what was there can be looked at in any way
        clock = lines[0][:8]
        assert mean(s.key("k", lambda x: names(x) and x[0][:8] != clock)) == first
        s.key("p", lambda x: "paused" not in "\n".join(x) and mean(x) != first)


def test_the_same_without_a_terminal(node):
    words = ["--count", "1", "--no-start", "--sort", "calls", "--sort-ranks", "comm", "--filter"]
    r = sonde(node, "top", *words, "kernel")
    assert r.returncode == 0 and names(r.stdout.splitlines())[:2] == ["kernel7", "kernel6"]
    assert "hcom" not in "".join(r.stdout.splitlines(True)[3:])
    one = json.loads(sonde(node, "top", *words, str(SLOWEST), "--json").stdout)
    assert [p["rank"] for p in one["ranks"]] == [SLOWEST] and not one["kernels"]
    r = sonde(node, "top", "--count", "1", "--no-start", "--sort-ranks", "comm", "--by", "rank")
    assert rank_rows(r.stdout.splitlines())[:2] == [11, 9]
    r = sonde(node, "top", "--once", "--filter", "x" * 65)
    assert r.returncode == 2 and "at most 64 bytes" in r.stderr
