# SPDX-License-Identifier: MulanPSL-2.0
"""Memory of tensors on the CPU, where no preloaded library reports malloc().

What is seen is what operators are given and hand out, and what is there when recording begins.
"""

import atexit
import gc
import time
import weakref

from sonde import _sonde

from . import _addresses

_ready = False
_scanned = None  # when, and how long it took


def wanted(settings):
    alloc = settings["events"] & _sonde.EVENT_ALLOC
    return bool(settings["cpu"] and alloc and not _sonde.storage_hooked())


def enable(torch, settings):
    if not wanted(settings):
        return
    _setup(torch)
    _sonde.storage_set(True)
    _scan()


def disable():
    _sonde.storage_sweep()
    _sonde.storage_set(False)


def before_step():
    _sonde.storage_sweep()


def _scan():
    """Tensors that are there already. Visits all objects: too slow for every short window."""
    global _scanned
    begin = time.monotonic()
    if _scanned is not None and begin - _scanned[0] < 20 * _scanned[1]:
        return
    _sonde.storage_scan(gc.get_objects())
    end = time.monotonic()
    _scanned = (end, end - begin)


def _setup(torch):
    global _ready
    if _ready:
        return
    base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
    storage_of = getattr(base, "untyped_storage", None) or base._storage
    # Modes of the program's, and where it wants tensors to be, do not matter for this one.
    with _addresses.unseen(torch):
        off = torch._C._DisableTorchDispatch()  # as long as it lives
        try:
            probe = torch.empty(1, device="cpu")
        finally:
            del off
    weak = expired = drop = None
    if not _stays(storage_of, probe):
        kind = type(storage_of(probe))
        weak, expired, drop = kind._weak_ref, kind._expired, kind._free_weak_ref
    _sonde.storage_setup(storage_of, weak, expired, drop)
    atexit.register(_sonde.storage_over)
    _ready = True


def _stays(storage_of, tensor):
    """Does the object of a storage live as long as the storage?"""
    reference = weakref.ref(storage_of(tensor))
    return reference() is not None
