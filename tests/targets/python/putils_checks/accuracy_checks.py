# SPDX-License-Identifier: MulanPSL-2.0
"""putils.accuracy: hooks, dumps, and where two runs first differ."""

import contextlib
import io
import json
import os
import subprocess
import sys

from putils import _lines, accuracy


def model(here, weight=0.0):
    torch = here.torch
    torch.manual_seed(0)
    made = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Sequential(torch.nn.ReLU()), torch.nn.Linear(8, 2)
    )
    with torch.no_grad():
        made[2].weight[0, 0] += weight
    return made.to(here.device)


def batch(here):
    generator = here.torch.Generator().manual_seed(1)
    return here.torch.randn(3, 4, generator=generator).to(here.device).requires_grad_()


def check_hooks_of_a_model(here):
    made = model(here)
    with here.env(TSJPRINT=None):
        assert accuracy.hook_for_model(made) == [] and here.said() == ""
    with here.env(TSJPRINT=1):
        handles = accuracy.hook_for_model(made)
        structure = here.said()
        made(batch(here)).sum().backward()
        names = [e.name for e in map(_lines.read_line, here.lines()) if e and "[B=" not in e.name]
        [h.remove() for h in handles]
        made(batch(here))
        assert here.said() == ""
    assert eval(structure[structure.index("[") :]) == ["0", "1", "1.0", "2"], structure
    assert len(handles) == 8
    forward = [n for n in names if n.startswith("[forward]: ")]
    assert forward[:4] == [
        "[forward]: 0 input[0]",
        "[forward]: 0 output",
        "[forward]: 1.0 input[0]",
        "[forward]: 1.0 output",
    ], forward
    assert len(forward) == 8
    backward = [n for n in names if n.startswith("[backward]: ")]
    assert backward[:2] == ["[backward]: 2 input[0]", "[backward]: 2 output[0]"], backward


def check_modules_can_be_chosen(here):
    with here.env(TSJPRINT=1):
        handles = accuracy.hook_for_model(
            model(here), ["0", "2", "nobody"], exclude_list=["2"], print_structure=False
        )
        assert len(handles) == 2
        assert here.said() == "hook_for_model: the model has no module 'nobody'\n"
        assert accuracy.hook_for_model(3) == [] and "int has no modules" in here.warned()


def check_a_hook_does_not_disturb_training(here):
    """Same gradients with and without; outputs that are no tensors."""
    torch = here.torch

    class Odd(torch.nn.Module):
        def forward(self, x):
            return {"x": x, "n": 1}

    with here.env(TSJPRINT=1):
        plain, hooked = model(here), model(here)
        accuracy.hook_for_model(hooked)
        for m in (plain, hooked):
            m(batch(here)).sum().backward()
        for a, b in zip(plain.parameters(), hooked.parameters()):
            assert torch.equal(a.grad, b.grad)
        odd = torch.nn.Sequential(Odd())
        accuracy.hook_for_model(odd)
        assert odd(batch(here))["n"] == 1


def check_modules_that_change_tensors_in_place(here):
    """Hooks leave results, gradients and flags as they are; gradients are those of the module alone."""
    torch = here.torch

    class Twice(torch.nn.Module):
        def forward(self, x):
            return x.mul_(2)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.relu = torch.nn.ReLU(inplace=True)
            self.same, self.twice = torch.nn.Identity(), Twice()
            self.pair = torch.nn.GRU(4, 4)

        def forward(self, x):
            out = self.relu(self.a(x))
            out = self.b(out)
            out += x  # x is used beside the module, too
            out = self.relu(out) + 0
            before = out
            out = self.twice(out)
            assert out is before
            out += 1
            accuracy.hookt("mine", out)
            out = self.same(out)
            return self.pair(out)[0]

    def run(hooked):
        torch.manual_seed(0)
        block = Block().to(here.device)
        x = batch(here)
        handles = accuracy.hook_for_model(block, print_structure=False) if hooked else []
        out = block(x * 1)
        out.sum().backward()
        assert x.is_leaf and out.requires_grad
        [h.remove() for h in handles]
        return [out.detach(), x.grad, *(p.grad for p in block.parameters())]

    with here.env(TSJPRINT=1):
        plain = run(False)
        mine = [line for line in here.lines() if "'[backward]: mine'" in line]
        hooked = run(True)
        lines = here.lines()
        assert [line for line in lines if "'[backward]: mine'" in line] == mine and len(mine) == 1
    assert all(torch.equal(a, b) for a, b in zip(plain, hooked))
    assert here.warned() == ""
    found = {}
    for e in map(_lines.read_line, lines):
        if e and "[B=" not in e.name:
            found.setdefault(e.name, []).append(e)
    for module, times in (("a", 1), ("b", 1), ("relu", 2), ("twice", 1), ("same", 1), ("pair", 1)):
        for part in ("input[0]", "output[0]"):
            assert len(found[f"[backward]: {module} {part}"]) == times, (module, part, list(found))
    same = [found[f"[backward]: same {part}"][0].md5 for part in ("input[0]", "output[0]")]
    assert same[0] == same[1]
    # what comes into b goes out of the first relu; through a alone, not beside it
    assert found["[backward]: b input[0]"][0].md5 == found["[backward]: relu output[0]"][1].md5
    through = (hooked[1] * 0 + found["[backward]: a input[0]"][0].values["sum"]).flatten()[0]
    assert abs(float(through - hooked[1].sum())) > 1e-6


def check_gradients_are_those_of_torchs_hooks(here):
    """In a model that those can be used with: a tensor in two places, two inputs, three outputs."""
    torch = here.torch
    from putils._support.gradients import add_gradient_hooks

    class Split(torch.nn.Module):
        def forward(self, x, n):
            return x[:, :n], x[:, n:] * 2, n

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.both, self.split = torch.nn.Linear(4, 4), torch.nn.Bilinear(4, 4, 4), Split()

        def forward(self, x):
            left, right, _ = self.split(x + self.both(x, self.a(x)), 3)
            return left.sum() + right.sum()

    def run(add):
        torch.manual_seed(0)
        block, found = Block().to(here.device), {}
        for name, module in block.named_children():
            add(name, module, lambda name, *grads: found.setdefault(name, []).append(grads))
        block(batch(here)).backward()
        return found

    ours = run(lambda n, m, note: add_gradient_hooks(n, m, lambda i, o: note(n, i, o)))
    torchs = run(lambda n, m, note: m.register_full_backward_hook(lambda _, i, o: note(n, i, o)))
    assert set(ours) == set(torchs) == {"a", "both", "split"}
    for name in ours:
        assert len(ours[name]) == len(torchs[name]) == 1
        for mine, want in zip(ours[name][0], torchs[name][0]):
            assert len(mine) == len(want), (name, mine, want)
            for a, b in zip(mine, want):
                assert a is b is None or torch.equal(a, b), (name, a, b)


def check_passes_that_need_no_gradient(here):
    torch = here.torch
    made = model(here)
    with here.env(TSJPRINT=1):
        handles = accuracy.hook_for_model(made, print_structure=False)
        with torch.no_grad():
            assert not made(batch(here)).requires_grad
        here.said()
        made(batch(here).detach()).sum().backward(retain_graph=True)
        first = [line for line in here.lines() if line.startswith("'[backward]")]
        assert "'[backward]: 0 input[0]'| NoneType" in first, first
        out = made(batch(here)).sum()
        here.said()
        for _ in range(2):  # each backward pass is shown
            out.backward(retain_graph=True)
            assert sum(line.startswith("'[backward]: 0 output[0]'") for line in here.lines()) == 1
        [h.remove() for h in handles]


def check_hooks_keep_the_objects_of_a_model(here):
    """A list that a module returns and keeps, and a gradient that cannot be shown."""
    torch = here.torch

    class Keeps(torch.nn.Module):
        def forward(self, x):
            self.list = [x * 2, "word"]
            return self.list

    keeps = Keeps()
    model = torch.nn.Sequential(keeps)
    with here.env(TSJPRINT=1):
        handles = accuracy.hook_for_model(model, print_structure=False)
        out = model(batch(here))
        assert out is keeps.list
        from putils._support import gradients

        kept, gradients.ModulePass._begin = gradients.ModulePass._begin, None
        try:
            out[0].sum().backward()
        finally:
            gradients.ModulePass._begin = kept
        assert "a gradient is not shown" in here.warned()
        [h.remove() for h in handles]


def check_hookt_changes_no_flag(here):
    torch = here.torch
    with here.env(TSJPRINT=1):
        t = torch.ones(2, device=here.device)
        assert accuracy.hookt("a", t) is None and not t.requires_grad and t.grad is None
        t += 1  # a leaf that requires a gradient could not
        w = torch.ones(2, device=here.device, requires_grad=True)
        handle = accuracy.hookt("w", w)
        (w * 2).sum().backward()
        assert hasattr(handle, "remove") and "'[backward]: w'" in here.said()


def check_tensors_and_their_gradients(here):
    torch = here.torch
    t = torch.ones(2, 3, device=here.device)
    with here.env(TSJPRINT=None):
        assert accuracy.hookt("a", t) is None and here.said() == ""
    with here.env(TSJPRINT=1):
        handle = accuracy.hookt_dump("a/b c", t, dump_dir="dumps")
        assert t.requires_grad and hasattr(handle, "remove")
        (t * 2).sum().backward()
        names = [e.name for e in map(_lines.read_line, here.lines()) if e]
        assert names[0] == "[forward]: a/b c" and "[backward]: a/b c" in names, names
        assert accuracy.hookt("n", here.tensor([1])) is None  # integers have no gradient
        assert accuracy.hookt("n", 3) is None
        fixed = torch.ones(2, device=here.device)
        assert accuracy.hookt_dump("f", fixed, force_requires_grad=False) is None
        assert not fixed.requires_grad
        part = torch.ones(1 << 20, device=here.device)[:2]
        accuracy.hookt_dump("part", part, dump_backward=False, dump_dir="dumps")
        assert os.path.getsize("dumps/part.forward_tensor.pt") < 10_000
    files = sorted(n for n in os.listdir("dumps") if n.endswith(".pt"))
    assert files == ["a_b_c.backward_grad.pt", "a_b_c.forward_tensor.pt", "part.forward_tensor.pt"]
    held = torch.load("dumps/a_b_c.backward_grad.pt")
    assert held.pop("tensor").tolist() == [[2.0] * 3] * 2
    assert held == {
        "name": "a/b c",
        "phase": "backward",
        "shape": (2, 3),
        "dtype": "torch.float32",
        "device": str(t.device),
    }, held


def check_dumps_of_one_name_are_all_kept(here):
    torch = here.torch
    with here.env(TSJPRINT=1):
        tensors = [torch.full((2,), float(i), device=here.device, requires_grad=True) for i in range(3)]
        for t in tensors:
            accuracy.hookt_dump("h", t, dump_dir="d")
        accuracy.hookt_dump("a b", tensors[0], dump_backward=False, dump_dir="d")
        accuracy.hookt_dump("a/b", tensors[1], dump_backward=False, dump_dir="d")
        sum((t * (i + 1)).sum() for i, t in enumerate(tensors)).backward()
    names = sorted(n for n in os.listdir("d") if n.endswith(".pt"))
    ends = ("backward_grad.pt", "forward_tensor.pt")
    want = ["a_b.2.forward_tensor.pt", "a_b.forward_tensor.pt"]
    want += [f"h{n}.{end}" for n in (".2", ".3", "") for end in ends]
    assert names == sorted(want), names
    for i, n in enumerate(("", ".2", ".3")):  # a tensor and its gradient have one number
        assert torch.load(f"d/h{n}.forward_tensor.pt")["tensor"].tolist() == [float(i)] * 2
        assert torch.load(f"d/h{n}.backward_grad.pt")["tensor"].tolist() == [i + 1.0] * 2
    accuracy._numbers.clear()  # as in another process
    with here.env(TSJPRINT=1):
        accuracy.hookt_dump("h", tensors[0], dump_backward=False, dump_dir="d")
    assert os.path.exists("d/h.4.forward_tensor.pt")
    assert not [n for n in os.listdir("d") if n.endswith(".new")]
    assert len(open("d/putils_order.txt").read().split()) == 9
    assert accuracy.first_difference("d", "d") is None


def check_only_one_rank_records(here):
    t = here.torch.ones(1, device=here.device)
    assert accuracy.record_rank == 1
    try:
        with here.env(TSJPRINT=1):
            for rank, want in ((1, True), (-1, True), (0, True), (5, False)):
                accuracy.record_rank = rank
                accuracy.hookt("a", t)
                assert bool(here.said()) is want, rank
    finally:
        accuracy.record_rank = 1


def check_a_dump_that_fails_is_said(here):
    with here.env(TSJPRINT=1):
        open("file", "w").close()
        accuracy.hookt_dump("a", here.torch.ones(2), dump_dir="file/below")
        assert here.said().startswith("'[forward]: a'") and "'a' is not saved" in here.warned()


def run_to(here, path, **kw):
    """A run with its log and its dumps."""
    made = model(here, **kw)
    with open(path, "w") as log, contextlib.redirect_stdout(log), here.env(TSJPRINT=1):
        handles = accuracy.hook_for_model(made)
        out = made(batch(here))
        accuracy.hookt_dump("out", out, dump_dir=f"{path}.dumps")
        out.sum().backward()
        [h.remove() for h in handles]


def check_the_first_difference(here):
    for name, weight in (("a", 0.0), ("b", 0.0), ("c", 1.0), ("d", 1e-6)):
        run_to(here, name, weight=weight)
    assert accuracy.first_difference("a", "b") is None
    found = accuracy.first_difference("a", "c")
    assert found.name == "[forward]: 2 output" and found.before == found.number - 1, found
    assert "The inputs of this module are equal" in found.words, found
    assert accuracy.first_difference("a", "d").name == "[forward]: 2 output"
    assert accuracy.first_difference("a", "d", tolerance=1.0) is None
    found = accuracy.first_difference("a.dumps", "c.dumps")
    assert (found.name, found.number) == ("out (forward)", 1), found
    assert accuracy.first_difference("a.dumps", "b.dumps") is None
    for bad in ("nowhere", __file__, "."):
        try:
            accuracy.first_difference(bad, "a")
            raise AssertionError(bad)
        except (OSError, ValueError):
            pass


def check_the_command(here):
    for name, weight in (("a", 0.0), ("b", 0.0), ("c", 1.0)):
        run_to(here, name, weight=weight)
    for args, status in (
        (["a", "b"], 0),
        (["a", "c"], 1),
        (["a", "c", "--tolerance", "1000"], 0),
        (["a", "nowhere"], 2),
    ):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert accuracy.main(args) == status, args
        assert status == 2 or out.getvalue().startswith("The runs "), out.getvalue()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        accuracy.main(["--json", "a", "c"])
    assert json.loads(out.getvalue())["name"] == "[forward]: 2 output"


SIDE = """
import sys
from putils import accuracy, pprint
from putils._tensors import Summary
def entry(name, value):
    return Summary(name, "f", "s", True, 1, 4, "%032x" % abs(value), value, value, value, value, value,
                   (value,) * 7, 0, 0, [], "")
with accuracy.compare_live(sys.argv[1], 20) as live:
    for i in range(3000):  # more than a socket holds
        pprint._tell(entry("t%d" % (i % 10), i if i != 33 or sys.argv[2] == "same" else -1))
print(live.difference.name if live.difference else None, live.compared, live.problem)
"""


def check_two_live_processes(here):
    env = {**os.environ, "XDG_RUNTIME_DIR": str(here.tmp)}

    def both(name, *ways):
        command = [sys.executable, "-c", SIDE, name]
        sides = [
            subprocess.Popen(
                command + [way], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for way in ways
        ]
        try:
            return [[t.decode() for t in s.communicate(timeout=60)] for s in sides]
        finally:
            [s.kill() for s in sides if s.poll() is None]

    for out, err in both("x", "same", "same"):
        assert (out, err) == ("None 3000 \n", ""), (out, err)
    for out, err in both("y", "same", "other"):
        assert out == "t3 3000 \n" and "The runs first differ at 't3', the 34th tensor" in err, (out, err)


def check_nobody_comes_to_a_live_comparison(here):
    with here.env(XDG_RUNTIME_DIR=str(here.tmp)):
        with accuracy.compare_live("alone", 0.1) as live:
            pass
    assert "nobody came" in live.problem and "nobody came" in here.warned()
