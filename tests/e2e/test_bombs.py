# SPDX-License-Identifier: MulanPSL-2.0
"""Small files that say more than memory holds: what is kept is bounded by the size of the file, the
time grows with it and not with its square, and what is left out is said."""

import os
import struct
import subprocess
import sys

import pytest

from crafted import BATCH, PROC, SESSION, Crafted, alloc, cursor, frame, free, name, run, stack

LIMIT = 3 << 30  # of the address space: a bomb that goes off must not hurt the machine


# A process that is started has used as much memory as the one that started it: a small one, here.
MEASURE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
pid = os.fork()
if not pid:
    os.execv(sys.argv[3], sys.argv[3:])
_, status, used = os.wait4(pid, 0)
print(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status),
      used.ru_utime + used.ru_stime, used.ru_maxrss >> 10, file=open(int(sys.argv[2]), "w"))
"""


def measure(record, *words):
    """Exit status, answer, seconds of the processor and MiB of memory of a command."""
    read, write = os.pipe()
    command = [sys.executable, "-I", "-S", "-c", MEASURE, LIMIT, write, record.build / "bin/sonde", *words]
    with open(read) as numbers:
        r = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env=record.env(), pass_fds=[write])  # fmt: skip
        os.close(write)
        status, seconds, mib = numbers.read().split()
    return int(status), r.stdout, float(seconds), int(mib)


def craft(record):
    record.runs += 1
    out = record.tmp / f"bomb{record.runs}"
    return Crafted(out / "recording_1_1", outputDir=str(out))


def names(record, n):
    """Long ones that differ in their numbers alone."""
    made = craft(record).proc(0)
    for k in range(0, n, 5000):
        made.batch(run(0, 7, *[name(1, k + i + 1, b"x" * 4000) for i in range(5000)]))
    return made


def blocks(record, n):
    """The same ones in many processes."""
    made, same = craft(record), [alloc(1, (i + 1) << 12) for i in range(1000)]
    for i in range(n // 1000):
        made.proc(i)
    for k in range(0, n // 1000, 500):
        made.batch(*[run(i, 7, *same) for i in range(k, min(n // 1000, k + 500))])
    return made


def stacks(record, n):
    """Deep ones, of which no two have a frame in common."""
    made = craft(record).proc(0)
    with_stack = lambda i: b"".join([(r := alloc(1, (i + 1) << 12))[:4], struct.pack("<I", i + 1), r[8:]])
    for k in range(0, n, 5000):
        ids = range(k, min(n, k + 5000))
        made.batch(*[stack(0, i + 1, [0x1000 + i] * 1000) for i in ids], run(0, 7, *map(with_stack, ids)))
    return made


BOMBS = [("show", names, 25_000), ("show", blocks, 700_000), ("recover", blocks, 700_000), ("show", stacks, 8_000)]


@pytest.mark.parametrize("command, bomb, n", BOMBS)
def test_what_is_kept_is_bounded_by_the_file(record, command, bomb, n):
    sizes, used = [], []
    for n in (n, 2 * n):
        made = bomb(record, n)
        sizes.append(made.file.stat().st_size)
        status, text, _, mib = measure(record, "mem", command, made.dir)
        used.append(mib)
        assert status == (1 if command == "recover" else 0), text[-500:]
        assert "made to fill memory" in " ".join(text.split()), text[-500:]
    assert max(sizes) < 1 << 20
    # The file has doubled, what was kept hardly: it is a constant and a share of the file.
    assert used[1] < 1.4 * used[0] and used[1] < 400, (sizes, used)


def test_a_recording_that_is_only_large_is_kept_whole(record):
    """Blocks that differ as those of a job do."""
    made = craft(record).proc(0)
    for k in range(1, 200_001, 100_000):
        rows = [alloc(i * 1000 + i % 977, (i << 12) + (i * 2654435761) % 61 * 64, 64 + i % 4096) for i in range(k, k + 100_000)]
        made.batch(run(0, 7, *rows))
    status, text, _, _ = measure(record, "mem", "show", made.end(0).dir)
    assert status == 0 and "200,000" in text and "left out" not in text, text[-500:]


def cursors(record, n):
    """Of many processes that end one after the other."""
    made = craft(record)
    for i in range(n):
        made.add(PROC, struct.pack("<IIIIQQQ", i, 1000 + i, 1, 0, 1, 1, 10**9) + bytes(1024))
    made.batch(*[cursor(i, ring) for i in range(n) for ring in range(16)])
    for i in range(n):
        made.end(i)
    return made


def test_cursors_of_many_rings(record):
    """Twice as many take twice as long; a search of each among all takes four times as long."""
    seconds = []
    for n in (4000, 8000):
        status, text, spent, _ = measure(record, "mem", "recover", cursors(record, n).dir)
        assert status == 0, text
        seconds.append(spent)
    assert seconds[1] < 3 * max(seconds[0], 0.05), seconds


def test_rows_of_more_devices_than_there_are(record):
    """Each would be searched among the others, and have a file of its own."""
    made = craft(record).proc(0)
    made.batch(run(0, 7, *[alloc(i, i << 12, device=i % 60000) for i in range(1, 120_000)])).end(0)
    status, text, _, mib = measure(record, "mem", "show", made.dir)
    assert status == 0 and "left out" in text and mib < 200, (mib, text[-300:])
    status, text, _, mib = measure(record, "mem", "recover", made.dir)
    assert status == 1 and len(list(made.dir.parent.glob("msmemscope_*/device_*"))) <= 256, text


def test_a_file_with_holes(record):
    """A terabyte of nothing behind a recording is read as what it is."""
    made = blocks(record, 1_000_000)
    os.truncate(made.file, 1 << 40)
    status, text, _, mib = measure(record, "mem", "show", made.dir)
    assert status == 0 and mib < 400 and "cut off" in text, text[-500:]


def generations(record, n):
    """Blocks of the highest moment, which are freed, and nearly as many after them."""
    made, many = craft(record), n // 1000
    ids = range(1, 1001)
    lives = [[alloc(1, i << 12, 65) for i in ids], [free(2, i << 12) for i in ids], [alloc(3, i << 12) for i in ids]]
    for i in range(many):
        made.proc(i)
    for same in lives:
        for k in range(0, many, 500):
            made.batch(*[run(i, 7, *same) for i in range(k, min(many, k + 500))])
    return made


def replaced(record, n):
    """One address that is allocated again and again, and never freed."""
    made = craft(record).proc(0)
    made.frames.write(n // 1_000_000 * frame(BATCH, run(0, 7, *[alloc(1, 4096)] * 1_000_000)))
    made.frames.flush()
    return made


def ended(record, n):
    """Processes that leave their blocks behind, one after the other."""
    made, same = craft(record), [alloc(1, (i + 1) << 12) for i in range(1000)]
    for i in range(n // 1000):
        made.proc(i).batch(run(i, 7, *same)).end(i)
    return made


BOUND = [(generations, 2_000_000), (blocks, 2_000_000), (stacks, 12_000), (replaced, 6_000_000), (ended, 600_000)]


@pytest.mark.parametrize("bomb, n", BOUND)
def test_what_a_question_takes_is_what_the_page_says(record, bomb, n):
    made = bomb(record, n)
    bound = 256 + 512 * made.file.stat().st_size / (1 << 20)
    for question in ("show", "leaks", "peak", "owners", "oom", "inefficient", "gaps"):
        status, text, _, mib = measure(record, "mem", question, made.dir)
        assert status == 0 and mib < bound, (question, mib, bound, text[-300:])


def unknown_frame():
    return frame(99, bytes(60 << 20))


def unknown_item():
    return frame(BATCH, struct.pack("<IIII", 77, 60 << 20, 0, 0) + bytes((60 << 20) - 16))


def long_session():
    return frame(SESSION, b'{"wallMinusMono":0}' + b" " * (2 << 20))


@pytest.mark.parametrize("bomb", [unknown_frame, unknown_item, long_session])
def test_what_nobody_can_use_is_not_expanded(record, bomb):
    """Forty times as many of them take hardly longer."""
    seconds, one = [], bomb()
    for n in (5, 200):
        made = craft(record).proc(0)
        made.frames.write(n * one)
        made.frames.flush()
        _, text, spent, mib = measure(record, "mem", "show", made.dir)
        assert mib < 200, (mib, text[-300:])
        seconds.append(spent)
    assert seconds[1] < 4 * max(seconds[0], 0.05), seconds
