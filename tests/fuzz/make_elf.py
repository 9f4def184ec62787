#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Writes the well-formed seeds of tests/fuzz/corpus/elf. usage: make_elf.py

A library of one segment that exports _PyRuntime, by either kind of hash table, with section headers
and a symbol table; the same as a program that is not relocated; a map of memory; sys.version.
"""

import os
import struct

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "elf")
BASE = 0x400000
NAMES = [b"", b"_PyRuntime", b"PyCode_Type"]
VERSION = b"\0\0\0\x003.12.1 (main, Jan  1 2024, 12:00:00) [GCC 12.2.0]\0\0\0\0"
MAPS = b"""\
5581a0000000-5581a0001000 r--p 00000000 fe:01 1311          /usr/bin/python3.12
5581a0001000-5581a0002000 r-xp 00001000 fe:01 1311          /usr/bin/python3.12
5581a1000000-5581a1021000 rw-p 00000000 00:00 0             [heap]
7f2b40000000-7f2b40200000 r--p 00000000 00:2c 99 /opt/my env/libpython3.12.so.1.0 (deleted)
7f2b40200000-7f2b40400000 r-xp 00200000 00:2c 99 /opt/my env/libpython3.12.so.1.0 (deleted)
7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0             [stack]
"""


def gnu_hash(name):
    h = 5381
    for c in name:
        h = (h * 33 + c) & 0xFFFFFFFF
    return h


def gnu_table():
    """One bucket; the symbols follow one another in it."""
    bloom, chain = 0, b""
    for i, name in enumerate(NAMES[1:], 1):
        h = gnu_hash(name)
        bloom |= 1 << h % 64 | 1 << (h >> 6) % 64
        chain += struct.pack("<I", h | 1 if i == len(NAMES) - 1 else h & ~1)
    return struct.pack("<4IQI", 1, 1, 1, 6, bloom, 1) + chain


def sysv_table():
    """One bucket: 1, then 2, then none."""
    return struct.pack("<6I", 1, len(NAMES), 1, 0, 2, 0)


def elf(table, tag, base):
    """`base` is the address that the file names: 0 if it is relocated."""
    strings = b"".join(n + b"\0" for n in NAMES)
    sections = b"\0.PyRuntime\0.symtab\0"
    data = bytearray(64 + 2 * 56)

    def add(b):
        data.extend(bytes(-len(data) % 8))
        data.extend(b)
        return len(data) - len(b)

    at_strings = add(strings)
    at_table = add(table)
    at_runtime = add(b"xdebugpy" + VERSION)
    symbols = bytes(24)
    for name in NAMES[1:]:
        symbols += struct.pack("<IBBHQQ", strings.index(name), 0x11, 0, 1, base + at_runtime, 64)
    at_symbols = add(symbols)
    entries = [(5, base + at_strings), (6, base + at_symbols), (tag, base + at_table), (0, 0)]
    at_dynamic = add(b"".join(struct.pack("<QQ", *e) for e in entries))
    at_names = add(sections)
    at_sections = add(
        bytes(64)
        + section(1, 1, base + at_runtime, at_runtime, 64)
        + section(12, 2, 0, at_symbols, len(symbols), link=3, entry=24)
        + section(0, 3, 0, at_strings, len(strings))
        + section(0, 3, 0, at_names, len(sections))
    )
    ident = b"\x7fELF\2\1\1" + bytes(9)
    kind = 2 if base else 3
    data[:64] = ident + struct.pack("<HHIQQQIHHHHHH", kind, 62, 1, 0, 64, at_sections, 0, 64, 56, 2, 64, 5, 4)
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, base, base, len(data), len(data), 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, at_dynamic, base + at_dynamic, 0, 64, 64, 8)
    data[64:176] = load + dynamic
    return bytes(data)


def section(name, kind, addr, offset, size, link=0, entry=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, 3, addr, offset, size, link, 0, 8, entry)


SEEDS = {
    "gnu": elf(gnu_table(), 0x6FFFFEF5, 0),
    "sysv": elf(sysv_table(), 4, 0),
    "fixed": elf(gnu_table(), 0x6FFFFEF5, BASE),
    "maps": MAPS,
    "version": VERSION,
}


def main():
    os.makedirs(CORPUS, exist_ok=True)
    for seed, data in SEEDS.items():
        with open(os.path.join(CORPUS, seed), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
