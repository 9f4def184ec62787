# SPDX-License-Identifier: MulanPSL-2.0
"""Everything that may happen around weights, gradients, states and activations, in one process.

What a test calls a block is told as one of a device's pool: a real tensor with its own address, or
an allocation made up at that moment. In the end each is named on stdout with the owner that it must
have: a line of JSON, [[name, owner], …] in the order of allocation.
"""

import copy
import itertools
import json
import sys
import threading

import torch
from torch import nn

import msmemscope
from sonde import _sonde

MODERN = int(torch.__version__.split(".")[0]) >= 2
IN_STEP = "PTA@optimizer" if MODERN else "PTA"

told, alive = [], []
_numbers = itertools.count(1)


def expect(name, owner):
    told.append((name, owner))


def take(name, owner):
    """An allocation of this thread, now."""
    expect(name, owner)
    _sonde.block_alloc(0x700000000000 + next(_numbers) * 0x10000, 64, 0, _sonde.POOL_PTA)


def block(tensor, name, owner):
    """The memory of a tensor. Nobody else gets it: that would be another block."""
    expect(name, owner)
    alive.append(tensor)
    size = tensor.nelement() * tensor.element_size()
    _sonde.block_alloc(tensor.data_ptr(), size, 0, _sonde.POOL_PTA)


def gone(tensor):
    _sonde.block_free(tensor.data_ptr(), 0, 0, _sonde.POOL_PTA)


class Taking(nn.Module):
    """Calls what it is given in its forward."""

    def __init__(self, inner=None):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.inner = inner

    def forward(self, x, during=None):
        if during:
            during()
        x = self.linear(x)
        return x if self.inner is None else self.inner(x)


def fails(error):
    raise error


def forwards():
    model = Taking(Taking())
    take("before", "PTA")
    model(torch.ones(3), lambda: take("in forward", "PTA@activation"))
    take("behind", "PTA")
    model(torch.ones(3), lambda: model(torch.ones(3), lambda: take("deep", "PTA@activation")))
    take("behind the same twice", "PTA")

    def other():
        Taking()(torch.ones(3), lambda: take("another inside", "PTA@activation"))
        take("behind another inside", "PTA@activation")

    model(torch.ones(3), other)
    take("behind others", "PTA")
    for error in (ValueError("no"), KeyboardInterrupt()):
        try:
            model(torch.ones(3), lambda: fails(error))
        except (ValueError, KeyboardInterrupt):
            pass
        if MODERN and isinstance(error, ValueError):
            take("behind an error", "PTA")
        model(torch.ones(3), lambda: take("after an error", "PTA@activation"))
        take("behind the next", "PTA")
    with torch.no_grad():
        model(torch.ones(3), lambda: take("no gradients", "PTA@activation"))


class Backward(torch.autograd.Function):
    during = None

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Backward.during()
        return g * 2


def backwards():
    x = torch.ones(3, requires_grad=True)
    Backward.during = lambda: take("in backward", "PTA@backward")
    Backward.apply(x).sum().backward()
    take("behind backward", "PTA")
    Backward.during = lambda: take("in grad", "PTA@backward")
    torch.autograd.grad(Backward.apply(x).sum(), x)
    torch.autograd.backward([Backward.apply(x).sum()])
    Backward.during = lambda: fails(ValueError("no"))
    try:
        Backward.apply(x).sum().backward()
    except ValueError:
        pass
    take("behind an error in backward", "PTA")
    model = Taking()
    try:
        model(x, lambda: fails(KeyboardInterrupt()))
    except KeyboardInterrupt:
        pass
    Backward.during = lambda: take("in backward after an error", "PTA@backward")
    Backward.apply(x).sum().backward()
    take("behind both", "PTA")


def threads_of_autograd():
    """On a device, gradients are computed by a thread of torch's: here one that looks like it."""
    from concurrent.futures import ThreadPoolExecutor

    from msmemscope import _owners

    def become_one():
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
            comm.write("pt_autograd_0")

    x, uses = torch.ones(3, requires_grad=True), _owners._uses_devices
    _owners._uses_devices = lambda torch: True
    with ThreadPoolExecutor(1) as pool:
        pool.submit(become_one).result()
        for owner in ("PTA", "PTA@backward", "PTA@backward"):

            def there():
                take("by its thread", owner)

            Backward.during = lambda: pool.submit(there).result()
            Backward.apply(x).sum().backward()
            pool.submit(take, "between", "PTA").result()
    _owners._uses_devices = uses


def checkpoints():
    from torch.utils.checkpoint import checkpoint

    model, owners = Taking(), iter(["PTA@activation", "PTA@activation"])
    more = {"use_reentrant": False} if MODERN else {}
    x = torch.ones(3, requires_grad=True)
    out = checkpoint(lambda y: model(y, lambda: take("checkpointed", next(owners))), x, **more)
    out.sum().backward()
    assert next(owners, None) is None
    take("behind a checkpoint", "PTA")


class Nested(torch.optim.Optimizer):
    """Keeps its state in unusual places."""

    def __init__(self, parameters, during=lambda: None):
        super().__init__(parameters, {})
        self.during = during
        self.common = torch.zeros(2)

    def step(self, closure=None):
        if closure:
            closure()
        self.during()
        for group in self.param_groups:
            for p in group["params"]:
                if p not in self.state:
                    inner = {"list": [torch.ones(5), (torch.ones(6),)], "number": 3, "none": None}
                    self.state[p] = {"deep": inner, "weight": p, "view": self.common[1:]}


def states():
    model = Taking()
    unused = nn.Parameter(torch.ones(4))
    optimizer = Nested(list(model.parameters()) + [unused], lambda: take("in step", IN_STEP))
    block(model.linear.weight, "a weight", "PTA@weight")
    block(unused, "a weight without gradient", "PTA@weight")
    model(torch.ones(3)).sum().backward()
    block(model.linear.bias.grad, "a gradient", "PTA@gradient")
    optimizer.step()
    take("behind a step", "PTA")
    inner = optimizer.state[model.linear.weight]["deep"]["list"]
    block(inner[0], "a state in a list", "PTA@optimizer_state")
    block(inner[1][0], "a state in a tuple", "PTA@optimizer_state")
    block(optimizer.common, "a state that is a view", "PTA@optimizer_state")
    optimizer.step()
    optimizer.during = lambda: fails(ValueError("no"))
    for _ in range(3):
        try:
            optimizer.step()
        except ValueError:
            pass
    optimizer.during = lambda: None
    model(torch.ones(3), lambda: take("after an error in a step", "PTA@activation"))
    take("behind an error in a step", "PTA")
    gone(inner[0])
    block(inner[0], "in use again", "PTA@optimizer_state")
    optimizer.step(lambda: model(torch.ones(3), lambda: take("in a closure", "PTA@activation")))


def schedulers():
    model = Taking()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    scheduler.step()
    momentum = optimizer.state[model.linear.weight]["momentum_buffer"]
    block(momentum, "momentum", "PTA@optimizer_state")
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    copied = copy.deepcopy(torch.optim.SGD(model.parameters(), lr=0.1))
    block(copied.param_groups[0]["params"][0], "of a copied optimizer", "PTA@weight")
    copied.step()


def modules():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    block(model[0].weight, "frozen", "PTA@weight")
    block(model[1].running_mean, "a buffer", "PTA@buffer")
    block(model[1].bias, "never called for itself", "PTA@weight")
    model(torch.ones(2, 3))


def sparse():
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    table(torch.tensor([1, 2, 2])).sum().backward()
    block(table.weight.grad._values(), "values", "PTA@gradient")
    block(table.weight.grad._indices(), "indices", "PTA@gradient")
    optimizer.step()


def threads():
    model = Taking()
    inside, go_on = threading.Event(), threading.Event()

    def during():
        inside.set()
        go_on.wait(10)
        take("in forward of another thread", "PTA@activation")

    other = threading.Thread(target=lambda: model(torch.ones(3), during))
    other.start()
    inside.wait(10)
    take("meanwhile", "PTA")
    go_on.set()
    other.join()


class Inner(torch.Tensor):
    """A tensor that is made of another one, as distributed and quantized ones are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was called")


def wrapped():
    inner = torch.ones(3)
    optimizer = Nested([Inner(inner)])
    block(inner, "inside a tensor", "PTA@weight")
    optimizer.step()


def distributed():
    if not MODERN:
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    weight = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
    optimizer = torch.optim.Adam([weight])
    (weight * 2).sum().backward()
    block(weight._local_tensor, "a weight of many", "PTA@weight")
    block(weight.grad._local_tensor, "a gradient of many", "PTA@gradient")
    optimizer.step()
    block(optimizer.state[weight]["exp_avg"]._local_tensor, "their state", "PTA@optimizer_state")
    weight.grad = None
    (weight * 2).sum().backward()
    optimizer.step()
    dist.destroy_process_group()


def listeners():
    """Programs that listen to torch hear nothing of us."""
    if not MODERN:
        return
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    heard = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            heard.append(str(func))
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            heard.append(str(func))
            return func(*args, **(kwargs or {}))

    def train():
        heard.clear()
        torch.manual_seed(1)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        with Functions(), Operators():
            table(torch.tensor([1, 2])).sum().backward()
            optimizer.step()
        return list(heard)

    recorded = train()
    msmemscope.stop()
    assert recorded == train()
    msmemscope.start()


def compiled():
    if not MODERN:
        return
    torch.manual_seed(3)
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), torch.ones(2, 3)
    plain = model(x)
    try:
        fast = torch.compile(model, backend=lambda graph, inputs: graph.forward, fullgraph=True)
    except ModuleNotFoundError:  # some distributions do not bring what the compiler needs
        return
    assert torch.equal(fast(x), plain)
    block(model[0].weight, "of a compiled module", "PTA@weight")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fast(x).sum().backward()
    optimizer.step()
    msmemscope.stop()
    assert torch.equal(fast(x), model(x))
    msmemscope.start()
    assert torch.equal(fast(x), model(x))
    take("behind compiled code", "PTA")


def hooks():
    """How many of ours torch has."""
    module = sys.modules["torch.nn.modules.module"]
    optimizer = sys.modules["torch.optim.optimizer"]
    found = [len(module._global_forward_hooks), len(module._global_forward_pre_hooks)]
    found.append(len(getattr(optimizer, "_global_optimizer_post_hooks", ())))
    found.append(optimizer.Optimizer._optimizer_step_code.__module__)
    found.append(getattr(torch.autograd, "_engine_run_backward", torch.autograd.backward))
    return found


def cycles():
    on = hooks()
    msmemscope.stop()
    off = hooks()
    assert off[:2] == [0, 0] and not off[2] and off[3] == "torch.optim.optimizer", off
    assert not hasattr(off[4], "__wrapped__") and hasattr(on[4], "__wrapped__")
    for _ in range(20):
        msmemscope.start()
        msmemscope.start()
        msmemscope.stop()
        assert hooks() == off
    msmemscope.start()
    assert hooks()[:4] == on[:4]
    model = Taking()

    def during():
        msmemscope.stop()
        msmemscope.start()

    model(torch.ones(3), during)  # its window has no end, until the next begins
    model(torch.ones(3), lambda: take("after a window", "PTA@activation"))
    take("behind a window", "PTA")


def main():
    early = Taking()
    of_early = torch.optim.Adam(early.parameters())
    msmemscope.config(analysis="decompose", events="alloc,free", device="npu")
    msmemscope.start()
    block(early.linear.weight, "older than the recording", "PTA@weight")
    early(torch.ones(3)).sum().backward()
    of_early.step()
    cases = [forwards, backwards, threads_of_autograd, checkpoints, states, schedulers, modules]
    for case in cases + [sparse, threads, wrapped, distributed, listeners, compiled, cycles]:
        case()
    msmemscope.stop()
    print(json.dumps(told))


main()
