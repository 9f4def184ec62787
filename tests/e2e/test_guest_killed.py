# SPDX-License-Identifier: MulanPSL-2.0
"""A guest that was killed leaves nothing behind: no state in the daemon, no file of its socket."""

import os
import socket
import subprocess
import sys
import time

import pytest
from daemon import Daemon
from fabric_client import RUNNING, monitor_status
from test_guest_clients import Guest
from waiting import pause, wait_until

CHILD = """
import os, sys, time
sys.path[:0] = {path!r}
import test_guest_clients as t
class D: ipc_dir = __import__("pathlib").Path({ipc!r})
g = t.Guest(D)
g.send(t.monitor_status(t.RUNNING))
g.request()
{more}
print(g.path, flush=True)
time.sleep(60)
"""


@pytest.fixture
def node(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


class Job:
    """A process with a guest, whose monitor is on."""

    def __init__(self, node, more=""):
        code = CHILD.format(path=sys.path, ipc=str(node.ipc_dir), more=more)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.file = self.process.stdout.readline().strip()
        assert os.path.exists(self.file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        os.killpg(self.process.pid, 9) if self.lives_on() else None
        self.process.stdout.close()

    def lives_on(self):
        """A child of it, that is."""
        return subprocess.run(["pgrep", "-s", str(self.process.pid)], capture_output=True).stdout

    def kill(self):
        self.process.kill()
        self.process.wait()


def status(node):
    return node.call({"fn": "getStatus"})["npumonitor"]


def known(node):
    return [p["pid"] for p in node.call({"fn": "listProcesses"})["processes"]]


def test_what_the_dead_said_is_forgotten_at_once(node):
    """The only one of the node: nobody is there. Beside others: what those say."""
    with Job(node) as job:
        wait_until(lambda: status(node) == "Running")
        job.kill()
        dead = time.monotonic()
        wait_until(lambda: status(node) == "Uninitialized", every=0.005)
        took = time.monotonic() - dead
        assert took < 5, f"for {took:.3f} s it counted as running"
    with Guest(node) as other, Job(node) as job:
        wait_until(lambda: status(node) == "Running")
        job.kill()
        dead = time.monotonic()
        wait_until(lambda: status(node) == "Idle", every=0.005)
        assert time.monotonic() - dead < 5
        other.send(monitor_status(RUNNING))
        wait_until(lambda: status(node) == "Running")


def test_the_file_of_a_socket_goes_with_its_guest(node):
    with Job(node) as job, Job(node) as other, Guest(node):
        job.kill()
        wait_until(lambda: not os.path.exists(job.file))
        left = {f for f in os.listdir(node.ipc_dir)}
        assert "dynolog" in left and os.path.basename(other.file) in left
        assert len([f for f in left if f.startswith("sondeclient")]) == 2
        assert not [f for f in left if f.endswith(".old")]


def test_only_that_file_is_removed(node, tmp_path):
    victim = tmp_path / "victim"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(victim))  # nobody listens there, either
    # a link in the place of the file; another kind of file; one that a child still listens on
    jobs = [Job(node), Job(node), Job(node, more="if not os.fork(): time.sleep(60)")]
    try:
        os.unlink(jobs[0].file)
        os.symlink(victim, jobs[0].file)
        os.unlink(jobs[1].file)
        with open(jobs[1].file, "w") as f:
            f.write("mine")
        for job in jobs:
            job.kill()
        wait_until(lambda: not known(node))
        pause(0.3, "nothing is removed")
        assert os.path.islink(jobs[0].file) and victim.exists()
        assert open(jobs[1].file).read() == "mine"
        assert os.path.exists(jobs[2].file)
    finally:
        for job in jobs:
            job.__exit__()


@pytest.mark.parametrize("where", ["elsewhere", "of another kind"])
def test_a_guest_names_no_files_but_its_own(node, where):
    """Its address is what it says: a path in another directory, or no name that guests have."""
    mine = f"sondeclient{os.getpid():x}"
    path = f"/tmp/{mine}" if where == "elsewhere" else f"{node.ipc_dir}/{mine}_"
    beside = node.ipc_dir / (mine + "-0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(beside))
    more = f"""
import socket, fabric_client
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind({path!r})
s.sendto(fabric_client.request([os.getpid()]), str(D.ipc_dir / "dynolog"))
s.recv(1000)
"""
    try:
        with Job(node, more) as job:
            wait_until(lambda: job.process.pid in known(node))
            job.kill()
            wait_until(lambda: not known(node))
            pause(0.3, "nothing is removed")
            assert os.path.exists(path) and beside.exists()
    finally:
        os.unlink(path)
