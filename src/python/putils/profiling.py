# SPDX-License-Identifier: MulanPSL-2.0
"""The framework's profiler for one function or one block: torch_npu's on NPUs, else torch's.

    from putils.profiling import npu_profiler, profiling_this

    @npu_profiler("update_actor start")
    def update_actor(batch): ...

    with profiling_this(step == 10):         # MM_ENABLE_PROFILING=1 python train.py
        train(batch)

What goes wrong in a profiler is said once; the function and the block run in any case, once.
"""

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator

from . import _files, _messages, device
from ._support.wrapping import F, run_inside

ENABLE_ENV, PATH_ENV = "MM_ENABLE_PROFILING", "MM_ENABLE_PROFILING_PATH"
RESULT_DIR = "./mstx_result"


def _framework() -> Any:
    """torch, imported if need be, or None; with torch_npu where that is installed."""
    try:
        import torch
    except ImportError:
        _messages.warn_once("there is no torch: nothing is profiled")
        return None
    if "torch_npu" not in sys.modules:
        try:
            import torch_npu  # noqa: F401  adds torch.npu
        except ImportError:
            pass
    return torch


def _npu(torch: Any) -> Any:
    """The module torch_npu if there is an NPU to profile."""
    module = sys.modules.get("torch_npu")
    try:
        return module if module is not None and torch.npu.is_available() else None
    except Exception:
        return None


def _synchronize() -> None:
    try:
        device.synchronize()
    except Exception as why:
        _messages.warn_once(f"the device cannot be waited for: {_messages.words(why)}")


def _npu_config(npu: Any, **wanted: Any) -> Any:
    """Options that this version of torch_npu does not know are left out."""
    while True:
        try:
            return npu.profiler._ExperimentalConfig(**wanted)
        except TypeError as why:
            unknown = [name for name in wanted if f"'{name}'" in str(why)]
            if not unknown:
                raise
            del wanted[unknown[0]]


def _make_folder(path: str) -> str:
    """Traces tell what a program does: a new folder is for its user alone. One that is there keeps
    the mode that somebody gave it."""
    return _files.make_folder(path, 0o700)


def _ranges_only(npu: Any, path: str) -> Any:
    """Nothing but the ranges, so that it costs little."""
    p = npu.profiler
    config = _npu_config(
        npu,
        export_type=[p.ExportType.Text, p.ExportType.Db],
        profiler_level=p.ProfilerLevel.Level_none,
        aic_metrics=p.AiCMetrics.AiCoreNone,
        msprof_tx=True,
        mstx_domain_exclude=["communication"],
    )
    return p.profile(
        activities=[p.ProfilerActivity.NPU],
        on_trace_ready=p.tensorboard_trace_handler(_make_folder(path)),
        experimental_config=config,
    )


def _everything(npu: Any, path: str) -> Any:
    p = npu.profiler
    config = _npu_config(
        npu,
        aic_metrics=p.AiCMetrics.PipeUtilization,
        profiler_level=p.ProfilerLevel.Level1,
        data_simplification=False,
        export_type=[p.ExportType.Db],
    )
    return p.profile(
        activities=[p.ProfilerActivity.CPU, p.ProfilerActivity.NPU],
        record_shapes=True,
        profile_memory=True,
        on_trace_ready=p.tensorboard_trace_handler(_make_folder(path)),
        experimental_config=config,
    )


def _torch_profile(torch: Any, path: str, everything: bool) -> Any:
    p = torch.profiler
    activities = [p.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(p.ProfilerActivity.CUDA)
    return p.profile(
        activities=activities,
        record_shapes=everything,
        profile_memory=everything,
        on_trace_ready=p.tensorboard_trace_handler(_make_folder(path)),
    )


@contextmanager
def _npu_range(npu: Any, name: str) -> Iterator[None]:
    mstx = npu.npu.mstx
    mstx.mark(f"{name.split(' ')[0]} init")
    identifier = mstx.range_start(name)
    try:
        yield
    finally:
        mstx.range_end(identifier)


class _Guarded:
    """Contexts of a profiler, entered and left without a word of theirs reaching the program."""

    def __init__(self) -> None:
        self.stack = ExitStack()

    def enter(self, *make: Callable[[], Any]) -> None:
        try:
            for each in make:
                self.stack.enter_context(each())
        except Exception as why:
            _messages.warn_once(f"the profiler cannot be started: {_messages.words(why)}")
            self.leave()

    def leave(self) -> None:
        try:
            self.stack.close()
        except Exception as why:
            _messages.warn_once(f"the profiler has failed: {_messages.words(why)}")


def npu_profiler(range_name: str = "update_actor start") -> Callable[[F], F]:
    """Profiles every call of a function: its range alone on NPUs (mstx), with operators elsewhere.
    The result is in ./mstx_result, which only the user may read.

    >>> @npu_profiler("update_actor start")
    ... def update_actor(batch):
    ...     return model(batch)
    """

    return lambda func: run_inside(func, lambda: _profiled_range(range_name))


@contextmanager
def _profiled_range(name: str) -> Iterator[None]:
    guarded, torch = _Guarded(), _framework()
    npu = _npu(torch) if torch else None
    if npu:
        guarded.enter(lambda: _ranges_only(npu, RESULT_DIR), lambda: _npu_range(npu, name))
    elif torch:
        guarded.enter(
            lambda: _torch_profile(torch, RESULT_DIR, False),
            lambda: torch.profiler.record_function(name),
        )
    try:
        yield
    finally:
        guarded.leave()


def profiling_path() -> str:
    """Where profiling_this() puts its files: MM_ENABLE_PROFILING_PATH, else ./profiling/<time>.

    >>> profiling_path()
    './profiling/2026-03-29_08_30'
    """
    return os.environ.get(PATH_ENV) or time.strftime("./profiling/%Y-%m-%d_%H_%M")


def is_enabled() -> bool:
    """Whether MM_ENABLE_PROFILING is a number other than 0.

    >>> is_enabled()
    False
    """
    text = os.environ.get(ENABLE_ENV, "0").strip() or "0"
    try:
        return int(text) != 0
    except ValueError:
        _messages.warn_once(f"{ENABLE_ENV} is '{text}', which is not a number: nothing is profiled")
        return False


@contextmanager
def profiling_this(encoder_count: Any = True) -> Iterator[None]:
    """Profiles a block if `encoder_count` is true and MM_ENABLE_PROFILING is on, and prints how
    long the block took, device included.

    >>> with profiling_this(step == 10):
    ...     train(batch)
    time cost is: 12.34 ms
    """
    torch = _framework()
    guarded = _Guarded()
    if torch and encoder_count and is_enabled():
        npu, path = _npu(torch), profiling_path()
        guarded.enter(
            lambda: _everything(npu, path) if npu else _torch_profile(torch, path, True)
        )
    _synchronize()
    start = time.perf_counter()
    try:
        yield
        _synchronize()
        spent = time.perf_counter() - start
        print(f"time cost is: {spent * 1000:.2f} ms", flush=True)
    finally:
        guarded.leave()
