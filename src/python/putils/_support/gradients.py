# SPDX-License-Identifier: MulanPSL-2.0
"""The gradients of a module's inputs and outputs, without a change of what the program computes.

torch's own register_full_backward_hook() gives a module and its successors tensors that may not be
changed in place: a model with ReLU(inplace=True), or `out += identity`, then fails. Here the outputs
stay what they are, and an input is replaced by a view of it, which may be changed as it may be
itself. The gradient of the view is the one that comes through this module alone. A view that was
changed in place is no longer part of the graph: then the gradient of the input itself, from before
the change, is taken, and where the view is the output, the program gets the input back.

Hooks are those of the functions that have made the tensors. Those of a tensor would be mixed up
with hooks of the program, once the tensor is changed in place (PyTorch before 2.0).
"""

from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

from .. import _messages, _tensors

# Takes the gradients of the inputs and of the outputs; None where there are none.
Show = Callable[[Tuple[Any, ...], Tuple[Any, ...]], None]
_PASS = "_putils_pass"  # attribute of a view: the pass that it belongs to


def _hook_gradient(tensor: Any, take: Callable[[Any], None]) -> Any:
    """Calls take(gradient) when it is known; of the tensor as it is now, not as it may become."""
    made_by, number = tensor.grad_fn, tensor.output_nr
    if made_by is None:
        return tensor.register_hook(take)
    return made_by.register_hook(lambda _, gradients: take(gradients[number]))


class _Replaced:
    """An input, and the view that the module gets in its place."""

    def __init__(self, tensor: Any, view: Any, handle: Any) -> None:
        self.tensor, self.view, self.handle = tensor, view, handle
        self.version = tensor._version

    def was_changed(self) -> bool:
        return self.tensor._version != self.version


class ModulePass:
    """One forward pass of a module, and its gradients when they come: shown as soon as those of all
    inputs are there, the rest at the end of the backward pass."""

    def __init__(self, show: Show) -> None:
        self.show = show  # also tells whose pass this is
        self.aliases: Set[int] = set()  # outputs that are inputs
        self.replaced: List[_Replaced] = []
        self.in_grads: List[Any] = []
        self.out_grads: List[Any] = []
        self.wanted_inputs: Set[int] = set()
        self.wanted_outputs: Set[int] = set()
        self.missing: Set[Tuple[str, int]] = set()
        self.waits = self.done = False

    def take(self, side: str, index: int, grad: Any) -> None:
        try:
            self._take(side, index, grad)
        except Exception as why:  # not into the backward pass
            _messages.warn_once(f"a gradient is not shown: {_messages.words(why)}")

    def _take(self, side: str, index: int, grad: Any) -> None:
        if not self.waits:
            self._begin()
        (self.in_grads if side == "in" else self.out_grads)[index] = grad
        self.missing.discard((side, index))
        if not self.missing and not self.done:
            self._finish()

    def _begin(self) -> None:
        from torch.autograd import Variable

        Variable._execution_engine.queue_callback(self._end)
        self.waits, self.done = True, False
        self.missing = {("in", i) for i in self.wanted_inputs}
        # Outputs come before inputs, unless they are unused, or the inputs themselves.
        outputs = self.wanted_outputs if not self.wanted_inputs else self.aliases
        self.missing |= {("out", i) for i in outputs}

    def _finish(self) -> None:
        self.done = True
        found = tuple(self.in_grads), tuple(self.out_grads)
        self.in_grads, self.out_grads = [None] * len(found[0]), [None] * len(found[1])
        self.show(*found)

    def _end(self) -> None:
        if not self.done:
            self._finish()
        self.waits = False
        self.in_grads, self.out_grads = [None] * len(self.in_grads), [None] * len(self.out_grads)

    # The forward pass

    def replace_inputs(self, inputs: Sequence[Any]) -> Tuple[Any, ...]:
        self.in_grads = [None] * len(inputs)
        return tuple(self._replace(i, x) if _wants(x) else x for i, x in enumerate(inputs))

    def _replace(self, index: int, tensor: Any) -> Any:
        def take(grad: Any) -> None:
            self.take("in", index, grad)

        handle = _hook_gradient(tensor, take)
        self.wanted_inputs.add(index)
        try:
            view = tensor.view_as(tensor)
            _hook_gradient(view, take)
            setattr(view, _PASS, self)
        except Exception:  # of a kind that has no views, such as a sparse one
            return tensor
        self.replaced.append(_Replaced(tensor, view, handle))
        return view

    def watch_outputs(self, inputs: Sequence[Any], outputs: Any) -> Any:
        """The outputs that the program gets; None: as they are."""
        changed = {}
        for each in self.replaced:
            if each.was_changed():
                changed[id(each.view)] = each.tensor
            else:
                each.handle.remove()
        self.in_grads = self.in_grads or [None] * len(inputs)
        several = type(outputs) in (tuple, list)
        made = list(outputs) if several else [outputs]
        items = [changed.get(id(x), x) for x in made]
        self.replaced = []
        self.out_grads = [None] * len(items)
        given = {id(x) for x in inputs}
        self.aliases = {i for i, x in enumerate(items) if id(x) in given and _wants(x)}
        for i, x in enumerate(items):
            if _wants(x):
                self.wanted_outputs.add(i)
                _hook_gradient(x, lambda grad, i=i: self.take("out", i, grad))
        if all(x is before for x, before in zip(items, made)):
            return None
        return type(outputs)(items) if several else items[0]


def _wants(value: Any) -> bool:
    return _tensors.is_tensor(value) and value.requires_grad


class HandleGroup:
    """Hooks that are removed together.

    >>> HandleGroup([]).remove()
    """

    def __init__(self, handles: List[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        while self.handles:
            self.handles.pop().remove()


def add_gradient_hooks(what: str, module: Any, show: Show) -> HandleGroup:
    """`show` gets the gradients of each pass of a module; what fails is said under the name `what`,
    and does not reach the program.

    >>> add_gradient_hooks("layer 3", module, lambda inputs, outputs: print(outputs)).remove()
    """
    import torch

    def before(_module: Any, inputs: Tuple[Any, ...]) -> Optional[Tuple[Any, ...]]:
        try:
            if torch.is_grad_enabled() and any(_wants(x) for x in inputs):
                return ModulePass(show).replace_inputs(inputs)
        except Exception as why:
            _messages.warn_once(f"{what}: {_messages.words(why)}")
        return None

    def after(_module: Any, inputs: Tuple[Any, ...], outputs: Any) -> Any:
        try:
            if torch.is_grad_enabled():
                found = (getattr(x, _PASS, None) for x in inputs if _tensors.is_tensor(x))
                here = next((p for p in found if p and p.show is show), None) or ModulePass(show)
                return here.watch_outputs(inputs, outputs)
        except Exception as why:
            _messages.warn_once(f"{what}: {_messages.words(why)}")
        return None

    handles = HandleGroup([module.register_forward_pre_hook(before)])
    try:
        handles.handles.append(module.register_forward_hook(after))
    except BaseException:
        handles.remove()
        raise
    return handles
