#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""The model that the jobs beside this file train. By itself: a program that knows of nobody who
looks at it. Trains, and says what came out as JSON. usage: memory_model.py [DEVICE]
"""

import hashlib
import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before torch: see reproducible()

import torch  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self, width=256, layers=4, words=4000):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = torch.nn.Linear(width, words)

    def forward(self, x):
        return self.out(self.layers(self.words(x)))


def batch(model, size=8, length=128):
    where = next(model.parameters()).device
    return torch.randint(0, model.words.num_embeddings, (size, length), device=where)


def one_step(model, optimizer, size=8, length=128):
    x = batch(model, size, length)
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return loss.detach()


def reproducible():
    """What is computed twice is the same to the bit."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return h.hexdigest()


def train(device, steps=4, after=lambda: None, prepare=lambda model: model):
    """A digest of everything that came out."""
    torch.manual_seed(1)
    model = prepare(Model(width=128, layers=2).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(steps):
        losses.append(one_step(model, optimizer))
        after()
    return digest(*losses, *model.parameters())


def main():
    reproducible()
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    out = train(device)
    said = {"digest": out, "loaded": sorted({"msmemscope"} & set(sys.modules))}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
