#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do models go through mics-shard and the real transformers library, both ways, unchanged?

usage: check_transformers.py [--write]      (mics-plan and mics-shard on PATH)

What transformers writes is split and merged, for every family (tied and not), several plans and types;
transformers must load the result without a missing or unexpected name and compute the same logits, bit for bit where
the type is the same. A folder whose config.json is ours must load, too. With --write the small model that
the tests without Python use is rewritten, to gpt2-transformers/ beside this file.

Needs PyTorch, transformers 4 or 5, and safetensors. Prints TAP.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 24, "vocab_size": 61}
LLAMA = {"hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 50,
         "num_hidden_layers": 3, "max_position_embeddings": 24, "vocab_size": 61, "rope_theta": 3000.0}
ENDS = {"bos_token_id": 0, "eos_token_id": 0}
FAMILIES = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **ENDS)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **ENDS)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**LLAMA, **ENDS, head_dim=10)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**LLAMA, **ENDS)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**LLAMA, **ENDS, head_dim=10, tie_word_embeddings=True)),
    "llama-tied": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**LLAMA, **ENDS, tie_word_embeddings=True)),
    "mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **{**LLAMA, "intermediate_size": 52}, **ENDS, num_local_experts=5, num_experts_per_tok=2)),
    "olmoe": lambda: transformers.OlmoeForCausalLM(transformers.OlmoeConfig(
        **{**LLAMA, "num_key_value_heads": 6, "intermediate_size": 52}, **ENDS, num_experts=7,
        num_experts_per_tok=3)),
    "qwen2-moe": lambda: transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        **LLAMA, **ENDS, moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=6,
        num_experts_per_tok=2, mlp_only_layers=[1])),
    "qwen3-moe": lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **LLAMA, **ENDS, head_dim=10, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=6, norm_topk_prob=True,
        decoder_sparse_step=2)),
}
count = 0
failed = 0


def check(name, good):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, **more)


def make_model(seed, make):
    torch.manual_seed(seed)
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():  # no zeros and ones: places could be exchanged unseen
            parameter.copy_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def logits(model):
    tokens = torch.arange(20).remainder(model.config.vocab_size).reshape(2, 10)
    with torch.no_grad():
        return model(tokens).logits


def load(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, torch_dtype="auto")
    whole = not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model.eval(), whole


def plan(work, model, strategy):
    path = work / f"{pathlib.Path(model).name}-{strategy}.mp"
    run("mics-plan", "--topology=node:2 gpu:2", f"--model={model}", "--global-batch=4", "--seq=8",
        f"--strategy={strategy}", "-o", path)
    return path


def same_tensors(model, reference, dtype):
    mine, theirs = model.state_dict(), reference.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(mine[name].to(dtype), theirs[name].to(dtype)) for name in mine)


def there_and_back(work, folder, reference, strategy, dtype):
    name = f"{folder.name}-{strategy.replace(':', '')}-{dtype}"
    run("mics-shard", "split", folder, "-p", plan(work, folder, strategy), "-o", work / f"s-{name}")
    run("mics-shard", "merge", work / f"s-{name}", f"--dtype={dtype}", "--max-file=20K", "-o", work / f"m-{name}")
    model, whole = load(work / f"m-{name}")
    check(f"{name}: transformers finds every name", whole)
    want = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    check(f"{name}: the type is the one asked for", model.dtype == want)
    check(f"{name}: every tensor is the original, rounded", same_tensors(model, reference, want))
    if dtype == "f32":
        check(f"{name}: the logits are the same bits", torch.equal(logits(model), logits(reference)))


def types_in(work, family):
    for dtype in ("float16", "bfloat16"):
        folder = work / f"{family}-{dtype}"
        small = make_model(5, FAMILIES[family]).to(getattr(torch, dtype))
        small.save_pretrained(folder, max_shard_size="30KB")
        run("mics-shard", "split", folder, "-p", plan(work, folder, "zero3"), "-o", work / f"s-{folder.name}")
        run("mics-shard", "merge", work / f"s-{folder.name}", "-o", work / f"m-{folder.name}")
        model, whole = load(work / f"m-{folder.name}")
        check(f"{family} in {dtype}, in several files of transformers, is taken exactly",
              whole and same_tensors(model, small, torch.float32))


def own_config(work, name, make):
    """A checkpoint of a model by name has no config.json of the hub: ours must do."""
    run("mics-plan", "--topology=node:1 gpu:1", f"--model={name}", "--seq=8", "-o", work / "nano.mp")
    nano = make_model(9, make)
    nano.save_pretrained(work / name)
    (work / name / "config.json").unlink()
    run("mics-shard", "split", work / name / "model.safetensors", "-p", work / "nano.mp", "-o", work / f"s-{name}")
    run("mics-shard", "merge", work / f"s-{name}", "-o", work / f"m-{name}")
    model, whole = load(work / f"m-{name}")
    check(f"{name}: a config.json of ours loads, with the same logits",
          whole and torch.equal(logits(model), logits(nano)))


def own_configs(work):
    own_config(work, "gpt2-nano", lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=128, n_head=4, n_layer=4, n_positions=256, vocab_size=257, **ENDS)))
    small = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
             "intermediate_size": 352, "max_position_embeddings": 256, "vocab_size": 257, **ENDS}
    own_config(work, "llama-nano", lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**small, rms_norm_eps=1e-5)))
    own_config(work, "mistral-nano", lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**small, rms_norm_eps=1e-5, sliding_window=None)))
    own_config(work, "qwen2-nano", lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**small, tie_word_embeddings=True)))
    own_config(work, "qwen3-nano", lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**small, tie_word_embeddings=True, head_dim=64)))


def main():
    if "--write" in sys.argv:
        small = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 8, "vocab_size": 23}
        make_model(3, lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, **ENDS))).save_pretrained(
            HERE / "gpt2-transformers")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for family, make in FAMILIES.items():
            reference = make_model(1, make)
            reference.save_pretrained(work / family)
            for strategy in ("ddp", "mics:2", "zero3"):
                for dtype in ("f32", "f16", "bf16"):
                    there_and_back(work, work / family, reference, strategy, dtype)
            types_in(work, family)
        own_configs(work)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
