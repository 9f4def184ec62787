# SPDX-License-Identifier: MulanPSL-2.0
"""What the monitor leaves, read by stock libraries: sqlite3, json, openpyxl or else zipfile.

Kernels are rows (name, start, end, device, stream, correlation), marks (name, start, end), times in
ns; names as they are in the files. Totals are {name: [count, microseconds]} with names as people
write them.
"""

import collections
import contextlib
import ctypes
import functools
import glob
import json
import re
import sqlite3
import zipfile
from xml.etree import ElementTree

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


@functools.lru_cache(None)
def demangled(name):
    if not name.startswith("_Z"):
        return name
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_char_p
    plain = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int()))
    return plain.decode() if plain else name


def totals(kernels):
    out = {}
    for name, start, end, *_ in kernels:
        t = out.setdefault(demangled(name), [0, 0.0])
        t[0] += 1
        t[1] += (end - start) / 1000
    return out


def counts(kernels):
    return collections.Counter(demangled(k[0]) for k in kernels)


class Db:
    def __init__(self, where):
        (path,) = glob.glob(f"{where}/*.db")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as c:
            self.sound = c.execute("pragma integrity_check").fetchall() == [("ok",)]
            self.kernels = c.execute(
                "select s.value, t.startNs, t.endNs, t.deviceId, t.streamId, t.connectionId"
                " from TASK t join COMPUTE_TASK_INFO i using (globalTaskId)"
                " join STRING_IDS s on s.id = i.name"
            ).fetchall()
            self.marks = c.execute(
                "select s.value, e.startNs, e.endNs from MSTX_EVENTS e"
                " join STRING_IDS s on s.id = e.message"
            ).fetchall()
            self.calls = c.execute(
                "select e.name, s.value, count(*) from CANN_API c join STRING_IDS s on"
                " s.id = c.name join ENUM_API_TYPE e on e.id = c.type group by 1, 2"
            ).fetchall()
            self.copies = c.execute("select copyKind, bytes from MEMCPY").fetchall()
            self.sets = c.execute("select value, bytes from MEMSET").fetchall()
            self.memory = c.execute("select operation, bytes, address from MEMORY_OP").fetchall()
            self.lost = sum(n for (n,) in c.execute("select lost from ACTIVITY_LOSS"))


class Jsonl:
    def __init__(self, where):
        self.kernels, self.marks, self.lost, self.sound = [], [], 0, True
        for path in sorted(glob.glob(f"{where}/*.jsonl")):
            with open(path) as f:
                lines = f.read().split("\n")
            self.sound = self.sound and not lines.pop()
            for row in map(json.loads, lines):
                self.take(row)

    def take(self, row):
        if row["kind"] == "Kernel":
            keys = ("name", "startNs", "endNs", "deviceId", "streamId", "correlationId")
            self.kernels.append(tuple(row[k] for k in keys))
        elif row["kind"] == "Marker":
            self.marks.append((row["name"], row["startNs"], row["endNs"]))
        elif row["kind"] == "loss":
            self.lost = row["lost"]


# --- workbooks ---


def cells_of_xml(data):
    """Rows of texts. Cells are in order, and none is left out."""
    for row in ElementTree.fromstring(data).iter(MAIN + "row"):
        yield ["".join(c.itertext()) for c in row]


def sheets_by_zip(path):
    with zipfile.ZipFile(path) as z:
        book = ElementTree.fromstring(z.read("xl/workbook.xml"))
        for i, sheet in enumerate(book.iter(MAIN + "sheet"), 1):
            yield sheet.get("name"), cells_of_xml(z.read(f"xl/worksheets/sheet{i}.xml"))


def sheets_by_openpyxl(path):
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True)
    for name in book.sheetnames:
        rows = book[name].iter_rows(values_only=True)
        yield name, (["" if c is None else str(c) for c in row] for row in rows)


class Xlsx:
    def __init__(self, path):
        try:
            import openpyxl

            self.by, sheets = "openpyxl " + openpyxl.__version__, sheets_by_openpyxl
        except ImportError:
            self.by, sheets = "zipfile", sheets_by_zip
        self.kernels, self.marks = [], []
        for name, rows in sheets(path):
            # What has no room in one sheet is in "Kernel (2)" and so on.
            if re.match(r"Kernel\b", name):
                self.kernels += list(rows)[1:]
            elif re.match(r"Marker\b", name):
                self.marks += list(rows)[1:]


def kernel_cells(kernel):
    """How the workbook has it: times are texts, in µs as Python prints them."""
    name, start, end, device, stream, correlation = kernel
    return (
        *(name, str(float(start) / 1000), str(float(end) / 1000), str(device), str(stream)),
        *(str(correlation), round((end - start) / 1000, 3)),
    )


def cells_kernel(row):
    return (*row[:6], round(float(row[7]), 3))
