# SPDX-License-Identifier: MulanPSL-2.0
"""Every fuzz target for some seconds. What it finds is kept beside the seeds of the repository: the next
run begins where this one ended, with as few inputs as reach the same code."""

import collections
import pathlib
import re
import shutil
import subprocess

Result = collections.namedtuple("Result", "name runs fresh inputs cov ft crashes seconds")
LINE = re.compile(r"cov: (\d+) ft: (\d+)")


def number(text, name):
    found = re.findall(rf"stat::{name}:\s+(\d+)", text)
    return int(found[-1]) if found else 0


def fuzz(program, seeds, corpus, crashes, seconds):
    """Runs one target; gives its Result."""
    name = program.name
    mine = corpus / name
    mine.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    places = [mine, *([seeds / name] if (seeds / name).is_dir() else [])]
    log = corpus / f"{name}.log"
    with open(log, "wb") as f:
        status = subprocess.run(
            [program, f"-max_total_time={seconds}", "-print_final_stats=1",
             f"-artifact_prefix={crashes}/{name}-", *places], stdout=f, stderr=f,
            stdin=subprocess.DEVNULL).returncode  # fmt: skip
    text = log.read_text(errors="replace")
    covered = LINE.findall(text) or [(0, 0)]
    if status == 0:
        merge(program, places)
    return Result(
        name, number(text, "number_of_executed_units"), number(text, "new_units_added"),
        sum(1 for _ in mine.iterdir()), int(covered[-1][0]), int(covered[-1][1]),
        sorted(crashes.glob(f"{name}-*")) if status else [], number_of_seconds(text, seconds),
    )  # fmt: skip


def number_of_seconds(text, seconds):
    found = re.findall(r"in (\d+) second", text)
    return int(found[-1]) if found else seconds


def merge(program, places):
    """The fewest inputs that reach what all of them reach."""
    fewer = places[0].with_name(places[0].name + ".merge")
    shutil.rmtree(fewer, ignore_errors=True)
    fewer.mkdir()
    done = subprocess.run([program, "-merge=1", fewer, *places], capture_output=True)
    if done.returncode or not any(fewer.iterdir()):
        shutil.rmtree(fewer)
        return
    shutil.rmtree(places[0])
    fewer.rename(places[0])


def programs(folder, names):
    return [pathlib.Path(folder) / name for name in names]
