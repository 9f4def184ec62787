# SPDX-License-Identifier: MulanPSL-2.0
"""Rows of every dump below a directory, with their attributes as a dictionary."""

import csv
import re

csv.field_size_limit(1 << 30)


def attributes(text):
    """A value may hold commas, but then no key follows."""
    return dict(re.findall(r"(\w+):((?:[^,]|,(?!\w+:))*)", text.strip("{}")))


def rows_of(directory):
    """In the order of time."""
    rows = []
    for path in sorted(directory.rglob("memscope_dump_*.csv")):
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                row["attr"] = attributes(row["Attr"])
                rows.append(row)
    return sorted(rows, key=lambda r: (int(r["Timestamp(ns)"]), int(r["ID"])))
