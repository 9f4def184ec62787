# SPDX-License-Identifier: MulanPSL-2.0
"""What torch's own caching allocator reports about its memory (CUDA).

Under the msmemscope command a preloaded library sees each block as the allocator hands it out, and
nothing is to be done here but to make sure of that. In a program without that library, and where the
allocator does not call it, its notes are read:

While recording, the allocator itself notes down what it does, with times and, of allocations, Python
stacks. The notes are read several times in a second, for snapshots, when memory is refused and at
the end; they become events with the times that they have, and the recorder puts them between those
of everybody else. Afterwards what is alive by these events is compared with what the allocator says,
to the byte: what was missed, because notes were overwritten or thrown away, is made up for and
counted.

Pools: TORCH is what tensors get (bytes as they were asked for), CUDA what the allocator has from the
driver, if nobody else reports that. The reserved bytes of TORCH are those of CUDA.
"""

import bisect
import functools
import threading
import time

from . import _devices, _fork, _imports, _messages, _missing
from ._control import native
from ._cuda.notes import Notes

# Everything else waits a second for what is still to come from here, not longer. Reading lists all
# blocks that are alive: where those are many it is done the less often.
STEP_S = 0.2  # the end of a step is an occasion to read if this is how long ago it was done
IDLE_S = 0.5  # and without one this is
SHARE = 0.05  # of the time, at most
HOOK = "libsonde_cuda_hook.so"

_lock = _fork.lock(globals())
_importer = None  # while enabled
_hook = None
_queued = False  # torch calls back when CUDA is there


def wanted(settings):
    on_device = settings["npu_all"] or settings["npu_slots"]
    return bool(on_device and settings["events"] & native().EVENT_ALLOC)


def enable(settings):
    global _importer, _hook
    with _lock:
        if _importer is None:
            _importer = Importer(native())
        _importer.depth = settings["py_depth"]
        _importer.enabled = True
    _hook = _imports.when_imported("torch", _on_torch)


def disable():
    global _hook
    if _hook is not None:
        _hook.cancel()
        _hook = None
    with _lock:
        if _importer is not None:
            _importer.end()


def sync():
    """Everything that has happened by now is reported."""
    with _lock:
        if _importer is not None:
            _importer.read()


def before_step():
    if _importer is not None and _importer.is_due(STEP_S):
        sync()


def cost():
    """(events, seconds): what reading the notes has taken so far."""
    return (_importer.events, _importer.seconds) if _importer is not None else (0, 0.0)


def _on_torch(torch):
    """As soon as the program puts something on a device, or now, if it has already."""
    global _queued
    cuda = getattr(torch, "cuda", None)
    if not hasattr(cuda, "_lazy_call"):
        return
    if cuda.is_initialized():
        _on_cuda(torch)
    elif not _queued:
        cuda._lazy_call(lambda: _on_cuda(torch))
        _queued = True


def _on_cuda(torch):
    try:
        with _lock:
            if _importer is not None and _importer.enabled:
                _importer.begin(torch)
    except Exception as why:  # torch would turn it into a failed start of CUDA
        _messages.warn_once(f"memory of CUDA is not recorded: {_messages.describe(why)}")


class Device:
    """What is alive on one device, by what has been reported."""

    def __init__(self, number):
        self.number = number  # on this machine
        self.live = {}  # address: bytes
        self.live_bytes = 0
        self.waiting = {}  # address: stack of who asked for its end
        self.segments = {}  # address: bytes
        self.last_ns = 0


class Importer:
    """Turns notes of the allocator into events. Its methods are called under one lock."""

    def __init__(self, sonde):
        self.sonde = sonde
        self.depth = 0
        self.enabled = False
        self.devices = {}  # index: Device
        self.events = self.missed = 0
        self.seconds = 0.0
        self.torch = None  # while a preloaded library reports its blocks
        self.notes = None  # Notes, while they are taken
        self.read_at = self.read_took = 0.0

    # --- the allocator's side ---

    def begin(self, torch):
        if self.notes is not None or self.torch is not None:
            return
        if _missing.is_loaded(HOOK) and (_backend(torch) != "native" or self._is_hooked(torch)):
            self.torch = torch  # otherwise blocks of other allocators are the driver's own
            _watch_for_refusals(torch)
            _Pacer.start()
            return
        notes = Notes(torch)
        why_not = notes.why_not()
        if why_not:
            _messages.warn_once(f"allocations on CUDA are not recorded, snapshots are: {why_not}")
            return
        self._take_notes(torch, notes)

    def _take_notes(self, torch, notes):
        notes.begin(bool(self.depth))
        try:
            self.notes = notes
            self.take_over(notes.read())
        except BaseException:
            self.notes = None
            notes.end()
            raise
        _watch_for_refusals(torch)
        _Pacer.start()

    def _is_hooked(self, torch):
        """Are blocks reported as they are handed out? Unless there are some, and none was."""
        return self.sonde.torch_blocks() > 0 or not _has_allocated(torch)

    def verify(self):
        """Whether that is known by now."""
        torch = self.torch
        if torch is None or _backend(torch) != "native" or self.sonde.torch_blocks():
            return True
        if not self._is_hooked(torch):  # another libc10, or one that calls its own functions
            self.torch = None
            notes = Notes(torch)
            if not notes.why_not():
                self._take_notes(torch, notes)
            return True
        return False

    def end(self):
        self.enabled = False
        _Pacer.stop()
        self.torch = None
        if self.notes is None:
            return
        try:
            self.read()
        finally:
            self.notes.end()
            self.notes = None
            self.sonde.history_until(0)
        if self.missed:
            _messages.warn(
                f"{self.missed} notes of torch's caching allocator were missed; what is alive was "
                "put right, but their times and stacks are not known"
            )
            self.missed = 0

    def read(self, busy=False):
        if self.notes is None or not self.notes.mine():
            return
        begin = time.perf_counter()
        self.report(self.notes.read(busy), self.notes)
        self.notes.mark_reported()
        self.read_at = time.perf_counter()
        self.read_took = self.read_at - begin
        self.seconds += self.read_took

    def is_due(self, seconds):
        since = time.perf_counter() - self.read_at
        return self.notes is not None and since >= max(seconds, self.read_took / SHARE)

    # --- events ---

    def device(self, index):
        if index not in self.devices:
            self.devices[index] = Device(_devices.number_of("cuda", index))
        return self.devices[index]

    def take_over(self, snapshot):
        """What is alive when recording begins: when it was allocated is not known."""
        by_device = _segments(snapshot)
        for index in set(by_device) | set(self.devices):
            self._repair(self.device(index), by_device.get(index, ()))
        if self.notes is not None:
            self.notes.forget(snapshot)
        # From now on others wait for what the allocator does; and the caller is the thread
        # whose labels it gets.
        self.sonde.history_until(time.monotonic_ns())

    def report(self, snapshot, notes=None):
        """The notes of a snapshot that were not reported yet, and then whatever is missing."""
        now_ns = time.monotonic_ns()
        offset = time.time_ns() - now_ns
        for index, entries in enumerate(snapshot["device_traces"]):
            if not entries:
                continue
            device = self.device(index)
            begin = notes.begins(index, entries) if notes is not None else 0
            events, missed, grown, device.last_ns = self.sonde.history(
                entries,
                begin=begin,
                depth=self.depth,
                device=device.number,
                live=device.live,
                waiting=device.waiting,
                segments=device.segments,
                unmap=functools.partial(self._unmap, device),
                wall_minus_mono_ns=offset,
                last_ns=device.last_ns,
                now_ns=now_ns,
            )
            device.live_bytes += grown
            self.events += events
            self.missed += missed
        by_device = _segments(snapshot)
        for index in set(by_device) | set(self.devices):
            device, segments = self.device(index), by_device.get(index, ())
            if not _agrees(device, segments):
                self.missed += self._repair(device, segments)
        self.sonde.history_until(now_ns)

    def _unmap(self, device, address, size, ns):
        """Gives back a part of what was mapped: the rest of the pieces that it cuts stays."""
        pool, end = self.sonde.POOL_CUDA, address + size
        for start, bytes_ in _overlapping(device.segments, address, end):
            del device.segments[start]
            self.sonde.history_free(start, bytes_, device.number, pool, ns)
            for left, right in ((start, address), (end, start + bytes_)):
                if left < right:
                    device.segments[left] = right - left
                    self.sonde.history_alloc(
                        left, right - left, device.number, pool, ns, None, 0
                    )

    def _repair(self, device, segments):
        """Makes what is alive equal to what the allocator says; how many events it took."""
        made = self._repair_segments(device, segments)
        blocks = {}
        for segment in segments:
            for address, block in _blocks(segment):
                blocks[address] = (_requested(block), block.get("frames"))
        pool = self.sonde.POOL_TORCH
        for address in [a for a, size in device.live.items() if blocks.get(a, (-1,))[0] != size]:
            self.sonde.history_free(address, device.live.pop(address), device.number, pool, 0)
            device.waiting.pop(address, None)
            made += 1
        for address, (size, frames) in blocks.items():
            if address not in device.live:
                self.sonde.history_alloc(
                    address, size, device.number, pool, 0, frames, self.depth
                )
                device.live[address] = size
                made += 1
        device.live_bytes = sum(device.live.values())
        return made

    def _repair_segments(self, device, segments):
        """Pieces that were mapped one after the other are one segment to the allocator."""
        pool, made = self.sonde.POOL_CUDA, 0
        said = {s["address"]: s["total_size"] for s in segments}
        if _joined(device.segments) == _joined(said):
            return 0
        for address in [a for a, size in device.segments.items() if said.get(a) != size]:
            size = device.segments.pop(address)
            self.sonde.history_free(address, size, device.number, pool, 0)
            made += 1
        for address, size in said.items():
            if address not in device.segments:
                device.segments[address] = size
                self.sonde.history_alloc(address, size, device.number, pool, 0, None, 0)
                made += 1
        return made


def _backend(torch):
    return getattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")()


def _has_allocated(torch):
    devices = _devices.Accelerator("cuda", torch.cuda).used()
    return any(torch.cuda.memory_stats(i).get("allocation.all.allocated", 0) for i in devices)


def _segments(snapshot):
    by_device = {}
    for segment in snapshot["segments"]:
        by_device.setdefault(segment["device"], []).append(segment)
    return by_device


def _requested(block):
    return block.get("requested_size", block["size"])


def _blocks(segment):
    """(address, block) of those that are in use, or still used by a stream."""
    address = segment["address"]
    for block in segment["blocks"]:
        at = block.get("address", address)
        if block["state"].startswith("active"):
            yield at, block
        address = at + block["size"]


def _joined(pieces):
    """[(begin, end)] of what pieces, {address: bytes}, cover."""
    joined = []
    for address, size in sorted(pieces.items()):
        if joined and joined[-1][1] == address:
            joined[-1][1] = address + size
        else:
            joined.append([address, address + size])
    return joined


def _overlapping(pieces, begin, end):
    order = sorted(pieces)
    at = max(bisect.bisect_right(order, begin) - 1, 0)
    return [
        (a, pieces[a]) for a in order[at : bisect.bisect_left(order, end)] if a + pieces[a] > begin
    ]


def _agrees(device, segments):
    """By sums: equal unless something is missing, and cheap."""
    try:
        requested = sum(s["requested_size"] for s in segments)
    except KeyError:  # before 2.1
        requested = sum(_requested(b) for s in segments for _, b in _blocks(s))
    reserved = sum(s["total_size"] for s in segments)
    return requested == device.live_bytes and reserved == sum(device.segments.values())


class _Pacer:
    """Reads the notes of programs that do not call step(), before they are overwritten."""

    thread = None
    leave = None

    @classmethod
    def start(cls):
        if cls.thread is None or not cls.thread.is_alive():
            cls.leave = threading.Event()
            cls.thread = threading.Thread(
                target=cls._run, args=(cls.leave,), name="msmemscope", daemon=True
            )
            cls.thread.start()

    @classmethod
    def stop(cls):
        if cls.leave is not None:
            cls.leave.set()
        cls.thread = cls.leave = None

    @staticmethod
    def _run(leave):
        while not leave.wait(IDLE_S / 2):
            try:
                with _lock:
                    if leave.is_set() or _importer is None:
                        return
                    if _importer.notes is None and _importer.verify() and _importer.notes is None:
                        return
                    if _importer.is_due(IDLE_S):
                        _importer.read(busy=True)
            except Exception as why:
                _messages.warn_once(f"memory of CUDA is read too late: {_messages.describe(why)}")
                return


_observed = False


def _watch_for_refusals(torch):
    global _observed
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if _observed or attach is None:
        return
    native().on_oom(_on_refusal)
    attach(native().oom_observer)  # for good: torch has no way back
    _observed = True


def _on_refusal(index, size):
    """Before the refusal is reported: what led to it, and how things are. The device's number."""
    from . import snapshot

    if native().tracing():
        sync()
        snapshot.take_snapshot(index, "OOM_Snapshot")
    return _devices.number_of("cuda", index)


@_fork.in_child
def _forget_cuda():
    """It is the parent's, and so is the thread that reads its notes."""
    global _importer
    _importer = None
    _Pacer.thread = _Pacer.leave = None
