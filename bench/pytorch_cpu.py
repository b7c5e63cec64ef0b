#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a GPT-2, a Llama or a BERT with PyTorch on this machine's CPUs.

usage: pytorch_cpu.py VARIANT PRECISION FAMILY LAYERS CHANNELS HEADS INNER VOCABULARY BATCH SEQUENCE STEPS THREADS TOKENS
       pytorch_cpu.py tokens VOCABULARY       (random tokens of 16 bits to standard output)

VARIANT is eager or compiled, with PRECISION bf16 followed by ",autocast" or ",pure" (parameters and optimizer in bf16,
too). The arithmetic is that of mics: AdamW (fused), clipping at 1, tied head, no dropout; a BERT's head computes the
masked rows only, 15 % of each sequence. Prints the tokens per second
of CPU time of the steps after the first two, and by how many bytes resident memory grew at most since torch was
imported; and to standard error a line after each step.
"""

import resource
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WARM = 2


class GPT2Block(nn.Module):
    """Layer norms, attention with biases, GELU."""

    def __init__(self, C, H, inner):
        super().__init__()
        self.H = H
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.project = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, inner), nn.Linear(inner, C)

    def forward(self, x, _):
        """[B, T, C] to [B, T, C]."""
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.H, C // self.H).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(C, dim=2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(out.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    """RMS norms, attention with rotary positions, SwiGLU."""

    def __init__(self, C, H, inner):
        super().__init__()
        self.H = H
        self.norm1, self.norm2 = nn.RMSNorm(C, eps=1e-5), nn.RMSNorm(C, eps=1e-5)
        self.qkv, self.project = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.gate_up, self.down = nn.Linear(C, 2 * inner, bias=False), nn.Linear(inner, C, bias=False)

    def forward(self, x, rotation):
        """[B, T, C] to [B, T, C]."""
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.H, C // self.H).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(C, dim=2))
        out = F.scaled_dot_product_attention(rotate(q, rotation), rotate(k, rotation), v, is_causal=True)
        x = x + self.project(out.transpose(1, 2).reshape(B, T, C))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class BertBlock(nn.Module):
    """Attention to all tokens, exact GELU, layer norms after each part."""

    def __init__(self, C, H, inner):
        super().__init__()
        self.H = H
        self.norm1, self.norm2 = nn.LayerNorm(C, eps=1e-12), nn.LayerNorm(C, eps=1e-12)
        self.qkv, self.project = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, inner), nn.Linear(inner, C)

    def forward(self, x, _):
        """[B, T, C] to [B, T, C]."""
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.H, C // self.H).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))
        out = F.scaled_dot_product_attention(q, k, v)
        x = self.norm1(x + self.project(out.transpose(1, 2).reshape(B, T, C)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class MaskedHead(nn.Module):
    """Dense, exact GELU, norm, and the tied matrix with a bias, of some rows."""

    def __init__(self, C, V):
        super().__init__()
        self.dense, self.norm = nn.Linear(C, C), nn.LayerNorm(C, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, x, embedding):
        """[rows, C] to logits [rows, V]."""
        return F.linear(self.norm(F.gelu(self.dense(x))), embedding, self.bias)


def rotate(x, rotation):
    """Rotary positions of [B, H, T, D]."""
    cosine, sine = rotation
    low, high = x.chunk(2, dim=-1)
    return x * cosine.to(x.dtype) + torch.cat((-high, low), dim=-1) * sine.to(x.dtype)


class Model(nn.Module):
    """Embedding, blocks, norm, tied head, loss."""

    def __init__(self, family, L, C, H, inner, V, T):
        super().__init__()
        block = {"gpt2": GPT2Block, "llama": LlamaBlock, "bert": BertBlock}[family]
        norm = nn.RMSNorm if family == "llama" else nn.LayerNorm
        self.wte = nn.Embedding(V, C)
        self.wpe = nn.Embedding(T, C) if family != "llama" else None
        self.types = nn.Embedding(2, C) if family == "bert" else None
        self.blocks = nn.ModuleList(block(C, H, inner) for _ in range(L))
        self.norm = norm(C, eps=1e-12 if family == "bert" else 1e-5)
        self.head = MaskedHead(C, V) if family == "bert" else None
        D = C // H
        angle = torch.outer(torch.arange(T), 10000.0 ** (-torch.arange(0, D, 2) / D)).repeat(1, 2)
        self.rotation = angle.cos(), angle.sin()
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets, masked):
        """Mean loss; of a BERT, of the rows in "masked", of which the targets are."""
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe.weight
        if self.head is not None:
            x = self.norm(x + self.types.weight[0])
        for block in self.blocks:
            x = block(x, self.rotation)
        if self.head is not None:
            return F.cross_entropy(self.head(x.flatten(0, 1)[masked], self.wte.weight), targets)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def mask(tokens, V):
    """Of 15 % of each sequence, chosen at random: tokens with 80 % masked, 10 % random, 10 % as they are; what
    they were; their rows in [B * T, C]."""
    B, T = tokens.shape
    count = -(-T * 15 // 100)
    rows = torch.argsort(torch.rand(B, T), dim=1)[:, :count] + T * torch.arange(B).view(B, 1)
    rows = rows.flatten().sort().values
    targets, how, inputs = tokens.flatten()[rows], torch.rand(len(rows)), tokens.flatten().clone()
    drawn = torch.randint(V, (len(rows),))
    inputs[rows] = torch.where(how < 0.8, V - 1, torch.where(how < 0.9, drawn, targets))
    return inputs.view(B, T), targets, rows


def peak():
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train(variant, precision, family, numbers, path):
    """Print the speed of the steps."""
    L, C, H, inner, V, B, T, steps, threads = numbers
    before = peak()
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model(family, L, C, H, inner, V, T)
    if "pure" in variant:
        model = model.to(torch.bfloat16)
    step_model = torch.compile(model) if "compiled" in variant else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.from_numpy(np.fromfile(path, dtype="<u2").astype(np.int64))
    cpu = 0.0
    for step in range(steps):
        first = step * B * (T + 1) % (len(data) - B * (T + 1))
        rows = data[first : first + B * (T + 1)].view(B, T + 1)
        begin = time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled="autocast" in variant):
            inputs, targets, masked = rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), None
            if family == "bert":
                inputs, targets, masked = mask(inputs, V)
            loss = step_model(inputs, targets, masked)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print('{"event":"step"}', file=sys.stderr, flush=True)  # for bench/turns
        if step >= WARM:
            cpu += time.process_time() - begin
    assert precision == "bf16" or "," not in variant
    print(f"{B * T * (steps - WARM) / cpu:.1f} {peak() - before}")


def main():
    """Tokens or training."""
    if sys.argv[1] == "tokens":
        rng = np.random.default_rng(1)
        sys.stdout.buffer.write(rng.integers(int(sys.argv[2]), size=300_000, dtype=np.uint16).tobytes())
    else:
        train(*sys.argv[1:4], [int(word) for word in sys.argv[4:13]], sys.argv[13])


if __name__ == "__main__":
    main()
