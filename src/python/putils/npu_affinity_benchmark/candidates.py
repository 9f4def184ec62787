# SPDX-License-Identifier: MulanPSL-2.0
"""Processors that this process may use, and the lists of them that are worth trying.

    >>> generate_candidate_cpu_lists(discover_topology(), profile="smoke")
    [{'candidate_id': 'c000', 'cpu_list': [0]}, {'candidate_id': 'c001', 'cpu_list': [0, 1]}]
"""

import itertools
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from .._support import topology as host
from .._support.topology import ReadText, parse_cpu_list

PROFILE_CANDIDATE_LIMITS = {"smoke": 4, "medium": 12, "full": 64}
CGROUP = "/sys/fs/cgroup"


def _own_affinity(pid: int) -> Iterable[int]:
    return os.sched_getaffinity(pid)


def _cgroup_path(read: ReadText) -> str:
    """Of version 2 ("0::"), else of the cpuset controller of version 1."""
    lines = [line.split(":", 2) for line in (read("/proc/self/cgroup") or "").splitlines()]
    parts = [p for p in lines if len(p) == 3]
    for want in (lambda c: c == "", lambda c: "cpuset" in c.split(",")):
        for _, controllers, path in parts:
            if want(controllers):
                return path if path != "/" else ""
    return ""


def _first(read: ReadText, paths: List[str]) -> Tuple[Optional[str], Optional[str]]:
    for path in paths:
        text = read(path)
        if text is not None:
            return path, text
    return None, None


def _cpuset(read: ReadText, path: str, what: str) -> Tuple[Optional[str], Optional[str]]:
    """(file, text) of the effective cpus or mems: version 2, then version 1, then their tops."""
    folders = list(dict.fromkeys([path, ""]))
    names = [f"{CGROUP}{p}/cpuset.{what}.effective" for p in folders]
    names += [f"{CGROUP}/cpuset{p}/cpuset.effective_{what}" for p in folders]
    return _first(read, names)


def discover_topology(
    read_text: ReadText = host.read_text,
    get_affinity: Callable[[int], Iterable[int]] = _own_affinity,
    pid: int = 0,
) -> Dict[str, Any]:
    """Online processors, NUMA nodes, this process' affinity and its cpuset, and what is in all of
    them: effective_domain. status is "error" if that is empty.

    >>> discover_topology()["effective_domain"]
    {'cpus': [0, 1], 'mems': [0]}
    """
    online = host.online_cpus(read_text)
    nodes = host.numa_nodes(read_text)
    affinity = sorted(get_affinity(pid))
    group = _cgroup_path(read_text)
    cpu_path, cpu_text = _cpuset(read_text, group, "cpus")
    mem_path, mem_text = _cpuset(read_text, group, "mems")
    cpuset, mems = parse_cpu_list(cpu_text), parse_cpu_list(mem_text)
    cpus = [c for c in affinity if c in set(online or affinity)]
    if cpu_path:
        cpus = [c for c in cpus if c in set(cpuset)]
    effective_mems = [n for n in nodes if n in set(mems)] if mem_path else list(nodes)
    error = None
    if not cpus:
        error = {
            "code": "EMPTY_EFFECTIVE_CPUS",
            "message": "no processor is online, in the affinity and in the cpuset of this process",
        }
    return {
        "status": "error" if error else "ok",
        "error": error,
        "online_cpus": online,
        "nodes": [{"node_id": n, "cpus": c} for n, c in nodes.items()],
        "process_affinity": affinity,
        "process_cgroup_path": group,
        "cpuset_effective_cpu_path": cpu_path,
        "cpuset_effective_mem_path": mem_path,
        "cpuset_effective_cpus": cpuset,
        "cpuset_effective_mems": mems,
        "effective_cpus": cpus,
        "effective_mems": effective_mems,
        "effective_domain": {"cpus": cpus, "mems": effective_mems},
    }


def candidate_limit(profile: str) -> int:
    """ValueError for a profile that there is not.

    >>> candidate_limit("medium")
    12
    """
    if profile not in PROFILE_CANDIDATE_LIMITS:
        raise ValueError(
            f"Invalid profile: {profile}. Expected one of [{', '.join(PROFILE_CANDIDATE_LIMITS)}]"
        )
    return PROFILE_CANDIDATE_LIMITS[profile]


def _spread(nodes: List[Tuple[int, ...]]) -> Iterable[Tuple[int, ...]]:
    """Single processors, one of each node in turn: the first few already are of every node."""
    for row in itertools.zip_longest(*nodes):
        yield from ((cpu,) for cpu in row if cpu is not None)


def generate_candidate_cpu_lists(
    topology: Mapping[str, Any], profile: str = "smoke"
) -> List[Dict[str, Any]]:
    """Single processors, nodes, pairs of nodes and all, each once, with the ids c000 and so on. If
    they are more than the profile allows, nodes and all of them stay before pairs and processors.

    >>> [c["cpu_list"] for c in generate_candidate_cpu_lists(topology, profile="full")]
    [[1], [4], [7], [4, 7], [1, 4, 7]]
    """
    limit = candidate_limit(profile)
    cpus = sorted({int(c) for c in topology.get("effective_domain", {}).get("cpus", [])})
    allowed = set(cpus)
    nodes = [
        tuple(sorted(allowed.intersection(node.get("cpus", []))))
        for node in topology.get("nodes", [])
    ]
    nodes = [n for n in nodes if n] or ([tuple(cpus)] if cpus else [])
    pairs = [tuple(sorted(set(a) | set(b))) for a, b in itertools.combinations(nodes, 2)]
    everything = [tuple(cpus)] if cpus else []
    wanted = dict.fromkeys([*nodes, *everything, *pairs, *_spread(nodes)])
    kept = set(itertools.islice(wanted, limit))
    order = dict.fromkeys([*((c,) for c in cpus), *nodes, *pairs, *everything])
    return [
        {"candidate_id": f"c{i:03d}", "cpu_list": list(found)}
        for i, found in enumerate(c for c in order if c in kept)
    ]
