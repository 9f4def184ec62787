# SPDX-License-Identifier: MulanPSL-2.0
"""When an import that is under way ends: the import system says in the spec of a module whether it is
still busy with it."""

import importlib.machinery


def followed(tell):
    """The class for the spec of such a module. It calls tell(name) when the import has ended, well or
    not, and gives way to the usual class before."""

    class FollowedSpec(importlib.machinery.ModuleSpec):
        @property
        def _initializing(self):
            return self.__dict__.get("_initializing", False)

        @_initializing.setter
        def _initializing(self, value):
            self.__dict__["_initializing"] = value
            if not value:
                self.__class__ = importlib.machinery.ModuleSpec
                tell(self.name)

    return FollowedSpec
