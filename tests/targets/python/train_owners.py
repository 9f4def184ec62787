# SPDX-License-Identifier: MulanPSL-2.0
"""A small training loop on the CPU that says itself, in bytes, who owns what.

    train_owners.py WAY OPTIMIZER...

WAY: plain (nothing is recorded), launched (by the msmemscope command), alone (this program starts
the recording itself). OPTIMIZER: adam, sgd (momentum), lbfgs, rmsprop, foreach, fused, grouped; one
training for each, of a new model.

For each a line of JSON: sums by owner, each storage counted once, at a time that lies between the
last step and the end of the model; and a digest of losses and weights to compare runs with.
"""

import hashlib
import json
import sys
import time

import torch

STEPS = 3


class Model(torch.nn.Module):
    """A small transformer whose embedding and last layer are one tensor."""

    def __init__(self, words=96, width=32):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.layer = torch.nn.TransformerEncoderLayer(width, 4, 80, dropout=0.1, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(width)
        self.head = torch.nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.layer(self.embedding(tokens))
        hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        return self.head(hidden)


def optimizer_of(name, model):
    parameters = list(model.parameters())
    if name == "adam":
        return torch.optim.Adam(parameters, lr=1e-2)
    if name == "foreach":
        return torch.optim.AdamW(parameters, lr=1e-2, foreach=True)
    if name == "fused":
        return torch.optim.Adam(parameters, lr=1e-2, fused=True)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=1e-2, momentum=0.9, centered=True)
    if name == "lbfgs":
        return torch.optim.LBFGS(parameters, lr=1e-1, max_iter=3, history_size=2)
    groups = [{"params": parameters[:5], "lr": 1e-2}, {"params": parameters[5:], "lr": 1e-3}]
    return torch.optim.Adam(groups, amsgrad=True)


def tensors(thing):
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors(value)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from tensors(value)


def storage_bytes(found):
    """Of distinct storages."""
    sizes = {}
    for t in found:
        storage = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
        sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def sums(model, optimizer):
    return {
        "weight": storage_bytes(model.parameters()),
        "buffer": storage_bytes(model.buffers()),
        "gradient": storage_bytes(p.grad for p in model.parameters() if p.grad is not None),
        "optimizer_state": storage_bytes(tensors(list(optimizer.state.values()))),
    }


def train(name, step):
    model = Model()
    optimizer = optimizer_of(name, model)
    digest = hashlib.sha256()
    for _ in range(STEPS):
        tokens = torch.randint(0, 96, (4, 12))

        def closure():
            optimizer.zero_grad(set_to_none=True)
            logits = model(tokens)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            loss.backward()
            return loss

        if name == "lbfgs":
            loss = optimizer.step(closure)
        else:
            loss = closure()
            optimizer.step()
        digest.update(repr(loss.item()).encode())
        step()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return model, optimizer, digest.hexdigest()


def main():
    way, names = sys.argv[1], sys.argv[2:]
    torch.manual_seed(7)
    torch.set_num_threads(1)
    step = lambda: None  # noqa: E731
    if way != "plain":
        import msmemscope

        step = msmemscope.step
    if way == "alone":
        msmemscope.config(device="cpu", analysis="decompose", events="alloc,free")
        msmemscope.start()
    for name in names:
        model, optimizer, digest = train(name, step)
        step()
        told = {"name": name, "digest": digest, "time_ns": time.time_ns()}
        told.update(sums(model, optimizer))
        time.sleep(0.001)
        print(json.dumps(told))
        del model, optimizer
    if way == "alone":
        msmemscope.stop()


main()
