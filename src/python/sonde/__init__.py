# SPDX-License-Identifier: MulanPSL-2.0
"""sonde: looks inside running AI jobs.

This package holds what the others share: where the programs and libraries are, the extensions
``sonde._sonde`` and ``sonde._monitor``, and step(). To record memory, ``import msmemscope``; what
the device executes, ``import msmonitor``.
"""

import os

__all__ = ["library_dir", "program", "step"]

_HERE = os.path.dirname(os.path.abspath(__file__))
# With pip's --target, in a build tree, below a prefix, in a virtual environment.
_ABOVE = [os.path.normpath(os.path.join(_HERE, *[".."] * up)) for up in (1, 2, 3, 4)]


def program(name="sonde"):
    """The path of one of our programs, ``sonde`` itself if no name is given."""
    for top in _ABOVE:
        path = os.path.join(top, "bin", name)
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"cannot find '{name}' beside {_HERE}; install sonde again")


def library_dir():
    """The directory of the libraries to preload."""
    for top in _ABOVE:
        for name in ("lib", "lib64"):
            path = os.path.join(top, name)
            if os.path.exists(os.path.join(path, "libsonde_guest.so")):
                return path
    raise FileNotFoundError(f"cannot find the libraries beside {_HERE}; install sonde again")


def step():
    """The end of a training step, and the beginning of the next: what ``dyno nputrace`` counts.

    For programs whose steps cannot be seen from outside; those of PyTorch's optimizers can. Costs
    next to nothing while nothing is recorded, and never fails.

    >>> for batch in loader:
    ...     train(batch)
    ...     sonde.step()
    """
    global _step
    if _step is None:
        _step = _find_step()
    _step()


_step = None


def _find_step():
    try:
        from ._monitor import step as found
    except ImportError:  # not in this interpreter (free-threaded), or half an installation
        return lambda: None
    return found
