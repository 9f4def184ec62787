# SPDX-License-Identifier: MulanPSL-2.0
"""Sharded models of the real torch, on CPU: fsdp.py RANK WORLD FILE

take() is called at places that are known to be inside or outside of forward and backward passes,
with sizes to know them by; the same is trained before, while and after memory is recorded, and has
to come to the same numbers.
"""

import hashlib
import os
import sys
import threading

import msmemscope

assert "torch" not in sys.modules
os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from device_memory import take  # noqa: E402
from torch import nn  # noqa: E402

RANK, WORLD, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
WIDTH = 64
BATCH = 1500


class Marks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mark, fails):
        ctx.mark, ctx.fails = mark, fails
        take(mark + 1)
        if fails == "forward":
            raise RuntimeError("in the forward pass")
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        take(ctx.mark + 2)
        if ctx.fails == "backward":
            raise RuntimeError("in the backward pass")
        return grad, None, None


class Layer(nn.Module):
    def __init__(self, mark):
        super().__init__()
        self.linear, self.mark, self.fails = nn.Linear(WIDTH, WIDTH), mark, None

    def forward(self, x):
        return Marks.apply(torch.tanh(self.linear(x)), self.mark, self.fails)

    def other_way(self, x):
        return self.forward(x)


class Model(nn.Module):
    def __init__(self, mark):
        super().__init__()
        self.layers = nn.ModuleList(Layer(mark + 10 * n) for n in range(3))
        self.last = nn.Linear(WIDTH, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def build(mark):
    torch.manual_seed(1)
    model = Model(mark)
    if KIND == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        cpu = torch.device("cpu")
        for n, layer in enumerate(model.layers):
            model.layers[n] = FSDP(layer, device_id=cpu)
        return FSDP(model, device_id=cpu)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh) or model


def layer_of(model, n):
    layer = (model.module if KIND == "fsdp1" else model).layers[n]
    return layer.module if KIND == "fsdp1" else layer


def digest(tensors):
    all_of_them = hashlib.sha256()
    for t in tensors:
        t = t.to_local() if hasattr(t, "to_local") else t
        all_of_them.update(t.detach().contiguous().numpy().tobytes())
    return all_of_them.hexdigest()


def train(model, mark, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(2 + RANK)
    losses = []
    for _ in range(steps):
        take(mark + 901)
        loss = model(torch.randn(BATCH, WIDTH)).square().sum()
        take(mark + 902)
        loss.backward()
        take(mark + 903)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
        msmemscope.step()
    return digest(losses + list(model.parameters()))


def fail(where, mark):
    """A model that fails is not used again: that is torch's to repair."""
    model = build(mark)
    layer_of(model, 1).fails = where
    try:
        model(torch.randn(4, WIDTH)).sum().backward()
    except RuntimeError as why:
        assert "in the " + where in str(why), why
    else:
        raise AssertionError("it did not fail")
    take(mark + 904)


def other_thread(mark):
    """Its own labels, while the others' are open: here and there at the same time."""
    go, done = threading.Event(), threading.Event()

    def run():
        go.wait()
        take(mark + 905)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()

    class Meet(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            go.set()
            done.wait()
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    model = build(mark)
    layer = layer_of(model, 1)
    layer.register_forward_hook(lambda module, args, out: Meet.apply(out))
    model(torch.randn(4, WIDTH)).sum().backward()
    thread.join()


def functions():
    """All that may be hooked, as they are now."""
    names = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("torch.distributed.fsdp") or name == "torch.autograd":
            for key, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__.startswith("torch.dist"):
                    for k, v in vars(value).items():
                        # What Python itself keeps there about caches and subclasses is no function.
                        if callable(v) and k not in ("__abstractmethods__", "_abc_impl"):
                            names[name, key, k] = v
                elif callable(value):
                    names[name, key] = value
    return names


def check(kind, base):
    global KIND
    KIND = kind
    early = build(base + 10_000)  # and hooked while it is in use
    results = [train(build(base + 20_000), base + 20_000)]
    before = functions()
    msmemscope.start()
    hooked = [key for key, value in functions().items() if before.get(key) is not value]
    assert hooked, "nothing is hooked"
    results.append(train(early, base + 10_000))
    results.append(train(build(base + 30_000), base + 30_000))
    fail("forward", base + 40_000)
    fail("backward", base + 50_000)
    other_thread(base + 60_000)
    if KIND == "fsdp2":
        from torch.distributed.fsdp import register_fsdp_forward_method

        model = build(base + 80_000)
        layer = model.layers[0]
        register_fsdp_forward_method(layer, "other_way")
        layer.other_way(torch.randn(4, WIDTH))
        take(base + 80_904)
    msmemscope.stop()
    assert functions() == before, [k for k, v in functions().items() if before.get(k) is not v]
    train(early, base + 10_000)
    results.append(train(build(base + 70_000), base + 70_000))
    msmemscope.start()
    results.append(train(build(base + 70_000), base + 70_000))
    msmemscope.stop()
    assert len(set(results)) == 1, results
    print("same", kind)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + FILE, rank=RANK, world_size=WORLD)
    check("fsdp1", 0)
    check("fsdp2", 100_000)
    dist.destroy_process_group()


main()
