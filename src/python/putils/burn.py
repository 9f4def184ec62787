#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""A load for every card: endless matrix products, the speed of each card, and which one is slow.

    python -m putils.burn                               until Ctrl-C; a line of TFLOPS every 10 s
    python -m putils.burn --seconds 30 --json           for acceptance tests; exit status 3: a slow card
    python -m putils.burn --device cpu --size 512 --seconds 1

One process for each visible device. The same load is not started twice: a second one says so and
ends with status 0. A card is slow if it reaches less than 90 % of the median of the others.
"""

import sys

if __name__ == "__main__" and not __package__:
    # Run by its path: our folder would come first and hide modules of Python itself (pprint).
    import os
    import runpy

    here = os.path.dirname(os.path.realpath(__file__))
    sys.path = [os.path.dirname(here)] + [
        p for p in sys.path if os.path.realpath(p or os.curdir) != here
    ]
    runpy.run_module("putils.burn", run_name="__main__", alter_sys=True)
    sys.exit()

import argparse
import fcntl
import hashlib
import json
import math
import multiprocessing
import os
import queue
import signal
import stat
import statistics
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _files

DEFAULT_LOCK_DIR = "/tmp/burn_locks"
SLOW_RATIO = 0.90
EXIT_OK, EXIT_FAILED, EXIT_SLOW = 0, 1, 3  # 2: wrong options
VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}
DEFAULT_SIZE = 10000
CPU_SIZE = 1024  # the default size would keep a processor for minutes


class Reading(NamedTuple):
    """What one card has done in an interval; `error` if it has stopped.

    >>> Reading(0, 100, 2e12 * 100, 1.0).tflops
    200.0
    """

    rank: int
    products: int
    flops: float
    seconds: float
    error: str = ""

    @property
    def tflops(self) -> float:
        return self.flops / self.seconds / 1e12 if self.seconds > 0 else 0.0


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The options.

    >>> get_args([]).size
    10000
    """
    parser = argparse.ArgumentParser(prog="putils.burn", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--size", type=int, default=DEFAULT_SIZE, help="rows and columns of the matrices")
    add("--sleep", type=float, default=0.01, help="seconds between two products")
    add("--lock-dir", default=DEFAULT_LOCK_DIR, help="folder for locks; one of yours by default")
    add("--disable-lock", action="store_true", help="start the same load again")
    add("--device", choices=("auto", "npu", "cuda", "cpu"), default="auto", help="what to load")
    add("--dtype", default="float32", help="type of the elements, such as bfloat16")
    add("--seconds", type=float, default=0, help="how long; 0: until it is ended")
    add("--interval", type=float, default=10, help="seconds between two lines of speeds")
    add("--json", action="store_true", help="the last line is JSON")
    args = parser.parse_args(argv)
    if args.size <= 0:
        parser.error("argument --size: must be > 0")
    for name in ("sleep", "seconds", "interval"):
        value = getattr(args, name)
        if not math.isfinite(value) or value < 0 or (name == "interval" and value == 0):
            parser.error(f"argument --{name}: must be a number of seconds")
    return args


def _is_available(torch: Any, name: str) -> bool:
    if name == "npu":
        try:
            import torch_npu  # noqa: F401  adds torch.npu
        except ImportError:
            return False
    module = getattr(torch, name, None)
    return module is not None and bool(module.is_available())


def find_device(torch: Any, wanted: str) -> Tuple[str, int]:
    """(npu, cuda or cpu; how many). A process for a processor is enough: torch uses all cores.

    >>> find_device(torch, "cpu")
    ('cpu', 1)
    """
    if wanted == "cpu":
        return "cpu", 1
    names = ("npu", "cuda") if wanted == "auto" else (wanted,)
    for name in names:
        if _is_available(torch, name):
            # What the visible-devices variable says is in it, unless it names none that exist.
            count = getattr(torch, name).device_count()
            if count > 0:
                return name, count
    raise RuntimeError(f"no {' or '.join(names)} device is available; --device cpu loads the processor")


def train(rank: int, args: argparse.Namespace, device_name: str, results: Any = None) -> None:
    """Loads one card until the time is over, and sends a Reading for each interval.

    >>> train(0, get_args(["--device", "cpu", "--seconds", "1"]), "cpu")
    """
    import torch

    if device_name == "npu":
        import torch_npu  # noqa: F401
    device = torch.device("cpu") if device_name == "cpu" else torch.device(device_name, rank)
    wait = _no_wait if device_name == "cpu" else getattr(torch, device_name).synchronize
    if device_name != "cpu":
        getattr(torch, device_name).set_device(device)
    torch.manual_seed(rank)
    dtype = getattr(torch, args.dtype)
    # Made as float32, since not every type has random numbers on every device.
    x, y = (torch.rand(args.size, args.size, device=device).to(dtype) for _ in range(2))
    z = torch.matmul(x, y)
    wait()
    if results is not None:
        results.put(Reading(rank, 0, 0.0, 0.0))  # ready
    each = 2.0 * args.size**3
    end = time.monotonic() + args.seconds if args.seconds else math.inf
    while time.monotonic() < end:
        products, spent = 0, 0.0
        stop = min(time.monotonic() + args.interval, end)
        while time.monotonic() < stop or not products:
            start = time.monotonic()
            torch.matmul(x, y, out=z)
            wait()
            spent += time.monotonic() - start
            products += 1
            if args.sleep:
                time.sleep(args.sleep)
        if results is not None:
            results.put(Reading(rank, products, products * each, spent))
        if not math.isfinite(float(z[0, 0])):
            raise ArithmeticError("a product of finite numbers is not finite")


def _no_wait() -> None:
    pass


def _child(rank: int, args: argparse.Namespace, device_name: str, results: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    try:
        train(rank, args, device_name, results)
    except BaseException as why:
        text = (str(why).strip() or type(why).__name__).splitlines()[0]
        results.put(Reading(rank, 0, 0.0, 0.0, text))
        results.close()
        results.join_thread()
        os._exit(1)


def slow_cards(tflops: Dict[int, float], ratio: float = SLOW_RATIO) -> List[int]:
    """Cards that reach less than `ratio` of the median of the others.

    >>> slow_cards({0: 100.0, 1: 99.0, 2: 80.0, 3: 101.0})
    [2]
    """
    found = []
    for card, value in tflops.items():
        others = [v for c, v in tflops.items() if c != card]
        if others and value < ratio * statistics.median(others):
            found.append(card)
    return found


def describe(tflops: Dict[int, float], names: Optional[Sequence[str]] = None) -> str:
    """One line: the speed of each card, then the slow one in words.

    >>> describe({0: 100.0, 1: 80.0, 2: 101.0})
    '0: 100.0  1: 80.0  2: 101.0 TFLOPS. Card 1 is slow: 20 % below the others'
    """
    line = "  ".join(f"{card}: {_figure(value)}" for card, value in sorted(tflops.items()))
    line += " TFLOPS"
    for card in slow_cards(tflops):
        others = statistics.median(v for c, v in tflops.items() if c != card)
        line += f". Card {card} is slow: {(1 - tflops[card] / others) * 100:.0f} % below the others"
    return line


def _figure(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _visible_devices(device_name: str) -> str:
    return os.environ.get(VISIBLE.get(device_name, ""), "")


def _task_lock_signature(args: argparse.Namespace, device_name: str, world_size: int) -> str:
    payload = {
        "device_name": device_name,
        "size": args.size,
        "sleep": args.sleep,
        "world_size": world_size,
        "visible_devices": _visible_devices(device_name),
    }
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _acquire_task_lock(lock_dir: str, signature: str) -> Tuple[Optional[int], str]:
    """(descriptor that holds the lock, its path); None if the load runs already."""
    if lock_dir == DEFAULT_LOCK_DIR:
        # /tmp belongs to everybody: another user may have made it first.
        lock_dir = _files.make_private_folder(f"{lock_dir}_{os.geteuid()}")
    _files.make_folder(lock_dir)
    path = os.path.join(lock_dir, f"burn_{signature}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"'{path}' is not a file of ours")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd, path
    except BlockingIOError:
        os.close(fd)
        return None, path
    except BaseException:
        os.close(fd)
        raise


class _Totals:
    """What the cards have done altogether, and in their last intervals."""

    def __init__(self, world_size: int):
        self.world_size = world_size
        self.ready: set = set()
        self.last: Dict[int, Reading] = {}
        self.all: Dict[int, Reading] = {}
        self.errors: Dict[int, str] = {}

    def add(self, r: Reading) -> None:
        if r.error:
            self.errors[r.rank] = r.error
        elif r.products == 0:
            self.ready.add(r.rank)
        else:
            self.last[r.rank] = r
            before = self.all.get(r.rank, Reading(r.rank, 0, 0.0, 0.0))
            done, flops = before.products + r.products, before.flops + r.flops
            self.all[r.rank] = Reading(r.rank, done, flops, before.seconds + r.seconds)

    def tflops(self, readings: Dict[int, Reading]) -> Dict[int, float]:
        return {rank: r.tflops for rank, r in sorted(readings.items())}


def _watch(children: List[Any], results: Any, totals: _Totals) -> None:
    """Prints a line when every card has sent its next reading, until the children have ended."""
    while True:
        alive = any(c.is_alive() for c in children)
        try:
            totals.add(results.get(timeout=0.2))
        except queue.Empty:
            if not alive:
                return
            continue
        if totals.last and len(totals.last) + len(totals.errors) >= totals.world_size:
            print(describe(totals.tflops(totals.last)), flush=True)
            totals.last = {}


def _report(args: argparse.Namespace, device_name: str, totals: _Totals) -> int:
    tflops = totals.tflops(totals.all)
    slow = slow_cards(tflops)
    if args.json:
        print(
            json.dumps(
                {
                    "device": device_name,
                    "size": args.size,
                    "dtype": args.dtype,
                    "tflops": {str(card): round(value, 6) for card, value in tflops.items()},
                    "slow": slow,
                    "errors": {str(card): why for card, why in sorted(totals.errors.items())},
                }
            )
        )
    elif tflops:
        print("Altogether: " + describe(tflops))
    for card, why in sorted(totals.errors.items()):
        print(f"ERROR[{EXIT_FAILED}] card {card} has failed: {why}", file=sys.stderr)
    if totals.errors or not tflops:
        return EXIT_FAILED
    return EXIT_SLOW if slow else EXIT_OK


def burn(args: argparse.Namespace, device_name: str, world_size: int) -> int:
    """Loads all cards, each by a process of its own; the exit status.

    >>> burn(get_args(["--device", "cpu", "--size", "512", "--seconds", "1"]), "cpu", 1)
    0
    """
    # Not fork: a device that this process has asked about cannot be used in a fork.
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    totals = _Totals(world_size)
    children = [
        context.Process(target=_child, args=(rank, args, device_name, results), daemon=True)
        for rank in range(world_size)
    ]
    ended = False
    try:
        asked = signal.signal(signal.SIGTERM, _interrupt)
    except ValueError:  # not the main thread
        asked = None
    try:
        for child in children:
            child.start()
        _watch(children, results, totals)
    except KeyboardInterrupt:
        ended = True  # how an endless load stops
    finally:
        for child in children:
            if child.is_alive():
                child.terminate()
        for child in children:
            if child.pid is not None:
                child.join()
        if asked is not None:
            signal.signal(signal.SIGTERM, asked)
    for rank, child in enumerate(children):
        if child.exitcode and not ended and rank not in totals.errors:
            totals.errors[rank] = f"its process ended with {child.exitcode}"
    return _report(args, device_name, totals)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _ask_torch(args: argparse.Namespace) -> Tuple[str, int]:
    try:
        import torch
    except ImportError:
        raise RuntimeError("burn needs the package torch") from None
    if not isinstance(getattr(torch, args.dtype, None), torch.dtype):
        raise RuntimeError(f"--dtype: torch has no '{args.dtype}'")
    return find_device(torch, args.device)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command line.

    >>> main(["--device", "cpu", "--size", "512", "--seconds", "1"])
    0
    """
    args = get_args(argv)
    try:
        # The processor is there without asking torch, which takes seconds to import.
        device_name, world_size = ("cpu", 1) if args.device == "cpu" else _ask_torch(args)
        if device_name == "cpu" and args.size == DEFAULT_SIZE:
            args.size = CPU_SIZE
        lock = None
        if not args.disable_lock:
            signature = _task_lock_signature(args, device_name, world_size)
            lock, path = _acquire_task_lock(args.lock_dir, signature)
            if lock is None:
                print(f"Skip launching: same burn task already running (lock: {path}).")
                return EXIT_OK
        print(f"Launching {world_size} processes on {device_name} devices. Start burning...", flush=True)
        try:
            return burn(args, device_name, world_size)
        finally:
            if lock is not None:
                os.close(lock)
    except (OSError, RuntimeError) as why:
        print(f"ERROR[{EXIT_FAILED}] {why}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
