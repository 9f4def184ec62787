# SPDX-License-Identifier: MulanPSL-2.0
"""A snapshot when a function is called and one when it is left, also by an exception."""

from ._hooks import Hook


class Snapshot(Hook):
    """Their names are <module>@<class>@<method>@Start and @End; functions have no class."""

    identity = "snapshot"

    def __init__(self, module, cls, function):
        self.name = "@".join(part for part in (module, cls, function) if part)

    def _take(self, what):
        import msmemscope

        msmemscope.take_snapshot(None, name=f"{self.name}@{what}")

    def enter(self, args, kwargs):
        self._take("Start")
        return args, kwargs, None

    def leave(self, token, ok):
        self._take("End")
