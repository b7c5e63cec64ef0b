#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""targets_memory.py - is the memory that mics-plan --for counts what PyTorch allocates?

usage: bench/targets_memory.py BUILD [CASE...]    (in an environment with torch and transformers)

Trains small Llamas of transformers with FSDP2 on hosts (Gloo), sharded by the calls that mics-plan
--for=fsdp2 prints, and compares the most bytes that PyTorch's allocator has had at once on rank 0 with the regions of the plan. Process,
libraries and communicators are not compared. Exits with 1 if a plan is more than 1 % too low, or 15 % too high.
"""
import json
import os
import subprocess
import sys
import tempfile

SEQ, RANKS = 512, 4
# vocabulary, width, inner width, layers, heads, of keys and values, tied; micro-batch, micro-steps, recompute, shard size
CASES = (
    ((2048, 256, 1024, 8, 8, 4, False), (2, 1, "none", 4)),
    ((2048, 256, 1024, 8, 8, 4, False), (2, 1, "full", 4)),
    ((2048, 256, 1024, 8, 8, 4, False), (2, 4, "none", 2)),
    ((2048, 256, 1024, 8, 8, 4, True), (4, 2, "full", 2)),
    ((16384, 256, 1024, 4, 8, 8, False), (1, 1, "none", 4)),
    ((16384, 512, 2048, 4, 8, 8, True), (1, 2, "full", 2)),
    ((16384, 1024, 4096, 4, 8, 8, False), (1, 1, "full", 4)),
    ((16384, 1024, 4096, 4, 8, 8, True), (1, 1, "none", 2)),
)


def train(case, calls, result):
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile
    from transformers import LlamaConfig, LlamaForCausalLM

    (vocabulary, width, inner, layers, heads, kv_heads, tied), (micro_batch, micro_steps, recompute, _) = case
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    planned = {}
    with open(calls) as file:
        exec(file.read().replace('"cuda"', '"cpu"'), planned)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=SEQ,
                         tie_word_embeddings=tied, use_cache=False)
    model = LlamaForCausalLM(config)
    if recompute == "full":
        model.gradient_checkpointing_enable()
    layers, embedding, head = model.model.layers, model.model.embed_tokens, [model.model.norm, model.lm_head]
    planned["shard"](model, layers, None if tied else embedding, [embedding, *head] if tied else head)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.randint(vocabulary, (micro_batch, SEQ))

    def step():
        for micro_step in range(micro_steps):
            planned["before_micro_step"](model, micro_step)
            outputs = model(input_ids=tokens, labels=tokens)
            (outputs.loss / micro_steps).backward()
        del outputs
        optimizer.step()
        optimizer.zero_grad()

    step()
    base = sum(t.to_local().untyped_storage().nbytes() for t in model.parameters())
    base += sum(t.to_local().untyped_storage().nbytes() if hasattr(t, "to_local") else t.untyped_storage().nbytes()
                for state in optimizer.state.values() for t in state.values())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    if dist.get_rank() == 0:
        with open(result, "w") as file:
            json.dump({"base": base, "peak": base + most}, file)
    dist.destroy_process_group()


def plan(build, case, folder):
    (vocabulary, width, inner, layers, heads, kv_heads, tied), (micro_batch, micro_steps, recompute, shard) = case
    os.makedirs(f"{folder}/model", exist_ok=True)
    with open(f"{folder}/model/config.json", "w") as file:
        json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary,
                   "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
                   "num_attention_heads": heads, "num_key_value_heads": kv_heads, "max_position_embeddings": SEQ,
                   "tie_word_embeddings": tied, "hidden_act": "silu", "rms_norm_eps": 1e-6}, file)
    text = subprocess.run([f"{build}/mics-plan", "-q", f"--topology=node:{RANKS // shard} gpu:{shard}",
                    f"--model={folder}/model", f"--global-batch={micro_batch * micro_steps * RANKS}", f"--seq={SEQ}",
                    "--for=fsdp2", f"--strategy={'zero3' if shard == RANKS else f'mics:{shard}'}",
                    f"--micro-batch={micro_batch}", f"--recompute={recompute}", "--dtype=bf16", "--memory=64G", "-o",
                    f"{folder}/plan.mp"], check=True, capture_output=True, text=True).stdout
    with open(f"{folder}/calls.py", "w") as file:
        file.write(text)
    shown = subprocess.run([f"{build}/mics-show", "--json", f"{folder}/plan.mp"], check=True, capture_output=True)
    return json.loads(shown.stdout)["memory"]


def main(build, chosen):
    failed = False
    for index in chosen or range(len(CASES)):
        case = CASES[index]
        with tempfile.TemporaryDirectory() as folder:
            memory = plan(build, case, folder)
            environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + index),
                           "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
            result = f"{folder}/result"
            ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(index), f"{folder}/calls.py", result],
                                      env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                     for rank in range(RANKS)]
            if any(rank.wait() for rank in ranks):
                sys.exit(f"case {index} failed")
            with open(result) as file:
                measured = json.load(file)
        planned = memory["arena_bytes"]
        difference = planned / measured["peak"] - 1
        failed = failed or not -0.01 <= difference <= 0.15
        print(f"{case}: planned {planned / 2**20:.1f} MiB, allocated {measured['peak'] / 2**20:.1f} MiB "
              f"({100 * difference:+.1f} %); peak: {memory['regions'][6]['name']}", flush=True)
        if os.environ.get("VERBOSE"):
            print("   ", {region["name"]: round(region["bytes"] / 2**20, 1) for region in memory["regions"]},
                  "base", round(measured["base"] / 2**20, 1))
    sys.exit(failed)


if sys.argv[1] == "--rank":
    train(CASES[int(sys.argv[2])], sys.argv[3], sys.argv[4])
else:
    main(os.path.abspath(sys.argv[1]), [int(word) for word in sys.argv[2:]])
