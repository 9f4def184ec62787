#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Holds the documents to the tree: links lead somewhere, files and functions named exist, man pages parse.

usage: check_docs.py [ROOT]
"""

import glob
import os
import re
import shutil
import subprocess
import sys

TOPS = "bench docs examples include packaging sim src tests tools".split()
LINK = re.compile(r"\[[^\]\[]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
# A file of ours named in running text or in a command: bench/event_cost.c, tests/e2e/test_kill.py
NAMED = re.compile(r"(?<![\w/.<>$*{}-])((?:%s)/[\w./+-]*\w)(?![\w*<>{$…])" % "|".join(TOPS))
# A function, or a struct: `drain_round()`, `struct err`
CODE = re.compile(r"`(?:(\w+)\(\)|(?:const )?struct (\w+))`")
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.M | re.S)


def documents(root):
    names = glob.glob(os.path.join(root, "*.md"))
    for top in TOPS:
        names += glob.glob(os.path.join(root, top, "**", "*.md"), recursive=True)
    return sorted(names)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def blank(text, pattern):
    """Takes the matches out and keeps the line numbers."""
    return pattern.sub(lambda m: "\n" * m.group(0).count("\n"), text)


def anchors(text):
    """The names that headings get on the web: lower case, words joined by hyphens."""
    seen, out = {}, set()
    for m in re.finditer(r"^#{1,6}\s+(.*?)\s*#*$", blank(text, FENCE), re.M):
        title = LINK.sub(lambda k: k.group(0)[1:].split("](")[0], m.group(1)).lower()
        name = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        out.add(f"{name}-{count}" if count else name)
    return out | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def check_links(root, path, text):
    for m in LINK.finditer(blank(text, FENCE)):
        target = m.group(1)
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        line = blank(text, FENCE).count("\n", 0, m.start()) + 1
        name, _, anchor = target.partition("#")
        base = root if name.startswith("/") else os.path.dirname(path)
        file = os.path.normpath(os.path.join(base, name.lstrip("/"))) if name else path
        if not os.path.exists(file):
            yield f"{path}:{line}: link to '{target}', which does not exist"
        elif anchor and file.endswith(".md") and anchor not in anchors(read(file)):
            yield f"{path}:{line}: no heading '#{anchor}' in {file}"


def check_names(root, path, text):
    # what changed in a release may name files that are gone since
    if os.path.basename(path) == "CHANGELOG.md":
        return
    for m in NAMED.finditer(text):
        name = m.group(1).rstrip(".")
        base = os.path.basename(name)
        # only files: a path whose last part has an ending, and no pattern such as test_<module>.c
        if "." not in base or base.startswith("."):
            continue
        if not os.path.exists(os.path.join(root, name)):
            line = text.count("\n", 0, m.start()) + 1
            yield f"{path}:{line}: names '{name}', which does not exist"


def words_of_sources(root):
    found = set()
    for top in ("src", "tests", "include"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".c", ".h", ".py")):
                    found.update(re.findall(r"\w+", read(os.path.join(folder, name))))
    return found


def check_code(root):
    """Functions and structs that the pages for contributors name are still called so."""
    known = words_of_sources(root)
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        path = os.path.join(root, page)
        text = read(path) if os.path.exists(path) else ""
        for m in CODE.finditer(text):
            name = m.group(1) or m.group(2)
            if name not in known:
                line = text.count("\n", 0, m.start()) + 1
                yield f"{path}:{line}: names '{name}', which is nowhere in src/"


def check_man(root):
    for page in sorted(glob.glob(os.path.join(root, "docs/man/*.[1-8]"))):
        if shutil.which("mandoc"):
            command = ["mandoc", "-Tlint", "-Wwarning", page]
        elif shutil.which("man"):
            command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page]
        else:
            print("neither mandoc nor man here: man pages not checked")
            return
        r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = r.stderr if command[0] == "man" else r.stdout + r.stderr
        # the pages are generated and carry no date, so that they do not change without a change
        lines = [line for line in said.splitlines() if line and "missing date" not in line]
        if lines:
            yield "\n".join(lines)


def main(argv):
    root = argv[1] if len(argv) > 1 else "."
    bad = []
    for path in documents(root):
        path = os.path.normpath(path)
        text = read(path)
        bad += [*check_links(root, path, text), *check_names(root, path, text)]
    bad += [*check_code(root), *check_man(root)]
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
