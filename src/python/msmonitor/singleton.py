# SPDX-License-Identifier: MulanPSL-2.0
"""A decorator: every call of the class gives the same object."""

from typing import Any


class Singleton:
    """
    >>> @Singleton
    ... class Counter:
    ...     n = 0
    >>> Counter() is Counter()
    True
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._only: Any = None

    def __call__(self) -> Any:
        if self._only is None:
            self._only = self._cls()
        return self._only
