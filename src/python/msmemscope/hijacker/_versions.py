# SPDX-License-Identifier: MulanPSL-2.0
"""Versions that an entry of the table is for.

    "0.7.0"      this one
    "2.6+"       this one and later ones
    "2.6-2.9"    from the first to the last of the second's minor version
    "*"          all

An entry for exactly this version counts alone, else all that match.
"""

import re


def parse(text):
    """ "2.6.0+cpu" is (2, 6, 0): of each part the digits at its beginning, three parts."""
    numbers = []
    for part in text.split(".")[:3]:
        digits = re.match(r"\d+", part)
        numbers.append(int(digits.group()) if digits else 0)
    return tuple(numbers + [0] * (3 - len(numbers)))


def is_version(text):
    return isinstance(text, str) and bool(re.match(r"\d", text))


def _matches(key, version):
    if key == "*":
        return True
    if key.endswith("+"):
        return version >= parse(key[:-1])
    first, dash, last = key.partition("-")
    if dash:
        major, minor, _ = parse(last)
        return parse(first) <= version < (major, minor + 1, 0)
    return version == parse(key)


def matching(keys, version):
    """Those of the keys that are for this version."""
    version = parse(version)
    exact = [key for key in keys if key[:1].isdigit() and not re.search(r"[-+]", key)]
    for key in exact:
        if parse(key) == version:
            return [key]
    return [key for key in keys if _matches(key, version)]
