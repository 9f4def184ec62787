# SPDX-License-Identifier: MulanPSL-2.0
"""How long parts of a program take on the device, without waiting for it.

    from putils.event_timer import event_timer

    event_timer.enabled = True
    for batch in loader:
        event_timer.add_event("forward")
        loss = model(batch)
        event_timer.add_event("forward")
        event_timer.flush()

Two events of a label make a span. flush() waits for the device and appends a row to
${LOG_DIR:-./logs}/event_timer_rank<r>.csv. Without a device the events are times of the host.
"""

import csv
import functools
import io
import os
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import _files, _job, _messages, device


class _HostEvent:
    """In the place of a device's event, where there is none."""

    def __init__(self) -> None:
        self.ns = 0

    def record(self, _stream: Any = None) -> None:
        self.ns = time.perf_counter_ns()

    def elapsed_time(self, end: "_HostEvent") -> float:
        return (end.ns - self.ns) / 1e6


class CUDAEVENT_TIMER:
    """Spans of the device by label, collected until flush(). Does nothing until `enabled` is set.

    >>> timer = CUDAEVENT_TIMER(enabled=True)
    >>> timer.add_event("forward"); model(batch); timer.add_event("forward")
    >>> timer.flush()
    """

    def __init__(self, enabled: bool = False) -> None:
        self.enabled = enabled
        self.flush_count = 0
        self._lock = threading.RLock()
        self._events: Dict[str, List[Any]] = {}
        self._cpu: List[float] = []
        self._shapes: Dict[str, str] = {}

    def add_event(self, label: str, group: Any = None) -> None:
        """Mark a moment of the current stream, or of the stream that a process group uses.

        >>> event_timer.add_event("all_gather", group)
        """
        if not self.enabled:
            return
        try:
            event = self._record(group)
        except Exception as why:
            _messages.warn_once(f"event_timer: no event '{label}': {_messages.words(why)}")
            return
        with self._lock:
            self._events.setdefault(str(label), []).append(event)

    def _record(self, group: Any) -> Any:
        used = device.accelerators_in_use()
        if not used:
            event: Any = _HostEvent()
            event.record()
            return event
        name, module = used[0]
        event = module.Event(enable_timing=True)
        stream = _group_stream(group, name, module) if group is not None else None
        event.record(stream if stream is not None else module.current_stream())
        return event

    def add_cpu(self) -> None:
        """Wait for the device and take the time of the host; two of these are cpu_time_ms.

        >>> event_timer.add_cpu(); train_step(); event_timer.add_cpu()
        """
        if not self.enabled:
            return
        self._wait()
        with self._lock:
            self._cpu.append(time.perf_counter())

    def add_tensor_shape(self, label: str, t: Any) -> None:
        """Note the shape of a tensor for the next row.

        >>> event_timer.add_tensor_shape("hidden", hidden)
        """
        if self.enabled:
            with self._lock:
                self._shapes[str(label)] = str(tuple(getattr(t, "shape", ()) or ()))

    def patch_fsdp_all_gather(self, label: str, patch: bool, group: Any = None) -> None:
        """Time FSDP2's all-gathers from now on; with patch=False no longer.

        >>> event_timer.patch_fsdp_all_gather("all_gather", True)
        """
        try:
            _patch_all_gather(self, str(label), bool(patch), group)
        except Exception as why:
            _messages.warn_once(
                f"event_timer: all-gathers of FSDP2 cannot be timed: {_messages.words(why)}"
            )

    def _wait(self) -> None:
        try:
            device.synchronize()
        except Exception as why:
            _messages.warn_once(
                f"event_timer: the device cannot be waited for: {_messages.words(why)}"
            )

    def flush(self) -> Optional[str]:
        """Wait for the device, append a row to the file and begin anew; returns the file's path.

        >>> event_timer.flush()
        './logs/event_timer_rank0.csv'
        """
        if not self.enabled:
            return None
        self._wait()
        with self._lock:
            events, self._events = self._events, {}
            cpu, self._cpu = self._cpu, []
            shapes, self._shapes = self._shapes, {}
            self.flush_count += 1
            row = _row(self.flush_count, events, cpu, shapes)
            folder = os.environ.get("LOG_DIR") or "./logs"
            path = os.path.join(folder, f"event_timer_rank{_job.rank()}.csv")
            try:
                _files.make_folder(folder)
                _append(path, row)
            except (OSError, ValueError, csv.Error) as why:
                _messages.warn_once(f"'{path}' cannot be written: {_messages.words(why)}")
                return None
        return path


def _group_stream(group: Any, name: str, module: Any) -> Any:
    """The stream on which a process group communicates, of the device that this process uses; None
    where the group does not say, as NCCL's does not. There is no public name for it."""
    index = module.current_device()
    ask = getattr(group._get_backend(sys.modules["torch"].device(name)), "_get_stream_id", None)
    if ask is None:
        _messages.warn_once(
            "event_timer: the process group does not say on which stream it communicates; "
            "events are of the current stream"
        )
        return None
    kind = module.current_stream().device_type
    return module.Stream(stream_id=ask(False), device_index=index, device_type=kind)


def _times(events: List[Any]) -> List[float]:
    return [begin.elapsed_time(end) for begin, end in zip(events[::2], events[1::2])]


def _device_name() -> str:
    used = device.accelerators_in_use()
    return f"{used[0][0]}:{used[0][1].current_device()}" if used else "cpu"


def _row(
    count: int, events: Dict[str, List[Any]], cpu: List[float], shapes: Dict[str, str]
) -> Dict[str, str]:
    row = {
        "timestamp": time.strftime("%Y-%m-%d %H:%M:%S"),
        "flush_count": str(count),
        "device": _device_name(),
    }
    for label, marks in events.items():
        try:
            times = _times(marks)
        except Exception as why:
            row[f"{label}_status"] = _messages.words(why)
            continue
        if times:
            row[f"{label}_max_ms"] = f"{max(times):.3f}"
            row[f"{label}_min_ms"] = f"{min(times):.3f}"
            row[f"{label}_avg_ms"] = f"{sum(times) / len(times):.3f}"
            row[f"{label}_times_ms"] = ";".join(f"{t:.3f}" for t in times)
        if len(marks) % 2:
            row[f"{label}_status"] = "unpaired"
    if len(cpu) >= 2:
        row["cpu_time_ms"] = f"{(cpu[1] - cpu[0]) * 1000:.3f}"
    for label, shape in shapes.items():
        row[f"{label}_shape"] = shape
    return row


def _append(path: str, row: Dict[str, str]) -> None:
    """One row more. Columns that come for the first time are added behind the others, and the file
    is written anew with them: every row has the columns of the header."""
    try:
        with _files.open_regular(path, ours=True) as f:
            rows = list(csv.reader(io.TextIOWrapper(f, encoding="utf-8", newline="")))
    except FileNotFoundError:
        rows = []
    header = rows[0] if rows else []
    new = [column for column in row if column not in header]
    values = [row.get(column, "") for column in header + new]
    if header and not new:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        with _files.open_ours(path) as f:
            f.write(text.getvalue())
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header + new)
    writer.writerows(old + [""] * (len(header) + len(new) - len(old)) for old in rows[1:])
    writer.writerow(values)
    _files.replace_ours(path, text.getvalue().encode())


_patched: Dict[str, Any] = {}  # the function of FSDP2 that is timed, and where it stands


def _patch_all_gather(timer: CUDAEVENT_TIMER, label: str, patch: bool, group: Any) -> None:
    import importlib

    for where, function in _patched.items():
        setattr(sys.modules[where], "foreach_all_gather", function)
    _patched.clear()
    if not patch:
        return
    for package in ("torch.distributed.fsdp._fully_shard", "torch.distributed._composable.fsdp"):
        try:
            collectives = importlib.import_module(package + "._fsdp_collectives")
            users = [collectives, importlib.import_module(package + "._fsdp_param_group")]
            break
        except ImportError:
            continue
    else:
        raise ImportError("this PyTorch has no FSDP2")
    real = collectives.foreach_all_gather

    @functools.wraps(real)
    def timed(*args: Any, **kwargs: Any) -> Any:
        timer.add_event(label, group)
        try:
            return real(*args, **kwargs)
        finally:
            timer.add_event(label, group)

    for module in users:  # the second one has taken the name over
        if getattr(module, "foreach_all_gather", None) is real:
            module.foreach_all_gather = timed
            _patched[module.__name__] = real


event_timer = CUDAEVENT_TIMER(enabled=os.environ.get("PUTILS_EVENT_TIMER") == "1")
