# SPDX-License-Identifier: MulanPSL-2.0
"""A command on a terminal of its own: what it shows, and what keys do to it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

from waiting import wait_until

UP, DOWN, PAGE_DOWN, HOME, END, ESCAPE = "\x1b[A", "\x1bOB", "\x1b[6~", "\x1b[H", "\x1b[4~", "\x1b"


class Screen:
    """A terminal of so many lines and columns with a command on it."""

    def __init__(self, words, env, lines=20, columns=110):
        self.seen, self.lines, self.columns = b"", lines, columns
        self.pid, self.fd = pty.fork()
        if not self.pid:
            self.set_size(0, lines, columns)
            os.execve(words[0], [str(w) for w in words], {"TERM": "xterm", **env})
        self.status = None

    @staticmethod
    def set_size(fd, lines, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def resize(self, lines, columns):
        self.lines, self.columns = lines, columns
        self.set_size(self.fd, lines, columns)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.status is None:
            if kind:
                os.kill(self.pid, signal.SIGKILL)
            else:
                os.write(self.fd, b"\x04")
            self.ends()
        os.close(self.fd)
        assert kind or self.status == 0

    def ends(self):
        """Waits for its end. All that it has written."""
        while self.read():
            pass
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.seen

    def read(self):
        try:
            part = os.read(self.fd, 65536) if select.select([self.fd], [], [], 0.05)[0] else b" "
        except OSError:
            return b""
        self.seen += part.strip(b" ") if part == b" " else part
        return part

    def shown(self):
        """The lines of the last screen that was drawn completely."""
        last = self.seen.split(b"\x1b[H")
        text = next((s for s in reversed(last) if s.endswith(b"\x1b[J") or b"\x1b[J" in s), b"")
        return re.sub(rb"\x1b\[[?0-9;]*[a-zA-Z]", b"", text).decode().replace("\r", "").splitlines()

    def key(self, keys, want):
        """Types them, and waits until that is true of the lines."""
        os.write(self.fd, keys.encode())
        return self.until(want)

    def until(self, want):
        def look():
            assert self.read(), "it has ended"
            return want(self.shown()) and self.shown()

        return wait_until(look, lambda: "\n".join(self.shown()))
