# SPDX-License-Identifier: MulanPSL-2.0
"""when_imported(): get notified when the job imports a module, without importing it.

While somebody waits, a finder stands first in sys.meta_path. For the modules waited for it asks
the finders behind it, as the import system would, and wraps the loader that it gets, so that
callbacks run right after the module's code has. From then on the module shows its own loader
again. All other imports pass it at the cost of a few dictionary lookups.

Three kinds of import cannot be seen through a loader: one that was under way already when somebody
began to wait, namespace packages, which have none, and those that a finder in front of us serves.
For the first two the module's spec says when it is complete; the third is noticed when the next
module is looked for, or by poll().

Callbacks run in the importing thread, which holds the import lock of that module, and with none of
ours. Each is called once: a reload is not reported.
"""

import collections
import importlib.machinery
import importlib.util
import sys
import threading
import types

from sonde import _specs

from . import _fork, _messages, _program_errors

_lock = _fork.lock(globals())  # a finalizer or signal handler may come in between
_waiting = {}  # name: [Handle]
_executing = collections.Counter()  # name: how many threads are in a loader that we wrapped
_here = threading.local()  # .names: being looked for by this thread

_get = object.__getattribute__  # that of a lazy module would load it
_LazyModule = getattr(importlib.util, "_LazyModule", None)
_COPIES_META_PATH = sys.version_info >= (3, 14)


class Handle:
    """Of a callback: cancel() when it is no longer wanted."""

    __slots__ = ("name", "_callback")

    def __init__(self, name, callback):
        self.name = name
        self._callback = callback

    def cancel(self):
        with _lock:
            self._callback = None
            handles = _waiting.get(self.name, [])
            if self in handles:
                handles.remove(self)
                if not handles:
                    del _waiting[self.name]
        _leave_if_idle()

    def _call(self, module):
        with _lock:
            callback, self._callback = self._callback, None
        try:
            if callback is not None:
                callback(module)
        except Exception as why:  # the import goes on as if we were not there
            _program_errors.pass_on(why)
            _messages.warn_once(f"hooks of '{self.name}' do not work: {_messages.describe(why)}")


def when_imported(name, callback):
    """Calls callback(module): now, if the module is there, else as soon as it is."""
    handle = Handle(name, callback)
    module = sys.modules.get(name)
    if _is_complete(name, module):
        handle._call(module)
        return handle
    with _lock:
        _waiting.setdefault(name, []).append(handle)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    module = sys.modules.get(name)  # again: another thread may just have finished with it
    if _is_complete(name, module):
        _tell(name)
    elif module is not None:
        _follow(name, module)
    return handle


def poll():
    """Reports modules whose import could not be observed."""
    if _waiting:
        for name in list(_waiting):
            module = sys.modules.get(name)
            if _is_complete(name, module):
                _tell(name)
    _leave_if_idle()


def _is_complete(name, module):
    if module is None or _is_lazy(module) or _executing[name]:
        return False
    spec = getattr(module, "__spec__", None)
    return not getattr(spec, "_initializing", False)


def _is_lazy(module):
    return _LazyModule is not None and type(module) is _LazyModule


def _tell(name):
    """The module is there: everything that waits for it is notified, in order of registration."""
    module = sys.modules.get(name)
    if module is None:
        return  # a private copy, or it took itself away again
    with _lock:
        handles = _waiting.pop(name, ())
    for handle in handles:
        handle._call(module)
    _leave_if_idle()


def _follow(name, module):
    """A module that is in sys.modules, but not complete: get notified when it is."""
    try:
        spec = _get(module, "__spec__")
        if _is_lazy(module):
            spec.loader = _wrap(spec.loader, spec)
        elif type(spec) is importlib.machinery.ModuleSpec:
            spec.__class__ = _FollowedSpec
            if not spec._initializing:  # meanwhile
                _tell(name)
    except Exception:  # a spec of somebody's own making: noticed by poll()
        pass


_FollowedSpec = _specs.followed(_tell)


class _Loader:
    """Stands for a loader until the module is executed. What is asked of it, that one answers."""

    def __init__(self, loader, spec):
        self.__dict__.update(_loader=loader, _spec=spec)

    def __getattr__(self, key):
        return getattr(self.__dict__["_loader"], key)

    def __setattr__(self, key, value):
        setattr(self._loader, key, value)

    def __delattr__(self, key):
        delattr(self._loader, key)

    @property
    def __class__(self):
        return self._loader.__class__

    def __repr__(self):
        return repr(self._loader)

    def __eq__(self, other):
        return self is other or self._loader == other

    def __hash__(self):
        return hash(self._loader)

    def _step_aside(self, module):
        spec, loader = self._spec, self._loader
        if spec.loader is self:
            spec.loader = loader
        names = _get(module, "__dict__") if isinstance(module, types.ModuleType) else {}
        if names.get("__loader__") is self:
            names["__loader__"] = loader
        return loader

    def _run(self, load, argument):
        name = self._spec.name
        with _lock:
            _executing[name] += 1
        try:
            return load(argument)
        finally:
            with _lock:
                _executing[name] -= 1
                if not _executing[name]:
                    del _executing[name]


class _ModernLoader(_Loader):
    def exec_module(self, module):
        was_lazy = _is_lazy(module)  # then this is what it put off
        self._run(self._step_aside(module).exec_module, module)
        if _is_lazy(module) and not was_lazy:
            _follow(self._spec.name, module)
        else:
            _tell(self._spec.name)


class _LegacyLoader(_Loader):
    """Of the kind that makes the module itself: zip files before Python 3.10."""

    def load_module(self, name):
        module = self._run(self._step_aside(None).load_module, name)
        _tell(self._spec.name)
        return module


def _wrap(loader, spec):
    if loader is None or type(loader) in (_ModernLoader, _LegacyLoader):
        return loader
    if hasattr(loader, "exec_module"):
        return _ModernLoader(loader, spec)
    return _LegacyLoader(loader, spec) if hasattr(loader, "load_module") else loader


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in _waiting:
            for other in tuple(_waiting):
                if other in sys.modules:
                    poll()
                    break
            return None
        names = _here.__dict__.setdefault("names", set())
        if name in names:  # a finder behind us asks everybody again
            return None
        names.add(name)
        try:
            spec = _ask_the_others(name, path, target)
        finally:
            names.discard(name)
        if spec is not None:
            self._see(spec)
        return spec

    @staticmethod
    def _see(spec):
        try:
            if spec.loader is not None:
                spec.loader = _wrap(spec.loader, spec)
            elif type(spec) is importlib.machinery.ModuleSpec:
                spec.__class__ = _FollowedSpec
        except Exception:  # a spec of somebody's own making: noticed by poll()
            pass


_finder = _Finder()


def _ask_the_others(name, path, target):
    """What the import system would do without us, with the finders that stand behind us."""
    finders = list(sys.meta_path)
    if _finder in finders:
        finders = finders[finders.index(_finder) + 1 :]
    for finder in finders:
        find = getattr(finder, "find_spec", None)
        if find is not None:
            spec = find(name, path, target)
        else:
            spec = _ask_legacy(finder, name, path)
        if spec is not None:
            return spec
    return None


def _ask_legacy(finder, name, path):
    find = getattr(finder, "find_module", None)
    if find is None or sys.version_info >= (3, 12):
        return None
    loader = find(name, path)
    return importlib.util.spec_from_loader(name, loader) if loader is not None else None


def _leave_if_idle():
    """Nothing waits any more. Before 3.14 an import goes through sys.meta_path itself, not through a
    copy, and would skip a finder if we left at that moment; then the next occasion will do."""
    if _waiting or _finder not in sys.meta_path:
        return
    with _lock:
        if not _waiting and _finder in sys.meta_path:
            if _COPIES_META_PATH or not _module_is_looked_for():
                sys.meta_path.remove(_finder)


def _module_is_looked_for():
    code = importlib._bootstrap._find_spec.__code__
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code is code:
                return True
            frame = frame.f_back
    return False
