#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a mixture of experts with PyTorch's transformers on this machine's CPUs.

usage: experts_torch.py EXPERTS CONFIG BATCH SEQUENCE STEPS THREADS TOKENS
       experts_torch.py tokens VOCABULARY      (random tokens of 16 bits to standard output)

EXPERTS is an implementation of transformers: eager, batched_mm or grouped_mm. In fp32, with AdamW (fused) and clipping
at 1, as mics-train has them. Prints a line to standard output after each step, for bench/turns.
"""

import sys

import numpy as np
import torch
import transformers


def train(experts, config, batch, sequence, steps, threads, path):
    """Print a line for each step."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(config), dtype=torch.float32, attn_implementation="sdpa",
        experts_implementation=experts)
    found = model.config._experts_implementation
    assert found == experts, found
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.from_numpy(np.fromfile(path, dtype="<u2").astype(np.int64))
    for step in range(steps):
        first = step * batch * (sequence + 1) % (len(data) - batch * (sequence + 1))
        rows = data[first : first + batch * (sequence + 1)].view(batch, sequence + 1)
        logits = model(rows[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print('{"event":"step"}', flush=True)


def main():
    """Tokens or training."""
    if sys.argv[1] == "tokens":
        rng = np.random.default_rng(1)
        sys.stdout.buffer.write(rng.integers(int(sys.argv[2]), size=300_000, dtype=np.uint16).tobytes())
    else:
        train(*sys.argv[1:3], *[int(word) for word in sys.argv[3:7]], sys.argv[7])


if __name__ == "__main__":
    main()
