# SPDX-License-Identifier: MulanPSL-2.0
"""Labels of what vLLM has allocated for good: weights, and the caches of keys and values."""

from sonde import _layers

from .. import _control
from ._hooks import Hook
from ._labels import COMPONENT, DETAIL_1, DETAIL_2, PROCESS

MAX_DEPTH = 4  # of tuples in dictionaries in lists


def _address(tensor):
    """Of its memory; 0 for what has none: meta and empty tensors, wrappers."""
    try:
        return int(tensor.data_ptr())
    except Exception:  # every subclass has its own ideas
        return 0


def _tensors(value, depth=MAX_DEPTH):
    if hasattr(value, "data_ptr"):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item, depth - 1)


def _label(seen, tensor, labels):
    address = _address(tensor)
    if not address or address in seen or _control._sonde is None:
        return
    seen.add(address)
    for level, text in labels:
        _control._sonde.label_addr(level, address, text)


def _modules(model):
    """Of a model, or of what stands around it: wrappers for graphs hide it in `runnable`."""
    for _ in range(MAX_DEPTH):
        if model is None or hasattr(model, "named_parameters"):
            break
        model = getattr(model, "runnable", None) or getattr(model, "model", None)
    return list(model.modules()) if hasattr(model, "modules") else []


def _is_lora(name):
    return name.startswith("lora")


class Weights(Hook):
    """vllm@weights, with @lora or @drafter at the end; a block gets the first that fits."""

    identity = "vllm weights"

    def result(self, ret, args, kwargs):
        runner, seen = args[0], set()
        weights = ((COMPONENT, "vllm"), (PROCESS, "weights"))
        lora, drafter = weights + ((DETAIL_2, "lora"),), weights + ((DETAIL_2, "drafter"),)
        model = _modules(getattr(runner, "model", None))
        draft = _modules(getattr(getattr(runner, "drafter", None), "model", None))
        for module in model + draft:  # adapters are plain attributes of the layers they change
            for name, value in vars(module).items():
                if _is_lora(name):
                    for tensor in _tensors(value):
                        _label(seen, tensor, lora)
        for kind in ("_parameters", "_buffers"):
            for modules, labels in ((model, weights), (draft, drafter)):
                for module in modules:
                    for name, tensor in vars(module).get(kind, {}).items():
                        if tensor is not None:
                            _label(seen, tensor, lora if _is_lora(name) else labels)
        return ret


def _bytes(tensor):
    """0: not known."""
    try:
        return int(tensor.numel()) * int(tensor.element_size())
    except Exception:
        return 0


def _place(tensor, text):
    """It belongs to a layer of the model, for answers by module."""
    try:
        address = _address(tensor)
        if address and _control._sonde is not None:
            _layers.name(tensor, text)
            _control._sonde.layer_addrs(tensor, [address], [_bytes(tensor)])
    except Exception:  # what has no weak reference, or no text for a name
        pass


class KvCaches(Hook):
    """vllm@kv_cache@attn, @mamba or @hidden_state; each belongs to the layer whose it is."""

    identity = "vllm kv caches"

    def result(self, ret, args, kwargs):
        config = kwargs.get("kv_cache_config", args[1] if len(args) > 1 else None)
        if config is None:
            config = getattr(args[0], "kv_cache_config", None)
        specs, seen = _specs_of_layers(config), set()
        models = _modules(getattr(args[0], "model", None))
        name = _layers.model_name(models[0]) if models else ""
        for layer, caches in ret.items() if isinstance(ret, dict) else ():
            labels = (
                (COMPONENT, "vllm"),
                (PROCESS, "kv_cache"),
                (DETAIL_1, _kind_of_cache(specs.get(layer))),
            )
            for tensor in _tensors(caches):
                _label(seen, tensor, labels)
                _place(tensor, f"{name}:{str(layer).replace(':', '_')}:")
        return ret


def _specs_of_layers(config):
    specs = {}
    for group in getattr(config, "kv_cache_groups", None) or ():
        spec = getattr(group, "kv_cache_spec", None)
        of_layers = getattr(spec, "kv_cache_specs", None) or {}  # one for all, or each its own
        for layer in getattr(group, "layer_names", ()):
            specs[layer] = of_layers.get(layer, spec) if isinstance(of_layers, dict) else spec
    return specs


def _kind_of_cache(spec):
    name = type(spec).__name__
    if "Mamba" in name:
        return "mamba"
    return "hidden_state" if "HiddenState" in name else "attn"
