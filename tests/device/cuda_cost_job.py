#!/usr/bin/env python3
# SPDX-License-Identifier: MulanPSL-2.0
"""One job of cuda_cost.py: models of transformers and torchvision, a training step of JAX.

usage: cuda_cost_job.py gpt2|resnet|jax large|small

Prints "cost ready" and then, for each line of stdin, a number of steps, how long one of them took.
"""

import os
import sys
import time


def of_gpt2(large):
    import torch
    import transformers

    config = transformers.GPT2Config(use_cache=False)
    model = transformers.GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, config.vocab_size, (16, 512) if large else (1, 32), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, torch.cuda.synchronize


def of_resnet(large):
    import torch
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(128 if large else 1, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (len(images),), device="cuda")
    if not large:
        model.eval()  # one image has no statistics

    def step():
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, torch.cuda.synchronize


def of_jax(large):
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")
    import jax
    import jax.numpy as jnp

    width, rows = (8192, 4096) if large else (256, 32)
    keys = jax.random.split(jax.random.PRNGKey(0), 5)
    weights = [jax.random.normal(k, (width, width)) * 0.01 for k in keys[:4]]
    data = jax.random.normal(keys[4], (rows, width))

    def loss(weights, data):
        x = data
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean((x - data) ** 2)

    @jax.jit
    def update(weights, data):
        grads = jax.grad(loss)(weights, data)
        return [w - 0.01 * g for w, g in zip(weights, grads)]

    def step():
        nonlocal weights
        weights = update(weights, data)

    return step, lambda: jax.block_until_ready(weights)


def main():
    step, wait = {"gpt2": of_gpt2, "resnet": of_resnet, "jax": of_jax}[sys.argv[1]](
        sys.argv[2] == "large"
    )
    for _ in range(5):
        step()
    wait()
    print("cost ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        print(f"cost {(time.perf_counter() - begin) * 1e3 / steps:.4f}", flush=True)


if __name__ == "__main__":
    main()
