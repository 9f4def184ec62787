# SPDX-License-Identifier: MulanPSL-2.0
"""The decoder of line tables against every interpreter's own words, for every instruction of twenty
modules of the standard library and of some code that is rarely seen."""

import pathlib
import re
import subprocess

import pytest
from pythons import every_python

DUMP = pathlib.Path(__file__).resolve().parents[1] / "targets/python_lines.py"
MODULES = """_pydecimal argparse ast asyncio.base_events collections configparser csv dataclasses
    difflib doctest functools inspect json.decoder logging os pickle subprocess tarfile threading
    typing""".split()


@pytest.mark.parametrize("python", every_python())
def test_every_instruction_has_the_line_that_the_interpreter_says(build, python):
    dump = subprocess.Popen(
        [python.path, "-I", str(DUMP), "-", *MODULES],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        compared = subprocess.run(
            [str(build / "targets/python_lines")],
            stdin=dump.stdout,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            timeout=100,
        )
        assert dump.wait(timeout=30) == 0, f"{python.label} could not write its tables"
    finally:
        dump.kill()
        dump.wait()
        dump.stdout.close()
    assert compared.returncode == 0, compared.stdout
    print(f"{python.label}: {compared.stdout}", end="")
    objects, instructions, mismatches = map(int, re.findall(r"\d+", compared.stdout))
    assert objects > 2000 and instructions > 100000 and mismatches == 0
