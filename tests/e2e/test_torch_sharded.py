# SPDX-License-Identifier: MulanPSL-2.0
"""Two ranks of a real FSDP: the module table has what each rank holds of the model, to the byte."""

import collections
import json

from capabilities import lacks
from test_torch_modules import Questions
from test_torch_owners import Job
from torches import a_torch, order


def sums_of(moment):
    sums = collections.Counter()
    for _, kind, size in moment["expected"]:
        sums[kind] += size
    return sums


def groups_at(questions, job, told, way):
    at = [f"--at={told[way]['time_ns']}", f"--pid={told['pid']}"]
    return questions.groups(job, "owners", "--by=module", "--depth=64", *at)


def check_rank(questions, job, told):
    """The groups of each way: a question reads some million events."""
    found = {}
    for way in ("fully_shard", "original", "flat"):
        moment = told[way]
        found[way] = groups = groups_at(questions, job, told, way)
        first = [g for g in groups if g["depth"] == 1]
        for kind, size in sums_of(moment).items():
            assert sum(g["types"][kind] for g in first) == size, (way, kind, groups)
            mine = sum(g["types"][kind] for g in first if not g["rest"])
            assert mine == size, (way, kind, groups)
    return found


def test_shards_to_the_byte(build, tmp_path):
    torch = a_torch()
    if order(torch) < [2, 6]:
        lacks("torch-current", "this PyTorch has no fully_shard()")
    job = Job(build, tmp_path, torch)
    job.run("train_sharded.py", tmp_path, cli=["--device=cpu", "--analysis=decompose", "--format=none"])
    for rank in range(2):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        # With fully_shard() parameters have memory of their own: each has its line.
        groups = check_rank(Questions(build), job, told)["fully_shard"]
        named = {g["name"][g["name"].index("head."):]: g["types"]["weight"] for g in groups if "head." in g["name"]}
        expected = {n: size for n, kind, size in told["fully_shard"]["expected"] if kind == "weight"}
        assert named["head.weight"] == expected["head.weight"], (named, expected)
        assert named["head.bias"] == expected["head.bias"], (named, expected)
