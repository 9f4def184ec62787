# SPDX-License-Identifier: MulanPSL-2.0
"""What a rank holds of a model that DeepSpeed's ZeRO has divided.

ZeRO keeps parameters, their master copies, states and gradients in flat buffers, and gives those to the
optimizer: no parameter of the model is among its own. But each parameter says which slice of the
master copy is its own:

    stage 1 and 2    parameter._hp_mapping.hp_fragment
    stage 3          parameter._z3_optimizer.grad_position: which buffer, where, and how much;
                     parameter.ds_tensor is the rank's part of the parameter itself

States and gradients are as long as the master copy, and in the same order. The master copy counts as a
state of the optimizer.
"""

from sonde import _model_parts


class Slice:
    """Of a master copy: elements [start, start + n) of the flat tensor that an optimizer has."""

    def __init__(self, flat, start, n):
        self.flat, self.start, self.n = flat, start, n

    def of(self, tensor):
        """(address, bytes) of the same elements of another one; None if it is not as long."""
        if tensor is None or tensor.numel() != self.flat.numel() or not tensor.data_ptr():
            return None
        size = tensor.element_size()
        return tensor.data_ptr() + self.start * size, self.n * size


def parameters(modules):
    """Those of these models that ZeRO has divided, each once."""
    seen = set()
    for module in modules:
        for p in _model_parts.tensors_of(module, "_parameters"):
            if id(p) not in seen and (hasattr(p, "_z3_optimizer") or hasattr(p, "_hp_mapping")):
                seen.add(id(p))
                yield p


def slice_of(parameter, optimizer):
    """In what this optimizer steps; None: elsewhere, or the rank has none of it."""
    flats = [p for group in optimizer.param_groups for p in group["params"]]
    zero = getattr(parameter, "_z3_optimizer", None)
    if zero is not None:
        number, start, n = zero.grad_position[zero.get_param_id(parameter)]
        flat = zero.fp32_partitioned_groups_flat[number]
        return Slice(flat, start, n) if any(flat is p for p in flats) else None
    mapping = parameter._hp_mapping
    own = None if mapping is None else mapping.hp_fragment
    for flat in flats if own is not None else ():
        start = (own.data_ptr() - flat.data_ptr()) // flat.element_size()
        if 0 <= start and start + own.numel() <= flat.numel():
            return Slice(flat, start, own.numel())
    return None


def weight_of(parameter):
    """(address, bytes) of what the rank has of it."""
    own = getattr(parameter, "ds_tensor", parameter)
    return own.data_ptr(), own.numel() * own.element_size()


def gradients_of(parameter, part):
    """(address, bytes) of each: what the optimizer steps with, and where stage 3 adds it up."""
    found = [part.of(part.flat.grad)]
    zero = getattr(parameter, "_z3_optimizer", None)
    kept = getattr(zero, "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition", {})
    own = kept.get(parameter.ds_id) if kept else None
    if own is not None and own.data_ptr():
        found.append((own.data_ptr(), own.numel() * own.element_size()))
    return [one for one in found if one is not None]


def states_of(part, optimizer):
    """(address, bytes) of each: the master copy, and what the optimizer keeps for it."""
    kept = optimizer.state.get(part.flat, {}).values()
    found = [part.of(tensor) for tensor in (part.flat, *kept) if hasattr(tensor, "data_ptr")]
    return [one for one in found if one is not None]
