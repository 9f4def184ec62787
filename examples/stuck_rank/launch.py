# SPDX-License-Identifier: MulanPSL-2.0
"""Starts a small data-parallel job, one process per rank, that gets stuck: from the fourth step on
the storage of one rank answers no more.

usage: launch.py [ranks [stuck rank]]     (8 and 5; -1: none gets stuck)

The launcher plays the network and the storage: every rank has a connection to it for collectives
and a pipe from which its data come. When it ends, however it ends, the ranks end, too.
"""

import os
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STUCK_FROM = 3


def start_rank(rank, ranks):
    network, its_network = socket.socketpair()
    its_storage, storage = os.pipe()
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    args = [sys.executable, "-B", os.path.join(HERE, "trainer.py")]
    args += [str(its_network.fileno()), str(its_storage)]
    process = subprocess.Popen(args, env=env, pass_fds=(its_network.fileno(), its_storage))
    its_network.close()
    os.close(its_storage)
    return process, network, storage


def serve_step(step, workers, stuck):
    for rank, (_, _, storage) in enumerate(workers):
        if rank != stuck or step < STUCK_FROM:
            os.write(storage, b"x" * 64)
    print("step %d" % step, flush=True)
    total = sum(float(network.recv(64).decode()) for _, network, _ in workers)
    for _, network, _ in workers:
        network.sendall(b"%f" % total)


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    stuck = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    workers = [start_rank(rank, ranks) for rank in range(ranks)]
    try:
        step = 0
        while True:
            serve_step(step, workers, stuck)
            step += 1
    finally:
        for process, _, _ in workers:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
