# SPDX-License-Identifier: MulanPSL-2.0
"""The name of the wheel that msmonitor used to come in. Nothing is here that is not there."""

import msmonitor as _msmonitor
from msmonitor import *  # noqa: F401,F403

__all__ = _msmonitor.__all__
