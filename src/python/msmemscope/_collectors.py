# SPDX-License-Identifier: MulanPSL-2.0
"""What is collected at the level of Python, and when.

A collector is a module of this package with

    wanted(settings) -> bool    is it of use with these settings?
    enable(settings)            called while recording; once, until disable()
    disable()
    before_step()               optional: a step is about to end
    sync()                      optional: events that come late so far are wanted now

It costs nothing while it is not enabled. One that fails says so and is left out: the job goes on.
"""

import importlib

from . import _say

NAMES = ("_device", "_history", "_owners", "_frameworks", "_ops", "_trace")

_enabled = {}  # name: module; in the order of NAMES


def _guarded(name, what, *args):
    try:
        return what(*args)
    except Exception as why:  # whatever a framework throws at us must not reach the job
        _say.warn_once(f"{name.lstrip('_')} are not collected: {type(why).__name__}: {why}")
        return None


def refresh(settings):
    """Enables what the settings want, disables the rest; ``None``: everything."""
    for name in NAMES:
        module = importlib.import_module("." + name, __package__)
        want = settings is not None and bool(_guarded(name, module.wanted, settings))
        if name in _enabled:  # settings may have changed: from the beginning
            del _enabled[name]
            _guarded(name, module.disable)
        if want:
            _enabled[name] = module
            _guarded(name, module.enable, settings)


def before_step():
    for name, module in list(_enabled.items()):
        fn = getattr(module, "before_step", None)
        if fn:
            _guarded(name, fn)


def sync():
    """What happened until now is recorded, also by those who learn of it afterwards."""
    for name, module in list(_enabled.items()):
        fn = getattr(module, "sync", None)
        if fn:
            _guarded(name, fn)
