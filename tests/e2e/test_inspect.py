# SPDX-License-Identifier: MulanPSL-2.0
"""What the daemon looks into for the page: the memory of a recorded job and snapshots of its stacks, with
the rights of the job's user; and the last hour of devices, host and steps."""

import contextlib
import json
import os
import pathlib
import shutil

import pytest
from capabilities import lacks
from daemon import Daemon
from test_access import Job
from users import User
from waiting import wait_until

HERE = pathlib.Path(__file__).resolve().parent
# Registers with the daemon, holds memory, and waits in a function that a snapshot shows.
RECORDED = """
import os, sys
import fabric_client as fc
kept = []
def hold(n):
    kept.append(bytearray(n << 20))
def wait_here():
    sys.stdin.readline()
with fc.Client(sys.argv[1]) as c:
    c.context()
    c.request([os.getpid()])
    for i in range(8):
        hold(1)
    print(os.getpid(), flush=True)
    wait_here()
"""


def start(d, user, build):
    """A job of that user which is recorded, and whose recording nobody else may read."""
    home = user.mkdir("job", 0o700)
    user.do(lambda: (home / "held.py").write_text(RECORDED))
    for name in ("fabric_client.py", "waiting.py"):
        text = (HERE / name).read_text()
        user.do(lambda: (home / name).write_text(text))
    python = shutil.which("python3", path="/usr/bin:/bin") or lacks("python-system", "none that every user may run")
    words = [build / "bin/sonde", "mem", "record", "--device=cpu", "--call-stack=python:4", "--quiet"]
    words += ["-o", home / "out", "--", python, "-S", home / "held.py", d.ipc_dir / "dynolog"]
    p = user.popen(*words, stdin=-1, stdout=-1, text=True, cwd=home)
    assert int(p.stdout.readline())
    return p


@pytest.fixture
def node(users):
    where = users.dir / "root"
    with Daemon(users.build, where, "--kernel-monitor-reporting-interval-s", "1", ipc=True, user=users.root) as d:
        d.ipc_dir.chmod(0o711)
        assert d.call({"fn": "getVersion"})  # what the users below may not load is loaded
        yield d


def asks(d, fn, **args):
    return d.call({"fn": fn, **args})


def memory(d, user, pid):
    return user.do(lambda: asks(d, "getMemory", pid=pid))


def helpers(uid=None):
    """Processes of ours that look into others: command line and what they may do."""
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (p / "cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"sonde", b"mem"] or words[:2] == [b"sonde", b"snap"]:
                status = dict(x.split(":\t", 1) for x in (p / "status").read_text().splitlines() if ":\t" in x)
                if uid is None or status["Uid"].split() == [str(uid)] * 4:
                    yield int(p.name), words, status


def test_memory_of_a_job_grows_on_the_page(users, node):
    p = start(node, users.alice, users.build)
    try:
        wait_until(lambda: memory(node, users.alice, p.pid).get("memory"), every=0.2)
        got = memory(node, users.alice, p.pid)
        held = lambda: next(
            (g for g in memory(node, users.alice, p.pid)["memory"]["groups"] if "hold (held.py" in g["name"]), None)
        wait_until(lambda: held() and held()["bytes"] >= 8 << 20, every=0.2)
        assert got["state"] == "running" and got["memory"]["state"] == "running"
        assert got["memory"]["processes"][-1]["command"].endswith("dynolog")
        # it is hers, and has no rights but hers
        (found,) = helpers(users.alice.uid)
        pid, words, status = found
        assert status["Groups"].strip() == "" and status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"  # who traces it starts no process in its place
        assert status["Gid"].split() == [str(users.alice.uid)] * 4 and int(status["CapEff"], 16) == 0
        # it ends before the daemon does where memory runs out
        assert pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
        # Bob has no such process, whatever he asks; root and viewers have
        for fn in ("getMemory", "takeSnapshot"):
            said = users.bob.do(lambda: asks(node, fn, pid=p.pid, pids=[p.pid]))
            assert said["status"].startswith("failed: "), said
        assert memory(node, users.root, p.pid)["memory"]["groups"]
        # the same run answers all of them
        assert len(list(helpers(users.alice.uid))) == 1

        taken = users.alice.do(lambda: asks(node, "takeSnapshot", pids=[p.pid]))
        snapshot = lambda who: who.do(lambda: asks(node, "getSnapshot", snapshot=taken["snapshot"]))
        got = wait_until(lambda: (lambda s: s["state"] == "ended" and s)(snapshot(users.alice)))
        assert "wait_here" in json.dumps(got["snapshot"])
        assert snapshot(users.bob)["status"] == "failed: no such snapshot: it may have been deleted"
        assert not list(helpers(users.root.uid))
    finally:
        p.kill()
        p.communicate()
    # nobody asks any more: it ends
    wait_until(lambda: not list(helpers()), seconds=60, every=0.5)


def test_what_cannot_be_looked_into(users, node):
    with contextlib.closing(Closing(Job(node, users.alice))) as job:
        wait_until(lambda: asks(node, "listProcesses")["total"] == 1)
        said = wait_until(lambda: (lambda m: m.get("why") and m)(memory(node, users.alice, job.pid)), every=0.2)
        # it changed its user, so that nobody but root may look into it
        assert "belongs to somebody else" in said["why"] and said["memory"] is None
        for bad in ({"pid": 0}, {"pid": "x"}, {}, {"pid": 2**40}, {"pid": os.getpid()}):
            assert asks(node, "getMemory", **bad)["status"].startswith("failed: ")
        for bad in ({"pids": []}, {"pids": [1]}, {"pids": "x"}, {"pids": [job.pid] * 65}, {}):
            assert asks(node, "takeSnapshot", **bad)["status"].startswith("failed: ")
        assert asks(node, "getSnapshot", snapshot=1)["status"].startswith("failed: ")
        # no more at once than a few
        for _ in range(12):
            last = users.alice.do(lambda: asks(node, "takeSnapshot", pids=[job.pid]))
        assert len(list(helpers())) <= 3 and ("snapshot" in last or "too many" in last["status"])


def test_nobody_fills_the_answers_of_others(users, node):
    """Answers are kept for minutes: of one user no more than some, the newest."""
    with contextlib.closing(Closing(Job(node, users.alice))) as job, \
            contextlib.closing(Closing(Job(node, users.bob))) as other:
        wait_until(lambda: asks(node, "listProcesses")["total"] == 2)
        take = lambda user, pid: user.do(lambda: asks(node, "takeSnapshot", pids=[pid])).get("snapshot")
        taken = [wait_until(lambda: take(users.alice, job.pid), every=0.05) for _ in range(12)]
        assert take(users.bob, other.pid)
        kept = [n for n in taken if "state" in users.alice.do(lambda n=n: asks(node, "getSnapshot", snapshot=n))]
        # one that was not done yet when room was made stays for longer
        assert set(taken[-4:]) <= set(kept) and len(kept) <= 8


def test_several_users_together_fill_nobodys_answers(users, node):
    """Four users who have looked often lately: the fifth need not wait until that is forgotten."""
    several = [users.alice, users.bob, *(User(users, f"user{n}", 61010 + n) for n in range(3))]
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(contextlib.closing(Closing(Job(node, u)))) for u in several]
        wait_until(lambda: asks(node, "listProcesses")["total"] == 5)
        take = lambda at: asks(node, "takeSnapshot", pids=[jobs[at].pid]).get("snapshot")
        for at in range(4):
            for _ in range(8):
                last = wait_until(lambda at=at: take(at), every=0.05)
        wait_until(lambda: not list(helpers()), every=0.1)
        assert take(4)
        assert "state" in asks(node, "getSnapshot", snapshot=last)


class Closing:
    def __init__(self, job):
        self.job, self.pid, self.close = job, job.pid, job.end


def test_history(users, node):
    first = asks(node, "getHistory")
    assert first["bin_ns"] == 10**10 and first["processes"] == []
    with contextlib.closing(Closing(Job(node, users.alice))) as job:
        def mine():
            return users.alice.do(lambda: asks(node, "getHistory", after_ns=0))["processes"]

        (got,) = wait_until(mine)
        assert got["pid"] == job.pid and got["rank"] == 3 and len(got["step_ns"]) == len(got["busy"]) == 360
        # the report of test_access.Job: busy 60 % of its interval, no steps
        assert [v for v in got["step_ns"] if v] == []
        assert [v for v in got["busy"] if v is not None] == [pytest.approx(0.6)]
        assert users.bob.do(lambda: asks(node, "getHistory"))["processes"] == []
        named = lambda h: {(s["source"], s["device"], s["name"]) for s in h["series"]}
        wait_until(lambda: ("kernel", None, "cpu_percent") in named(asks(node, "getHistory")))
        now = asks(node, "getHistory")
        names = named(now)
        assert ("kernel", None, "network_received_bytes_per_s") in names and ("kernel", None, "memory_bytes") in names
        assert all(len(s["values"]) == 360 for s in now["series"])
        assert 1000 < now["bytes"] < 2 << 20
        newer = asks(node, "getHistory", after_ns=now["now_ns"])
        assert all(len(s["values"]) <= 2 for s in newer["series"]) and newer["first_ns"] > now["first_ns"]
        assert asks(node, "getHistory", after_ns=-5)["first_ns"] == now["first_ns"]
        assert asks(node, "getHistory", after_ns=2**62)["series"][0]["values"]


def test_a_sandbox_starts_no_programs(users):
    with Daemon(users.build, users.dir / "root", "--user", str(users.bob.uid), ipc=True, user=users.root) as d:
        for fn, args in (("getMemory", {"pid": 1}), ("takeSnapshot", {"pids": [1]})):
            assert "starts no programs" in d.call({"fn": fn, **args})["status"]
