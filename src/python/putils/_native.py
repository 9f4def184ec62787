# SPDX-License-Identifier: MulanPSL-2.0
"""sonde._sonde, the part in C: loaded when it is used for the first time."""

from typing import Any

from . import _messages

_found: Any = None
_why_not = ""


def get() -> Any:
    """The extension; None, and why not is said once, if there is none."""
    global _found, _why_not
    if _found is None and not _why_not:
        try:
            from sonde import _sonde

            _found = _sonde
        except ImportError as why:  # no stable ABI (free-threaded), or half an installation
            _why_not = _messages.words(why)
            _messages.warn(
                f"sonde._sonde cannot be loaded: {_why_not}. Tensors are read with torch's own "
                "operations, which is slower; timers are not in recordings"
            )
    return _found
