# SPDX-License-Identifier: MulanPSL-2.0
"""sonde._monitor, the part in C: loaded when it is used for the first time."""

from . import _messages

_found = None
_why_not = ""


def get():
    """The extension; None, and why not is said once, if there is none."""
    global _found, _why_not
    if _found is None and not _why_not:
        try:
            from sonde import _monitor

            _found = _monitor
        except ImportError as why:  # no stable ABI (free-threaded), or half an installation
            _why_not = str(why) or type(why).__name__
    if _found is None:
        _messages.error_once(
            f"nothing can be monitored in this interpreter: {_why_not}. Install sonde again, for "
            "a CPython of the usual kind (not free-threaded)"
        )
    return _found
