# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde stack` on running processes: what is in the file, when it ends, what it says."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from pythons import one_per_minor
from stack_jobs import (
    BUSY,
    PARKED,
    Jobs,
    check,
    functions,
    holds,
    named,
    pids,
    read,
    repaired,
)
from waiting import pause, wait_until


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def samples_of(done):
    return json.loads(done)["sampled"]


# --- what is in the file ---


@pytest.mark.parametrize("python", one_per_minor())
def test_every_interpreter(jobs, tmp_path, python):
    job = jobs.python(PARKED, "2", python=python.path)
    r = jobs.stack("-p", job.pid, "-i", "0.01", "-d", "0.2", "-o", "main.json", "--json")
    assert r.returncode == 0, r.stderr
    assert samples_of(r.stdout)["thread_samples"] > 0
    events = check(read(tmp_path / "main.json"))
    assert functions(events) == ["<module>", "wait_here"]
    assert named(events, "thread_name") == ["MainThread"]
    assert {e["tid"] for e in events if e["ph"] == "B"} == {job.pid}

    r = jobs.stack("-p", job.pid, "-i", "0.01", "-d", "0.2", "-o", "all.json", "--all-threads")
    assert r.returncode == 0, r.stderr
    events = check(read(tmp_path / "all.json"))
    assert sorted(named(events, "thread_name")) == ["MainThread", "helper 0", "helper 1"]
    assert {"outermost", "innermost"} <= set(functions(events))
    # nothing moved: each call is one bar from the first sample to the end
    begun = [e for e in events if e["ph"] == "B"]
    assert len([e for e in begun if e["args"]["function"] == "innermost"]) == 2


def test_calls_that_come_and_go(jobs, tmp_path):
    job = jobs.python(BUSY, "10")
    r = jobs.stack("-p", job.pid, "-i", "2ms", "-d", "0.5", "-o", "t.json")
    assert r.returncode == 0, r.stderr
    events = check(read(tmp_path / "t.json"))
    order = [
        e["args"]["function"]
        for e in events
        if e["ph"] == "B" and e["args"]["function"] in ("alpha", "beta")
    ]
    assert len(order) > 4 and set(order) == {"alpha", "beta"}
    # the loop that calls them is one bar: the lines it goes through do not split it
    assert len([e for e in events if e["ph"] == "B" and e["args"]["function"] == "loop"]) == 1


def test_lines_split_bars_where_that_is_wanted(jobs, tmp_path):
    job = jobs.python(BUSY, "10")
    r = jobs.stack("-p", job.pid, "-i", "2ms", "-d", "0.4", "-o", "t.json", "--lines")
    assert r.returncode == 0, r.stderr
    events = check(read(tmp_path / "t.json"))
    loops = [e for e in events if e["ph"] == "B" and e["args"]["function"] == "loop"]
    assert len(loops) > 2 and len({e["args"]["line"] for e in loops}) == 2


def test_several_processes(jobs, tmp_path):
    three = [jobs.python(PARKED, name=f"job{i}.py", env={"RANK": str(i)}) for i in range(3)]
    first, second, third = (job.pid for job in three)
    both = f"{first},{second}"
    r = jobs.stack("-p", both, "-p", third, "-i", "0.02", "-d", "0.2", "-o", "t.json")
    assert r.returncode == 0, r.stderr
    assert "3 processes" in r.stderr
    events = check(read(tmp_path / "t.json"))
    assert pids(events) == {first, second, third}
    for rank, pid in enumerate((first, second, third)):
        (name,) = named(events, "process_name", pid)
        assert f"rank {rank}" in name and f"job{rank}.py" in name


def test_formats(jobs, tmp_path):
    job = jobs.python(PARKED)
    common = ["-p", job.pid, "-i", "0.01", "-d", "0.15", "--quiet"]
    for form in ("collapsed", "speedscope", "pprof"):
        r = jobs.stack(*common, "--format", form, "-o", form)
        assert (r.returncode, r.stderr) == (0, "")
    assert re.search(r"wait_here.* \d+$", (tmp_path / "collapsed").read_text(), re.M)
    speedscope = json.loads((tmp_path / "speedscope").read_text())
    assert "wait_here" in [f["name"] for f in speedscope["shared"]["frames"]]
    assert b"wait_here" in gzip.decompress((tmp_path / "pprof").read_bytes())
    r = jobs.stack(*common, "-o", "t.json.gz")
    assert r.returncode == 0
    assert (tmp_path / "t.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert "wait_here" in functions(check(read(tmp_path / "t.json.gz")))


def test_rotation(jobs, tmp_path):
    job = jobs.python(BUSY, "10")
    r = jobs.stack(
        *f"-p {job.pid} -i 2ms -d 1.2 -o t.json --rotate-time 0.2 --keep 2 --quiet".split()
    )
    assert r.returncode == 0, r.stderr
    files = sorted(p.name for p in tmp_path.glob("t*.json"))
    assert "t.json" in files and len(files) == 3
    for name in files:
        events = check(read(tmp_path / name))
        assert "loop" in functions(events)
        assert named(events, "thread_name") == ["MainThread"]


def test_native_frames(jobs, tmp_path):
    job = jobs.python(BUSY, "10")
    r = jobs.stack("-p", job.pid, "-i", "0.02", "-d", "0.5", "-o", "t.json", "--native", "--json")
    assert r.returncode == 0, r.stderr
    seen = functions(check(read(tmp_path / "t.json")))
    assert {"alpha", "beta"} & set(seen)
    assert any("sleep" in name for name in seen), seen


# --- when it ends ---


def test_it_ends_with_the_processes(jobs, tmp_path):
    short, shorter = jobs.python(BUSY, "3"), jobs.python(BUSY, "2", name="other.py")
    r = jobs.stack("-p", f"{short.pid},{shorter.pid}", "-i", "0.01", "-o", "t.json")
    assert r.returncode == 0
    assert "all processes have ended" in r.stderr
    assert pids(check(read(tmp_path / "t.json"))) == {short.pid, shorter.pid}


def test_processes_that_are_dead_already(jobs, tmp_path):
    gone = jobs.python(BUSY, "0")
    gone.wait()
    r = jobs.stack("-p", gone.pid, "-o", "t.json")
    assert r.returncode == 0
    assert f"there is no process {gone.pid}" in r.stderr
    assert read(tmp_path / "t.json") == []
    alive = jobs.python(PARKED)
    r = jobs.stack("-p", f"{gone.pid},{alive.pid}", "-i", "0.02", "-d", "0.2", "-o", "t.json")
    assert r.returncode == 0
    assert pids(check(read(tmp_path / "t.json"))) == {alive.pid}


def test_a_process_without_python(jobs, tmp_path):
    sleeper = jobs.start("sleep", "60")
    r = jobs.stack("-p", sleeper.pid, "-o", "t.json")
    assert r.returncode == 1
    assert r.stderr.count("is not a Python process") == 1
    assert read(tmp_path / "t.json") == []


def test_a_process_of_somebody_else(jobs, users):
    job = jobs.python(PARKED)
    r = users.bob.run(users.build / "bin/sonde", "stack", "-p", job.pid, "-o", "t.json")
    assert r.returncode == 1
    assert r.stderr.count(f"may not read process {job.pid}") == 1
    assert "sudo" in r.stderr or "SYS_PTRACE" in r.stderr


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_complete_the_file(jobs, tmp_path, sig):
    job = jobs.python(PARKED)
    sampler = jobs.begin("-p", job.pid, "-i", "0.01", "-o", "t.json")
    wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
    sampler.send_signal(sig)
    _, said = sampler.communicate(timeout=30)
    assert sampler.returncode == 0
    assert functions(check(read(tmp_path / "t.json"))) == ["<module>", "wait_here"]
    assert "wrote 't.json'" in said and "ui.perfetto.dev" in said


def test_the_same_signal_twice_is_one(jobs, tmp_path):
    """timeout(1) sends it to us and to our process group."""
    for i in range(8):
        job = jobs.python(PARKED)
        sampler = jobs.begin("-p", job.pid, "-i", "0.01", "-o", f"t{i}.json")
        wait_until(lambda: holds(tmp_path / f"t{i}.json", "wait_here"))
        sampler.send_signal(signal.SIGINT)
        pause(i / 2000, "any moment of the end")
        sampler.send_signal(signal.SIGINT)
        sampler.communicate(timeout=30)
        assert sampler.returncode == 0
        assert functions(check(read(tmp_path / f"t{i}.json"))) == ["<module>", "wait_here"]


def test_a_signal_that_shells_ignore_in_the_background(jobs, tmp_path):
    job = jobs.python(PARKED)
    words = [jobs.bin / "sonde", "stack", "-p", job.pid, "-i", "0.01", "-o", "t.json"]
    script = "trap '' INT; exec " + " ".join(map(str, words))
    sampler = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
        sampler.send_signal(signal.SIGINT)
        assert sampler.wait(timeout=30) == 0
    finally:
        sampler.kill()
        sampler.wait()


def test_called_what_it_is_when_it_runs_python(jobs, tmp_path):
    script = tmp_path / "late.py"
    script.write_text("import time\ntime.sleep(0.6)\n")
    line = f"sleep 0.3; exec env RANK=5 {sys.executable} {script}"
    r = jobs.stack("run", "-i", "0.01", "-o", "t.json", "--", "env", "RANK=3", "sh", "-c", line)
    assert r.returncode == 0, r.stderr
    events = read(tmp_path / "t.json")
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names and all(n.startswith("rank 5: ") and "late.py" in n for n in names), names


def test_a_long_interval_does_not_hold_it_up(jobs, tmp_path):
    job = jobs.python(PARKED)
    sampler = jobs.begin("-p", job.pid, "-i", "3600", "-o", "t.json")
    wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
    sampler.send_signal(signal.SIGINT)
    sampler.communicate(timeout=30)
    assert sampler.returncode == 0
    check(read(tmp_path / "t.json"))


def test_a_sampler_that_is_killed(jobs, tmp_path):
    job = jobs.python(BUSY, "30")
    sampler = jobs.begin("-p", job.pid, "-i", "1ms", "-o", "t.json")
    wait_until(lambda: holds(tmp_path / "t.json", "beta"))
    wait_until(lambda: (tmp_path / "t.json").stat().st_size > 20000)
    sampler.kill()
    sampler.communicate()
    assert {"alpha", "beta"} <= set(functions(repaired(tmp_path / "t.json")))


def test_a_snapshot_on_request(jobs, tmp_path):
    job = jobs.python(PARKED)
    sampler = jobs.begin("-p", job.pid, "-i", "0.01", "-o", "t.json")
    wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
    sampler.send_signal(signal.SIGUSR1)
    (copy,) = wait_until(lambda: list(tmp_path.glob("t.2*.json")))
    assert functions(check(read(copy))) == ["<module>", "wait_here"]
    sampler.send_signal(signal.SIGINT)
    sampler.communicate(timeout=30)
    check(read(tmp_path / "t.json"))


# --- the schedule ---


def test_ticks_that_were_missed_are_not_made_up_for(jobs, tmp_path):
    job = jobs.python(PARKED)
    sampler = jobs.begin("-p", job.pid, "-i", "0.01", "-d", "3", "-o", "t.json", "--json")
    wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
    sampler.send_signal(signal.SIGSTOP)
    pause(0.4, "40 ticks are missed")
    sampler.send_signal(signal.SIGCONT)
    out, _ = sampler.communicate(timeout=30)
    sampled = samples_of(out)
    assert sampled["skipped_ticks"] >= 30
    assert sampled["rounds"] + sampled["skipped_ticks"] <= 301


def test_nothing_to_sample(jobs, tmp_path):
    r = jobs.stack(*"--empty-timeout 0.3 --name no-such-program-anywhere -o t.json".split())
    assert r.returncode == 1
    assert "no process was found" in r.stderr
    assert read(tmp_path / "t.json") == []
    r = jobs.stack(*"-d 0.1 --name no-such-program-anywhere -o t.json".split())
    assert r.returncode == 1 and "no Python process matched --name" in r.stderr


def seen_in(path, function, pid):
    """Whether it is in the file already: a process is sampled while it still begins, too."""
    lines = path.read_text().splitlines()
    return any(function in line and f'"pid":{pid},' in line for line in lines)


def test_processes_that_come_later(jobs, tmp_path):
    text = PARKED.replace("wait_here", "a_late_one")
    sampler = jobs.begin(
        *f"--name {tmp_path}/late.py -i 0.01 --refresh-interval 0.05 -o t.json".split(),
        "--empty-timeout",
        "30",
    )
    wait_until(lambda: (tmp_path / "t.json").exists())
    for _ in range(2):
        job = jobs.python(text, name="late.py")
        wait_until(lambda: seen_in(tmp_path / "t.json", "a_late_one", job.pid))
        job.stdin.close()
        job.wait()
    sampler.send_signal(signal.SIGINT)
    _, said = sampler.communicate(timeout=30)
    assert "2 processes" in said
    check(read(tmp_path / "t.json"))


SMI = """#!/bin/sh
cat <<'END'
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B2               | OK            | 96.4        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 63          0    / 0          41277/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | %d | helper                   | 702                     |
| 0       0                 | %d |                          | 38211                   |
+===========================+===============+====================================================+
END
"""


def test_whoever_uses_an_npu(jobs, tmp_path):
    """Without a word about which processes; the counters of the cards come by themselves."""
    helper, worker = jobs.python(PARKED), jobs.python(PARKED, name="worker.py")
    tool = jobs.script(SMI % (helper.pid, worker.pid), "npu-smi")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    r = jobs.stack("-i", "0.05", "-d", "2", "-o", "t.json", env=env)
    assert r.returncode == 0, r.stderr
    events = check(read(tmp_path / "t.json"))
    assert pids(events) == {worker.pid}
    counters = {e["name"]: e["args"] for e in events if e["ph"] == "C"}
    assert counters["npu_aicore_usage_rate"] == {"aicore": 63}
    r = jobs.stack(*"-i 0.05 -d 2 -o all.json --debug-pid-discovery".split(), env=env)
    assert f"process {helper.pid} on card 0 with 702 MB" in r.stderr
    assert pids(check(read(tmp_path / "all.json"))) == {helper.pid, worker.pid}


CHILDREN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL)
print("ready", flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
"""


@pytest.mark.parametrize("how", [["--children", "-p"], ["--parent"]])
def test_descendants(jobs, tmp_path, how):
    child = jobs.script(PARKED, "child.py")
    job = jobs.python(CHILDREN, child, name="parent.py")
    sampler = jobs.begin(*how, job.pid, "-i", "0.01", "-o", "t.json")
    wait_until(lambda: holds(tmp_path / "t.json", "wait_here"))
    job.stdin.close()
    sampler.communicate(timeout=30)
    assert sampler.returncode == 0
    events = check(read(tmp_path / "t.json"))
    assert len(pids(events)) == 2 and job.pid in pids(events)


def test_counters_beside_the_stacks(jobs, tmp_path):
    job = jobs.python(PARKED)
    r = jobs.stack(
        *f"-p {job.pid} -i 0.05 -d 1.5 -o t.json --cpu-mem-usage --process-usage --json".split()
    )
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["counters"] > 0
    counters = [e for e in check(read(tmp_path / "t.json")) if e["ph"] == "C"]
    assert {"cpu_mem"} <= {e["name"] for e in counters}
    assert job.pid in {e["pid"] for e in counters}
    for e in counters:
        assert all(isinstance(v, (int, float)) for v in e["args"].values())


def test_devices_that_are_not_there_are_named(jobs, tmp_path):
    job = jobs.python(PARKED)
    common = ["-p", job.pid, "-i", "0.05", "-d", "0.1", "-o", "t.json"]
    env = {"PATH": str(tmp_path)}
    assert "npu" in jobs.stack(*common, "--npu-usage", env=env).stderr.lower()
    assert "npu" not in jobs.stack(*common, env=env).stderr.lower()


def test_a_terminal_sees_what_goes_on(jobs, tmp_path, build):
    job = jobs.python(PARKED)
    main, side = os.openpty()
    sampler = jobs.begin("-p", job.pid, "-i", "0.01", "-d", "1.2", "-o", "t.json", stderr=side)
    os.close(side)
    sampler.wait(timeout=30)
    seen = b""
    try:
        while True:
            seen += os.read(main, 65536)
    except OSError:
        pass
    os.close(main)
    assert re.search(rb"\r\x1b\[K\d\.\d s: 1 process, \d+ rounds", seen), seen
    assert b"wrote 't.json'" in seen


def test_memory_is_that_of_the_sampler(jobs):
    """Not what the process had that started it: that counts for what the kernel calls the most."""
    large = b"x" * (200 << 20)
    r = jobs.stack("--name", "runs nowhere", "-d", "0.1", "-o", "t.json", "--json")
    assert r.returncode == 1 and len(large) == 200 << 20
    assert 0 < json.loads(r.stdout)["rss_bytes"] < 100 << 20
