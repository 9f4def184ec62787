# SPDX-License-Identifier: MulanPSL-2.0
"""What is collected at the level of Python, and when.

A collector is a module, most of this package, with

    wanted(settings) -> bool    is it of use with these settings?
    enable(settings)            called while recording; once, until disable()
    disable()
    before_step()               optional: a step is about to end
    sync()                      optional: events that come late so far are wanted now

It costs nothing while it is not enabled. One that fails says so and is left out: the job goes on.
"""

import importlib
import os
import sys
import threading

from . import _fork, _messages, _program_errors

WHAT = {
    "_current_device": "devices are",
    "_history": "the history of torch's pool is",
    "_cuda.pools": "the pools of JAX and CuPy are",
    "_owners": "owners are",
    "_frameworks": "labels of frameworks are",
    "_ops": "operators are",
    "_trace": "calls are",
    "sonde._steps.for_package": "steps are",
}
NAMES = tuple(WHAT)

_enabled = {}  # name: module; in the order of NAMES
_hidden = set()  # names of modules
_loaded = {}

# A child that is forked while another thread imports a module can never import it. So a fork waits
# for us, which takes milliseconds, once; but not forever: whose import we wait for may be its own.
_loading = _fork.lock(globals(), "_loading", threading.Lock)
_forking = threading.local()
FORK_WAITS_S = 1


def _before_fork():
    _forking.waited = _loading.acquire(timeout=FORK_WAITS_S)


def _after_fork():
    if _forking.waited:
        _loading.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


def _native():
    from sonde import _sonde

    return _sonde


def _guarded(name, what, *args):
    try:
        return what(*args)
    except Exception as why:  # whatever a framework throws at us must not reach the job
        _program_errors.pass_on(why)
        what_for = WHAT.get(name, "what is missing is")
        _messages.warn_once(f"{what_for} not collected: {_messages.describe(why)}")
        return None


def load(careful=True):
    """Imports what start() needs, once; what could not be is tried again. Not careful: raises."""

    def load_one(name):
        relative = name if name.startswith("sonde.") else "." + name
        _loaded[name] = importlib.import_module(relative, __package__)

    with _loading:
        for name in ("_missing",) + NAMES:
            if name not in _loaded:
                _guarded(name, load_one, name) if careful else load_one(name)


def _hide_files():
    """Our own functions are of no interest in the stacks of memory events."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("msmemscope", "sonde") or name in _hidden:
            continue
        _hidden.add(name)
        things = list(vars(module).values())
        things += [t for c in things if isinstance(c, type) for t in vars(c).values()]
        for thing in things:
            code = getattr(thing, "__code__", None)
            if code is not None and getattr(thing, "__module__", None) == name:
                _native().hide_file(code.co_filename)


def refresh(settings):
    """Enables what the settings want, disables the rest; ``None``: everything.

    Those that were enabled begin again, as settings may have changed. They end in the opposite
    order: what one has wrapped around another's work comes off first.
    """
    for name in reversed(list(_enabled)):
        _guarded(name, _enabled.pop(name).disable)
    if settings is None:
        return
    load()
    _guarded("", _hide_files)
    for name in NAMES:
        module = _loaded.get(name)
        if module and _guarded(name, module.wanted, settings):
            _enabled[name] = module
            _guarded(name, module.enable, settings)


def say_what_is_missing(sonde):
    if "_missing" in _loaded:
        _guarded("_missing", _loaded["_missing"].say, sonde)


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
