# SPDX-License-Identifier: MulanPSL-2.0
"""What axe-core finds wrong for people who see, hear or move differently, in the page that a browser shows.

    assert serious(browser) == []
"""

import fcntl
import functools
import json
import pathlib
import subprocess

import pip_packages
from capabilities import lacks

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.lru_cache(maxsize=None)
def script():
    """The newest one from npm; where there is no npm, the older one that a package of Python has."""
    place = ROOT / "build/axe"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of other files may want the same
        r = subprocess.run([ROOT / "tools/fetch_axe", place], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=120)  # fmt: skip
    if r.returncode == 0:
        return pathlib.Path(r.stdout.split()[-1]).read_text()
    package, why = pip_packages.fetch("axe-core-python")
    if package is None:
        lacks("axe", f"{r.stderr.strip()}; {why}")
    return next(package.rglob("axe.min.js")).read_text()


def serious(b):
    """Findings that are serious or worse: what, and where."""
    b.js("!window.axe") and b.ask("Runtime.evaluate", expression=script())
    run = ("axe.run().then((r) => JSON.stringify(r.violations.filter((v) => ['serious', 'critical'].includes(v.impact))"
           ".map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 200) + n.failureSummary)])))")  # fmt: skip
    r = b.ask("Runtime.evaluate", expression=run, awaitPromise=True, returnByValue=True)
    return json.loads(r["result"]["value"])
