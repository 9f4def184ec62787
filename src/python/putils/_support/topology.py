# SPDX-License-Identifier: MulanPSL-2.0
"""Processors, NUMA nodes and accelerators of this machine, from /sys and /proc. A file that is not
there is an answer that is not known."""

import os
import re
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional

ReadText = Callable[[str], Optional[str]]

NVIDIA, HUAWEI = "0x10de", "0x19e5"
# By vendor: the beginning of the PCI class (3D and VGA controllers; processing accelerators).
ACCELERATORS = {NVIDIA: ("0x0300", "0x0302"), HUAWEI: ("0x1200",)}
VISIBLE = {NVIDIA: "CUDA_VISIBLE_DEVICES", HUAWEI: "ASCEND_RT_VISIBLE_DEVICES"}


class Accelerator(NamedTuple):
    """vendor, PCI address, and the NUMA node it is attached to (None if that is not known)."""

    vendor: str
    address: str
    node: Optional[int]


def read_text(path: str) -> Optional[str]:
    """The text of a file, or None."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read(1 << 20)
    except OSError:
        return None


def parse_cpu_list(text: Optional[str]) -> List[int]:
    """The numbers of a list such as the kernel writes; what is none is left out.

    >>> parse_cpu_list("0-2,8")
    [0, 1, 2, 8]
    """
    found = set()
    for part in (text or "").strip().split(","):
        match = re.match(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*$", part)
        if match:
            first = int(match.group(1))
            found.update(range(first, int(match.group(2) or first) + 1))
    return sorted(found)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """
    >>> format_cpu_list([0, 1, 2, 8])
    '0-2,8'
    """
    runs: List[List[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def online_cpus(read: ReadText = read_text) -> List[int]:
    return parse_cpu_list(read("/sys/devices/system/cpu/online"))


def numa_nodes(read: ReadText = read_text) -> Dict[int, List[int]]:
    """{node: its processors}"""
    nodes = parse_cpu_list(read("/sys/devices/system/node/online"))
    return {n: parse_cpu_list(read(f"/sys/devices/system/node/node{n}/cpulist")) for n in nodes}


def by_core(cpus: Iterable[int], read: ReadText = read_text) -> List[int]:
    """The processors so that those of one core stand beside each other."""
    cores = {}
    for cpu in cpus:
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        siblings = parse_cpu_list(read(path))
        cores[cpu] = siblings[0] if siblings else cpu
    return sorted(cores, key=lambda cpu: (cores[cpu], cpu))


def accelerators(root: str = "/sys/bus/pci/devices") -> List[Accelerator]:
    """In the order of their PCI addresses, as drivers count them unless they are told otherwise."""
    found = []
    try:
        addresses = sorted(os.listdir(root))
    except OSError:
        return found
    for address in addresses:
        facts = {n: (read_text(os.path.join(root, address, n)) or "").strip()
                 for n in ("vendor", "class", "numa_node")}  # fmt: skip
        if facts["class"].startswith(ACCELERATORS.get(facts["vendor"], ("?",))):
            node = facts["numa_node"]
            known = int(node) if re.match(r"\d+$", node) else None
            found.append(Accelerator(facts["vendor"], address, known))
    vendors = [a.vendor for a in found]
    # A machine of NPUs may have a graphics card for its screen.
    return [a for a in found if a.vendor == (HUAWEI if HUAWEI in vendors else a.vendor)]


def visible(found: List[Accelerator]) -> List[Accelerator]:
    """Those that CUDA_VISIBLE_DEVICES or ASCEND_RT_VISIBLE_DEVICES leave, in its order; all of
    them if it names devices in a way that is not known here (UUIDs)."""
    if not found:
        return found
    words = os.environ.get(VISIBLE[found[0].vendor])
    if words is None:
        return found
    numbers = [w.strip() for w in words.split(",")]
    if not all(n.isdigit() and int(n) < len(found) for n in numbers):
        return found
    return [found[int(n)] for n in numbers]
