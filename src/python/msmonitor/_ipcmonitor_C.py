# SPDX-License-Identifier: MulanPSL-2.0
"""Where IPCMonitor_C is found, whatever sys.path says."""

import IPCMonitor_C as ipcmonitor_C_module

__all__ = ["ipcmonitor_C_module"]
