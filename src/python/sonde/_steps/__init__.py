# SPDX-License-Identifier: MulanPSL-2.0
"""The steps of unmodified programs that use PyTorch or MindSpore.

    for_memory     imported into a program whose memory is recorded, once one of them is there
    for_package    the same, of a program that has imported msmemscope
    for_monitor    imported into a program that is monitored, whenever they come
    _cells         training with MindSpore
    _optimizers    training: when optimizers step
    _forwards      inference: when the model is called, and nothing has been trained so far
    _pattern       which of these calls end a step

A program that reports its steps itself, by msmemscope.step(), sonde.step(), the C functions or
ranges named "step start", is believed: from then on nothing is detected any more, and what was
detected before does not count.

Nothing in here may raise into the program or change what it computes.
"""

import os
import sys

from . import _cells, _forwards, _optimizers

OPTIMIZER, FORWARD = 1, 2  # enum rec_step_source

_users = []  # extensions that want the steps, the one that is told last
_reported = False  # the program reports its steps


def begin(native, framework):
    """The extension is told the steps from now on; framework: torch, or mindspore."""
    if native not in _users:
        _users.insert(0 if native.__name__ == "sonde._sonde" else len(_users), native)
    if _reported:
        return
    if framework.__name__ == "mindspore":
        _cells.listen(framework, _on_optimizer)
        return
    _optimizers.listen(framework, _on_optimizer)
    if not _optimizers.pattern.periods:
        _forwards.listen(framework, _on_forward)


def end(native):
    """The extension wants no steps any more."""
    if native in _users:
        _users.remove(native)
    if not _users:
        _leave()


def _leave():
    _cells.leave()
    _forwards.leave()
    _optimizers.leave()


def _on_optimizer(optimizer, found):
    _forwards.leave()
    if found:
        _tell(OPTIMIZER, optimizer, found)


def _on_forward(module, found):
    if found:
        _tell(FORWARD, module, found)


def _tell(source, what, found):
    global _reported
    if not _users:
        return
    collectors = sys.modules.get("msmemscope._collectors")
    if collectors is not None:
        collectors.before_step()
    name = type(what).__name__
    if not _users[-1].detected_step(source, name.encode(errors="replace").decode(), found == "anew"):
        _reported = True
        _leave()


def _in_child():
    """A forked process counts its own."""
    for module in (_cells, _forwards, _optimizers):
        module.pattern.forget()


os.register_at_fork(after_in_child=_in_child)
