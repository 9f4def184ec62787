# SPDX-License-Identifier: MulanPSL-2.0
"""Names, arguments and order of calls of vLLM-Ascend's model runner, with none of its work."""

from device_memory import Tensor, take


class Module:
    """The parts of torch.nn.Module that are looked at."""

    def __init__(self, parameters=None, buffers=None, children=(), **attributes):
        self._parameters = parameters or {}
        self._buffers = buffers or {}
        self._children = children
        vars(self).update(attributes)

    def modules(self):
        yield self
        for child in self._children:
            yield from child.modules()

    def named_parameters(self):
        raise AssertionError("nobody needs the names")


class AttentionSpec:
    pass


class MambaSpec:
    pass


class HiddenStateCacheSpec:
    pass


class UniformTypeKVCacheSpecs:
    def __init__(self, specs):
        self.kv_cache_specs = specs


class Group:
    def __init__(self, layer_names, kv_cache_spec):
        self.layer_names, self.kv_cache_spec = layer_names, kv_cache_spec


class Config:
    def __init__(self, groups):
        self.kv_cache_groups = groups


class GraphWrapper:
    def __init__(self, runnable):
        self.runnable = runnable


class Drafter:
    def load_model(self, model):
        self.model = Module({"weight": Tensor(300_001)}, {"table": Tensor(300_002)})


class NPUModelRunner:
    def __init__(self, lora=False, draft=False, graphs=False):
        self.lora, self.graphs = lora, graphs
        self.drafter = Drafter() if draft else None

    def load_model(self):
        shared = Tensor(100_001)
        linear = Module({"weight": shared, "bias": None}, {"scale": Tensor(100_002)})
        head = Module({"weight": Tensor(0, shared.address)})
        self.model = Module({"norm": Tensor(100_003)}, children=[linear, head])
        if self.drafter:
            self.drafter.load_model(self.model)
        if self.lora:
            linear.lora_a_stacked = (Tensor(200_001), Tensor(200_002))
            head.lora_weights = {"a": [Tensor(200_003)]}
            linear._parameters["lora_scaling"] = Tensor(200_004)
        if self.graphs:
            self.model = GraphWrapper(self.model)
        return "loaded"

    def profile_run(self):
        take(400_001)

    def execute_model(self, request=400_002, fail=False):
        take(request)
        if fail:
            raise MemoryError("in the model")
        return request

    def capture_model(self):
        take(400_003)

    def initialize_kv_cache(self, kv_cache_config):
        self.kv_cache_config = kv_cache_config
        return self.initialize_kv_cache_tensors(kv_cache_config)

    def initialize_kv_cache_tensors(self, kv_cache_config):
        sizes = iter(range(500_001, 500_100))
        caches = {}
        for group in kv_cache_config.kv_cache_groups:
            for layer in group.layer_names:
                caches[layer] = (Tensor(next(sizes)), Tensor(next(sizes)))
        return caches
