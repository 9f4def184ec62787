# SPDX-License-Identifier: MulanPSL-2.0
"""Which kind of device this machine has, and torch's module for it.

    from putils.device import get_device_name, get_torch_device

    tensor = tensor.to(get_device_name())
    get_torch_device().synchronize()

TORCH_AVAILABLE, is_cuda_available and is_npu_available are looked up when they are first used.
"""

import importlib
import importlib.util
import sys
from typing import Any, Dict, List, Tuple

_known: Dict[str, bool] = {}

TYPE_CHECKING = False
if TYPE_CHECKING:
    TORCH_AVAILABLE: bool
    is_cuda_available: bool
    is_npu_available: bool


def _torch() -> Any:
    """The module torch, imported; None where there is none."""
    try:
        return importlib.import_module("torch")
    except Exception:  # not installed, or broken
        return None


def is_torch_npu_available() -> bool:
    """Whether torch_npu is installed and sees an NPU.

    >>> is_torch_npu_available()
    False
    """
    torch = _torch()
    if torch is None:
        return False
    try:
        if "torch_npu" not in sys.modules and importlib.util.find_spec("torch_npu") is None:
            return False
        importlib.import_module("torch_npu")
        return bool(torch.npu.is_available())
    except Exception:  # an installation for another torch, or without a driver
        return False


def _is_cuda_available() -> bool:
    try:
        return bool(_torch().cuda.is_available())
    except Exception:
        return False


_LOOKED_UP = {
    "TORCH_AVAILABLE": lambda: _torch() is not None,
    "is_cuda_available": _is_cuda_available,
    "is_npu_available": is_torch_npu_available,
}


def __getattr__(name: str) -> bool:
    if name not in _LOOKED_UP:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _known:
        _known[name] = _LOOKED_UP[name]()
    return _known[name]


def _flag(name: str) -> bool:
    return bool(getattr(sys.modules[__name__], name))


def get_device_name() -> str:
    """The kind of device to compute on: cuda, else npu, else cpu.

    >>> get_device_name()
    'cpu'
    """
    if _flag("is_cuda_available"):
        return "cuda"
    return "npu" if _flag("is_npu_available") else "cpu"


def get_visible_devices_keyword() -> str:
    """The environment's variable that says which devices a process sees.

    >>> get_visible_devices_keyword()
    'CUDA_VISIBLE_DEVICES'
    """
    return "ASCEND_RT_VISIBLE_DEVICES" if get_device_name() == "npu" else "CUDA_VISIBLE_DEVICES"


def get_torch_device() -> Any:
    """torch.cuda, torch.npu, or torch.cpu where it exists; torch.cuda otherwise.

    >>> get_torch_device().synchronize()
    """
    torch = _torch()
    if torch is None:
        raise ImportError("get_torch_device() needs PyTorch, which cannot be imported here")
    return getattr(torch, get_device_name(), torch.cuda)


def accelerators_in_use() -> List[Tuple[str, Any]]:
    """(name, module) of the kinds of device that the program has begun to use. Wakes none up.

    >>> accelerators_in_use()
    []
    """
    torch, found = sys.modules.get("torch"), []
    for name in ("cuda", "npu"):
        module = getattr(torch, name, None)
        try:
            if module is not None and module.is_initialized():
                found.append((name, module))
        except Exception:  # half an import, or a build without that kind of device
            continue
    return found


def synchronize() -> None:
    """Wait for the device, if one is in use and no graph is being captured.

    >>> synchronize()
    """
    for _, module in accelerators_in_use()[:1]:
        capturing = getattr(module, "is_current_stream_capturing", None)
        if not (capturing and capturing()):
            module.synchronize()
