#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a GPT-2 with PyTorch on one GPU, as fast as PyTorch does it, and print its tokens per second.

usage: pytorch_gpu.py LAYERS CHANNELS HEADS BATCH SEQUENCE STEPS     (tokens_per_s ms_per_step peak_bytes)
       pytorch_gpu.py attention                                      (a line for each: head direction TFLOP/s)

The same arithmetic as mics: bf16 products, fp32 master parameters (autocast), AdamW (fused), clipping at 1, tied head,
no dropout; torch.compile, scaled_dot_product_attention, vocabulary padded to 50304. The mean of the steps
after the first five, which the host enqueues without waiting. "attention" times its backend cuDNN:
causal, T 2048, bf16.
"""

import statistics
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 50304
WARM = 5
MOST_AT_ONCE = 16  # layers of a model that is compiled as a whole; a deeper one is compiled block by block, in less time


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, C, H):
        super().__init__()
        self.H = H
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.project = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        """[B, T, C] to [B, T, C]."""
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.H, C // self.H).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(C, dim=2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(out.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    """Embedding, blocks, norm, tied head, loss."""

    def __init__(self, L, C, H, T):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H) for _ in range(L))
        self.norm = nn.LayerNorm(C)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        """Mean loss."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        """Norm, head, mean loss."""
        logits = self.norm(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def train(L, C, H, B, T, steps):
    """Print the speed of steps on random tokens."""
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Model(L, C, H, T).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if L <= MOST_AT_ONCE:
        compiled = torch.compile(model)
    else:
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
        compiled = model
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for step in range(steps):
        data = torch.randint(50257, (B, T + 1), device="cuda")
        if step == WARM:
            begin.record()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(data[:, :-1].contiguous(), data[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    end.record()
    end.synchronize()
    each = begin.elapsed_time(end) / (steps - WARM)
    print(f"{B * T / each * 1e3:.0f} {each:.3f} {torch.cuda.max_memory_allocated()}")


def attention():
    """Print the rates of attention by PyTorch's backend cuDNN, forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for head, heads in ((64, 16), (128, 16)):
        B, T = 16, 2048
        shape = (B, heads, T, head)
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        grad = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        flops = 4 * B * heads * T * T * head / 2
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            forward = timed(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
            backward = timed(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
        print(f"{head} forward {flops / forward * 1e-12:.0f}")
        print(f"{head} backward {2.5 * flops / backward * 1e-12:.0f}")


def timed(function):
    """Median seconds of a call."""
    times = []
    for _ in range(30):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times[5:])


if __name__ == "__main__":
    if sys.argv[1:] == ["attention"]:
        attention()
    else:
        train(*map(int, sys.argv[1:7]))
