# SPDX-License-Identifier: MulanPSL-2.0
"""Imported into a program whose memory is recorded when it has imported torch: its steps are
detected from now on."""

import sys

from .. import _sonde, _steps
from . import _forwards, _optimizers, _pattern

# Our functions are of no interest in the stacks of memory events.
for _function in (_steps.begin, _forwards.listen, _optimizers.listen, _pattern.Pattern.call):
    _sonde.hide_file(_function.__code__.co_filename)
_steps.begin(_sonde, sys.modules["torch"])
