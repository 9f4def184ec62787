# SPDX-License-Identifier: MulanPSL-2.0
"""What is done around a call.

A hook has three parts, any of which may do nothing:

    enter(args, kwargs) -> args, kwargs, token
    leave(token, ok)                  in a `finally`; ok: the function has returned
    result(ret, args, kwargs) -> ret  only if it has

per_step: of a generator or coroutine, enter() and leave() bracket each stretch of running, and not
the pauses in between, in which the thread does something else.
"""

from .. import _messages, _program_errors


class Hook:
    priority = 100
    per_step = False
    identity = None  # hooks of one target with the same identity count once

    def enter(self, args, kwargs):
        return args, kwargs, None

    def leave(self, token, ok):
        pass

    def result(self, ret, args, kwargs):
        return ret


def complain(what, why):
    _program_errors.pass_on(why)
    _messages.warn_once(f"a hook of {what} does not work: {_messages.describe(why)}")


class Functions(Hook):
    """The caller's own functions."""

    def __init__(self, pre, post, priority, what):
        self.pre, self.post, self.priority, self.what = pre, post, priority, what
        self.identity = (pre, post)

    def enter(self, args, kwargs):
        if self.pre is not None:
            try:
                new_args, new_kwargs = self.pre(*args, **kwargs)
                return tuple(new_args), dict(new_kwargs), None
            except Exception as why:
                complain(self.what, why)
        return args, kwargs, None

    def result(self, ret, args, kwargs):
        if self.post is None:
            return ret
        try:
            return self.post(ret, *args, **kwargs)
        except Exception as why:
            complain(self.what, why)
            return ret
