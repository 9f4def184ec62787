# SPDX-License-Identifier: MulanPSL-2.0
"""Steps in memory recordings of PyTorch programs that know nothing of sonde: how many there are,
what was found with them, and that no dump shows them."""

import json
import pathlib
import sqlite3
import subprocess

import pytest
from python_jobs import Jobs
from recording import clean_env
from torches import every_torch

UNMODIFIED = pathlib.Path(__file__).resolve().parents[1] / "targets/python/unmodified.py"

EXPECTED = {
    "plain": (10, "optimizer", "AdamW"),
    "leaking": (10, "optimizer", "SGD"),
    "accumulating": (10, "optimizer", "SGD"),
    "gan": (10, "optimizer", "Adam"),
    "critic": (10, "optimizer", "Adam"),
    "loader": (10, "optimizer", "SGD"),
    "lbfgs": (10, "optimizer", "LBFGS"),
    "made_again": (10, "optimizer", "AdamW"),
    "inference": (40, "forward", "Served"),
    "two_models": (40, "forward", "Sequential"),
    "failing_model": (20, "forward", "Fails"),
    "trained_late": (10, "optimizer", "SGD"),
    "serving_leak": (10, "forward", "Served"),
    "validated_first": (10, "optimizer", "SGD"),
    "reported": (8, "explicit", None),
    "forked": (10, "optimizer", "AdamW"),
    "child": (20, "optimizer", "AdamW"),
}
LINE = "kept.append(torch.randn(8192))"


def ask(build, *words):
    r = subprocess.run([build / "bin/sonde", "mem", *words], stdout=subprocess.PIPE, check=True)
    return r.stdout.decode()


def lines_of(text):
    return [n for n, l in enumerate(UNMODIFIED.read_text().splitlines(), 1) if text in l]


SHORT = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(7):
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
"""


@pytest.mark.deadline(120)
@pytest.mark.parametrize("torch", every_torch())
def test_the_first_ones_are_not_missed(build, tmp_path, torch):
    """Of a program that does nothing between its imports and its first step."""
    (tmp_path / "short.py").write_text(SHORT)
    out = tmp_path / "out"
    options = ["--device=cpu", "--call-stack=python:0", f"--output-path={out}"]  # importing torch: 2.7 million events
    subprocess.run(
        [build / "bin/sonde", "mem", "record", *options, "--", torch.path, tmp_path / "short.py"],
        env=clean_env(tmp_path, OMP_NUM_THREADS=1),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=100,
    )
    answer = json.loads(ask(build, "leaks", "--json", out))
    assert [p["steps_ended"] for p in answer["processes"]] == [7]


@pytest.mark.deadline(240)
@pytest.mark.parametrize("torch", every_torch())
def test_programs_that_know_nothing_of_it(build, tmp_path, torch):
    out = tmp_path / "out"
    command = [build / "bin/sonde", "mem", "record", "--device=cpu", "--call-stack=python:10"]
    r = subprocess.run(
        [*command, f"--output-path={out}", "--", torch.path, UNMODIFIED],
        env=clean_env(tmp_path, PYTHONPATH=build / "python", OMP_NUM_THREADS=1),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=200,
    )
    assert r.returncode == 0, r.stderr
    names = {int(pid): name for name, pid in (l.split() for l in r.stdout.splitlines())}
    # in one go: these are some million events
    text = ask(build, "leaks", f"--json-file={tmp_path / 'answer'}", out)
    answer = json.loads((tmp_path / "answer").read_text())
    found = {}
    for p in answer["processes"]:
        steps = p["steps"] or {"source": None, "name": None}
        found[names.get(p["pid"], "other")] = p["steps_ended"], steps["source"], steps["name"]
    assert found.pop("other")[0] == 0, "workers, and the one that forks"
    compiled = found.pop("compiled", (0, None, None))
    assert compiled in ((0, None, None), (10, "optimizer", "SGD"))
    assert found == EXPECTED

    leaks = {(names[l["pid"]], l["where"], l["bytes_per_step"] // 1024) for l in answer["leaks"]}
    assert leaks == {
        (name, f"{name} (unmodified.py:{line})", 32)
        for name, line in zip(("leaking", "serving_leak"), lines_of(LINE))
    }
    # That of a process that has the most.
    assert answer["steps"]["source"] == "forward"
    assert "Steps were detected from calls of the model (" in " ".join(text.split())


TRAIN = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
msmemscope.config(device="cpu", call_stack="python:10", analysis="leaks", format=sys.argv[1])
msmemscope.start()
kept = []
for i in range(8):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).mean().backward()
    optimizer.step()
    kept.append(torch.randn(8192))
    if sys.argv[2] == "reported" and i >= 2:
        msmemscope.step()
msmemscope.stop()
"""


@pytest.mark.deadline(120)
@pytest.mark.parametrize("torch", every_torch())
def test_no_dump_shows_them(build, tmp_path, torch):
    """From Python, where recording begins later; csv, and db."""
    jobs = Jobs(build, tmp_path)
    left = jobs.run(torch, TRAIN, "csv", "detected", timeout=100)
    assert left.returncode == 0, left
    answer = json.loads(ask(build, "leaks", "--json", left.recordings[0].dir))
    assert answer["steps"] == {"source": "optimizer", "name": "SGD"}
    assert [p["steps_ended"] for p in answer["processes"]] == [8]
    assert answer["findings"] == 1
    (process,) = left.processes
    assert not [row for row in process.rows if row.event == "MSTX" or row.type == "STEP"]
    # The timeline has them.
    words = ["timeline", "--format=json", "--steps=3-4", "-o", tmp_path / "t.json", left.recordings[0].dir]
    subprocess.run([build / "bin/sonde", *words], stderr=subprocess.DEVNULL, check=True)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {"step 3", "step 4"} <= {e["name"] for e in events if e["ph"] == "B"}
    # What a dump does not say is not known from it.
    (csv,) = left.out.glob("**/memscope_dump_*.csv")
    answer = json.loads(ask(build, "leaks", "--json", csv))
    assert answer["steps"] is None and answer["findings"] == 0

    ask(build, "export", "--format=db", "-o", tmp_path / "db", left.recordings[0].dir)
    (db,) = (tmp_path / "db").glob("**/*.db")
    with sqlite3.connect(db) as base:
        tables = [t for (t,) in base.execute("select name from sqlite_master where type='table'")]
        for table in tables:
            names = [c[1] for c in base.execute(f'pragma table_info("{table}")')]
            if "Event Type" in names:
                where = "\"Event Type\"='STEP' or Event='MSTX'"
                assert not list(base.execute(f'select * from "{table}" where {where}'))


@pytest.mark.deadline(120)
@pytest.mark.parametrize("torch", every_torch())
def test_those_of_the_program_count(build, tmp_path, torch):
    """Though detected ones came first."""
    left = Jobs(build, tmp_path).run(torch, TRAIN, "csv", "reported", timeout=100)
    assert left.returncode == 0, left
    (process,) = left.processes
    assert [row.name for row in process.rows if row.type == "STEP"] == list("123456")
    answer = json.loads(ask(build, "leaks", "--json", left.recordings[0].dir))
    assert answer["steps"] == {"source": "explicit", "name": None}
    assert answer["processes"][0]["last_step"] == 6
    assert answer == {
        **json.loads(ask(build, "leaks", "--json", left.out / csv_name(left))),
        **{key: answer[key] for key in answer if key not in ("leaks", "findings", "steps")},
    }


def csv_name(left):
    (csv,) = left.out.glob("**/memscope_dump_*.csv")
    return csv.relative_to(left.out)
