# SPDX-License-Identifier: MulanPSL-2.0
"""Small transformers on the CPU that say themselves, in bytes, which module holds what.

    train_modules.py WAY CASE...

WAY: plain (nothing is recorded), launched (by the msmemscope command) or alone (this program starts
the recording itself).

For each case a line of JSON: a digest of its numbers, and what is expected at a time: [path, type,
bytes] of modules and parameters, and of how many models.
"""

import gc
import hashlib
import importlib.machinery
import json
import sys
import threading
import time
import types

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, WORDS, LAYERS = 32, 96, 3
NEW = [int(n) for n in torch.__version__.split("+")[0].split(".")[:2]] >= [2, 0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)
        self.times = []

    def forward(self, x):
        x = self.c_fc(x)
        self.times.append(time.time_ns())
        return self.c_proj(nn.functional.gelu(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.mlp = MLP()
        self.register_buffer("scale", torch.ones(7))

    def forward(self, x):
        x = x + self.attn(self.ln(x)) * self.scale[0]
        return x + self.mlp(x)


class Decoder(nn.Module):
    """Its embedding and its last layer are one tensor; gives its loss."""

    def __init__(self, recompute=False):
        super().__init__()
        self.wte = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.wte.weight
        self.recompute = recompute

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.h:
            if self.recompute:
                more = {"use_reentrant": self.recompute == "reentrant"} if NEW else {}
                x = checkpoint(block, x, **more)
            else:
                x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


# --- what is expected ---


def held_by_name(found, *wrappers):
    for wrapper in wrappers:
        found = [[name.replace(wrapper + ".", ""), kind, size] for name, kind, size in found]
    return found


def nbytes(tensor):
    return tensor.numel() * tensor.element_size()


def tensors(thing):
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors(value)


def held(model, optimizer=None, before=""):
    """Of parameters, gradients, buffers, states."""
    found = []
    for name, p in model.named_parameters():
        name = before + name
        found.append([name, "weight", nbytes(p)])
        if p.grad is not None:
            found.append([name, "gradient", nbytes(p.grad)])
        if optimizer is not None:
            size = sum(nbytes(t) for t in tensors(optimizer.state.get(p, {})))
            found.append([name, "optimizer_state", size])
    found += [[before + name, "buffer", nbytes(b)] for name, b in model.named_buffers()]
    return found


def storage(tensor):
    s = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return s.data_ptr(), s.nbytes()


class Case:
    def __init__(self, step):
        self.step, self.digest, self.told = step, hashlib.sha256(), []

    def note(self, *values):
        for v in values:
            self.digest.update(v.detach().numpy().tobytes())

    def expect(self, found, time_ns=None, whole=()):
        """whole: types that have no bytes elsewhere."""
        if time_ns is None:
            self.step()  # before 2.0, what has been freed is noticed at steps
            time.sleep(0.001)
            time_ns = time.time_ns()
            time.sleep(0.001)
        self.told.append({"time_ns": time_ns, "expected": found, "whole": list(whole)})

    def train(self, model, call=None, steps=2):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = (model if call is None else call)(torch.randint(0, WORDS, (4, 12)))
            loss.backward()
            optimizer.step()
            self.note(loss)
            self.step()
        self.note(*model.parameters())
        return optimizer


SUMS = ("weight", "gradient", "optimizer_state", "buffer")


def training(case):
    model = Decoder()
    optimizer = case.train(model)
    case.expect(held(model, optimizer), whole=SUMS)


def saved(case):
    """What autograd has saved of a forward pass is what its modules hold of activations."""
    model = Decoder()
    tokens = torch.randint(0, WORDS, (4, 12))
    model(tokens).backward()
    model.zero_grad(set_to_none=True)
    seen = {}

    def pack(tensor):
        seen.update([storage(tensor)])
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(tokens)
    for outside in [tokens, *model.parameters(), *model.buffers()]:
        seen.pop(storage(outside)[0], None)
    seen.update([storage(loss)])  # is kept, too, by us
    fc = LAYERS * 4 * 12 * 4 * WIDTH * 4
    case.expect(
        [["", "activation", sum(seen.values())], ["h.*.mlp.c_fc", "activation", fc]],
        whole=("activation",),
    )
    loss.backward()
    case.note(loss)


def recomputed(case):
    """In the backward pass, modules are called again by themselves."""
    for how in ("reentrant", "plain") if NEW else ("reentrant",):
        model = Decoder(recompute=how)
        optimizer = case.train(model)
        times = model.h[1].mlp.times
        loss = model(torch.randint(0, WORDS, (4, 12)))
        forward = len(times)
        loss.backward()
        assert len(times) == forward + 1
        fc = 4 * 12 * 4 * WIDTH * 4
        case.expect([["h.*.mlp.c_fc", "activation", fc]], times[-1])
        case.note(loss)
        del optimizer, model, loss
        gc.collect()


class Sharded(nn.Module):
    """The name by which FSDP wraps."""

    def __init__(self, module):
        super().__init__()
        self._fsdp_wrapped_module = module

    def forward(self, *args):
        return self._fsdp_wrapped_module(*args)


class Checkpointed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._checkpoint_wrapped_module = module

    def forward(self, *args):
        more = {"use_reentrant": False} if NEW else {}
        return checkpoint(self._checkpoint_wrapped_module, *args, **more)


def wrapped(case):
    model = Decoder()
    for i in range(LAYERS):
        model.h[i] = Sharded(Checkpointed(model.h[i])) if i else Checkpointed(Sharded(model.h[i]))
    outer = nn.DataParallel(Sharded(model), device_ids=[])
    optimizer = case.train(outer)
    found = held(model, optimizer)
    names = "_fsdp_wrapped_module", "_checkpoint_wrapped_module"
    case.expect(held_by_name(found, *names), whole=SUMS)


def distributed(case):
    """The real wrappers, on one process."""
    import os
    import tempfile

    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    store = os.path.join(tempfile.mkdtemp(), "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    model = Decoder()
    model.h[0] = checkpoint_wrapper(model.h[0])
    outer = nn.parallel.DistributedDataParallel(model)
    optimizer = case.train(outer)
    found = held(model, optimizer)
    case.expect(held_by_name(found, "_checkpoint_wrapped_module"), whole=("weight",))
    del outer
    dist.destroy_process_group()


def compiled(case):
    try:
        import networkx  # noqa: F401
    except ImportError:  # torch imports it, and uses it for nothing that is done here
        sys.modules["networkx"] = types.ModuleType("networkx")
        sys.modules["networkx"].__spec__ = importlib.machinery.ModuleSpec("networkx", None)
    model = Decoder()
    call = model
    if NEW:
        call = torch.compile(model, backend=lambda graph, inputs: graph.forward)
    optimizer = case.train(model, call)
    case.expect(held(model, optimizer), whole=SUMS)


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("on purpose")


class Catches(nn.Module):
    def __init__(self):
        super().__init__()
        self.fails = Fails()
        self.works = nn.Linear(5, 5)

    def forward(self, x, through):
        if through:
            return self.fails(x)
        try:
            self.fails(x)
        except ValueError:
            pass
        y = self.works(x)
        return y, torch.zeros(1013)


def failing(case):
    model = Catches()
    x = torch.ones(5)
    y, zeros = model(x, False)
    if NEW:  # before, nothing says when the call ended
        case.expect([["Catches", "activation", 4 * 1013], ["works", "activation", 20]])
    else:
        case.expect([["works", "activation", 20]])
    try:
        model(x, True)
    except ValueError:
        pass
    outside = torch.zeros(2017)
    case.expect([["(no module)", "other", 4 * 2017 + 20]] if NEW else [])
    y, zeros = model(x, False)
    case.expect([["works", "activation", 20]])
    case.note(y, zeros, outside)


def hooked(case):
    """Hooks of the program's own: what they keep is of the module around, or of none."""
    model = Decoder()
    kept = []

    def hook(module, args, result):
        kept.append(torch.zeros(3001))

    handle = model.h[1].mlp.c_fc.register_forward_hook(hook)
    optimizer = case.train(model, steps=1)
    size = 4 * 3001
    case.expect([["h.*.mlp", "activation", size], *held(model, optimizer)])
    handle.remove()
    case.note(*kept)


def threads(case):
    """Two models, each in a thread of its own: their names stand first."""
    models = [Decoder(), nn.Sequential(nn.Linear(11, 13), nn.ReLU(), nn.Linear(13, 11))]
    inputs = [torch.randint(0, WORDS, (4, 12)), torch.ones(17, 11)]
    results, barrier = [None, None], threading.Barrier(2)

    def run(i):
        barrier.wait()
        for _ in range(20):
            results[i] = models[i](inputs[i])

    workers = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    case.note(*results)
    case.expect(
        held(models[0], before="Decoder.")
        + held(models[1], before="Sequential.")
        + [
            ["Sequential.1", "activation", 17 * 13 * 4],
            ["Sequential.2", "activation", 17 * 11 * 4],
            ["Decoder.h.*.mlp.c_fc", "activation", LAYERS * 4 * 12 * 4 * WIDTH * 4],
        ]
    )


class Scratch(nn.Module):
    """Its backward pass needs memory for a moment."""

    SIZE = 20011
    times = []

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            needed = torch.zeros(Scratch.SIZE)
            Scratch.times.append(time.time_ns())
            time.sleep(0.001)
            return gradient * 2 + needed.sum()

    def forward(self, x):
        return self.Function.apply(x)


def gradients(case):
    """What the backward pass of a module needs is the module's, also when it is computed again."""
    for recompute in (False, "plain") if NEW else (False,):
        model = Decoder(recompute)
        for i in range(LAYERS):
            model.h[i] = nn.Sequential(model.h[i], Scratch())
        del Scratch.times[:]
        optimizer = case.train(model, steps=1)
        size = 4 * Scratch.SIZE
        named = NEW and hasattr(torch._C, "_DisableTorchDispatch")
        name = "h.*.1" if named else "(no module)"
        assert len(Scratch.times) == LAYERS
        for moment in Scratch.times:
            case.expect([[name, "backward", size]] if named else [], moment)
        del optimizer, model
        gc.collect()


def inference(case):
    """Nothing is saved: what a module allocates is gone before the forward pass ends."""
    model = Decoder()
    with torch.no_grad():
        loss = model(torch.randint(0, WORDS, (4, 12)))
    fc = 4 * 12 * 4 * WIDTH * 4
    case.expect([["h.*.mlp.c_fc", "temporary", fc]], model.h[1].mlp.times[-1])
    case.expect([["Decoder", "activation", 4]], whole=("activation", "temporary"))
    case.note(loss)


def main():
    way, names = sys.argv[1], sys.argv[2:]
    torch.manual_seed(7)
    torch.set_num_threads(1)
    step = lambda: None  # noqa: E731
    if way != "plain":
        import msmemscope

        step = msmemscope.step
    for name in names:
        if way == "alone":
            msmemscope.config(device="cpu", analysis="decompose", events="alloc,free")
            msmemscope.start()
        case = Case(step)
        globals()[name](case)
        print(json.dumps({"name": name, "digest": case.digest.hexdigest(), "told": case.told}))
        if way == "alone":
            msmemscope.stop()
        del case
        gc.collect()


if __name__ == "__main__":
    main()
