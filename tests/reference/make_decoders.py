#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference values of small decoders from the transformers library, for tests/unit/model/test_reference.c.

usage: make_decoders.py [MODEL...]      (all of them by default)

Writes beside itself MODEL-tiny/config.json and model.safetensors, a model folder as the library has them, and
reference.safetensors: tokens, targets (-1: not counted), logits, the sum of the losses, and the gradient of that sum
by every parameter. Queries are grouped. The library computes in double precision on the parameters as stored (fp32),
but for the norms, the softmax and the angles of the positions, which it does in fp32; the results are stored in fp32.

mixtral-fused-tiny and qwen2-moe-fused-tiny have the same models as mixtral-tiny and qwen2-moe-tiny as version 5 of the
library may write them: the experts of a layer in two tensors.

llama-tiny/config.json is as transformers 4 writes it, and config-5.json there the same as 5.23 does; the others are
as 5.23 writes them.

Needs PyTorch and transformers 4.51 or later. The tests do not: the files are committed.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers

from make_gpt2 import write_safetensors

B, T = 2, 10
SIZES = {
    "hidden_size": 18,
    "intermediate_size": 26,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "vocab_size": 29,
    "max_position_embeddings": 12,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "attn_implementation": "eager",
    "experts_implementation": "eager",
    "bos_token_id": 0,
    "eos_token_id": 0,
}
# One row for each model: its family's classes, what differs from SIZES, and a seed.
MODELS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, {}, 20230227),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig,
                {"head_dim": 8, "sliding_window": 11}, 20231010),
    "qwen2": (transformers.Qwen2ForCausalLM, transformers.Qwen2Config, {"tie_word_embeddings": True}, 20240715),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config,
              {"head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2}, 20250514),
    "llama-yarn": (transformers.LlamaForCausalLM, transformers.LlamaConfig,
                   {"num_key_value_heads": 3, "attention_bias": True, "mlp_bias": True,
                    "rope_scaling": {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 4,
                                     "beta_fast": 2.0, "beta_slow": 0.1, "mscale": 2.0, "mscale_all_dim": 0.5}},
                   20230831),
    "mistral-window": (transformers.MistralForCausalLM, transformers.MistralConfig, {"sliding_window": 4}, 20230927),
    "qwen2-window": (transformers.Qwen2ForCausalLM, transformers.Qwen2Config,
                     {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}, 20240607),
    "qwen3-window": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config,
                     {"head_dim": 6, "attention_bias": True, "use_sliding_window": True, "sliding_window": 5,
                      "layer_types": ["sliding_attention", "full_attention"]}, 20250429),
    "mixtral": (transformers.MixtralForCausalLM, transformers.MixtralConfig,
                {"num_local_experts": 4, "num_experts_per_tok": 2}, 20240108),
    "olmoe": (transformers.OlmoeForCausalLM, transformers.OlmoeConfig,
              {"num_key_value_heads": 3, "num_experts": 5, "num_experts_per_tok": 3, "output_router_logits": True,
               "router_aux_loss_coef": 0.5}, 20240903),
    "qwen2-moe": (transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig,
                  {"num_hidden_layers": 3, "moe_intermediate_size": 14, "shared_expert_intermediate_size": 22,
                   "num_experts": 5, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [1],
                   "use_sliding_window": True, "sliding_window": 4,
                   "layer_types": ["full_attention", "full_attention", "sliding_attention"],
                   "output_router_logits": True, "router_aux_loss_coef": 0.4}, 20240328),
    "qwen3-moe": (transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig,
                  {"head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
                   "moe_intermediate_size": 14, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
                   "mlp_only_layers": [0], "output_router_logits": True, "router_aux_loss_coef": 0.25}, 20250728),
}


def make_model(name, generator):
    """Spread wide enough that attention and SwiGLU are far from linear."""
    kind, config, changes, _ = MODELS[name]
    model = kind(config(**{**SIZES, **changes}))
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
            if "norm" in tensor:
                parameter.add_(1)
    return model.eval()


def bare(name):
    return name[len("model."):] if name.startswith("model.") else name


def file_tensors(name, tensor, values):
    """Names and values, in files, of what version 5 of the library has for all experts of a layer in one tensor."""
    layer, _, kind = tensor.rpartition(".")
    if kind not in ("gate_up_proj", "down_proj"):
        return [(tensor.replace(".mlp.", ".block_sparse_moe.") if name == "mixtral" else tensor, values)]
    parts = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
    if name == "mixtral":
        layer = layer.replace(".mlp.", ".block_sparse_moe.")
        parts = [{"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[part] for part in parts]
    return [(f"{layer}.{expert}.{part}.weight", piece.contiguous())
            for expert, matrix in enumerate(values) for part, piece in zip(parts, matrix.chunk(len(parts)))]


def check_choices(router_logits, chosen):
    """No choice of a router may depend on rounding."""
    for logits in router_logits or ():
        best = logits.sort(-1, descending=True).values
        if (best[:, chosen - 1] - best[:, chosen]).min() < 1e-4:
            raise SystemExit("two experts are too close: choose another seed")


def make_reference(name):
    generator = torch.Generator().manual_seed(MODELS[name][3])
    folder = pathlib.Path(__file__).resolve().parent / f"{name}-tiny"
    model = make_model(name, generator)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in ("mixtral", "qwen2-moe"):
        fused = folder.with_name(f"{name}-fused-tiny")
        model.save_pretrained(fused, save_original_format=False)
        (fused / "generation_config.json").unlink(missing_ok=True)

    vocabulary = SIZES["vocab_size"]
    tokens = torch.randint(vocabulary, (B, T), generator=generator)
    targets = torch.randint(vocabulary, (B, T), generator=generator)
    targets[0, 3] = targets[1, 0] = targets[1, 9] = -1
    model = model.double()
    routed = hasattr(model.config, "num_experts_per_tok")
    output = model(tokens, output_router_logits=True) if routed else model(tokens)
    logits = output.logits.double()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
    if routed:
        check_choices(output.router_logits, model.config.num_experts_per_tok)
        if model.config.output_router_logits:
            loss = loss + model.config.router_aux_loss_coef * output.aux_loss * (targets >= 0).sum()
    loss.backward()

    reference = {"loss": loss.detach().reshape(1), "logits": logits.detach().float()}
    reference.update(tokens=tokens.int(), targets=targets.int())
    for tensor, parameter in model.named_parameters():
        reference.update({f"grad.{bare(part)}": values.float()
                          for part, values in file_tensors(name, tensor, parameter.grad)})
    write_safetensors(folder / "reference.safetensors", reference)


def main():
    for name in sys.argv[1:] or MODELS:
        make_reference(name)


if __name__ == "__main__":
    main()
