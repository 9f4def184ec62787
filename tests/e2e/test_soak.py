# SPDX-License-Identifier: MulanPSL-2.0
"""Some rounds of the kill matrix (`make soak` runs a thousand), and that its checks can fail."""

import os
import pathlib
import re
import struct
import subprocess
import sys

import pytest

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak"
SEED, ROUNDS = "1837", 6
sys.path.append(str(SOAK))

import kill_matrix  # noqa: E402
import memory_rounds  # noqa: E402
from rounds import Round, Silent  # noqa: E402
from waiting import wait_until  # noqa: E402


@pytest.fixture(scope="module")
def soak(build):
    """The build with a sonde that can be made to fail."""
    made = build / "soak"
    assert (made / "bin" / "sonde").exists(), "make soak-programs"
    return made


def run_matrix(build, *words):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SOAK")}
    return subprocess.run(
        [sys.executable, SOAK / "run.py", "--build", build, *words, "kill"],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_some_rounds(build, soak):
    r = run_matrix(build, "--seed", SEED, "--rounds", str(ROUNDS))
    assert r.returncode == 0, r.stdout + r.stderr
    assert len(re.findall(rf"^round {SEED}:\d+ \S+: (?:exact|loss), ", r.stdout, re.M)) == ROUNDS
    (row,) = re.findall(r"^all +(\d+) +(\d+) +(\d+) +(\d+) ", r.stdout, re.M)
    assert [int(row[0]), int(row[3])] == [ROUNDS, 0] and int(row[1]) + int(row[2]) == ROUNDS


def test_a_seed_means_the_same_rounds():
    first = [kill_matrix.cell_of("7", n) for n in range(2 * len(kill_matrix.CELLS))]
    assert first == [kill_matrix.cell_of("7", n) for n in range(len(first))]
    assert sorted(first) == sorted(2 * kill_matrix.CELLS), "each cell once in a lap"


@pytest.fixture
def round_(soak, tmp_path):
    made = Round(soak, tmp_path, "1", 0, ("memory", "job", "kill"))
    yield made
    made.close(keep=True)


def recorded(r):
    job = memory_rounds.Job(r, r.build / "targets" / "steady", r.dir / "count", 1, 500, 0, "return", slack=1)
    job.begin()
    assert job.job.wait(30) == 0
    return job


def test_what_is_missing_is_noticed(round_):
    job = recorded(round_)
    assert memory_rounds.check_recording(round_, job, True) == "exact"
    job.count_file.write_bytes(struct.pack("<Q", job.counted + 2))
    with pytest.raises(Silent, match="2 events lost silently"):
        memory_rounds.check_recording(round_, job, True)
    job.count_file.write_bytes(struct.pack("<Q", 900))
    with pytest.raises(Silent, match="stand twice"):
        memory_rounds.check_recording(round_, job, True)
    (dump,) = job.out.glob("msmemscope_*/device_0/dump/*.csv")
    job.count_file.write_bytes(struct.pack("<Q", 1000))
    dump.write_bytes(dump.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[0] + b"\n")
    with pytest.raises(Silent, match="999 rows in the dumps, 1000 in the recording"):
        memory_rounds.check_recording(round_, job, True)


def test_what_is_left_is_noticed(round_):
    round_.check_left_files()
    (round_.dir / "out.tmp").touch()
    with pytest.raises(Silent, match="left behind: .*out.tmp"):
        round_.check_left_files()


def test_faults_reach_our_programs(round_):
    """Disk and memory of the program fail when the words say so."""
    env = {"PATH": os.environ["PATH"], **round_.env()}
    export = [round_.build / "bin" / "sonde", "mem", "export", "-o", round_.dir / "copy", recorded(round_).recording]
    for fault, words in ((1, "Input/output error"), (4, "out of memory")):
        round_.words.set(fault, 5, 1)
        r = subprocess.run(export, env=env, capture_output=True, text=True)
        assert r.returncode != 0 and words in r.stderr, r.stderr
        assert round_.words.failed
    round_.words.set(0)
    assert subprocess.run(export, env=env, capture_output=True).returncode == 0


def test_a_process_that_stays_is_noticed(round_):
    p = round_.started(subprocess.Popen(["sleep", "60"], env={**os.environ, **round_.env()}))
    wait_until(lambda: round_.running() == {p.pid: "sleep 60"}, lambda: f"it alone: {round_.running()}")
    with pytest.raises(Silent, match="left running: .*sleep 60"):
        round_.wait_alone(0.1)
