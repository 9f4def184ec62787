# SPDX-License-Identifier: MulanPSL-2.0
"""Hooks around functions of frameworks, without importing them.

    def before(self, *args, **kwargs):
        return (self, *args), kwargs

    def after(result, self, *args, **kwargs):
        return result

    handle = hijacker.hijack("some.module", "Class", "method", pre=before, post=after)
    ...
    hijacker.release(handle)

The function is wrapped when its module is imported, or now if it has been. `pre` gets the arguments
and returns those to call with, `post` gets the result and the arguments and returns the result; of
several hooks the one with the lower priority comes first. What a hook raises is reported once and
otherwise ignored; what the function raises passes unchanged, and `post` is not called then.
"""

from ._targets import hijack, release, release_all

__all__ = ["hijack", "release", "release_all"]
