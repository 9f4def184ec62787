# SPDX-License-Identifier: MulanPSL-2.0
"""Readers meet files that are missing, foreign, damaged or cut off: words, never a crash."""

import json
import os
import random
import shutil

import pytest


def survived(r):
    assert r.returncode in (0, 1, 2), (r.returncode, r.stderr[-500:])
    assert r.returncode == 0 or r.stderr, "a failure without a word"
    assert b"Sanitizer" not in r.stderr and b"BUG" not in r.stderr


@pytest.mark.parametrize("command", ["show", "export", "recover"])
def test_what_is_no_recording(record, command):
    bad = {
        "empty": b"",
        "text": b"hello\n" * 100,
        "zeros": bytes(10000),
        "head": b"SONDEREC",
        "future": b"SONDEREC" + b"\xff" * 100,
        "database": b"SQLite format 3\0" + bytes(200),
        "header": b"ID,Event,Event Type\n1,2\n",
        "noise": random.Random(1).randbytes(5000),
    }
    for name, data in bad.items():
        for suffix in ("", ".csv", ".db"):
            path = record.tmp / (name + suffix)
            path.write_bytes(data)
            r = record.sonde("mem", command, path)
            survived(r)
            if command != "show" or name != "empty":
                assert r.returncode != 0, (name, suffix, r.stdout)
    empty = record.tmp / "dir"
    empty.mkdir()
    for path in (empty, record.tmp / "missing", "/dev/null", "/proc/self/mem", record.tmp):
        r = record.sonde("mem", command, path)
        survived(r)
        assert r.returncode != 0 and r.stderr, path


def cuts(size, step):
    return sorted({*range(0, min(size, 120), 13), *range(0, size, max(97, step)), size - 1})


@pytest.mark.parametrize("what", ["events.sonde", "csv", "db"])
def test_cut_off_anywhere(record, what):
    form = "db" if what == "db" else "csv"
    opts = [f"--format={form}", "--call-stack=c:4"]
    got = record("simtrain", "--steps", 2, "--layers", 1, opts=opts)
    whole = (got.dir / what if what == "events.sonde" else got.process.files["0"]).read_bytes()
    path = record.tmp / f"cut.{what}"
    # Every 97th byte of a short file; as many places in a long one.
    partial = 0
    for n in cuts(len(whole), len(whole) // 150):
        path.write_bytes(whole[:n])
        r = record.sonde("mem", "show", "--json", path)
        survived(r)
        if r.returncode == 0:
            answer = json.loads(r.stdout)
            partial += bool(answer["notes"])
    assert what == "db" or partial, "some of them give a partial answer and say so"


def test_a_cut_recording_is_exported_as_far_as_it_goes(record):
    got = record("simtrain", "--steps", 20, "--step-ms", 15)
    whole = (got.dir / "events.sonde").read_bytes()
    live = {r.id: r for r in got.rows}
    some = 0
    for n in (len(whole) // 2, len(whole) * 3 // 4, len(whole) - 1):
        path = record.tmp / "cut.sonde"
        path.write_bytes(whole[:n])
        to = record.tmp / f"to{n}"
        r = record.sonde("mem", "export", "-o", to, path)
        survived(r)
        if not to.exists():
            continue
        import dumpcheck

        for p in dumpcheck.check_output(to):
            some += 1
            for row in p.rows:
                if "shadow" not in row.attr:
                    assert live[row.id] == row
    assert some


def test_flipped_bytes(record):
    got = record("simtrain", "--steps", 2, "--layers", 1)
    for source in (got.dir / "events.sonde", got.process.files["0"]):
        whole = bytearray(source.read_bytes())
        rng = random.Random(7)
        path = record.tmp / ("flipped" + source.suffix)
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 20))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            survived(record.sonde("mem", "show", path))


def test_a_recording_without_its_parts(record):
    got = record("simtrain", "--steps", 2)
    for gone in ("session", "config.json", "msmemscope.log"):
        copy = record.tmp / f"without_{gone}"
        shutil.copytree(got.dir, copy)
        os.unlink(copy / gone)
        r = record.sonde("mem", "show", "--json", copy)
        assert r.returncode == 0, (gone, r.stderr)
        assert json.loads(r.stdout)["rows"] == len(got.rows)
    copy = record.tmp / "without_events"
    shutil.copytree(got.dir, copy)
    os.unlink(copy / "events.sonde")
    r = record.sonde("mem", "show", copy)
    survived(r)
    assert r.returncode != 0
