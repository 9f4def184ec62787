# SPDX-License-Identifier: MulanPSL-2.0
"""What a forked process makes new: it has one thread, and what the others held stays held."""

import os
import threading


def in_child(function):
    """Decorates a function that is called in every forked process, before the program goes on."""
    os.register_at_fork(after_in_child=function)
    return function


def lock(names, name="_lock", make=threading.RLock):
    """A lock for a module's globals(), and another one under that name in a forked process.

    Not an object that stands for both: a caller that forks inside `with` gives back what it took.

    >>> _lock = _fork.lock(globals())
    """

    @in_child
    def renew():
        names[name] = make()

    return make()
