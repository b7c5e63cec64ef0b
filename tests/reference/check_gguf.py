#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the GGUF files of mics-shard with llama.cpp and transformers; not part of `make check`.

usage: check_gguf.py [MODEL ...]      (the programs of mics are found in PATH)

Needs numpy, torch, transformers, gguf and xllamacpp from PyPI; docs/other-trainers.md has versions and
results. For a small model of each family the probabilities that llama.cpp gives the most likely next tokens are
compared with those of transformers on the folder that mics-shard merge writes, and all numbers with gguf's reader, in
F32, F16, BF16 and Q8_0.
"""
import math
import os
import socket
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
import xllamacpp

SIZES = {"vocab_size": 270, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "initializer_range": 0.15, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 256}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MODELS = {
    "gpt2": ("GPT2Config", {"vocab_size": 270, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
                            "initializer_range": 0.15, "bos_token_id": 256, "eos_token_id": 256}),
    "llama": ("LlamaConfig", {}),
    "llama-tied-biases": ("LlamaConfig", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "llama-3.1": ("LlamaConfig", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}}),
    "llama-linear": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}}),
    "llama-yarn": ("LlamaConfig", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 32}}),
    "mistral": ("MistralConfig", {"head_dim": 32, "sliding_window": 32}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "head_dim": 16}),
    "olmoe": ("OlmoeConfig", {**EXPERTS, "num_key_value_heads": 4, "norm_topk_prob": False}),
    "qwen3-moe": ("Qwen3MoeConfig", {**EXPERTS, "head_dim": 16, "norm_topk_prob": True}),
}
# A rounded router may choose other experts; GPT-2's activation function is a table of fp16 in llama.cpp.
TOLERANCES = {"f32": 1e-3, "f16": 1e-2, "bf16": 2e-1, "q8_0": 2e-1}


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, **options).stdout


def make(name, folder):
    """A model of transformers with random parameters, also in vectors."""
    kind, settings = MODELS[name]
    config = getattr(transformers, kind)(**(settings if name == "gpt2" else {**SIZES, **settings}))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)


def split(model, folder):
    topology = run("mics-probe", "--topology=node:1 gpu:2")
    plan = run("mics-plan", f"--model={model}", "--strategy=mics:2", "--global-batch=4", "--seq=8", input=topology)
    run("mics-shard", "split", model, "-o", folder, input=plan)


def probabilities_of_transformers(folder, ids, count):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1].double()
    top = torch.log_softmax(logits, -1).sort(descending=True)
    return {int(i): float(v) for i, v in zip(top.indices[:count], top.values[:count])}


def server_of(path, context):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 2
    params.warmup = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.verbosity = -1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        params.port = free.getsockname()[1]
    return xllamacpp.Server(params)


def probabilities_of_llama(path, ids, count, context):
    server = server_of(path, context)
    answer = server.handle_completions({"prompt": ids, "n_predict": 1, "n_probs": count, "logprobs": count, "temperature": 0.0,
                                        "cache_prompt": False})
    if not answer["choices"][0].get("logprobs"):
        raise RuntimeError(f"llama.cpp has no probabilities: {answer}")
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {t["id"]: t["logprob"] for t in top}


def check_numbers(path, folder, dtype):
    """Dequantized tensors have the sums of those in the folder, whatever their order."""
    from safetensors.numpy import load_file
    want = load_file(os.path.join(folder, "model.safetensors"))
    reader = gguf.GGUFReader(path)
    have = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors
            if t.name != "rope_freqs.weight"}
    a = np.sort(np.concatenate([t.ravel() for t in want.values()]))
    b = np.sort(np.concatenate([t.ravel() for t in have.values()]))
    assert a.shape == b.shape, (a.shape, b.shape)
    worst = float(np.abs(a - b).max())
    assert worst <= {"f32": 0, "f16": 1e-3, "bf16": 1e-2, "q8_0": 2e-2}[dtype], worst


def check(name, work):
    model = os.path.join(work, name + "-made")
    sharded, merged = os.path.join(work, name), os.path.join(work, name + "-hf")
    make(name, model)
    split(model, sharded)
    run("mics-shard", "merge", sharded, "-o", merged)
    count = 20
    for first in range(100):  # of the end, or a part of a character, llama.cpp says nothing
        ids = [(7 * i * i + 3 * i + first) % 256 for i in range(24)]
        want = probabilities_of_transformers(merged, ids, count)
        if max(list(want)[:3]) < 128:
            break
    right = True
    for dtype, tolerance in TOLERANCES.items():
        path = os.path.join(work, f"{name}-{dtype}.gguf")
        run("mics-shard", "merge", sharded, "--to=gguf", f"--dtype={dtype}", "--base=bytes", "-o", path)
        check_numbers(path, merged, dtype)
        have = probabilities_of_llama(path, ids, count, 32)
        worst = max(abs(have[i] - want[i]) if i in have else math.inf for i in list(want)[:count // 2])
        print(f"{name:22} {dtype:5} largest difference of a log probability {worst:.1e}",
              "ok" if worst <= tolerance else "WRONG", flush=True)
        right = right and worst <= tolerance
    return right


def main():
    torch.set_num_threads(2)
    print("gguf", gguf.__version__ if hasattr(gguf, "__version__") else "", "transformers", transformers.__version__)
    print(xllamacpp.BUILD_INFO)
    with tempfile.TemporaryDirectory() as work:
        results = [check(name, work) for name in sys.argv[1:] or MODELS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
