# SPDX-License-Identifier: MulanPSL-2.0
"""Modules and tensors of a PyTorch model, by what torch keeps of them: a program may have its own
``named_modules()``, which need not end."""


def modules_of(module):
    """The module and all below it, each once."""
    seen, todo = set(), [module]
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo += reversed(list(part._modules.values()))


def tensors_of(module, kind):
    """Of all of them, each once; kind: ``_parameters`` or ``_buffers``."""
    seen = set()
    for part in modules_of(module):
        for tensor in list(getattr(part, kind).values()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor


def has_parameters(module):
    return next(tensors_of(module, "_parameters"), None) is not None
