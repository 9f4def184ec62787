# SPDX-License-Identifier: MulanPSL-2.0
"""A collector of msmemscope (see msmemscope._collectors): steps that the program does not report,
while memory is recorded."""

from msmemscope import _imports

from .. import _sonde, _steps

_waiting = None


def wanted(settings):
    return bool(settings["events"] & _sonde.EVENT_ALLOC)


def enable(settings):
    global _waiting
    _waiting = _imports.when_imported("torch", lambda torch: _steps.begin(_sonde, torch))


def disable():
    global _waiting
    if _waiting is not None:
        _waiting.cancel()
        _waiting = None
    _steps.end(_sonde)
