# SPDX-License-Identifier: MulanPSL-2.0
"""Corners of torch, one after the other, without recording and then with it: what each of them
computes must be the same. Prints those that differ, and "same" if none does.
"""

import contextlib
import copy
import hashlib
import io
import pickle
import threading
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CORNERS = []
VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])

warnings.simplefilter("ignore")
torch.manual_seed(0)


def corner(fn):
    CORNERS.append(fn)
    return fn


def digest(value):
    """Of everything that a corner returns: tensors by their bytes."""
    if isinstance(value, torch.Tensor):
        data = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return hashlib.sha256(bytes(data.tolist())).hexdigest()[:12]
    if isinstance(value, (list, tuple)):
        return [digest(v) for v in value]
    return repr(value)


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 4)
    )


@corner
def training():
    model = net()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        adam.zero_grad()
        loss = model(torch.randn(6, 8)).pow(2).mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses, list(model.parameters())


@corner
def double_backward():
    x = torch.randn(5, requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    return x.grad


@corner
def checkpointing():
    from torch.utils.checkpoint import checkpoint

    model, x = net(), torch.randn(3, 8, requires_grad=True)
    checkpoint(model, x, use_reentrant=True).sum().backward()
    return x.grad


@corner
def custom_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 + ctx.saved_tensors[0] * 0

    x = torch.randn(4, requires_grad=True)
    Twice.apply(x).sum().backward()
    return x.grad


@corner
def exceptions():
    said = []
    for wrong in (
        lambda: torch.ones(2, 3).mm(torch.ones(2, 3)),
        lambda: torch.empty(3).view(2),
        lambda: torch.zeros(2)[5],
        lambda: torch.ones(2).add_(torch.ones(3)),
    ):
        try:
            wrong()
        except (RuntimeError, IndexError) as why:
            said.append((type(why).__name__, str(why).splitlines()[0]))
    return said


@corner
def inference():
    with torch.inference_mode():
        y = net()(torch.ones(2, 8))
    with torch.no_grad():
        z = net().eval()(torch.ones(2, 8))
    return y, z, y.requires_grad, y.is_inference()


@corner
def kinds():
    x = torch.randn(4, 4)
    sparse = (x * (x > 0)).to_sparse()
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    half = x.to(torch.bfloat16) @ x.to(torch.bfloat16)
    return (
        (sparse @ x),
        quantized.dequantize(),
        half,
        torch.view_as_real(torch.complex(x, x).conj() * 2),
        torch.zeros(0, 3).sum(),
        torch.nested_tensor([x, x]).size(0) if hasattr(torch, "nested_tensor") else 0,
        torch.fft.fft(x).abs(),
        torch.empty(3, device="meta").add(1).shape,
    )


@corner
def in_place_and_out():
    x, out = torch.ones(3), torch.empty(0)
    torch.add(x, x, out=out)
    x.add_(1).mul_(out)
    x[1:] = 7
    x.resize_(5)
    x[3:] = 0
    x.index_put_((torch.tensor([0]),), torch.tensor([9.0]))
    return x, out


@corner
def copies():
    model = net()
    twin = copy.deepcopy(model)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    twin.load_state_dict(torch.load(buffer))
    return list(twin.parameters()), pickle.loads(pickle.dumps(torch.arange(4)))


@corner
def randomness():
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(4)
    made = torch.randn(3, generator=gen)
    return torch.rand(3), made, torch.randperm(5), torch.rand(2).bernoulli()


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@corner
def modes_of_the_program():
    with Counting() as outer:
        torch.ones(2) + 1
        with Counting() as inner:
            torch.ones(2) * 2
    return outer.names, inner.names


class Wrapped(torch.Tensor):
    """Holds a tensor and dispatches by itself."""

    seen = []

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(str(func))
        bare = [a.held if isinstance(a, cls) else a for a in args]
        return cls(func(*bare, **(kwargs or {})))


@corner
def wrapper_subclass():
    Wrapped.seen.clear()
    y = (Wrapped(torch.ones(3)) + torch.ones(3)) * 2
    return y.held, type(y).__name__, Wrapped.seen


class Overriding(torch.Tensor):
    """Sees every function that it is given to, and every attribute."""

    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@corner
def function_subclass():
    if VERSION < (2, 0):
        return None  # no mode may be on there
    Overriding.seen.clear()
    x = torch.ones(3).as_subclass(Overriding)
    y = x + 1
    y.mul_(x)
    return type(y).__name__, Overriding.seen[:]


@corner
def function_mode():
    try:
        from torch.overrides import TorchFunctionMode
    except ImportError:
        return None
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, requires_grad=True)
    with Mode():
        (x * 2).sum().backward()
    return seen


@corner
def fake_tensors():
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError:
        return None
    with FakeTensorMode() as mode:
        made = torch.empty(3, 4)
        y = made @ torch.empty(4, 5)
    z = mode.from_tensor(torch.ones(2)) + 1
    return tuple(y.shape), type(y).__name__, tuple(z.shape)


@corner
def transforms():
    try:
        from torch.func import functional_call, grad, jacrev, vmap
    except ImportError:
        from functorch import grad, jacrev, vmap

        functional_call = None
    x = torch.randn(3, 4)
    made = [
        vmap(torch.dot)(x, x),
        grad(lambda v: v.sin().sum())(x),
        jacrev(torch.sin)(x[0]),
        vmap(grad(lambda v: (v * v).sum()))(x),
    ]
    if functional_call is not None:
        model = net().eval()
        made.append(functional_call(model, dict(model.named_parameters()), (torch.ones(1, 8),)))
    return made


@corner
def functionalized():
    try:
        from torch.func import functionalize
    except ImportError:
        from functorch import functionalize

    def f(x):
        y = x.clone()
        y.add_(1)
        return y.view(-1)

    return functionalize(f)(torch.ones(2, 2))


@corner
def traced():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: (x + 1).sin())(torch.ones(3))
    calls = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    return calls, graph(torch.ones(3))


@corner
def scripted():
    @torch.jit.script
    def f(x, n: int):
        for _ in range(n):
            x = x * 2 + 1
        return x

    traced = torch.jit.trace(net().eval(), torch.ones(1, 8))
    return f(torch.ones(3), 3), traced(torch.ones(1, 8))


@corner
def compiled():
    if VERSION < (2, 6):
        return None
    graphs = []
    torch._dynamo.reset()

    def backend(module, inputs):
        graphs.append(len(list(module.graph.nodes)))
        return module

    f = torch.compile(lambda x: (x.sin() + x.cos()).sum(), backend=backend)
    x = torch.ones(4, requires_grad=True)
    f(x).backward()
    ahead = torch.compile(lambda x: (x * 3).relu(), backend="aot_eager")
    y = torch.ones(4, requires_grad=True)
    ahead(y).sum().backward()
    return x.grad, y.grad, graphs


@corner
def distributed_tensors():
    try:
        import torch.distributed as dist
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    except ImportError:
        return None
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        y = x @ x
        return y.redistribute(mesh, [Replicate()]).to_local(), type(y).__name__
    finally:
        dist.destroy_process_group()


@corner
def loaders():
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(12.0).reshape(6, 2))
    forked = DataLoader(data, 3, num_workers=2, multiprocessing_context="fork")
    return list(DataLoader(data, 3)), list(forked)


@corner
def threads():
    made = [None] * 3

    def work(i):
        torch.manual_seed(i)
        made[i] = net()(torch.full((1, 8), float(i)))

    for i in range(3):
        thread = threading.Thread(target=work, args=(i,))
        thread.start()
        thread.join()
    return [m.shape for m in made]


@corner
def numpys():
    try:
        import numpy
    except ImportError:
        return None
    array = numpy.arange(6.0).reshape(2, 3)
    x = torch.from_numpy(array)
    x.mul_(2)
    return array.tolist(), x.t().numpy().sum()


@corner
def shared():
    x = torch.ones(4).share_memory_()
    y = torch.empty_strided((2, 2), (1, 2)).fill_(3)
    return x + 1, y, x.is_shared()


@corner
def default_device():
    if not hasattr(torch, "set_default_device"):
        return None
    torch.set_default_device("cpu")
    try:
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        return x.grad, x.device
    finally:
        torch.set_default_device(None)


def run_all(after):
    said = {}
    for fn in CORNERS:
        torch.manual_seed(0)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                said[fn.__name__] = repr(digest(fn()))
            except Exception as why:
                said[fn.__name__] = f"{type(why).__name__}: {why}".splitlines()[0]
        after()
    return said


def main():
    import msmemscope

    plain = run_all(lambda: None)
    msmemscope.config(
        events="alloc,free,launch,access", device="npu,cpu", analysis="decompose,inefficient"
    )
    msmemscope.start()
    recorded = run_all(msmemscope.step)
    msmemscope.stop()
    for name in plain:
        if plain[name] != recorded[name]:
            print(f"{name}:\n  {plain[name]}\n  {recorded[name]}")
    print("same" if plain == recorded else "not the same")


if __name__ == "__main__":
    main()
