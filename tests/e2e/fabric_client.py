# SPDX-License-Identifier: MulanPSL-2.0
"""The other side of the IPC fabric (src/wire/fabric.h), spoken by hand.

    c = Client(d.ipc_dir / "dynolog", bind=d.ipc_dir)     as libkineto with a socket directory
    c = Client("@dynolog", netns=d.pid)                   as libkineto without
    c = Client(home / "dynolog.sock", netns=d.pid)        as the NPU client
    c.request([pid, parent]) -> text of a config, "" if there is none

As a program it is a process that registers itself, polls, and prints what it is given, a JSON
object a line; for tests that need a process of its own, or in another namespace:

    fabric_client.py SERVER BIND SECONDS [JOB]
"""

import contextlib
import ctypes
import json
import os
import select
import socket
import struct
import sys
import threading
import time
import uuid

from waiting import wait_until

HEADER = struct.Struct("=Q32s")
ANSWER_S = 30
RETRY_S = 0.002

IDLE, RUNNING, READY, UNINITIALIZED = 0, 1, 2, -1
EVENTS, ACTIVITIES = 1, 2


def datagram(kind, payload=b""):
    kind = kind.encode() if isinstance(kind, str) else kind
    return HEADER.pack(len(payload), kind) + payload


def context(gpu, pid, job=0):
    return datagram("ctxt", struct.pack("=iiq", gpu, pid, job))


def request(pids, mask=EVENTS | ACTIVITIES, job=0):
    return datagram("req", struct.pack(f"=iiq{len(pids)}i", mask, len(pids), job, *pids))


def trace_status(state, current=-1, start=-1, stop=-1, pid=None, job=0):
    pid = os.getpid() if pid is None else pid
    # the four bytes behind the pid are whatever was there
    payload = struct.pack("=5i4sq", state, current, start, stop, pid, b"\xa5\xa5\xa5\xa5", job)
    return datagram("npuTraceStatus", payload)


def monitor_status(state, pid=None, job=0):
    pid = os.getpid() if pid is None else pid
    payload = struct.pack("=5i4sq", state, -1, -1, -1, pid, b"\xa5\xa5\xa5\xa5", job)
    return datagram("npuMonitorStatus", payload)


def old_status(kind, state, pid=None, job=0):
    """As until November 2025."""
    pid = os.getpid() if pid is None else pid
    return datagram(kind, struct.pack("=iiq", state, pid, job))


def split(data):
    """Type and payload of a datagram that claims what it has."""
    size, kind = HEADER.unpack_from(data)
    assert size == len(data) - HEADER.size, data
    return kind.rstrip(b"\0").decode(), data[HEADER.size :]


def address(name):
    """@NAME: abstract, with the NUL behind that belongs to it. Else a path."""
    name = str(name)
    return b"\0" + name[1:].encode() + b"\0" if name.startswith("@") else name


def in_netns(pid, function, *args):
    """What function gives, called in the network namespace of a process."""
    result = []

    def work():
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.setns(fd, 0x40000000)
        os.close(fd)
        try:
            if failed:
                raise OSError(ctypes.get_errno(), "setns")
            result.append((function(*args), None))
        except Exception as e:
            result.append((None, e))

    # a namespace is of a thread; this one ends with it
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    value, error = result[0]
    if error:
        raise error
    return value


class Client:
    def __init__(self, server, bind="@", netns=None, name=None):
        """bind: "@" an abstract name, a directory a path in it, None nothing.
        name: instead of dynoconfigclient and a UUID. netns: a process in that namespace."""
        self.server = address(server)
        name = name or f"dynoconfigclient{uuid.uuid4()}"
        if netns:
            self.sock = in_netns(netns, socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)
        else:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.path = None
        if bind == "@":
            self.sock.bind(address("@" + name))
        elif bind is not None:
            self.path = os.path.join(bind, name)
            self.sock.bind(self.path)
            os.chmod(self.path, 0o666)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()
        if self.path and os.path.exists(self.path):
            os.unlink(self.path)

    def send(self, data, seconds=ANSWER_S):
        """Tries again while the daemon's queue is full, as real clients do."""

        def attempt():
            with contextlib.suppress(BlockingIOError):
                self.sock.sendto(data, self.server)
                return True

        wait_until(attempt, "the daemon to take it", seconds, RETRY_S)

    def receive(self, seconds=ANSWER_S):
        """The next datagram, whole; None if there is none. self.source says from whom."""
        if not select.select([self.sock], [], [], seconds)[0]:
            return None
        data, self.source = self.sock.recvfrom(1 << 17)
        return data

    def answer(self, kind, seconds=ANSWER_S):
        data = self.receive(seconds)
        assert data is not None, "no answer"
        got, payload = split(data)
        assert got == kind, (got, payload)
        return payload

    def context(self, gpu=0, pid=None, job=0):
        self.send(context(gpu, os.getpid() if pid is None else pid, job))
        return struct.unpack("=i", self.answer("ctxt"))[0]

    def request(self, pids=None, mask=EVENTS | ACTIVITIES, job=0):
        self.send(request(pids or [os.getpid(), os.getppid()], mask, job))
        return self.answer("req").decode()

    def data(self, record):
        text = record if isinstance(record, bytes) else json.dumps(record).encode()
        self.send(datagram("data", text))


def main():
    server, bind, seconds = sys.argv[1:4]
    job = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    end = time.monotonic() + float(seconds)
    with Client(server, bind=None if bind == "-" else bind) as c:
        print(json.dumps({"pid": os.getpid(), "registered": c.context(job=job)}), flush=True)
        while time.monotonic() < end:
            text = c.request(job=job)
            if text:
                print(json.dumps({"config": text}), flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main()
