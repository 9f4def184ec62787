# SPDX-License-Identifier: MulanPSL-2.0
"""Takes memory of the simulated NPU and says, before each call, where in Python that happens.

usage: allocates.py DIRECTORY-OF-THE-SIMULATED-STACK
"""
import ctypes
import json
import sys
import threading

acl = ctypes.CDLL(sys.argv[1] + "/libascendcl.so")
told = []


def here(line):
    """The stack of the caller as the interpreter sees it, innermost first; it goes on at `line`."""
    frame, places = sys._getframe(1), []
    while frame:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        places.append("%s(%d): %s" % (frame.f_code.co_filename, frame.f_lineno, name))
        frame = frame.f_back
    places[0] = places[0].replace("(%d)" % (line - 1), "(%d)" % line)
    return places


class Trainer:
    def step(self, size):
        return self.grab(size)

    def grab(self, size):
        told.append(here(sys._getframe().f_lineno + 1))
        acl.aclrtMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size), 0)


def deep(n, call):
    return deep(n - 1, call) if n else call()


class Batch:
    """From 3.13 on the interpreter puts a frame of its own below __init__, once it is warm."""

    def __init__(self, trainer):
        if trainer:
            trainer.step(1 << 20)


def fill(trainer):
    return Batch(trainer)


def 训练(trainer):
    yield trainer.step(1 << 20)


def work():
    trainer = Trainer()
    acl.aclrtSetDevice(0)
    [trainer.step(1 << 20) for _ in range(2)]
    [fill(None) for _ in range(100)]
    fill(trainer)
    list(训练(trainer))
    deep(20, lambda: trainer.step(1 << 21))
    exec(compile("trainer.step(1 << 20)", "a made up name", "exec"), {"trainer": trainer})


acl.aclInit(None)
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(json.dumps(told))
