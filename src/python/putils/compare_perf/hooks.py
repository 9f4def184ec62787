# SPDX-License-Identifier: MulanPSL-2.0
"""Times of a model's modules in their forward pass, through PyTorch's hooks.

    with model_forward_timing(model, collector=collector, threshold_seconds=1e-9):
        model(batch)
"""

import inspect
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional, Tuple

from .. import _messages
from .collector import TimingCollector
from .config import DEFAULT_THRESHOLD_SECONDS, validate_threshold

ModuleFilter = Callable[[str, Any], bool]


class ModelHookSession:
    """Hooks that remove() takes out again; may be called twice.

    >>> ModelHookSession([]).remove()
    """

    def __init__(self, handles: List[Any], collector: Optional[TimingCollector] = None):
        self.handles, self.collector = handles, collector

    def remove(self) -> None:
        while self.handles:
            self.handles.pop().remove()


def _chosen(
    model: Any, scope_prefix: Optional[str], leaf_only: bool, module_filter: Optional[ModuleFilter]
) -> Iterator[Tuple[str, Any]]:
    """(scope, module). The model itself has no name: it takes part under the prefix."""
    for name, module in model.named_modules():
        scope = ".".join(n for n in (scope_prefix, name) if n)
        if not scope or (leaf_only and any(True for _ in module.children())):
            continue
        if module_filter is None or module_filter(name, module):
            yield scope, module


def _hooks_of(scope: str, collector: TimingCollector, threshold_seconds: float) -> Tuple[Any, Any]:
    def before(module: Any, args: Any) -> None:
        collector.begin(scope)

    def after(module: Any, args: Any, output: Any) -> None:
        frame = collector.innermost(scope)
        if frame is not None:
            collector.end(frame, threshold_seconds)

    return before, after


def register_model_hooks(
    model: Any,
    collector: TimingCollector,
    threshold_seconds: float = DEFAULT_THRESHOLD_SECONDS,
    scope_prefix: Optional[str] = None,
    leaf_only: bool = True,
    module_filter: Optional[ModuleFilter] = None,
) -> ModelHookSession:
    """Times the forward pass of every module that has no children (all with leaf_only=False).

    >>> session = register_model_hooks(model, collector=collector, leaf_only=False)
    >>> model(batch)
    >>> session.remove()
    """
    validate_threshold(threshold_seconds)
    session = ModelHookSession([], collector)
    for scope, module in _chosen(model, scope_prefix, leaf_only, module_filter):
        before, after = _hooks_of(scope, collector, threshold_seconds)
        try:
            handle = module.register_forward_pre_hook(before)
        except RuntimeError as why:  # compiled by TorchScript
            _messages.warn_once(f"'{scope}' takes no hooks and is not timed: {_messages.words(why)}")
            continue
        session.handles += [handle, module.register_forward_hook(after)]
    return session


@contextmanager
def model_forward_timing(*args: Any, **kwargs: Any) -> Iterator[TimingCollector]:
    """register_model_hooks() for a block, with the same arguments; yields the collector.

    >>> with model_forward_timing(model, collector=collector, leaf_only=False):
    ...     model(batch)
    """
    session = register_model_hooks(*args, **kwargs)
    try:
        yield session.collector
    finally:
        session.remove()


_arguments = list(inspect.signature(register_model_hooks).parameters.values())
model_forward_timing.__signature__ = inspect.Signature(_arguments)  # type: ignore[attr-defined]
