# SPDX-License-Identifier: MulanPSL-2.0
"""Peaks of chips: dense bfloat16 products with the matrix units, in TFLOPS, without sparsity.

A name of a device is looked up by the longest row that it contains, so that "NVIDIA H100 PCIe" is
not taken for the SXM module. A chip that is not here has no peak: PUTILS_PEAK_TFLOPS gives it one.
"""

import os
import re
from typing import Any, Optional, Tuple

from .. import _messages

PEAK_ENV = "PUTILS_PEAK_TFLOPS"

# (what the driver's name contains, TFLOPS, where the figure is from)
PEAKS: Tuple[Tuple[str, float, str], ...] = (
    ("GB200", 2500.0, "NVIDIA's GB200 NVL72 page: 360 PFLOPS with sparsity, 72 GPUs, halved"),
    ("B200", 2250.0, "NVIDIA's HGX B200 page: 36 PFLOPS with sparsity, 8 GPUs, halved"),
    ("H200 NVL", 835.5, "NVIDIA's H200 data sheet, NVL: 1671 with sparsity, halved"),
    ("H200", 989.5, "NVIDIA's H200 data sheet, SXM: 1979 with sparsity, halved"),
    ("H100 PCIe", 756.5, "NVIDIA's H100 data sheet, PCIe: 1513 with sparsity, halved"),
    ("H100 NVL", 835.5, "NVIDIA's H100 data sheet, NVL: 1671 with sparsity, halved"),
    ("H100", 989.5, "NVIDIA's H100 data sheet, SXM: 1979 with sparsity, halved"),
    ("GH200", 989.5, "NVIDIA's GH200 data sheet: the H100 SXM's"),
    ("H800", 989.5, "as the H100 SXM: only links and double precision are reduced"),
    ("H20", 148.0, "NVIDIA's H20 data sheet"),
    ("A100", 312.0, "NVIDIA's A100 data sheet"),
    ("A800", 312.0, "as the A100: only links are reduced"),
    ("A40", 149.7, "NVIDIA's A40 data sheet"),
    ("A30", 165.0, "NVIDIA's A30 data sheet"),
    ("A10", 125.0, "NVIDIA's A10 data sheet"),
    ("L40S", 362.05, "NVIDIA's L40S data sheet"),
    ("L40", 181.05, "NVIDIA's L40 data sheet"),
    ("L20", 119.5, "NVIDIA's L20 data sheet"),
    ("L4", 121.0, "NVIDIA's L4 data sheet: 242 with sparsity, halved"),
    ("Ascend910B2", 376.0, "Huawei's Atlas 800T A2 data sheet: 3 PFLOPS of 8 chips"),
    ("Ascend910B3", 313.0, "Huawei's Atlas 800T A2 data sheet: 2.5 PFLOPS of 8 chips"),
    ("Ascend910B4", 280.0, "Huawei's Atlas 800I A2 data sheet: 2.24 PFLOPS of 8 chips"),
    ("Ascend910_93", 376.0, "Huawei's paper on CloudMatrix384: 752 of two dies; a device is one"),
    ("Ascend910A", 256.0, "Huawei's announcement of the Ascend 910: fp16, it has no bf16"),
    ("Ascend910ProA", 256.0, "Huawei's announcement of the Ascend 910: fp16, it has no bf16"),
)


def peak_of(name: str) -> Optional[float]:
    """The peak of a device by its name, or None.

    >>> peak_of("NVIDIA H200"), peak_of("NVIDIA A100-SXM4-80GB"), peak_of("Some GPU")
    (989.5, 312.0, None)
    """
    best = ""
    found = None
    for part, tflops, _ in PEAKS:
        # "A10" is not in "A100", nor "L4" in "L40S", nor "H20" in "H200"; "A10G" is another chip.
        ends = "" if part.endswith("_93") else r"(?![0-9A-Za-z])"
        if len(part) > len(best) and re.search(rf"(?<![0-9A-Za-z]){re.escape(part)}{ends}", name):
            best, found = part, tflops
    return found


def device_name(torch: Any = None) -> str:
    """What the driver calls the device that torch uses; empty if there is none.

    >>> device_name()
    ''
    """
    if torch is None:
        try:
            import torch
        except ImportError:
            return ""
    for kind in ("npu", "cuda"):
        module = getattr(torch, kind, None)
        try:
            if module is not None and module.is_available():
                return str(module.get_device_name(module.current_device()))
        except Exception:  # a device that does not answer
            pass
    return ""


def peak_tflops() -> float:
    """The peak of the device that torch uses: PUTILS_PEAK_TFLOPS, else from the table; 0 and one
    warning if it is not known.

    >>> peak_tflops()
    0.0
    """
    said = os.environ.get(PEAK_ENV, "").strip()
    if said:
        try:
            if 0 < float(said) < float("inf"):
                return float(said)
        except ValueError:
            pass
        _messages.warn_once(f"{PEAK_ENV} is '{said}', which is not a number above 0: it is ignored")
    name = device_name()
    found = peak_of(name)
    if found is None:
        what = f"the peak of '{name}' is not known" if name else "there is no NPU or GPU"
        _messages.warn_once(f"{what}: MFU is 0; give the peak in TFLOPS with {PEAK_ENV}")
        return 0.0
    return found
