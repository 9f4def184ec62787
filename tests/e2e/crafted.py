# SPDX-License-Identifier: MulanPSL-2.0
"""Recordings as nobody's recorder writes them (src/wire/recording.h, record.h), for hostile readers.

    made = Crafted(directory, outputDir="/somewhere")          session page and head, frame by frame
    made.proc(0).batch(run(0, 7, alloc(1, 0x1000))).end(0)
"""

import ctypes
import json
import struct

XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH64.restype = ctypes.c_uint64
XXHASH.XXH64.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_compress.restype = ZSTD.ZSTD_compressBound.restype = ctypes.c_size_t
ZSTD.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
ZSTD.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]

SESSION, PROC, BATCH, PROC_END, END = 1, 2, 3, 4, 5
LIVE = 1
RING_DIR_AT = 88  # in struct control_page


def compressed(data):
    room = ctypes.create_string_buffer(ZSTD.ZSTD_compressBound(len(data)))
    n = ZSTD.ZSTD_compress(room, len(room), data, len(data), 3)
    return room.raw[:n] if n < len(data) else data


def frame(kind, raw=b""):
    stored = compressed(raw) if raw else b""
    check = XXHASH.XXH64(stored, len(stored), len(raw) << 32 | kind)
    return struct.pack("<IIIIQ", 0x314D5246, kind, len(stored), len(raw), check) + stored


def record(kind, time, body, text=None):
    """body is the fixed part behind the head; the text is padded."""
    body += b"" if text is None else text + bytes(-len(text) % 8)
    return struct.pack("<BBHIQ", kind, 0, 16 + len(body), 0, time) + body


def alloc(time, addr, size=64, pool=3, device=0):
    return record(2, time, struct.pack("<QQHBBBBH", addr, size, device, pool, 0, 0, 255, 0))


def free(time, addr, pool=3, device=0):
    return record(3, time, struct.pack("<QHBBI", addr, device, pool, 0, 0))


def name(time, number, text):
    return record(8, time, struct.pack("<QHHHH", number, len(text), 0, 0, 0), text)


def watch(time, content, op=b"op", watched=b"w"):
    text = op + b"\0" + watched
    numbers = struct.pack("<QQQQIIIIIIHHBBBB", 1, 8, 0, content, 1, 1, 1, 1, 0, 0, 0, len(text), 0, 0, 1, 0)
    return record(14, time, numbers, text)


def run(proc, tid, *records):
    data = b"".join(records)
    return struct.pack("<IIII", 1, 16 + len(data), proc, tid) + data


def stack(proc, number, addresses):
    data = struct.pack(f"<{len(addresses)}Q", *addresses)
    return struct.pack("<IIIIII", 2, 24 + len(data), proc, 0, number, len(addresses)) + data


def cursor(proc, ring, sequence=0):
    return struct.pack("<IIIIIIQ", 3, 32, proc, 0, ring, 64, sequence)


class Crafted:
    """A session whose recorder was killed, with nothing in any ring."""

    def __init__(self, directory, ring_dir="", **config):
        self.dir = directory
        self.dir.mkdir(parents=True, exist_ok=True)
        self.file = self.dir / "events.sonde"
        page = bytearray(4096)
        struct.pack_into("<8sII", page, 0, b"SESSION1", 1, LIVE)
        page[RING_DIR_AT : RING_DIR_AT + len(ring_dir)] = ring_dir.encode()
        (self.dir / "session").write_bytes(page)
        self.file.write_bytes(b"SONDEREC" + struct.pack("<IIQQ", 1, 1, 0, 0))
        self.frames = open(self.file, "ab")
        self.add(SESSION, json.dumps({"wallMinusMono": 0, **config}).encode())

    def add(self, kind, raw=b""):
        self.frames.write(frame(kind, raw))
        self.frames.flush()
        return self

    def proc(self, number, pid=None):
        head = struct.pack("<IIIIQQQ", number, pid or 1000 + number, 1, 0, 1, 1, 10**9)
        return self.add(PROC, head + bytes(256 + 512 + 256))

    def batch(self, *items):
        return self.add(BATCH, b"".join(items))

    def end(self, number):
        return self.add(PROC_END, struct.pack("<IIQQQQ", number, 0, 10**10, 0, 0, 0))


def config(time, output):
    """The program itself has chosen another place for its dumps."""
    text = output.encode()
    settings = struct.pack("<7I8B", 3, 0xFF, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)
    return record(17, time, settings + struct.pack("<HH", len(text), 0), text)
