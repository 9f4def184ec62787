# SPDX-License-Identifier: MulanPSL-2.0
"""The name by which torch_npu and MindSpore import msmonitor. Nothing is here that is not there."""

import msmonitor as _msmonitor
from msmonitor import *  # noqa: F401,F403

__all__ = _msmonitor.__all__
