# SPDX-License-Identifier: MulanPSL-2.0
"""Tensors of every module of a model, and where two runs of it first differ.

    from putils.accuracy import hook_for_model, hookt_dump

    handles = hook_for_model(model)             # inputs, outputs and gradients of every module
    hookt_dump("hidden", hidden, dump_dir="/data/run1")

    python3 -m putils.accuracy run1.log run2.log

The hooks work where the environment has TSJPRINT=1. The command exits with 0 if the runs are equal,
1 if they differ, 2 if it cannot read them.
"""

import os
import re
import sys
import threading
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from . import _differences, _files, _job, _messages, _tensors, pprint
from ._differences import Difference
from ._support.gradients import add_gradient_hooks

__all__ = [
    "Difference",
    "compare_live",
    "first_difference",
    "hook_for_model",
    "hookt",
    "hookt_dump",
    "record_rank",
]

_DEFAULT_RANK = 1
record_rank = _DEFAULT_RANK  # the rank whose tensors hookt() and hookt_dump() show


def _records() -> bool:
    """Whether this process is the one that records. Without torch.distributed it is the only one,
    and records unless record_rank was set to another rank than 0."""
    rank = _job.rank()
    return rank == record_rank or (rank < 0 and record_rank in (-1, 0, _DEFAULT_RANK))


def _guard(what: str, function: Any, *args: Any) -> Any:
    """Calls a function; its failure is said, and does not reach the training loop."""
    try:
        return function(*args)
    except Exception as why:
        _messages.warn_once(f"{what}: {_messages.words(why)}")
        return None


# Modules


def _print_structure(model: Any, names: List[str]) -> None:
    lines = [f"modules of {type(model).__name__}, to be copied into include_list:", "["]
    lines += [f"    {name!r}," for name in names]
    pprint.log_or_print("\n".join(lines + ["]"]))


def _chosen(
    names: List[str], include: Optional[Iterable[str]], exclude: Optional[Iterable[str]]
) -> List[str]:
    wanted, without = list(include or []), list(exclude or [])
    for name in [n for n in wanted + without if n not in names]:
        pprint.log_or_print(f"hook_for_model: the model has no module '{name}'")
    left = [n for n in names if n in wanted] if wanted else names
    return [n for n in left if n not in without]


def _add_hooks(name: str, module: Any) -> List[Any]:
    def show(direction: str, before: Any, after: Any) -> None:
        pprint.aprint(f"[{direction}]: {name} input", before)
        pprint.aprint(f"[{direction}]: {name} output", after)

    def forward(_module: Any, inputs: Any, outputs: Any) -> None:
        _guard(f"[forward]: {name}", show, "forward", inputs, outputs)

    def backward(grad_inputs: Any, grad_outputs: Any) -> None:
        _guard(f"[backward]: {name}", show, "backward", grad_inputs, grad_outputs)

    return [
        module.register_forward_hook(forward),
        add_gradient_hooks(f"[backward]: {name}", module, backward),
    ]


def hook_for_model(
    model: Any,
    include_list: Optional[Sequence[str]] = None,
    exclude_list: Optional[Sequence[str]] = None,
    print_structure: bool = True,
) -> List[Any]:
    """Print what goes into and comes out of the modules of a model, forward and backward.

    include_list    the modules by name; None: all but the model itself
    exclude_list    modules to leave out
    print_structure print the names first, in a form to be copied

    Returns the handles of the hooks: handle.remove() ends one. Without TSJPRINT=1 there are none.

    >>> handles = hook_for_model(model, exclude_list=["embedding"])
    """
    if not _job.ifdebug():
        return []
    try:
        modules = {name: module for name, module in model.named_modules() if name}
    except Exception as why:
        _messages.warn(
            f"hook_for_model: {type(model).__name__} has no modules: {_messages.words(why)}"
        )
        return []
    if print_structure:
        _print_structure(model, list(modules))
    handles: List[Any] = []
    for name in _chosen(list(modules), include_list, exclude_list):
        handles += _guard(f"hook_for_model: {name}", _add_hooks, name, modules[name]) or []
    return handles


# Tensors


def safe_name(name: str) -> str:
    """A name as part of a file's: other characters than 0-9A-Za-z_.- become one underscore.

    >>> safe_name("layer 3/attn: q")
    'layer_3_attn_q'
    """
    return re.sub(r"[^0-9A-Za-z_.-]+", "_", str(name))


def _dump_file(name: str, number: int, ending: str) -> str:
    return f"{safe_name(name)}{f'.{number}' if number > 1 else ''}.{ending}.pt"


_numbers: Dict[Tuple[str, str], int] = {}  # the last of each folder and safe name
_numbers_lock = threading.Lock()
_ENDINGS = {"forward": "forward_tensor", "backward": "backward_grad"}


def _take_number(folder: str, name: str) -> int:
    """Which of the dumps of this name it is, from 1 on: one that no file has. A tensor and its
    gradient have the same."""
    key = os.path.abspath(folder), safe_name(name)
    with _numbers_lock:
        number = _numbers.get(key, 0) + 1
        files = [_dump_file(name, number, e) for e in _ENDINGS.values()]
        while any(os.path.lexists(os.path.join(folder, file)) for file in files):
            number += 1
            files = [_dump_file(name, number, e) for e in _ENDINGS.values()]
        _numbers[key] = number
    return number


def _place(mine: str, folder: str, name: str, number: int, ending: str) -> str:
    """Gives a complete file its name, or the next one that is free; returns that."""
    while True:
        file = _dump_file(name, number, ending)
        path = os.path.join(folder, file)
        try:
            os.link(mine, path)
            os.unlink(mine)
            return file
        except FileExistsError:
            number += 1
        except OSError:  # a file system without links
            if not os.path.lexists(path):
                os.rename(mine, path)
                return file
            number += 1


def _save(folder: str, name: str, number: int, phase: str, tensor: Any, raw: Any) -> None:
    """One file, complete or not there, and its name in the list of the dumps' order."""
    torch = sys.modules["torch"]
    if _tensors._storage_bytes(raw) > raw.numel() * raw.element_size():
        raw = raw.clone()  # a part of something larger, which would be written with it
    held = {
        "name": name,
        "phase": phase,
        "shape": tuple(tensor.shape),
        "dtype": str(tensor.dtype),
        "device": str(tensor.device),
        "tensor": raw,
    }
    _files.make_folder(folder)
    ending = _ENDINGS[phase]
    mine = _dump_file(name, number, ending) + f".{os.getpid()}.{threading.get_ident()}.new"
    mine = os.path.join(folder, mine)
    try:
        with _files.open_ours(mine, "wb") as f:
            # By its path torch writes the file itself, without Python in between.
            torch.save(held, f"/proc/self/fd/{f.fileno()}")
        file = _place(mine, folder, name, number, ending)
    except BaseException:
        if os.path.exists(mine):
            os.unlink(mine)
        raise
    with _files.open_ours(os.path.join(folder, _differences.ORDER_FILE)) as f:
        f.write(file + "\n")


def _show_and_save(name: str, number: int, phase: str, tensor: Any, folder: Optional[str]) -> None:
    """The file of a large tensor is written while its checksum and its statistics are computed."""
    label = f"[{phase}]: {name}"
    md5 = _job.wants_md5() or bool(folder)  # a file needs the copy
    views = _tensors.slices(tensor, label)
    reading = _tensors.Reading(tensor, label, views, md5, _job.wants_quantiles())
    writer = None
    if folder and reading.copy is not None:
        raw = reading.copy.raw
        args = (f"'{name}' is not saved", _save, folder, name, number, phase, tensor, raw)
        writer = threading.Thread(target=_guard, args=args, name="putils dump")
        try:
            if raw.numel() * raw.element_size() < _tensors.THREAD_BYTES:
                raise RuntimeError("not worth a thread")
            writer.start()
        except RuntimeError:  # or there can be none
            writer = None
            _guard(*args)
    elif folder:
        _messages.warn_once(f"'{name}' is not saved: {reading.problem}")
    try:
        pprint._print_reading(reading, pprint.log_or_print)
    finally:
        if writer is not None:
            writer.join()


def _want_gradient(tensor: Any, force: bool) -> bool:
    if tensor.requires_grad:
        return True
    if force and tensor.is_leaf and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.requires_grad_(True)
    return tensor.requires_grad


def hookt_dump(
    name: str,
    t: Any,
    dump_forward: bool = True,
    dump_backward: bool = True,
    dump_dir: Optional[str] = None,
    force_requires_grad: bool = True,
) -> Any:
    """Print a tensor now, and its gradient when it is computed; with dump_dir save both.

    dump_forward, dump_backward     which of the two
    dump_dir                        a folder for <name>.forward_tensor.pt and <name>.backward_grad.pt;
                                    the second of a name is <name>.2.forward_tensor.pt, and so on
    force_requires_grad             set requires_grad of a tensor that has none: torch then keeps its
                                    gradient, and refuses to change it in place. False: leave it

    Only on the rank record_rank and with TSJPRINT=1. Returns the handle of the gradient's hook, or
    None where there is none.

    >>> hookt_dump("hidden", hidden, dump_dir="/data/run1")
    """
    if not _job.ifdebug() or not _records():
        return None
    name = str(name)
    if not _tensors.is_tensor(t):
        pprint.tprint(t, name)
        return None
    number = (_guard(name, _take_number, dump_dir, name) or 1) if dump_dir else 1
    if dump_forward:
        _guard(name, _show_and_save, name, number, "forward", t, dump_dir)
    if not dump_backward or not _guard(f"'{name}' has no gradient", _want_gradient, t, force_requires_grad):
        return None

    def show(grad: Any) -> None:
        _guard(name, _show_and_save, name, number, "backward", grad, dump_dir)

    return _guard(f"'{name}' has no gradient", t.register_hook, show)


def hookt(name: str, t: Any) -> Any:
    """Print a tensor now, and its gradient if one is computed. The tensor is not changed: one that
    requires no gradient has none (hookt_dump() asks for it).

    >>> handle = hookt("loss", loss)
    """
    return hookt_dump(name, t, force_requires_grad=False)


# Two runs


def first_difference(a: str, b: str, tolerance: float = 0.0) -> Optional[Difference]:
    """The first tensor of run `a` that is not the same in run `b`; None if all are equal.

    a, b        a log with lines of tprint(), or a folder with logs or with files of hookt_dump()
    tolerance   percent up to which l1_norm, mean, sum, max and min may differ; 0: every bit counts

    FileNotFoundError (and other OSError) if one cannot be read, ValueError if nothing is in it.

    >>> print(first_difference("run1.log", "run2.log").words)
    The runs first differ at '[forward]: layer.3 output', the 17th of 240 tensors: ...
    """
    return _differences.first_of(_differences.read(a), _differences.read(b), tolerance)


def compare_live(name: str = "putils", timeout: float = 60.0, tolerance: float = 0.0) -> Any:
    """Compare this process with another one while both run: a with statement, in both of them.

    name        by which the two processes find each other; ranks find the same rank of the other
    timeout     seconds to wait for the other one, at the beginning and at the end
    tolerance   as of first_difference()

    Every tensor that putils prints is compared; the first that differs is said in both processes
    when it comes. Nobody waits for the other in between.

    >>> with compare_live("bf16 and fp8") as live:
    ...     handles = hook_for_model(model)
    ...     train()
    >>> print(live.difference.words if live.difference else "equal")
    """
    from . import _live

    return _live.LiveComparison(name, timeout, tolerance)


def _parser() -> Any:
    import argparse

    parser = argparse.ArgumentParser(
        prog="python3 -m putils.accuracy",
        description="Where two runs first differ. Exit status: 0 equal, 1 different, 2 unreadable.",
    )
    parser.add_argument("a", help="a log of tprint() and hooks, or a folder with logs or dumps")
    parser.add_argument("b", help="the same of the other run")
    parser.add_argument(
        "--tolerance", type=float, default=0.0, metavar="PERCENT", help="accept so much; default 0"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command python3 -m putils.accuracy; returns its exit status.

    >>> main(["run1.log", "run2.log"])
    1
    """
    options = _parser().parse_args(arguments)
    try:
        first, second = _differences.read(options.a), _differences.read(options.b)
    except (OSError, ValueError, ImportError) as why:
        print(f"putils.accuracy: {_messages.words(why)}", file=sys.stderr)
        return 2
    found = _differences.first_of(first, second, options.tolerance)
    if options.json:
        import json

        answer = {"equal": found is None, "tensors": [len(first), len(second)]}
        print(json.dumps({**answer, **(found._asdict() if found else {})}))
    else:
        equal = f"The runs are equal: {_differences.count(len(first), 'tensor')}."
        print(_messages.plain(found.words if found else equal))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
