# SPDX-License-Identifier: MulanPSL-2.0
"""Binding to processors, and whether it came about: what was asked for is read back.

    >>> bind_with_retries([0, 1])["bind_status"]
    'ok'
"""

import errno
import os
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

AFFINITY_BIND_STATUS_OK = "ok"
AFFINITY_BIND_STATUS_MISMATCH = "mismatch"
AFFINITY_BIND_STATUS_ERROR = "error"
AFFINITY_FAILURE_CODE_EPERM = "EPERM"
AFFINITY_FAILURE_CODE_EINVAL = "EINVAL"
AFFINITY_FAILURE_CODE_TIMEOUT = "TIMEOUT"
AFFINITY_FAILURE_CODE_OTHER = "OTHER"
BIND_RETRY_DELAYS_S = (0.1, 0.2, 0.3)  # after the first attempt


def classify_affinity_failure(error: BaseException) -> Dict[str, Any]:
    """failure_code (EPERM, EINVAL, TIMEOUT, OTHER), errno, error_type, message.

    >>> classify_affinity_failure(TimeoutError("late"))["failure_code"]
    'TIMEOUT'
    """
    number = getattr(error, "errno", None)
    codes = {
        errno.EPERM: AFFINITY_FAILURE_CODE_EPERM,
        errno.EACCES: AFFINITY_FAILURE_CODE_EPERM,
        errno.EINVAL: AFFINITY_FAILURE_CODE_EINVAL,
        errno.ETIMEDOUT: AFFINITY_FAILURE_CODE_TIMEOUT,
    }
    code = codes.get(number, AFFINITY_FAILURE_CODE_OTHER)
    if isinstance(error, TimeoutError):
        code = AFFINITY_FAILURE_CODE_TIMEOUT
    return {
        "failure_code": code,
        "errno": number,
        "error_type": type(error).__name__,
        "message": str(error),
    }


def _threads(pid: int) -> List[int]:
    try:
        return [int(t) for t in os.listdir(f"/proc/{pid or 'self'}/task")]
    except OSError:
        return [pid]


def set_affinity(pid: int, cpus: Iterable[int], timeout_ns: Optional[int] = None) -> None:
    """Binds every thread of a process: torch's own threads work for it, too.

    >>> set_affinity(0, [0])
    """
    wanted = set(cpus)
    end = None if timeout_ns is None else time.monotonic_ns() + timeout_ns
    for thread in _threads(pid):
        if end is not None and time.monotonic_ns() > end:
            raise TimeoutError("binding takes too long")
        try:
            os.sched_setaffinity(thread, wanted)
        except ProcessLookupError:
            pass  # it has ended meanwhile


def get_affinity(pid: int) -> List[int]:
    """
    >>> get_affinity(0)
    [0, 1]
    """
    return sorted(os.sched_getaffinity(pid))


def request_set_readback_affinity(
    pid: int,
    requested_affinity: Iterable[int],
    set_affinity: Callable[..., Any] = set_affinity,
    get_affinity: Callable[[int], Iterable[int]] = get_affinity,
    get_mems: Optional[Callable[[], Iterable[int]]] = None,
    timeout_ns: Optional[int] = None,
) -> Dict[str, Any]:
    """Binds once and reads back: bind_status, requested_affinity, effective_affinity,
    effective_mems, mismatch, ranking_valid, failure.

    >>> request_set_readback_affinity(0, [0])["effective_affinity"]
    [0]
    """
    requested = sorted({int(c) for c in requested_affinity})
    result: Dict[str, Any] = {
        "bind_status": AFFINITY_BIND_STATUS_ERROR,
        "requested_affinity": requested,
        "effective_affinity": [],
        "effective_mems": None,
        "mismatch": False,
        "ranking_valid": False,
        "failure": None,
    }
    try:
        set_affinity(pid, requested, timeout_ns=timeout_ns)
        effective = sorted({int(c) for c in get_affinity(pid)})
        result["effective_affinity"] = effective
        result["effective_mems"] = sorted(get_mems()) if get_mems else None
    except Exception as why:
        result["failure"] = classify_affinity_failure(why)
        return result
    same = effective == requested
    result["mismatch"], result["ranking_valid"] = not same, same
    result["bind_status"] = AFFINITY_BIND_STATUS_OK if same else AFFINITY_BIND_STATUS_MISMATCH
    return result


def bind_with_retries(
    cpus: Iterable[int],
    pid: int = 0,
    delays_s: Iterable[float] = BIND_RETRY_DELAYS_S,
    sleep: Callable[[float], None] = time.sleep,
    **how: Any,
) -> Dict[str, Any]:
    """request_set_readback_affinity(), and again after 100, 200 and 300 ms if it fails. The result
    of the last attempt, with `attempts` and the failures of all of them.

    >>> bind_with_retries([0])["attempts"]
    1
    """
    wanted = list(cpus)
    failures: List[Any] = []
    delays = list(delays_s)
    for attempt in range(len(delays) + 1):
        if attempt:
            sleep(delays[attempt - 1])
        result = request_set_readback_affinity(pid, wanted, **how)
        if result["bind_status"] == AFFINITY_BIND_STATUS_OK:
            break
        failures.append({"attempt": attempt + 1, "bind_status": result["bind_status"],
                         "failure": result["failure"]})  # fmt: skip
    return {**result, "attempts": attempt + 1, "failures": failures}


def mark_result_invalid_for_ranking_on_mismatch(result: Mapping[str, Any]) -> Dict[str, Any]:
    """The result; its samples do not count if it did not run where it should have.

    >>> mark_result_invalid_for_ranking_on_mismatch({"mismatch": True, "samples": [{}]})["samples"]
    [{'ranking_valid': False}]
    """
    found = dict(result)
    valid = (
        str(found.get("bind_status", "")).lower() != AFFINITY_BIND_STATUS_MISMATCH
        and not found.get("mismatch", False)
        and bool(found.get("ranking_valid", True))
    )
    if not valid:
        samples = found.get("samples")
        found["ranking_valid"] = False
        if isinstance(samples, list):
            found["samples"] = [
                {**(s if isinstance(s, Mapping) else {}), "ranking_valid": False} for s in samples
            ]
    return found
