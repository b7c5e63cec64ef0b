#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do mics-sample and mics-train --eval compute what the real transformers library does?

usage: check_generate.py [--write]      (mics-plan, mics-sample and mics-train on PATH)

For every family: greedy texts of several prompts, one by one and in batches, must be the ids of generate(); and the
loss that --eval prints must be that of transformers on the same tokens. With --write the expectations that the tests
without Python use are rewritten: generate.txt beside this file, of the small models there.

Needs PyTorch, transformers 5, and safetensors. Prints TAP.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ENDS = {"bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"n_embd": 96, "n_head": 4, "n_layer": 4, "n_positions": 160, "vocab_size": 300, **ENDS}
LLAMA = {"hidden_size": 120, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 200,
         "num_hidden_layers": 4, "max_position_embeddings": 160, "vocab_size": 300, "rope_theta": 3000.0, **ENDS}
FAMILIES = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "llama-tied": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**LLAMA, head_dim=24, sliding_window=None)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**LLAMA)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, head_dim=24)),
    "llama-yarn": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **LLAMA, attention_bias=True, mlp_bias=True,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40})),
    "mistral-window": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**LLAMA, head_dim=24, sliding_window=24)),
    "qwen2-window": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    "qwen3-window": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        **LLAMA, head_dim=24, attention_bias=True, use_sliding_window=True, sliding_window=19,
        layer_types=["sliding_attention", "full_attention"] * 2)),
    "mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **LLAMA, num_local_experts=5, num_experts_per_tok=2)),
    "olmoe": lambda: transformers.OlmoeForCausalLM(transformers.OlmoeConfig(
        **{**LLAMA, "num_key_value_heads": 6}, num_experts=7, num_experts_per_tok=3)),
    "qwen2-moe": lambda: transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        **LLAMA, moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=6, num_experts_per_tok=2,
        mlp_only_layers=[1], use_sliding_window=True, sliding_window=19,
        layer_types=["sliding_attention", "full_attention"] * 2)),
    "qwen3-moe": lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **LLAMA, head_dim=24, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=6, norm_topk_prob=True,
        decoder_sparse_step=2)),
}
SMALL = ("gpt2-transformers", "llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "llama-yarn-tiny",
         "mistral-window-tiny", "qwen2-window-tiny", "qwen3-window-tiny", "mixtral-tiny", "olmoe-tiny", "qwen3-moe-tiny",
         "qwen2-moe-tiny")
count = 0
failed = 0


def check(name, good):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **more).stdout


def make_model(seed, make):
    torch.manual_seed(seed)
    model = make()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (1.0 if "norm" in name or "ln_" in name else 0.0))
    return model.eval()


def greedy(model, prompt, most):
    """The ids that generate() appends, without the one that ends the text."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=most, do_sample=False,
                             pad_token_id=0)[0].tolist()[len(prompt):]
    return out[:-1] if out and out[-1] == model.config.eos_token_id else out


def prompts_of(vocab, longest):
    torch.manual_seed(7)
    lengths = [1, 2, 5, longest // 4, longest // 2, longest - 10, 3, 17]
    return [torch.randint(1, vocab, (max(1, length),)).tolist() for length in lengths]


def sample(folder, prompts, most, *options):
    lines = "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
    out = run("mics-sample", folder, "--ids", "--temperature=0", f"--max-tokens={most}", "--json", *options,
              input=lines)
    return [json.loads(line) for line in out.splitlines()]


def check_texts(name, folder, model):
    limit = model.config.max_position_embeddings
    prompts = prompts_of(model.config.vocab_size, limit)
    want = [greedy(model, prompt, min(60, limit - len(prompt))) for prompt in prompts]
    check(f"{name}: generate() makes texts worth comparing", sum(map(len, want)) > 200)
    for batch in (1, 3, 16):
        got = sample(folder, prompts, 60, f"--batch={batch}")
        check(f"{name}: greedy texts, {batch} at a time, are those of generate()",
              [text["ids"][:len(ids)] for text, ids in zip(got, want)] == want)


def check_loss(work, name, folder, model):
    T = 32
    run("mics-plan", "--topology=node:1 gpu:2", f"--model={folder}", "--global-batch=4", f"--seq={T}", "--dtype=f32",
        "-o", work / f"{name}.mp")
    text = (HERE / "check_generate.py").read_bytes()[:5000]
    (work / "text").write_bytes(text)
    out = run("mpirun", "-n", "2", "mics-train", "-p", work / f"{name}.mp", f"--data={work / 'text'}", f"--init={folder}",
              "--eval")
    words = out.split()
    loss, tokens = float(words[1].rstrip(",")), int(words[5])
    ids = torch.tensor(list(text) + [256])
    want = 0
    for begin in range(0, len(ids) - 1, T): # the last one is shorter
        end = min(begin + T, len(ids) - 1)
        with torch.no_grad():
            logits = model(ids[begin:end][None]).logits[0].double()
        want += torch.nn.functional.cross_entropy(logits, ids[begin + 1:end + 1], reduction="sum").item()
    want /= len(ids) - 1
    check(f"{name}: the loss {loss} of {tokens} tokens is transformers' {want:.6f}",
          tokens == len(ids) - 1 and (len(ids) - 1) % T and abs(loss - want) < 2e-6 * want + 1e-6)


def write_small():
    with open(HERE / "generate.txt", "w", encoding="ascii") as out:
        print("# model: prompt: what transformers' generate() appends, greedily (written by check_generate.py)",
              file=out)
        for name in SMALL:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                HERE / name, dtype=torch.float32, experts_implementation="eager").eval()
            limit, vocab = model.config.max_position_embeddings, model.config.vocab_size
            for prompt in ([1 % vocab], [5, 3], [2, 7, 1, 8]):
                ids = greedy(model, prompt, min(24, limit - len(prompt)))
                print(f"{name}: {' '.join(map(str, prompt))}: {' '.join(map(str, ids))}", file=out)


def main():
    if "--write" in sys.argv:
        write_small()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name, make in FAMILIES.items():
            model = make_model(1, make)
            model.save_pretrained(work / name)
            check_texts(name, work / name, model)
            check_loss(work, name, work / name, model)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
