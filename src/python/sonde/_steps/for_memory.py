# SPDX-License-Identifier: MulanPSL-2.0
"""Imported into a program whose memory is recorded when it imports torch or mindspore, or has done
so: its steps are detected as soon as that is there."""

import importlib.machinery
import sys

from .. import _sonde, _specs, _steps
from . import _calls, _cells, _forwards, _optimizers, _pattern


def _begin(name):
    try:
        if name in sys.modules:  # its import has not failed
            _steps.begin(_sonde, sys.modules[name])
    except Exception:  # without steps, then
        pass


_FollowedSpec = _specs.followed(_begin)


def _await(name):
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if not getattr(spec, "_initializing", False):
        _begin(name)
    elif type(spec) is importlib.machinery.ModuleSpec:
        spec.__class__ = _FollowedSpec


# Our functions are of no interest in the stacks of memory events.
for _module in (_calls.Calls, _cells, _forwards, _optimizers, _pattern.Pattern, _specs, _steps):
    for _function in list(vars(_module).values()):
        if hasattr(_function, "__code__"):
            _sonde.hide_file(_function.__code__.co_filename)
for _name in ("torch", "mindspore"):
    _await(_name)
