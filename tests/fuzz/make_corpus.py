#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""Writes the well-formed seeds below tests/fuzz/corpus. usage: make_corpus.py

Layouts are those of src/wire/record.h and src/wire/recording.h, spelt out once more: a seed that
nobody can read any more would test nothing. Seeds found by a fuzzer lie beside these.
"""

import os
import struct

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
THREAD, ALLOC, FREE, HEAP, ACCESS, OP, KERNEL, NAME, MARK, SYSTEM, LABEL, OOM, MODULE = range(1, 14)
DEVICE, PYTHON, CONFIG, SNAPSHOT, CALL = range(15, 20)
HAL, HOST, PTA, WORKSPACE, MINDSPORE, ATB, TORCH, CUDA = range(1, 9)
IN_PYTHON, IN_C, RETURN, C_RETURN, OPEN, STOP, NOTE, NOTE_END = range(8)


def record(kind, ns, body, text=b"", flags=0, stack=0):
    data = body + text
    data += bytes(-len(data) % 8)
    return struct.pack("<BBHIQ", kind, flags, 16 + len(data), stack, ns) + data


def alloc(ns, addr, size, pool, kind=0, device=0, **more):
    return record(ALLOC, ns, struct.pack("<QQHBBBBH", addr, size, device, pool, kind, 1, 3, 0), **more)


def free(ns, addr, pool, kind=0, **more):
    return record(FREE, ns, struct.pack("<QHBBI", addr, 9999, pool, kind, 0), **more)


def heap(ns, pool, mode, addr, size):
    return record(HEAP, ns, struct.pack("<QqHBBI", addr, size, 0, pool, mode, 0))


def mark(ns, kind, range_id, text):
    return record(MARK, ns, struct.pack("<QHBBHH", range_id, 0, kind, 0, len(text), 0), text)


def label(ns, kind, level, text, addr=0, device=9999):
    return record(LABEL, ns, struct.pack("<QBBHHH", addr, kind, level, len(text), device, 0), text)


def system(ns, kind, value=0, source=0):
    return record(SYSTEM, ns, struct.pack("<QHBBI", value, 9999, kind, source, 0))


def op(ns, kind, text):
    return record(OP, ns, struct.pack("<HBBHH", 0, kind, 0, len(text), 0), text)


def kernel(ns, name, kind):
    return record(KERNEL, ns, struct.pack("<QHHHBB", name, 0, 1, 2, kind, 0))


def name(ns, number, text):
    return record(NAME, ns, struct.pack("<QHHHH", number, len(text), 0, 0, 0), text)


def access(ns, addr, pool, kind, text):
    return record(ACCESS, ns, struct.pack("<QQHBBHH", addr, 4, 0, pool, kind, len(text), 0), text)


def oom(ns):
    return record(OOM, ns, struct.pack("<QQHBBI", 1 << 40, 7, 0, 0, 0, 0))


def device(ns, mine=64):
    return record(DEVICE, ns, struct.pack("<QQQQHHI", 1 << 36, 1 << 30, mine, 5, 0, 1, 0))


def watch(ns, number, seq, call, after, checksum, text, output=0, error=0):
    body = struct.pack(
        "<QQQQIIIIIIHHBBH",
        *(0x1000, 64, checksum, 0),
        *(number, seq, call, 1, output, error),
        *(0, len(text), after, 0, 0),
    )
    return record(14, ns, body, text)


def module(ns, path):
    return record(MODULE, ns, struct.pack("<QQQHHHH", 0x1000, 0x9000, 0, len(path), 0, 0, 0), path)


def place(ns, number, line, text):
    return record(PYTHON, ns, struct.pack("<QIHH", number, line, len(text), 0), text)


def config(ns, text=b"", dump=15, analysis=15, npus=2**32 - 1, traceback=0, form=0, watching=0):
    body = struct.pack("<7I8B", 3, dump, analysis, 2, npus, 5, 5, 0, 1, traceback, form, 1, 1, watching, 0)
    return record(CONFIG, ns, body + struct.pack("<HH", len(text), 0), text)


def snapshot(ns, text, device=0, total=8192, free=64):
    body = struct.pack("<6QHHI", 96, 128, 48, 64, total, free, device, len(text), 0)
    return record(SNAPSHOT, ns, body, text)


def mapping(ns, op, addr, size, kind=4):
    return record(22, ns, struct.pack("<QQBBHI", addr, size, op, kind, 0, 0))


def layer(ns, kind, number, addr=0, size=0):
    return record(27, ns, struct.pack("<QQQB7x", number, addr, size, kind))


def call(ns, kind, name=0, place=0):
    return record(CALL, ns, struct.pack("<QIB3x", name, place, kind))


EVERY = [
    record(THREAD, 1, struct.pack("<II", 7, 0)),
    alloc(2, 0x1000, 64, HAL, stack=1),
    heap(3, PTA, 0, 0, 4096),
    heap(3, ATB, 1, 0x8000, 4096),
    alloc(4, 0x1000, 32, PTA, kind=3),
    label(5, 0, 5, b"weights"),
    alloc(6, 0x2000, 32, ATB, kind=3),
    label(7, 2, 5, b"gradient", 0x1010),
    label(7, 1, 5, b"weights"),
    mark(8, 1, 1, b"step start"),
    mark(8, 0, 0, b"memscope-aten-b: name=aten.add"),
    mark(
        9,
        0,
        0,
        b"memscope-aten-ac:ptr=4096;is_write=True;is_read=False;is_output=True;name=aten.add;"
        b"shape=torch.Size([2, 3]);dtype=torch.float16;tensor_size=12;device=npu:0",
    ),
    op(10, 2, b"LinearOperation\0path:0_1,workspace:1"),
    access(11, 0x2004, ATB, 2, b"op\0dtype:f,shape:[1,2]"),
    name(12, 0xABC, b"MatMul"),
    kernel(12, 0xABC, 0),
    kernel(13, 0xABC, 2),
    mark(14, 2, 1, b""),
    system(15, 4, 1),
    oom(16),
    module(16, b"/lib/libjob.so"),
    heap(17, ATB, 2, 0x8000, 0),
    free(18, 0x1000, PTA),
    free(18, 0x1000, HAL, stack=1),
]
WATCH = [
    alloc(1, 0x1000, 64, PTA, kind=3),
    mark(2, 0, 0, b"memscope-aten-b: name=aten.add"),
    watch(3, 1, 1, 1, 1, 5, b"aten.mm\0aten.mm"),
    watch(4, 1, 2, 1, 0, 5, b"aten.add\0aten.mm"),
    watch(5, 1, 4, 1, 1, 6, b"aten.add\0aten.mm"),
    mark(6, 0, 0, b"memscope-aten-e: name=aten.add"),
    watch(7, 2, 1, 0, 1, 0, b"op", output=0xFFFFFFFF, error=7),
    watch(8, 3, 1, 0, 1, 0, b""),
    free(9, 0x1000, PTA),
]
SHADOW = [
    system(1, 3),
    alloc(2, 0x10, 1, PTA, flags=1),
    free(2, 0x10, PTA, flags=1),
    alloc(2, 0x20, 1, HOST, kind=2, device=10000, flags=1),
    system(3, 2),
    free(4, 0x20, HOST, kind=2),
]

# Calls of a model, then training, then steps of the program; some that nobody makes.
DETECTED = [
    alloc(1, 0x1000, 64, PTA),
    name(1, 0xABC, b"Net"),
    system(1, 8, 0xABC),
    system(2, 7, 1, 2),
    alloc(3, 0x2000, 64, PTA),
    system(3, 7, 2, 2),
    system(4, 8, 0xDEF),
    system(4, 7, 1, 1),
    alloc(5, 0x3000, 64, PTA),
    system(6, 7, 2, 1),
    system(6, 7, 2**64 - 1, 1),
    system(6, 7, 0, 1),
    system(6, 7, 3, 99),
    free(7, 0x2000, PTA),
    system(8, 4, 1),
    system(9, 7, 3, 1),
]

# What the Python package tells: its configuration, what the framework says, calls and spans.
ASKED = [
    alloc(1, 0x1000, 64, HAL),
    alloc(2, 0x5000, 32, HOST, device=10000),
    config(3, b"/tmp/elsewhere", npus=1, traceback=1),
    snapshot(4, b"Memory Snapshot"),
    snapshot(5, b"", device=10000, total=2**64 - 1, free=2**64 - 1),
    config(6, b"", dump=1, analysis=0, form=1, watching=3),
    config(7, b"relative/../x", dump=2**32 - 1, analysis=2**32 - 1, form=255, watching=255),
    snapshot(8, b"x" * 100, device=7, total=0),
    free(9, 0x1000, HAL),
]
CALLS = [
    place(1, 1, 12, b"train\0/job/train.py"),
    place(1, 2, 0, b"<module>\0"),
    name(1, 0xABC, b"<built-in print>"),
    call(2, OPEN, place=2),
    call(2, OPEN, name=9, place=2),
    call(3, IN_PYTHON, place=1),
    call(4, IN_C, name=0xABC, place=1),
    call(5, C_RETURN, name=0xABC),
    name(6, 0xD0, b'span "a", \xff\xc3'),
    call(6, NOTE, name=0xD0),
    call(7, IN_PYTHON, name=0xABC, place=2),
    call(8, IN_PYTHON, place=99),
    call(9, RETURN, place=1),
    call(10, RETURN, place=77),
    call(11, NOTE_END, name=0xD0),
    call(11, NOTE_END, name=0xD1),
    call(12, NOTE, name=0xD2),
    call(13, STOP),
    call(14, IN_C, name=0xDEF),
    system(15, 3),
]
# A device's history comes late and in one piece: pool and driver, with owners and steps between.
HISTORY = [
    system(1, 2),
    heap(2, TORCH, 1, 0x100000, 1 << 21),
    alloc(2, 0x100000, 1 << 21, CUDA, stack=1),
    label(3, 0, 5, b"epoch"),
    label(3, 0, 6, b"model"),
    alloc(4, 0x100000, 512, TORCH, kind=3, stack=1),
    label(4, 2, 1, b"weight", 0x100000, device=0),
    alloc(5, 0x100200, 512, TORCH, kind=3),
    label(5, 1, 6, b"model"),
    label(5, 0, 5, b"other", 9),
    label(5, 1, 5, b"epoch"),
    alloc(6, 0x100200, 512, TORCH, kind=3, device=1),
    system(7, 4, 1),
    record(OOM, 8, struct.pack("<QQHBBI", 1 << 40, 1 << 30, 0, 3, 0, 0)),
    free(9, 0x100200, TORCH),
    free(10, 0x100000, TORCH, stack=1),
    heap(11, TORCH, 2, 0x100000, 0),
    free(11, 0x100000, CUDA),
    free(12, 0x999000, TORCH),
]


def run(proc, tid, records):
    data = b"".join(records)
    return struct.pack("<IIII", 1, 16 + len(data), proc, tid) + data


def stack(proc, number, pcs):
    return struct.pack("<IIIIII", 2, 24 + 8 * len(pcs), proc, 0, number, len(pcs)) + struct.pack(
        f"<{len(pcs)}Q", *pcs
    )


def cursor(proc, ring, offset, seq):
    return struct.pack("<IIIIIIQ", 3, 32, proc, 0, ring, offset, seq)


def count(proc, records, in_batch, lost=0):
    return struct.pack("<IIIIQQQQQ", 4, 56, proc, 0, records, in_batch, lost, 0, 0)


# Modules with tensors in the same block, of which parts go.
SHARED = [
    name(1, 1, b"N:a.0:A"),
    name(1, 2, b"N:a.1:A"),
    mapping(2, 0, 0x10000, 0x4000),
    layer(3, 2, 1, 0x10000, 256),
    layer(4, 2, 2, 0x13000, 512),
    layer(5, 2, 1, 0x11F00, 512),
    mapping(6, 1, 0x12000, 0x1000),
    alloc(7, 0x1000, 4096, PTA),
    layer(8, 0, 1),
    layer(8, 2, 1, 0x1000, 64),
    layer(9, 2, 2, 0x1400, 64),
    layer(9, 2, 1, 0x13F0, 64),
    layer(9, 5, 2, 0x1800, 64),
    layer(9, 1, 1),
    free(10, 0x1000, PTA),
    mapping(11, 1, 0x10000, 0x4000),
]


def frame(kind, payload):
    return struct.pack("<BH", kind, len(payload)) + payload


def block(ns, addr, size, number, step, pool, kind=0, flags=1, cut_by=0, labels=b""):
    body = struct.pack("<QQQIHHBBBBHBB", addr, size, number, step, 0, len(labels), pool, kind, 1, 3, flags, cut_by, 0)
    return record(25, ns, body, labels, stack=1)


def state(ns, kind, *values, pool=0, flags=0, device=0):
    values = (*values, 0, 0, 0, 0, 0)[:5]
    return record(26, ns, struct.pack("<5QHBBI", *values, device, kind, pool, flags))


def cut(until, first_step, last_step):
    return struct.pack("<7Q2I", 1 << 20, 1, until, first_step, last_step, 900, 100, 1, 2)


def proc(number, pid):
    return struct.pack("<4I3Q256s512s256s", number, pid, 1, 0, 1, 1, 1, b"/bin/job", b"job\0-x", b"0,1")


def proc_end(number):
    return struct.pack("<IIQQQQ", number, 0, 100, 1, 2, 3)


def patch(place, offset, data):
    return struct.pack("<BHB", place, offset, len(data)) + data


def eh_frame(cie, fde):
    """.eh_frame_hdr at 0, .eh_frame at 0x40, code at 0x100 to 0x120; pc 0x105."""

    def entry(body):
        body += bytes(-(len(body) + 4) % 8)
        return struct.pack("<I", len(body)) + body

    first = entry(struct.pack("<I", 0) + cie)
    at = 0x40 + len(first)
    second = entry(struct.pack("<IiI", at + 4 - 0x40, 0x100 - (at + 8), 0x20) + fde)
    table = struct.pack("<BBBBiIii", 1, 0x1B, 3, 0x3B, 0x40 - 4, 1, 0x100, at)
    frames = first + second + bytes(4)
    segment = table.ljust(0x40, b"\0") + frames
    return struct.pack("<HH", 0x105, 0) + segment.ljust(0x120, b"\x90")


CIE = b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01"
CIE_SIGNAL = b"\x01zRS\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01"
FDE = b"\0\x41\x0e\x10\x86\x02\x43\x0d\x06\x02\x10\x0c\x07\x08"
FDE_EXPRESSION = b"\0\x0e\x10\x46\x0e\x18\x4a\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"
FDE_REMEMBER = b"\0\x41\x0a\x0e\x20\x83\x03\x42\x0b\xc3\x2e\x10"

ROW = (
    "1,MALLOC,HAL,N/A,100,5,6,0,0x0000000000001000,"
    '"{allocation_id:1,addr:0x0000000000001000,size:64,used:64,page_type:normal}",,\n'
)
CSV = {
    "row": ROW,
    "quotes": '2,MSTX,Mark,"a ""b"", c",101,5,6,N/A,N/A,,"f(x)\ng()","main()"\n',
    "crlf": ROW.replace("\n", "\r\n") + '3,FREE,PTA,N/A,102,5,6,0,0x10,"{size:1,total:2}",,\r\n',
    "attrs": '4,ACCESS,READ,op,103,5,6,cpu,0x10,"{type:PTA,dtype:f,shape:[1,5],a b:c:d}",,\n',
    "json": '{"allocation_id":"1","size":"64","owner":"PTA@x","shape":"[1,5]"}',
    "mixed": ROW.replace(",100,", ",300,") + ROW + ROW.replace("1,", "7,", 1),
    "range": '5,MSTX,Range_end,"Range end from id 7",104,5,6,0,N/A,,,\n',
    "version26": '6,MALLOC,PTA,N/A,105,5,6,0,0x10,"{allocation_id:3,owner:a,inefficient_type:x,y}",,\n',
}
ATTRS = {
    "memory": "allocation_id:1,addr:0x0000000000001000,size:8589934592,used:64,total:2,owner:PTA@a",
    "commas": "dtype:torch.float16,shape:torch.Size([1,5]),owner:a::b,c@d:e,workspace ptr:0x1,x:,y:1,2",
    "places": ",".join(f"size:{i}" for i in range(20)),
    "long": "device_utilization:12.5,inefficient_type:early_allocation,late_deallocation,page_type:huge",
    "json": CSV["json"],
    "escapes": '{ "size" : 12 , "owner":"\\ud83d\\ude00\\u00fc\\n\\/" , "x":true }',
}

CONFIG = {
    "empty": "{}",
    "all": '{"analysisType":15,"cStackDepth":50,"collectAllNpu":true,"collectCpu":true,'
    '"collectMode":1,"dataFormat":1,"dumpEventType":15,"enableCStack":true,"eventType":15,'
    '"isEffective":true,"levelType":3,"npuSlots":4294967295,"outputDir":"/tmp/x",'
    '"SelectedStepList":{"stepCount":2,"stepIdList":[1,2,0,0,0]},'
    '"watchConfig":{"isWatched":true,"start":"a","end":"b","outputId":1,"fullContent":false},'
    '"bufferMb":1,"waitMs":0,"compat":1}',
    "wrong": '{"eventType":"x","npuSlots":-1,"outputDir":"relative"}',
    "steps": '{"SelectedStepList":{"stepCount":5,"stepIdList":[1,2,3,4,5]}}',
}

SUMS = {
    "changes": "Tensor info,Check data sum\n"
    "0_7/aten.mul_.Scalar_1-aten.mul_.Scalar_0_after.bin,98980feb2f039bee\n"
    "0_7/aten.a_1-aten.mul_.Scalar_0_before.bin,98980feb2f039bee\n"
    "0_7/aten.a_1-aten.mul_.Scalar_0_after.bin,b61669329a166723\n",
    "odd": '"0_7/1_A/3_Op-2_5-my ""name""_4-x_0_before.bin",0000000000000000\r\n'
    '0_7/a_9-b_4294967295_after.bin,ffffffffffffffff\n,\n"\n',
}

# ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,stacks
TRIGGER = 'OOM_DETAIL,OOM_TRIGGER,OOM_Trigger,9,5,6,0,N/A,"{func:halMemAlloc,req_size:%d,flag:6}",,'
OOMS = {
    "pool": '1,MALLOC,HAL,N/A,1,5,6,0,0x1000,"{allocation_id:1,size:4096,used:4096,process_used:9,'
    'device_used:99,page_type:huge}",,\n'
    '2,MALLOC,PTA,N/A,2,5,6,0,0x1100,"{allocation_id:2,size:256,used:256,total:4096,owner:a}",,"f\n"\n'
    "3," + TRIGGER % 2048 + '"g\n"\n'
    '4,FREE,HAL,N/A,10,5,6,0,0x1000,"{allocation_id:1,size:4096,used:0}",,\n'
    '5,MALLOC,HAL,N/A,11,5,6,0,0x1000,"{allocation_id:3,size:2048,used:2048}",,\n',
    "listed": '1,SNAPSHOT,SNAPSHOT,OOM_Snapshot,9,5,6,0,N/A,"{total_mem:8192,free_mem:64}",,\n'
    "2," + TRIGGER % 99999 + "\n"
    '3,OOM_DETAIL,OOM_TOP_ALLOC,OOM_TopAlloc,9,5,6,0,N/A,"{pool:PTA,ptr:0x1,size:64,timestamp:1}",,\n',
    "steps": "".join(
        f'{3 * i},SYSTEM,STEP,{i},{i},5,6,0,N/A,,,\n{3 * i + 1},MALLOC,PTA,N/A,{i},5,6,0,0x{i}000,'
        f'"{{allocation_id:{i},size:64}}",,\n'
        for i in range(1, 8)
    )
    + "30,"
    + TRIGGER % 128
    + "\n",
}

# fuzz_activity_stream.c makes a batch of one record out of these.
MONITOR_REQUEST = (
    b"NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=1\nDURATION=0\n"
    b"MSPTI_ACTIVITY_KIND=Kernel\nNPU_MONITOR_LOG_FILE=\nNPU_MONITOR_EXPORT_TYPE=Jsonl\n"
    b"NPU_MONITOR_FILTER=Kernel:b\n"
)
NEXT = frame(255, b"")


def told(number, text):
    return frame(16 + NAME, struct.pack("<QHHHH", number, len(text), 0, 0, 0) + text)


def monitor(kind, window, value=0, text=b""):
    return frame(16 + 21, struct.pack("<QQiBBH", window, value, -1, kind, 0, len(text)) + text)


def activity(kind, start, end, flag=0, place=1, number=1, text=0, where=(0, 1)):
    times = struct.pack("<QQQQQQQ", start, end, number, text, text, text, 0)
    return frame(16 + 20, times + struct.pack("<IIBBBBHH", *where, kind, flag, place, 0, 0, 0))


def moment(flag, place, ns, number, text=0):
    return activity(1, ns, ns, flag, place, number, text, (1, 2) if place else (77, 8))


TOLD = told(1, b"abc") + told(2, b"\xff\xfe bad") + told(3, b"step start")
KINDS = b"".join(activity(k, 2000, 3000, text=1) for k in range(14))
MOMENTS = b"".join(
    moment(*m)
    for m in (
        (16, 0, 2000, 10, 1), (16, 1, 2100, 10), (32, 0, 2200, 10), (32, 1, 2300, 10),
        (2, 0, 3000, 11, 2), (4, 0, 3100, 11), (1, 0, 3200, 12, 3),
        (8, 1, 3300, 13), (8, 0, 3200, 13, 1), (4, 0, 4000, 99), (7, 0, 4000, 99),
    )
)  # fmt: skip
RAN = activity(2, 9000, 9500, text=1)
ACTIVITIES = {
    "kinds": TOLD + KINDS + NEXT + NEXT + KINDS + NEXT + NEXT,
    "marks": TOLD + MOMENTS + NEXT + MOMENTS + NEXT,
    "windows": TOLD
    + monitor(0, 9, text=MONITOR_REQUEST[:50])
    + monitor(1, 9, text=MONITOR_REQUEST[50:])
    + RAN
    + monitor(2, 9, text=MONITOR_REQUEST.replace(b"Kernel:b", b"Kernel:a"))
    + RAN
    + b"".join(monitor(kind, 9, 5) for kind in (4, 5))
    + monitor(6, 9, text=b"{}")
    + monitor(3, 9, text=b"{}")
    + b"".join(monitor(kind, 9, text=b"nothing") for kind in (1, 2))
    + NEXT,
    "trace": TOLD
    + b"".join(monitor(5, 4, i) + activity(2, 5000 * i, 5000 * i + 900, text=1) for i in range(1, 5))
    + monitor(3, 4)
    + frame(4, proc_end(0))
    + frame(5, b""),
    "times": b"".join(
        activity(2, *t) for t in ((2**64 - 1, 2**64 - 1), (0, 0), (2000, 2**62), (0, 3000), (3000, 2000))
    )
    + NEXT,
}

COLUMNS = ["code", "run", "stack", "pc", "low", "high", "size", "addr", "age", "bytes"]


# fuzz_recorded.c makes records of these: from 128 on they are of no process.
def body(kind, fixed, text=b""):
    return bytes([kind, len(fixed + text)]) + fixed + text


def called(number, caller, text):
    return body(128 + 34, struct.pack("<IIiHH", number, caller, 7, len(text), 0), text)


def sampled(pid, tid, frame_id, kept=0, gc=0):
    return body(128 + 35, struct.pack("<IIII", pid, tid, frame_id, gc | kept << 8))


def who(pid, tid, text):
    return body(128 + 36, struct.pack("<IIiHH", pid, tid, 3, len(text), 0), text)


def counted(value, pid, card, track, text):
    return body(128 + 37, struct.pack("<dIiB5xH", value, pid, card, track, len(text)), text)


def worked(kind, start, end, text=1, place=1, flag=0, where=(0, 1)):
    times = struct.pack("<QQQQQQQ", start, end, 9, text, text, text, 0)
    return body(20, times + struct.pack("<IIBBBBHH", *where, kind, flag, place, 0, 0, 0))


def noted(kind, value=0, text=b""):
    return body(21, struct.pack("<QQiBBH", 1, value, -1, kind, 0, len(text)) + text)


NAMED = body(8, struct.pack("<QHHHH", 1, 3, 0, 0, 0), b"abc")
STACKS = (
    who(5, 0, b"python t.py") + who(5, 8, b"MainThread") + called(1, 0, b"main\0t.py") + called(2, 1, b"f\0t.py")
    + sampled(5, 8, 2) + sampled(5, 8, 2, 1, 1) + sampled(5, 8, 1, 1) + sampled(6, 9, 2) + sampled(5, 8, 0)
)  # fmt: skip
RECORDED = {
    "stacks": STACKS,
    "counters": counted(0.5, 0, 3, 0, b"npu_aicore_usage_rate\0aicore") + counted(7, 5, -1, 3, b"cpu\0rss"),
    "activities": NAMED + noted(5, 1) + b"".join(worked(k, 2000, 3000) for k in range(14)) + noted(5, 2) + noted(3),
    "gap": NAMED + noted(7, text=b"GAP_BEGINS 5000") + worked(2, 4000, 6000) + noted(7, text=b"GAP_ENDS 9000"),
    "open": NAMED + worked(1, 2000, 2000, flag=2, place=0) + noted(7, text=b"GAP_BEGINS 5000") + STACKS[:-18],
}


def packed_v2(batch_bytes, **columns):
    """src/recorder/pack/pack.h, of version 2; no column is compressed."""
    data = [bytes(columns.get(name, b"")) for name in COLUMNS]
    sizes = b"".join(struct.pack("<II", len(d), len(d)) for d in data)
    return b"\2" + bytes(7) + struct.pack("<I", batch_bytes) + sizes + b"".join(data)


def packed(batch_bytes, **columns):
    """The same of today: numbers of one byte, and of two."""
    data = [bytes(columns.get(name, b"")) for name in [*COLUMNS, "time", "new", "freed"]]
    sizes = b"".join(bytes([len(d)] * 2) if d else b"\0" for d in data)
    return bytes(8) + bytes([batch_bytes & 127 | 128, batch_bytes >> 7]) + sizes + b"".join(data)


A_BATCH = b"\1" + bytes(7)
ALLOC_AND_FREE = b"".join(r[:8] + r[16:] for r in (EVERY[1], free(3, 0x1000, HAL)))

# What was alive where a recording begins that lacks its oldest part.
BASE = [
    state(9, 0, 8, 0, 1, flags=1 | 2 | 8),
    state(9, 1, 5000, 9000, 6000, 40, pool=3),
    state(9, 5, 10, 1, 20, 30),
    block(1, 0x1000, 4096, 3, 2, HAL, cut_by=PTA),
    block(2, 0x1000, 64, 4, 2, PTA, labels=bytes([5, 0, 0, 0, 0, 3, 0, 0]) + b"modelown"),
    block(3, 0x1100, 64, 5, 6, PTA, flags=1 | 2 | 16, labels=bytes([5, 0, 0, 0, 0, 3, 0, 0]) + b"modelown"),
    block(3, 0x9000, 4096, 6, 6, HOST, kind=4, flags=1 | 4),
    block(3, 0xA000, 4096, 7, 6, HOST, kind=7),
    block(3, 0xB000, 4096, 8, 6, HOST, kind=64),
    state(9, 2, 0x1200, 9, 1, 8, pool=3),
    state(9, 3, 7, 5),
    state(9, 4, 7, 2),
    state(50, 6, 70, 9),
]

SEEDS = {
    "pack": {
        "every": A_BATCH + run(0, 7, EVERY),
        "stacks": A_BATCH + stack(0, 1, [5, 6, 7]) + stack(0, 2, [4, 6, 7]) + run(0, 7, EVERY[1:3] * 9),
        "run": packed(16, code=[1], run=[3, 7]),
        "slots": packed(
            16 + 40 + 32 + 40 + 32 + 40 + 32 + 32,
            code=[1, 3, 3, 4, 20 + 31, 12, 52 + 1, 20, 52, 255],
            run=[0, 7, 5, 4],
            time=[255, 255, 0, 3, 1, 254, 0],
            low=[2, 4],
            high=[0, 0],
            stack=[0, 0, 9, 0, 0],
            size=[64, 64],
            addr=[9],
            freed=[8],
            age=[2],
            bytes=ALLOC_AND_FREE,
        ),
        "stack": packed(24 + 16, code=[2], run=[0], new=[1, 2, 0], pc=[8, 10]),
        "run_v2": packed_v2(16, code=[1], run=[3, 7]),
        "slots_v2": packed_v2(
            16 + 40 + 32 + 40 + 32,
            code=[1, 3, 3, 16, 24],
            run=[0, 7, 5, 4],
            low=[2, 4, 6, 8],
            high=[0, 0, 0, 0],
            stack=[0, 0],
            size=[64],
            addr=[9],
            age=[1],
            bytes=ALLOC_AND_FREE,
        ),
        "stack_v2": packed_v2(24 + 16, code=[2], run=[0], stack=[1, 2, 0], pc=[8, 10]),
    },
    "activity_stream": ACTIVITIES,
    "recorded": RECORDED,
    "record": {
        "every": b"".join(EVERY),
        "one": EVERY[1],
        "text": EVERY[9],
        "watch": b"".join(WATCH),
        "asked": b"".join(ASKED),
        "calls": b"".join(CALLS),
        "history": b"".join(HISTORY),
    },
    "stream": {
        "cut": frame(1, b'{"dumpEventType":15,"analysisType":15,"collectCpu":true}')
        + frame(8, cut(50, 1, 7))
        + frame(3, stack(0, 1, [0x1010, 0x2020]) + run(0, 7, BASE) + cursor(0, 0, 64, 1) + count(0, 50, 50))
        + frame(3, run(0, 7, EVERY))
        + frame(4, proc_end(0)),
        "every": frame(1, b'{"dumpEventType":15,"analysisType":15}')
        + frame(2, proc(1, 5))
        + frame(3, stack(0, 1, [0x1010, 0x2020]) + run(0, 7, EVERY) + cursor(0, 0, 64, 1))
        + frame(4, proc_end(0))
        + frame(5, b""),
        "counts": frame(3, run(0, 7, EVERY[1:5]) + count(0, 4, 4))
        + frame(3, count(0, 4, 0, 9) + run(0, 7, EVERY[1:3]) + count(0, 20, 2, 9))
        + frame(4, proc_end(0)),
        "watch": frame(1, b'{"watchConfig":{"isWatched":true,"start":"aten.mm","end":"x"}}')
        + frame(3, run(0, 7, WATCH)),
        "device": frame(1, b'{"analysisType":8,"oomTopK":2}')
        + frame(3, run(0, 7, [oom(1), device(2), *EVERY[1:5], device(3, 2**64 - 1), oom(4)])),
        "no_blocks": frame(1, b'{"analysisType":8,"oomTopK":0}') + frame(3, run(0, 7, [*EVERY[1:5], oom(9)])),
        "shadow": frame(1, b'{"collectMode":1,"collectCpu":true}') + frame(3, run(0, 7, SHADOW)),
        "steps": frame(1, b'{"SelectedStepList":{"stepCount":1,"stepIdList":[1]}}')
        + frame(3, run(0, 7, EVERY[1:5] + EVERY[9:18])),
        "detected": frame(1, b'{"analysisType":1}') + frame(3, run(0, 7, DETECTED)) + frame(4, proc_end(0)),
        "asked": frame(1, b'{"dumpEventType":15}')
        + frame(2, proc(1, 5))
        + frame(3, run(0, 7, ASKED) + run(1, 7, EVERY[1:5] + ASKED[2:]))
        + frame(4, proc_end(1))
        + frame(5, b""),
        "shared": frame(1, b'{"collectCpu":true,"analysisType":2,"dumpEventType":15}') + frame(3, run(0, 7, SHARED)),
        "calls": frame(3, run(0, 7, CALLS[:9]) + run(0, 9, CALLS[5:12]))
        + frame(3, run(0, 7, CALLS[9:] + CALLS[3:10]))
        + frame(4, proc_end(0)),
        "history": frame(1, b'{"analysisType":15,"oomTopK":2,"dumpEventType":15}')
        + frame(3, stack(0, 1, [0xFFFF000000000001, 0x2020]) + run(0, 7, CALLS[:2] + HISTORY)),
    },
    "arena": {
        "valid": b"",
        "record": patch(4, 64 + 24 + 40, EVERY[1]) + patch(4, 0, struct.pack("<I", 64 + 24 + 80)),
        "loop": patch(4 + 8, 4, struct.pack("<I", 1)),
        "used": patch(4, 0, struct.pack("<I", 0xFFFFFFFF)),
        "garbage": patch(4, 64, b"\xff" * 64),
        "rings": patch(0, 64, b"\xff" * 8) + patch(1, 4, struct.pack("<I", 0xFFFF)),
        "stack": patch(3, 8, struct.pack("<II", 0, 1001)),
    },
    "config": {k: v.encode() for k, v in CONFIG.items()},
    "csv": {k: v.encode() for k, v in CSV.items()},
    "amend": {k: v.encode() for k, v in CSV.items()},
    "attrs": {k: v.encode() for k, v in ATTRS.items()},
    "watch": {k: v.encode() for k, v in SUMS.items()},
    "oom": {k: v.encode() for k, v in OOMS.items()},
    "ehframe": {
        "plain": eh_frame(CIE, FDE),
        "signal": eh_frame(CIE_SIGNAL, FDE),
        "expression": eh_frame(CIE, FDE_EXPRESSION),
        "remember": eh_frame(CIE, FDE_REMEMBER),
    },
}


SEEDS["live"] = {k: SEEDS["stream"][k] for k in ("every", "cut", "counts", "shadow", "asked")}


def main():
    for target, seeds in SEEDS.items():
        folder = os.path.join(CORPUS, target)
        os.makedirs(folder, exist_ok=True)
        for seed, data in seeds.items():
            with open(os.path.join(folder, seed), "wb") as f:
                f.write(data)


if __name__ == "__main__":
    main()
