#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a GPT-2 with PyTorch on this machine's CPUs and print its tokens per second.

usage: pytorch_gpt2.py LAYERS CHANNELS HEADS VOCABULARY BATCH SEQUENCE STEPS THREADS

The same arithmetic as mics: fp32, AdamW, clipping at 1, tied head, no dropout. Prints the median of the steps
after the first two.
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

L, C, H, V, B, T, STEPS, THREADS = map(int, sys.argv[1:9])


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.project = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.register_buffer("hidden", torch.ones(T, T, dtype=torch.bool).triu(1))

    def attend(self, x):
        """Causal attention of all heads."""
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (C // H) ** -0.5
            out = scores.masked_fill(self.hidden, float("-inf")).softmax(-1) @ v
        return self.project(out.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        """[B, T, C] to [B, T, C]."""
        x = x + self.attend(self.norm1(x))
        up = self.up(self.norm2(x))
        gelu = 0.5 * up * (1 + torch.tanh(0.7978845608 * (up + 0.044715 * up**3)))
        if hasattr(F, "gelu") and torch.__version__ >= "1.12":
            gelu = F.gelu(up, approximate="tanh")
        return x + self.down(gelu)


class Model(nn.Module):
    """Embedding, blocks, norm, tied head, loss."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.norm = nn.LayerNorm(C)

    def forward(self, tokens, targets):
        """Mean loss."""
        x = self.wte(tokens) + self.wpe(torch.arange(T))
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, V), targets.reshape(-1))


def main():
    """Steps on random tokens."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for _ in range(STEPS):
        tokens = torch.randint(V, (B, T + 1))
        begin = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    print(f"{B * T / statistics.median(seconds[2:]):.0f}")


main()
