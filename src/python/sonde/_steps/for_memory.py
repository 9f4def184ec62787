# SPDX-License-Identifier: MulanPSL-2.0
"""Imported into a program whose memory is recorded when it has imported torch or mindspore: its
steps are detected from now on."""

import sys

from .. import _sonde, _steps
from . import _calls, _cells, _forwards, _optimizers, _pattern


def _is_complete(module):
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


# Our functions are of no interest in the stacks of memory events.
for _module in (_calls.Calls, _cells, _forwards, _optimizers, _pattern.Pattern, _steps):
    for _function in list(vars(_module).values()):
        if hasattr(_function, "__code__"):
            _sonde.hide_file(_function.__code__.co_filename)
for _name in ("torch", "mindspore"):
    if _name in sys.modules and _is_complete(sys.modules[_name]):
        _steps.begin(_sonde, sys.modules[_name])
