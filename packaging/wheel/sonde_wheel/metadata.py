# SPDX-License-Identifier: MulanPSL-2.0
"""Who we are, for whom, and from which tree."""

import os
import re
import sys
import sysconfig

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
NAME = "sonde"
OLDEST = (3, 8)  # what the extension is built for; it also serves all later ones


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return f.read()


def version():
    return re.search(r"^VERSION := (\S+)$", read("Makefile"), re.M).group(1)


VERSION = version()
STEM = f"{NAME}-{VERSION}"
DIST_INFO = STEM + ".dist-info"
DATA = STEM + ".data"


def tag():
    """Any CPython from the oldest on, on Linux machines of this kind."""
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"cp{OLDEST[0]}{OLDEST[1]}-abi3-{platform}"


def check_interpreter():
    if not sys.platform.startswith("linux"):
        sys.exit("sonde runs on Linux only")
    if sys.implementation.name != "cpython" or sys.version_info < OLDEST:
        sys.exit(f"sonde's package needs CPython {OLDEST[0]}.{OLDEST[1]} or later")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit(
            "sonde's package cannot be installed for free-threaded Python, which has no stable ABI"
            " for extensions; the programs look at it all the same: make install"
        )


def metadata():
    return f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Looks inside running AI jobs: memory, Python stacks, traces on demand
License: MulanPSL-2.0
License-File: LICENSE
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: Implementation :: CPython
Requires-Python: >={OLDEST[0]}.{OLDEST[1]}
Description-Content-Type: text/markdown

{read("README.md")}"""


def wheel():
    return f"""\
Wheel-Version: 1.0
Generator: sonde_wheel ({VERSION})
Root-Is-Purelib: false
Tag: {tag()}
"""


def files():
    """(name, bytes) of the folder that describes us."""
    yield "METADATA", metadata().encode()
    yield "WHEEL", wheel().encode()
    yield "licenses/LICENSE", read("LICENSE").encode()
