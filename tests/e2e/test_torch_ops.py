# SPDX-License-Identifier: MulanPSL-2.0
"""Operators of a real PyTorch, the tensors they use, and the memory of those on the CPU."""

import json

import dumpcheck

from torch_sections import ALL, op, section
from torch_sections import all_told, run, told  # fixtures
from torches import a_torch

HOST_HOOK = "libsonde_host_hook.so"


# The first section: what is there before is looked for only now and then.
STORAGES = """
x = torch.ones(1000)           # there before
msmemscope.start()
a = torch.ones(2000)
b = a[500:].view(-1, 2)        # the same memory
c = a.clone()
d = torch.tensor([1.0] * 3000)
e = d.to(torch.float64)
del a
msmemscope.step()              # 1: b still holds it
del b
msmemscope.step()              # 2: now it is gone
c.resize_(4000)                # other memory
c.zero_()
msmemscope.step()              # 3
saved = torch.ones(5000, requires_grad=True)
loss = (saved * 2).exp().sum()  # what it keeps is held by the graph alone
msmemscope.step()              # 4
del loss
msmemscope.step()              # 5
msmemscope.stop()
del c, d
msmemscope.start()
msmemscope.step()              # 6
msmemscope.stop()
print(x.data_ptr())
"""


@section('msmemscope.config(device="cpu", events="alloc,free", analysis="")\n' + STORAGES)
def test_memory_of_the_cpu_without_a_preload(told):
    alive, steps = {}, []
    for row in told.rows:
        if row.event in ("MALLOC", "FREE"):
            assert (row.type, row.device) == ("HOST", "cpu")
        if row.event == "MALLOC":
            alive[row.attr["allocation_id"]] = int(row.attr["size"]) // 4
        elif row.event == "FREE":
            alive.pop(row.attr["allocation_id"], None)
        elif row.type == "STEP":
            steps.append(sorted(n for n in alive.values() if n >= 1000))
    assert steps[0] == [1000, 2000, 2000, 3000, 6000]
    assert steps[1] == [1000, 2000, 3000, 6000]
    assert steps[2] == [1000, 3000, 4000, 6000]
    assert steps[3] == [1000, 3000, 4000, 5000, 5000, 6000]  # exp() keeps its result
    assert steps[4] == [1000, 3000, 4000, 5000, 6000]
    assert steps[5] == [1000, 5000, 6000]
    (first,) = [r for r in told.of("MALLOC") if int(r.ptr, 16) == int(told.said)]
    assert first.attr["shadow"] == "true"
    assert not told.of("ACCESS") and not told.of("OP_LAUNCH")


# What is done, and what must be told of it: `<` read, `>` written to, by the name of the tensor.
# Results that nobody gave a name are `?`.
EXACT = [
    ("a.mm(b)", "aten.mm.default", "<a[2, 3] <b[3, 2] >?[2, 2]"),
    ("a.add_(1)", "aten.add_.Tensor", ">a[2, 3]"),
    ("a.mul_(c)", "aten.mul_.Tensor", ">a[2, 3] <c[2, 3]"),
    ("torch.add(a, c, out=d)", "aten.add.out", "<a[2, 3] <c[2, 3] >d[2, 3]"),
    ("torch.add(a, c, out=torch.empty(0))", "aten.add.out", "<a[2, 3] <c[2, 3] >?[2, 3]"),
    ("torch.max(a, 1, out=(m, i))", "aten.max.dim_max", "<a[2, 3] >m[2] >i[2]"),
    ("a.view(6)", "aten.view.default", ""),
    ("a.t()", "aten.t.default", ""),
    ("a.split(1)", "aten.split.Tensor", ""),
    ("torch.cat([a, c])", "aten.cat.default", "<a[2, 3] <c[2, 3] >?[4, 3]"),
    ("torch.cat((a, c), out=e)", "aten.cat.out", "<a[2, 3] <c[2, 3] >e[4, 3]"),
    ("torch.stack([a, a])", "aten.stack.default", "<a[2, 3] <a[2, 3] >?[2, 2, 3]"),
    ("torch.empty_like(a)", "aten.empty_like.default", ""),
    ("torch.empty(4)", "aten.empty.memory_format", ""),
    ("a.new_empty(4)", "aten.new_empty.default", ""),
    ("torch.zeros_like(a)", "aten.zeros_like.default", ">?[2, 3]"),
    ("a.new_zeros(4)", "aten.new_zeros.default", ">?[4]"),
    ("torch.ones(2, 2)", "aten.ones.default", ">?[2, 2]"),
    (
        "aten.native_dropout(a, 0.5, True)",
        "aten.native_dropout.default",
        "<a[2, 3] >?[2, 3] >?[2, 3]",
    ),
    ("a.index_put_((j,), z)", "aten.index_put_.default", ">a[2, 3] <j[1] <z[]"),
    ("a[:, j]", "aten.index.Tensor", "<a[2, 3] <j[1] >?[2, 1]"),
    (
        "aten.embedding_dense_backward(a, k, 5, -1, False)",
        "aten.embedding_dense_backward.default",
        "<a[2, 3] <k[2] >?[5, 3]",
    ),
    ("torch._foreach_add_([a, c], 1.0)", "aten._foreach_add_.Scalar", ">a[2, 3] >c[2, 3]"),
    (
        "aten.convolution(x, w, None, [1], [0], [1], False, [0], 1)",
        "aten.convolution.default",
        "<x[1, 1, 4] <w[1, 1, 2] >?[1, 1, 3]",
    ),
    ("a.to(torch.float64)", "aten._to_copy.default", "<a[2, 3] >?[2, 3]"),
    ("z.item()", "aten._local_scalar_dense.default", "<z[]"),
    ("a.sum()", "aten.sum.default", "<a[2, 3] >?[]"),
]

EXACT_JOB = ALL + f"LINES = {[e[0] for e in EXACT]!r}" + """
import json
aten = torch.ops.aten
a, b, c, d, e = (torch.ones(*s) for s in ((2, 3), (3, 2), (2, 3), (2, 3), (4, 3)))
m, i, j, k = torch.ones(2), torch.tensor([0, 0]), torch.tensor([1]), torch.tensor([1, 2])
z, x, w = torch.tensor(5.0), torch.ones(1, 1, 4), torch.ones(1, 1, 2)
named = {n: v.data_ptr() for n, v in list(globals().items()) if type(v) is torch.Tensor}
msmemscope.start()
for line in LINES:
    msmemscope.step()
    exec(line)
msmemscope.stop()
print(json.dumps(named))
"""


@section(EXACT_JOB)
def test_every_operator_tells_what_it_does_to_its_tensors(told):
    names = {f"0x{p:016x}": n for n, p in json.loads(told.said).items()}
    steps, now = [], None
    for row in told.rows:
        if row.type == "STEP":
            now = []
            steps.append(now)
        elif row.event == "OP_LAUNCH":
            now.append((row.type[5:], op(row)))
        elif row.event == "ACCESS":
            shape = row.attr["shape"]
            assert shape[:11] == "torch.Size(" and shape[-1] == ")", row
            sign = {"READ": "<", "WRITE": ">"}[row.type]
            now.append((sign + names.get(row.ptr, "?") + shape[11:-1], op(row)))
    assert len(steps) == len(EXACT)
    for (line, name, accesses), rows in zip(EXACT, steps):
        rows = [what for what, who in rows if who == name]
        assert rows[0] == "START" and rows[-1] == "END", line
        assert " ".join(rows[1:-1]) == accesses, line


@section(
    ALL
    + """
x = torch.ones(4, 6, dtype=torch.int16)
msmemscope.start()
y = x[1:3] + x[1:3]
msmemscope.stop()
print(x.data_ptr(), y.data_ptr())
"""
)
def test_attributes_of_an_access(told):
    x, y = map(int, told.said.split())
    reads = [r for r in told.of("ACCESS", "READ") if op(r) == "aten.add.Tensor"]
    (write,) = [r for r in told.of("ACCESS", "WRITE") if op(r) == "aten.add.Tensor"]
    assert [int(r.ptr, 16) for r in reads] == [x + 12, x + 12]
    assert int(write.ptr, 16) == y
    (block,) = [r for r in told.of("MALLOC") if int(r.ptr, 16) == x]
    for row in (*reads, write):
        assert row.device == "cpu"
        assert row.attr["type"] == "HOST" and row.attr["dtype"] == "torch.int16", row
        assert row.attr["shape"] == "torch.Size([2, 6])" and row.attr["size"] == "24", row
    assert reads[0].attr["allocation_id"] == block.attr["allocation_id"]
    assert write.attr["allocation_id"] != block.attr["allocation_id"]


@section(
    """
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as stack
x = torch.ones(3)
x + 1
for events, device in (("alloc,free", "npu"), ("", "npu,cpu"), ("launch", "npu,cpu")):
    msmemscope.config(events=events, device=device, analysis="")
    msmemscope.start()
    print(len(stack()))
    x * 2
    msmemscope.stop()
    print(len(stack()))
    x - 3
"""
)
def test_what_is_not_asked_for_is_not_there(told):
    assert told.said.split() == ["0", "0", "0", "0", "1", "0"]
    rows = [r for r in told.rows if r.event in ("OP_LAUNCH", "ACCESS", "MALLOC", "FREE")]
    assert [(r.type, op(r)) for r in rows] == [
        ("ATEN_START", "aten.mul.Tensor"),
        ("ATEN_END", "aten.mul.Tensor"),
    ]


@section(
    """
msmemscope.config(device="cpu", events="alloc,free", analysis="decompose")
msmemscope.start()
a = torch.ones(777)
msmemscope.stop()
"""
)
def test_operators_own_what_they_make(told):
    (row,) = [r for r in told.of("MALLOC") if r.attr["size"] == str(777 * 4)]
    assert row.attr["owner"].split("@")[-1] == "ops", row
    assert not told.of("ACCESS") and not told.of("OP_LAUNCH")


# --- what needs a process of its own ---


def test_memory_of_the_cpu_is_told_once(run):
    """With malloc() hooked, that tells of it, and accesses lie in what it told."""
    left = run(
        a_torch(),
        ALL
        + """
import torch
msmemscope.start()
a = torch.ones(123457)
b = a + 1
msmemscope.stop()
print(a.data_ptr(), b.data_ptr())
""",
        hooks=[HOST_HOOK],
    )
    # Everything that Python has allocated stands there, too: only these lines are read.
    pointers = [f"0x{int(p):016x}" for p in left.stdout.split()]
    (dump,) = left.wait().out.glob("*/device_cpu/dump/*.csv")
    with open(dump) as f:
        lines = [line for line in f if any(p in line for p in pointers)]
    for p in pointers:
        mine = [line for line in lines if p in line]
        (made,) = [n for n, line in enumerate(mine) if "MALLOC,HOST" in line and "493828" in line]
        block = dumpcheck.parse_attr(mine[made].split('"')[1])
        accesses = [line for line in mine if ",ACCESS," in line]
        assert len(accesses) == (2 if p == pointers[0] else 1), mine
        for line in accesses:
            attr = dumpcheck.parse_attr(line.split('"')[1])
            assert attr["allocation_id"] == block["allocation_id"], line
