# SPDX-License-Identifier: MulanPSL-2.0
"""VizTracer for a long run: what it has seen is saved from time to time.

    from putils.trace_manager import TraceManager

    with TraceManager(auto_save_interval=60):
        train()

`sonde stack` gives a timeline of Python's calls without changing the program at all.
"""

import threading
import time
from typing import Any, List, Optional

from . import _files, _messages


def _is_ours(path: str) -> bool:
    """Makes the file: a link, or one of another user, under a name that can be guessed is refused."""
    try:
        _files.open_ours(path, "w").close()
        return True
    except OSError as why:
        _messages.warn(f"no trace is written: {_messages.words(why)}")
        return False


class TraceManager:
    """Traces between start() and stop(), or within the block.

    Every `auto_save_interval` seconds (0 or None: never) trace_auto_0001.json and so on are
    written, each with what came since the last one, and the rest into final_output_file. With
    use_fork_save a child process writes them; else the program waits meanwhile, and calls that
    are under way at that moment are not in any file.

    >>> with TraceManager(auto_save_interval=None, final_output_file="trace.json") as manager:
    ...     train()
    """

    def __init__(
        self,
        auto_save_interval: Optional[float] = 60,
        final_output_file: str = "trace_final.json",
        auto_prefix: str = "trace_auto_",
        tracer_entries: int = 1_000_000,
        verbose: int = 0,
        use_fork_save: bool = True,
    ):
        self.auto_save_interval = auto_save_interval
        self.final_output_file = final_output_file
        self.auto_prefix = auto_prefix
        self.tracer_entries = tracer_entries
        self.verbose = verbose
        self.use_fork_save = use_fork_save
        self.tracer: Any = None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._children: List[Any] = []
        self._saved = 0
        self._started = False

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"[TraceManager] {text}", flush=True)

    def _make_tracer(self) -> Any:
        try:
            from viztracer import VizTracer
        except ImportError:
            raise ImportError(
                "TraceManager needs the package viztracer; `sonde stack` needs none"
            ) from None
        return VizTracer(
            output_file=self.final_output_file,
            verbose=0,
            max_stack_depth=10,
            ignore_frozen=True,
            log_async=True,
            log_gc=False,
            tracer_entries=self.tracer_entries,
        )

    def start(self) -> None:
        """Begins to trace; does nothing if it already does. May follow a stop().

        >>> manager = TraceManager()
        >>> manager.start()
        """
        with self._lock:
            if self._started:
                return
            self.tracer = self.tracer or self._make_tracer()
            self.tracer.start()
            self._started = True
            self._stop.clear()
            if self.auto_save_interval and self.auto_save_interval > 0:
                self._thread = threading.Thread(
                    target=self._save_often, name="putils-trace", daemon=True
                )
                self._thread.start()
                self._say(f"saves every {self.auto_save_interval} s")

    def stop(self) -> None:
        """Ends the trace and writes final_output_file; does nothing if there is none.

        >>> manager.stop()
        """
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            if not self._started:
                return
            self._started = False
            self.tracer.stop()
            self.save(self.final_output_file)
            self.tracer = None
            children, self._children = self._children, []
        for child in children:
            child.join()

    def save(self, output_file: str) -> None:
        """Writes everything that is in the buffer.

        >>> manager.save("so_far.json")
        """
        with self._lock:
            if self.tracer is None:
                raise RuntimeError("TraceManager is not started: call start() first")
            self._say(f"saves {output_file}")
            if _is_ours(output_file):
                self.tracer.save(output_file=output_file)

    def save_now(self, output_file: Optional[str] = None) -> str:
        """Writes what came since the last time, and empties the buffer. Returns the file's name,
        trace_manual_<seconds>.json unless it is given.

        >>> manager.save_now()
        'trace_manual_1794986184.json'
        """
        with self._lock:
            if not self._started:
                raise RuntimeError("TraceManager is not started: call start() first")
            output_file = output_file or f"trace_manual_{int(time.time())}.json"
            if not self.use_fork_save or not self._save_by_child(output_file):
                self.save(output_file)
            return output_file

    def _save_by_child(self, output_file: str) -> bool:
        """The child has a copy of the buffer and writes it while this process goes on."""
        if not _is_ours(output_file):
            return True
        try:
            child = self.tracer.fork_save(output_file=output_file)
        except RuntimeError as why:  # multiprocessing does not fork: Python 3.14, or set so
            _messages.warn_once(f"traces are saved by this process: {_messages.words(why)}")
            return False
        self._say(f"saves the part {output_file}")
        self.tracer.clear()
        self._children = [c for c in self._children if c.is_alive()] + [child]
        return True

    def _save_often(self) -> None:
        while not self._stop.wait(self.auto_save_interval):
            with self._lock:
                if self._stop.is_set() or not self._started:
                    return
                self._saved += 1
                try:
                    self.save_now(f"{self.auto_prefix}{self._saved:04d}.json")
                except Exception as why:
                    _messages.warn_once(f"the trace is not saved: {_messages.words(why)}")

    def __enter__(self) -> "TraceManager":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()
