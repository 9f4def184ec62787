# SPDX-License-Identifier: MulanPSL-2.0
"""sonde record: memory, what devices execute, steps, stacks and counters in one recording that all commands
read."""

import json
import re
import subprocess
import sys

from recording import clean_env, wait_finished
from waiting import wait_until


class Recorded:
    """A job on the simulated NPU, recorded."""

    def __init__(self, build, tmp_path, job, *options, env=None, status=0, out="rec"):
        self.build, self.out = build, tmp_path / out
        words = [build / "bin/sonde", "record", "--mspti", build / "sim/libmspti.so", "-o", self.out]
        self.env = clean_env(tmp_path, SIM_NPU_TIME_SCALE="1", **(env or {}))
        r = subprocess.run([*words, *options, "--", *job], env=self.env, capture_output=True, timeout=60)
        assert r.returncode == status, r.stderr
        self.stdout, self.said = r.stdout.decode(), r.stderr.decode()
        (self.dir,) = self.out.glob("recording_*")
        wait_finished(self.dir)

    def ask(self, *words):
        words = [self.build / "bin/sonde", *map(str, words)]
        r = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def timeline(self):
        return read_timeline(self.build, self.out, self.dir)


def read_timeline(build, tmp_path, recording):
    """Events by the name of their track."""
    path = tmp_path / "timeline.json"
    words = [build / "bin/sonde", "timeline", "--format=json", "-o", path, recording]
    r = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "nothing to show" in r.stderr:
        return {}
    assert r.returncode == 0, r.stderr
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    tracks = {}
    for e in events:
        if e["ph"] != "M":
            key = names.get((e["pid"], e.get("tid")), "") if e["ph"] != "C" else e["name"]
            tracks.setdefault(key, []).append(e)
    return tracks


def names_in(tracks):
    return {e["name"] for track in tracks.values() for e in track}


def simtrain(build, *words):
    return [build / "sim/simtrain", "--quiet", *words]


def test_memory_and_kernels_of_two_ranks(build, tmp_path):
    job = simtrain(build, "--ranks", "2", "--steps", "12")
    got = Recorded(build, tmp_path, job)
    tracks = got.timeline()
    for device in (0, 1):
        kernels = [e for name, t in tracks.items() if name.startswith(f"device {device}: compute") for e in t]
        assert sum(e["name"] == "MatMulV2" for e in kernels) > 50
    assert any(name.startswith("device 0 PTA allocated") for name in tracks)
    assert {f"step {n}" for n in range(1, 13)} <= {e["name"] for e in tracks["steps"]}
    memory = json.loads(got.ask("mem", "show", "--json", got.dir))
    assert len(memory["processes"]) == 2
    shown = json.loads(got.ask("activity", "show", "--json", got.dir))
    assert {p["rank"] for p in shown["processes"]} == {0, 1}
    summary = json.loads(got.ask("activity", "summary", "--json", got.out))
    assert {r["rank"] for r in summary["rows"]} == {0, 1}
    assert all(r["steps"] >= 9 for r in summary["rows"])
    assert "none lost" in got.said and "devices were busy" in got.said
    plain = subprocess.run(job, env=clean_env(tmp_path), capture_output=True, text=True, check=True, timeout=60)
    assert got.stdout == plain.stdout


SLEEPER = """
import threading, time
def fetch_batch(end):
    while time.time() < end: time.sleep(0.001)
def train_step(end):
    while time.time() < end: sum(range(1000))
threading.Thread(target=fetch_batch, args=(time.time() + 60,), daemon=True, name="feeder").start()
def main():
    end = time.time() + 60
    while not done(): train_step(time.time() + 0.2)
def done():
    import os
    return os.path.exists(STOP)
STOP = {stop!r}
main()
"""


def test_stacks_and_counters(build, tmp_path):
    """Of a program that never uses a device: it is sampled from outside."""
    script, stop = tmp_path / "job.py", tmp_path / "stop"
    script.write_text(SLEEPER.format(stop=str(stop)))
    out = tmp_path / "rec"
    words = [build / "bin/sonde", "record", "-o", out, "--interval", "5ms", "--", sys.executable, script]
    with subprocess.Popen(words, env=clean_env(tmp_path), stderr=subprocess.PIPE) as job:
        wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
        seen = lambda: {"train_step", "fetch_batch"} <= names_in(read_timeline(build, tmp_path, out))
        wait_until(seen, "stacks")
        stop.touch()
        said = job.communicate(timeout=30)[1].decode()
    assert "samples of the stacks of 1 Python process" in said
    (recording,) = out.glob("recording_*")
    wait_finished(recording)
    tracks = read_timeline(build, tmp_path, recording)
    (main,) = [t for name, t in tracks.items() if name == "Python: MainThread"]
    (feeder,) = [t for name, t in tracks.items() if name == "Python: feeder"]
    assert {"main", "train_step"} <= {e["name"] for e in main if e["ph"] in "XB"}
    assert "fetch_batch" in {e["name"] for e in feeder}
    begun = [e for e in main if e["ph"] == "B"]
    assert len(begun) == sum(e["ph"] == "E" for e in main), "every call has an end"
    assert any("cpu_mem" in name for name in tracks)


def steps_of(got):
    """The first and the last step of which kernels were recorded from its beginning to its end."""
    return [int(n) for n in re.match(r"Steps (\d+) to (\d+) of 1 rank", got.ask("activity", "summary", got.dir)).groups()]


def test_some_of_it(build, tmp_path):
    """--only, --steps, --duration: what was not asked for is not there."""
    job = simtrain(build, "--steps", "40", "--step-ms", "10")
    kernels = Recorded(build, tmp_path, job, "--only", "kernels", out="kernels").timeline()
    assert "MatMulV2" in names_in(kernels)
    assert not any("allocated" in name or "cpu_mem" in name for name in kernels)
    memory = Recorded(build, tmp_path, job, "--only", "memory", "--quiet", out="memory")
    assert not memory.said
    assert "MatMulV2" not in names_in(memory.timeline())
    first, last = steps_of(Recorded(build, tmp_path, job, "--steps", "15-20", out="steps"))
    assert 1 < first <= 15 and 20 <= last < 39
    assert steps_of(Recorded(build, tmp_path, job, "--duration", "150ms", out="duration"))[1] < 39


def test_the_answer_names_a_leak(build, tmp_path):
    got = Recorded(build, tmp_path, simtrain(build, "--steps", "8", "--fault", "leak"))
    assert "loses 1.00 MiB of device 0 in every step" in got.said
    assert f"sonde timeline {got.dir}" in got.said
    assert len(got.said.splitlines()) < 8


def test_it_becomes_the_job(build, tmp_path):
    """Its number, its exit status, and the status of what cannot be run."""
    words = [build / "bin/sonde", "record", "-q", "-o", tmp_path / "rec", "--"]
    run = lambda *job: subprocess.run([*words, *job], env=clean_env(tmp_path), capture_output=True, timeout=60)
    assert run("sh", "-c", "exit 7").returncode == 7
    assert run("sh", "-c", "kill -TERM $$").returncode == -15
    assert run("/nowhere/at/all").returncode == 127
    assert run("/dev/null").returncode == 126
    with subprocess.Popen([*words, "sh", "-c", "echo $$"], env=clean_env(tmp_path), stdout=subprocess.PIPE) as p:
        assert int(p.communicate(timeout=60)[0]) == p.pid


def test_nested(build, tmp_path):
    """The inner one records what it was started for, the outer one the rest."""
    env = clean_env(tmp_path, SIM_NPU_TIME_SCALE="1")
    record = [build / "bin/sonde", "record", "-q", "--mspti", build / "sim/libmspti.so", "-o"]
    inner = [*record, tmp_path / "inner", "--", *simtrain(build, "--steps", "6")]
    script = 'S="$1"; shift; "$S" --quiet --steps 6 >/dev/null && exec "$@"'
    job = ["sh", "-c", script, "sh", build / "sim/simtrain", *inner]
    subprocess.run([*record, tmp_path / "outer", "--", *job], env=env, check=True, timeout=60, capture_output=True)
    for name in ("outer", "inner"):
        (recording,) = (tmp_path / name).glob("recording_*")
        wait_finished(recording)
        tracks = read_timeline(build, tmp_path, recording)
        assert sum(e["name"] == "step 6" for e in tracks["steps"]) == 1
        assert "MatMulV2" in names_in(tracks)
