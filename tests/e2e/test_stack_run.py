# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde stack run` and what goes on in the background: the job notices nothing."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from stack_jobs import BUSY, PARKED, Jobs, check, functions, holds, pids, read, repaired
from waiting import pause, wait_until


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def run(jobs, *words, opts=("-i", "0.01", "-o", "t.json"), **kw):
    return jobs.stack("run", *opts, "--", *words, **kw)


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


# --- the job's exit status, files and signals ---


@pytest.mark.parametrize(
    "words, status",
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
        (["no-such-program"], 127),
        (["/"], 126),
        ([os.path.abspath(__file__)], 126),
    ],
)
def test_exit_status(jobs, tmp_path, words, status):
    r = run(jobs, *words)
    assert r.returncode == status, r.stderr
    if status in (126, 127):
        assert "cannot run" in r.stderr
        assert not (tmp_path / "t.json").exists()
    else:
        assert read(tmp_path / "t.json") == []


def test_the_files_are_the_jobs(jobs, tmp_path):
    r = run(jobs, "sh", "-c", "cat; echo to stderr >&2", opts=("-q", "-o", "t.json"), input="text")
    assert (r.returncode, r.stdout, r.stderr) == (0, "text", "to stderr\n")
    open_files = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    plain = subprocess.run([sys.executable, "-c", open_files], capture_output=True, text=True)
    r = run(jobs, sys.executable, "-c", open_files, stdin=subprocess.DEVNULL)
    assert r.stdout == plain.stdout


def test_from_the_first_moment_on(jobs, tmp_path):
    r = run(jobs, sys.executable, jobs.script(BUSY), "0.5")
    assert (r.returncode, r.stdout) == (0, "ready\n")
    assert {"<module>", "loop", "alpha", "beta"} <= set(functions(check(read(tmp_path / "t.json"))))


TREE = """
import os, subprocess, sys, time

def worker(n):
    end = time.monotonic() + 3
    while time.monotonic() < end:
        time.sleep(0.01)

if len(sys.argv) > 1:
    worker(int(sys.argv[1]))
else:
    # two children, of which one is left to itself by a shell that ends at once
    child = subprocess.Popen([sys.executable, __file__, "1"])
    subprocess.run(["sh", "-c", "%s %s 2 &" % (sys.executable, __file__)])
    child.wait()
    time.sleep(0.1)
"""


def test_all_descendants_are_sampled(jobs, tmp_path):
    r = run(jobs, sys.executable, jobs.script(TREE, "tree.py"))
    assert r.returncode == 0, r.stderr
    events = check(read(tmp_path / "t.json"))
    workers = {e["pid"] for e in events if e["ph"] == "B" and e["args"]["function"] == "worker"}
    assert len(workers) == 2 and len(pids(events)) >= 3


CATCH = """
import signal, sys, time

count = 0

def caught(number, frame):
    global count
    count += 1

signal.signal(signal.%s, caught)
print("ready", flush=True)
end = time.monotonic() + 20
while not count and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.2)
sys.exit(40 + count)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_go_to_the_job(jobs, tmp_path, name):
    script = jobs.script(CATCH % name)
    sampler = jobs.begin("run", "-i", "0.01", "-o", "t.json", "--", sys.executable, script)
    assert sampler.stdout.readline() == "ready\n"
    sampler.send_signal(getattr(signal, name))
    sampler.communicate(timeout=30)
    assert sampler.returncode == 41
    assert "caught" not in functions(check(read(tmp_path / "t.json")), pid=sampler.pid)


def test_ctrl_c_reaches_the_job_once(jobs, tmp_path):
    script = jobs.script(CATCH % "SIGINT")
    main, side = os.openpty()
    # a session of its own, whose terminal is ours
    sampler = jobs.begin(
        *["run", "-i", "0.01", "-o", "t.json", "--", sys.executable, script],
        stdin=side,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(side)
    assert sampler.stdout.readline() == "ready\n"
    os.write(main, b"\x03")
    sampler.communicate(timeout=30)
    os.close(main)
    assert sampler.returncode == 41
    check(read(tmp_path / "t.json"))


def test_the_job_outlives_its_sampler(jobs, tmp_path):
    marker = tmp_path / "done"
    script = jobs.script(BUSY + f"open({str(marker)!r}, 'w')\n")
    sampler = jobs.begin("run", "-i", "0.005", "-o", "t.json", "--", sys.executable, script, "1")
    wait_until(lambda: holds(tmp_path / "t.json", "beta"))
    sampler.kill()
    wait_until(marker.exists)
    assert "alpha" in functions(repaired(tmp_path / "t.json"))


def test_a_duration_ends_the_sampling_only(jobs, tmp_path):
    script = jobs.script(BUSY)
    opts = "-i 0.01 -d 0.3 -o t.json --json".split()
    r = run(jobs, sys.executable, script, "0.8", opts=opts)
    assert r.returncode == 0
    said = json.loads(r.stdout.split("ready\n")[1])
    assert said["ended_by"] == "duration" and said["job_status"] == 0
    check(read(tmp_path / "t.json"))


def test_words_of_the_shell_wrapper(jobs, tmp_path):
    script = jobs.script(PARKED)
    clock = subprocess.Popen(["sleep", "3"], stdout=subprocess.PIPE)
    r = run(
        jobs,
        *[sys.executable, script, "2"],
        opts=[
            *["--output", "t.json", "--interval", "0.01", "--autosave-interval", "0.1"],
            *["--python", "/usr/bin/python3", "--sniffer-script", "sniffer.py"],
            *["--sniffer-arg", "--all-threads", "--sniffer-arg", "--autosave-output"],
            *["--sniffer-arg", "a.json"],
        ],
        stdin=clock.stdout,
    )
    clock.communicate()
    assert r.returncode == 0, r.stderr
    assert "not needed" in r.stderr
    assert "innermost" in functions(check(read(tmp_path / "t.json")))
    check(read(tmp_path / "a.json"))


def test_a_dry_run_does_nothing(jobs, tmp_path):
    r = run(jobs, "touch", "ran", opts=("--dry-run", "-o", "t.json"))
    assert r.returncode == 0
    assert "job: touch ran" in r.stdout and "t.json" in r.stdout
    assert not list(tmp_path.iterdir())


# --- in the background ---


def pid_file(path):
    return dict(re.findall(r"^(\w+)=(\d+)$", pathlib.Path(path).read_text(), re.M))


def test_detach_status_stop(jobs, tmp_path):
    script = jobs.script(BUSY)
    r = jobs.stack(
        *["run", "--detach", "-i", "0.01", "-o", "t.json", "--", sys.executable, script, "60"]
    )
    assert r.returncode == 0, r.stderr
    who = pid_file(tmp_path / "t.json.pids")
    job, sampler = int(who["main_pid"]), int(who["sniffer_pid"])
    assert r.stdout == f"main_pid={job}\nsniffer_pid={sampler}\n"
    assert alive(job) and alive(sampler)
    r = jobs.stack("run", "--status", "-o", "t.json")
    assert r.returncode == 0
    assert r.stdout == f"main_pid={job} running\nsniffer_pid={sampler} running\n"
    # not twice into the same file
    r = jobs.stack("run", "--detach", "-o", "t.json", "--", "touch", "ran")
    assert r.returncode == 1 and f"process {sampler}" in r.stderr
    assert not (tmp_path / "ran").exists()

    wait_until(lambda: holds(tmp_path / "t.json", "beta"))
    r = jobs.stack("--stop", "-o", "t.json")
    assert r.returncode == 0, r.stderr
    assert not alive(job) and not alive(sampler)
    assert "alpha" in functions(check(read(tmp_path / "t.json")))
    assert "ready" in (tmp_path / "t.json.wrapper.log").read_text()
    assert jobs.stack("--status", "-o", "t.json").returncode == 1
    assert jobs.stack("--stop", "-o", "t.json").returncode == 1


def test_json_of_what_is_in_the_background(jobs, tmp_path):
    plan = run(jobs, "sleep", "60", opts=("--dry-run", "--json", "-o", "t.json"))
    assert "job: sleep 60" in json.loads(plan.stdout)["plan"]
    r = run(jobs, "sleep", "60", opts=("--detach", "--json", "-q", "-o", "t.json"))
    assert r.returncode == 0, r.stderr
    begun = json.loads(r.stdout)
    status = ("run", "--status", "--json", "-o", "t.json")
    assert json.loads(jobs.stack(*status).stdout) == begun
    assert begun["main"]["running"] and begun["sniffer"]["running"]
    assert jobs.stack("--stop", "-o", "t.json").returncode == 0
    r = jobs.stack(*status)
    assert r.returncode == 1 and json.loads(r.stdout) == {"main": None, "sniffer": None}


def test_sampling_in_the_background(jobs, tmp_path):
    job = jobs.python(PARKED)
    r = jobs.stack(
        *f"--detach -p {job.pid} -i 0.01 -o t.json --pid-file p --detach-log-file l".split()
    )
    assert r.returncode == 0, r.stderr
    sampler = int(pid_file(tmp_path / "p")["sniffer_pid"])
    assert r.stdout == f"sniffer_pid={sampler}\n"
    wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
    r = jobs.stack("--stop", "--pid-file", "p", "-o", "t.json")
    assert r.returncode == 0
    assert not alive(sampler) and alive(job.pid)
    assert functions(check(read(tmp_path / "t.json"))) == ["<module>", "wait_here"]
    assert "wrote 't.json'" in (tmp_path / "l").read_text()


def test_what_fails_in_the_background_is_said_in_front(jobs, tmp_path):
    r = jobs.stack("run", "--detach", "-o", "t.json", "--", "no-such-program")
    assert r.returncode == 127 and "no-such-program" in r.stderr
    (tmp_path / "t.json").mkdir()
    r = jobs.stack("run", "--detach", "-o", "t.json", "--", "touch", "ran")
    assert r.returncode == 1 and "t.json" in r.stderr
    assert not (tmp_path / "ran").exists()


def test_a_pid_that_is_somebody_elses_by_now(jobs, tmp_path):
    innocent = jobs.start("sleep", "60")
    (tmp_path / "t.json.pids").write_text(
        f"main_pid={innocent.pid}\nsniffer_pid={innocent.pid}\nmain_start=1\nsniffer_start=1\n"
    )
    assert jobs.stack("--status", "-o", "t.json").returncode == 1
    assert jobs.stack("--stop", "-o", "t.json").returncode == 1
    pause(0.05, "a signal would arrive")
    assert innocent.poll() is None
