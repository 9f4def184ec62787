# SPDX-License-Identifier: MulanPSL-2.0
"""sonde flame: a page or a picture of a recording or a profile; --open starts no shell."""

import os
import subprocess
import sys
import xml.etree.ElementTree as xml

from test_report_page import Page, ask, browser, made, profiles, run  # noqa: F401: fixtures


def test_page_of_memory(build, browser, made, tmp_path):  # noqa: F811
    path = tmp_path / "f.html"
    run(build / "bin/sonde", "flame", "-o", path, made[0])
    page = Page(browser, path)
    devices = ask(build, "owners", made[0])["devices"]
    for i, s in enumerate(page.js("p.model.memory[0].scopes")):
        page.pick("Device", str(i))
        (expected,) = [d["bytes"] for d in devices if d["device"] == s["device"]]
        assert page.js("p.flame.net[0]") == expected
    shown = page.js("[...document.querySelectorAll('section')].filter((s) => !s.hidden).map((s) => s.id)")
    assert shown == ["flame"]
    # what is chosen there is of pictures that are not shown
    assert page.js("document.querySelector('#bar').innerText").split()[:1] == ["Device"]
    assert "Bands" not in page.js("document.body.innerText") and "Everything" not in page.js("document.body.innerText")
    page.check()


def titles(path):
    return [t.text for t in xml.parse(path).getroot().iter("{http://www.w3.org/2000/svg}title")]


def test_pictures(build, made, tmp_path):  # noqa: F811
    """Memory as `sonde mem export` draws it; every form of a profile as the same picture."""
    sonde, names = build / "bin/sonde", []
    for words in (["flame"], ["mem", "export", "--format=svg"]):
        names.append(tmp_path / f"{words[0]}.svg")
        run(sonde, *words, "-o", names[-1], made[0])
    assert names[0].read_bytes() == names[1].read_bytes()
    run(sonde, "flame", "--at=end", "-o", names[0], made[0])
    assert "Memory at the end" in names[0].read_text()
    for source in profiles(tmp_path):
        svg = tmp_path / "p.svg"
        run(sonde, "flame", "-o", svg, source)
        (step,) = [t for t in titles(svg) if t.startswith("step (job/train.py:41)")]
        assert "75.00 %" in step
    r = subprocess.run([sonde, "flame", "--at=end", "-o", tmp_path / "x.html", made[0]], capture_output=True)
    assert r.returncode == 2 and b"--at" in r.stderr


def test_no_picture_of_nothing(build, tmp_path):
    """A recording of Python stacks alone: its page has them, a picture of memory would be empty."""
    work = "import time\nend = time.time() + 0.5\nwhile time.time() < end: pass"
    sonde, out = build / "bin/sonde", tmp_path / "recordings"
    run(sonde, "record", "-q", "--only=stacks", "-o", out, "--", sys.executable, "-c", work)
    (recording,) = out.iterdir()
    svg = tmp_path / "x.svg"
    r = subprocess.run([sonde, "flame", "-o", svg, recording], capture_output=True)
    assert r.returncode == 1 and b"no block was alive" in r.stderr and not svg.exists()
    run(sonde, "flame", "-o", tmp_path / "x.html", recording)


def test_open(build, tmp_path):
    """The browser gets the path as one word; without a desktop the path is said."""
    source, *_ = profiles(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    opener = tools / "xdg-open"
    opener.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$1" >{tmp_path}/opened\n')
    opener.chmod(0o755)
    page = "-a b;touch x.html"
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "DISPLAY": ":7"}
    env.pop("WAYLAND_DISPLAY", None)
    words = [build / "bin/sonde", "flame", "--open", f"--output={page}", source]
    assert run(*words, cwd=tmp_path, env=env).stderr == b""
    assert (tmp_path / "opened").read_text().splitlines() == ["1", str(tmp_path / page)]
    assert not (tmp_path / "x.html").exists()
    env["DISPLAY"] = ""
    assert str(tmp_path / page) in run(*words, cwd=tmp_path, env=env).stderr.decode()
