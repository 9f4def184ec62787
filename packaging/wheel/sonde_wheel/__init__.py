# SPDX-License-Identifier: MulanPSL-2.0
"""Builds what `pip install .` installs: programs, libraries, packages, man pages, the C header.

The functions are those that pip calls (PEP 517, PEP 660). `make install` into a folder decides what
there is; archive.py decides where in the wheel it goes.

    pip install --config-settings=make='CC=clang DEBUG=1' .     words for make
"""

import contextlib
import os
import sys

# pip imports this from the user's tree, where nothing but build/ is to be written to.
sys.dont_write_bytecode = True
with contextlib.suppress(OSError):
    os.unlink(__spec__.cached)
    os.rmdir(os.path.dirname(__spec__.cached))

from . import archive, compile, metadata  # noqa: E402

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    metadata.check_interpreter()
    with compile.built("wheel", config_settings) as build:
        entries = archive.of_stage(build.stage())
    return archive.write_wheel(wheel_directory, entries)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Python files are used where they are; after a change of C code: pip install -e . again."""
    metadata.check_interpreter()
    with compile.built("editable", config_settings) as build:
        entries = archive.of_tree(build.link_packages())
    return archive.write_wheel(wheel_directory, entries)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    metadata.check_interpreter()
    folder = os.path.join(metadata_directory, metadata.DIST_INFO)
    os.makedirs(folder, exist_ok=True)
    for name, text in metadata.files():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(text)
    return metadata.DIST_INFO


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    return archive.write_sdist(sdist_directory)
