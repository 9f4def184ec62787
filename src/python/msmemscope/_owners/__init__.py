# SPDX-License-Identifier: MulanPSL-2.0
"""Who owns memory: weights, gradients, optimizer states, activations.

Two kinds of labels, both at the level DETAIL_1, so that of one block only one counts:

    activation       what a thread allocates while a module's forward runs, outermost module
    backward         … while gradients are computed
    optimizer        … while an optimizer's step runs (torch 2.0 and later)

    weight           given by address: parameters of a module that is called for the first time,
    buffer           and its buffers;
    weight           after each step of an optimizer, the parameters that it has,
    gradient         their gradients
    optimizer_state  and what it keeps for them

What is labelled by address is labelled again after each step: memory that was freed and is in use
again has forgotten its owner, and whether that happened cannot be known here for certain. The
recorder passes over a label that is there already.

Gradients on a device are computed by a thread of autograd's own, one for each device, which torch
starts for the first of them; from the second time on it is labelled along with the caller. What the
pool of torch reports by itself (CUDA) has no thread: it gets the labels that the caller has then.

Besides, each block gets the path of its module in the model (see sonde/_layers.py): that of the innermost
module whose forward runs, of the operation whose gradient is computed (sonde/_gradients.py), or that of
the parameter.

Programs of MindSpore: see _cells.py. What DeepSpeed divides: see _zero.py.

A forward that ends by an exception may leave no word of it. So each window remembers the frame that
it belongs to, and one whose frame is gone is closed by whatever opens the next.
"""

import functools
import os
import sys
import threading
import time
import weakref

from sonde import _gradients, _layers, _model_parts, _module_hooks, _sonde

from .. import _addresses, _history, _imports, _messages, _program_errors
from . import _cells, _zero

DETAIL_1 = 3
SYNC_S = 0.5  # less than the recorder waits for what the pool of torch has noted down

_undo = []  # functions that take back what enable() did
_known = {}  # id: weak reference to a module whose weights have been labelled
_autograd_threads = {}  # process: native ids of autograd's own threads
_follows = False  # is it known whose gradient is computed?
_synced = 0.0  # when the pool of torch was last asked


class _Here(threading.local):
    """What is open in this thread."""

    forward = 0  # id of the frame of the outermost module call
    root = 0  # id of that module
    calls = ()  # where a forward may end without a word: ids of frames, references to modules
    steps = ()  # ids of the frames of optimizers' steps, one inside the other


_here = _Here()


def wanted(settings):
    return bool(settings["analysis"] & _sonde.ANALYSIS_DECOMPOSE)


def enable(settings):
    _layers.attach(_sonde)
    for name, hook in (("torch", _hook_torch), ("mindspore", _hook_mindspore)):
        _undo.append(_imports.when_imported(name, hook).cancel)


def disable():
    while _undo:
        _undo.pop()()
    _known.clear()
    _autograd_threads.clear()
    _close_stale()
    _layers.detach(_sonde)


def _hook_torch(torch):
    for hook in (_hook_modules, _hook_backward, _hook_optimizers):
        try:
            hook(torch)
        except Exception as why:  # one of them may be unknown to this version
            _program_errors.pass_on(why)
            _messages.warn_once(f"some owners are not recorded: {hook.__name__}: {_messages.describe(why)}")
    _follow_gradients(torch)


def _hook_mindspore(mindspore):
    _undo.append(_cells.hook(mindspore))


def _guard(function):
    """For what torch calls: an exception of ours is not the job's."""

    @functools.wraps(function)
    def guarded(*args):
        try:
            return function(*args)
        except Exception as why:
            _program_errors.pass_on(why)
            _messages.warn_once(f"some owners are not recorded: {_messages.describe(why)}")
            return None

    return guarded


def _is_running(frame_id):
    frame = sys._getframe(1)
    while frame is not None:
        if id(frame) == frame_id:
            return True
        frame = frame.f_back
    return False


# --- modules ---


def _never():
    return False


def _hook_modules(torch):
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", _never)
    pre, post = _forward_hooks(torch, is_compiling, _module_hooks.are_sure(torch))
    _undo.append(_module_hooks.register(torch, pre, post))


def _forward_hooks(torch, is_compiling, is_sure):
    """The two hooks. A compiler that follows them sees nothing but a constant and a return."""

    enter, leave = _sonde.layer_enter, _sonde.layer_leave

    def before_forward(module, args):
        if is_compiling():
            return
        if not is_sure:
            _begin_call(torch, module, _call_frame(sys._getframe(1)))
        elif not _here.forward or _here.root == id(module):
            _open_forward(torch, module, _call_frame(sys._getframe(1)))
        if not enter(module):
            _enter_unknown(module)

    def after_forward(module, args, result):
        if is_compiling():
            return
        is_root = _here.root == id(module)
        if is_root and not is_sure:  # such a version shows late what was freed (ops_storage.c)
            _sonde.storage_sweep()
        leave(module)
        if _here.calls:
            _here.calls = _here.calls[:-1]
        if is_root and _here.forward == id(_call_frame(sys._getframe(1))):
            _close_forward()

    return before_forward, after_forward


def _call_frame(frame):
    """That of Module.__call__, which newer versions divide."""
    return frame.f_back if frame.f_code.co_name == "inner" else frame


@_guard
def _open_forward(torch, module, frame):
    _close_stale()
    if _here.forward:
        return
    _here.forward, _here.root = id(frame), id(module)
    _sonde.label_push(DETAIL_1, "activation")
    known = _known.get(id(module))
    if known is None or known() is not module:
        _known[id(module)] = weakref.ref(module)
        _layers.learn(module)
        _label_module(torch, module)


def _close_forward():
    _here.forward = _here.root = 0
    _here.calls = ()
    _sonde.layers_leave()
    _sonde.label_pop("activation", 0, DETAIL_1)


@_guard
def _enter_unknown(module):
    root = _known.get(_here.root)
    if root is not None and _layers.search(module, root()):
        _sonde.layer_enter(module)


@_guard
def _begin_call(torch, module, frame):
    """Ends first the calls that an exception has ended. What runs inside of one is not asked."""
    while _here.calls and (
        _here.calls[-1][0] == id(frame) or not _is_running(_here.calls[-1][0])
    ):
        ended = _here.calls[-1][1]()
        _here.calls = _here.calls[:-1]
        if ended is not None:
            _sonde.layer_leave(ended)
    if not _here.calls:
        if _here.forward:  # ended, even if another call has got its frame
            _close_forward()
        _open_forward(torch, module, frame)
    _here.calls += ((id(frame), weakref.ref(module)),)


def _close_stale():
    """What an exception ended."""
    if _here.forward and not _is_running(_here.forward):
        _close_forward()
    while _here.steps and not _is_running(_here.steps[-1]):
        _close_step()


def _label_module(torch, module):
    with _addresses.unseen(torch):
        buffers = list(_model_parts.tensors_of(module, "_buffers"))
        parameters = list(_model_parts.tensors_of(module, "_parameters"))
        _label(torch, "buffer", buffers)
        _label(torch, "weight", parameters)
        for tensor in buffers + parameters:
            _place(torch, tensor, [tensor])


def _place(torch, owner, tensors):
    """The blocks of these tensors belong to the same module as the parameter or buffer."""
    _sonde.layer_addrs(owner, *_addresses.with_bytes(torch, tensors))


def _label(torch, text, tensors):
    _sonde.label_addrs(DETAIL_1, text, _addresses.of(torch, tensors))


# --- gradients ---


def _follow_gradients(torch):
    """What a backward pass allocates belongs to the module of the operation that it is at. Older versions
    of torch do not say which that is."""
    global _follows
    try:
        _follows = _follows or _gradients.follow(torch, _sonde.autograd_follow)
        _sonde.layers_gradients(_follows)
        _undo.append(lambda: _sonde.layers_gradients(False))
    except Exception:
        pass


def _hook_backward(torch):
    """Both functions that compute gradients come through one place; in older versions not."""
    names = ("_engine_run_backward",)
    if not hasattr(torch.autograd, names[0]):
        names = ("backward", "grad")
    for name in names:
        _replace(torch.autograd, name, _around_backward(torch, getattr(torch.autograd, name)))


def _around_backward(torch, function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        threads = _open_backward()
        try:
            return function(*args, **kwargs)
        finally:
            _close_backward(torch, threads)

    return run


@_guard
def _open_backward():
    _close_stale()
    threads = (0,) + _autograd_threads.get(os.getpid(), ())
    for thread in threads:
        _sonde.label_push(DETAIL_1, "backward", thread)
    return threads


@_guard
def _close_backward(torch, threads):
    for thread in threads or ():
        _sonde.label_pop("backward", thread, DETAIL_1)
    pid = os.getpid()
    if pid not in _autograd_threads and _uses_devices(torch):
        _autograd_threads[pid] = tuple(_threads_named("pt_autograd"))


def _uses_devices(torch):
    return "torch_npu" in sys.modules or torch.cuda.is_initialized()


def _threads_named(prefix):
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/comm") as comm:
                if comm.read().startswith(prefix):
                    yield int(tid)
        except OSError:  # it has ended
            pass


def _replace(where, name, new):
    """Until it is undone; if somebody else has replaced it meanwhile, theirs stays."""
    old = getattr(where, name)
    setattr(where, name, new)

    def back():
        if getattr(where, name) is new:
            setattr(where, name, old)

    _undo.append(back)


# --- optimizers ---


def _hook_optimizers(torch):
    optimizer = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", _never)

    def before_step(opt, args, kwargs):
        if not is_compiling():
            _open_step(sys._getframe(1))

    def after_step(opt, args, kwargs):
        if not is_compiling():
            if _here.steps and _here.steps[-1] == id(sys._getframe(1)):
                _close_step()
            _label_optimizer(torch, opt)

    if hasattr(optimizer, "register_optimizer_step_post_hook"):
        _undo.append(optimizer.register_optimizer_step_pre_hook(before_step).remove)
        _undo.append(optimizer.register_optimizer_step_post_hook(after_step).remove)
        return
    original = optimizer.Optimizer._optimizer_step_code  # by every step, when it is through

    def _optimizer_step_code(self):
        original(self)
        _label_optimizer(torch, self)

    _replace(optimizer.Optimizer, "_optimizer_step_code", _optimizer_step_code)


@_guard
def _open_step(frame):
    _close_stale()
    _here.steps += (id(frame),)
    _sonde.label_push(DETAIL_1, "optimizer")


def _close_step():
    _here.steps = _here.steps[:-1]
    _sonde.label_pop("optimizer", 0, DETAIL_1)


@_guard
def _label_optimizer(torch, opt):
    """The last label of a block counts: a state that is a view of a weight is the weight's."""
    _catch_up()
    with _addresses.unseen(torch):
        if "deepspeed" in sys.modules and _label_slices(torch, opt):
            return
        weights = [p for group in opt.param_groups for p in group["params"]]
        gradients = [p.grad for p in weights]
        states = _addresses.inside(torch, opt.state)
        _label(torch, "optimizer_state", states)
        _label(torch, "gradient", [g for g in gradients if g is not None])
        _label(torch, "weight", weights)
        for weight in weights:
            kept = opt.state.get(weight)
            parts = [weight] if weight.grad is None else [weight, weight.grad]
            _place(torch, weight, parts + _addresses.inside(torch, kept) if kept else parts)


def _label_slices(torch, opt):
    """ZeRO's flat buffers. Within unseen(). False: it has none."""
    models = [ref() for ref in list(_known.values())]
    divided = list(_zero.parameters(m for m in models if m is not None))
    parts = [(p, _zero.slice_of(p, opt)) for p in divided]
    parts = [(p, part) for p, part in parts if part is not None]
    if not parts:
        return False
    flats = [p for group in opt.param_groups for p in group["params"]]
    _label(torch, "optimizer_state", flats + _addresses.inside(torch, opt.state))
    _label(torch, "gradient", [p.grad for p in flats if p.grad is not None])
    for parameter, part in parts:
        weight, gradients = _zero.weight_of(parameter), _zero.gradients_of(parameter, part)
        _sonde.label_addrs(DETAIL_1, "weight", [weight[0]])
        _sonde.label_addrs(DETAIL_1, "gradient", [address for address, _ in gradients])
        held = [weight, *gradients, *_zero.states_of(part, opt)]
        _sonde.layer_addrs(parameter, [a for a, _ in held], [size for _, size in held])
    return True


def _catch_up():
    """A label is for blocks that are known, and what a slow step allocated may not be."""
    global _synced
    now = time.monotonic()
    if now - _synced > SYNC_S:
        _synced = now
        _history.sync()
