# SPDX-License-Identifier: MulanPSL-2.0
"""Owner labels of what a thread allocates, from here to there.

Two kinds of window:

Scope   one call of a function: closed when it is left, however that is
Opens   begins with a call of one function and ends with a call of another (Closes), of the same
        object. Both may be missed: the first if the framework kept the function before it was
        hooked, the second if something in between raised. So a Bounds around both closes what
        was opened inside it.

Labels belong to threads. A window that ends in another thread than it began in (torch computes
gradients in threads of its own) takes its label off that one.
"""

import threading

from .. import _control, _fork
from ._hooks import Hook

COMPONENT, PROCESS, DETAIL_1, DETAIL_2 = 1, 2, 3, 4

_lock = _fork.lock(globals())  # a finalizer or signal handler may come in between
_open = {}  # (kind, object id): Window; of Opens, all threads


class _Label:
    __slots__ = ("level", "text", "uses")

    def __init__(self, level, text):
        self.level, self.text, self.uses = level, text, 0


class _Labels:
    """Those of a thread, oldest first."""

    def __init__(self):
        self.pushed = []
        self.thread = threading.get_native_id()


class _Thread(threading.local):
    def __init__(self):
        self.own = _Labels()


_thread = _Thread()


def _push(labels):
    """The newest label of a level counts, so one that is the newest need not be pushed again."""
    here, uses = _thread.own.pushed, []
    with _lock:
        for level, text in labels:
            label = next((x for x in reversed(here) if x.level == level), None)
            if label is None or label.text != text:
                label = _Label(level, text)
                here.append(label)
                if _control._sonde is not None:
                    _control._sonde.label_push(level, text)
            label.uses += 1
            uses.append(label)
    return uses


def _pop(uses, whose):
    thread = 0 if whose is _thread.own else whose.thread
    with _lock:
        for label in reversed(uses):
            label.uses -= 1
            if not label.uses and label in whose.pushed:
                whose.pushed.remove(label)
                if _control._sonde is not None:
                    _control._sonde.label_pop(label.text, thread, label.level)


class Scope(Hook):
    per_step = True

    def __init__(self, *labels):
        self.labels = labels
        self.identity = labels

    def enter(self, args, kwargs):
        return args, kwargs, _push(self.labels)

    def leave(self, token, ok):
        _pop(token, _thread.own)


class _Window:
    def __init__(self, key):
        self.key, self.uses, self.whose = key, [], _thread.own

    def close(self):
        with _lock:
            if _open.get(self.key) is not self:
                return
            del _open[self.key]
        _pop(self.uses, self.whose)


def _open_window(key, labels):
    window = _Window(key)
    with _lock:
        if _open.setdefault(key, window) is not window:
            return
    window.uses.extend(_push(labels))


def close_windows(kind=None):
    """All of a kind; None: of all kinds."""
    for window in list(_open.values()):
        if kind is None or window.key[0] == kind:
            window.close()


class Opens(Hook):
    """keys(*args) -> the objects whose window begins."""

    def __init__(self, kind, labels, keys=lambda first, *rest: (first,)):
        self.kind, self.labels, self.keys = kind, labels, keys
        self.identity = ("opens", kind)

    def enter(self, args, kwargs):
        keys = [(self.kind, id(x)) for x in self.keys(*args)]
        for key in keys:
            _open_window(key, self.labels)
        return args, kwargs, keys

    def leave(self, keys, ok):
        if not ok:
            _close(keys)


def _close(keys):
    for key in keys:
        window = _open.get(key)
        if window is not None:
            window.close()


class Closes(Hook):
    """keys(*args) -> the objects whose window ends when the function is left; None: all."""

    def __init__(self, kind, keys=lambda first, *rest: (first,)):
        self.kind, self.keys = kind, keys
        self.identity = ("closes", kind, keys is None)

    def enter(self, args, kwargs):
        keys = None if self.keys is None else [(self.kind, id(x)) for x in self.keys(*args)]
        return args, kwargs, keys

    def leave(self, keys, ok):
        if keys is None:
            close_windows(self.kind)
        else:
            _close(keys)


class Bounds(Hook):
    """Windows of this kind that this thread opens inside do not outlive the call, nor those that
    other threads open for it, if it raises."""

    def __init__(self, kind, *labels):
        self.kind, self.labels = kind, labels
        self.identity = ("bounds", kind)

    def enter(self, args, kwargs):
        with _lock:
            before = {window for window in _open.values() if window.key[0] == self.kind}
        return args, kwargs, (before, _push(self.labels))

    def leave(self, token, ok):
        before, pushed = token
        for window in list(_open.values()):
            if window.key[0] == self.kind and window not in before:
                if window.whose is _thread.own or not ok:
                    window.close()
        _pop(pushed, _thread.own)


@_fork.in_child
def _forget_labels():
    """They are those of the process it came from."""
    _open.clear()
    _thread.own = _Labels()
