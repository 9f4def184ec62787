# SPDX-License-Identifier: MulanPSL-2.0
"""The name by which torch_npu and MindSpore import msmonitor. Nothing is here that is not there."""

import sys as _sys

import msmonitor as _msmonitor
from msmonitor import *  # noqa: F401,F403
from msmonitor import _ipcmonitor_C, dynamic_monitor_proxy, file_manager, monitor, singleton, utils

__all__ = _msmonitor.__all__

for _module in (_ipcmonitor_C, dynamic_monitor_proxy, file_manager, monitor, singleton, utils):
    _sys.modules[__name__ + "." + _module.__name__.rpartition(".")[2]] = _module
del _module
