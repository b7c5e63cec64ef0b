# SPDX-License-Identifier: Apache-2.0
"""shard_foreign.py - a model's file as large checkpoints of others, for bench/shard --foreign.

usage: bench/shard_foreign.py MODEL.safetensors DCP DEEPSPEED

DCP gets a distributed checkpoint that torch.distributed.checkpoint itself saves, with the states of AdamW (the
parameters' own numbers). DEEPSPEED gets one of ZeRO 1 of two ranks, with the members of DeepSpeed 0.19.8 that hold
numbers and sizes, by torch.save (tests/reference has small ones of DeepSpeed itself).
"""
import collections
import json
import os
import sys

import torch
import torch.distributed.checkpoint as dcp

source, to_dcp, to_deepspeed = sys.argv[1:]
torch.set_num_threads(1)
size = os.path.getsize(source)
with open(source, "rb") as file:
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
    flat = torch.frombuffer(bytearray(file.read(size - 8 - length)), dtype=torch.float32)
weights = collections.OrderedDict()
for name, entry in header.items():
    if name != "__metadata__":
        begin, end = (offset // 4 for offset in entry["data_offsets"])
        weights[name] = flat[begin:end].view(entry["shape"])
step = torch.tensor(3.0)
states = {name: {"step": step, "exp_avg": value, "exp_avg_sq": value} for name, value in weights.items()}
groups = [{"params": list(weights), "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}]
dcp.save({"model": dict(weights), "optim": {"state": states, "param_groups": groups}}, checkpoint_id=to_dcp,
         no_dist=True)

ranks = 2
folder = os.path.join(to_deepspeed, "global_step3")
os.makedirs(folder)
total = sum(value.numel() for value in weights.values())
part = -(-total // (2 * ranks)) * 2
whole = torch.zeros(part * ranks)
torch.cat([value.reshape(-1) for value in weights.values()], out=whole[:total])
torch.save({"module": collections.OrderedDict((name, value.bfloat16()) for name, value in weights.items()),
            "buffer_names": [], "param_shapes": [collections.OrderedDict((n, v.shape) for n, v in weights.items())],
            "frozen_param_shapes": None, "shared_params": {}, "skipped_steps": 0, "global_steps": 3,
            "dp_world_size": ranks, "mp_world_size": 1, "ds_version": "0.19.8"},
           os.path.join(folder, "mp_rank_00_model_states.pt"))
for rank in range(ranks):
    mine = [whole[rank * part:(rank + 1) * part].clone() for _ in range(3)]
    torch.save({"optimizer_state_dict": {
        "base_optimizer_state": {"state": {0: {"step": step, "exp_avg": mine[1], "exp_avg_sq": mine[2]}},
                                 "param_groups": [{"lr": 1e-3}]},
        "single_partition_of_fp32_groups": [mine[0]], "zero_stage": 1, "partition_count": [ranks],
        "group_paddings": [part * ranks - total if rank == ranks - 1 else 0], "ds_version": "0.19.8"}},
        os.path.join(folder, f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
with open(os.path.join(to_deepspeed, "latest"), "w") as file:
    file.write("global_step3")
