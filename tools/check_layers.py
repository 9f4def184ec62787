#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Holds the includes of src/ and sim/ to the allowed graph, and folders to a size that can be read.

usage: check_layers.py [ROOT]

A file belongs to a layer by its path; a layer may include itself and what its row names. Code that
runs inside the job (guest world) and code of our own processes share only wire formats.
"""

import fnmatch
import os
import re
import sys

# First match decides: layers are finer than folders where a folder serves both worlds, or where only
# one part of it is for others.
LAYER_OF = [
    ("include/sonde/*", "api"),
    ("src/guest/runtime/*", "guest/runtime"),
    ("src/guest/collect/*", "guest/collect"),
    ("src/guest/watch/*", "guest/collect"),
    ("src/guest/monitor/*", "guest/monitor"),
    ("src/guest/interpose/*", "device/hooks"),
    ("src/device/*/abi*.h", "device/abi"),
    ("src/device/*/modules.*", "device/names"),
    ("src/device/*/hooks/*", "device/hooks"),
    ("src/device/*/activity/*", "device/hooks"),
    ("src/device/activity.h", "device/hooks"),
    ("src/device/*", "device/metrics"),
    ("src/unwind/native/*", "unwind/native"),
    ("src/unwind/python/*", "unwind/python"),
    ("src/unwind/remote/*", "unwind/remote"),
    ("src/unwind/symbols/*", "unwind/symbols"),
    ("src/recorder/consumer.h", "recorder/stream"),
    ("src/recorder/stream.*", "recorder/stream"),
    ("src/recorder/recording.*", "recorder/stream"),
    ("src/recorder/flight/step_count.*", "recorder/stream"),
    ("src/recorder/pack/*", "recorder/stream"),
    ("src/recorder/session.*", "recorder/stream"),
    ("src/memory/options/*", "memory/options"),
    ("src/memory/dump/row.h", "memory/row"),
    ("src/activity/live/toplist*", "activity/toplist"),
    ("src/client/top/*", "client/top"),
]
LAYERS = (
    "wire base formats sampler recorder memory activity timeline report net client certs daemon launch cli python"
).split()

ALLOWED = {
    "api": "",
    # both worlds
    "wire": "",
    "device/abi": "",
    "device/names": "",
    # guest world
    "unwind/native": "wire",
    "unwind/python": "wire",  # both worlds
    "guest/runtime": "wire unwind/native unwind/python api",
    "guest/collect": "guest/runtime wire unwind/native api",
    "device/hooks": "guest/runtime guest/collect wire device/abi api",
    "guest/monitor": "guest/runtime guest/collect wire device/hooks api",
    # own world: tools
    "base": "wire",  # the line of /proc/PID/stat
    "formats": "base",
    "unwind/symbols": "base wire",
    "unwind/remote": "base wire unwind/python unwind/symbols",
    "device/metrics": "base wire device/abi",
    "net": "base",
    "client": "base wire net formats",
    "certs": "base net",
    # own world: subjects
    "recorder/stream": "base wire",
    "recorder": "base wire formats recorder/stream",
    "memory/row": "wire base",
    "memory/options": "base wire memory/row",
    "memory": "base wire formats unwind/symbols unwind/python recorder/stream memory/options"
    " memory/row device/names device/metrics",
    "activity/toplist": "base wire",
    "activity": "base wire formats unwind/symbols unwind/remote unwind/python recorder/stream activity/toplist",
    "client/top": "base client activity/toplist unwind/symbols",
    "sampler": "base wire formats unwind/remote unwind/python unwind/symbols device/metrics recorder/stream",
    "timeline": "base wire formats unwind/symbols recorder/stream memory memory/row memory/options activity",
    "report": "base wire formats unwind/symbols recorder/stream memory memory/row memory/options activity sampler timeline",
    "daemon": "base wire net device/metrics formats activity/toplist unwind/remote",
    "launch": "base wire memory/options memory/row recorder recorder/stream",
    # own world: what people type, and what they import
    "cli": "base wire formats unwind/remote unwind/python unwind/symbols sampler recorder"
    " recorder/stream memory memory/options memory/row activity activity/toplist timeline report net client client/top"
    " certs daemon launch device/metrics api",
    "python": "guest/runtime guest/collect guest/monitor unwind/python wire base memory/options memory/row api",
}

FOLDER_FILES = 25

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


def check_folders(root):
    for top in ("src", "tests/unit"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            count = sum(name.endswith((".c", ".h", ".py")) for name in names)
            if count > FOLDER_FILES:
                where = os.path.relpath(folder, root)
                yield f"{where}: {count} files, more than {FOLDER_FILES}: which sub-folder is missing?"


def main(argv):
    root = argv[1] if len(argv) > 1 else "."
    bad = [*check_src(root), *check_sim(root), *check_folders(root)]
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
