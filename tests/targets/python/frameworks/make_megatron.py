# SPDX-License-Identifier: MulanPSL-2.0
"""Writes packages with the modules, classes and functions of Megatron and MindSpeed-LLM that are
hooked, importing each other by name as theirs do: make_megatron.py DIRECTORY"""

import pathlib
import sys

CORE = "megatron/core/"
LAYER = """
class {cls}({base}):
    def forward(self, x):
        return x + 1
"""
OPTIMIZERS = """
class MegatronOptimizer:
    def step(self):
        return None

class MixedPrecisionOptimizer(MegatronOptimizer):
    def step(self):
        return self.step_with_ready_grads()

    def step_with_ready_grads(self):
        return "stepped"

class Float16OptimizerWithFloat16Params(MixedPrecisionOptimizer):
    pass

class FP32Optimizer(MegatronOptimizer):
    def step(self):
        return "fp32"

class ChainedOptimizer(MegatronOptimizer):
    def step(self):
        return "chained"
"""
FILES = {
    CORE + "optimizer/optimizer": OPTIMIZERS,
    CORE + "optimizer/distrib_optimizer": """
from .optimizer import MixedPrecisionOptimizer

class DistributedOptimizer(MixedPrecisionOptimizer):
    def step_with_ready_grads(self):
        return "distributed"
""",
    CORE + "optimizer/__init__": """
from .distrib_optimizer import DistributedOptimizer

def get_megatron_optimizer():
    return DistributedOptimizer()
""",
    CORE + "models/common/language_module/language_module": """
class LanguageModule:
    def compute_language_model_loss(self, labels, logits):
        return logits - labels
""",
    CORE + "models/gpt/gpt_model": """
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.transformer.transformer_block import TransformerBlock

class GPTModel(LanguageModule):
    def forward(self, x):
        return self.compute_language_model_loss(0, TransformerBlock().forward(x))
""",
    CORE + "transformer/attention": """
class Attention:
    def forward(self, x):
        return x + 1

class SelfAttention(Attention):
    pass
""",
    CORE + "transformer/mlp": LAYER.format(cls="MLP", base="object"),
    CORE + "transformer/moe/router": LAYER.format(cls="TopKRouter", base="object"),
    CORE + "transformer/moe/moe_layer": """
from megatron.core.transformer.moe.router import TopKRouter

class MoELayer:
    def forward(self, x):
        return TopKRouter().forward(x)
""",
    CORE + "transformer/transformer_layer": """
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.moe.moe_layer import MoELayer

class TransformerLayer:
    def forward(self, x):
        return MoELayer().forward(MLP().forward(SelfAttention().forward(x)))
""",
    CORE + "transformer/transformer_block": """
from megatron.core.transformer.transformer_layer import TransformerLayer

class TransformerBlock:
    def forward(self, x):
        return TransformerLayer().forward(x)
""",
    CORE + "pipeline_parallel/schedules": """
def backward_step(x):
    return -x
""",
    "megatron/training/training": """
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import backward_step

def get_model():
    return GPTModel()

def setup_model_and_optimizer():
    return get_model(), get_megatron_optimizer()

def train_step(model, optimizer, fail=False):
    if fail:
        raise RuntimeError("the step fails")
    from megatron.core.pipeline_parallel import schedules
    schedules.backward_step(model.forward(1))
    return optimizer.step()

def train():
    raise AssertionError("MindSpeed-LLM has its own")
""",
    "mindspeed_llm/training/training": """
from megatron.training.training import train_step

def train(model, optimizer):
    return train_step(model, optimizer)

def pretrain():
    from megatron.training.training import setup_model_and_optimizer
    return train(*setup_model_and_optimizer())
""",
    "mindspeed_llm/tasks/posttrain/sft/sft_trainer": """
class SFTTrainer:
    @staticmethod
    def loss_func(mask, output):
        return mask * output
""",
    "mindspeed/core/pipeline_parallel/fb_overlap/gpt_model": """
def gpt_model_backward(grad, graph):
    return grad
""",
}


def main():
    top = pathlib.Path(sys.argv[1])
    for name, text in FILES.items():
        path = top / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in top.glob("**/"):
        if folder != top and not (folder / "__init__.py").exists():
            (folder / "__init__.py").write_text("")
    (top / "mindspeed_llm/__init__.py").write_text("__version__ = '0.12.1'\n")


main()
