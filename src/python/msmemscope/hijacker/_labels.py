# SPDX-License-Identifier: MulanPSL-2.0
"""Owner labels of what a thread allocates, from here to there.

Three kinds of window:

Scope   one call of a function: closed when it is left, however that is
Opens   begins with a call of one function and ends with a call of another (Closes), of the same
        object. Both may be missed: the first if the framework kept the function before it was
        hooked, the second if something in between raised. So a Bounds around both closes what
        was opened inside it.
Blocks  no window: addresses that get labels

Labels belong to threads, and only the thread itself can take its label off. A window that ends in
another thread than it began in is closed by its own thread as soon as that opens or closes the
next one.
"""

import threading

from .. import _control
from ._hooks import Hook

COMPONENT, PROCESS, DETAIL_1, DETAIL_2 = 1, 2, 3, 4

_lock = threading.Lock()
_open = {}  # (kind, object id): Window; of Opens, all threads


class _Label:
    __slots__ = ("level", "text", "uses")

    def __init__(self, level, text):
        self.level, self.text, self.uses = level, text, 0


class _Thread(threading.local):
    def __init__(self):
        self.labels = []  # those pushed, oldest first
        self.ended = []  # labels whose windows other threads have closed


_thread = _Thread()


def _push(labels):
    """The newest label of a level counts, so one that is the newest need not be pushed again."""
    here, pushed = _thread, []
    _sweep(here)
    for level, text in labels:
        label = next((x for x in reversed(here.labels) if x.level == level), None)
        if label is None or label.text != text:
            label = _Label(level, text)
            here.labels.append(label)
            if _control._sonde is not None:
                _control._sonde.label_push(level, text)
        label.uses += 1
        pushed.append(label)
    return pushed


def _pop(pushed):
    here = _thread
    for label in reversed(pushed):
        label.uses -= 1
        if not label.uses and label in here.labels:
            here.labels.remove(label)
            if _control._sonde is not None:
                _control._sonde.label_pop(label.text, 0, label.level)


def _sweep(here):
    while here.ended:
        _pop(here.ended.pop())


class Scope(Hook):
    per_step = True

    def __init__(self, *labels):
        self.labels = labels
        self.identity = labels

    def enter(self, args, kwargs):
        return args, kwargs, _push(self.labels)

    def leave(self, token, ok):
        _pop(token)


class _Window:
    def __init__(self, key):
        self.key, self.pushed = key, []
        self.home = _thread.ended

    def close(self):
        with _lock:
            if _open.get(self.key) is not self:
                return
            del _open[self.key]
        if self.home is _thread.ended:
            _pop(self.pushed)
        else:
            self.home.append(self.pushed)


def _open_window(key, labels):
    window = _Window(key)
    with _lock:
        if _open.setdefault(key, window) is not window:
            return
    window.pushed.extend(_push(labels))


def close_windows(kind=None):
    """All of a kind; None: of all kinds."""
    for window in list(_open.values()):
        if kind is None or window.key[0] == kind:
            window.close()
    _sweep(_thread)


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
    _sweep(_thread)


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
                if window.home is _thread.ended or not ok:
                    window.close()
        _pop(pushed)
        _sweep(_thread)
