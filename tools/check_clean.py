#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Fails on what should never be committed. usage: check_clean.py [ROOT]"""

import os
import re
import shutil
import subprocess
import sys

# Written so that this file does not find itself.
RULES = [
    (re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"), "an unfinished place; finish it or file it"),
    (
        re.compile(r"(?<![\w.])/(?:home/(?!user\b|<)[a-z_]|ro" r"ot/|Us" r"ers/)"),
        "a path of one machine",
    ),
    (re.compile(r"^(<{7}|>{7}|={7})( |$)"), "a merge conflict"),
    (re.compile(r"[ \t]+$"), "white space at the end of the line"),
]
SKIP = re.compile(
    r"^(build[^/]*|\.git|\.pytest_cache)/|(^|/)__pycache__/|^LICENSE$|^tests/fuzz/corpus/"
)


def files(root):
    git = (
        subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if shutil.which("git") and os.path.exists(os.path.join(root, ".git"))
        else None
    )
    if git and git.returncode == 0:
        names = git.stdout.split("\0")
    else:
        names = [
            os.path.relpath(os.path.join(folder, n), root)
            for folder, _, ns in os.walk(root)
            for n in ns
        ]
    return sorted(
        n for n in names if n and not SKIP.search(n) and os.path.isfile(os.path.join(root, n))
    )


def main(argv):
    root = argv[1] if len(argv) > 1 else "."
    bad = 0
    for name in files(root):
        with open(os.path.join(root, name), "rb") as f:
            data = f.read()
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            for pattern, what in RULES:
                # two spaces at the end of a line of markdown are a line break
                if pattern.search(line) and not (what.startswith("white") and name.endswith(".md")):
                    print(f"{name}:{number}: {what}: {line.strip()[:80]}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
