# SPDX-License-Identifier: MulanPSL-2.0
"""Names, shapes and types of the tensors in safetensors files, from their headers alone: no weight
is read, and neither torch nor safetensors is needed.

    python -m putils.weight MODEL_DIR                    prints, and writes model_shapes.txt
    python -m putils.weight MODEL_DIR --json -o -
"""

import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .. import _files, _messages
from .._support.commands import (
    EXIT_MISSING_INPUT,
    EXIT_OK,
    EXIT_SCHEMA_ERROR,
    CliError,
    Parser,
    run_command,
)

MAX_HEADER = 100_000_000  # what the format allows
DTYPES = {
    "F64": ("torch.float64", 8),
    "F32": ("torch.float32", 4),
    "F16": ("torch.float16", 2),
    "BF16": ("torch.bfloat16", 2),
    "F8_E4M3": ("torch.float8_e4m3fn", 1),
    "F8_E5M2": ("torch.float8_e5m2", 1),
    "F8_E8M0": ("torch.float8_e8m0fnu", 1),
    "C64": ("torch.complex64", 8),
    "I64": ("torch.int64", 8),
    "I32": ("torch.int32", 4),
    "I16": ("torch.int16", 2),
    "I8": ("torch.int8", 1),
    "U64": ("torch.uint64", 8),
    "U32": ("torch.uint32", 4),
    "U16": ("torch.uint16", 2),
    "U8": ("torch.uint8", 1),
    "BOOL": ("torch.bool", 1),
}


class BadFile(ValueError):
    """It is not a safetensors file, or a part of one."""


class Tensor(NamedTuple):
    """One row of the list.

    >>> print(Tensor("lm_head.weight", (2, 3), "torch.bfloat16", 12, "model.safetensors"))
    lm_head.weight | (2, 3) | torch.bfloat16
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str
    bytes: int
    file: str

    def __str__(self) -> str:
        return f"{self.name} | {self.shape} | {self.dtype}"


def _header(path: str) -> Tuple[Dict[str, Any], int]:
    """The header, and how many bytes follow it."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as f:
        size = os.fstat(f.fileno()).st_size
        head = f.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > MAX_HEADER or 8 + length > size:
            raise BadFile(f"'{path}' is not a safetensors file, or was cut off")
        try:
            header = json.loads(f.read(length))
        except (ValueError, RecursionError):
            raise BadFile(f"the header of '{path}' is not JSON") from None
    if not isinstance(header, dict):
        raise BadFile(f"the header of '{path}' is not a table of tensors")
    return header, size - 8 - length


def _tensor(path: str, name: str, row: Any, room: int) -> Tensor:
    wrong = BadFile(f"'{path}': the entry of '{name}' is wrong")
    if not isinstance(row, dict):
        raise wrong
    shape, offsets, dtype = row.get("shape"), row.get("data_offsets"), row.get("dtype")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
    if len(offsets) != 2 or offsets[0] > offsets[1] or not isinstance(dtype, str):
        raise wrong
    if offsets[1] > room:
        raise BadFile(f"'{path}' was cut off: '{name}' lies behind its end")
    word, width = DTYPES.get(dtype, (dtype, 0))
    count = width
    for n in shape:
        count *= n
    if width and count != offsets[1] - offsets[0]:
        raise BadFile(f"'{path}': the size of '{name}' does not fit its shape")
    return Tensor(name, tuple(shape), word, offsets[1] - offsets[0], os.path.basename(path))


def list_tensors(path: "os.PathLike[str]") -> List[Tensor]:
    """The tensors of a file, in the order in which they lie in it.

    >>> list_tensors("model.safetensors")[0].shape
    (32000, 4096)
    """
    path = os.fspath(path)
    header, room = _header(path)
    rows = [(name, row) for name, row in header.items() if name != "__metadata__"]
    found = [(_tensor(path, name, row, room), row["data_offsets"]) for name, row in rows]
    found.sort(key=lambda f: f[1])
    return [tensor for tensor, _ in found]


def files_of(path: "os.PathLike[str]") -> Iterator[str]:
    """The file itself, or every .safetensors file of a folder, in the order of their names.

    >>> list(files_of("model"))
    ['model/model-00001-of-00002.safetensors', 'model/model-00002-of-00002.safetensors']
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            yield os.path.join(path, name)


def _parser() -> Parser:
    parser = Parser(prog="putils.weight", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("path", help="a .safetensors file, or a folder of them")
    add("-o", "--output", default="model_shapes.txt", help="file for the list, one tensor a line; - : no file")
    add("--json", action="store_true", help="print JSON")
    return parser


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count} bytes"
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"


def _print(tensors: Sequence[Tensor], as_json: bool) -> None:
    if as_json:
        rows = [dict(t._asdict(), shape=list(t.shape)) for t in tensors]
        print(json.dumps({"tensors": rows, "bytes": sum(t.bytes for t in tensors)}, indent=1))
        return
    file = None
    for tensor in tensors:
        if tensor.file != file:
            file = tensor.file
            print(f"\nLoading tensors from: {_messages.plain(file)}")
        print(f"Tensor: {_messages.plain(tensor.name)} | Shape: {tensor.shape} | Dtype: {_messages.plain(tensor.dtype)}")
    print(f"\n{len(tensors)} tensors, {_size(sum(t.bytes for t in tensors))}")


def run_cli(argv: Optional[Sequence[str]] = None) -> int:
    """The work of main(); errors are CliError, OSError where the list cannot be written.

    >>> run_cli(["model", "-o", "-"])
    0
    """
    args = _parser().parse_args(argv)
    try:
        tensors = [t for path in files_of(args.path) for t in list_tensors(path)]
    except OSError as why:
        raise CliError(EXIT_MISSING_INPUT, str(why)) from None
    except BadFile as why:
        raise CliError(EXIT_SCHEMA_ERROR, str(why)) from None
    if not tensors and os.path.isdir(args.path):
        raise CliError(EXIT_MISSING_INPUT, f"'{args.path}' has no .safetensors files")
    _print(tensors, args.json)
    if args.output != "-":
        lines = "".join(f"{_messages.plain(t)}\n" for t in tensors)
        _files.replace_ours(args.output, lines.encode("utf-8", "backslashreplace"))
        if not args.json:
            print(f"The list is in {args.output}")
    return EXIT_OK


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command line. Exit status: 0; 2 for wrong options, 10 if a file is missing, 11 if it is not
    a safetensors file, 12 for anything else. The reason is on stderr as ERROR[status].

    >>> main(["model", "-o", "-"])
    0
    """
    return run_command(run_cli, argv)
