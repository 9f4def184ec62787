#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Fails on guest objects that call what tools/banned-imports.txt forbids.

usage: check_imports.py OBJECT_DIR BANNED_FILE; OBJECT_DIR/src/x/y.o is the object of src/x/y.c
"""

import fnmatch
import os
import subprocess
import sys


def load(path):
    banned, allowed = [], []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            words = line.split("#", 1)[0].split()
            if not words:
                continue
            if words[0] != "allow":
                if len(words) != 1:
                    sys.exit(f"{path}:{number}: one symbol a line")
                banned.append(words[0])
            elif len(words) < 4:
                sys.exit(f"{path}:{number}: allow FILE SYMBOL needs a reason")
            else:
                allowed.append((words[1], words[2]))
    return banned, allowed


def objects(top):
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            source = os.path.relpath(os.path.join(folder, name), top)[:-2] + ".c"
            # what is left of a source file that is gone says nothing
            if name.endswith(".o") and os.path.exists(source):
                yield os.path.join(folder, name), source


def imports(path):
    out = subprocess.run(["nm", "-u", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    for line in out.splitlines():
        yield line.split()[-1].split("@")[0]


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__.strip())
    banned, allowed = load(argv[2])
    bad = seen = 0
    for path, source in objects(argv[1]):
        seen += 1
        for symbol in imports(path):
            if not any(fnmatch.fnmatchcase(symbol, b) for b in banned):
                continue
            if any(
                fnmatch.fnmatch(source, f) and fnmatch.fnmatchcase(symbol, s) for f, s in allowed
            ):
                continue
            print(f"{source}: calls {symbol}, which code inside a job may not ({argv[2]})")
            bad += 1
    if not seen:
        print(f"no objects below {argv[1]}: build first")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
