# SPDX-License-Identifier: MulanPSL-2.0
"""Monitor and its kinds, by the name of the module that has them elsewhere."""

from ._monitor import Monitor
from ._records import ActivityKind

__all__ = ["ActivityKind", "Monitor"]
