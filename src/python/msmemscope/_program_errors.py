# SPDX-License-Identifier: MulanPSL-2.0
"""Exceptions of the program's that come while code of ours runs.

A signal handler may raise, to end what takes too long: wherever the main thread is at that moment,
that exception is the program's, and no other code may catch it.
"""

import _signal  # the module signal makes enums of everything
import threading


def _codes():
    for number in range(1, _signal.NSIG):
        handler = _signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # functools.partial
        for at in (handler, getattr(type(handler), "__call__", None)):
            code = getattr(getattr(at, "__func__", at), "__code__", None)
            if code is not None:
                yield code


def pass_on(error):
    """Raises it again if a signal handler of the program has raised it."""
    if threading.get_ident() != threading.main_thread().ident:
        return  # handlers run in the main thread alone
    codes, at = list(_codes()), error.__traceback__
    while codes and at is not None:
        if at.tb_frame.f_code in codes:
            raise error
        at = at.tb_next
