# SPDX-License-Identifier: MulanPSL-2.0
"""Steps of inference: each call of the model.

A model is a module with parameters that no other module calls, in evaluation or without gradients.
Such calls count while no optimizer has stepped: those of a program that trains are its validation.

A global hook of torch finds the models. It costs each call of each module a microsecond or two, so
it goes after LEARNT calls of models, and from then on their classes are listened to alone.

Both would be compiled into what torch.compile() makes of a module. So they go before the compiler
is loaded, and the calls of a program that compiles its model are not counted.
"""

import sys
import threading

from .. import _model_parts
from . import _calls, _pattern

pattern = _pattern.Pattern()

_COMPILER = "torch._dynamo"
LEARNT = 16

_tell = None
_hook = None
_call = None  # the code of a module's call
_torch = None
_thread = None  # whose calls count: that of the first one
_seen = 0  # calls of models that the hook has seen
_models = set()  # their classes


class _Watch:
    """Stands in sys.meta_path, to see that the compiler is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == _COMPILER:
            leave()
        return None


def listen(torch, tell):
    """tell(module, what Pattern.call() says) from now on."""
    global _tell, _hook, _call, _torch
    if _tell is not None or _COMPILER in sys.modules:
        return
    module = sys.modules["torch.nn.modules.module"]
    _call = module.Module._call_impl.__code__
    _torch = torch
    if _Watch not in sys.meta_path:
        sys.meta_path.insert(0, _Watch)
    _tell = tell
    if not _listener.classes:
        _hook = module.register_module_forward_hook(_after_forward)


def leave():
    global _tell
    _tell = None
    _remove_hook()
    _listener.leave()
    _models.clear()


def _remove_hook():
    global _hook
    if _hook is not None:
        _hook.remove()
        _hook = None


def _learn(module):
    global _seen
    _models.add(type(module))
    _seen += 1
    if _seen < LEARNT:
        return
    try:
        for cls in _models.difference(_listener.classes):
            _listener.listen(cls)
        _remove_hook()
    except TypeError:  # a class that does not change: the hook stays, and it is tried again later
        _seen = 0


def _is_inner(frame):
    calls = 0
    while frame is not None:
        calls += frame.f_code is _call
        if calls > 1:
            return True
        frame = frame.f_back
    return False


def _after_forward(module, args, output):
    try:
        if _tell is None or _is_training(module) or type(module) in _listener.classes:
            return
        if _is_inner(sys._getframe(1)) or not _model_parts.has_parameters(module):
            return
        _called(module)
        _learn(module)
    except Exception:  # a missed step is harmless, an exception in the job is not
        pass


def _is_training(module):
    return module.training and _torch.is_grad_enabled()


def _called(module):
    global _thread
    try:
        if _tell is None or _is_training(module):
            return
        if _thread is None:
            _thread = threading.get_ident()
        if _thread == threading.get_ident():
            _tell(module, pattern.call(module))
    except Exception:
        pass


_listener = _calls.Calls(_called)
