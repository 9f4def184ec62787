# SPDX-License-Identifier: MulanPSL-2.0
"""Hooks into frameworks: vLLM-Ascend, FSDP, verl, MindSpeed.

While memory is recorded with analysis=decompose, functions of frameworks label what is allocated
inside them. A framework is hooked when the job has imported it, never before.
"""

import importlib.machinery
import os
import sys

from . import _control, _fork, _imports, _messages
from .hijacker import _labels, _targets, _versions
from .hijacker._table import FRAMEWORKS

KINDS = ("decompose", "snapshot")

_lock = _fork.lock(globals())
_waiting = []  # for frameworks
_automatic = []  # hooks
_by_hand = []
_decomposed_by_hand = False


def wanted(settings):
    decompose = settings["analysis"] & _control.native().ANALYSIS_DECOMPOSE
    return bool(decompose) and not _decomposed_by_hand


def enable(settings):
    for framework in FRAMEWORKS.values():
        if any("decompose" in kinds for c in framework.entries.values() for kinds in c.values()):
            _wait_for(framework)


def disable():
    with _lock:
        waiting, hooks = _waiting[:], _automatic[:]
        del _waiting[:], _automatic[:]
    for handle in waiting:
        handle.cancel()
    for handle in hooks:
        _targets.release(handle)
    _labels.close_windows()


def before_step():
    """For modules whose import could not be seen."""
    _imports.poll()


def _wait_for(framework):
    def imported(module):
        keys = _versions.matching(framework.entries, _installed(framework, module))
        # An unknown version: those of the names that it still has.
        for key in keys or framework.entries:
            for kinds in framework.entries[key].values():
                if "decompose" in kinds:
                    _register(kinds["decompose"](), _automatic, quiet=True)

    handle = _imports.when_imported(framework.package, imported)
    with _lock:
        _waiting.append(handle)


def _installed(framework, module):
    version = getattr(module, "__version__", None)
    if _versions.is_version(str(version)):
        return str(version)
    from importlib import metadata

    try:
        return metadata.version(framework.distribution)
    except metadata.PackageNotFoundError:
        return "0"


def _here(framework):
    return _installed(framework, sys.modules.get(framework.package))


def _may_come(name):
    """Is it imported, or could it be? Its package's directory says so, without importing it."""
    top, *rest = name.split(".")
    dirs = [d for d in getattr(sys.modules.get(top), "__path__", ()) if os.path.isdir(d)]
    if not dirs or name in sys.modules:
        return True
    paths = [os.path.join(d, *rest) for d in dirs]
    endings = ("", *importlib.machinery.all_suffixes())
    return any(os.path.exists(path + end) for path in paths for end in endings)


def _register(places, handles, quiet):
    for p in places:
        key, calm = (p.module, p.cls, p.function), quiet or p.optional
        handle = _targets.add(key, p.hook, calm, p.after, p.mixin)
        with _lock:
            if handle not in handles:
                handles.append(handle)


def init_framework_hooks(framework: str, version: str, component: str, hook_type: str) -> bool:
    """Hook the functions of a framework by hand.

    framework  component   hook_type             versions
    vllm_ascend  worker      decompose, snapshot   11.0 (0.11.0)
    pytorch      fsdp1       decompose             2.6 and later
    pytorch      fsdp2       decompose             2.6 and later
    verl         TaskRunner  snapshot              0.7.0
    mindspeed_llm  training  snapshot              0.12.1

    "decompose" labels what they allocate, which also happens by itself while memory is recorded
    with analysis="decompose"; doing it by hand takes the place of that. "snapshot" takes a snapshot
    when they are called and when they are left. Functions are hooked as soon as the framework is
    imported, nothing is imported for it. True, or False after a message that says what there is.

    >>> msmemscope.init_framework_hooks("pytorch", "2.9.0", "fsdp2", "decompose")
    True
    >>> msmemscope.cleanup_framework_hooks()
    """
    global _decomposed_by_hand
    makers, why = _find(framework, version, component, hook_type)
    if why:
        _messages.error(f"no hooks were set: {why}")
        return False
    found = [make() for make in makers]
    if not any(_may_come(p.after or p.module) for places in found for p in places):
        _messages.info(
            f"no hooks were set: {framework} {_here(FRAMEWORKS[framework])}, which this program "
            f"has imported, has none of the modules of {component} {version}"
        )
        return False
    if hook_type == "decompose":
        with _lock:
            _decomposed_by_hand = True
        disable()
    for places in found:
        _register(places, _by_hand, quiet=False)
    return True


def cleanup_framework_hooks() -> None:
    """Take off all hooks of frameworks: every function is again what it was.

    >>> msmemscope.cleanup_framework_hooks()
    """
    global _decomposed_by_hand
    with _lock:
        hooks = _by_hand[:]
        del _by_hand[:]
        _decomposed_by_hand = False
    for handle in hooks:
        _targets.release(handle)
    disable()


def _names(names):
    return ", ".join(f"'{name}'" for name in names)


def _find(framework, version, component, hook_type):
    """What makes the places, or why there are none."""
    if framework not in FRAMEWORKS:
        return [], f"there is no framework {framework!r}; expected {_names(FRAMEWORKS)}"
    if hook_type not in KINDS:
        return [], f"there is no hook type {hook_type!r}; expected {_names(KINDS)}"
    entries = FRAMEWORKS[framework].entries
    if not _versions.is_version(version):
        return [], f"{version!r} is no version; expected one like '2.9.0', as a string"
    keys = _versions.matching(entries, version)
    if not keys:
        return [], f"nothing is known of {framework} {version}; there is {_names(entries)}"
    components = [c for key in keys for c in entries[key]]
    if component not in components:
        return [], (
            f"{framework} {version} has no component {component!r}; expected {_names(components)}"
        )
    found = [entries[key][component] for key in keys if component in entries[key]]
    makers = [kinds[hook_type] for kinds in found if hook_type in kinds]
    if not makers:
        there = sorted({kind for kinds in found for kind in kinds})
        return [], f"{framework} {component} has no {hook_type} hooks; there is {_names(there)}"
    return makers, None
