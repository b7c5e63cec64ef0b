#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/encoders does with Python: train a BERT with transformers, and count tokens.

usage: encoders.py share FILE                              the share of the commonest token
       encoders.py train FILE VALIDATION MASK STEPS SEED LR
                                                           loss and accuracy of masked tokens

FILEs are llm.c's: 256 words of 32 bits, then tokens of 16 bits. Sequences of 128 are cut from all of FILE in an order
drawn at random, 16 for a step. On a GPU if there is one.
"""

import sys

import numpy as np
import torch
import transformers

B, T, RATE = 16, 128, 0.15
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read(path):
    """Tokens of a file."""
    return torch.from_numpy(np.fromfile(path, dtype="<u2")[512:].astype(np.int64))


def mask(tokens, mask_token, generator):
    """Inputs [B, T], and labels, -100 where nothing is to be predicted."""
    chosen = torch.rand(tokens.shape, generator=generator) < RATE
    how = torch.rand(tokens.shape, generator=generator)
    drawn = torch.randint(mask_token, tokens.shape, generator=generator)
    inputs = torch.where(how < 0.8, mask_token, torch.where(how < 0.9, drawn, tokens))
    return torch.where(chosen, inputs, tokens), torch.where(chosen, tokens, -100)


def evaluate(model, tokens, mask_token):
    """Mean loss and accuracy over masked tokens, the same masks in each run."""
    generator = torch.Generator().manual_seed(0)
    loss = right = count = 0
    rows = tokens[: len(tokens) // T * T].view(-1, T)
    with torch.no_grad():
        for first in range(0, len(rows), B):
            inputs, labels = (x.to(DEVICE) for x in mask(rows[first : first + B], mask_token, generator))
            out = model(input_ids=inputs).logits
            loss += torch.nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten(), reduction="sum").item()
            right += (out.argmax(-1) == labels).sum().item()
            count += (labels >= 0).sum().item()
    return loss / count, right / count


def train(path, validation, mask_token, steps, seed, peak):
    """Print loss and accuracy after so many steps."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=mask_token + 1, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=256, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForMaskedLM(config).to(DEVICE)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.999), eps=1e-8)
    tokens = read(path)
    rows = tokens[: len(tokens) // T * T].view(-1, T)
    order = torch.cat([torch.randperm(len(rows), generator=generator) for _ in range(1 + steps * B // len(rows))])
    for step in range(steps):
        lr = peak * min(1.0, (step + 1) / 100)
        if step >= 100:
            lr = peak * (0.1 + 0.45 * (1 + np.cos(np.pi * (step - 100) / (steps - 100))))
        for group in optimizer.param_groups:
            group["lr"] = lr
        drawn = mask(rows[order[step * B : step * B + B]], mask_token, generator)
        inputs, labels = (x.to(DEVICE) for x in drawn)
        loss = model(input_ids=inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(*evaluate(model, read(validation), mask_token))


def main():
    """Count or train."""
    if sys.argv[1] == "share":
        print(torch.bincount(read(sys.argv[2])).max().item() / len(read(sys.argv[2])))
    else:
        torch.set_num_threads(2)
        train(*sys.argv[2:4], *map(int, sys.argv[4:7]), float(sys.argv[7]))


if __name__ == "__main__":
    main()
