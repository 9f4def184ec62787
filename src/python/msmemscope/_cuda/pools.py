# SPDX-License-Identifier: MulanPSL-2.0
"""What is inside the pools of JAX and CuPy on GPUs.

XLA takes one large block from the driver and CuPy several; what is in use inside of them they know
themselves. They are asked when a step ends and several times in a second. What they say becomes
snapshots named "XLA" and "CuPy", when it has changed: reserved is what the pool has from the driver,
allocated what is in use of that.

Nothing is asked before the program has used its device: a question must not initialise one.
"""

import re
import sys
import threading

from .. import _devices, _fork, _imports, _messages, _missing
from .._control import native

IDLE_S = 0.5

_lock = _fork.lock(globals())
_waiting = []
_last = {}  # (name, device): what was said last
_pacer = None  # (thread, event)


def wanted(settings):
    on_device = settings["npu_all"] or settings["npu_slots"]
    return bool(on_device and settings["events"] & native().EVENT_ALLOC)


def enable(settings):
    for name in ("jax", "cupy"):
        _waiting.append(_imports.when_imported(name, lambda module: _begin()))


def disable():
    global _pacer
    while _waiting:
        _waiting.pop().cancel()
    with _lock:
        if _pacer is not None:
            _read()
            _report_refusal(getattr(sys, "last_value", None))
            _pacer[1].set()
            _pacer = None


def before_step():
    if _pacer is not None:
        sync()


def sync():
    with _lock:
        if _pacer is not None:
            _read()


def _begin():
    global _pacer
    with _lock:
        if _pacer is None:
            leave = threading.Event()
            thread = threading.Thread(target=_run, args=(leave,), name="msmemscope", daemon=True)
            _pacer = (thread, leave)
            thread.start()


def _run(leave):
    while not leave.wait(IDLE_S):
        try:
            with _lock:
                if not leave.is_set():
                    _read()
        except Exception as why:  # a framework that is not what it was
            _messages.warn_once(f"pools of JAX or CuPy are not read: {_messages.describe(why)}")
            return


def _read():
    for name, index, numbers in [*_of_jax(), *_of_cupy()]:
        if _last.get((name, index)) != numbers:
            _last[name, index] = numbers
            native().snapshot(_devices.number_of("cuda", index), name, *numbers, 0, 0)


def _of_jax():
    bridge = sys.modules.get("jax._src.xla_bridge")
    for platform, client in list(getattr(bridge, "_backends", {}).items()):
        if platform not in ("cuda", "gpu"):
            continue
        for device in client.local_devices():
            stats = device.memory_stats()
            if stats:
                yield "XLA", _index(device), _numbers(stats)


def _index(device):
    number = getattr(device, "local_hardware_id", None)
    return device.id if number is None else number


def _numbers(stats):
    """(reserved, most of it, allocated, most of it)"""
    used = stats.get("bytes_in_use", 0)
    pool = stats.get("pool_bytes", stats.get("bytes_reserved", 0)) or stats.get("bytes_limit", 0)
    return (
        pool,
        stats.get("peak_pool_bytes", pool) or pool,
        used,
        stats.get("peak_bytes_in_use", used),
    )


_most = {}  # device of CuPy: (most bytes of its pool, most in use) that was seen


def _of_cupy():
    cupy = sys.modules.get("cupy")
    pool = getattr(cupy, "get_default_memory_pool", lambda: None)()
    if pool is None or not _driver_is_loaded() or not pool.total_bytes():
        return
    index = cupy.cuda.runtime.getDevice()
    total, used = pool.total_bytes(), pool.used_bytes()
    most = _most.get(index, (0, 0))
    _most[index] = most = (max(most[0], total), max(most[1], used))
    yield "CuPy", index, (total, most[0], used, most[1])


# "… while trying to allocate 8.00GiB with allocator GPU_0_bfc on device 0."; bytes, before.
REFUSED = re.compile(
    r"RESOURCE_EXHAUSTED: Out of memory .*?allocat\w* ([\d.]+) ?(bytes|[KMGT]?i?B)(?:.*? on device (\d+))?"
)
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
FRAMES = 50


def _report_refusal(error):
    """The program has ended with it: XLA had no room in what it took at its start, and so asks the
    driver for nothing."""
    found = REFUSED.search(str(error)) if type(error).__name__ in XLA_ERRORS else None
    if found is None:
        return
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.insert(0, dict(filename=code.co_filename, name=code.co_name, line=trace.tb_lineno))
        trace = trace.tb_next
    size = int(float(found.group(1)) * UNITS.get(found.group(2)[0], 1))
    for _, index, stats in _of_jax():
        if found.group(3) not in (None, str(index)):  # older ones do not say which: the first
            continue
        device = _devices.number_of("cuda", index)
        native().refusal(device, size, stats[0], places, FRAMES)
        return


XLA_ERRORS = ("XlaRuntimeError", "JaxRuntimeError")


def _driver_is_loaded():
    """Without it nothing is in use, and CuPy would load it to answer."""
    return any(name.startswith("libcuda.so") for name in _missing.libraries())


@_fork.in_child
def _forget():
    """Devices are the parent's, and so is its thread."""
    global _pacer
    _pacer = None
    _last.clear()
