#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Draws the pictures of README.md: the report that `./bootstrap demo` leaves, in a real browser.

usage: draw_pictures.py [REPORT.html [DIRECTORY]]     build/demo/report.html, docs/pictures
"""

import base64
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
import browser  # noqa: E402

WIDTH, HEIGHT = 1120, 900
FIRST, LAST = "memory", "flame"  # of the page's sections


def draw(page, report, scheme, path):
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.ask("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1,
             mobile=False)  # fmt: skip
    page.ask("Page.navigate", url=report.resolve().as_uri())
    page.until("!!window.sondeReport && document.readyState === 'complete'")
    top = page.js(f"document.getElementById('{FIRST}').getBoundingClientRect().top + scrollY")
    end = page.js(f"document.getElementById('{LAST}').getBoundingClientRect().bottom + scrollY")
    clip = {"x": 0, "y": top - 10, "width": WIDTH, "height": end - top + 20, "scale": 1}
    shot = page.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(shot["data"]))
    print(path)


def main(report="build/demo/report.html", directory="docs/pictures"):
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        with browser.Browser(pathlib.Path(tmp)) as page:
            for scheme in ("light", "dark"):
                draw(page, pathlib.Path(report), scheme, out / f"report-{scheme}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
