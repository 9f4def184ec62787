# SPDX-License-Identifier: MulanPSL-2.0
"""Peers of a daemon with certificates, as programs of their own: other users and other networks run
them.

    tls_peers.py flood HOST PORT RATE SOURCE…       sends RATE ClientHellos a second, and never answers
    tls_peers.py call HOST PORT CERTS N SOURCE      makes N calls; prints how many were served

A flood comes from the addresses in turn, prints a line when it has begun, and ends with its stdin,
or after a minute.
"""

import contextlib
import os
import pathlib
import select
import socket
import ssl
import sys
import time

HELD = 500  # connections that a flood keeps open
FLOOD_S = 60


def client_hello():
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return sent.read()


def send_hello(host, port, source, hello):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    with contextlib.suppress(OSError):
        s.bind((source, 0))
        s.settimeout(1)
        s.connect((host, port))
        s.send(hello)
    return s


def flood(host, port, rate, *sources):
    hello, held = client_hello(), []
    begin = time.monotonic()
    for n in range(int(rate) * FLOOD_S):
        held.append(send_hello(host, int(port), sources[n % len(sources)], hello))
        if len(held) > HELD:
            held.pop(0).close()
        if n == int(rate) // 3:
            print("up", flush=True)
        wait = max(0, begin + n / int(rate) - time.monotonic())
        if select.select([0], [], [], wait)[0]:
            return


def call(host, port, certs, n, source):
    import rpc_client

    certs, served = pathlib.Path(certs), 0
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    context.load_cert_chain(certs / "client.crt", certs / "client.key")
    for _ in range(int(n)):
        try:
            with rpc_client.Connection(int(port), host, context, 3, source) as c:
                served += "version" in c.call({"fn": "getVersion"})
        except (OSError, rpc_client.Closed) as e:
            print(repr(e), file=sys.stderr)
    print(served)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    {"flood": flood, "call": call}[sys.argv[1]](*sys.argv[2:])
