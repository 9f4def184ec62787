# SPDX-License-Identifier: MulanPSL-2.0
"""The notes that torch's caching allocator takes of what it does: switched on, read, thrown away."""

import importlib
import inspect
import os
import threading
import types

MAX_NOTES = 200_000  # that the allocator keeps; some hundred bytes each, a few thousand with stacks
MANY_NOTES = 20_000  # are read again rather than lost


class Notes:
    """The allocator's notes: taken for us, or for the program itself, which we then leave alone."""

    def __init__(self, torch):
        self.torch = torch
        self.pid = os.getpid()
        self.memory = torch.cuda.memory
        self.of_program = False
        self.seen = {}  # index: (how many of its notes were reported, the last of them)
        self.thrown_away = False  # … since the last snapshot

    def why_not(self):
        """"" if there can be any."""
        backend = getattr(self.memory, "get_allocator_backend", lambda: "native")()
        if backend != "native":
            return f"the allocator '{backend}' takes no notes of what it does (native does)"
        take = getattr(self.memory, "_record_memory_history", None)
        names = inspect.signature(take).parameters if take is not None else ()
        if "stacks" not in names or "max_entries" not in names:
            return f"torch {self.torch.__version__} takes no notes with times (2.1 and newer do)"
        return ""

    def mine(self):
        """A forked process has no CUDA of its own, and must not ask for its state."""
        return os.getpid() == self.pid

    def begin(self, stacks):
        enabled = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        self.of_program = bool(enabled and enabled())
        names = inspect.signature(self.memory._record_memory_history).parameters
        self.options = {
            "enabled": "all",
            "context": "alloc" if stacks else None,
            "stacks": "python",
            "max_entries": MAX_NOTES,
        }
        if "clear_history" in names:  # those before it always did
            self.options["clear_history"] = True
        if "skip_actions" in names:  # that it is over is what counts
            self.options["skip_actions"] = ["free_requested"]
        self._take()

    def end(self):
        if not self.of_program and self.mine():
            self.memory._record_memory_history(enabled=None)

    def _take(self):
        if not self.of_program:
            self.memory._record_memory_history(**self.options)

    def read(self, busy=False):
        """What is alive and what has happened. Notes that are ours are thrown away: those of what
        other threads do between the two calls are lost. So while they are busy it is done only
        when there are many."""
        with _WithoutInductor(self.torch):
            snapshot = self.memory._snapshot()
        if not busy or max(map(len, snapshot["device_traces"]), default=0) > MANY_NOTES:
            self._take()
            self.thrown_away = not self.of_program
        return snapshot

    def mark_reported(self):
        """All notes of the last snapshot have been."""
        if self.thrown_away:
            self.seen.clear()
            self.thrown_away = False

    def forget(self, snapshot):
        """These are not to be reported."""
        for index, entries in enumerate(snapshot["device_traces"]):
            self._remember(index, entries)
        self.mark_reported()

    def begins(self, index, entries):
        """Where the notes begin that were not reported yet."""
        count, last = self.seen.get(index, (0, None))
        self._remember(index, entries)
        if last is None:
            return 0
        if count <= len(entries) and _same(entries[count - 1], last):
            return count
        for at in range(len(entries), 0, -1):  # the oldest have been overwritten
            if _same(entries[at - 1], last):
                return at
        return 0

    def _remember(self, index, entries):
        if entries:
            self.seen[index] = (len(entries), entries[-1])


class _WithoutInductor:
    """To read stacks torch asks for its attribute _inductor, which imports all of the compiler: that
    takes seconds, and fails if another thread is importing parts of it. As long as the program has
    not asked for it something else stands there, to this thread; to others it is what they want."""

    def __init__(self, torch):
        self.torch = torch
        self.stand_in = None

    def __enter__(self):
        if "_inductor" not in vars(self.torch):
            self.stand_in = _StandIn(threading.get_ident())
            self.torch._inductor = self.stand_in

    def __exit__(self, kind, value, traceback):
        if self.stand_in is not None and vars(self.torch).get("_inductor") is self.stand_in:
            del self.torch._inductor


class _StandIn(types.ModuleType):
    def __init__(self, thread):
        super().__init__("torch._inductor")
        self.__dict__["_thread"] = thread

    def __getattr__(self, name):
        if threading.get_ident() == self.__dict__["_thread"]:
            raise AttributeError(name)
        return getattr(importlib.import_module("torch._inductor"), name)


def _same(a, b):
    """One note in two snapshots: its time is converted anew for each, and may differ a little."""
    return (
        a["action"] == b["action"]
        and a.get("addr") == b.get("addr")
        and a["size"] == b["size"]
        and abs(a.get("time_us", 0) - b.get("time_us", 0)) < 100
    )
