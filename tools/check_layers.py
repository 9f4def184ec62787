#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Holds the includes of src/ and sim/ to the allowed graph. usage: check_layers.py [ROOT]

A file belongs to a layer by its path; a layer may include itself and what its row names. Code that
runs inside the job (guest world) and code of our own processes share only wire formats.
"""

import fnmatch
import os
import re
import sys

# First match decides. The stack and device folders hold files of both worlds.
LAYER_OF = [
    ("src/stack/native*", "stack/native"),
    ("src/stack/python*", "stack/python"),
    ("src/device/metrics*", "device/metrics"),
    ("src/device/*/metrics*", "device/metrics"),
    ("src/device/*/dcmi.*", "device/metrics"),
    ("src/device/*/abi*.h", "device/abi"),
    ("src/device/*/modules.*", "device/names"),
    ("src/device/*", "device/hooks"),
    ("include/sonde/*", "api"),
]
LAYERS = "wire guest base collect monitor stack sampler recorder analyze export daemon cli python".split()

ALLOWED = {
    "api": "",
    # both worlds
    "wire": "",
    "device/abi": "",
    "device/names": "",
    # guest world
    "guest": "wire stack/native stack/python api",
    "stack/native": "wire",
    "stack/python": "wire",  # both worlds
    "collect": "guest wire stack/native api",
    "device/hooks": "guest wire collect device/abi api",
    "monitor": "guest wire collect device/hooks api",
    # own world
    "base": "",
    "stack": "wire base stack/python",
    "sampler": "base wire stack stack/python export device/metrics",
    "device/metrics": "wire base device/abi",
    "analyze": "base wire export",
    "export": "base wire",
    "recorder": "base wire stack analyze export device/names device/metrics",
    "daemon": "base wire device/metrics export",
    "cli": "base wire stack stack/python sampler analyze export recorder daemon device/metrics api",
    "python": "guest collect monitor wire base stack analyze export recorder api",
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)


def layer_of(path):
    for pattern, layer in LAYER_OF:
        if fnmatch.fnmatch(path, pattern):
            return layer
    folder = path.split("/")[1]
    return folder if path.startswith("src/") and folder in LAYERS else None


def sources(root, top):
    for folder, _, names in os.walk(os.path.join(root, top)):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(folder, name), root)


def includes(root, path):
    """Yields (line, quoted, name) for every include of the file."""
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    for m in INCLUDE.finditer(text):
        yield text.count("\n", 0, m.start()) + 1, m.group(1) == '"', m.group(2)


def resolve(root, path, name, search):
    """The repository's file behind an include, or None for one of the system's."""
    for base in [os.path.dirname(path)] + search:
        found = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(root, found)):
            return found
    return None


def check_src(root):
    for top in ("src", "include"):
        for path in sources(root, top):
            layer = layer_of(path)
            if layer is None:
                yield f"{path}: belongs to no layer; give its folder a row in tools/check_layers.py"
                continue
            allowed = ALLOWED[layer].split() + [layer]
            for line, quoted, name in includes(root, path):
                target = resolve(root, path, name, ["src", "include"])
                if target is None:
                    if quoted:
                        yield f"{path}:{line}: '{name}' is not in src/ or include/"
                    continue
                other = layer_of(target)
                if other not in allowed:
                    yield f"{path}:{line}: {layer} may not include {other or target} ('{name}')"
                elif quoted and layer != "api" and "/" not in name:
                    yield f"{path}:{line}: write the path from src/: '{target[4:]}'"


def check_sim(root):
    for path in sources(root, "sim"):
        for line, quoted, name in includes(root, path):
            target = resolve(root, path, name, ["sim/include", "src", "include"])
            if target and not target.startswith("sim/"):
                yield f"{path}:{line}: sim stands alone and may not include '{target}'"
            elif quoted and not target:
                yield f"{path}:{line}: '{name}' is not in sim/"


def main(argv):
    root = argv[1] if len(argv) > 1 else "."
    bad = [*check_src(root), *check_sim(root)]
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
