# SPDX-License-Identifier: MulanPSL-2.0
"""Steps of training with MindSpore: calls of its cells for training and of its optimizers, the
outermost. What is compiled as a whole (a function with ms.jit, sinking of data) makes no such calls,
and its steps are not seen."""

import sys

from . import _calls, _pattern

pattern = _pattern.Pattern()

_tell = None


def listen(mindspore, tell):
    """tell(cell, what Pattern.call() says) from now on."""
    global _tell
    if _tell is not None:
        return
    _tell = tell
    for cls in (*optimizers(mindspore), getattr(mindspore.nn, "TrainOneStepCell", None)):
        if isinstance(cls, type):
            _listener.listen(cls)


def optimizers(mindspore):
    """Classes of them: those of mindspore.nn, and those of mindspore.mint."""
    newer = sys.modules.get("mindspore.experimental.optim.optimizer")
    found = [getattr(module, "Optimizer", None) for module in (mindspore.nn, newer)]
    return tuple(cls for cls in found if isinstance(cls, type))


def leave():
    global _tell
    _tell = None
    _listener.leave()


def _called(cell):
    try:
        if _tell is not None:
            # A cell for training and its optimizer are one.
            thing = getattr(cell, "optimizer", None) or cell
            _tell(thing, pattern.call(thing))
    except Exception:  # a missed step is harmless, an exception in the job is not
        pass


_listener = _calls.Calls(_called)
