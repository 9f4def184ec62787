# SPDX-License-Identifier: MulanPSL-2.0
"""Which module of a model holds the memory of a real PyTorch, to the byte."""

import collections
import json
import re
import subprocess

import pytest

from test_torch_owners import Job
from torch_forks import forks  # noqa: F401
from torches import every_torch

# Each list is one process, forked from one that has imported torch. Several models in one have their names in front.
ONE_MODEL = [
    "training",
    "saved",
    "recomputed",
    "wrapped",
    "distributed",
    "compiled",
    "hooked",
    "inference",
    "gradients",
]
RUNS = [ONE_MODEL, ["failing"], ["threads"]]

torches = pytest.mark.parametrize("torch", every_torch(), scope="module")


class Questions:
    def __init__(self, build):
        self.build = build

    def ask(self, job, *words):
        r = subprocess.run(
            [str(w) for w in [self.build / "bin/sonde", "mem", *words, job.recording]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
        )
        assert r.returncode == 0, r.stderr
        return r.stdout.decode()

    def groups(self, job, *words):
        answer = json.loads(self.ask(job, *words, "--json", "--top=100000"))
        (device,) = [d for d in answer["devices"] if d["device"] == "cpu"]
        return device["groups"]


class Recorded(Questions):
    def __init__(self, build, tmp, torch, forks):
        super().__init__(build)
        self.cases = {}
        for i, names in enumerate(RUNS):
            place = tmp / f"run{i}"
            place.mkdir()
            plain = Job(build, place, torch, forks).run("train_modules.py", "plain", *names)
            job = Job(build, place, torch, forks)
            for was, told in zip(plain, job.run("train_modules.py", "alone", *names)):
                assert "some owners are not recorded" not in job.stderr, job.stderr
                assert "global hooks" not in job.stderr, "torch warns of ours"
                self.cases[told["name"]] = (job, was, told)


@pytest.fixture(scope="module")
def recorded(build, tmp_path_factory, torch, forks):  # noqa: F811
    return Recorded(build, tmp_path_factory.mktemp("modules"), torch, forks.of(torch))


def folded(name):
    return re.sub(r"(?<=\bh\.)\d+(?=\.)", "*", name)


def check_moment(recorded, job, moment):
    groups = recorded.groups(
        job, "owners", "--by=module", "--depth=64", f"--at={moment['time_ns']}"
    )
    by_name = {g["name"]: g for g in groups}
    expected = collections.Counter()
    for name, kind, size in moment["expected"]:
        expected[folded(name), kind] += size
    for (name, kind), size in expected.items():
        if name:
            found = by_name[name]["types"][kind] if size else 0
        else:
            found = sum(g["types"][kind] for g in groups if g["depth"] == 1 and not g["rest"])
        assert found == size, (name, kind, groups)
    for kind in moment["whole"]:
        total = sum(size for (_, k), size in expected.items() if k == kind)
        if ("", kind) in expected:
            total = expected["", kind]
        assert sum(g["types"][kind] for g in groups if g["depth"] == 1) == total, (kind, groups)


@torches
@pytest.mark.parametrize("name", [name for names in RUNS for name in names])
def test_modules(recorded, name):
    job, was, told = recorded.cases[name]
    assert was["digest"] == told["digest"]
    assert told["told"]
    for moment in told["told"]:
        check_moment(recorded, job, moment)


@pytest.mark.parametrize("torch", every_torch())
def test_by_malloc(build, tmp_path, torch):
    """With the preloaded library the blocks are those of malloc()."""
    job = Job(build, tmp_path, torch)
    cli = ["--device=cpu", "--analysis=decompose", "--format=none"]
    (told,) = job.run("train_modules.py", "launched", "training", cli=cli)
    for moment in told["told"]:
        check_moment(Questions(build), job, moment)


@torches
def test_answers(recorded):
    """Words and tables, at the peak and elsewhere; the parts add up."""
    job, _, told = recorded.cases["training"]
    at = f"--at={told['told'][0]['time_ns']}"
    text = recorded.ask(job, "owners", "--by=module", at)
    assert re.search(r"^h\.\* holds [\d.]+ KiB of the [\d.]+ KiB of host memory", text), text
    assert "3 x " in text and "h.*.mlp" in text and "c_fc.weight" not in text
    for words in (
        ["owners", "--by=module", at],
        ["owners", "--by=line", at],
        ["owners", "--by=type", at],
        ["owners", "--by=module", "--at=end"],
        ["owners", "--by=module", "--at=step:2"],
        ["peak", "--by=module"],
        ["peak", "--by=line"],
        ["peak", "--by=type"],
    ):
        answer = json.loads(recorded.ask(job, *words, "--json", "--top=100000"))
        (device,) = answer["devices"]
        first = [g for g in device["groups"] if g["depth"] == 1]
        assert sum(g["bytes"] for g in first) == device["bytes"], words
        for group in device["groups"]:
            assert sum(group["types"].values()) == group["bytes"], (words, group)


@torches
def test_compare(recorded):
    """Two runs, by what their modules hold at the peak."""
    one, other = recorded.cases["training"][0], recorded.cases["threads"][0]
    same = json.loads(recorded.ask(one, "compare", "--by=module", "--json", one.recording))
    assert same["identical"] and not same["groups"] and same["incomplete"] is None
    words = ["compare", "--by=module", "--depth=2", "--json", "--top=1000"]
    answer = json.loads(recorded.ask(one, *words, other.recording))
    assert not answer["identical"] and answer["what"] == "module"
    (device,) = answer["devices"]
    first = [g for g in answer["groups"] if g["depth"] == 1]
    assert sum(g["diff_bytes"] for g in first) == device["diff_bytes"]
    for group in answer["groups"]:
        assert sum(group["types"].values()) == group["diff_bytes"], group
    text = recorded.ask(one, "compare", "--by=module", other.recording)
    assert "than in base at the peak of host memory" in text


@torches
def test_dumps_are_unchanged(recorded):
    """A dump has no place for modules."""
    job, _, _ = recorded.cases["training"]
    job.recording
    dumps = list(job.out.rglob("*.csv"))
    assert dumps
    for dump in dumps:
        assert "c_fc" not in dump.read_text()
