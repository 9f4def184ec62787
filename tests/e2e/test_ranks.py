# SPDX-License-Identifier: MulanPSL-2.0
"""Which process is which rank, whoever started it: the live environment, torch.distributed, and
processes that only help a rank or start it."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from capabilities import lacks
from daemon import SANDBOX, Daemon
from monitor_programs import NPU
from monitored import dyno, environment, state
from pythons import one_per_minor
from torches import a_torch, torches
from users import as_user
from waiting import wait_until

WAIT_S = 60  # far more than anything here takes


@pytest.fixture
def snap(build):
    """The output of `sonde snap`; or, with until=TEXT, the first one that has the text in it."""

    def run(*args, status=0):
        done = subprocess.run([build / "bin/sonde", "snap", *map(str, args)], capture_output=True,
                              text=True, timeout=WAIT_S)
        assert done.returncode == status, (args, done.stdout, done.stderr)
        return done.stdout

    def snap(*args, status=0, until=""):
        shown = lambda: next((o for o in [run(*args, status=status)] if until in o), None)  # noqa
        return wait_until(shown, lambda: f"'{until}' in {run(*args, status=status)}", WAIT_S, 0.05)

    return snap


@contextlib.contextmanager
def running(tmp_path, name, source, *args, python, **env):
    """A program and all that it starts, from the moment it prints a line: (process, line)."""
    (tmp_path / name).write_text(textwrap.dedent(source), encoding="utf-8")
    clean = {k: v for k, v in os.environ.items() if "RANK" not in k}
    process = subprocess.Popen([python, tmp_path / name, *args], env={**clean, **env}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        line = process.stdout.readline()
        assert line, "the program did not start"
        yield process, line
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def roles(answer):
    """{pid: (role, rank)}"""
    return {p["pid"]: (p["role"], p["rank"]) for p in answer["processes"]}


# A launcher that sets RANK for each of its children, of which one has a child of its own.
SETS_RANK = """
    import os, sys, time

    def wait_here():
        time.sleep(600)

    def rank_work(out):
        helper = os.fork()
        if helper == 0:
            wait_here()
        os.write(out, b"%d %d " % (os.getpid(), helper))
        wait_here()

    r, w = os.pipe()
    for i in range(2):
        os.environ["RANK"] = str(i + 4)
        if os.fork() == 0:
            rank_work(w)
    pids = b""
    while pids.count(b" ") < 4:
        pids += os.read(r, 99)
    print(pids.decode(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("python", one_per_minor())
def test_a_rank_that_a_job_sets_itself(snap, tmp_path, python):
    with running(tmp_path, "sets.py", SETS_RANK, python=python.path) as (launcher, line):
        a, a_helper, b, b_helper = map(int, line.split())
        seen = roles(json.loads(snap("--children", "-p", launcher.pid, "--json")))
    assert sorted([seen[a], seen[b]]) == [("rank", 4), ("rank", 5)]
    assert seen[a_helper] == ("helper", seen[a][1])
    assert seen[b_helper] == ("helper", seen[b][1])
    assert seen[launcher.pid] == ("launcher", None)


# Three ranks, of which one hangs before it has said which.
LATE = """
    import multiprocessing, os, time

    def never_gets_there():
        time.sleep(600)

    def train(index, ready):
        if index == 2:
            ready.put(0)
            never_gets_there()
        os.environ["RANK"] = str(index)
        ready.put(0)
        for step in range(10**6):
            time.sleep(0.01)

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        manager = multiprocessing.get_context("fork").Manager()
        ready = context.SimpleQueue()
        for i in range(3):
            context.Process(target=train, args=(i, ready), daemon=True).start()
        for i in range(3):
            ready.get()
        print("ready", flush=True)
        time.sleep(600)
"""


def test_a_rank_that_hangs_before_it_is_one(snap, tmp_path):
    with running(tmp_path, "late.py", LATE, python=sys.executable) as (launcher, _):
        out = snap("--name", tmp_path / "late.py", "--hang", "1", status=3)
    first = out.split("\n")[0]
    assert re.match(r"1 of 3 processes has not moved for 1\.0 s: in never_gets_there at late\.py:\d+ "
                    r"\(pid \d+\)$", first), out
    assert f"\nLauncher, pid {launcher.pid} " in out and "_run_server" in out


# Real ranks: torch.multiprocessing.spawn, their numbers as arguments, DistributedDataParallel over
# gloo, a DataLoader each. Rank 1 never gets to the step in which rank 0 waits for it.
SPAWNS = """
    import os, sys, time
    import torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch.utils.data import DataLoader

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.ones(1) * i

    def lose_the_way():
        print("ready", flush=True)
        time.sleep(600)

    def train(index, store):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method="file://" + store, rank=index, world_size=2)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        loader = DataLoader(Numbers(), num_workers=1, batch_size=1, multiprocessing_context="fork")
        for batch in loader:
            loss = model(batch).sum()
            if index == 1:
                lose_the_way()
            loss.backward()

    if __name__ == "__main__":
        mp.spawn(train, (sys.argv[1],), nprocs=2)
"""


def check_trace(path, seen):
    """Ranks in their order, helpers not called like their ranks."""
    events = json.loads(path.read_text())["traceEvents"]
    meta = lambda what, key: {e["pid"]: e["args"][key] for e in events  # noqa: E731
                              if e["ph"] == "M" and e["name"] == what}
    names, order = meta("process_name", "name"), meta("process_sort_index", "sort_index")
    for pid, (role, rank) in seen.items():
        start = {"rank": f"rank {rank}: ", "helper": f"helper of rank {rank}: "}.get(role, "")
        assert names[pid].startswith(start), names
        assert (order[pid] == rank) == (role == "rank"), order


def test_ranks_of_torch_multiprocessing_spawn(build, snap, tmp_path):
    torch = torches()[0] if torches() else a_torch()
    script, trace = tmp_path / "spawned.py", tmp_path / "trace.json"
    with running(tmp_path, script.name, SPAWNS, tmp_path / "store", python=torch.path) as (p, _):
        out = snap("--name", script, until="1 in train at spawned.py:")
        answer = out.split("\n\n")[0]
        assert answer.startswith("2 ranks: "), out
        assert "1 in lose_the_way at spawned.py:" in answer and "(rank 1)" in answer, out
        assert f"\nLauncher, pid {p.pid} " in out
        assert "\nOf ranks 0,1 (2 processes)" in out or out.count("\nOf rank ") == 2, out
        assert "> <module> (<string>" not in out

        said = json.loads(snap("--name", script, "--json"))
        seen = roles(said)
        assert sorted(seen.values(), key=str) == [
            ("helper", 0), ("helper", 1), ("launcher", None), ("other", None), ("rank", 0),
            ("rank", 1)]
        assert {p["local_rank"] for p in said["processes"] if p["role"] == "rank"} == {0, 1}

        out = snap("--children", "-p", p.pid, "--hang", "0.5", status=3)
        assert out.startswith("2 of 2 ranks have not moved for 0.5 s: "), out
        assert "Rank 1 has not moved for " in out and "in lose_the_way at spawned.py:" in out

        subprocess.run([build / "bin/sonde", "stack", "--name", script, "-d", "0.3", "-o", trace],
                       check=True, capture_output=True, timeout=WAIT_S)
        check_trace(trace, seen)


IN_A_GROUP = """
    import os, time
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def wait_here():
        print("ready", flush=True)
        time.sleep(600)

    dist.init_process_group("fake", rank=5, world_size=8, store=FakeStore())
    if os.fork() == 0:
        time.sleep(600)
    wait_here()
"""


def test_the_rank_of_a_process_group(snap, tmp_path):
    """Of a current PyTorch; the environment says something else."""
    with running(tmp_path, "job.py", IN_A_GROUP, python=a_torch().path, RANK="2") as (p, _):
        out = snap("--children", "-p", p.pid, until="is in wait_here at job.py:")
    assert out.startswith("rank 5 is in wait_here at job.py:"), out
    assert "\nOf rank 5 (pid " in out


# The real agent of torchrun. It takes the default of TCPStore, which Debian's PyTorch was built without.
TORCHRUN = """
    import functools, sys
    import torch.distributed as dist
    dist.TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
    from torch.distributed.run import main
    main(sys.argv[1:])
"""
OF_TORCHRUN = """
import ctypes, functools, sys, time
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: the agent gives each a session of its own
import torch.distributed as dist
store = sys.modules["torch.distributed.rendezvous"]
store.TCPStore = functools.partial(store.TCPStore, use_libuv=False)
dist.init_process_group("gloo")
dist.barrier()
print("ready", flush=True)

def wait_here():
    time.sleep(600)

wait_here()
"""


def test_ranks_of_torchrun(snap, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(OF_TORCHRUN)
    words = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", worker]
    with running(tmp_path, "launch.py", TORCHRUN, *words, python=a_torch().path, OMP_NUM_THREADS="1"):
        out = snap("--name", worker, until="2 ranks: all in wait_here at worker.py:")
    assert "\nLauncher, pid " in out, out


ASKS = """
    import os, sys
    os.environ.update(RANK="6", LOCAL_RANK="2")
    from fabric_client import Client

    with Client(sys.argv[1]) as client:
        client.request()
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_the_daemon_knows_the_same_rank(build, tmp_path):
    if SANDBOX:
        lacks("no-sandbox", "a daemon without rights sees the environment of the start alone")
    here = pathlib.Path(__file__).parent
    with Daemon(build, tmp_path, ipc=True) as d, \
         running(tmp_path, "asks.py", ASKS, d.ipc_dir / "dynolog", python=sys.executable,
                 PYTHONPATH=str(here), RANK="1") as (p, _):
        listed = lambda: d.call({"fn": "listProcesses"})["processes"]  # noqa: E731
        wait_until(lambda: [(x["pid"], x["rank"], x["local_rank"]) for x in listed()]
                   == [(p.pid, 6, 2)], listed)


# A process group as PyTorch has it, as far as it can be seen from outside: behind the object of
# Python one of C++ with rank and size.
MONITORED = NPU + """
import struct, types

# As linked programs find it: libraries that are preloaded come first.
ctypes.CDLL("libruntime.so", mode=ctypes.RTLD_GLOBAL)
_rt.rtSetDevice = ctypes.CDLL(None).rtSetDevice

class Group:
    __slots__ = ("object",)

group = Group()
group.object = struct.pack("ii", 5, 8)
module = sys.modules["torch.distributed.distributed_c10d"] = types.ModuleType("c10d")
module._world = types.SimpleNamespace(_default_pg=group)
module._pg_group_ranks = {group: {i: i for i in range(8)}}
npu = Npu()
print("ready", flush=True)
while True:
    npu.step()
    time.sleep(0.01)
"""


def test_the_monitor_knows_the_same_rank(build, tmp_path):
    """A job whose launcher says nothing: its files are those of the rank in its group."""
    out = tmp_path / "out"
    with Daemon(build, tmp_path, ipc=True) as d:
        env = environment(build, d, LD_LIBRARY_PATH=build / "sim", RANK="1")
        with running(tmp_path, "monitored.py", MONITORED, python=sys.executable, **env) as (p, _):
            wait_until(lambda: state(d) == "Idle")
            for words, becomes in (("--npu-monitor-start", "Running"), ("--npu-monitor-stop", "Idle")):
                dyno(build, d, "npu-monitor", words, "--mspti-activity-kind", "Kernel", "--log-file",
                     out, "--export-type", "Jsonl")
                wait_until(lambda: state(d) == becomes)
    [path] = out.rglob("*.jsonl")
    assert path.name.startswith(f"msmonitor_{p.pid}_") and path.name.endswith("_5.jsonl")


@pytest.mark.parametrize("mode", [1, 2])
def test_hidepid_is_named(users, mode):
    """Where /proc hides other users' processes, they are not said to be missing."""
    hide = f"mount -t proc -o hidepid={mode} proc /proc"
    if subprocess.run(users.inside(["unshare", "-m", *hide.split()]),
                      capture_output=True).returncode:
        lacks("mount", "/proc cannot be mounted")
    sleeper = users.alice.popen("sleep", "600")

    def snap(*args):
        words = as_user(users.bob, [str(users.build / "bin/sonde"), "snap", *args])
        words = ["unshare", "-m", "sh", "-c", hide + ' && exec "$@"', "sh", *words]
        return subprocess.run(users.inside(words), capture_output=True, text=True).stderr

    named = lambda: "another user's, and /proc hides it" in snap("-p", str(sleeper.pid))  # noqa: E731
    wait_until(named, lambda: snap("-p", str(sleeper.pid)), 10)  # it is root's for a moment
    assert "hidepid and hides those of other users" in snap("--name", "no such name")
