#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""What putils costs, beside the same with one operation of torch for each value.

usage: putils_cost.py tprint|dump MIB      seconds of: putils, one by one, the checksum alone
       putils_cost.py hooks STEPS          seconds of a step of a model of 148 modules: plain, with
                                           the hooks of putils, with hooks that go one by one
"""

import contextlib
import hashlib
import os
import sys
import tempfile
import time

import torch

QUANTILES = (0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 0.001)


# One by one: an operation, a pass and (on a device) a wait for each value.


def guarded(function):
    try:
        return function()
    except Exception as why:
        return why


def digest(t):
    t = t.float() if t.dtype == torch.bfloat16 else t
    return hashlib.md5(t.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:6]


def line_one_by_one(t, name):
    flat = t.detach().flatten()
    values = [
        guarded(lambda: flat.abs().sum().item()),
        guarded(lambda: digest(t)),
        guarded(lambda: t.mean().item()),
        guarded(lambda: t.sum().item()),
        guarded(lambda: t.max().item()),
        guarded(lambda: t.min().item()),
        guarded(lambda: torch.quantile(flat.float(), torch.tensor(QUANTILES)).tolist()),
        guarded(lambda: torch.isnan(t).any().item()),
        guarded(lambda: flat[:10].tolist()),
    ]
    print(name, t.dtype, t.shape, t.is_contiguous(), *values)


def one_by_one(t, name="x"):
    line_one_by_one(t, name)
    if t.dim() < 2:
        return
    parts = [(t.shape[0] > 1, lambda: t[0]), (t.shape[0] > 10, lambda: t[:10])]
    parts += [(t.shape[1] > 1, lambda: t[0, 0]), (t.shape[1] > 10, lambda: t[0, :10])]
    for wanted, part in parts:
        if wanted:
            line_one_by_one(part(), name)


def dump_one_by_one(t, folder):
    one_by_one(t)
    torch.save({"name": "x", "tensor": t.detach().cpu()}, os.path.join(folder, "before.pt"))


def seconds(function, *args):
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        began = time.perf_counter()
        function(*args)
        return time.perf_counter() - began


def checksum_alone(t):
    from putils import _native, _tensors

    hashlib.md5(_tensors._memory(_native.get(), t.data_ptr(), t.numel() * 4)).hexdigest()


def large(how, mib):
    from putils import accuracy, pprint

    t = torch.randn(8, mib << 6, 512)
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        ours = {
            "tprint": lambda: pprint.tprint(t, "x"),
            "dump": lambda: accuracy.hookt_dump("x", t, dump_backward=False, dump_dir=folder),
        }[how]
        # In turn, so that both see the same machine; the least is the cost itself.
        pairs = [(seconds(ours), seconds(checksum_alone, t)) for _ in range(2)]
        theirs = seconds(one_by_one, t) if how == "tprint" else seconds(dump_one_by_one, t, folder)
    print("seconds", min(p[0] for p in pairs), theirs, min(p[1] for p in pairs))


# A model as GPT-2 is: 12 blocks of 12 modules, and 4 around them.


class Attention(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.c_attn, self.c_proj = torch.nn.Linear(n, 3 * n), torch.nn.Linear(n, n)
        self.drop = torch.nn.Dropout(0.0)

    def forward(self, x):
        q, k, v = self.c_attn(x).chunk(3, -1)
        return self.drop(self.c_proj((q @ k.transpose(-1, -2)).softmax(-1) @ v))


class Mlp(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.c_fc, self.act = torch.nn.Linear(n, 4 * n), torch.nn.GELU()
        self.c_proj, self.drop = torch.nn.Linear(4 * n, n), torch.nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(self.c_proj(self.act(self.c_fc(x))))


class Block(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln_1, self.attn = torch.nn.LayerNorm(n), Attention(n)
        self.ln_2, self.mlp = torch.nn.LayerNorm(n), Mlp(n)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(torch.nn.Module):
    def __init__(self, n=192, words=1000, length=64):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(words, n), torch.nn.Embedding(length, n)
        for i in range(12):
            self.add_module(f"h{i}", Block(n))
        self.ln_f, self.head = torch.nn.LayerNorm(n), torch.nn.Linear(n, words)

    def forward(self, x):
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for i in range(12):
            x = getattr(self, f"h{i}")(x)
        return self.head(self.ln_f(x))


def show(value):
    for item in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(item, torch.Tensor):
            one_by_one(item)


def add_hooks_one_by_one(model):
    handles = []
    for name, module in model.named_modules():
        if name:
            hook = lambda m, i, o: (show(i), show(o)) and None  # noqa: E731
            handles += [module.register_forward_hook(hook)]
            handles += [module.register_full_backward_hook(hook)]
    return handles


def hooks(steps):
    from putils import accuracy

    torch.set_num_threads(1)  # of many, most would wait for each other
    model = Gpt()
    assert len([n for n, _ in model.named_modules() if n]) == 148
    batch = torch.randint(0, 1000, (2, 64))

    def step():
        model.zero_grad()
        model(batch).sum().backward()

    def least(make):
        handles = make()
        found = min(seconds(step) for _ in range(steps + 1))
        [h.remove() for h in handles]
        return found

    plain = least(list)
    ours = least(lambda: accuracy.hook_for_model(model, print_structure=False))
    theirs = least(lambda: add_hooks_one_by_one(model))
    print("seconds", plain, ours, theirs)


def main():
    os.environ["TSJPRINT"] = "1"
    if sys.argv[1] == "hooks":
        hooks(int(sys.argv[2]))
    else:
        large(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    main()
