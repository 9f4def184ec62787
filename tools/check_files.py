#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Nothing of our own processes touches files by path but src/base/fs_*.c.

usage: check_files.py [ROOT]

Paths come from outside, and other users may have prepared them: src/base/fs.h has the rules. Refused
are calls that create, change, rename or delete by path; opening for writing, or with flags that
cannot be read off; reading in a way that would wait for a FIFO.
"""

import fnmatch
import os
import re
import sys

# Code inside the job has rules of its own (src/guest/runtime); this is the module itself.
SKIP = (
    "src/guest/*", "src/device/*/hooks/*", "src/device/*/activity/*", "src/unwind/native/*",
    "src/python/*", "src/base/fs_safe.c", "src/base/fs_output.c",
    "src/daemon/fabric/*",
)  # fmt: skip

# (file, function, why it is right there)
EXCEPTIONS = [
    ("src/formats/sqlite_use.c", "open", "SQLite's own opening, of which only reading is left"),
    ("src/formats/sqlite_use.c", "sqlite3_open_v2", "the one place, with NOFOLLOW"),
    ("src/formats/sqlite_use.c", "realpath", "to read: a reader gets only what he may read"),
    ("src/memory/input/db_reader.c", "realpath", "to see whether a log lies beside what is read"),
    ("src/activity/files/xlsx.c", "workbook_new_opt", "by the descriptor that fs_open() gave"),
    ("src/net/tls/files.c", "open", "the terminal, to ask for a passphrase"),
    ("src/daemon/sandbox/broker_process.c", "open", "files of /proc, to read; /dev/null"),
    ("src/daemon/sandbox/broker_process.c", "openat", "certificates, to read, without waiting"),
    ("src/daemon/process.c", "open", "/dev/null in the place of the terminal"),
    ("src/recorder/start.c", "open", "/dev/null in the place of the job's descriptors"),
    ("src/recorder/start.c", "mkdtemp", "a new directory of ours, in the place of temporary files"),
    # what is read there is /proc or /sys, which has no FIFOs
    ("src/sampler/discover/discover.c", "open", "/proc"),
    ("src/sampler/rounds/process_life.c", "open", "/proc"),
    ("src/memory/track/*_memory.c", "openat", "/proc and /sys/fs/cgroup"),
    ("src/unwind/remote/exact.c", "open", "/proc"),
    ("src/unwind/remote/threads.c", "open", "/proc"),
]

BY_PATH = (
    "creat mkdir unlink rename remove rmdir chmod chown lchown nftw ftw symlink link truncate mkstemp"
    " mkostemp mkdtemp mknod mkfifo realpath mkdirat unlinkat renameat renameat2 fchmodat fchownat"
    " linkat symlinkat mknodat utimensat sqlite3_open sqlite3_open_v2 workbook_new workbook_new_opt"
).split()
OPENING = "open open64 openat fopen freopen".split()
CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(BY_PATH + OPENING))
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def arguments(text, at):
    """The text from the bracket at `at` to the one that closes it."""
    depth = 0
    for end in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[at + 1 : end]
    return text[at + 1 :]


def complaint(name, args):
    """None if the call is fine."""
    if name in BY_PATH:
        return f"{name}() by path: use fs_*() of base/fs.h"
    if name in ("fopen", "freopen"):
        mode = re.search(r'"([^"]*)"\s*$', args.strip())
        return None if mode and not re.search("[wa+]", mode.group(1)) else f"{name}() to write"
    if not re.search(r"\bO_(RDONLY|PATH)\b", args) or re.search(r"\bO_(CREAT|TRUNC|WRONLY|RDWR)\b", args):
        return f"{name}() to write: use fs_open()"
    literal = args.lstrip().startswith('"/')
    if literal or re.search(r"\bO_(NONBLOCK|PATH|DIRECTORY)\b", args):
        return None
    return f"{name}() may wait for a FIFO: use fs_open(path, O_RDONLY, …)"


def calls(text):
    text = COMMENT.sub(blank, text)
    for found in CALL.finditer(text):
        # a function that is declared or defined has words before its name
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        if re.match(r"^(static |extern |int |void |char )", line):
            continue
        yield text.count("\n", 0, found.start()) + 1, found.group(1), arguments(text, found.end() - 1)


def check(root):
    used, bad = set(), []
    for folder, _, names in os.walk(os.path.join(root, "src")):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if not name.endswith((".c", ".h")) or any(fnmatch.fnmatch(path, s) for s in SKIP):
                continue
            with open(os.path.join(root, path), encoding="utf-8") as f:
                text = f.read()
            for line, function, args in calls(text):
                why = complaint(function, args)
                allowed = [e for e in EXCEPTIONS if fnmatch.fnmatch(path, e[0]) and e[1] == function]
                if why and allowed:
                    used.update(allowed)
                elif why:
                    bad.append(f"{path}:{line}: {why}")
    bad += [f"tools/check_files.py: nothing needs {e[:2]} any more" for e in EXCEPTIONS if e not in used]
    return bad


def main():
    bad = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
