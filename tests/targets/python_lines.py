# SPDX-License-Identifier: MulanPSL-2.0
"""Writes the line tables of modules, and what this interpreter itself makes of them.

    pythonX.Y python_lines.py MODULE... >dump

For every code object of each module, all little endian:

    u32 format, u32 bytes of code, i32 first line, u32 bytes of table, the table,
    then for every two bytes of code six times i32: line, end line, column, end column as
    co_positions() says (from 3.11), the line as co_lines() or dis.findlinestarts() says, and as
    PyCode_Addr2Line() says. -1 for None, -2 where this version does not say.

The module named "-" is made up: whatever is rare in real code.
"""

import array
import ast
import dis
import importlib.util
import struct
import sys

LNOTAB, LINETABLE, LOCATIONS = range(3)
NOT_SAID = -2

try:
    import ctypes

    addr2line = ctypes.pythonapi.PyCode_Addr2Line
    addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
    addr2line.restype = ctypes.c_int
except ImportError:
    addr2line = None

RARE = '''
def far(apart):
    a = 1
%(blank)s
    b = (a +
%(blank)s
         apart)
    return [x for x in (a, b) if x and
            x > 1]
async def agen(n):
    async with n as m:
        async for k in m:
            yield await k
    try:
        raise ValueError(
            n)
    except ValueError:
        pass
    finally:
        del n
@far
@far
class C(far(1),
        metaclass=type):
    """doc"""
    def 名前(self, é="ü", *, 键=None): return (self, é, 键, "😀", lambda: self)
wide = [%(wide)s]; after = [%(wide)s]
many = [
%(many)s
]
table = {
%(pairs)s
}
'''


def rare():
    """Long gaps, long lines, lines that go back, code without lines."""
    text = RARE % {
        "blank": "\n" * 700,
        "wide": ", ".join("f%d(x, y)" % i for i in range(400)),
        "many": "\n".join("    call(%d,\n      arg)," % i for i in range(700)),
        "pairs": "\n".join("    'k%d': lambda: (yield)," % i for i in range(300)),
    }
    yield compile(text, "<rare>", "exec")
    yield compile("", "<empty>", "exec")
    yield compile("a if b else c", "<one>", "eval")
    tree = ast.parse(text)
    for i, node in enumerate(ast.walk(tree)):  # more than a byte holds, to and fro
        if hasattr(node, "lineno"):
            node.lineno = 1 + node.lineno * 7919 % (2000 if i % 200 else 300000)
            if hasattr(node, "end_lineno"):
                node.end_lineno = node.lineno + 1 + node.col_offset % 3
    yield compile(tree, "<jumps>", "exec")


def module_code(name):
    spec = importlib.util.find_spec(name)
    return spec.loader.get_code(name)


def all_code(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, type(code)):
            for inner in all_code(const):
                yield inner


def spread(runs, units):
    """Lines of runs (start, end, line) for every two bytes."""
    lines = [-1] * units
    for start, end, line in runs:
        lines[start // 2 : end // 2] = [-1 if line is None else line] * (end // 2 - start // 2)
    return lines


def line_starts(code):
    starts = list(dis.findlinestarts(code))
    ends = [s for s, _ in starts[1:]] + [len(code.co_code)]
    runs = [(s, e, line) for (s, line), e in zip(starts, ends)]
    if not starts or starts[0][0]:  # nothing said about the beginning: it is the first line
        runs.insert(0, (0, starts[0][0] if starts else len(code.co_code), code.co_firstlineno))
    return runs


def said(code):
    """What the interpreter says of every two bytes."""
    units = len(code.co_code) // 2
    if sys.version_info >= (3, 10):
        lines = spread(code.co_lines(), units)
    else:
        lines = spread(line_starts(code), units)
    if hasattr(code, "co_positions"):
        places = [tuple(-1 if v is None else v for v in p) for p in code.co_positions()]
    else:
        places = [(line, NOT_SAID, NOT_SAID, NOT_SAID) for line in lines]
    assert len(places) == units, (code, len(places), units)
    # It begins at the beginning every time: all of the old tables, of which nobody else says much.
    step = 8 if sys.version_info >= (3, 10) else 1
    third = [NOT_SAID] * units
    if addr2line:
        third[::step] = [addr2line(code, 2 * i) for i in range(0, units, step)]
    numbers = array.array("i")
    for i in range(units):
        numbers.extend(places[i])
        numbers.append(lines[i])
        numbers.append(third[i])
    return numbers


def dump(code, out):
    if sys.version_info >= (3, 11):
        kind, table = LOCATIONS, code.co_linetable
    elif sys.version_info >= (3, 10):
        kind, table = LINETABLE, code.co_linetable
    else:
        kind, table = LNOTAB, code.co_lnotab
    out.write(struct.pack("<IIiI", kind, len(code.co_code), code.co_firstlineno, len(table)))
    out.write(table)
    out.write(said(code).tobytes())


def main():
    for name in sys.argv[1:]:
        modules = rare() if name == "-" else [module_code(name)]
        for module in modules:
            for code in all_code(module):
                dump(code, sys.stdout.buffer)


main()
