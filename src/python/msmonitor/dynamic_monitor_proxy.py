# SPDX-License-Identifier: MulanPSL-2.0
"""PyDynamicMonitorProxy, by the name of the module that has it elsewhere."""

from ._proxy import PyDynamicMonitorProxy

__all__ = ["PyDynamicMonitorProxy"]
