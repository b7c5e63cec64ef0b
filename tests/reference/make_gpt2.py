#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference values of a small GPT-2 from PyTorch, for tests/unit/model/test_reference.c.

Writes beside itself gpt2-tiny/config.json and model.safetensors, a model folder as the Hugging Face
hub has them, and gpt2-tiny/reference.safetensors: tokens, targets (-1: not counted), logits, the sum
of the losses, and the gradient of that sum by every parameter. The arithmetic is in double precision
on the parameters as stored (fp32); the results are stored in fp32. reference-parallel.safetensors is of the same
parameters with attention and MLP side by side: both branches of a block start from its input.

Needs PyTorch 1.12 or later (Debian: python3-torch). The tests do not: the files are committed.
"""

import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

CONFIG = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "n_embd": 16,
    "n_head": 4,
    "n_inner": None,
    "n_layer": 2,
    "n_positions": 12,
    "vocab_size": 29,
    "layer_norm_epsilon": 1e-5,
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "resid_pdrop": 0.1,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
B, T = 2, 10


def shapes():
    """Every parameter's name and shape; matrices are [in, out]."""
    c, v = CONFIG["n_embd"], CONFIG["vocab_size"]
    yield "wte.weight", (v, c)
    yield "wpe.weight", (CONFIG["n_positions"], c)
    for i in range(CONFIG["n_layer"]):
        yield f"h.{i}.ln_1.weight", (c,)
        yield f"h.{i}.ln_1.bias", (c,)
        yield f"h.{i}.attn.c_attn.weight", (c, 3 * c)
        yield f"h.{i}.attn.c_attn.bias", (3 * c,)
        yield f"h.{i}.attn.c_proj.weight", (c, c)
        yield f"h.{i}.attn.c_proj.bias", (c,)
        yield f"h.{i}.ln_2.weight", (c,)
        yield f"h.{i}.ln_2.bias", (c,)
        yield f"h.{i}.mlp.c_fc.weight", (c, 4 * c)
        yield f"h.{i}.mlp.c_fc.bias", (4 * c,)
        yield f"h.{i}.mlp.c_proj.weight", (4 * c, c)
        yield f"h.{i}.mlp.c_proj.bias", (c,)
    yield "ln_f.weight", (c,)
    yield "ln_f.bias", (c,)


def make_parameters(generator):
    """Spread wide enough that attention and GELU are far from linear."""
    made = {}
    for name, shape in shapes():
        values = torch.randn(shape, generator=generator) * 0.3
        if "ln_" in name and name.endswith("weight"):
            values += 1
        made[name] = values
    return made


def attention(x, p, prefix):
    heads = CONFIG["n_head"]
    qkv = x @ p[prefix + "c_attn.weight"] + p[prefix + "c_attn.bias"]
    q, k, v = (part.view(B, T, heads, -1).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    joined = (weights @ v).transpose(1, 2).reshape(B, T, -1)
    return joined @ p[prefix + "c_proj.weight"] + p[prefix + "c_proj.bias"]


def norm(x, p, prefix):
    weight, bias = p[prefix + ".weight"], p[prefix + ".bias"]
    return F.layer_norm(x, weight.shape, weight, bias, CONFIG["layer_norm_epsilon"])


def mlp(x, p, prefix):
    wide = x @ p[prefix + "c_fc.weight"] + p[prefix + "c_fc.bias"]
    wide = F.gelu(wide, approximate="tanh")
    return wide @ p[prefix + "c_proj.weight"] + p[prefix + "c_proj.bias"]


def logits_of(p, tokens, parallel):
    x = p["wte.weight"][tokens] + p["wpe.weight"][:T]
    for i in range(CONFIG["n_layer"]):
        middle = x + attention(norm(x, p, f"h.{i}.ln_1"), p, f"h.{i}.attn.")
        x = middle + mlp(norm(x if parallel else middle, p, f"h.{i}.ln_2"), p, f"h.{i}.mlp.")
    return norm(x, p, "ln_f") @ p["wte.weight"].T


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def reference_of(stored, tokens, targets, parallel):
    p = {name: values.double().requires_grad_() for name, values in stored.items()}
    logits = logits_of(p, tokens, parallel)
    loss = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum"
    )
    loss.backward()
    reference = {"loss": loss.detach().reshape(1), "logits": logits.detach().float()}
    reference.update(tokens=tokens.int(), targets=targets.int())
    reference.update({f"grad.{name}": values.grad.float() for name, values in p.items()})
    return reference


def main():
    generator = torch.Generator().manual_seed(20220501)
    stored = make_parameters(generator)
    tokens = torch.randint(CONFIG["vocab_size"], (B, T), generator=generator)
    targets = torch.randint(CONFIG["vocab_size"], (B, T), generator=generator)
    targets[0, 3] = targets[1, 0] = targets[1, 9] = -1

    folder = pathlib.Path(__file__).resolve().parent / "gpt2-tiny"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", stored)
    for name, parallel in (("reference", False), ("reference-parallel", True)):
        write_safetensors(folder / f"{name}.safetensors", reference_of(stored, tokens, targets, parallel))


if __name__ == "__main__":
    main()
