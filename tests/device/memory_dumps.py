# SPDX-License-Identifier: MulanPSL-2.0
"""Reading what msmemscope has written, for memory.py."""

import csv
import re

csv.field_size_limit(1 << 30)


def attrs(text):
    return dict(re.findall(r"(\w+):((?:[^,:{}]|,(?!\w+:))*)", text.strip("{}")))


def rows_of(where):
    rows = []
    for path in where.rglob("memscope_dump_*.csv"):
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                row["attr"] = attrs(row["Attr"])
                row["file"] = path.parent.parent.name
                rows.append(row)
    return sorted(rows, key=lambda r: (int(r["Timestamp(ns)"]), int(r["ID"])))


def balance(rows):
    """At the end of each step: bytes alive in both pools, and the total of the last event."""
    live = {"TORCH": {}, "CUDA": {}}
    steps = {}
    for row in rows:
        kind = row["Event Type"]
        if kind in live and row["Event"] == "MALLOC":
            live[kind][row["attr"]["allocation_id"]] = int(row["attr"]["size"])
        elif kind in live and row["Event"] == "FREE":
            live[kind].pop(row["attr"]["allocation_id"])
        elif kind == "STEP":
            steps[int(row["Name"])] = {k: sum(v.values()) for k, v in live.items()}
    return steps


def owned_bytes(rows, label):
    """Alive at the end of the last step, and labelled so: the newest label counts."""
    live, owner = {}, {}
    for row in rows:
        a = row["attr"]
        if row["Event"] == "MALLOC" and row["Event Type"] == "TORCH":
            live[a["allocation_id"]] = int(a["size"])
            owner[a["allocation_id"]] = a.get("owner", "")
        elif row["Event"] == "FREE" and row["Event Type"] == "TORCH":
            if a.get("shadow") == "true":  # the process has ended
                owner[a["allocation_id"]] = a.get("owner", owner[a["allocation_id"]])
                continue
            live.pop(a["allocation_id"])
    return sum(size for i, size in live.items() if label in owner[i].split("@"))
