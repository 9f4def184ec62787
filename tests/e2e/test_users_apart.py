# SPDX-License-Identifier: MulanPSL-2.0
"""What one user of a machine must not be able to do to the files and jobs of another.

Bob plants things in a directory of his; alice, who works with him in a project's group, or root, have
us write there. Whatever he plants, and however fast he exchanges it: her files stay as they are, and
nobody hangs. Whether something is written or refused is not what these tests ask.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from daemon import Daemon
from harness import SOAK, Hurt, wait_gone
from monitored import dyno, environment, state, trains
from users import PROJECT, Users
from waiting import wait_until

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def test_the_users_of_the_tests_are_apart(users):
    """Else the tests below would show nothing."""
    alice, bob = users.alice, users.bob
    (uid, groups), other = bob.do(lambda: (os.getresuid(), os.getgroups())), bob.run("id", "-u")
    assert set(uid) == {bob.uid} and groups == [] and int(other.stdout) == bob.uid
    secret = alice.home / "secret"
    alice.do(lambda: (secret.write_text("hers"), secret.chmod(0o600)))
    assert alice.run("cat", secret).stdout == "hers" == users.root.run("cat", secret).stdout
    assert bob.run("cat", secret).returncode == 1
    with pytest.raises(PermissionError):
        bob.do(lambda: secret.unlink())
    shared = project_of(alice)
    assert bob.run("touch", shared / "no").returncode == 1
    assert bob.run("touch", shared / "yes", groups=[PROJECT]).returncode == 0
    assert bob.run(users.build / "bin/sonde", "--version").returncode == 0


def project_of(user, name="project"):
    """A directory of his in which everybody of the group may write."""
    path = user.home / name

    def make():
        path.mkdir()
        os.chown(path, -1, PROJECT)
        path.chmod(0o2775)

    user.do(make, groups=[PROJECT])
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Treasure:
    """Files that nobody but alice may change: files, directories, and a name that is free."""

    def __init__(self, user, more=()):
        self.user, self.dir = user, user.home / "treasure"
        self.file, self.empty, self.none = (self.dir / n for n in ("keys", "empty", "nothing"))
        user.do(lambda: self.make(more))
        self.before = self.look()

    def make(self, more):
        self.dir.mkdir(mode=0o700)
        (self.dir / "inner").mkdir()
        for path in (self.file, self.dir / "inner" / "keys", *(self.dir / name for name in more)):
            path.write_text("hers")
            path.chmod(0o600)
        self.empty.touch(mode=0o600)

    def look(self):
        """{path: all that somebody could have changed}; that a file got a second name is no harm."""

        def one(path):
            st = path.lstat()
            data = digest(path) if path.is_file() else ""
            return st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_size, st.st_mtime_ns, data

        return self.user.do(lambda: {str(p): one(p) for p in (self.dir, *self.dir.rglob("*"))})

    def check(self, about=""):
        now = self.look()
        changed = sorted(p for p in {*now, *self.before} if now.get(p) != self.before.get(p))
        assert not changed, (about, changed[:10])


@contextlib.contextmanager
def attacker(user, build, *words):
    """He does it until the end of the block, which gets a list: how often, in the end."""
    p = user.popen(build / "targets/plant", *words, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "up\n"
    rounds = []
    try:
        yield rounds
    finally:
        p.terminate()
        rounds.append(int(p.communicate(timeout=30)[0]))


# --- names that are known ---


PLANTS = {
    "a link to a file": lambda at, t: at.symlink_to(t.file),
    "a link to a name that is free": lambda at, t: at.symlink_to(t.none),
    "a link to a directory": lambda at, t: at.symlink_to(t.dir),
    "a second name of a file": lambda at, t: os.link(t.file, at),
    "a FIFO": lambda at, t: os.mkfifo(at, 0o666),
}

RUN = ("stack", "run", "-i", "0.05", "-o", "{dir}/t.json", "--", "sleep", "0.1")
DETACH = ("stack", "run", "--detach", "-i", "0.05", "-o", "{dir}/t.json", "--", "sleep", "0.1")
COMPARE = ("mem", "compare", "-o", "{dir}/out", "{csv}", "{csv}")
EXPORT = ("mem", "export", "-o", "{dir}/out", "{recording}")

# what is called, and the name in {dir} that bob has taken before
WRITERS = {
    "a timeline": (RUN, "t.json"),
    "a profile": ((*RUN[:2], "--format", "collapsed", *RUN[2:]), "t.json"),
    "a pid file": (DETACH, "t.json.pids"),
    "a log": (DETACH, "t.json.wrapper.log"),
    "an answer": (("mem", "leaks", "--json-file", "{dir}/l.json", "{csv}"), "l.json"),
    "a comparison": (COMPARE, "out"),
    "a comparison's folder": (COMPARE, "out/compare"),
    "a dump": (EXPORT, "out"),
    "a dump's file": (EXPORT, "out/{dump}"),
    "a recording": (("msmemscope", "-o", "{dir}/out", "--", "true"), "out"),
    "a table of activities": (
        ("activity", "export", "--format", "csv", "-o", "{dir}/a.csv", "{db}"), "a.csv"),
    "a workbook of activities": (
        ("activity", "export", "--format", "xlsx", "-o", "{dir}/a.xlsx", "{db}"), "a.xlsx"),
    "a timeline of activities": (("activity", "export", "-o", "{dir}/a.json", "{db}"), "a.json"),
}  # fmt: skip


class Inputs(dict):
    """What the commands read, made when the first one asks for it."""

    def __init__(self, users):
        self.users = users

    def __missing__(self, key):
        self[key] = getattr(self, f"make_{key}")()
        return self[key]

    def make_csv(self):
        return shutil.copy(GOLDEN / "v1_4242_0.csv", self.users.dir)

    def make_recording(self):
        h = Hurt(self.users.build, self.users.root.home)
        r = self.users.root.run(*h.command(*h.steady(events=20)))
        assert r.returncode == 0, r.stderr
        self.users.root.run("chmod", "-R", "a+rX", self.users.root.home)
        return h.recording

    def make_dump(self):
        """The name that export gives it, below its output."""
        out = self.users.root.home / "exported"
        words = ["mem", "export", "-o", out, self["recording"]]
        assert self.users.root.run(self.users.build / "bin/sonde", *words).returncode == 0
        (dump,) = out.rglob("*.csv")
        return dump.relative_to(out)

    def make_db(self):
        """A table of a monitor, as Jsonl: one kernel."""
        row = {"kind": "Kernel", "type": "KERNEL", "startNs": 1000, "endNs": 2000, "deviceId": 0,
               "streamId": 1, "correlationId": 1, "name": "MatMul"}  # fmt: skip
        path = self.users.dir / "msmonitor_1_20260101000000000_0.jsonl"
        path.write_text(json.dumps(row) + "\n")
        return path


def words_of(users, writer, inputs):
    words = [w.format_map(inputs) for w in WRITERS[writer][0]]
    program = [words.pop(0)] if words[0] == "msmemscope" else ["sonde"]
    return [users.build / "bin" / program[0], *words]


def plant(users, kind, at, treasure):
    def make_way():
        os.umask(0o002)
        at.parent.mkdir(parents=True, exist_ok=True)

    users.bob.do(make_way, groups=[PROJECT])
    # the kernel may not let him make a second name: one who could does it for him
    who = users.root if kind == "a second name of a file" else users.bob
    who.do(lambda: PLANTS[kind](at, treasure), groups=[PROJECT])


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_planted_under_a_known_name(users, writer):
    treasure, inputs, running = Treasure(users.alice), Inputs(users), []
    for who in ("alice", "root"):
        for kind in PLANTS:
            inputs["dir"] = there = project_of(users.bob, f"for {who} {kind}")
            plant(users, kind, there / WRITERS[writer][1].format_map(inputs), treasure)
            words = words_of(users, writer, inputs)
            p = getattr(users, who).popen(*words, groups=[PROJECT], stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, text=True)  # fmt: skip
            running.append((kind, there, p))
    for kind, there, p in running:
        said = p.communicate(timeout=20)[1]
        assert p.returncode >= 0 and (p.returncode == 0 or said), (kind, p.returncode)
        if "--detach" in p.args and p.returncode == 0:
            wait_until(lambda: not list(there.glob("t.json*tmp")), "the end of its sampler")
    treasure.check()


def test_a_directory_where_everybody_may_write_is_refused(users):
    alice, bob = users.alice, users.bob
    for mode in (0o777, 0o1777):  # of bob: the sticky bit does not bind him
        there = bob.mkdir(f"open{mode:o}", mode)
        words = ["stack", "run", "-i", "0.05", "-o", there / "t.json", "--", "sleep", "0.1"]
        r = alice.run(users.build / "bin/sonde", *words)
        assert "every user" in r.stderr and str(there) in r.stderr, r
        assert not (there / "t.json").exists()
        # one that is his own and in which nobody takes his names away is his affair
        r = bob.run(users.build / "bin/sonde", *words)
        assert (r.returncode == 0) == (there / "t.json").exists() == (mode == 0o1777), r


# --- names that are guessed, or seen as they come ---


@pytest.fixture(scope="module")
def node(build):
    """A daemon, and two jobs that train: alice's and root's. Both are in the project's group."""
    users = Users(build)
    try:
        with Daemon(users.build, users.dir, ipc=True) as d:
            d.ipc_dir.chmod(0o1777)
            env = environment(users.build, d)
            keep = ("MSMONITOR_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "LD_PRELOAD")
            words = ["--quiet", "--steps", 10**6, "--step-ms", 5]
            jobs = [
                user.popen(users.build / "sim/simtrain", *words, groups=[PROJECT],
                           env={**{k: env[k] for k in keep}, "RANK": rank},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for rank, user in enumerate((users.alice, users.root))
            ]  # fmt: skip
            wait_until(lambda: len(d.call({"fn": "listProcesses"})["processes"]) == 2, "the jobs")
            wait_until(lambda: state(d) == state(d, "nputrace") == "Idle", "their monitors")
            trains(d)
            yield Node(users, d, [p.pid for p in jobs])
    finally:
        users.end()


class Node:
    def __init__(self, users, daemon, pids):
        self.users, self.daemon, self.pids, self.tries = users, daemon, pids, 0

    def place(self, more=()):
        """A directory of bob's, and alice's treasure as it was."""
        self.tries += 1
        shutil.rmtree(self.users.alice.home / "treasure", ignore_errors=True)
        return project_of(self.users.bob, f"project{self.tries}"), Treasure(self.users.alice, more)

    def dyno(self, *words):
        return dyno(self.users.build, self.daemon, *words)

    def trace(self, there):
        """And until it is over in both, written or not."""
        self.dyno("nputrace", "--start-step", -1, "--iterations", 1, "--log-file", there)
        wait_until(lambda: state(self.daemon, "nputrace") == "Idle", "the end of the traces")
        beside = pathlib.Path(f"{there}.error.txt")

        def ended():
            names = [n for n in os.listdir(there) if n.endswith(("_sonde", "_sonde.error.txt"))]
            told = beside.read_text().count("\n") if beside.is_file() else 0
            return len(names) + told >= len(self.pids)

        with contextlib.suppress(AssertionError):  # it may have found no place even for that
            wait_until(ended, "traces, or why there are none", 3)


def plant_guesses(there, pid, rank, target, seconds=6):
    """The names of the temporary files that a monitor could make in this time."""
    for s in range(seconds):
        text = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + s))
        for ms in range(1000):
            (there / f"msmonitor_{pid}_{text}{ms:03}_{rank}.db.tmp").symlink_to(target)


def test_the_database_of_a_monitor_goes_through_no_link(node):
    there, treasure = node.place()
    for rank, (pid, target) in enumerate(zip(node.pids, (treasure.empty, treasure.none))):
        node.users.bob.do(lambda: plant_guesses(there, pid, rank, target))
    where = ("--log-file", there, "--export-type", "DB", "--mspti-activity-kind", "Kernel")
    node.dyno("npu-monitor", "--npu-monitor-start", *where)
    wait_until(lambda: state(node.daemon) == "Running", "the monitor")
    wait_until(lambda: len(list(there.glob("*.db"))) == 2, "its files")
    node.dyno("npu-monitor", "--npu-monitor-stop")
    wait_until(lambda: state(node.daemon) == "Idle", "its end")
    treasure.check()


@pytest.mark.soak
@pytest.mark.deadline(1200)
def test_what_a_trace_leaves_over_is_not_removed_through_a_link(node):
    """Directories as a killed recorder leaves them, which the next trace removes; bob made these,
    and exchanges those in them for links to alice's."""
    names = [f"k{i:04}" for i in range(300)]
    pairs = [f"{c}{i}" for i in range(8) for c in "xy"]
    for i in range(50 if SOAK else 1):
        there, treasure = node.place(names)
        left = there / f".{socket.gethostname()}_1_20200101000000{i:03}_sonde.4194304.tmp"

        def make():
            os.umask(0)
            left.mkdir()
            for folder in pairs[::2]:
                (left / folder).mkdir()
                for name in names:
                    (left / folder / name).touch()
            for link in pairs[1::2]:
                (left / link).symlink_to(treasure.dir)

        node.users.bob.do(make)
        with attacker(node.users.bob, node.users.build, "exchange", left, *pairs) as rounds:
            node.trace(there)
        assert rounds[0] > 1000
        treasure.check(rounds)


@pytest.mark.soak
@pytest.mark.deadline(1200)
def test_every_name_of_a_trace_becomes_a_link(node):
    for _ in range(50 if SOAK else 1):
        there, treasure = node.place()
        with attacker(node.users.bob, node.users.build, "replace", there, treasure.dir) as rounds:
            node.trace(there)
        assert rounds[0]
        treasure.check(rounds)


@pytest.mark.soak
@pytest.mark.deadline(1200)
@pytest.mark.parametrize("writer", ["a timeline", "a comparison", "a dump", "a recording"])
def test_a_directory_that_is_exchanged_for_a_link(users, writer):
    """Thousands of times while files are written below it."""
    bob, inputs = users.bob, Inputs(users)
    treasure, parent = Treasure(users.alice), project_of(users.bob)
    inputs["dir"] = project_of(bob, "project/there")
    bob.do(lambda: (parent / "link").symlink_to(treasure.dir))
    words = words_of(users, writer, inputs)
    with attacker(bob, users.build, "exchange", parent, "there", "link") as rounds:
        for i in range(500 if SOAK else 10):
            r = (users.root if i % 2 else users.alice).run(*words, groups=[PROJECT])
            assert r.returncode >= 0 and (r.returncode == 0 or r.stderr), r
    assert rounds[0] > 1000
    treasure.check(rounds)


# --- files that say where others are ---


def test_a_pid_file_of_somebody_else_stops_nobody(users):
    """It names a process of alice's, who stops what she thinks is hers."""
    alice, there = users.alice, project_of(users.bob)
    victim = alice.popen("sleep", 60)
    wait_until(lambda: pathlib.Path(f"/proc/{victim.pid}/comm").read_text() == "sleep\n")
    pids = there / "t.json.pids"
    start = pathlib.Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[19]
    text = f"main_pid={victim.pid}\nsniffer_pid={victim.pid}\n"
    text += f"main_start={start}\nsniffer_start={start}\n"
    users.bob.do(lambda: (pids.write_text(text), pids.chmod(0o644)))
    r = alice.run(users.build / "bin/sonde", "stack", "--stop", "-o", there / "t.json")
    assert r.returncode == 1 and "t.json.pids" in r.stderr, r
    assert victim.poll() is None


class Killed:
    """A recording whose job and recorder were killed together: its rings are full."""

    def __init__(self, users, user, there):
        self.h = h = Hurt(users.build, there)
        h.job = user.popen(*h.command(*h.steady(pace=100)), groups=[PROJECT])
        h.wait_counted(500)
        recorder = h.session.recorder
        for pid in (recorder, h.job.pid):
            os.kill(pid, signal.SIGSTOP)
        for pid in (recorder, h.job.pid):
            os.kill(pid, signal.SIGKILL)
        h.job.wait()
        wait_gone(recorder)
        self.dir = h.recording
        assert list(self.dir.glob("*.ring"))

    def open_to_the_group(self):
        subprocess.run(["chgrp", "-R", str(PROJECT), self.h.out], check=True)
        subprocess.run(["chmod", "-R", "g+rwX", self.h.out], check=True)


@pytest.mark.parametrize("who", ["alice", "root"])
def test_a_recording_of_somebody_else_is_recovered_where_it_lies(users, who):
    """It says that its dumps are below a link, which leads to alice's by now."""
    there, treasure = project_of(users.bob), Treasure(users.alice)
    real, link = there / "real", there / "link"
    users.bob.do(lambda: (real.mkdir(), real.chmod(0o2775), link.symlink_to(real)), [PROJECT])
    killed = Killed(users, users.bob, link)
    killed.open_to_the_group()
    recording = real / killed.dir.relative_to(link)
    users.bob.do(lambda: (link.unlink(), link.symlink_to(treasure.dir)))
    words = ["mem", "recover", recording]
    r = getattr(users, who).run(users.build / "bin/sonde", *words, groups=[PROJECT])
    assert r.returncode >= 0, r
    treasure.check(r)


# --- a job believes only pages of its own user ---

SESSION_PAGE = b"SESSION1" + (1).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(4080)


def test_a_job_maps_no_page_of_another_user(users):
    """Bob owns the directory above, moves the recording away and puts his own there."""
    above = users.bob.mkdir("above", 0o777)
    out = above / "out"
    users.alice.do(lambda: out.mkdir(0o755))
    sim = users.build / "sim/simtrain"
    job = users.alice.popen(
        users.build / "bin/msmemscope", "--report=off", f"--output={out}", "--", "sh", "-c",
        f"echo ready; read go; exec {sim} --quiet --steps 3",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert job.stdout.readline() == "ready\n"
    (recording,) = out.glob("recording_*")
    planted = users.bob.mkdir("planted", 0o777)

    def plant():
        out.rename(above / "old")
        (out / recording.name).mkdir(parents=True)
        page = out / recording.name / "session"
        page.write_bytes(SESSION_PAGE[:88] + bytes(planted) + SESSION_PAGE[88 + len(bytes(planted)) :])
        for path in (out, out / recording.name, page):
            path.chmod(0o777)

    users.bob.do(plant)
    stdout, stderr = job.communicate("go\n", timeout=60)
    assert job.returncode == 0, stderr
    assert "is not recorded" in stderr and "belongs to another user" in stderr, (stdout, stderr)
    assert not list(planted.iterdir()) and not list((out / recording.name).glob("*.ring"))


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_no_recording_where_everybody_may_replace_it(users, mode):
    out = users.bob.mkdir("open", mode)
    r = users.alice.run(users.build / "bin/msmemscope", f"--output={out}", "--", "true")
    assert r.returncode == 1 and "every user can replace files" in r.stderr, r.stderr
    assert not list(out.iterdir())
