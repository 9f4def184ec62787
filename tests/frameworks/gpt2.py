# SPDX-License-Identifier: MulanPSL-2.0
"""GPT-2 of Hugging Face's transformers, trained on random tokens."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

STEPS = 8
kept = []
device = "cuda" if torch.cuda.is_available() else "cpu"
config = GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=512, n_positions=128)
model = GPT2LMHeadModel(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(tokens):
    out = model(input_ids=tokens, labels=tokens)
    if "leak" in sys.argv:
        kept.append(out.logits.detach().clone())  # the leak
    out.loss.backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(STEPS):
    train_step(torch.randint(0, 512, (4, 128), device=device))
print("steps", STEPS)
