# SPDX-License-Identifier: MulanPSL-2.0
"""Hooks into frameworks: FSDP of the real torch; vLLM-Ascend, verl and MindSpeed-LLM, which need
hardware that tests do not have, by packages with the same names and the same order of calls."""

import json
import pathlib
import re
import subprocess

import pytest
from harness import SOAK
from pythons import every_python, one_per_minor, pythons
from torches import quickest_torch, torches

FRAMEWORKS = pathlib.Path(__file__).resolve().parents[1] / "targets/python/frameworks"
PACKAGES = FRAMEWORKS / "packages"
EVERY = every_python(oldest=8)
PER_MINOR = one_per_minor(oldest=8)
OLDEST_AND_NEWEST = [PER_MINOR[0], PER_MINOR[-1]]
NEWEST = [p for p in pythons() if p.minor >= 8][-1]


def run(jobs, python, code, *args, **kw):
    env = {"PYTHONPATH": f"{jobs.build / 'python'}:{PACKAGES}", **kw.pop("env", {})}
    left = jobs.run(python, code, *args, env=env, **kw)
    assert left.returncode == 0, left
    return left


def owners_in(text):
    """The same without looking at every row of the host's memory, of which there are many."""
    found = {}
    for line in text.splitlines():
        if ",MALLOC," in line and "shadow:" not in line:
            size = int(re.search(r"size:(\d+)", line).group(1))
            named = re.search(r"owner:([^,}]*)", line)
            found.setdefault(size, []).append(named.group(1) if named else "")
    return found


def owners(left):
    """size: owners of the blocks of that size that were taken while recording, in order."""
    found = {}
    for row in left.of("MALLOC"):
        if "shadow" not in row.attr:
            found.setdefault(int(row.attr["size"]), []).append(row.attr.get("owner", ""))
    return found


def owner(left, size):
    return set(owners(left)[size])


# --- in every interpreter ---


def check(build, tmp_path, python, name):
    done = subprocess.run(
        [python.path, FRAMEWORKS / name],
        env={"PYTHONPATH": str(build / "python"), "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    expected = (FRAMEWORKS / name).read_text().count("\ndef check_")
    assert done.stdout.count("\ncheck_") + done.stdout.startswith("check_") == expected
    return done.stdout


@pytest.mark.parametrize("python", EVERY)
def test_imports_are_told_and_not_disturbed(build, tmp_path, python):
    said = check(build, tmp_path, python, "check_imports.py")
    assert said.count("hooks of 'fails' do not work: RuntimeError: of the callback") == 1


@pytest.mark.parametrize("python", EVERY)
def test_hooked_functions_behave_as_before(build, tmp_path, python):
    said = check(build, tmp_path, python, "check_hijacker.py")
    assert said.count("OSError: of the hook") == 1  # said once, of two


# --- vLLM-Ascend ---

SERVE = """
assert "vllm_ascend" not in sys.modules
BEFORE
from vllm_ascend.worker.model_runner_v1 import *
from vllm_ascend.worker.worker import NPUWorker
AFTER
runner = NPUModelRunner(lora=True, draft=True, graphs=True)
assert runner.load_model() == "loaded"
take(1)
runner.profile_run()
groups = [
    Group(["a"], AttentionSpec()),
    Group(["m"], MambaSpec()),
    Group(["h", "u"], UniformTypeKVCacheSpecs({"h": HiddenStateCacheSpec(), "u": AttentionSpec()})),
]
assert set(runner.initialize_kv_cache(Config(groups))) == set("amhu")
NPUWorker(runner).compile_or_warm_up_model()
assert runner.execute_model() == 400_002
take(2)
"""


def serve(before="", after=""):
    return SERVE.replace("BEFORE", before).replace("AFTER", after)


def check_served(left):
    expected = {
        1: "PTA",
        2: "PTA",
        100_001: "PTA@vllm@weights",
        100_002: "PTA@vllm@weights",
        100_003: "PTA@vllm@weights",
        200_001: "PTA@vllm@weights@lora",
        200_002: "PTA@vllm@weights@lora",
        200_003: "PTA@vllm@weights@lora",
        200_004: "PTA@vllm@weights@lora",
        300_001: "PTA@vllm@weights@drafter",
        300_002: "PTA@vllm@weights@drafter",
        400_001: "PTA@vllm@profile",
        400_002: "PTA@vllm@serve",
        400_003: "PTA@vllm@warmup@graph_pool",
        500_001: "PTA@vllm@kv_cache@attn",
        500_002: "PTA@vllm@kv_cache@attn",
        500_003: "PTA@vllm@kv_cache@mamba",
        500_004: "PTA@vllm@kv_cache@mamba",
        500_005: "PTA@vllm@kv_cache@hidden_state",
        500_006: "PTA@vllm@kv_cache@hidden_state",
        500_007: "PTA@vllm@kv_cache@attn",
        500_008: "PTA@vllm@kv_cache@attn",
        600_001: "PTA@vllm@warmup",
        600_002: "PTA@vllm@warmup",
    }
    found = owners(left)
    assert {size: found[size][-1] for size in expected} == expected


NPU_MODEL = """
import torch
from device_memory import take

class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.fc = size, torch.nn.Linear(4, 4)

    def forward(self, x):
        take(self.size)
        return self.fc(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h = torch.nn.ModuleList(Block(1000) for _ in range(3))
        self.tail = Block(70)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        take(5)
        return self.tail(x)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
take(900)
"""


def by_module(jobs, left):
    words = [jobs.build / "bin/sonde", "mem", "owners", "--by=module", "--depth=9", "--at=end", "--json"]
    done = subprocess.run([*words, left.recordings[0].dir], capture_output=True, text=True, check=True)
    (device,) = [d for d in json.loads(done.stdout)["devices"] if d["device"] != "cpu"]
    return device["groups"]


def test_blocks_of_an_npus_pool_belong_to_modules(jobs):
    """As torch_npu allocates them: torch's own modules, blocks of the pool that it tells us of."""
    left = run(jobs, quickest_torch(), NPU_MODEL, cli=["--analysis=decompose"])
    found = {g["name"]: (g["bytes"], g["types"]["activation"]) for g in by_module(jobs, left)}
    assert found["h.*"] == (12000, 12000) and found["tail"] == (280, 280), found
    assert found["Net"] == (20, 20) and found["(no module)"] == (900, 0), found
    words = [jobs.build / "bin/sonde", "mem", "leaks", "--json", left.recordings[0].dir]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    (process,) = json.loads(done.stdout)["processes"]
    assert process["steps_ended"] == 4 and process["steps"]["source"] == "optimizer"


def test_kv_caches_belong_to_layers(jobs):
    """By the names that vLLM has for them, equal ones as one."""
    layers = ", ".join(f"Group(['model.layers.{i}.self_attn.attn'], AttentionSpec())" for i in range(4))
    code = f"""
from vllm_ascend.worker.model_runner_v1 import *
runner = NPUModelRunner()
runner.load_model()
runner.initialize_kv_cache(Config([{layers}, Group(["bad:name\\33[31m"], MambaSpec())]))
"""
    left = run(jobs, NEWEST, code, cli=["--analysis=decompose"])
    groups = by_module(jobs, left)
    found = {g["name"]: g["bytes"] for g in groups}
    caches = [2 * (500_001 + 2 * i) + 1 for i in range(5)]
    assert found["model.layers.*.self_attn.attn"] == sum(caches[:4]), found
    assert [v for k, v in found.items() if k.startswith("bad_name")] == [caches[4]], found
    assert all(g["types"]["kv_cache"] in (0, g["bytes"]) for g in groups)


START = 'msmemscope.config(analysis="decompose"); msmemscope.start()'


@pytest.mark.parametrize("python", OLDEST_AND_NEWEST)
@pytest.mark.parametrize("when", ["imported after start()", "imported before start()"])
def test_vllm_memory_has_owners(jobs, python, when):
    code = serve(before=START) if when == "imported after start()" else serve(after=START)
    check_served(run(jobs, python, code))


def test_vllm_memory_has_owners_under_the_command(jobs):
    check_served(run(jobs, NEWEST, serve(), cli=["--analysis=decompose"]))


def test_nothing_is_hooked_without_decompose(jobs):
    code = serve('msmemscope.config(analysis="leaks"); msmemscope.start()') + """
assert not hasattr(NPUModelRunner.load_model, "__wrapped__")
assert not [name for name in msmemscope._imports._waiting if name.startswith("vllm")]
"""
    found = owners(run(jobs, NEWEST, code))
    assert found[400_001] and not any("@" in o for of_size in found.values() for o in of_size)


def test_nothing_is_imported_for_it(jobs):
    run(
        jobs,
        NEWEST,
        START + """
frameworks = ("torch", "vllm_ascend", "verl", "megatron", "mindspeed_llm", "numpy")
assert not any(name.split(".")[0] in frameworks for name in sys.modules)
for args in ("pytorch 2.9.0 fsdp2 decompose", "verl 0.7.0 TaskRunner snapshot"):
    assert msmemscope.init_framework_hooks(*args.split()) is True
assert not any(name.split(".")[0] in frameworks for name in sys.modules)
msmemscope.stop()
msmemscope.cleanup_framework_hooks()
assert not any("msmemscope" in type(f).__module__ for f in sys.meta_path)
""",
    )


RAISES = START + """
import threading
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
runner = NPUModelRunner()
for n in range(200):  # more than a thread can have labels
    try:
        runner.execute_model(1000 + n, fail=True)
        raise AssertionError("passed")
    except MemoryError as why:
        assert str(why) == "in the model" and why.__context__ is None
take(2000)

inside, go = threading.Barrier(3), threading.Barrier(3)

def wait(*args, **kwargs):
    inside.wait(20)
    go.wait(20)
    return args, kwargs

msmemscope.hijacker.hijack(
    "vllm_ascend.worker.model_runner_v1", "NPUModelRunner", "execute_model", pre=wait, priority=200)
threads = [threading.Thread(target=runner.execute_model, args=(3001,)) for _ in range(2)]
for thread in threads: thread.start()
inside.wait(20)
take(3002)
go.wait(20)
for thread in threads: thread.join()
take(3003)
"""


def test_labels_do_not_outlive_calls_and_stay_in_their_thread(jobs):
    left = run(jobs, NEWEST, RAISES)
    for n in (0, 100, 199):
        assert owner(left, 1000 + n) == {"PTA@vllm@serve"}
    assert owner(left, 3001) == {"PTA@vllm@serve"}
    assert owner(left, 2000) == owner(left, 3002) == owner(left, 3003) == {"PTA"}


WINDOWS = """
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
runner = NPUModelRunner()
original = vars(NPUModelRunner).copy()
msmemscope.config(analysis="decompose")
for n in range(5):
    runner.execute_model(100 + n)
    msmemscope.start()
    assert NPUModelRunner.execute_model is not original["execute_model"]
    runner.execute_model(200 + n)
    msmemscope.stop()
    assert dict(vars(NPUModelRunner)) == original

def restarts(*args):  # inside of the window
    take(301)
    msmemscope.stop()
    msmemscope.start()
    take(302)
    raise KeyError("out of it")

msmemscope.start()
msmemscope.hijacker.hijack(
    "vllm_ascend.worker.model_runner_v1", "NPUModelRunner", "profile_run",
    pre=lambda self: restarts(), priority=200)
runner.profile_run()
take(303)
"""


def test_start_and_stop_hook_and_unhook(jobs):
    left = run(jobs, NEWEST, WINDOWS)
    for n in range(5):
        assert owner(left, 200 + n) == {"PTA@vllm@serve"}
    assert owner(left, 301) == owner(left, 302) == {"PTA@vllm@profile"}
    assert owner(left, 303) == {"PTA"}


BY_HAND = """
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
runner, original = NPUModelRunner(), vars(NPUModelRunner).copy()
ok = msmemscope.init_framework_hooks(*sys.argv[1].split(","))
print(ok)
msmemscope.config(analysis="decompose")
msmemscope.start()
runner.load_model()
runner.profile_run()
try:
    runner.execute_model(fail=True)
except MemoryError:
    pass
if ok:
    msmemscope.cleanup_framework_hooks()
    assert dict(vars(NPUModelRunner)) == original
runner.execute_model(7)
"""


def snapshots(left):
    return [row.name for row in left.of("SNAPSHOT")]


def test_decompose_by_hand(jobs):
    left = run(jobs, NEWEST, BY_HAND, "vllm_ascend,11.0,worker,decompose")
    assert left.stdout.startswith("True") and "Error" not in left.stderr
    assert owner(left, 400_001) == {"PTA@vllm@profile"} and owner(left, 7) == {"PTA"}
    assert not snapshots(left)


def test_snapshots_by_hand(jobs):
    left = run(jobs, NEWEST, BY_HAND, "vllm_ascend,0.11.0,worker,snapshot")
    module = "vllm_ascend.worker.model_runner_v1@NPUModelRunner@"
    calls = ("load_model", "profile_run", "execute_model")  # the last one fails
    assert snapshots(left) == [f"{module}{c}@{w}" for c in calls for w in ("Start", "End")]
    assert owner(left, 400_001) == {"PTA@vllm@profile"}  # this one comes by itself


@pytest.mark.parametrize(
    "args, message",
    [
        ("vllm,11.0,worker,decompose", "there is no framework 'vllm'; expected 'vllm_ascend', "),
        ("vllm_ascend,11.0,worker,trace", "no hook type 'trace'; expected 'decompose', 'snapshot'"),
        ("vllm_ascend,9.1,worker,snapshot", "nothing is known of vllm_ascend 9.1; there is '11.0'"),
        ("vllm_ascend,new,worker,snapshot", "'new' is no version; expected one like"),
        ("pytorch,2.9.1,fsdp3,decompose", "has no component 'fsdp3'; expected 'fsdp1', 'fsdp2'"),
        ("pytorch,2.9.1,fsdp2,snapshot", "has no snapshot hooks; there is 'decompose'"),
    ],
)
def test_wrong_names_say_what_there_is(jobs, args, message):
    left = run(jobs, NEWEST, BY_HAND, args)
    assert left.stdout.startswith("False") and message in left.stderr, left
    assert "no hooks were set" in left.stderr
    assert owner(left, 400_001) == {"PTA@vllm@profile"}  # still by itself


# --- verl, MindSpeed-LLM ---


def test_snapshots_of_verl(jobs):
    left = run(
        jobs,
        NEWEST,
        """
assert msmemscope.init_framework_hooks("verl", "0.7.0", "TaskRunner", "snapshot")
from verl.trainer.main_ppo import TaskRunner
assert TaskRunner().run("config") == "done"
try:
    TaskRunner().run("refuse")
except KeyError as why:
    assert why.args == ("no policy",)
""",
    )
    names = snapshots(left)
    prefix = "verl.trainer.main_ppo@TaskRunner@"
    roles = ("actor_rollout", "critic", "reward_model", "ref_policy")
    once = [f"{prefix}run@Start"]
    for role in roles:
        once += [f"{prefix}add_{role}_worker@Start", f"{prefix}add_{role}_worker@End"]
    assert names == (once + [f"{prefix}run@End"]) * 2


TRAIN = """
import subprocess
subprocess.run([sys.executable, sys.argv[1], "."], check=True)
sys.path.insert(0, ".")
import megatron.training.training as training
first = training.train_step
assert msmemscope.init_framework_hooks("mindspeed_llm", "0.12.1", "training", "snapshot")
import mindspeed_llm.training.training as theirs
assert theirs.pretrain() == "distributed"
from mindspeed_llm.tasks.posttrain.sft.sft_trainer import SFTTrainer
assert SFTTrainer.loss_func(2, 3) == 6
from mindspeed.core.pipeline_parallel.fb_overlap.gpt_model import gpt_model_backward
gpt_model_backward(1, 2)
from megatron.core.optimizer.optimizer import *
assert Float16OptimizerWithFloat16Params().step() == "stepped"
assert (FP32Optimizer().step(), ChainedOptimizer().step()) == ("fp32", "chained")
msmemscope.take_snapshot(name="before it fails")
try:
    theirs.train_step(None, None, fail=True)
except RuntimeError as why:
    assert str(why) == "the step fails"
msmemscope.cleanup_framework_hooks()
assert theirs.train_step is training.train_step is first
assert "step" not in vars(Float16OptimizerWithFloat16Params)
theirs.pretrain()
"""


def test_snapshots_of_mindspeed(jobs):
    names = snapshots(run(jobs, NEWEST, TRAIN, FRAMEWORKS / "make_megatron.py"))
    started = [n[: -len("@Start")] for n in names if n.endswith("@Start")]
    ended = [n[: -len("@End")] for n in names if n.endswith("@End")]
    assert sorted(started) == sorted(ended)
    core = "megatron.core."
    assert started == [
        "megatron.training.training@setup_model_and_optimizer",
        "megatron.training.training@get_model",
        "megatron.training.training@get_megatron_optimizer",
        "mindspeed_llm.training.training@train",
        "megatron.training.training@train_step",  # imported by name: once
        core + "models.gpt.gpt_model@GPTModel@forward",
        core + "transformer.transformer_block@TransformerBlock@forward",
        core + "transformer.transformer_layer@TransformerLayer@forward",
        core + "transformer.attention@SelfAttention@forward",
        core + "transformer.mlp@MLP@forward",
        core + "transformer.moe.moe_layer@MoELayer@forward",
        core + "transformer.moe.router@TopKRouter@forward",
        core + "models.common.language_module.language_module@LanguageModule"
        "@compute_language_model_loss",
        core + "pipeline_parallel.schedules@backward_step",
        core + "optimizer.optimizer@MixedPrecisionOptimizer@step",
        core + "optimizer.distrib_optimizer@DistributedOptimizer@step_with_ready_grads",
        "mindspeed_llm.tasks.posttrain.sft.sft_trainer@SFTTrainer@loss_func",
        "mindspeed.core.pipeline_parallel.fb_overlap.gpt_model@gpt_model_backward",
        core + "optimizer.optimizer@Float16OptimizerWithFloat16Params@step",
        core + "optimizer.optimizer@MixedPrecisionOptimizer@step",
        core + "optimizer.optimizer@FP32Optimizer@step",
        core + "optimizer.optimizer@ChainedOptimizer@step",
        "megatron.training.training@train_step",
    ], started
    # The one that failed has its end too; after that nothing is hooked any more.
    assert names[-3:] == [
        "before it fails",
        *(f"megatron.training.training@train_step@{what}" for what in ("Start", "End")),
    ]


# --- FSDP, with the real torch ---

SHARDED = [t for t in torches() if [int(n) for n in t.version.split(".")[:2]] >= [2, 6]]
SHARDED = [pytest.param(t, id=t.label) for t in (SHARDED if SOAK else SHARDED[-1:])]
if not SHARDED:
    SHARDED = [pytest.param(None, id="none", marks=pytest.mark.lacks("torch-2.6", "none that new"))]
WORLD = 2
BATCH_BYTES = 1500 * 64 * 4  # an activation of tests/targets/python/frameworks/fsdp.py


def run_sharded(jobs, torch):
    """Two processes, each with its own recording."""
    meet = jobs.tmp / "meet"
    started = []
    for rank in range(WORLD):
        place = jobs.place()
        out = place / "memscopeDumpResults"
        command = [
            *(jobs.build / "bin/msmemscope", f"--output-path={out}", "--device=npu,cpu"),
            *("--analysis=decompose", "--collect-mode=deferred", "--", torch.path),
            *(FRAMEWORKS / "fsdp.py", rank, WORLD, meet),
        ]
        job = subprocess.Popen(
            [str(word) for word in command],
            cwd=place,
            env=jobs.env(PYTHONPATH=f"{jobs.build / 'python'}:{PACKAGES}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        jobs.started.append(job)
        started.append((job, place))
    lefts = [jobs.left(job, place, timeout=120) for job, place in started]
    for left in lefts:
        assert left.returncode == 0 and left.stdout.count("same") == 2, left
    return lefts


@pytest.mark.parametrize("torch", SHARDED)
def test_passes_of_fsdp_are_windows(jobs, torch):
    left = run_sharded(jobs, torch)[0].wait()
    found = {}
    for path in left.out.glob("msmemscope_*/device_*/dump/*.csv"):
        for size, names in owners_in(path.read_text()).items():
            found.setdefault(size, []).extend(names)
    check_windows(found, "fsdp1", 0)
    check_windows(found, "fsdp2", 100_000)
    assert found[180_001][0].startswith("PTA@fsdp2@activation")  # a method beside forward()
    assert "fsdp2" not in found[180_904][0]
    check_tensors(found, "fsdp1", "all_gather")
    check_tensors(found, "fsdp2", "all_gather_output")


def check_windows(found, kind, base):
    """Of what was taken at known places; see the program."""
    inside = {1: f"PTA@{kind}@activation", 2: f"PTA@{kind}@backward"}
    # Models built before and after start(), and after a second one; three layers each.
    for model in (base + 10_000, base + 30_000, base + 70_000):
        for layer in range(3):
            for what, expected in inside.items():
                got = found[model + 10 * layer + what]
                assert len(got) == 2 and all(o.startswith(expected) for o in got), (model, got)
        for outside in (901, 902, 903):
            assert not any("fsdp" in o for o in found[model + outside]), (model, outside)
    # Nothing stays open after a pass that fails, or in other threads.
    assert found[base + 40_011][0].startswith(inside[1]) and base + 40_021 not in found
    assert found[base + 50_012][0].startswith(inside[2]) and base + 50_002 not in found
    for outside in (base + 40_904, base + 50_904, base + 60_905):
        assert not any("fsdp" in o for o in found[outside]), outside
    assert found[base + 60_001][0].startswith(inside[1])


def check_tensors(found, kind, gathered):
    """The memory of torch itself."""
    every = {o for of_size in found.values() for o in of_size}
    for expected in (
        "HOST@sharded_weight",
        f"HOST@{kind}@activation@{gathered}",
        f"HOST@{kind}@backward@{gathered}",
        f"HOST@{kind}@backward@gradient",
    ):
        assert any(o == expected or o == expected + "@ops" for o in every), (expected, every)
    whole = [o for size in found for o in found[size] if BATCH_BYTES <= size < BATCH_BYTES + 4096]
    assert any(o.startswith(f"HOST@{kind}@activation") for o in whole)
    assert any(o.startswith(f"HOST@{kind}@backward") for o in whole)
