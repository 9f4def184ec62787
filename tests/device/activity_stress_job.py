#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Threads that use CUDA in every way at once, for activity.py: launches, replays of a graph, graphs
that are captured and thrown away, copies. Each knows what its results must be.

    begin                all of them
    end                  answers what went wrong, and how much each did

Answers "ok …" to each. Ends with its input.
"""

import json
import sys
import threading

import torch

SIZE = 1000
stop = threading.Event()
one_captures = threading.Lock()  # PyTorch's allocator allows no two
wrong, done = [], {}


def check(values, want):
    assert values.min().item() == values.max().item() == want, (values.min().item(), want)


def graph_of(values, n, stream):
    graph = torch.cuda.CUDAGraph()
    with one_captures:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(n):
                values.add_(1)
    return graph


def launches(stream):
    values, n = torch.zeros(SIZE, device="cuda"), 0
    while not stop.is_set():
        for _ in range(200):
            values.add_(1)
        n += 200
        stream.synchronize()
    check(values, n)
    return n


def replays(stream):
    values, n = torch.zeros(SIZE, device="cuda"), 0
    stream.synchronize()
    graph = graph_of(values, 20, stream)
    while not stop.is_set():
        for _ in range(20):
            graph.replay()
        n += 400
        stream.synchronize()
    check(values, n)
    return n


def captures(stream):
    values, n = torch.zeros(SIZE, device="cuda"), 0
    stream.synchronize()
    while not stop.is_set():
        graph = graph_of(values, 50, stream)
        graph.replay()
        stream.synchronize()
        n += 50
    check(values, n)
    return n


def copies(_):
    here, n = torch.randn(1 << 18).pin_memory(), 0
    while not stop.is_set():
        assert torch.equal(here.to("cuda", non_blocking=True).to("cpu"), here)
        n += 1
    return n


def work(what):
    try:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            done[what.__name__] = what(stream)
    except BaseException as e:
        wrong.append(f"{what.__name__}: {e!r}")


def main():
    torch.zeros(1, device="cuda")
    print("ok", flush=True)
    threads = []
    for line in sys.stdin:
        said = ""
        if line.strip() == "begin":
            ways = (launches, launches, replays, captures, copies)
            threads = [threading.Thread(target=work, args=(way,)) for way in ways]
            for t in threads:
                t.start()
        else:
            stop.set()
            for t in threads:
                t.join()
            said = json.dumps({"wrong": wrong, "done": done})
        print("ok", said, flush=True)


if __name__ == "__main__":
    sys.exit(main())
