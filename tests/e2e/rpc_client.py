# SPDX-License-Identifier: MulanPSL-2.0
"""The control RPC, spoken by hand: a signed 32-bit length in host byte order, then JSON.

    call(port, {"fn": "getStatus"})            one connection, one question
    with Connection(port) as c: c.call(…)      several questions; send() and receive() for odd ones
"""

import json
import socket
import struct

TIMEOUT_S = 30


def frame(body):
    """The bytes of a request: a dict, text, or bytes."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body, separators=(",", ":"))
    if isinstance(body, str):
        body = body.encode()
    return struct.pack("=i", len(body)) + body


class Closed(Exception):
    """The daemon ended the connection instead of answering."""


class Connection:
    def __init__(self, port, host="127.0.0.1", tls=None, timeout=TIMEOUT_S, source=None):
        """port: a number, or the path of a UNIX socket. tls: an ssl.SSLContext with a client
        certificate. source: the address to come from."""
        if isinstance(port, int):
            self.sock = socket.create_connection((host, port), timeout, source and (source, 0))
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout)
            self.sock.connect(str(port))
        if tls:
            self.sock = tls.wrap_socket(self.sock, server_hostname=host)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def _exactly(self, n):
        data = bytearray()
        while len(data) < n:
            try:
                piece = self.sock.recv(n - len(data))
            except ConnectionResetError as e:
                raise Closed("reset") from e
            if not piece:
                raise Closed(f"ended after {len(data)} of {n} bytes")
            data += piece
        return bytes(data)

    def receive_bytes(self):
        (length,) = struct.unpack("=i", self._exactly(4))
        assert 0 < length < 1 << 26, length
        return self._exactly(length)

    def receive(self):
        return json.loads(self.receive_bytes())

    def call(self, request):
        self.send(frame(request))
        return self.receive()

    def is_closed(self):
        """Waits for the end of the connection; False if something was said instead."""
        try:
            return self.sock.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            return True


def call(port, request, host="127.0.0.1", tls=None):
    with Connection(port, host, tls) as c:
        return c.call(request)
