# SPDX-License-Identifier: MulanPSL-2.0
"""What will not be recorded: there is no such device, or a library was not there when the process
began."""

import sys

from . import _devices, _messages

RECIPE = (
    "after `source msmemscope --load-api-env` (or with: msmemscope --collect-mode=deferred -- "
    "python …)"
)
HOST_RECIPE = "with: msmemscope --collect-mode=deferred --device={} -- python …"
DRIVER = ("libascend_hal.so", "libascendcl.so", "libruntime.so")


def libraries():
    """The names of the files that are mapped into this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            return {line.rstrip("\n").rpartition("/")[2] for line in lines if ".so" in line}
    except OSError:
        return set()


def is_loaded(name):
    return name in libraries()


def _uses_npu(loaded):
    return "torch_npu" in sys.modules or any(name in loaded for name in DRIVER)


def say(sonde):
    """Once, and only of what the settings ask for."""
    settings = sonde.settings()
    loaded = libraries()
    npu = settings["npu_all"] or settings["npu_slots"]
    if npu and _uses_npu(loaded):
        lacks = [
            what
            for what, name in (
                ("device memory of the driver", "libleaks_ascend_hal_hook.so"),
                ("memory of pools and marks", "libascend_mstx_hook.so"),
            )
            if name not in loaded
        ]
        if lacks:
            verb = "is" if len(lacks) == 1 else "are"
            _messages.warn_once(f"{' and '.join(lacks)} {verb} not recorded: start {RECIPE}")
    elif settings["dump_events"] and not settings["cpu"] and not _devices.are_here():
        _messages.warn_once(
            "no NPU and no GPU is in use here, and nothing else was asked for: no memory is "
            'recorded. For tensors on the CPU: msmemscope.config(device="cpu")'
        )
    if settings["cpu"] and "libsonde_host_hook.so" not in loaded:
        what = "host memory below torch's tensors is not recorded"
        if "torch" not in sys.modules:
            what = "nothing of host memory is recorded (but torch's tensors, once it is imported)"
        if settings["python_objects"]:
            what = "of host memory only small objects of Python and torch's tensors are recorded"
        devices = "npu,cpu" if npu else "cpu"
        _messages.warn_once(f"{what}: start {HOST_RECIPE.format(devices)}")
