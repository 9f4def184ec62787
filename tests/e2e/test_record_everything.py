# SPDX-License-Identifier: MulanPSL-2.0
"""sonde record: memory, what devices execute, steps, stacks and counters in one recording that all commands
read."""

import base64
import gzip
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from daemon import Daemon
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
    if "nothing to show" in r.stderr or "nothing was written to it so far" in r.stderr:
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
        twice = lambda: {"host: processors busy, %", "process: processor time, % of one processor"} <= set(
            read_timeline(build, tmp_path, out))  # fmt: skip
        wait_until(twice, "what is known when it was read twice")
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
    assert {"host: memory used", "process: memory (RSS)"} <= set(tracks)
    busy = [v for e in tracks["process: processor time, % of one processor"] for v in e["args"].values()]
    assert max(busy) > 1, "it computes"
    assert "hangs" not in (recording / "msmemscope.log").read_text(), "its threads end"
    check_stacks_in_report(build, tmp_path, recording)


def check_stacks_in_report(build, tmp_path, recording):
    """A report has the same stacks; a redacted one has none of their names."""
    page = tmp_path / "report.html"
    for redact in ([], ["--redact"]):
        words = [build / "bin/sonde", "report", *redact, "-o", page, recording]
        subprocess.run(words, env=clean_env(tmp_path), check=True, capture_output=True, timeout=60)
        data = re.search(r'id="data">([^<]*)</script>', page.read_text()).group(1)
        text = gzip.decompress(base64.b64decode(data))
        for name in (b"train_step", b"fetch_batch", b"feeder"):
            assert (name in text) == (not redact), name
        assert text.count(b'"unit": "ns"') + text.count(b'"unit":"ns"') == 1


def test_counters_of_devices(build, tmp_path):
    """How busy they are, their memory and their power: each card has its tracks."""
    out, stop = tmp_path / "rec", tmp_path / "stop"
    words = [build / "bin/sonde", "record", "-q", "--only", "counters", "-o", out, "--", sys.executable, "-c",
             "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)", stop]
    env = clean_env(tmp_path, SIM_NPU_COUNT="2", SIM_GPU_COUNT="2", LD_LIBRARY_PATH=str(build / "sim"))
    names = {f"{kind} {card}: {what}" for card in (0, 1) for kind, busy in (("NPU", "AI cores busy, %"), ("GPU", "busy, %"))
             for what in (busy, "memory used", "power, W")}  # fmt: skip
    with subprocess.Popen(words, env=env) as job:
        wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
        wait_until(lambda: names <= set(read_timeline(build, tmp_path, out)), "counters of all cards")
        stop.touch()
    tracks = read_timeline(build, tmp_path, out)
    watts = lambda track: {v for e in tracks[track] for v in e["args"].values()}
    assert watts("GPU 1: busy, %") == {41}
    assert watts("GPU 0: power, W") == {250.5} and watts("GPU 1: power, W") == {251.5}
    for track in ("NPU 0: power, W", "NPU 1: power, W"):
        assert all(90 < v < 400 for v in watts(track)), track


MANY_LEAKS = """
import msmemscope
kept = []
{functions}
for _ in range(12):
    for f in (name for key, name in sorted(globals().items()) if key.startswith("keeps_")):
        f()
    msmemscope.step()
"""


def test_a_long_answer(build, tmp_path):
    """It is whole for programs, and cut between words for people, with all lines behind it."""
    long = "_".join(["of_the_batches_that_nobody_wants_any_more"] * 3)
    functions = "\n".join(
        f"def keeps_{n}_{long}():\n    kept.append(bytearray({(n + 1) << 18}))" for n in range(4)
    )
    script = tmp_path / "leaks.py"
    script.write_text(MANY_LEAKS.format(functions=functions))
    job, env = [sys.executable, script], {"PYTHONPATH": build / "python"}
    got = Recorded(build, tmp_path, job, "--device=cpu", "--only=memory", env=env)
    finding = json.loads((got.dir / "answer.json").read_text())["finding"]
    assert finding.count(long[:80]) >= 3 and finding.endswith(".") and len(finding) > 600, finding
    lines = got.said.splitlines()
    assert all(line.startswith("sonde record: ") for line in lines), got.said
    (shown,) = [line.removeprefix("sonde record: ") for line in lines if "in every step" in line]
    assert shown.endswith(" …") and finding.startswith(shown[:-1])


def test_the_last_words_for_programs(build, tmp_path):
    """answer.json says what the closing lines say, also with --quiet."""
    job = simtrain(build, "--steps", "30", "--fault", "leak")
    loud = Recorded(build, tmp_path, job, out="loud")
    got = json.loads((loud.dir / "answer.json").read_text())
    assert f"{got['events']} events recorded, none lost" in loud.said and got["lost_events"] == 0
    assert got["recording"] == str(loud.dir) and got["running"] is False and got["write_error"] is None
    assert "in every step" in got["finding"] and got["finding"] in loud.said
    shares = got["device_time"]
    assert abs(sum(shares.values()) - 100) < 0.1
    assert f"devices were busy {100 - shares['idle_percent']:.0f} %" in loud.said
    assert got["activities"] > 100 and got["lost_activities"] == 0
    assert got["next"][0] == f"sonde report {loud.dir}"
    for command in got["next"][1:]:
        assert command.removesuffix(f" {loud.dir}") in loud.said
    quiet = Recorded(build, tmp_path, job, "--quiet", "--only", "memory", out="quiet")
    got = json.loads((quiet.dir / "answer.json").read_text())
    assert not quiet.said and got["events"] > 0 and "activities" not in got


@pytest.mark.parametrize("options, more", [([], []), (["--device=cpu"], ["mem leaks", "mem peak"])])
def test_only_commands_that_answer(build, tmp_path, options, more):
    """Of a program without a device: what is recommended answers, and text and JSON recommend the same."""
    got = Recorded(build, tmp_path, [sys.executable, "-c", "import time; time.sleep(0.5)"], *options)
    wanted = json.loads((got.dir / "answer.json").read_text())["next"]
    assert wanted == [f"sonde {name} {got.dir}" for name in ["report", "timeline", *more]]
    others = ", ".join(command.removesuffix(f" {got.dir}") for command in wanted[1:])
    assert f"to see it as a page: {wanted[0]}\n" in got.said
    assert f"other commands for this directory: {others}\n" in got.said
    for command in wanted[2:]:
        assert "There is nothing to look at" not in got.ask(*command.split()[1:])


def test_hangs_need_steps(build, tmp_path):
    """A flight recorder says if it could not have noticed one."""
    for steps, heard in (("1", False), ("4", True)):
        got = Recorded(build, tmp_path, simtrain(build, "--steps", steps), "--last", "5s", out=f"steps{steps}")
        assert ("a hang would not have been noticed" in got.said) != heard
        assert json.loads((got.dir / "answer.json").read_text())["hangs_recognised"] == heard


def steps_of(got):
    """The first and the last step of which kernels were recorded from its beginning to its end; 0, 0: none."""
    found = re.match(r"Steps? (\d+)(?: to (\d+))? of 1 rank", got.ask("activity", "summary", got.dir))
    return (int(found[1]), int(found[2] or found[1])) if found else (0, 0)


def test_some_of_it(build, tmp_path):
    """--only, --steps, --duration: what was not asked for is not there."""
    job = simtrain(build, "--steps", "10")
    kernels = Recorded(build, tmp_path, job, "--only", "kernels", out="kernels").timeline()
    assert "MatMulV2" in names_in(kernels)
    assert not any("allocated" in name or "host: " in name for name in kernels)
    memory = Recorded(build, tmp_path, job, "--only", "memory", "--quiet", out="memory")
    assert not memory.said
    assert "MatMulV2" not in names_in(memory.timeline())
    slow = simtrain(build, "--steps", "24", "--step-ms", "60")
    first, last = steps_of(Recorded(build, tmp_path, slow, "--steps", "10-12", out="steps"))
    assert 1 < first <= 10 and 12 <= last < 23
    assert steps_of(Recorded(build, tmp_path, slow, "--duration", "150ms", out="duration"))[1] < 23


def test_the_answer_names_a_leak(build, tmp_path):
    got = Recorded(build, tmp_path, simtrain(build, "--steps", "8", "--fault", "leak"))
    # a second run into the same directory: a report is about one of them, memory and kernels alike
    words = [build / "bin/sonde", "record", "-q", "--mspti", build / "sim/libmspti.so", "-o", got.out, "--"]
    subprocess.run([*words, *simtrain(build, "--steps", "8")], env=got.env, check=True, capture_output=True, timeout=60)
    got.ask("report", "-o", tmp_path / "r.html", got.out)
    data = re.search(r'id="data">([^<]*)</script>', (tmp_path / "r.html").read_text()).group(1)
    assert b" of 1 rank: a step takes" in gzip.decompress(base64.b64decode(data))
    assert "loses 1.00 MiB of device 0 in every step" in got.said
    assert "without a call stack" in got.said and "--call-stack=python,c" in got.said
    assert f"sonde report {got.dir}" in got.said
    assert len(got.said.splitlines()) < 8


def test_a_job_without_a_device_and_without_python(build, tmp_path):
    """It says in words that there is nothing, not how many events are lost; questions are for what is there."""
    got = Recorded(build, tmp_path, ["/bin/true"])
    assert "events recorded" not in got.said and "no memory of a device was recorded" in got.said
    assert f"nothing but counters (processors, memory) is in the recording: sonde timeline {got.dir}" in got.said
    assert "sonde mem" not in got.said
    log = tmp_path / "log"
    with log.open("w") as file:
        words = [build / "bin/sonde", "record", "-o", tmp_path / "killed", "--", "sh", "-c", "kill -9 $$"]
        subprocess.run(words, env=got.env, stderr=file, timeout=60)
    (killed,) = (tmp_path / "killed").glob("recording_*")
    assert str(killed) in log.read_text(), "a log says where the recording is, whatever happens"


def test_one_recording_in_another(build, tmp_path):
    """The outer one is told about, and `sonde timeline` says that a directory has several."""
    inner = [build / "bin/sonde", "record", "-q", "-o", tmp_path / "rec", "--only", "counters", "--", "/bin/true"]
    words = [build / "bin/sonde", "record", "-o", tmp_path / "rec", "--", "sh", "-c", 'unset SONDE_SESSION; "$@"; :', "x"]
    subprocess.run([*words, *inner], env=clean_env(tmp_path), check=True, timeout=60)
    wait_until(lambda: len(list((tmp_path / "rec").glob("recording_*/events.sonde"))) == 2, "both recordings")
    words = [build / "bin/sonde", "timeline", "-o", tmp_path / "t", tmp_path / "rec"]
    r = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "has 2 recordings, and all of them are shown" in r.stderr, r.stderr
    words = [build / "bin/sonde", "record", "-o", tmp_path / "b", "--", "/bin/true"]
    env = clean_env(tmp_path, SONDE_SESSION=tmp_path / "rec")
    r = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert f"is recorded into {tmp_path / 'rec'} already" in r.stderr


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


class Flight:
    """A job that is recorded by a flight recorder, until the test ends."""

    def __init__(self, build, tmp_path, job, *options):
        self.build, self.tmp, self.out = build, tmp_path, tmp_path / "rec"
        words = [build / "bin/sonde", "record", "--mspti", build / "sim/libmspti.so", "-o", self.out]
        env = clean_env(tmp_path, SIM_NPU_TIME_SCALE="1")
        self.job = subprocess.Popen([*words, *options, "--", *job], env=env, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)

    def __enter__(self):
        wait_until(lambda: list(self.out.glob("recording_*/events.sonde")), "the recording")
        (self.dir,) = self.out.glob("recording_*")
        return self

    def __exit__(self, *_):
        self.job.kill()
        self.job.wait()

    def steps(self, recording):
        found = re.compile(r"step (\d+)").fullmatch
        return {int(m[1]) for m in map(found, names_in(read_timeline(self.build, self.tmp, recording))) if m}

    def frozen(self, why):
        wait_until(lambda: list(self.dir.glob(f"frozen_*_{why}/events.sonde")), f"a copy because of {why}")
        return next(self.dir.glob(f"frozen_*_{why}"))


def test_the_newest_part_alone(build, tmp_path):
    """It stays as small as it is, whatever happens; a copy on request has what there is."""
    job = simtrain(build, "--forever", "--step-ms", "5")
    with Flight(build, tmp_path, job, "--last", "1s", "--interval", "5ms") as f:
        events = f.dir / "events.sonde"
        number = lambda: events.stat().st_ino
        first = number()
        wait_until(lambda: number() != first, "the first cut")
        sizes, before = [], first
        for _ in range(4):
            before = number()
            wait_until(lambda before=before: number() != before, "a cut")
            sizes.append(events.stat().st_size)
        assert max(sizes) < 10 * min(sizes)
        r = subprocess.run([build / "bin/sonde", "record", "--dump", str(f.job.pid)], capture_output=True, text=True,
                           timeout=60, check=True)
        copy = pathlib.Path(r.stdout.strip())
        assert copy == f.frozen("asked")
        kept = f.steps(copy)
        assert min(kept) > 1 and len(kept) > 10
        assert "MatMulV2" in names_in(read_timeline(build, tmp_path, copy))


def test_a_copy_that_cannot_be_made(build, tmp_path):
    """Names that are taken are left alone, and what goes wrong with a copy is not the end of the recording."""
    job = simtrain(build, "--forever", "--step-ms", "5")
    dump = [build / "bin/sonde", "record", "--dump"]
    with Flight(build, tmp_path, job, "--last", "1s") as f:
        wait_until(lambda: f.steps(f.dir), "steps")
        taken = f.dir / "frozen_1_asked"
        taken.mkdir()
        ask = lambda: subprocess.run([*dump, str(f.job.pid)], capture_output=True, text=True, timeout=60)
        r = ask()
        assert r.stdout.strip() == str(f.dir / "frozen_2_asked"), r.stderr
        assert not list(taken.iterdir())
        for n in range(3, 1001):
            (f.dir / f"frozen_{n}_asked").touch()
        r = ask()
        assert r.returncode and "no copy was made" in r.stderr
        assert "cannot be copied" in (f.dir / "msmemscope.log").read_text()
        assert pathlib.Path(ask().stdout.strip()).name == "frozen_1001_asked"


@pytest.mark.parametrize("why", ["oom", "hang"])
def test_frozen_when_something_happens(build, tmp_path, why):
    fault = ["--fault", "oom", "--fault-step", "20"] if why == "oom" else []
    job = simtrain(build, "--forever", "--step-ms", "10", *fault)
    with Flight(build, tmp_path, job, "--last", "4s" if why == "hang" else "1s") as f:
        if why == "hang":
            wait_until(lambda: len(f.steps(f.dir)) > 3, "steps")
            os.kill(f.job.pid, signal.SIGSTOP)
        copy = f.frozen(why)
        assert not list(f.dir.glob("frozen_1_asked"))
        tracks = read_timeline(build, tmp_path, copy)
        assert ("out of memory" in tracks) == (why == "oom")
        assert len(f.steps(copy)) > 3
        # The copy is no second part of what is beside it.
        assert json.dumps(sorted(names_in(read_timeline(build, tmp_path, f.dir)))).count("step 1\"") <= 1


def recorder_of(recording):
    """Its number, from the control page."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:3] == [b"recorder", os.fsencode(recording)]:
            return int(pid)
    return None


def kill(pid):
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("victims", ["job", "recorder", "recorder first", "both"])
def test_killed(build, tmp_path, victims):
    """What there is of a job and a recorder that were killed is right up to that moment: every step that the
    job has printed, its kernels, its memory."""
    job = [build / "sim/simtrain", "--forever", "--step-ms", "10"]
    env = clean_env(tmp_path, SIM_NPU_TIME_SCALE="1")
    out, log = tmp_path / "rec", tmp_path / "log"
    words = [build / "bin/sonde", "record", "-q", "--mspti", build / "sim/libmspti.so", "-o", out, "--", *job]
    with log.open("w") as f, subprocess.Popen(words, env=env, stdout=f, stderr=subprocess.DEVNULL) as p:
        wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
        (recording,) = out.glob("recording_*")
        begun = lambda: len(re.findall(r"\bstep\b", log.read_text()))
        wait_until(lambda: begun() > 150, "steps")
        recorder = recorder_of(recording)
        if victims != "job":
            kill(recorder)
            before = begun()
            if victims == "recorder first":
                wait_until(lambda: begun() > before + 20, "more steps")
        if victims in ("recorder", "job", "recorder first"):
            os.kill(p.pid, signal.SIGKILL)
        else:
            kill(p.pid)
        p.wait()
    if victims == "job":
        wait_finished(recording)
    tracks = read_timeline(build, tmp_path, out)
    steps = {int(e["name"][5:]) for e in tracks["steps"] if e["name"].startswith("step ")}
    printed = max(map(int, re.findall(r"\bstep (\d+)", log.read_text())))
    assert set(range(1, printed + 1)) <= steps
    assert max(steps) <= printed + 2
    # Kernels: a source is asked for what it has once a second.
    kernels = [e["ts"] for e in tracks["device 0: compute, stream 0"]]
    begun = sorted(e["ts"] for e in tracks["steps"] if e["ph"] in "XB")
    assert len(kernels) > 20 and max(kernels) > begun[len(begun) // 4]
    shown = subprocess.run([build / "bin/sonde", "mem", "show", "--json", out], capture_output=True, check=True)
    assert json.loads(shown.stdout)["processes"]


def test_the_jobs_own_profiler(build, tmp_path):
    """Kernels pause while it has the device's library, and the timeline says so."""
    out = tmp_path / "rec"
    words = [build / "bin/sonde", "record", "-q", "-o", out, "--", build / "targets/cuda_job"]
    p = subprocess.Popen(words, env=clean_env(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(line):
        p.stdin.write(line + "\n")
        p.stdin.flush()
        assert p.stdout.readline().strip().endswith("ok")

    def shown():
        return read_timeline(build, tmp_path, out) if list(out.glob("recording_*/events.sonde")) else {}

    def kernels(name):
        tell(f"kernels {name} 3 1000")
        return name in names_in(shown())

    with p:
        tell("init")
        wait_until(lambda: kernels("before"), "kernels")
        tell("profile on")
        wait_until(lambda: (tell("kernels hidden 3 1000"), "not recorded" in shown())[1], "the gap")
        tell("profile off")
        wait_until(lambda: kernels("after"), "kernels again")
        p.stdin.close()
        p.wait(timeout=30)
    tracks = shown()
    (gap,) = tracks["not recorded"]
    assert gap["dur"] > 0 and "hidden" not in names_in(tracks)


def test_beside_the_daemon(build, tmp_path):
    """The recording is nobody's to change; `sonde top` shows what it sees."""
    with Daemon(build, tmp_path, ipc=True) as d:
        job = simtrain(build, "--forever", "--step-ms", "20")
        words = [build / "bin/sonde", "record", "-q", "--mspti", build / "sim/libmspti.so", "-o", tmp_path / "rec", "--"]
        env = clean_env(tmp_path, KINETO_IPC_SOCKET_DIR=d.ipc_dir, SIM_NPU_TIME_SCALE="1")
        with subprocess.Popen([*words, *job], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
            top = [build / "bin/sonde", "top", "--once", "--json", "--port", str(d.port)]
            ask = lambda: subprocess.run(top, capture_output=True, text=True, timeout=60).stdout
            wait_until(lambda: "MatMulV2" in ask(), "what the recording sees")
            refused = lambda *words: subprocess.run([build / "bin/dyno", "--port", str(d.port), *words], env=env,
                                                    capture_output=True, text=True, timeout=60).stderr  # fmt: skip
            trace = refused("nputrace", "--log-file", tmp_path, "--start-step", "-1", "--iterations", "2")
            stop = refused("npu-monitor", "--npu-monitor-stop", "--wait")
            p.kill()
        assert "sonde record is recording processes of this user already" in trace
        assert "sonde record is recording this process already" in stop
        for said in (trace, stop):
            assert "'sonde record --dump PID'" in said and "'sonde timeline DIR'" in said
            assert "--npu-monitor-stop" not in said


def test_hosts_share_a_directory(build, tmp_path):
    """Recordings that begin in the same second do not meet."""
    env = clean_env(tmp_path, SIM_NPU_TIME_SCALE="1")
    words = [build / "bin/sonde", "record", "-q", "--only", "memory", "-o", tmp_path / "rec", "--"]
    jobs = [subprocess.Popen([*words, *simtrain(build, "--steps", "3")], env=env, stdout=subprocess.DEVNULL)
            for _ in range(4)]
    assert [j.wait(timeout=60) for j in jobs] == [0] * 4
    recordings = list((tmp_path / "rec").glob("recording_*"))
    assert len(recordings) == 4
    for recording in recordings:
        wait_finished(recording)
    assert sum(e["name"] == "step 3" for e in read_timeline(build, tmp_path, tmp_path / "rec")["steps"]) == 4


LAUNCHER = """
import os, subprocess, sys, time
if len(sys.argv) == 2:
    ranks = [subprocess.Popen([sys.executable, __file__, sys.argv[1], "rank"],
                              env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2")) for r in range(2)]
    sys.exit(max(r.wait() for r in ranks))
def rank_0_works(): wait()
def rank_1_works(): wait()
def wait():
    while not os.path.exists(sys.argv[1]): time.sleep(0.005)
(rank_0_works if os.environ["RANK"] == "0" else rank_1_works)()
"""


def test_ranks_that_python_launches(build, tmp_path):
    """As torchrun does: each rank's stacks are on its own track, in the order of ranks."""
    script, stop, out = tmp_path / "launch.py", tmp_path / "stop", tmp_path / "rec"
    script.write_text(LAUNCHER)
    words = [build / "bin/sonde", "record", "-q", "-o", out, "--interval", "5ms", "--", sys.executable, script, stop]
    with subprocess.Popen(words, env=clean_env(tmp_path)) as job:
        wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
        seen = lambda: {"rank_0_works", "rank_1_works"} <= names_in(read_timeline(build, tmp_path, out))
        wait_until(seen, "stacks")
        stop.touch()
        assert job.wait(timeout=30) == 0
    read_timeline(build, tmp_path, out)
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    for rank in range(2):
        (pid,) = {e["pid"] for e in events if e["name"] == f"rank_{rank}_works"}
        assert named[pid].startswith(f"rank {rank} · ")


def test_imports_are_short(build, tmp_path):
    """Between a module and the one that it imports Python makes calls of its own, which nobody wants to see."""
    script, stop, out = tmp_path / "job.py", tmp_path / "stop", tmp_path / "rec"
    script.write_text("def use_it():\n    import slow_module\nuse_it()\n")
    (tmp_path / "slow_module.py").write_text(
        f"import os, time\ndef set_up():\n    time.sleep(0.001)\nwhile not os.path.exists({str(stop)!r}): set_up()\n")
    words = [build / "bin/sonde", "record", "-q", "--only=stacks", "--interval=5ms", "-o", out, "--", sys.executable, script]
    with subprocess.Popen(words, env=clean_env(tmp_path)) as job:
        wait_until(lambda: list(out.glob("recording_*/events.sonde")), "the recording")
        wait_until(lambda: "set_up" in names_in(read_timeline(build, tmp_path, out)), "stacks")
        stop.touch()
        assert job.wait(timeout=30) == 0
    (main,) = [t for name, t in read_timeline(build, tmp_path, out).items() if name.startswith("Python: ")]
    below = [e["name"] for e in main if e["ph"] == "B"]
    at = below.index("use_it")
    assert below[at : at + 3] == ["use_it", "<module>", "set_up"], below
