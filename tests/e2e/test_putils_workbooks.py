# SPDX-License-Identifier: MulanPSL-2.0
"""putils.compare_hooks: logs of tprint() and of hooks as a workbook."""

import json
import re
import sys
import zipfile
from xml.etree import ElementTree

import pip_packages
import pytest
from putils_package import putils  # noqa: F401


QUANTILES = " | ".join(f"q{q} 0.5" for q in (0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 0.001))


def line(name, l1, md5, shape, mean=0.5, quantiles=QUANTILES + " | ", first="[0.1, 0.2]", nan=False):
    return (
        f"'{name}'| l1_norm {l1} | {md5} | torch.float32 | torch.Size({shape}) | continue: True | "
        f"mean {mean} | sum 4.0 | max 1.0 | min 0.0 | {quantiles}Size 8 | Memory size: 0.00 GB | isNan {nan}\n"
        f"{first}\n"
    )


def sheets_by_hand(path):
    """{name: rows}, read without a library of others."""
    main = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    found = {}
    with zipfile.ZipFile(path) as z:
        names = [s.get("name") for s in ElementTree.fromstring(z.read("xl/workbook.xml")).iter(main + "sheet")]
        for n, name in enumerate(names, 1):
            rows = []
            for row in ElementTree.fromstring(z.read(f"xl/worksheets/sheet{n}.xml")).iter(main + "row"):
                cells = {}
                for c in row:
                    column = re.match("[A-Z]+", c.get("r")).group()
                    text = "".join(c.itertext())
                    if c.get("t") == "b":
                        text = text == "1"
                    elif c.get("t") is None:
                        text = float(text)
                    cells[column] = text
                rows.append(cells)
            found[name] = rows
    return found


def by_title(rows):
    titles = rows[0]
    return [{titles[k]: v for k, v in row.items()} for row in rows[1:]]


@pytest.fixture
def logs(tmp_path):
    base = line("[forward]: m.fc1 inputs", 1.5, "aaaaaa", [2, 4])
    base += line("[forward]: m.fc1 inputs", 3.5, "bbbbbb", [2, 8])
    base += "some other line\n" + line("[forward]: enc.fc2 outputs", 3.5, "cccccc", [2, 8], first="[0.1, nan]")
    base += line("only base", "inf", "dddddd", [2], mean="no mean: an error | of torch", nan=True)
    target = line("[forward]: m.fc1 inputs", 3.6, "eeeeee", [2, 8])
    target += line("[forward]: m.fc1 inputs", 1.5, "aaaaaa", [2, 4])
    target += line("[forward]: dec.fc2 outputs", 7.0, "cccccc", [2, 8])
    (tmp_path / "base.log").write_text(base)
    (tmp_path / "target.log").write_text(target)
    (tmp_path / "rules.json").write_text(json.dumps([{"base": r"enc\.(.*)", "target": r"dec.\1"}]))
    return tmp_path


def compare(folder, *words):
    from putils.compare_hooks import main

    return main(["--base-log", str(folder / "base.log"), "--target-log", str(folder / "target.log"),
                 "--output", str(folder / "out.xlsx"), *words])  # fmt: skip


def test_a_workbook_of_two_logs(logs, capsys):
    assert compare(logs, "--mapping", str(logs / "rules.json")) == 0
    said = capsys.readouterr().out
    assert "Parsed entries - base: 4, target: 3\n1 pairs matched by 1 rules\n" in said
    assert "The logs first differ at '[forward]: m.fc1 inputs', row 2 of 4: l1_norm 3.5 and 3.6 (2.8 %)" in said
    sheets = sheets_by_hand(logs / "out.xlsx")
    assert list(sheets) == ["base_parsed", "target_parsed", "comparison", "compare_map"]
    parsed = by_title(sheets["base_parsed"])
    assert parsed[0] == {
        "name": "[forward]: m.fc1 inputs", "hash": "aaaaaa", "dtype": "torch.float32",
        "shape": "torch.Size([2, 4])", "l1_norm": 1.5, "mean": 0.5, "sum": 4.0, "max": 1.0, "min": 0.0,
        "size": 8.0, "is_nan": False, "tensor_preview": "[0.1, 0.2]",
    }  # fmt: skip
    assert parsed[2]["tensor_preview"] == "[0.1, nan]"
    assert parsed[3]["l1_norm"] == "inf" and "mean" not in parsed[3] and parsed[3]["is_nan"]
    rows = by_title(sheets["comparison"])
    key = lambda r: (r["match_type"], r.get("base_row"), r.get("target_row"), r["hash_match"], r["shape_match"])
    assert [key(r) for r in rows] == [
        ("same_name", 1, 2, True, True),  # by shape, though it is the second one there
        ("same_name", 2, 1, False, True),
        ("mapped", 3, 3, True, True),
        ("unmatched", 4, None, False, False),
    ]
    assert rows[2]["target_name"] == "[forward]: dec.fc2 outputs"
    assert rows[2]["l1_norm_diff_pct"] == 50 and rows[1]["l1_norm_diff_pct"] == pytest.approx(100 * 0.1 / 3.6)
    assert rows[3]["base_name"] == rows[3]["target_name"] == "only base"
    assert by_title(sheets["compare_map"]) == [rows[2]]
    with zipfile.ZipFile(logs / "out.xlsx") as z:
        xml = z.read("xl/worksheets/sheet3.xml").decode()
    assert xml.count("<colorScale>") == 5 and 'sqref="J2:J5"' in xml and '<cfvo type="num" val="0.3"/>' in xml


def test_logs_of_every_version_give_the_same_rows(tmp_path):
    """With quantiles, without, and without l1_norm."""
    from putils.compare_hooks import read_log

    new = line("[forward]: a inputs", 1.5, "aaaaaa", [2, 4])
    old = line("[forward]: a inputs", 1.5, "aaaaaa", [2, 4], quantiles="")
    for i, text in enumerate((new, old, old.replace(" l1_norm 1.5 |", ""))):
        (tmp_path / f"{i}.log").write_text("first line\n" + text + "tensor([[1,\n 2]])\n")
    first, second, third = ([e] for e in (read_log(str(tmp_path / f"{i}.log"))[0] for i in range(3)))
    for e in (first, second, third):
        assert (e[0].name, e[0].md5, e[0].dtype, e[0].shape) == (
            "[forward]: a inputs", "aaaaaa", "torch.float32", "torch.Size([2, 4])",
        )  # fmt: skip
        assert (e[0].size, e[0].first, e[0].values["mean"], e[0].is_nan) == (8, "[0.1, 0.2]", 0.5, False)
    assert second[0].values["l1_norm"] == 1.5 and "l1_norm" not in third[0].values


def test_more_rows_than_a_sheet_holds(logs, capsys, monkeypatch):
    from putils._support import xlsx
    from putils.compare_hooks import report

    for module in (xlsx, report):
        monkeypatch.setattr(module, "MAX_ROWS", 4)
    assert compare(logs) == 0
    said = capsys.readouterr().out
    assert "'base_parsed' has the first 3 of 4 rows\n" in said and "'comparison' has" in said
    assert "target_parsed" not in said and len(sheets_by_hand(logs / "out.xlsx")["base_parsed"]) == 4


def test_many_logs(logs, capsys):
    from putils.compare_hooks import main

    words = [f"{n}={logs / f}.log" for n, f in (("x/1", "base"), ("y", "target"), ("z", "base"))]
    assert main(["--logs", *words, "--output", str(logs / "all.xlsx")]) == 0
    names = list(sheets_by_hand(logs / "all.xlsx"))
    assert names == ["x_1_parsed", "y_parsed", "z_parsed", "cmp_x_1_y", "cmp_x_1_z", "cmp_y_z"]
    assert "x/1 and z: 4 pairs, all equal." in capsys.readouterr().out


def test_openpyxl_reads_the_workbook(logs):
    sys.path.insert(0, str(pip_packages.need("openpyxl")))
    try:
        import openpyxl
    finally:
        sys.path.pop(0)
    compare(logs)
    book = openpyxl.load_workbook(logs / "out.xlsx")
    rows = list(book["comparison"].iter_rows(values_only=True))
    assert rows[1][:7] == ("[forward]: m.fc1 inputs",) * 2 + ("same_name", 1, 2, True, True)
    assert len(book["comparison"].conditional_formatting) == 5
    assert book["comparison"].freeze_panes == "A2"


def test_hostile_texts_in_a_workbook(tmp_path):
    from putils._support.xlsx import Sheet, column_letters, sheet_names, workbook

    texts = ["a\x00b", "<&\"'>", "=1+1", "\ud800", "x" * 40000, " spaces ", None, float("nan"), True, 10**20]
    (tmp_path / "a.xlsx").write_bytes(workbook([Sheet("[a]:*?/\\", [["t"]] + [[t] for t in texts])]))
    (rows,) = sheets_by_hand(tmp_path / "a.xlsx").values()
    assert [r.get("A") for r in rows[1:4]] == ["a\ufffdb", "<&\"'>", "=1+1"]
    assert len(rows[5]["A"]) == 32767 and rows[6]["A"] == " spaces " and rows[7] == {}
    assert rows[8]["A"] == "nan" and rows[9]["A"] is True and rows[10]["A"] == 1e20
    names = sheet_names(["a" * 40, "A" * 40, "", "''"])
    assert names[:2] == ["a" * 31, "A" * 29 + "~2"] and names[2:] == ["sheet", "sheet~2"]
    assert column_letters(701) == "ZZ" and column_letters(702) == "AAA"


@pytest.mark.parametrize(
    "rules, words",
    [
        ("{", "is not JSON"),
        ("{}", "is not a list of rules"),
        ('[{"base": "a"}]', "rule 1 of"),
        ('[{"base": "(", "target": "b"}]', "rule 1 of"),
        (None, "No such file"),
    ],
)
def test_bad_rules(logs, capsys, rules, words):
    path = logs / "bad.json"
    if rules is not None:
        path.write_text(rules)
    status = 10 if rules is None else 11
    assert compare(logs, "--mapping", str(path)) == status
    err = capsys.readouterr().err
    assert err.startswith(f"ERROR[{status}] ") and words in err
    assert not (logs / "out.xlsx").exists()


def test_logs_without_tensors_and_bad_words(logs, capsys):
    from putils.compare_hooks import main

    assert compare(logs, "--output", str(logs / "none/out.xlsx")) == 12
    assert capsys.readouterr().err.startswith("ERROR[12] ")
    (logs / "base.log").write_text("nothing\n")
    assert compare(logs) == 11 and "holds no lines of tprint()" in capsys.readouterr().err
    (logs / "base.log").unlink()
    assert compare(logs) == 10 and capsys.readouterr().err.startswith("ERROR[10] ")
    for words in ("", "--base-log a", "--logs a", "--logs a=b --base-log c", "--logs a=b a=c"):
        assert main([*words.split(), "--output", "x.xlsx"]) == 2
        assert capsys.readouterr().err.startswith("ERROR[2] ")
    assert main(["--help"]) == 0
