# SPDX-License-Identifier: MulanPSL-2.0
"""--max-size: a recording stays below its limit, and what is left of it answers as the whole would."""

import json
import subprocess
import threading

import pytest

from harness import Session
from recording import clean_env, wait_finished
from waiting import pause, wait_until

LIMIT = 1 << 20
STEPS = 9000
LEAK_FROM = 50
QUESTIONS = ["show", "leaks", "peak", "owners", "oom", "gaps", "inefficient", "watch"]
# Of one run alone: who it was, when, and where its libraries lay.
OWN = {"pid", "command", "input", "job", "ptr", "row", "c_stack", "carried_over", "dropped"}


class Job:
    def __init__(self, build, tmp_path, name):
        self.build, self.out = build, tmp_path / name
        self.env = clean_env(tmp_path)

    def start(self, *options, steps=STEPS, before=()):
        words = [
            *before,
            *(self.build / "bin" / "sonde", "mem", "record", "-o", self.out, "--call-stack=c:8"),
            *("--analysis=leaks,decompose", *options, "--", self.build / "sim" / "simtrain"),
            *("--quiet", "--layers", 6, "--steps", steps, "--fault", "leak:4096", "--fault-step", LEAK_FROM),
        ]
        self.process = subprocess.Popen(
            [str(w) for w in words], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        return self

    def run(self, *options, **more):
        self.start(*options, **more)
        return self.end()

    def end(self):
        _, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        wait_finished(self.dir)
        return self

    @property
    def dir(self):
        (only,) = self.out.glob("recording_*")
        return only

    def sonde(self, *words):
        words = [str(w) for w in (self.build / "bin" / "sonde", "mem", *words, self.dir)]
        r = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def ask(self, question, *words):
        return json.loads(self.sonde(question, "--json", *words))

    def files(self):
        return list(self.out.glob("recording_*/events.sonde*"))


def disk_bytes(files):
    total = 0
    for path in files:
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


class Watcher(threading.Thread):
    """The most that the recording takes on the disk, its next form included."""

    def __init__(self, job):
        super().__init__()
        self.job, self.most, self.over = job, 0, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.most = max(self.most, disk_bytes(self.job.files()))
            pause(0.002, "the recording changes meanwhile")


def same(a, b, path=""):
    """What differs, but for what is of one run alone."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = {k for k in {*a, *b} if k not in OWN and not k.endswith("_ns")}
        return [d for k in sorted(keys) for d in same(a.get(k), b.get(k), f"{path}/{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b)) for d in same(x, y, f"{path}/{i}")]
    return [] if a == b else [(path, a, b)]


@pytest.fixture(scope="module")
def jobs(build, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("rotation")
    whole = Job(build, tmp_path, "whole").run()
    limited = Job(build, tmp_path, "limited")
    watcher = Watcher(limited)
    watcher.start()
    try:
        limited.start(f"--max-size={LIMIT}")
        wait_until(lambda: disk_bytes(limited.files()) > LIMIT // 2, "the recording to grow", 30, 0.005)
        limited.meanwhile = [limited.ask("show") for _ in range(3)]
        limited.end()
    finally:
        watcher.over.set()
        watcher.join()
    limited.most = watcher.most
    return whole, limited


def test_the_recording_stays_below_its_limit(jobs):
    whole, limited = jobs
    assert disk_bytes(whole.files()) > LIMIT  # larger batches take less, so this varies
    assert disk_bytes(limited.files()) < 3 * LIMIT // 4
    # On a busy machine the job gets ahead while the oldest part is being dropped.
    assert LIMIT // 4 < limited.most < 3 * LIMIT // 2
    assert [f.name for f in limited.files()] == ["events.sonde"]
    assert limited.ask("show")["dropped"]["times"] >= 1


def test_who_reads_meanwhile_reads_a_whole_recording(jobs):
    _, limited = jobs
    for answer in limited.meanwhile:
        assert answer["lost"]["events"] == 0
        assert not any("damaged" in n for n in answer["notes"])
    frees = [a["counts"]["unmatched_frees"] for a in limited.meanwhile]
    assert frees == [0] * len(frees)


def test_frees_of_dropped_allocations_are_explained(jobs):
    """There are more of them than allocations, so the table says whose they are."""
    _, limited = jobs
    (process,) = limited.ask("show")["processes"]
    carried = 0
    for pool in process["pools"]:
        carried += pool["carried_over_blocks"]
        had = pool["mallocs"] + pool["carried_over_blocks"]
        assert had == pool["frees"] + pool["alive_at_end"]["blocks"]
    text = " ".join(limited.sonde("show").split())
    assert carried and f"{carried:,} blocks from the dropped part were alive when the rest began" in text


@pytest.mark.parametrize("question", ["leaks", "peak", "owners", "oom"])
def test_answers_are_those_of_the_whole(jobs, question):
    """Of the last steps: nothing is missing that was alive when they began."""
    whole, limited = jobs
    assert same(whole.ask(question), limited.ask(question)) == []


def test_a_leak_of_dropped_steps_is_there_to_the_byte(jobs):
    _, limited = jobs
    answer = limited.ask("leaks")
    (leak,) = answer["leaks"]
    assert leak["first_step"] == LEAK_FROM < answer["dropped"]["last_step"]
    assert leak["bytes"] == 4096 * leak["blocks"] == 4096 * (STEPS - LEAK_FROM)


def test_every_answer_says_what_was_dropped(jobs):
    whole, limited = jobs
    dropped = limited.ask("show")["dropped"]
    last = dropped["last_step"]
    assert (dropped["first_step"], dropped["kept_first_step"]) == (1, last + 1)
    assert dropped["kept_last_step"] == STEPS
    assert dropped["limit_bytes"] == LIMIT and dropped["events"] > 0
    assert whole.ask("show")["dropped"] is None
    for question in QUESTIONS:
        assert limited.ask(question)["dropped"] == dropped
        first = limited.sonde(question).split("\n")[0]
        assert first.startswith(f"Steps 1 to {last} ("), first
        assert "were dropped to keep the recording below 1.00 MiB" in first
        assert f"This answer covers steps {last + 1} to {STEPS} (" in first


def test_steps_are_compared_as_in_the_whole(jobs):
    """What is carried over is no change within the first step that is kept."""
    whole, limited = jobs
    before = {p["pool"]: p["min_gap"]["ratio"] for p in whole.ask("gaps")["pools"]}
    after = {p["pool"]: p["min_gap"]["ratio"] for p in limited.ask("gaps")["pools"]}
    assert after.keys() == before.keys()
    assert all(after[pool] >= before[pool] > 0 for pool in before), (before, after)


def test_blocks_from_before_are_marked(jobs):
    """In the answer about the peak, and in a dump that is made later."""
    _, limited = jobs
    dropped = limited.ask("show")["dropped"]
    peak = limited.ask("peak", "--top=100000")["devices"][0]
    kept_ns = peak["time_ns"] - dropped["until_ns"]
    for block in peak["blocks"]:
        assert block["carried_over"] == (block["age_ns"] >= kept_ns)
    export = limited.out / "export"
    limited.sonde("export", "-o", export)
    rows = "".join(p.read_text() for p in export.rglob("*.csv")).split("\n")
    carried = [r for r in rows if "carried:true" in r and ",MALLOC," in r]
    leaked = [r for r in carried if ",size:4096," in r]
    assert len(leaked) >= dropped["last_step"] - LEAK_FROM
    assert sum(",MALLOC," in r for r in rows) == limited.ask("show")["counts"]["mallocs"] + len(carried)


def test_killed_while_the_oldest_part_is_dropped(build, tmp_path):
    """Of recorder and job at once: what was recorded is there, and goes on where it was."""
    job = Job(build, tmp_path, "killed").start(f"--max-size={LIMIT}", steps=1000000)
    next_form = lambda: list(job.out.glob("recording_*/events.sonde.next"))
    wait_until(next_form, "the oldest part to be dropped", 30, 0.0005)
    Session(job.dir).kill_recorder()
    job.process.kill()
    job.process.communicate(timeout=30)
    job.sonde("recover")
    assert [f.name for f in job.files()] == ["events.sonde"]
    answer = job.ask("leaks")
    assert job.ask("show")["lost"]["events"] == 0
    (leak,) = answer["leaks"]
    assert leak["first_step"] == LEAK_FROM and leak["bytes"] == 4096 * leak["blocks"]
    # One block a step, without a gap, up to the moment of the kill.
    assert leak["blocks"] == leak["last_step"] - LEAK_FROM + 1
    assert answer["processes"][0]["last_step"] - leak["last_step"] <= 2


def test_what_cannot_be_dropped_stays(build, tmp_path):
    """The new file cannot be written: the recording goes on past its limit, whole, and the log says why."""
    switch = tmp_path / "switch"
    switch.touch()
    before = [build / "targets" / "failing_writes", "events.sonde.next", 1, switch]
    job = Job(build, tmp_path, "full").run(f"--max-size={LIMIT}", steps=6000, before=before)
    assert [f.name for f in job.files()] == ["events.sonde"]
    assert disk_bytes(job.files()) > LIMIT * 5 // 8
    log = (job.dir / "msmemscope.log").read_text()
    assert log.count("cannot be dropped") == 1 and "Input/output error" in log
    answer = job.ask("show")
    assert answer["dropped"] is None
    assert (answer["lost"]["events"], answer["counts"]["steps"]) == (0, 6000)


def test_a_dump_beside_it_is_refused(build, tmp_path):
    out = tmp_path / "refused"
    for words, why in (
        (["--max-size=2G"], "add --format=none"),
        (["--max-size=1000", "--format=none"], "from 1MiB to 4TiB"),
        (["--max-size=much", "--format=none"], "invalid max-size 'much'"),
    ):
        r = subprocess.run(
            [str(build / "bin" / "msmemscope"), "-o", str(out), *words, "--", "true"],
            env=clean_env(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert r.returncode == 2 and why in r.stderr, r.stderr
        assert not out.exists()
