# SPDX-License-Identifier: MulanPSL-2.0
"""Hooks on the forward passes of all modules of PyTorch.

A program does not notice them: what torch.compile() has made warns where there are such hooks, since it
would call them once more than the program expects. Ours do not mind, so they do not count for that.
"""

_KINDS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
)
_ASKED = "_has_any_global_hook"

_ours = set()  # ids of hooks
_undo = []  # what brings torch's own function back


def are_sure(torch):
    """Does the hook behind a forward pass run when it raises, too?"""
    after = torch.nn.modules.module.register_module_forward_hook
    return "always_call" in after.__code__.co_varnames


def register(torch, before, after):
    """before(module, args) and after(module, args, result); a function that removes them."""
    module = torch.nn.modules.module
    sure = {"always_call": True} if are_sure(torch) else {}
    handles = [
        module.register_module_forward_pre_hook(before),
        module.register_module_forward_hook(after, **sure),
    ]
    _ours.update(handle.id for handle in handles)
    if not _undo and hasattr(module, _ASKED):
        _count_others(module)

    def remove():
        for handle in handles:
            handle.remove()
            _ours.discard(handle.id)
        if not _ours and _undo:
            _undo.pop()()

    return remove


def _count_others(module):
    original = getattr(module, _ASKED)

    def has_any_global_hook():
        return any(key not in _ours for kind in _KINDS for key in getattr(module, kind, ()))

    def back():
        if getattr(module, _ASKED) is has_any_global_hook:
            setattr(module, _ASKED, original)

    setattr(module, _ASKED, has_any_global_hook)
    _undo.append(back)
