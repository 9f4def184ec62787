# SPDX-License-Identifier: MulanPSL-2.0
"""What a process itself knows about its stacks, for whoever compares it with what was seen from
outside. Every program here runs on Python 3.7 and later."""

import ctypes
import json
import os
import platform
import sys
import threading
import time

GETTID = {"x86_64": 186, "aarch64": 178}


def native_id():
    if hasattr(threading, "get_native_id"):
        return threading.get_native_id()
    return ctypes.CDLL(None).syscall(GETTID[platform.machine()])


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def frames_from(frame):
    """Outermost first, as lists of name, file, line."""
    out = []
    while frame is not None:
        out.append([name_of(frame.f_code), frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return out[::-1]


def threads(known, leave_out=()):
    """Every thread but those whose idents are left out. known: system ids by ident."""
    names = {t.ident: t.name for t in threading.enumerate()}
    return [
        {
            "ident": ident,
            "tid": known.get(ident, 0),
            "name": names.get(ident, ""),
            "frames": frames_from(frame),
        }
        for ident, frame in sys._current_frames().items()
        if ident not in leave_out
    ]


def write(path, view):
    """All of it or nothing: a reader never sees half a file."""
    view["pid"] = os.getpid()
    view["version"] = list(sys.version_info[:3])
    with open(path + ".new", "w", encoding="utf-8", errors="surrogatepass") as f:
        json.dump(view, f)
    os.rename(path + ".new", path)


class Gate:
    """Where threads come to rest, and by which it is known that all of them have."""

    def __init__(self):
        self.closed = threading.Lock()
        self.closed.acquire()
        self.tids = {}

    def park(self, *_ignored):
        self.tids[threading.get_ident()] = native_id()
        self.closed.acquire()

    def still(self, expected, leave_out=()):
        """The view of all threads once `expected` of them rest in park()."""
        last = None
        while True:
            time.sleep(0.03)
            if len(self.tids) < expected:
                continue
            now = threads(self.tids, leave_out)
            if now == last:
                return now
            last = now


def die_with_parent():
    pr_set_pdeathsig, sigkill = 1, 9
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, sigkill, 0, 0, 0)


def wait_for_the_end():
    """Until whoever started us closes our standard input; then at once, whatever is parked."""
    while os.read(0, 4096):
        pass
    os._exit(0)
