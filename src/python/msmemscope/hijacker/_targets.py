# SPDX-License-Identifier: MulanPSL-2.0
"""Where hooks are: functions of modules and methods of classes, by name.

A target is wrapped while it has hooks. Taking it back puts exactly that there which was there
before, unless somebody else has put something in its place; then that stays, and the wrapper below
it only calls through. The wrapper of a target is made once: what a framework keeps of it (bound
methods, `from x import f`) works again when hooks come back.
"""

import inspect
import sys
import types

from .. import _fork, _imports, _messages
from ._hooks import Functions
from ._wrap import wrap

_lock = _fork.lock(globals())
_targets = {}  # (module, class, function): Target
_handles = {}  # Handle: None, in the order in which they came

_MARK = "__msmemscope_target__"


class Target:
    """One place. `hooks` is read by callers without a lock: it is replaced, never changed."""

    def __init__(self, key):
        self.key = key
        self.hooks = ()
        self.owner = None  # the module or class it is an attribute of
        self.raw = None  # what was there, as in its __dict__
        self.inherited = False  # nothing was there
        self.installed = None  # what stands there now
        self.shares = None  # the target whose wrapper was found there

    def __reduce__(self):  # of a wrapper that is sent to another process by value
        return Target, (self.key,)

    @property
    def what(self):
        return ".".join(part for part in self.key if part)


class Handle:
    def __init__(self, key, hook):
        self.key, self.hook, self.wait = key, hook, None
        self.target = None  # while installed
        self.done = False


class NotThere(Exception):
    """No such class or function, or not one that can be wrapped."""


def hijack(module, cls, function, pre=None, post=None, priority=100):
    """Calls pre and post around a function (cls=None) or method, from when it exists.

    >>> handle = hijack("json", None, "dumps", post=lambda ret, *a, **k: ret)
    >>> release(handle)
    """
    what = ".".join(part for part in (module, cls, function) if part)
    return add((module, cls, function), Functions(pre, post, priority, what))


def add(key, hook, quiet=False, after=None, mixin=False):
    """A hook of a target; quiet: no message if the target does not exist. after: not before this
    module is imported, which imports the other. mixin: the class does not have the method, those
    that it is mixed into do."""
    handle = Handle(key, hook)
    with _lock:
        for other in _handles:
            if other.key == key and hook.identity and other.hook.identity == hook.identity:
                return other
        _handles[handle] = None

    def imported(module):
        module = sys.modules.get(key[0])
        try:
            with _lock:
                if not handle.done and module is not None:
                    _install(module, handle, mixin)
        except NotThere as why:
            if not quiet:
                _messages.warn_once(f"{why}: not hooked")

    handle.wait = _imports.when_imported(after or key[0], imported)
    return handle


def release(handle):
    """The hook is gone; with the last one the target is again what it was."""
    handle.done = True
    if handle.wait is not None:
        handle.wait.cancel()
    with _lock:
        _handles.pop(handle, None)
        target, handle.target = handle.target, None
        if target is not None:
            _collect_hooks(target.shares or target)
            if not any(h.target is target for h in _handles):
                _uninstall(target)


def release_all():
    for handle in list(_handles):
        release(handle)


# --- putting wrappers there and taking them off; under the lock ---


def _install(module, handle, mixin):
    key = handle.key
    owner = module if key[1] is None else _class_of(module, key[1])
    target = _targets.get(key)
    if target is None or target.owner is not owner:  # the first time, or after a reload
        target = _targets[key] = Target(key)
        target.owner = owner
    _put_there(target, mixin)
    handle.target = target
    _collect_hooks(target.shares or target)


def _collect_hooks(target):
    """Of all its names; where it has two, hooks that are the same count once."""
    hooks, seen = [], set()
    for handle in _handles:
        if handle.target is not None and (handle.target.shares or handle.target) is target:
            identity = handle.hook.identity or id(handle.hook)
            if identity not in seen:
                hooks.append(handle.hook)
                seen.add(identity)
    target.hooks = tuple(sorted(hooks, key=lambda h: h.priority))


def _class_of(module, path):
    owner = module
    for name in path.split("."):
        owner = vars(owner).get(name) if hasattr(owner, "__dict__") else None
        if owner is None:
            break
    if not isinstance(owner, type):
        raise NotThere(f"{module.__name__} has no class {path}")
    return owner


def _put_there(target, mixin):
    owner, name = target.owner, target.key[2]
    now = vars(owner).get(name)
    if now is not None and (now is target.installed or _is_below(now, target)):
        return
    if target.installed is None or target.shares or now is not target.raw:
        _look(target, now, mixin)
    if target.installed is not now:
        setattr(owner, name, target.installed)


def _function_in(raw):
    return raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw


def _is_below(now, target):
    """Has somebody wrapped our wrapper, and says so?"""
    function, ours = _function_in(now), _function_in(target.installed)
    for _ in range(20):
        if function is None:
            return False
        if function is ours:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _look(target, now, mixin):
    """What is to stand there in place of what does now."""
    owner = target.owner
    target.raw, target.inherited, target.shares = now, now is None, None
    other = getattr(_function_in(now), _MARK, None)
    # `from x import f` after f was wrapped there. Not if somebody has copied our mark with the rest.
    if isinstance(other, Target) and _function_in(other.installed) is _function_in(now):
        target.shares = other.shares or other
        target.raw, target.installed = target.shares.raw, now
        return
    found = now if now is not None else _inherited(target, mixin)
    if isinstance(owner, types.ModuleType):
        if not callable(found) or isinstance(found, type):
            raise NotThere(f"{target.what} is no function")
        target.installed = wrap(target, found, found)
    elif isinstance(found, (staticmethod, classmethod)):
        call = _through_super(target, type(found)) if target.inherited else found.__func__
        target.installed = type(found)(wrap(target, found.__func__, call))
    elif inspect.isroutine(found) or (found is None and mixin):
        call = _through_super(target, None) if target.inherited else found
        target.installed = wrap(target, found, call)
    else:
        raise NotThere(f"{target.what} is no method")
    setattr(_function_in(target.installed), _MARK, target)


def _inherited(target, mixin):
    owner, name = target.owner, target.key[2]
    if isinstance(owner, type):
        for base in owner.__mro__[1:]:
            if name in vars(base) and base is not object:
                return vars(base)[name]
    if mixin:
        return None
    raise NotThere(f"there is no {target.what}")


def _through_super(target, kind):
    """Calls what the class would have inherited, whatever that is by then."""
    owner, name = target.owner, target.key[2]
    if kind is staticmethod:
        return lambda *args, **kwargs: getattr(super(owner, owner), name)(*args, **kwargs)
    return lambda self, *args, **kwargs: getattr(super(owner, self), name)(*args, **kwargs)


def _uninstall(target):
    owner, name = target.owner, target.key[2]
    if target.installed is None or vars(owner).get(name) is not target.installed:
        return
    if target.inherited:
        delattr(owner, name)
    else:
        setattr(owner, name, target.raw)
