# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde snap`: the one line, groups, helpers, hangs, watching, the other name."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from pythons import every_python, one_per_minor
from harness import process_state
from screens import Screen
from waiting import pause, wait_until

TOP = pathlib.Path(__file__).resolve().parents[2]
STUCK_RANK = TOP / "examples/stuck_rank/launch.py"
WAIT_S = 30  # far more than anything here takes


class Job:
    """Python programs that say when they are where they should be, and sonde to look at them."""

    def __init__(self, build, tmp_path):
        self.build, self.tmp, self.started = build, tmp_path, []

    def start(self, source, *args, python=sys.executable, rank=None, name="job.py"):
        """Runs the source until it prints a line."""
        path = self.tmp / name
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        env = {k: v for k, v in os.environ.items() if "RANK" not in k}
        if rank is not None:
            env["RANK"] = str(rank)
        process = subprocess.Popen(
            [python, str(path), *map(str, args)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        self.started.append(process)
        assert process.stdout.readline(), "the program did not start"
        return process

    def start_ranks(self, ranks, stuck):
        """The example with one process per rank; until it is stuck, or has made some steps."""
        process = subprocess.Popen(
            [sys.executable, str(STUCK_RANK), str(ranks), str(stuck)],
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        self.started.append(process)
        while process.stdout.readline() != "step 3\n":
            assert process.poll() is None
        return process

    def run(self, *args, program="sonde", status=0, env=None):
        words = [program] if program != "sonde" else [program, "snap"]
        done = subprocess.run(
            [str(self.build / "bin" / words[0]), *words[1:], *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=WAIT_S,
            env=dict(os.environ, **(env or {})),
        )
        assert done.returncode == status, (args, done.stdout, done.stderr)
        return done.stdout if status in (0, 3) else done.stderr

    def until(self, text, *args):
        """The output that has the text in it: processes take a moment to get to their waits."""

        def shown():
            out = self.run(*args)
            return out if text in out else None

        return wait_until(shown, lambda: f"'{text}' in {self.run(*args)}", WAIT_S, 0.05)

    def asleep(self, process):
        """Waits until it is: what it prints is read before it gets to where it stays."""
        wait_until(lambda: process_state(process.pid) == "S", "it to rest", WAIT_S)
        return process

    def close(self):
        for process in self.started:
            process.kill()
            process.wait()
            process.stdout.close()
            if process.stdin:
                process.stdin.close()


@pytest.fixture
def job(build, tmp_path):
    made = Job(build, tmp_path)
    yield made
    made.close()


PARKED = """
    import sys, threading, time

    def wait_here():
        print("ready", flush=True); sys.stdin.read()  # one line: it may be seen at either

    wait_here()
"""

ANSWER = (
    r"8 ranks: 7 in all_reduce at trainer\.py:\d+, "
    r"1 in (Loader\.)?load_batch at data\.py:\d+ \(rank 5\)\n"
    r"Rank 5 is elsewhere: the 7 others are at the same call site, all asleep\.\n"
)


def test_the_stuck_rank_is_in_the_first_line(job):
    launcher = job.start_ranks(8, 5)
    out = job.until("7 in all_reduce", "--children", "-p", launcher.pid)
    assert re.match(ANSWER, out), out
    assert "\nRanks 0-4,6,7 (7 ranks)   asleep\n  > all_reduce (" in out
    assert re.search(r"\nRank 5 \(pid \d+\)   asleep\n  > (Loader\.)?load_batch \(", out)
    assert f"\nProcesses that are not ranks:\n\nLauncher, pid {launcher.pid} " in out
    # what the stuck one wants
    out = job.run("--parent", launcher.pid, "--locals", "load_batch,train_step")
    assert "        path = '/data/shard-5/000003.bin'\n" in out
    assert "      ranks 0-4,6,7:\n" in out  # their variables are the same
    # for programs
    data = json.loads(job.run("--parent", launcher.pid, "--json"))
    # in the order of pids, which begin again at some time
    assert [sorted(p["ranks"]) for p in data["places"]] == [[0, 1, 2, 3, 4, 6, 7], [5]]
    assert [p["elsewhere"] for p in data["places"]] == [False, True]
    assert data["places"][1]["frame"]["home"] == "job"
    assert data["groups"][0]["frames"][0]["name"] == "all_reduce"
    assert {t["state"] for t in data["groups"][0]["threads"]} == {"idle"}
    assert data["skew_ns"] > 0
    assert len(data["processes"]) == 9


def test_a_hang_is_found_and_said_whose_it_is(job):
    launcher = job.start_ranks(4, 2)
    job.until("3 in all_reduce", "--parent", launcher.pid)
    out = job.run("--parent", launcher.pid, "--hang", "0.5", status=3)
    lines = out.split("\n")
    first = (
        r"4 of 4 ranks have not moved for 0\.5 s: 1 in \S*load_batch at data\.py:\d+ \(rank 2\), "
        r"3 in all_reduce at trainer\.py:\d+$"
    )
    assert re.match(first, lines[0])
    rank_2 = r"Rank 2 has not moved for \d+\.\d s: in \S*load_batch at data.py:\d+; asleep$"
    assert re.match(rank_2, lines[1])
    assert lines[2].startswith("Ranks 0,1,3 have not moved for ")
    assert lines[2].endswith("probably waiting for another rank")
    assert "4 ranks: 3 in all_reduce" in out
    data = json.loads(job.run("--parent", launcher.pid, "--hang", "0.5", "--json", status=3))
    assert data["hang"] and [s["rank"] for s in data["still"]][0] == 2
    assert [s["with_most"] for s in data["still"]] == [False, True, True, True]


def test_a_job_that_moves_does_not_hang(job):
    """The loop is found at the same instruction nearly always: only its variables tell."""
    moving = job.start(
        """
        import time

        def step(n):
            time.sleep(0.05)

        print("ready", flush=True)
        n = 0
        def train():
            for n in range(10000):
                step(n)
        train()
        """
    )
    out = job.run("-p", moving.pid, "--hang", "0.6", "--for", "2")
    assert out == "no hang of 0.6 s was seen\n"


IN_THE_SCRIPT = """
import time
print("ready", flush=True)
for n in range(10000):
    time.sleep(0.05)
"""
IN_AN_OBJECT = """
import time

class Trainer:
    n = 0

    def step(self):
        time.sleep(0.05)
        self.n += 1

def train():
    trainer = Trainer()
    while True:
        trainer.step()

print("ready", flush=True)
train()
"""


@pytest.mark.parametrize("python", one_per_minor())
def test_progress_that_no_local_variable_shows(job, python):
    script = job.start(IN_THE_SCRIPT, python=python.path, name="script.py")
    method = job.start(IN_AN_OBJECT, python=python.path, name="object.py")
    out = job.run("-p", f"{script.pid},{method.pid}", "--hang", "0.6", "--for", "1")
    assert out == "no hang of 0.6 s was seen\n"


def test_others_do_not_move_for_it(job):
    """What other threads set does not count for one that has not run."""
    stuck = job.start(
        """
        import threading, time

        class Trainer:
            beat = 0

            def beats(self):
                while True:
                    time.sleep(0.01)
                    self.beat += 1

            def stuck(self):
                lock = threading.Lock()
                lock.acquire()
                lock.acquire()

        t = Trainer()
        threading.Thread(target=t.beats, daemon=True).start()
        print("ready", flush=True)
        t.stuck()
        """
    )
    out = job.run("-p", stuck.pid, "--hang", "0.6", "--for", "5", status=3)
    assert "has not moved" in out and "stuck at job.py" in out


def test_a_look_that_was_stopped_takes_nobody_for_stuck(job):
    """Time in which nobody looked says nothing."""
    target = job.start(PARKED)
    look = subprocess.Popen(
        [str(job.build / "bin/sonde"), "snap", "-p", str(target.pid), "--hang", "1.5"],
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    job.started.append(look)
    pause(0.4, "it has looked some times")
    look.send_signal(signal.SIGSTOP)
    pause(2.5, "longer than --hang")
    look.send_signal(signal.SIGCONT)
    out, _ = look.communicate(timeout=WAIT_S)
    seconds = float(re.search(r"has not moved for (\d+\.\d) s", out).group(1))
    assert look.returncode == 3 and 1.5 <= seconds < 2.5 + 1.5


def test_a_process_that_is_not_there(job):
    for pid in (99999999, 2**31 - 1):
        err = job.run("-p", pid, status=1)
        assert f"there is no process {pid}" in err


def test_no_hang_when_the_processes_end(job):
    ending = job.start("import time\nprint('ready', flush=True)\ntime.sleep(3)\n")
    out = job.run("-p", ending.pid, "--hang", "20")
    assert out == "no hang of 20.0 s was seen; the processes have ended\n"


def test_spinning_in_c_is_busy(job):
    spinning = job.start(
        """
        import sys

        def spin():
            print("ready", flush=True)
            sum(iter(int, 1))  # for ever, in C

        spin()
        """
    )
    out = job.run("-p", spinning.pid, "--hang", "1", status=3)
    assert re.search(r"the same Python line, but busy \(CPU \d+ %\)", out), out


def test_pids_where_there_are_no_ranks(job):
    first, second = job.start(PARKED), job.start(PARKED, name="other.py")
    pids = sorted([first.pid, second.pid])
    out = job.run("-p", f"{first.pid},{second.pid}")
    assert out.startswith("2 processes: 1 in wait_here at ")
    for pid in pids:
        assert f"(pid {pid})" in out.split("\n")[0]


def test_children_of_a_rank_are_not_the_rank(job):
    """Workers of data loaders inherit RANK."""
    rank = job.start(
        """
        import os, subprocess, sys, time

        def run_rank():
            code = "import sys\\ndef work():\\n    print('w', flush=True); sys.stdin.read()\\nwork()"
            child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
            child.stdout.readline()
            print(child.pid, flush=True)
            sys.stdin.read()

        run_rank()
        """,
        rank=3,
    )
    out = job.run("--children", "-p", rank.pid)
    assert out.startswith("rank 3 is in run_rank at job.py:")
    assert "\nProcesses that are not ranks:\n\nOf rank 3 (pid " in out


def test_watch_tells_what_changes(job):
    target = job.start(PARKED + "\n    def second():\n        time.sleep(60)\n    second()\n")
    watch = subprocess.Popen(
        [str(job.build / "bin/sonde"), "snap", "-p", str(target.pid), "-w", "-i", "0.05"],
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    job.started.append(watch)
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", watch.stdout.readline())
    assert "in wait_here at job.py" in watch.stdout.readline()
    pause(0.3, "nothing changes: nothing is said")
    target.stdin.close()
    target.stdin = None
    line = ""
    while "in second at job.py" not in line:
        assert "in wait_here" not in line
        line = watch.stdout.readline()
        assert line
    watch.send_signal(signal.SIGINT)
    assert watch.wait(WAIT_S) == 0


def test_watch_ends_in_time_and_with_the_processes(job):
    target = job.start(PARKED)
    out = job.run("-p", target.pid, "--watch", "-i", "0.05", "--for", "0.2", "--json")
    assert [json.loads(line)["answer"] for line in out.splitlines()] == [
        json.loads(out.splitlines()[0])["answer"]
    ]
    target.kill()
    target.wait()
    assert f"{target.pid}" in job.run("-p", target.pid, status=1)


def test_the_other_name_keeps_its_shape(job):
    first, second = job.start(PARKED), job.start(PARKED)
    pids = [first.pid, second.pid]
    # The table of a newer driver: no names, and a fifth column.
    rows = "\n".join(f"| 0       0   | {p}   |      | 60000     | {p} |" for p in pids)
    fake = job.tmp / "npu-smi"
    fake.write_text(
        "#!/bin/sh\ncat <<'END'\n"
        "+-------------+-------+------+-----------+----+\n"
        "| NPU    Chip | Process id | Process name | Process memory(MB) | Process id in container |\n"
        "+=============+=======+======+===========+====+\n"
        f"{rows}\n+=============+=======+======+===========+====+\nEND\n"
    )
    fake.chmod(0o755)
    env = {"PATH": f"{job.tmp}:{os.environ['PATH']}"}
    out = job.run(program="py_stack_snap", env=env)
    for pid in pids:
        assert f"\n--- Stack dump for PID {pid} ---\n" in out
    assert out.count("Thread ") == 2 and out.count(': "MainThread"\n') == 2
    assert out.count("    wait_here (") == 2
    assert "2 processes: all in wait_here at job.py:" in out
    # more lines than ten, where they are asked for
    deep = job.start(
        """
        import sys

        def down(n):
            if n:
                return down(n - 1)
            print("ready", flush=True)
            sys.stdin.read()

        down(60)
        """
    )
    assert job.run("-p", deep.pid, program="py_stack_snap").count("    down (") == 10
    assert job.run("-p", deep.pid, "-t", "50", program="py_stack_snap").count("    down (") == 50
    assert "… 12 more" in job.run("-p", deep.pid, "-t", "50", program="py_stack_snap")


def test_nothing_to_look_at_says_what_to_do(job):
    err = job.run(status=1, env={"PATH": "/nonexistent"})
    assert "no Python process on an NPU or GPU (no NPU and no GPU); name it with -p" in err
    err = job.run("--name", "surely-nobody-has-this", status=1)
    assert "no Python process found (searched: name 'surely-nobody-has-this'); -a samples all" in err
    cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        assert "Python" in job.run("-p", cat.pid, status=1)
    finally:
        cat.kill()
        cat.wait()
        cat.stdin.close()


def test_wrong_command_lines(job):
    assert "--watch" in job.run("--watch", "--hang", "3", status=2)
    assert "--for" in job.run("-p", "1", "--for", "3", status=2)
    assert "empty name" in job.run("--locals", "a,,b", status=2)


def test_native_frames_in_the_groups(job):
    target = job.asleep(job.start(PARKED))
    out = job.run("-p", target.pid, "--native", "-t", "0")
    assert out.startswith(f"pid {target.pid} is in wait_here at job.py:")
    assert re.search(r"\n    \S*read\S* \(.*libc", out), out
    assert "\n  > wait_here (" in out


OBJECTS = """
    import sys, threading

    class Plain:
        pass

    class Slots:
        __slots__ = ("x",)

    def work():
        threading.Event().wait()

    class Sub(threading.Thread):
        def run(self):
            work()

    def build(first, used_inside, *rest, key="k", **more):
        numbers = [0, -7, 2**40, 2**70, 1.5, 100.0, 1e300, float("inf")]
        texts = ["a'b\\n", "d\\u00e9j\\u00e0", "\\u6c49\\u5b57", "\\U0001f600", b"\\x00z"]
        nested = {"a": [1, (2,)], 3: {4}}
        cycle = []; cycle.append(cycle)
        things = (None, True, Plain, Ellipsis)
        plain = Plain(); plain.__dict__
        gone = 1; del gone
        shared = 5
        def inner():
            return used_inside, shared
        print("ready", flush=True)
        sys.stdin.read()

    threads = [threading.Thread(target=work, name="w\\u00f6rker \\u6c49", daemon=True)]
    threads += [Sub(name="sub-%d" % i, daemon=True) for i in range(3)]
    for t in threads:
        t.extra = 1
        t.start()
    threads[1].name = "renamed"
    threads[2].__dict__["more"] = 2  # has a dict from now on
    build(1, "two", 3, 4, z=9)
"""

WANT = {
    "first": "1",
    "used_inside": "'two'",
    "key": "'k'",
    "rest": "(3, 4)",
    "more": "{'z': 9}",
    "numbers": "[0, -7, 1099511627776, <int of about 71 bits>, 1.5, 100.0, 1e+300, inf]",
    "texts": "['a\\'b\\n', 'déjà', '汉字', '😀', b'\\x00z']",
    "nested": "{'a': [1, (2,)], 3: {4}}",
    "shared": "5",
}


@pytest.mark.parametrize("python", every_python())
def test_names_of_threads_and_variables(job, python):
    target = job.start(OBJECTS, python=python.path)
    out = job.run("-p", target.pid, "--all-threads", "--json", "--locals", "build")
    groups = json.loads(out)["groups"]
    threads = [t for g in groups for t in g["threads"]]
    names = {t["name"] for t in threads}
    assert names == {"MainThread", "wörker 汉", "renamed", "sub-1", "sub-2"}
    main = next(t for t in threads if t["main"])
    values = {v["name"]: v["value"] for v in main["locals"]}
    assert {k: values.get(k) for k in WANT} == WANT
    assert "gone" not in values
    assert values["cycle"].startswith("[[[[") and "…" in values["cycle"]
    assert values["things"].startswith("(None, True, <class __main__.Plain>, <")
    assert values["plain"].startswith("<__main__.Plain at 0x")
    arguments = [v["name"] for v in main["locals"] if v["argument"]]
    assert arguments == ["first", "used_inside", "key", "rest", "more"]


INIT = """
import sys, time

class Model:
    def __init__(self, seconds):
        if seconds:
            print("ready", flush=True)
            time.sleep(seconds)

def build(seconds):
    return Model(seconds)

for _ in range(500):
    build(0)
build(100)
"""


@pytest.mark.parametrize("python", one_per_minor())
def test_frames_of_the_interpreter_itself_are_not_shown(job, python):
    """From 3.13 on there is one between a call of a class and its __init__, once that is warm."""
    target = job.start(INIT, python=python.path)
    (group,) = json.loads(job.run("-p", target.pid, "--json"))["groups"]
    names = [f["name"] for f in group["frames"]]
    assert [n.split(".")[-1] for n in names] == ["__init__", "build", "<module>"], names


def test_watch_on_a_terminal_shows_who_moves(job):
    """How many processes have moved, snapshot by snapshot, as a line of characters."""
    parked = job.start(PARKED)
    moving = job.start(
        """
        import sys, time

        def step(n):
            time.sleep(0.002)
            return step(n - 1) if n else 0

        def go_on():
            while True:
                step(30)

        print("ready", flush=True)
        go_on()
        """
    )
    words = [job.build / "bin/sonde", "snap", "-p", f"{parked.pid},{moving.pid}", "-w", "-i", "0.2"]
    with Screen(words, {"LC_ALL": "C.UTF-8"}, lines=24, columns=80) as screen:
        def course(count, end):
            """Whether the newest line says so many, and ends like this."""
            text = re.sub(rb"\x1b\[[?0-9;]*[a-zA-Z]", b"\n", screen.seen).decode(errors="ignore")
            found = re.findall(r"(\d of \d) moved since the snapshot before: ([▁-█ ]*)", text)
            return found and found[-1][0] == count and found[-1][1].rstrip().endswith(end)

        wait_until(lambda: screen.read() and course("1 of 2", "▄▄▄"), lambda: screen.seen[-500:].decode(errors="replace"), 15)
        moving.kill()
        moving.wait()
        wait_until(lambda: screen.read() and course("0 of 1", "▄"), lambda: screen.seen[-500:].decode(errors="replace"), 15)
        os.kill(screen.pid, signal.SIGINT)
        screen.ends()
