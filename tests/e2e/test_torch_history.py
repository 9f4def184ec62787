# SPDX-License-Identifier: MulanPSL-2.0
"""Notes of torch's caching allocator as events.

There is no GPU here: the notes are recorded ones, made on a real one by tests/device/memory_job.py
(tests/data/torch_notes), and they go in where the collector puts those that it reads. How the
collector lives beside a torch that has no GPU is tested with that torch itself; what needs a GPU is
in tests/device/memory.py.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from dump_rows import rows_of
from torches import every_torch, quickest_torch

DATA = pathlib.Path(__file__).resolve().parents[1] / "data/torch_notes"
KINDS = ("cuda", "cuda_expandable")

# Each snapshot of the file is told as one step. Its notes are as far apart as they were, and the
# last has just been taken.
FEED = """
import json, os, sys, time
import msmemscope
from msmemscope import _history
from sonde import _sonde

shots = json.load(open(sys.argv[1]))["shots"]
options = json.loads(sys.argv[2])
exec(options.get("first", ""))
msmemscope.config(output_path=sys.argv[3], analysis=options.get("analysis", "leaks"),
                  call_stack=options.get("call_stack", "python:2"))
msmemscope.start()
importer = _history._importer
for i, shot in enumerate(shots):
    snapshot = shot["snapshot"]
    for notes in snapshot["device_traces"]:
        if notes:
            time.sleep((notes[-1]["time_us"] - notes[0]["time_us"]) / 1e6 + 0.002)
            later = time.time_ns() // 1000 - notes[-1]["time_us"]
            for note in notes:
                note["time_us"] += later
        for n in sorted(options.get("lose", {}).get(str(i), ()), reverse=True):
            del notes[n]
    if i == 0:
        importer.take_over(snapshot)
    else:
        importer.report(snapshot)
    exec(options.get("then", {}).get(str(i), ""))
    msmemscope.step()
print(json.dumps({"missed": importer.missed, "events": importer.events}))
exec(options.get("last", ""))
msmemscope.stop()
"""


@pytest.fixture
def feed(build, tmp_path):
    """Runs the job; (what it says, rows, where)."""

    def feed(kind, **options):
        where = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        done = subprocess.run(
            [sys.executable, "-c", FEED, str(DATA / f"{kind}.json"), json.dumps(options), where],
            env=dict(
                os.environ,
                PYTHONPATH=str(build / "python"),
                LD_LIBRARY_PATH=str(build / "sim") if options.get("simulated") else "",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[0])
        said["stderr"] = done.stderr
        return said, rows_of(where), where

    return feed


def shots_of(kind):
    return json.loads((DATA / f"{kind}.json").read_text())["shots"]


def steps_of(rows):
    """[{pool: {allocation: bytes}}], alive at the end of each step."""
    live, steps = {"TORCH": {}, "CUDA": {}}, []
    for row in rows:
        pool = live.get(row["Event Type"])
        if pool is not None and row["Event"] == "MALLOC":
            pool[row["attr"]["allocation_id"]] = int(row["attr"]["size"])
        elif pool is not None and row["Event"] == "FREE":
            del pool[row["attr"]["allocation_id"]]
        elif row["Event Type"] == "STEP":
            steps.append({name: dict(blocks) for name, blocks in live.items()})
    return steps


def check_steps(kind, rows):
    shots, steps = shots_of(kind), steps_of(rows)
    assert len(shots) == len(steps)
    for shot, step in zip(shots, steps):
        assert sum(step["TORCH"].values()) == shot["stats"]["requested"]
        assert sum(step["CUDA"].values()) == shot["stats"]["reserved"]


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_and_segments_equal_what_torch_says(feed, kind):
    said, rows, _ = feed(kind)
    check_steps(kind, rows)
    assert said["missed"] == 0
    assert said["events"] == sum(
        note["action"] not in ("oom", "snapshot")
        for shot in shots_of(kind)
        for notes in shot["snapshot"]["device_traces"]
        for note in notes
    )
    for row in rows:
        if row["Event Type"] in ("TORCH", "CUDA"):
            assert row["Device Id"] == "0" and row["Event"] in ("MALLOC", "FREE")


@pytest.mark.parametrize("kind", KINDS)
def test_reserved_bytes_are_in_every_row_of_the_pool(feed, kind):
    _, rows, _ = feed(kind)
    reserved = 0
    for row in rows:
        attr = row["attr"]
        if row["Event Type"] == "CUDA" and attr.get("shadow") != "true":
            reserved += int(attr["size"]) * (1 if row["Event"] == "MALLOC" else -1)
            assert int(attr["used"]) == reserved
        elif row["Event Type"] == "CUDA":
            reserved += int(attr["size"]) if row["Event"] == "MALLOC" else 0
        elif row["Event Type"] == "TORCH" and "used" in attr:
            assert int(attr["total"]) == reserved >= int(attr["used"])


def test_what_was_there_before_is_marked(feed):
    _, rows, _ = feed("cuda")
    early = [r for r in rows if r["Event"] == "MALLOC" and r["attr"].get("shadow") == "true"]
    assert [(r["Event Type"], int(r["attr"]["size"])) for r in early] == [
        ("CUDA", 2 << 20),
        ("TORCH", 12000),
    ]


def test_times_are_those_of_the_notes(feed):
    """Of two blocks: as far apart as torch noted it, to the microsecond. The end of a block that
    another stream still uses is when that is through with it."""
    _, rows, _ = feed("cuda")
    notes = shots_of("cuda")[1]["snapshot"]["device_traces"][0]
    by_action = {(n["action"], n["addr"]): n["time_us"] for n in notes}
    scratch = next(n["addr"] for n in notes if n["action"] == "free_completed")
    begin, asked, end = (
        by_action[action, scratch] for action in ("alloc", "free_requested", "free_completed")
    )
    assert begin < asked < end
    first = {}
    for row in rows:
        if row["Event Type"] == "TORCH" and int(row["Ptr"], 16) == scratch:
            first.setdefault(row["Event"], int(row["Timestamp(ns)"]) // 1000)
    assert first["FREE"] - first["MALLOC"] == pytest.approx(end - begin, abs=1)


def test_call_stacks(feed):
    _, rows, _ = feed("cuda")
    notes = [
        note
        for shot in shots_of("cuda")
        for note in shot["snapshot"]["device_traces"][0]
        if note["action"] == "alloc"
    ]
    made = [
        r
        for r in rows
        if r["Event"] == "MALLOC" and r["Event Type"] == "TORCH" and "shadow" not in r["attr"]
    ]
    assert len(made) == len(notes) > 3
    for row, note in zip(made, notes):
        frames = [f"{f['filename']}({f['line']}): {f['name']}" for f in note["frames"][:2]]
        assert row["Call Stack(Python)"].splitlines() == frames
    _, rows, _ = feed("cuda", call_stack="c:1")
    assert not any(r["Call Stack(Python)"] for r in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_lost_notes_are_made_up_for_and_counted(feed, kind):
    """The first, the last, or all of a step: at its end everything is right again."""
    for step in (1, 3):
        notes = shots_of(kind)[step]["snapshot"]["device_traces"][0]
        told = [n for n, note in enumerate(notes) if note["action"] != "free_requested"]
        for lose in (told[:1], told[-1:], told):
            said, rows, _ = feed(kind, lose={str(step): lose})
            check_steps(kind, rows)
            assert said["missed"] >= 1


def test_a_refusal_is_explained(feed, build):
    """Told as torch tells it, with what the recorded notes leave alive."""
    observe = """
_sonde.on_oom(lambda device, size: device)
def ask_for_it():
    _sonde.oom_observer(0, 1 << 50, 150109880320, 149385510912)
ask_for_it()
_sonde.on_oom(None)
"""
    _, rows, where = feed("cuda", then={"2": observe}, analysis="leaks,oom")
    triggers = [r for r in rows if r["Event Type"] == "OOM_TRIGGER"]
    assert [r["attr"]["func"] for r in triggers] == ["caching allocator"]
    assert triggers[0]["Call Stack(Python)"].splitlines()[0].endswith(": ask_for_it")
    assert {r["attr"]["pool"] for r in rows if r["Event Type"] == "OOM_TOP_ALLOC"} == {
        *("TORCH", "CUDA")
    }
    words = [build / "bin/sonde", "mem", "oom", "--json", where]
    found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, timeout=60).stdout)
    one = found["incidents"][0]
    assert one["requested_bytes"] == 1 << 50 and one["verdict"] == "oversized request"
    assert "this process may" not in one["reason"] and "139.80 GiB in all" in one["reason"]
    assert one["pools"] == [
        {
            **one["pools"][0],
            "pool": "TORCH",
            "allocated_bytes": 50351653,
            "blocks": 5,
        }
    ]
    assert one["largest"][0]["bytes"] == 25165825
    assert "notes (memory_job.py:" in one["largest"][0]["where"]


def test_a_limit_that_the_program_set_is_told_from_a_full_device(feed, build):
    observe = "_sonde.on_oom(lambda d, s: d); _sonde.oom_observer(0, 64 << 20, 80 << 20, 1 << 37)"
    _, _, where = feed("cuda", then={"2": observe}, analysis="oom")
    words = [build / "bin/sonde", "mem", "oom", "--json", where]
    found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, timeout=60).stdout)
    one = found["incidents"][0]
    assert one["verdict"] == "real exhaustion"
    assert one["device_memory"]["limit_bytes"] == 80 << 20


def test_show_takes_the_device_apart(feed, build):
    """A snapshot says what is in use in all; the pool's part of it is known to the byte."""
    snapshot = "_sonde.snapshot(0, 'now', 75497472, 75497472, 0, 0, 1 << 37, (1 << 37) - (1 << 30))"
    _, _, where = feed("cuda", then={"2": snapshot})
    words = [build / "bin/sonde", "mem", "show", where]
    show = json.loads(
        subprocess.run([*words, "--json"], stdout=subprocess.PIPE, timeout=60).stdout
    )
    (gpu,) = show["processes"][0]["gpus"]
    assert gpu["used_bytes"] == 1 << 30 and gpu["total_bytes"] == 1 << 37
    assert gpu["pool_bytes"] == 75497472 and gpu["tensor_bytes"] == 50351653
    parts = ("pool_bytes", "kept_bytes", "rest_of_process_bytes", "others_bytes", "not_told_bytes")
    assert sum(gpu[part] or 0 for part in parts) == gpu["used_bytes"]
    text = subprocess.run(words, stdout=subprocess.PIPE, timeout=60).stdout.decode()
    said = " ".join(text.split())
    assert "Of device 0 1.00 GiB of 128.00 GiB were in use" in said
    assert "had 72.00 MiB (its tensors 48.02 MiB)" in said


def test_who_has_the_rest_of_a_simulated_gpu(feed, build):
    """The simulator's NVML: 10 GiB for this process, on a device that has as much in use."""
    pids = "os.environ.update(SIM_GPU_COUNT='1', SIM_GPU_PID=str(os.getpid()))"
    _, rows, where = feed("cuda", simulated=True, first=pids, then={"1": "time.sleep(1.5)"})
    told = [r["attr"] for r in rows if "process_used" in r["attr"]]
    assert told and {int(attr["process_used"]) for attr in told} == {10 << 30}
    words = [build / "bin/sonde", "mem", "show", "--json", where]
    show = json.loads(subprocess.run(words, stdout=subprocess.PIPE, timeout=60).stdout)
    (gpu,) = show["processes"][0]["gpus"]
    assert gpu["used_bytes"] == int(told[-1]["device_used"])
    assert gpu["pool_bytes"] + gpu["rest_of_process_bytes"] == 10 << 30
    assert gpu["others_bytes"] == gpu["used_bytes"] - (10 << 30) == 0
    assert gpu["not_told_bytes"] is None


# --- beside a torch without a GPU ---

BESIDE = """
import sys, threading
import msmemscope
import torch
waits = len(torch.cuda._queued_calls)
for _ in range(30):
    msmemscope.start()
    torch.ones(1000).sum()
    msmemscope.step()
    msmemscope.stop()
assert len(torch.cuda._queued_calls) <= waits + 1, len(torch.cuda._queued_calls)
assert not torch.cuda.is_initialized()
assert "msmemscope" not in [t.name for t in threading.enumerate()]
assert "torch._inductor" not in sys.modules
print("unharmed")
"""


@pytest.mark.parametrize("torch", every_torch())
def test_a_torch_without_a_gpu_is_left_alone(build, tmp_path, torch):
    done = subprocess.run(
        [torch.path, "-c", BESIDE],
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=str(build / "python"), CUDA_VISIBLE_DEVICES=""),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "unharmed" in done.stdout and "CUDA" not in done.stderr


# As in the middle of torch.cuda.init(): the thread that comes to us may hold this lock.
BUSY = """
import sys
import torch
import msmemscope

with torch.cuda._initialization_lock:
    msmemscope.config(output_path=sys.argv[1])
    msmemscope.start()
calls = [call for call, _ in torch.cuda._queued_calls if call.__module__ == "msmemscope._history"]
assert len(calls) == 1, torch.cuda._queued_calls
msmemscope.stop()
print("unharmed", torch.cuda._initialization_lock.locked())
"""


def test_it_comes_while_cuda_is_being_initialized(build, tmp_path):
    done = subprocess.run(
        [quickest_torch().path, "-c", BUSY, tmp_path / "out"],
        env=dict(os.environ, PYTHONPATH=str(build / "python")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.split() == ["unharmed", "False"], done.stderr


# Nothing is alive when recording begins; the first notes are read later, and by another thread.
FIRST_NOTES = """
import json, sys, threading, time
import msmemscope
from msmemscope import _history
from sonde import _sonde

def snapshot(notes):
    blocks = [{"address": n["addr"], "size": n["size"], "requested_size": n["size"],
               "state": "active_allocated"} for n in notes if n["action"] == "alloc"]
    size = sum(b["size"] for b in blocks)
    segment = {"address": 1 << 40, "total_size": 1 << 30, "requested_size": size, "device": 0,
               "blocks": blocks}
    return {"segments": [segment], "device_traces": [notes]}

msmemscope.config(output_path=sys.argv[1], analysis="decompose", device="gpu")
msmemscope.start()
importer = _history._importer
importer.take_over({"segments": [], "device_traces": []})
notes = []
def note(action, addr, size):
    notes.append({"action": action, "addr": addr, "size": size, "time_us": time.time_ns() // 1000,
                  "stream": 0})
    time.sleep(0.002)
note("segment_alloc", 1 << 40, 1 << 30)
for label in ("first", "second"):
    _sonde.label_push(3, label)
    time.sleep(0.002)
    note("alloc", (1 << 40) + 512 * len(notes), 512)
    _sonde.label_pop(label, 0, 3)
    time.sleep(0.002)
time.sleep(0.3)
reader = threading.Thread(target=importer.report, args=(snapshot(notes),))
reader.start()
reader.join()
msmemscope.step()
msmemscope.stop()
print(importer.missed)
"""


def test_the_first_notes_find_their_labels(build, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FIRST_NOTES, str(tmp_path)],
        env=dict(os.environ, PYTHONPATH=str(build / "python")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    rows = [r for r in rows_of(tmp_path) if r["Event"] == "MALLOC" and r["Event Type"] == "TORCH"]
    assert [r["attr"]["owner"] for r in rows] == ["TORCH@first", "TORCH@second"]
