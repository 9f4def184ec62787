# SPDX-License-Identifier: MulanPSL-2.0
"""What is hooked in which framework, by version, component and kind.

    FRAMEWORKS[framework].entries[version key][component][kind] -> places

A place is (module, class or None, function, what to do). Names of modules that a version does not
have are left out when it comes to it, so an entry may name those of several versions.
"""

import collections

from . import _vllm
from ._labels import COMPONENT, DETAIL_1, PROCESS, Bounds, Closes, Opens, Scope
from ._snapshots import Snapshot

Place = collections.namedtuple(
    "Place", "module cls function hook after mixin optional", defaults=(None, False, False)
)
Framework = collections.namedtuple("Framework", "package distribution entries")


def _owned(component, process):
    return ((COMPONENT, component), (PROCESS, process))


def _detail(text):
    return Scope((DETAIL_1, text))


# --- vLLM on Ascend: 0.11 has worker_v1, later ones worker ---

_RUNNER = ("vllm_ascend.worker.model_runner_v1", "NPUModelRunner")
_WORKERS = (
    ("vllm_ascend.worker.worker", "NPUWorker"),
    ("vllm_ascend.worker.worker_v1", "NPUWorker"),
)
_KV_CACHES = (  # models of DeepSeek have their own in 0.11
    "initialize_kv_cache_tensors",
    "initialize_kv_cache_tensors_deepseek_mla",
    "initialize_kv_cache_tensors_deepseek_sfa",
)


def _vllm_decompose():
    places = [
        Place(*_RUNNER, "profile_run", Scope(*_owned("vllm", "profile"))),
        Place(*_RUNNER, "execute_model", Scope(*_owned("vllm", "serve"))),
        Place(*_RUNNER, "capture_model", _detail("graph_pool")),
        Place(*_RUNNER, "load_model", _vllm.Weights()),
    ]
    for function in _KV_CACHES:
        places.append(Place(*_RUNNER, function, _vllm.KvCaches(), optional="deepseek" in function))
    for worker in _WORKERS:
        places.append(Place(*worker, "compile_or_warm_up_model", Scope(*_owned("vllm", "warmup"))))
    return places


def _snapshots(*targets):
    return [Place(*target, Snapshot(*target)) for target in targets]


def _vllm_snapshots():
    runner = ("load_model", "profile_run", "initialize_kv_cache", "execute_model", "capture_model")
    targets = [(*_RUNNER, function) for function in runner]
    targets += [(*worker, "compile_or_warm_up_model") for worker in _WORKERS]
    return _snapshots(*targets)


_VLLM = {"worker": {"decompose": _vllm_decompose, "snapshot": _vllm_snapshots}}


# --- FSDP of torch ---

_FSDP = "torch.distributed.fsdp"
_RUNTIME = _FSDP + "._runtime_utils"


def _backward_ends(kind, after):
    """However a backward pass ends, its windows do."""
    return [
        Place("torch.autograd", None, name, Bounds(kind), after=after)
        for name in ("backward", "grad")
    ]


def _handle_or_state(state, module, handle, *rest):
    return (handle if handle is not None else state,)


def _second(first, second, *rest):
    return (second,)


def _fsdp1():
    activation, backward = _owned("fsdp1", "activation"), _owned("fsdp1", "backward")
    kind = "fsdp1 backward"
    flat = (_FSDP + "._flat_param", "FlatParamHandle")
    return [
        Place(
            _FSDP + ".fully_sharded_data_parallel",
            "FullyShardedDataParallel",
            "forward",
            Scope(*activation),
        ),
        Place(_RUNTIME, None, "_pre_backward_hook", Opens(kind, backward, _handle_or_state)),
        Place(_RUNTIME, None, "_post_backward_hook", Closes(kind, _second)),
        Place(_RUNTIME, None, "_post_backward_final_callback", Closes(kind, None)),
        *_backward_ends(kind, _RUNTIME),
        Place(*flat, "_init_flat_param_and_metadata", _detail("sharded_weight")),
        Place(*flat, "_alloc_padded_unsharded_flat_param", _detail("all_gather")),
        Place(_RUNTIME, None, "_reduce_grad", _detail("gradient")),
    ]


_FSDP2 = _FSDP + "._fully_shard."
_STATE = (_FSDP2 + "_fsdp_state", "FSDPState")
_PARAM = (_FSDP2 + "_fsdp_param", "FSDPParam")


def _groups(state, *rest):
    """Parameter groups of a state: several from 2.11 on."""
    names = vars(state)
    groups = names.get("_fsdp_param_groups") or [names.get("_fsdp_param_group")]
    return [group for group in groups if group is not None] or [state]


def _fsdp2():
    activation, backward = _owned("fsdp2", "activation"), _owned("fsdp2", "backward")
    forward_kind, kind = "fsdp2 forward", "fsdp2 backward"
    return [
        # A module keeps its _pre_forward when it is sharded, which may be before we are here.
        # Its call is found in its class, whenever.
        Place(
            _FSDP2 + "_fully_shard",
            "FSDPModule",
            "__call__",
            Bounds(forward_kind, *activation),
            mixin=True,
        ),
        Place(*_STATE, "_pre_forward", Opens(forward_kind, activation)),
        Place(*_STATE, "_post_forward", Closes(forward_kind)),
        Place(*_STATE, "_pre_backward", Opens(kind, backward, _groups)),
        Place(_FSDP2 + "_fsdp_param_group", "FSDPParamGroup", "post_backward", Closes(kind)),
        Place(*_STATE, "_root_post_backward_final_callback", Closes(kind, None)),
        *_backward_ends(kind, _STATE[0]),
        Place(*_PARAM, "_init_sharded_param", _detail("sharded_weight")),
        Place(*_PARAM, "init_all_gather_outputs", _detail("all_gather_output")),
        Place(*_PARAM, "alloc_all_gather_outputs", _detail("all_gather_output"), optional=True),
    ]


def _fsdp2_until_2_9():
    places = _fsdp2()
    for module in ("_fsdp_collectives", "_fsdp_param_group"):  # and imported by name
        places += [
            Place(_FSDP2 + module, None, "foreach_all_gather", _detail("all_gather_output")),
            Place(_FSDP2 + module, None, "foreach_reduce", _detail("gradient")),
        ]
    return places


def _fsdp2_from_2_10():
    module = _FSDP2 + "_fsdp_collectives"
    return _fsdp2() + [
        Place(module, "DefaultAllGather", "allocate", _detail("all_gather_output")),
        Place(module, "DefaultReduceScatter", "allocate", _detail("gradient")),
    ]


# --- verl, MindSpeed-LLM ---


def _verl():
    runner = ("verl.trainer.main_ppo", "TaskRunner")
    return _snapshots(
        (*runner, "add_actor_rollout_worker"),
        (*runner, "add_critic_worker"),
        (*runner, "add_reward_model_worker"),
        (*runner, "add_ref_policy_worker"),
        (*runner, "run"),
    )


def _mindspeed():
    core = "megatron.core."
    training, optimizer = "megatron.training.training", core + "optimizer.optimizer"
    optimizers = (
        "MegatronOptimizer",
        "MixedPrecisionOptimizer",
        "Float16OptimizerWithFloat16Params",
        "FP32Optimizer",
        "ChainedOptimizer",
    )
    return _snapshots(
        ("mindspeed_llm.training.training", None, "train"),
        (training, None, "train"),
        (training, None, "train_step"),
        ("mindspeed_llm.training.training", None, "train_step"),
        (training, None, "setup_model_and_optimizer"),
        (training, None, "get_model"),
        (core + "optimizer", None, "get_megatron_optimizer"),
        (training, None, "get_megatron_optimizer"),
        (core + "models.gpt.gpt_model", "GPTModel", "forward"),
        ("mindspeed_llm.core.models.gpt.gpt_model", "GPTModel", "forward"),
        (core + "transformer.transformer_block", "TransformerBlock", "forward"),
        (core + "transformer.transformer_layer", "TransformerLayer", "forward"),
        (core + "transformer.attention", "SelfAttention", "forward"),
        (core + "transformer.mlp", "MLP", "forward"),
        (core + "transformer.moe.moe_layer", "MoELayer", "forward"),
        (core + "transformer.moe.router", "TopKRouter", "forward"),
        (core + "pipeline_parallel.schedules", None, "backward_step"),
        ("mindspeed.core.pipeline_parallel.fb_overlap.gpt_model", None, "gpt_model_backward"),
        ("mindspeed_llm.core.pipeline_parallel.dualpipe.gpt_model", None, "gpt_model_backward"),
        (
            core + "models.common.language_module.language_module",
            "LanguageModule",
            "compute_language_model_loss",
        ),
        ("mindspeed_llm.tasks.posttrain.sft.sft_trainer", "SFTTrainer", "loss_func"),
        ("pretrain_gpt", None, "loss_func"),
        *((optimizer, cls, "step") for cls in optimizers),
        (core + "optimizer.distrib_optimizer", "DistributedOptimizer", "step_with_ready_grads"),
    )


FRAMEWORKS = {
    "vllm_ascend": Framework("vllm_ascend", "vllm_ascend", {"11.0": _VLLM, "0.11.0": _VLLM}),
    "pytorch": Framework(
        "torch",
        "torch",
        {
            "2.6+": {"fsdp1": {"decompose": _fsdp1}},
            "2.6-2.9": {"fsdp2": {"decompose": _fsdp2_until_2_9}},
            "2.10+": {"fsdp2": {"decompose": _fsdp2_from_2_10}},
        },
    ),
    "verl": Framework("verl", "verl", {"0.7.0": {"TaskRunner": {"snapshot": _verl}}}),
    "mindspeed_llm": Framework(
        "mindspeed_llm", "mindspeed_llm", {"0.12.1": {"training": {"snapshot": _mindspeed}}}
    ),
}
