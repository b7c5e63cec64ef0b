#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""targets_traffic.py - do the trainers of mics-plan --for send what the plan says?

usage: bench/targets_traffic.py BUILD [CASE...]    (in an environment with torch, transformers, accelerate and
                                                    deepspeed; needs what mics-lab needs)

Plans small Llamas for two nodes of two ranks, trains each for some steps in an emulated cluster (mics-lab, Gloo on
hosts) with what mics-plan --for=fsdp2, transformers, accelerate or deepspeed prints, and compares what a node sends in
a step with the plan's network bytes per node, and what a rank sends with the plan's bytes of a rank:

calls   the collectives that the trainer calls, their bytes counted as rings in node order send them
card    what the kernel counts at the node's network card, with headers, from the end of the first step to the last

Gloo reduces and scatters by an all-reduce, which sends twice the bytes of a ring. Cases of groups that are larger than
a node therefore have a ring of sends and receives in its place ("ring"). Exits with 1 if the calls of a node or rank,
or the card, are more than 2 % off the plan; a card with Gloo's own reduce-scatter is printed only.

accelerate shards on GPUs only: it is told that it has some, and the ranks of a node are started by `accelerate launch`.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

NODES, SLOTS, SEQ, STEPS, LIMIT = 2, 2, 64, 3, 0.02
RANKS = NODES * SLOTS
# vocabulary, width, inner width, layers, heads, of keys and values, tied
FOUR = (2048, 256, 768, 4, 8, 4, False)
TIED = (4096, 256, 768, 4, 8, 4, True)
DEEP = (2048, 128, 384, 32, 8, 4, False)
# whose matrices DeepSpeed's stage 3 releases: they have more than 1e5 elements
WIDE = (2048, 512, 1024, 2, 8, 4, False)
WIDE_TIED = (2048, 512, 1024, 2, 8, 4, True)
# trainer, model, dtype, micro-steps, recompute, strategy, reduce-scatter
CASES = (
    ("fsdp2", FOUR, "bf16", 1, "none", "zero3", "gloo"),
    ("fsdp2", FOUR, "bf16", 1, "none", "zero3", "ring"),
    ("fsdp2", FOUR, "bf16", 2, "none", "zero3", "ring"),
    ("fsdp2", FOUR, "bf16", 1, "none", "mics:2", "gloo"),
    ("fsdp2", FOUR, "bf16", 2, "none", "mics:2", "gloo"),
    ("fsdp2", FOUR, "f32", 1, "none", "zero3", "ring"),
    ("fsdp2", TIED, "bf16", 2, "full", "zero3", "ring"),
    ("fsdp2", TIED, "bf16", 2, "full", "mics:2", "gloo"),
    ("fsdp2", DEEP, "bf16", 2, "none", "zero3", "ring"),
    ("fsdp2", DEEP, "bf16", 2, "none", "mics:2", "gloo"),
    ("transformers", FOUR, "bf16", 1, "none", "zero3", "ring"),
    ("transformers", FOUR, "bf16", 2, "none", "zero3", "ring"),
    ("transformers", FOUR, "bf16", 1, "none", "mics:2", "gloo"),
    ("transformers", FOUR, "bf16", 2, "none", "mics:2", "gloo"),
    ("transformers", TIED, "bf16", 2, "full", "mics:2", "gloo"),
    ("transformers", DEEP, "bf16", 1, "none", "zero3", "ring"),
    ("transformers", TIED, "bf16", 2, "full", "zero3", "ring"),
    ("accelerate", FOUR, "bf16", 2, "none", "mics:2", "gloo"),
    ("accelerate", FOUR, "bf16", 2, "none", "zero3", "ring"),
    ("accelerate", TIED, "bf16", 2, "none", "mics:2", "gloo"),
    ("deepspeed", WIDE, "bf16", 1, "none", "zero1", "ring"),
    ("deepspeed", WIDE, "bf16", 2, "none", "zero1", "ring"),
    ("deepspeed", WIDE, "bf16", 1, "none", "zero2", "ring"),
    ("deepspeed", WIDE, "bf16", 2, "none", "zero2", "ring"),
    ("deepspeed", WIDE, "bf16", 1, "none", "zero3", "ring"),
    ("deepspeed", WIDE, "bf16", 2, "none", "zero3", "ring"),
    ("deepspeed", WIDE, "f32", 2, "none", "zero3", "ring"),
    ("deepspeed", WIDE_TIED, "bf16", 2, "full", "zero3", "ring"),
    # last: DeepSpeed keeps the groups of a second partition for all models of a process
    ("deepspeed", WIDE, "bf16", 1, "none", "hpz:2", "ring"),
    ("deepspeed", WIDE, "bf16", 2, "none", "hpz:2", "ring"),
)


class Counter:
    """Counts, at the end of each step, what was called and what the card of this node has sent."""

    def __init__(self):
        import torch.distributed as dist

        self.start(False)
        reduce = dist.all_reduce
        gather, scatter = dist.all_gather_single, dist.reduce_scatter_single

        def all_gather_single(output, input, group=None, async_op=False, **more):
            self.count("all-gather", output, group, 1)
            return gather(output, input, group=group, async_op=async_op, **more)

        def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
            return all_gather_single(output_tensor, input_tensor, group, async_op)

        def reduce_scatter_single(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False, **more):
            self.count("reduce-scatter", input, group, 1)
            if self.ring:
                return ring_reduce_scatter(output, input, op, group)
            return scatter(output, input, op=op, group=group, async_op=async_op, **more)

        def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
            self.count("all-reduce", tensor, group, 2)
            return reduce(tensor, op=op, group=group, async_op=async_op)

        dist.all_gather_single, dist.reduce_scatter_single = all_gather_single, reduce_scatter_single
        # the older names, which DeepSpeed calls
        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = all_gather_into_tensor, reduce_scatter_single
        dist.all_reduce = all_reduce

    def start(self, ring):
        self.ring, self.calls, self.marks = ring, {}, []

    def count(self, name, whole, group, passes):
        """A ring passes (N - 1) / N of the whole from each rank to the next one, and leaves each node once."""
        import torch.distributed as dist

        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        sent = passes * whole.numel() * whole.element_size() * (len(ranks) - 1) // len(ranks)
        node = dist.get_rank() // SLOTS
        here = sum(rank // SLOTS == node for rank in ranks)
        total = self.calls.setdefault(name, [0, 0, 0])
        total[0] += 1
        total[1] += sent
        total[2] += sent / here if here < len(ranks) else 0

    def end_step(self):
        import torch.distributed as dist

        dist.barrier()
        with open("/proc/net/dev") as file:
            card = next(line for line in file if line.split(":")[0].strip() == os.environ["GLOO_SOCKET_IFNAME"])
        dist.barrier()
        calls = {name: list(total) for name, total in self.calls.items()}
        self.marks.append((int(card.split(":")[1].split()[8]), calls))

    def per_step(self):
        (first_card, first), (last_card, last) = self.marks[0], self.marks[-1]
        steps = len(self.marks) - 1
        calls = {name: [(new - old) / steps for new, old in zip(total, first.get(name, (0, 0, 0)))]
                 for name, total in last.items()}
        return {"card": (last_card - first_card) / steps, "calls": calls}


def ring_reduce_scatter(output, whole, op, group):
    """What NCCL's ring sends: each block goes round the group, from the rank after its owner to its owner."""
    import torch
    import torch.distributed as dist

    assert op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    ranks = dist.get_process_group_ranks(group)
    size, rank = len(ranks), dist.get_rank(group)
    blocks = list(whole.clone().chunk(size))
    received = torch.empty_like(blocks[0])
    for step in range(size - 1):
        request = dist.isend(blocks[(rank - step - 1) % size], ranks[(rank + 1) % size], group=group)
        dist.recv(received, ranks[(rank - 1) % size], group=group)
        request.wait()
        blocks[(rank - step - 2) % size] += received
    output.copy_((blocks[rank] / size if op == dist.ReduceOp.AVG else blocks[rank]).view_as(output))


def train_fsdp2(case, calls, counter):
    import torch
    from transformers import AutoModelForCausalLM

    _, (vocabulary, *_, tied), _, micro_steps, recompute, *_ = case
    planned = {}
    exec(calls.replace('"cuda"', '"cpu"'), planned)
    assert planned["MICRO_STEPS"] == micro_steps
    model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
    if recompute == "full":
        model.gradient_checkpointing_enable()
    embedding, head = model.model.embed_tokens, [model.model.norm, model.lm_head]
    planned["shard"](model, model.model.layers, None if tied else embedding, [embedding, *head] if tied else head)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(vocabulary, (planned["MICRO_BATCH"], planned["SEQ"]))
    for _ in range(STEPS):
        for micro_step in range(micro_steps):
            planned["before_micro_step"](model, micro_step)
            (model(input_ids=tokens, labels=tokens, use_cache=False).loss / micro_steps).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        counter.end_step()


def train_transformers(case, calls, counter):
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback

    class AtEnd(TrainerCallback):
        def on_step_end(self, *_, **__):
            counter.end_step()

    planned = {}
    exec(calls.replace("TrainingArguments(", "TrainingArguments(use_cpu=True, "), planned)
    model = AutoModelForCausalLM.from_pretrained("model", distributed_config=planned["distributed_config"])
    arguments = planned["training_arguments"]
    arguments.max_steps, arguments.save_strategy, arguments.report_to = STEPS, "no", []
    arguments.disable_tqdm = True
    tokens = torch.randint(case[1][0], (RANKS * case[3] * STEPS, SEQ))
    Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
            callbacks=[AtEnd()]).train()


def train_accelerate(case, _, counter):
    import torch
    from accelerate import Accelerator
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType
    from transformers import AutoModelForCausalLM

    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda state: setattr(state, "device", torch.device("cpu"))
    accelerator = Accelerator()
    assert accelerator.is_fsdp2 and accelerator.gradient_accumulation_steps == case[3]
    model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    tokens = torch.randint(case[1][0], (1, SEQ))
    for _ in range(STEPS):
        for _ in range(case[3]):
            with accelerator.accumulate(model):
                accelerator.backward(model(input_ids=tokens, labels=tokens, use_cache=False).loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        counter.end_step()


def train_deepspeed(case, calls, counter):
    import deepspeed
    import torch
    from transformers import AutoModelForCausalLM

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # of inference only; compiled at the first use
    config = json.loads(calls)
    assert config["gradient_accumulation_steps"] == case[3]
    with open("ds_config.json", "w") as file:
        json.dump(config | {"zero_allow_untested_optimizer": True}, file)
    model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
    if case[4] == "full":
        model.gradient_checkpointing_enable()
    engine, *_ = deepspeed.initialize(model=model, config="ds_config.json",
                                      optimizer=torch.optim.AdamW(model.parameters()))
    tokens = torch.randint(case[1][0], (config["train_micro_batch_size_per_gpu"], SEQ))
    for step in range(STEPS + 1):
        for _ in range(case[3]):
            engine.backward(engine(input_ids=tokens, labels=tokens, use_cache=False).loss)
            engine.step()
        if step > 0:  # stage 3 knows what is used again from the third pass on
            counter.end_step()


def launch(index):
    """On each node: accelerate launch, with the variables that its first line sets."""
    with open(f"{index}/calls.py") as file:
        words = file.readline().split()
    steps = next(word for word in words if word.startswith("ACCELERATE_GRADIENT_ACCUMULATION_STEPS="))
    os.environ.update([steps.split("=")], CUDA_VISIBLE_DEVICES="")
    os.execv(sys.executable, [
        sys.executable, "-m", "accelerate.commands.launch", "--config_file", f"{index}/calls.py", "--machine_rank",
        os.environ["RANK"], "--main_process_ip", os.environ["MASTER_ADDR"], os.path.abspath(__file__), "--rank",
        str(index)])


def train(indices):
    """On each rank: the cases of one trainer, in folders of their numbers."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["DS_ACCELERATOR"] = "cpu"
    if CASES[indices[0]][0] in ("fsdp2", "deepspeed"):  # transformers does it itself
        dist.init_process_group("gloo")
    counter, root = Counter(), os.getcwd()
    for index in indices:
        os.chdir(f"{root}/{index}")
        with open("calls.py") as file:
            calls = file.read()
        counter.start(CASES[index][-1] == "ring")
        globals()[f"train_{CASES[index][0]}"](CASES[index], calls, counter)
        found = [None] * RANKS
        dist.all_gather_object(found, counter.per_step())
        if dist.get_rank() == 0:
            with open("result", "w") as file:
                json.dump(found, file)
    dist.barrier()
    time.sleep(1)  # until all ranks have left the barrier
    os._exit(0)    # threads of Gloo's groups can abort a process that ends otherwise


def save_model(shape, folder):
    """The model of a case, as the trainer loads it and mics-plan reads it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary, width, inner, layers, heads, kv_heads, tied = shape
    LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=SEQ,
        tie_word_embeddings=tied)).save_pretrained(f"{folder}/model")


def plan(build, case, folder):
    trainer, _, dtype, micro_steps, recompute, strategy, _ = case
    text = subprocess.run(
        [f"{build}/mics-plan", "-q", f"--topology=node:{NODES} gpu:{SLOTS}", f"--model={folder}/model",
         f"--global-batch={micro_steps * RANKS}", f"--seq={SEQ}", f"--for={trainer}", "--micro-batch=1",
         f"--strategy={strategy}", f"--recompute={recompute}",
         f"--dtype={dtype}", "--memory=64G", "-o", f"{folder}/plan.mp"],
        check=True, capture_output=True, text=True).stdout
    with open(f"{folder}/calls.py", "w") as file:
        file.write(text)
    shown = subprocess.run([f"{build}/mics-show", "--json", f"{folder}/plan.mp"], check=True, capture_output=True)
    return json.loads(shown.stdout)["predicted"]


def read(path):
    """What a node sends in a step, from the ranks' counts."""
    with open(path) as file:
        ranks = json.load(file)
    nodes = [ranks[node * SLOTS:(node + 1) * SLOTS] for node in range(NODES)]
    return {"card": [node[0]["card"] for node in nodes],
            "calls": [sum(kind[2] for rank in node for kind in rank["calls"].values()) for node in nodes],
            "sent": sum(kind[1] for kind in ranks[0]["calls"].values()), "kinds": ranks[0]["calls"]}


def report(case, planned, found):
    """Print a row; true if calls and card are within the limit."""
    trainer, model, dtype, micro_steps, recompute, strategy, algorithm = case

    def compare(values, wanted):
        worst = max(values, key=lambda value: abs(value - wanted))
        return f"{worst / 1e6:8.3f} {worst / wanted:6.4f}", abs(worst / wanted - 1) <= LIMIT

    calls, calls_right = compare(found["calls"], planned["net_bytes"])
    card, card_right = compare(found["card"], planned["net_bytes"])
    sent, sent_right = compare([found["sent"]], planned["sent_bytes"])
    kinds = ", ".join(f"{times:g} {name} {sent / 1e6:.3f}" for name, (times, sent, _) in found["kinds"].items() if sent)
    tied = "tied" if model[-1] else "untied"
    print(f"{trainer:12} {model[3]:2} x {model[1]} {tied:6} {dtype:4} s={micro_steps} recompute={recompute} {strategy:6}"
          f" {algorithm:4} | plan {planned['net_bytes'] / 1e6:8.3f} | calls {calls} | card {card} | "
          f"rank {planned['sent_bytes'] / 1e6:8.3f} {sent} | {kinds}", flush=True)
    gloo_scatters = algorithm == "gloo" and strategy == "zero3"
    return calls_right and sent_right and (card_right or gloo_scatters)


def main(build, chosen):
    failed = False
    print("MB (10^6 bytes) per step: of a node to the other one; rank: what a rank sends to ranks on any node")
    for trainer in ("fsdp2", "transformers", "accelerate", "deepspeed"):
        indices = [index for index in chosen or range(len(CASES)) if CASES[index][0] == trainer]
        if not indices:
            continue
        # accelerate starts the ranks of a node itself, for one case
        runs = [("--launch", 1, [index]) for index in indices] if trainer == "accelerate" else \
            [("--rank", SLOTS, indices)]
        with tempfile.TemporaryDirectory() as folder:
            planned = {}
            for index in indices:
                os.mkdir(f"{folder}/{index}")
                save_model(CASES[index][1], f"{folder}/{index}")
                planned[index] = plan(build, CASES[index], f"{folder}/{index}")
            for how, slots, some in runs:
                subprocess.run([f"{build}/mics-lab", "run", "-q", f"--nodes={NODES}", f"--slots={slots}",
                                "--net=2gbit", "--env=torch", "--", sys.executable, os.path.abspath(__file__), how,
                                *map(str, some)], check=True, cwd=folder, stdout=subprocess.DEVNULL)
            for index in indices:
                right = report(CASES[index], planned[index], read(f"{folder}/{index}/result"))
                failed = failed or not right
    sys.exit(failed)


if sys.argv[1] == "--rank":
    train([int(word) for word in sys.argv[2:]])
elif sys.argv[1] == "--launch":
    launch(int(sys.argv[2]))
else:
    main(os.path.abspath(sys.argv[1]), [int(word) for word in sys.argv[2:]])
