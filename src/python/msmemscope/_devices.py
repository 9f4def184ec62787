# SPDX-License-Identifier: MulanPSL-2.0
"""The accelerators that this process uses, as torch knows them. Nothing here wakes one up."""

import os
import sys


class Accelerator:
    """torch.cuda, or torch_npu.npu, once the program itself has begun to use it."""

    def __init__(self, name, module):
        self.name = name  # as in "cuda:0"
        self.module = module

    def used(self):
        """Numbers, as the program counts them, of the devices that it uses."""
        ask = getattr(sys.modules["torch"]._C, f"_{self.name}_hasPrimaryContext", None)
        return [i for i in range(self.module.device_count()) if ask is None or ask(i)]

    def current(self):
        return self.module.current_device()

    def number(self, index):
        """The device's number on this machine."""
        return number_of(self.name, index)


def number_of(name, index):
    """The recorder itself does this for NPUs, as it sees their driver's numbers too."""
    if name != "cuda":
        return index
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    if all(text.isdigit() for text in listed) and index < len(listed):
        return int(listed[index])
    return index  # not restricted, or named by UUID: counted as the program counts them


def _module_of(name):
    if name == "npu":
        package = sys.modules.get("torch_npu")
        return getattr(package, "npu", None)
    return sys.modules.get("torch." + name) if "torch" in sys.modules else None


def _gpu_is_here():
    return any(os.path.exists(node) for node in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))


def may_be_used():
    """May this process have tensors elsewhere than on the CPU? Nothing is initialized for that."""
    torch = sys.modules.get("torch")
    if torch is None or "torch_npu" in sys.modules:
        return True
    version = getattr(torch, "version", None)
    if version is None:
        return True  # it is being imported: nobody knows yet
    if not (getattr(version, "cuda", None) or getattr(version, "hip", None)):
        return False
    return _gpu_is_here()


def are_here():
    """Could this process use one, now or later? Decided by the machine and by the build of torch."""
    if "torch_npu" in sys.modules or any(n.startswith("davinci") for n in os.listdir("/dev")):
        return True
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return _gpu_is_here() and may_be_used() and not hidden


def accelerators():
    """Those that are in use; [] without torch, and before anything was put on a device."""
    found = []
    for name in ("cuda", "npu"):
        module = _module_of(name)
        try:
            if module is not None and module.is_initialized():
                found.append(Accelerator(name, module))
        except Exception:  # half an import, or a build without that kind of device
            continue
    return found
