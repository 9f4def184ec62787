# SPDX-License-Identifier: MulanPSL-2.0
"""Modules and tensors of a model, by what PyTorch keeps of its modules and MindSpore of its cells: a
program may have its own ``named_modules()``, which need not end. An optimizer is a cell, too, and no
part of a model."""


def is_cell(part):
    return "_cells" in vars(part) and "_modules" not in vars(part)


def children_of(part):
    """By name."""
    if not is_cell(part):
        return part._modules
    return {key: cell for key, cell in part._cells.items() if not _is_optimizer(cell)}


def named_tensors_of(part, kind):
    """Its own, by name; kind: ``_parameters`` or ``_buffers``."""
    if not is_cell(part):
        return getattr(part, kind)
    found = getattr(part, "_params" if kind == "_parameters" else kind, {})
    return {name: _meant_by(tensor) for name, tensor in found.items()}


def _is_optimizer(cell):
    return any(cls.__name__ == "Optimizer" for cls in type(cell).__mro__)


def _meant_by(tensor):
    """A parameter that was initialised later stands for another one."""
    inited = getattr(tensor, "inited_param", None)
    return tensor if inited is None else inited


def modules_of(module):
    """The module and all below it, each once."""
    seen, todo = set(), [module]
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo += reversed(list(children_of(part).values()))


def tensors_of(module, kind):
    """Of all of them, each once; kind: ``_parameters`` or ``_buffers``."""
    seen = set()
    for part in modules_of(module):
        for tensor in list(named_tensors_of(part, kind).values()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor


def has_parameters(module):
    return next(tensors_of(module, "_parameters"), None) is not None
