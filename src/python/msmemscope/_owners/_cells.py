# SPDX-License-Identifier: MulanPSL-2.0
"""Who owns memory in programs of MindSpore: weights, buffers, gradients, states of optimizers.

All of it is told by address: parameters of a model at its first call, and after each call of an
optimizer its parameters, the gradients that it was given, and its states. MindSpore runs operations
some time after the program has asked for them, in threads of its own; so what a thread allocates says
nothing of the cell that runs, and activations have none. To ask a tensor where it lies waits for that.

States of a parameter are tuples of an optimizer as long as that of its parameters, and in the same
order. In a function that is compiled as a whole no call of a cell is seen: there the paths are the
names of the parameters themselves.

On the CPU gradients lie in a pool of MindSpore's own, which is one block and reports nothing of what is
inside: they are not told there.
"""

import functools
import itertools
import sys

from sonde import _layers, _model_parts, _sonde
from sonde._steps import _cells as _step_cells

from .. import _messages, _program_errors

DETAIL_1 = 3

_labelled = 0  # calls of optimizers so far


def hook(mindspore):
    """From now on. Returns a function that takes it back."""
    cell = mindspore.nn.Cell
    own, new = cell.__call__, _around_call(mindspore, cell.__call__)
    cell.__call__ = new

    def back():
        if cell.__call__ is new:
            cell.__call__ = own

    return back


def _around_call(mindspore, call):
    optimizers, train_cell = _step_cells.optimizers(mindspore), mindspore.nn.TrainOneStepCell

    @functools.wraps(call)
    def wrapper(self, *args, **kwargs):
        is_optimizer = isinstance(self, optimizers)
        if not is_optimizer and not _layers.is_known(self):
            _guarded(_meet, self, wrapper.__code__)
        before = _labelled
        result = call(self, *args, **kwargs)
        if is_optimizer:
            told = args if mindspore.get_context("device_target") != "CPU" else ()
            _guarded(_label_optimizer, self, told)
        elif _labelled == before and isinstance(self, train_cell):
            _guarded(_label_optimizer, self.optimizer, ())  # it was compiled
        return result

    return wrapper


def _guarded(function, *args):
    """An exception of ours is not the job's."""
    try:
        function(*args)
    except Exception as why:
        _program_errors.pass_on(why)
        _messages.warn_once(f"some owners are not recorded: {_messages.describe(why)}")


def _meet(cell, code):
    """A cell that is not known is called: a model, or a part of one that it got later."""
    outermost, frame = None, sys._getframe(3)
    while frame is not None:
        if frame.f_code is code:
            outermost = frame.f_locals.get("self")
        frame = frame.f_back
    if outermost is not None:
        _layers.search(cell, outermost)
        return
    _layers.learn(cell)
    _label("buffer", _model_parts.tensors_of(cell, "_buffers"))
    _label("weight", _model_parts.tensors_of(cell, "_parameters"))


def _where(tensors):
    """Addresses, and bytes."""
    found, sizes = [], []
    for tensor in tensors:
        try:
            found.append(tensor.data_ptr())
            sizes.append(tensor.nbytes)
        except Exception as why:  # sparse, or without memory of its own
            _program_errors.pass_on(why)
            del found[len(sizes) :]
    return found, sizes


def _label(text, tensors):
    """Each belongs to its own module, if it has one."""
    tensors = list(tensors)
    _sonde.label_addrs(DETAIL_1, text, _where(tensors)[0])
    for tensor in tensors:
        _sonde.layer_addrs(tensor, *_where([tensor]))


def _label_optimizer(optimizer, args):
    global _labelled
    _labelled += 1
    weights = list(optimizer.parameters)
    own = {id(weight) for weight in weights}
    groups = [states for states in _tuples(optimizer) if len(states) == len(weights)]
    states = [p for p in _model_parts.tensors_of(optimizer, "_parameters") if id(p) not in own]
    states += itertools.chain.from_iterable(groups)
    gradients = _gradients(args, len(weights))
    _sonde.label_addrs(DETAIL_1, "optimizer_state", _where(states)[0])
    _sonde.label_addrs(DETAIL_1, "gradient", _where(gradients)[0])
    _sonde.label_addrs(DETAIL_1, "weight", _where(weights)[0])
    for i, weight in enumerate(weights):
        if not _layers.is_known(weight):
            _layers.name(weight, f":{str(weight.name).replace(':', '_')}:")
        parts = [weight, *gradients[i : i + 1], *(states[i] for states in groups)]
        _sonde.layer_addrs(weight, *_where(parts))


def _tuples(optimizer):
    """Of parameters that are its own."""
    for value in [*vars(optimizer).values(), *optimizer._params_list.values()]:
        if type(value).__name__ == "ParameterTuple" and value is not optimizer.parameters:
            if not value or value[0] is not optimizer.parameters[0]:
                yield value


def _gradients(args, n):
    """Those of all parameters, in their order; nothing else."""
    given = args[0] if args else ()
    return list(given) if isinstance(given, (tuple, list)) and len(given) == n else []
