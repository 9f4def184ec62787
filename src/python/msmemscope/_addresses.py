# SPDX-License-Identifier: MulanPSL-2.0
"""Where the memory of tensors lies, whatever kind of tensors they are.

Asking must leave no trace in the job: modes of torch's functions and of its dispatcher that the
program has switched on do not see it, and nothing is kept alive.
"""

import contextlib

from . import _program_errors

_MAX_DEPTH = 8  # of tensors inside tensors, and of what an optimizer keeps


def unseen(torch):
    """A context in which functions of torch are hidden from everything that intercepts them."""
    guard = getattr(torch._C, "DisableTorchFunction", None)
    return guard() if guard is not None else contextlib.nullcontext()


def of(torch, tensors):
    """A list of addresses, one inside each block that the tensors use. Within unseen()."""
    found = []
    _collect(torch, tensors, lambda tensor: found.append(tensor.data_ptr()))
    return found


def with_bytes(torch, tensors):
    """The same, and a list of how many bytes the tensors have there."""
    found, sizes = [], []

    def add(tensor):
        address = tensor.data_ptr()
        sizes.append(tensor.numel() * tensor.element_size())
        found.append(address)

    _collect(torch, tensors, add)
    return found, sizes


def _collect(torch, tensors, add):
    plain = (torch.Tensor, torch.nn.Parameter)
    for tensor in tensors:
        if type(tensor) in plain:
            try:
                add(tensor)
                continue
            except Exception as why:  # sparse, or without memory of its own
                _program_errors.pass_on(why)
        try:
            _look_inside(torch, tensor, add, _MAX_DEPTH)
        except Exception as why:  # a kind of tensor that refuses
            _program_errors.pass_on(why)


def _look_inside(torch, tensor, add, depth):
    parts = _parts(torch, tensor) if depth else ()
    for part in parts:
        _look_inside(torch, part, add, depth - 1)
    if not parts:
        add(tensor)


def _parts(torch, tensor):
    """The tensors that this one is made of: DTensor, sparse, quantized by a library, …"""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        return [getattr(tensor, name) for name in flatten()[0]]
    local = getattr(tensor, "_local_tensor", None)
    if local is not None:
        return [local]
    if tensor.layout is torch.strided:
        return []
    with _undispatched(torch):
        if tensor.layout is torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        if tensor.layout in _rows_first(torch):
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        if tensor.layout in _columns_first(torch):
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def _rows_first(torch):
    names = ("sparse_csr", "sparse_bsr")
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


def _columns_first(torch):
    names = ("sparse_csc", "sparse_bsc")
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


@contextlib.contextmanager
def _undispatched(torch):
    guard = getattr(torch._C, "_DisableTorchDispatch", None)
    held = guard() if guard is not None else None
    if hasattr(held, "__enter__"):
        with held:
            yield
    else:
        yield
        del held  # before 2.0 it lasts as long as the object


def inside(torch, thing, depth=_MAX_DEPTH):
    """A list of all tensors in nested dictionaries, lists and tuples."""
    found = []
    for value in list(thing.values()) if isinstance(thing, dict) else thing:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif depth and isinstance(value, (dict, list, tuple)):
            found += inside(torch, value, depth - 1)
    return found
