# SPDX-License-Identifier: MulanPSL-2.0
"""Every Python interpreter that can import PyTorch: those in $SONDE_TORCHES (colon between them),
the system's with its own package, and a current one that tools/fetch_torch unpacks (build/torch).

    @pytest.mark.parametrize("torch", every_torch())
    def test_something(torch):
        subprocess.run([torch.path, ...])

Importing torch takes seconds: what an interpreter answered is kept in build/torches.json until that
torch changes.
"""

import collections
import concurrent.futures
import functools
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from capabilities import lacks

TOP = pathlib.Path(__file__).resolve().parents[2]
FETCHED = TOP / "build/torch"
KEPT = TOP / "build/torches.json"

# label: "2.14.0-py3.14"; version: "2.14.0", as torch says it without what follows a plus sign
Torch = collections.namedtuple("Torch", "label path version")

FIND = """
import importlib.util, sys
spec = importlib.util.find_spec("torch")
print(sys.version_info[0], sys.version_info[1], spec.origin if spec and spec.origin else "")
"""
# What tests do with it: numbers, gradients, and an optimizer.
TRY = """
import torch
w = torch.nn.Linear(2, 2)
o = torch.optim.SGD(w.parameters(), lr=0.1)
w(torch.ones(2)).sum().backward()
o.step()
print("torch", torch.__version__)
"""


def run(path, code, seconds):
    """What the interpreter prints, as words; none if it fails."""
    try:
        done = subprocess.run(
            [path, "-c", code],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=seconds,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def candidates():
    found = os.environ.get("SONDE_TORCHES", "").split(":")
    found += [shutil.which("python3") or "", "/usr/bin/python3"]
    found += sorted(glob.glob(str(FETCHED / "root/usr/bin/python3.*")))
    return [p for p in found if os.access(p, os.X_OK) and re.search(r"/python[\d.]*$", p)]


def read_kept():
    try:
        kept = json.loads(KEPT.read_text())
        return kept if isinstance(kept, dict) else {}
    except (OSError, ValueError):
        return {}


def write_kept(kept):
    mine = KEPT.with_name(f"{KEPT.name}.{os.getpid()}")
    try:
        mine.write_text(json.dumps(kept))
        os.replace(mine, KEPT)
    except OSError:
        pass  # the next session asks again


def ask(path, kept):
    """The Torch of an interpreter, or None."""
    words = run(path, FIND, 30)
    if len(words) < 3:
        return None
    origin = " ".join(words[2:])
    try:
        key = f"{path} {origin} {os.stat(origin).st_mtime_ns}"
    except OSError:
        return None
    # One that failed is asked again: it may have been half installed.
    if not kept.get(key):
        answer = run(path, TRY, 120)
        kept[key] = answer[-1] if answer[-2:-1] == ["torch"] else None
    if not kept[key]:
        return None
    version = kept[key].split("+")[0]
    return Torch(f"{version}-py{words[0]}.{words[1]}", path, version)


def order(torch):
    return [int(n) for n in re.findall(r"\d+", torch.version)]


@functools.lru_cache(maxsize=None)
def torches():
    """All of them, oldest first; one of each label."""
    kept = read_kept()
    before = dict(kept)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda path: ask(path, kept), candidates()))
    found = {}
    for torch in filter(None, answers):
        found.setdefault(torch.label, torch)
    if kept != before:
        write_kept(kept)
    return sorted(found.values(), key=order)


def missing():
    """(id, reason) of what the tests should see and is not here."""
    found = torches()
    if not any(t.path.startswith("/usr/") for t in found):
        yield "system", "no PyTorch of the system's: install the package python3-torch"
    if not any(order(t) >= [2] for t in found):
        yield "current", "no current PyTorch: tools/fetch_torch, or name one in SONDE_TORCHES"


def every_torch():
    """For pytest.mark.parametrize; what is not here is there too, skipped with the reason."""
    params = [pytest.param(t, id=t.label) for t in torches()]
    return params + [
        pytest.param(None, id=name, marks=pytest.mark.lacks(f"torch-{name}", why))
        for name, why in missing()
    ]


def a_torch():
    """The newest, for tests that one is enough for; the test is skipped where there is none."""
    found = torches()
    if not found:
        lacks("torch", "install the package python3-torch, or run tools/fetch_torch")
    return found[-1]


def quickest_torch():
    """The oldest: importing it allocates a third of what the newest allocates."""
    return torches()[0] if torches() else a_torch()


if __name__ == "__main__":
    for t in torches():
        print(*t)
    for name, why in missing():
        print(name, why, sep=": ")
