# SPDX-License-Identifier: MulanPSL-2.0
"""Workbooks of Excel, written with the standard library alone: a zip of a few XML files. (The
library that sonde's own xlsx files are written with is in its programs, not in the extension.)"""

import io
import math
import re
import zipfile
from typing import Any, Iterable, List, NamedTuple, Sequence, Tuple
from xml.sax.saxutils import escape, quoteattr

MAX_ROWS, MAX_TEXT, MAX_NAME = 1048576, 32767, 31
# XML cannot hold these; a pair of surrogates can stand alone in Python.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"


class ColorScale(NamedTuple):
    """Colours of a column (from 0) by its numbers: (number, colour) from low to high."""

    column: int
    points: Tuple[Tuple[float, str], ...]


class Sheet(NamedTuple):
    """Rows of str, int, float, bool or None; the first one is the heading."""

    name: str
    rows: Sequence[Sequence[Any]]
    scales: Sequence[ColorScale] = ()


def column_letters(index: int) -> str:
    """
    >>> column_letters(0), column_letters(25), column_letters(26)
    ('A', 'Z', 'AA')
    """
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def sheet_names(wanted: Iterable[str]) -> List[str]:
    """Names that Excel accepts: short, without its special characters, each once.

    >>> sheet_names(["a/b", "a:b"])
    ['a_b', 'a_b~2']
    """
    names: List[str] = []
    taken = set()
    for name in wanted:
        base = re.sub(r"[\\\\/*?:\[\]]", "_", _FORBIDDEN.sub("_", name)).strip("'")[:MAX_NAME] or "sheet"
        name, n = base, 1
        while name.lower() in taken:
            n += 1
            name = base[: MAX_NAME - len(f"~{n}")] + f"~{n}"
        taken.add(name.lower())
        names.append(name)
    return names


def _text_cell(ref: str, text: str, style: str = "") -> str:
    text = escape(_FORBIDDEN.sub("\ufffd", text)[:MAX_TEXT])
    return f'<c r="{ref}"{style} t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'


def _cell(ref: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{ref}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, (int, float)) and math.isfinite(value):
        return f'<c r="{ref}"><v>{value!r}</v></c>'
    return _text_cell(ref, str(value))  # Excel has no inf and no NaN


def _sheet_xml(sheet: Sheet) -> Iterable[str]:
    yield f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    yield '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    yield "</sheetView></sheetViews><sheetData>"
    columns = [column_letters(i) for i in range(max(map(len, sheet.rows), default=0))]
    count = 0
    for number, row in enumerate(sheet.rows[:MAX_ROWS], 1):
        count = number
        yield f'<row r="{number}">'
        for letters, value in zip(columns, row):
            if number == 1:
                yield _text_cell(f"{letters}1", str(value), ' s="1"')
            else:
                yield _cell(f"{letters}{number}", value)
        yield "</row>"
    yield "</sheetData>"
    for priority, scale in enumerate(sheet.scales if count > 1 else (), 1):
        letters = column_letters(scale.column)
        yield f'<conditionalFormatting sqref="{letters}2:{letters}{count}">'
        yield f'<cfRule type="colorScale" priority="{priority}"><colorScale>'
        for value, _ in scale.points:
            yield f'<cfvo type="num" val="{value}"/>'
        for _, color in scale.points:
            yield f'<color rgb="{color}"/>'
        yield "</colorScale></cfRule></conditionalFormatting>"
    yield "</worksheet>"


_PLAIN = 'numFmtId="0" fillId="0" borderId="0"'
_FONT = '<sz val="11"/><name val="Calibri"/>'
_STYLES = (
    f'{_HEAD}<styleSheet xmlns="{_MAIN}">'
    f'<fonts count="2"><font>{_FONT}</font><font><b/>{_FONT}</font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill></fills>'
    "<borders count=\"1\"><border><left/><right/><top/><bottom/><diagonal/></border></borders>"
    f'<cellStyleXfs count="1"><xf {_PLAIN} fontId="0"/></cellStyleXfs>'
    f'<cellXfs count="2"><xf {_PLAIN} fontId="0" xfId="0"/>'
    f'<xf {_PLAIN} fontId="1" xfId="0" applyFont="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles>'
    "</styleSheet>"
)


def _parts(sheets: Sequence[Sheet]) -> Iterable[Tuple[str, str]]:
    """(name, text) of everything but the sheets."""
    numbers = range(1, len(sheets) + 1)
    names = sheet_names(sheet.name for sheet in sheets)
    yield "[Content_Types].xml", (
        f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPES}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_TYPES}.styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{n}.xml" '
            f'ContentType="{_TYPES}.worksheet+xml"/>'
            for n in numbers
        )
        + "</Types>"
    )
    relation = '<Relationship Id="rId{}" Type="' + _OFFICE + '/{}" Target="{}"/>'
    relations = f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
    yield "_rels/.rels", (
        relations + relation.format(1, "officeDocument", "xl/workbook.xml") + "</Relationships>"
    )
    yield "xl/_rels/workbook.xml.rels", (
        relations
        + "".join(relation.format(n, "worksheet", f"worksheets/sheet{n}.xml") for n in numbers)
        + relation.format(len(sheets) + 1, "styles", "styles.xml")
        + "</Relationships>"
    )
    yield "xl/workbook.xml", (
        f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(
            f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="rId{n}"/>'
            for n, name in zip(numbers, names)
        )
        + "</sheets></workbook>"
    )
    yield "xl/styles.xml", _STYLES


def workbook(sheets: Sequence[Sheet]) -> bytes:
    """The bytes of a file; the same ones for the same sheets.

    >>> open("a.xlsx", "wb").write(workbook([Sheet("numbers", [["n"], [1], [2.5]])]))
    """
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as z:

        def put(name: str, text: str) -> None:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            z.writestr(info, text.encode("utf-8"))

        for name, text in _parts(sheets):
            put(name, text)
        for n, sheet in enumerate(sheets, 1):
            put(f"xl/worksheets/sheet{n}.xml", "".join(_sheet_xml(sheet)))
    return held.getvalue()
