#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load what mics-shard merge --to=dcp writes with PyTorch; not part of `make check`.

usage: check_dcp.py [MODEL ...]      (the programs of mics are found in PATH)

Needs numpy, torch, transformers and safetensors from PyPI; docs/other-trainers.md has versions and results. A small
model of each family is trained for two steps with AdamW. torch.distributed.checkpoint then loads its checkpoint into a
model of transformers and an optimizer of torch, as wholes and, with FSDP2, in shards of two processes, and every number
is compared with those of the checkpoint's own files and of the folder that mics-shard merge writes.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from safetensors.torch import load_file
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

MODELS = ["gpt2", "llama", "mistral", "qwen2", "qwen3"]
STATES = {"m": "exp_avg", "v": "exp_avg_sq"}
HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 2


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, **options).stdout


def train(name, work):
    """A checkpoint of two steps, in one shard; its files for Hugging Face and for PyTorch."""
    model, ids = os.path.join(HERE, name + "-tiny"), os.path.join(work, "ids.bin")
    with open(ids, "wb") as out:
        out.write(b"".join(((7 * i * i + i // 5) % 13).to_bytes(2, "little") for i in range(4000)))
    plan = run("mics-plan", "--topology=node:1 gpu:1", f"--model={model}", "--strategy=ddp", "--dtype=f32",
               "--global-batch=2", "--seq=8")
    start, ckpt = os.path.join(work, name + "-start"), os.path.join(work, name)
    run("mics-shard", "split", model, "-o", start, input=plan)
    run("mics-train", f"--data={ids}", f"--init={start}", f"--steps={STEPS}", f"--out={ckpt}", "--val-every=0",
        "--sample=0", input=plan)
    run("mics-shard", "merge", ckpt, "-o", ckpt + "-hf")
    for dtype in "f32", "bf16":
        run("mics-shard", "merge", ckpt, "--to=dcp", f"--dtype={dtype}", "-o", f"{ckpt}-{dtype}")
    return ckpt


def moments_of(ckpt):
    """exp_avg and exp_avg_sq by the checkpoint's own names, read from its one shard."""
    step = os.path.join(ckpt, f"step-{STEPS:06}")
    manifest = json.loads(run("mics-show", "--json", step))
    shard = load_file(os.path.join(step, "shard-00000.safetensors"))
    found = {}
    for unit in manifest["units"]:
        for tensor in unit["tensors"]:
            begin, count = tensor["offset"], 1
            for size in tensor["shape"]:
                count *= size
            for state, key in STATES.items():
                values = next(v for k, v in shard.items() if k == f"{unit['name']}.{state}").reshape(-1)
                found[tensor["name"], key] = values[begin:begin + count].reshape(tensor["shape"])
    return found


def make(folder):
    """A model of transformers with numbers of its own, and an optimizer."""
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def load(model, optimizer, path, flat):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    weights, states = get_state_dict(model, optimizer, options=options)
    before = {k: v for k, v in states.items() if k != "state" and not k.startswith("state.")}
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=path,
             planner=DefaultLoadPlanner(allow_partial_load=True))
    assert before == {k: v for k, v in states.items() if k in before}, "param_groups changed"
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states, options=options)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def compare(model, optimizer, hf, moments):
    """How many tensors were compared; all numbers must be equal."""
    count = 0
    for name, parameter in model.named_parameters():
        assert torch.equal(whole(parameter.detach()), hf[name]), name
        state = optimizer.state[parameter]
        assert float(state["step"]) == STEPS, (name, state["step"])
        for key in STATES.values():
            want = [v for (n, k), v in moments.items() if k == key and (name == n or name.endswith("." + n))]
            assert len(want) == 1, (name, len(want))
            assert torch.equal(whole(state[key]), want[0]), (name, key)
        count += 3
    assert count == 3 * len(moments) // 2, (count, len(moments))
    return count


def check_here(ckpt):
    hf, moments = load_file(os.path.join(ckpt + "-hf", "model.safetensors")), moments_of(ckpt)
    for flat in False, True:
        model = make(ckpt + "-hf")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.125)
        load(model, optimizer, ckpt + "-f32", flat)
        count = compare(model, optimizer, hf, moments)
        assert optimizer.param_groups[0]["lr"] == 0.125
    # Everything by the paths that are in .metadata; weights in bf16, moments as they are.
    dcp_to_torch_save(ckpt + "-bf16", ckpt + ".pt")
    saved = torch.load(ckpt + ".pt", weights_only=True)
    assert set(saved["model"]) == set(hf), set(saved["model"]) ^ set(hf)
    for name, numbers in hf.items():
        assert torch.equal(saved["model"][name], numbers.bfloat16()), name
        assert saved["optimizer"]["state"][name]["exp_avg"].dtype == torch.float32
    return count


def check_shard(ckpt):
    """One of the processes of torch.distributed.run."""
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    model = make(ckpt + "-hf")
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.125)
    load(model, optimizer, ckpt + "-f32", flat=True)
    compare(model, optimizer, load_file(os.path.join(ckpt + "-hf", "model.safetensors")), moments_of(ckpt))
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    if len(sys.argv) == 3 and sys.argv[1] == "--shard":
        return check_shard(sys.argv[2])
    print("torch", torch.__version__, "transformers", transformers.__version__)
    with tempfile.TemporaryDirectory() as work:
        for name in sys.argv[1:] or MODELS:
            ckpt = train(name, work)
            count = check_here(ckpt)
            run(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", os.path.abspath(__file__), "--shard",
                ckpt)
            print(f"{name:10} {count} tensors: all equal, also in shards of FSDP2", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
