#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do models go through mics-shard and the real transformers library, both ways, unchanged?

usage: check_transformers.py [--write]      (mics-plan and mics-shard on PATH)

What transformers writes is split and merged, for several plans and types; transformers must load the
result without a missing or unexpected name and compute the same logits, bit for bit where the type
is the same. A folder whose config.json is ours must load, too. With --write the small model that the
tests without Python use is written anew, to gpt2-transformers/ beside this file.

Needs PyTorch, transformers 4 or 5, and safetensors. Prints TAP.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 24, "vocab_size": 61}
count = 0
failed = 0


def check(name, good):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, **more)


def make_model(seed, sizes):
    torch.manual_seed(seed)
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():  # no zeros and ones: places could be exchanged unseen
            parameter.copy_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def logits(model, vocab_size):
    tokens = torch.arange(20).remainder(vocab_size).reshape(2, 10)
    with torch.no_grad():
        return model(tokens).logits


def load(folder):
    model, report = transformers.GPT2LMHeadModel.from_pretrained(
        folder, output_loading_info=True, torch_dtype="auto")
    whole = not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model.eval(), whole


def plan(work, model, strategy):
    path = work / f"{strategy}.mp"
    run("mics-plan", "--topology=node:2 gpu:2", f"--model={model}", "--global-batch=4", "--seq=8",
        f"--strategy={strategy}", "-o", path)
    return path


def there_and_back(work, folder, reference, strategy, dtype):
    name = f"{strategy.replace(':', '')}-{dtype}"
    run("mics-shard", "split", folder, "-p", plan(work, folder, strategy), "-o", work / f"s-{name}")
    run("mics-shard", "merge", work / f"s-{name}", f"--dtype={dtype}", "--max-file=20K", "-o", work / f"m-{name}")
    model, whole = load(work / f"m-{name}")
    check(f"{name}: transformers finds every name", whole)
    want = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    check(f"{name}: the type is the one asked for", model.dtype == want)
    same = all(torch.equal(mine, theirs.to(want)) for mine, theirs in
               zip(model.state_dict().values(), reference.state_dict().values()))
    check(f"{name}: every tensor is the original, rounded", same)
    if dtype == "f32":
        check(f"{name}: the logits are the same bits",
              torch.equal(logits(model, SIZES["vocab_size"]), logits(reference, SIZES["vocab_size"])))


def types_in(work, reference):
    for dtype in ("float16", "bfloat16"):
        folder = work / dtype
        small = make_model(5, SIZES).to(getattr(torch, dtype))
        small.save_pretrained(folder, max_shard_size="30KB")
        run("mics-shard", "split", folder, "-p", plan(work, folder, "zero3"), "-o", work / f"s-{dtype}")
        run("mics-shard", "merge", work / f"s-{dtype}", "-o", work / f"m-{dtype}")
        model, whole = load(work / f"m-{dtype}")
        same = all(torch.equal(mine, theirs.float()) for mine, theirs in
                   zip(model.state_dict().values(), small.state_dict().values()))
        check(f"{dtype} from several files of transformers is taken exactly", whole and same)


def own_config(work):
    """A checkpoint of a model by name has no config.json of the hub: ours must do."""
    run("mics-plan", "--topology=node:1 gpu:1", "--model=gpt2-nano", "--seq=8", "-o", work / "nano.mp")
    sizes = {"n_embd": 128, "n_head": 4, "n_layer": 4, "n_positions": 256, "vocab_size": 257}
    nano = make_model(9, sizes)
    nano.save_pretrained(work / "nano")
    (work / "nano" / "config.json").unlink()
    run("mics-shard", "split", work / "nano" / "model.safetensors", "-p", work / "nano.mp", "-o", work / "s-nano")
    run("mics-shard", "merge", work / "s-nano", "-o", work / "m-nano")
    model, whole = load(work / "m-nano")
    check("a config.json of ours loads, with the same logits",
          whole and torch.equal(logits(model, 257), logits(nano, 257)))


def main():
    if "--write" in sys.argv:
        small = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 8, "vocab_size": 23}
        make_model(3, small).save_pretrained(HERE / "gpt2-transformers")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        reference = make_model(1, SIZES)
        reference.save_pretrained(work / "model")
        for strategy in ("ddp", "mics:2", "zero3"):
            for dtype in ("f32", "f16", "bf16"):
                there_and_back(work, work / "model", reference, strategy, dtype)
        types_in(work, reference)
        own_config(work)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
