# SPDX-License-Identifier: MulanPSL-2.0
"""A collector of msmemscope (see msmemscope._collectors): steps that the program does not report,
while memory is recorded."""

from msmemscope import _imports

from .. import _sonde, _steps

_waiting = []


def wanted(settings):
    return bool(settings["events"] & _sonde.EVENT_ALLOC)


def enable(settings):
    for name in ("torch", "mindspore"):
        waits = _imports.when_imported(name, lambda module: _steps.begin(_sonde, module))
        _waiting.append(waits)


def disable():
    while _waiting:
        _waiting.pop().cancel()
    _steps.end(_sonde)
