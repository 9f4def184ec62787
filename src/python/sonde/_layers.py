# SPDX-License-Identifier: MulanPSL-2.0
"""Which module of a model memory belongs to, by its path: ``transformer.h.3.mlp.c_fc``. Cells of
MindSpore are modules, too.

The outermost module that is called is a model. All modules below it, and their parameters and
buffers, have paths as ``named_modules()`` and ``named_parameters()`` have them, without the names
that wrappers add (DDP, FSDP, torch.compile, checkpointing). What is there twice has its first path.

Text of a path (struct rec_layer): ``model:path:class``. The model is the name of its class, with a
number if there are several of one class. Modules without any parameter, such as losses, are no
models: theirs is empty and the path begins with the name of the class.

The extension knows objects by their addresses; a weak reference of each says when it is gone.
"""

import functools
import weakref

from . import _model_parts

WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module")
MAX_WRAPPERS = 32  # one around the other; a module may also contain itself
MAX_SEARCHES = 8  # of a model, for modules that it got after its first call

_users = []  # extensions that are told
_refs = {}  # id: weak reference to a module, a parameter or a buffer
_texts = {}  # id: what was told of it
_models = {}  # name: weak reference to the outermost module
_searches = {}  # name: how often


def attach(native):
    """The extension is told what is known, and what will be."""
    if native not in _users:
        _users.append(native)
        for key, text in _texts.items():
            native.layer_add(key, text)


def detach(native):
    """It forgets everything; the last one, and so do we."""
    if native in _users:
        _users.remove(native)
        native.layers_clear()
    if not _users:
        for known in (_refs, _texts, _models, _searches):
            known.clear()


def thing(key):
    """The object with this id, if it is known and there."""
    ref = _refs.get(key)
    return None if ref is None else ref()


def name(thing, text):
    """This object is no module of a model, but stands for something, too."""
    _add(thing, text)


def model_name(model):
    """What its parts have in front of their paths."""
    text = _texts.get(id(model)) if is_known(model) else None
    return text.split(":", 1)[0] if text else type(model).__name__.replace(":", "_")


def is_known(module):
    ref = _refs.get(id(module))
    return ref is not None and ref() is module


def learn(module):
    """A module is called that is in no other; does nothing for a part of a known model."""
    if is_known(module) or module.__dict__.get("_is_replica"):
        return
    name = _name_of(module)
    if name:
        _models[name] = weakref.ref(module)
    _add_all(module, name)


def search(module, outermost):
    """An unknown module is called in a model: it may have come later. Is it known now?"""
    for name, ref in list(_models.items()):
        if ref() is outermost and _searches.get(name, 0) < MAX_SEARCHES:
            _searches[name] = _searches.get(name, 0) + 1
            _add_all(outermost, name)
    return is_known(module)


# --- paths ---


def _wrapped_in(module):
    """The name of the module that this one only wraps, or None."""
    children = _model_parts.children_of(module)
    if _model_parts.is_cell(module):
        return _wrapped_cell(module, children)
    for name in WRAPPED:
        if children.get(name) is not None:
            return name
    alone = len(children) == 1 and children.get("module") is not None
    own = [p for p in module._parameters.values() if p is not None]
    return "module" if alone and not own else None


def _has_parameters(child):
    return child is not None and _model_parts.has_parameters(child)


def _wrapped_cell(cell, children):
    """Cells for training and for a loss add nothing to the names of parameters, and say so."""
    if getattr(cell, "_auto_prefix", True) or _model_parts.named_tensors_of(cell, "_parameters"):
        return None
    held = [name for name, child in children.items() if _has_parameters(child)]
    return held[0] if len(held) == 1 else None


def _unwrapped(module):
    for _ in range(MAX_WRAPPERS):
        name = _wrapped_in(module)
        if name is None:
            break
        module = _model_parts.children_of(module)[name]
    return module


def _class_of(module):
    return type(_unwrapped(module)).__name__.replace(":", "_")


def _name_of(module):
    """Of a model that is new; empty for a module without parameters."""
    if not _model_parts.has_parameters(module):
        return ""
    name = _class_of(module)
    number, first = 1, name
    while name in _models and _models[name]() is not None:
        # A module that was called alone, and belongs to this one, is no other model.
        if any(part is _models[name]() for part in _model_parts.modules_of(module)):
            break
        number += 1
        name = f"{first}-{number}"
    return name


def _add_all(module, name):
    todo = [(module, "" if name else _class_of(module))]
    seen = set()
    while todo:
        part, path = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        _add(part, f"{name}:{path}:{_class_of(part)}")
        for kind in ("_parameters", "_buffers"):
            for key, tensor in list(_model_parts.named_tensors_of(part, kind).items()):
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    _add(tensor, f"{name}:{_join(path, key)}:")
        wrapped = _wrapped_in(part)
        children = [
            (child, path if key == wrapped else _join(path, key))
            for key, child in _model_parts.children_of(part).items()
            if child is not None
        ]
        todo += reversed(children)


def _join(path, name):
    name = name.replace(":", "_")
    return f"{path}.{name}" if path else name


def _add(thing, text):
    key = id(thing)
    known = _refs.get(key)
    if known is None or known() is not thing:
        _refs[key] = weakref.ref(thing, functools.partial(_forget, key))
    # Names may have anything in them; the extension wants UTF-8 without NUL.
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
    _texts[key] = text
    for native in _users:
        native.layer_add(key, text)


def _forget(key, ref):
    if _refs.get(key) is ref:
        del _refs[key]
        del _texts[key]
        for native in _users:
            native.layer_drop(key)
