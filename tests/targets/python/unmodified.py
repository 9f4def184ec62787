# SPDX-License-Identifier: MulanPSL-2.0
"""Programs with PyTorch that know nothing of sonde, each in a process that is forked, after its
pid was printed with its name: "NAME PID"."""

import gc
import os
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def make_model():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def train_batch(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()


def plain():
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        train_batch(model, optimizer)


def leaking():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for _ in range(10):
        train_batch(model, optimizer)
        kept.append(torch.randn(8192))  # the leak


def accumulating():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(40):
        model(torch.randn(8, 16)).mean().backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def gan():
    d, g = make_model(), nn.Linear(4, 16)
    d_optimizer = torch.optim.Adam(d.parameters())
    g_optimizer = torch.optim.Adam(g.parameters())
    for _ in range(10):
        d_optimizer.zero_grad()
        d(g(torch.randn(8, 4)).detach()).mean().backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        d(g(torch.randn(8, 4))).mean().backward()
        g_optimizer.step()


def critic():
    """Five steps of one for each of the other."""
    d, g = make_model(), nn.Linear(4, 16)
    d_optimizer = torch.optim.Adam(d.parameters())
    g_optimizer = torch.optim.Adam(g.parameters())
    for _ in range(10):
        for _ in range(5):
            d_optimizer.zero_grad()
            d(g(torch.randn(8, 4)).detach()).mean().backward()
            d_optimizer.step()
        g_optimizer.zero_grad()
        d(g(torch.randn(8, 4))).mean().backward()
        g_optimizer.step()


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(80, 16))
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


def lbfgs():
    model = make_model()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=3)
    x = torch.randn(8, 16)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)


def made_again():
    model = make_model()
    for _ in range(2):
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(5):
            train_batch(model, optimizer)


def compiled():
    if not hasattr(torch, "compile"):
        return
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        fast = torch.compile(model, backend="eager")
        fast(torch.randn(8, 16))
    except ImportError:  # the compiler needs more than torch itself
        return
    for _ in range(10):
        train_batch(fast, optimizer)


class Served(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = make_model(), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))


def inference():
    model = Served().eval()
    with torch.no_grad():
        for _ in range(40):
            nn.functional.softmax(model(torch.randn(8, 16)), dim=-1)


def two_models():
    """Called in turn, each also inside of another module."""
    encoder, decoder = make_model().eval(), Served().eval()
    with torch.no_grad():
        for _ in range(40):
            encoder(torch.randn(8, 16))
            decoder(torch.randn(8, 16))


def failing_model():
    class Fails(Served):
        def forward(self, x):
            if x.shape[0] % 2:
                raise ValueError("odd")
            return super().forward(x)

    model = Fails().eval()
    with torch.inference_mode():
        for i in range(40):
            try:
                model(torch.randn(i + 1, 16))
            except ValueError:
                pass


def trained_late():
    """The class of a model is what it was when training begins."""
    model = Served().eval()
    with torch.no_grad():
        for _ in range(40):
            model(torch.randn(8, 16))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        train_batch(model, optimizer)
    assert "__call__" not in vars(Served)


def serving_leak():
    model, kept = Served().eval(), []
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(8, 16))
            kept.append(torch.randn(8192))


def validated_first():
    """What looked like inference was none."""
    model = make_model()
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 16))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        train_batch(model, optimizer)
        model.eval()
        with torch.no_grad():
            model(torch.randn(8, 16))
        model.train()


def reported():
    """The program's own steps count, also where others were detected before."""
    import sonde

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(12):
        train_batch(model, optimizer)
        if i >= 4:
            sonde.step()


def forked():
    """The parent trains, then a child, in which autograd does not work any more."""
    plain()
    child = os.fork()
    if child == 0:
        print("child", os.getpid(), flush=True)
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(20):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()
        os._exit(0)
    os.waitpid(child, 0)


# What these leave when they end is looked at. Taking the interpreter down takes most of the time of the
# others.
END_AS_USUAL = (inference, serving_leak, plain, leaking, reported)


def run(way):
    pid = os.fork()
    if pid == 0:
        print(way.__name__, os.getpid(), flush=True)
        way()
        if way in END_AS_USUAL:
            sys.exit(0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, way.__name__


if __name__ == "__main__":
    gc.freeze()  # in the forked ones: looking through all that torch is made of copies it
    for way in (inference, serving_leak, two_models, failing_model):
        run(way)
    if torch.__version__ >= "2":
        import torch._dynamo  # else every process that makes an optimizer does it

        gc.freeze()
    for way in (validated_first, trained_late, plain, leaking, accumulating, gan, critic, loader, lbfgs):
        run(way)
    for way in (made_again, compiled, reported, forked):
        run(way)
