# SPDX-License-Identifier: MulanPSL-2.0
"""The steps of unmodified PyTorch programs.

    for_memory     imported into a program whose memory is recorded, once torch is there
    for_package    the same, of a program that has imported msmemscope
    for_monitor    imported into a program that is monitored, whenever torch comes
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

from . import _forwards, _optimizers

OPTIMIZER, FORWARD = 1, 2  # enum rec_step_source

_users = []  # extensions that want the steps, the one that is told last
_reported = False  # the program reports its steps


def begin(native, torch):
    """The extension is told the steps from now on; torch has been imported."""
    if native not in _users:
        _users.insert(0 if native.__name__ == "sonde._sonde" else len(_users), native)
    if not _reported:
        _optimizers.listen(torch, _on_optimizer)
        if not _optimizers.pattern.periods:
            _forwards.listen(torch, _on_forward)


def end(native):
    """The extension wants no steps any more."""
    if native in _users:
        _users.remove(native)
    if not _users:
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
        _forwards.leave()
        _optimizers.leave()


def _in_child():
    """A forked process counts its own."""
    _optimizers.pattern.forget()
    _forwards.pattern.forget()


os.register_at_fork(after_in_child=_in_child)
