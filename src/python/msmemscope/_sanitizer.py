# SPDX-License-Identifier: MulanPSL-2.0
"""The bridge from operators outside of torch's dispatcher to torch_npu's sanitizer.

torch_npu reports the tensors of such an operator in a mark,

    sanitizer-op: name=<operator>;read=<alias>:<address>:<bytes>,…;write=…

and its sanitizer gets a kernel launch, in the thread and at the moment of the mark.
"""

import atexit
import inspect
import sys

from . import _control, _missing, _messages

MAX_ALIAS = 31

_sanitizer = None  # torch_npu.npu._sanitizer


def enable_npu_sanitizer() -> None:
    """Let torch_npu's sanitizer see the operators of this process that do not come from torch.

    Needs torch_npu, and the libraries of `msmemscope --load-api-env`. A data race that is found is
    printed and raised in the main thread as CUDASanitizerErrors. Works without start().

    >>> import torch_npu, msmemscope
    >>> msmemscope.enable_npu_sanitizer()
    """
    global _sanitizer
    sonde = _control.native()
    try:
        from torch_npu.npu import _sanitizer as found
    except ImportError as why:
        raise ImportError(
            f"enable_npu_sanitizer() needs torch_npu with its sanitizer, and there is none: {why}"
        ) from None
    if not _missing.is_loaded("libascend_mstx_hook.so"):
        _messages.warn(f"operators are not reported to the sanitizer: start {_missing.RECIPE}")
    found.enable_npu_sanitizer()
    if _sanitizer is None:
        atexit.register(sonde.set_sanitizer, None)
    _sanitizer = found
    sonde.set_sanitizer(_on_operator)


def _blocks(text):
    """{address: alias} of "alias:address:bytes,…"; what makes no sense is passed over."""
    found = {}
    for item in text.split(","):
        alias, _, rest = item.strip().partition(":")
        address = rest.split(":")[0]
        try:
            number = int(address, 16 if address.lower().startswith("0x") else 10)
        except ValueError:
            continue
        if number:
            found.setdefault(number, alias[:MAX_ALIAS])
    return found


def _parse(text):
    """(name, blocks read, blocks written) of a mark."""
    fields = {}
    for part in text.partition(":")[2].split(";"):
        key, _, value = part.strip().partition("=")
        fields[key] = value
    return fields.get("name", ""), _blocks(fields.get("read", "")), _blocks(fields.get("write", ""))


def _handler():
    npu = getattr(_sanitizer, "npu_sanitizer", None)
    return getattr(getattr(npu, "event_handler", None), "_handle_kernel_launch", None)


def _takes(handle):
    """How many arguments; 6, or 7 in versions that look at tensors of factories as well."""
    try:
        return len(inspect.signature(handle).parameters)
    except (TypeError, ValueError):
        return 6


def _errors_class():
    for module in (_sanitizer, sys.modules.get("torch.cuda._sanitizer")):
        found = getattr(module, "CUDASanitizerErrors", None)
        if found is not None:
            return found
    return lambda errors: RuntimeError(str(errors))


def _on_operator(text, stream):
    """Gives back the exception that is to be raised, or None."""
    handle = _handler()
    if handle is None:
        return None
    name, read, written = _parse(text)
    aliases = {}
    for blocks in (read, written):
        for address, alias in blocks.items():
            if alias not in aliases.setdefault(address, []):
                aliases[address].append(alias)
    args = [stream, set(read) - set(written), set(written), set(), name, aliases]
    errors = handle(*args, *[set()] * (_takes(handle) - len(args)))
    if not errors:
        return None
    for error in errors:
        _messages.line(str(error))
    return _errors_class()(errors)
