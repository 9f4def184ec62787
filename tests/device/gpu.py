# SPDX-License-Identifier: MulanPSL-2.0
"""What a script of this folder needs, asked before it begins."""

import ctypes
import importlib.util
import sys


def why_no_gpu():
    """None if there is one that works: the driver itself is asked, with nothing else around it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as why:
        return f"the driver cannot be loaded ({why})"
    error, count = driver.cuInit(0), ctypes.c_int()
    if error:
        return f"the driver refuses (cuInit: {error})"
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the driver has no device"
    return None


def lacking(packages):
    return [name for name in packages if importlib.util.find_spec(name) is None]


def need_gpu(*packages):
    """Ends the script with one sentence if it cannot run here."""
    why, missing = why_no_gpu(), lacking(packages)
    if not why and missing:
        why = f"this Python ({sys.executable}) has no {' and no '.join(missing)}"
    if why:
        sys.exit(f"cannot run here: {why}")
