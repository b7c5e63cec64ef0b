# SPDX-License-Identifier: Apache-2.0
# make_foreign.py - a tiny Llama after two steps of AdamW, as PyTorch and transformers save it.
#
# usage: python -m torch.distributed.run --nproc_per_node=2 make_foreign.py OUT
#
# torch 2.15.0 and transformers 5.24.0 made the files in tests/cli/foreign:
#   hf/              save_pretrained: config.json, model.safetensors (what all others must hold)
#   weights.pt       torch.save of a state dict with the names of DDP and torch.compile
#   trainer.pt       torch.save of {"model": ..., "step": ...}, in bf16
#   dcp/             FSDP2 over two ranks, {"model", "optim"}
#   dcp-safetensors/ HuggingFaceStorageWriter over two ranks; o_proj is cut by columns
#   states.safetensors  the states of AdamW, whole: exp_avg.NAME, exp_avg_sq.NAME
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from transformers import LlamaConfig, LlamaForCausalLM

out = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16,
                     tie_word_embeddings=False)
model = LlamaForCausalLM(config).float()
mesh = init_device_mesh("cpu", (2,))
fully_shard(model.model.layers[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(rank)
for _ in range(2):
    ids = torch.randint(0, 16, (2, 8), generator=generator)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
weights, states = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optim": states}, checkpoint_id=out + "/dcp")
whole = {name: value.full_tensor() for name, value in weights.items()}
moments = {f"{moment}.{name}": values[moment].full_tensor()
           for name, values in states["state"].items() for moment in ("exp_avg", "exp_avg_sq")}
cut = {name: distribute_tensor(value, mesh, [Shard(1 if name.endswith("o_proj.weight") else 0)])
       for name, value in whole.items()}
dcp.save(cut, storage_writer=HuggingFaceStorageWriter(path=out + "/dcp-safetensors",
                                                      save_distributed=True))
if rank == 0:
    LlamaForCausalLM(config).float().save_pretrained(out + "/hf", state_dict=dict(whole))
    save_file(moments, out + "/states.safetensors")
    torch.save({"module._orig_mod." + name: value for name, value in whole.items()},
               out + "/weights.pt")
    torch.save({"model": {name: torch.nn.Parameter(value.bfloat16())
                          for name, value in whole.items()},
                "args": {"lr": 1e-2}, "step": 2}, out + "/trainer.pt")
dist.barrier()
dist.destroy_process_group()
