#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""targets.py - does the real software accept what mics-plan --for writes?

usage: bench/targets.py BUILD [MEGATRON]    (in an environment with accelerate, deepspeed, torchtitan, transformers)

Plans one model for each trainer on one and on four nodes, hands the output to that trainer's own reader of
configurations, and compares the values that arrive with the plan's. MEGATRON is a checkout of Megatron-LM; without it
that trainer is skipped. Prints a line for each, with the version; exits with 1 if any was refused.
"""
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

build = os.path.abspath(sys.argv[1])
megatron = sys.argv[2] if len(sys.argv) > 2 else None
failed = False


def plan(target, *options):
    with tempfile.NamedTemporaryFile() as file:
        text = subprocess.run([f"{build}/mics-plan", "-q", f"--for={target}", "-o", file.name, *options], check=True,
                              capture_output=True, text=True).stdout
        shown = subprocess.run([f"{build}/mics-show", "--json", file.name], check=True, capture_output=True, text=True)
    return text, json.loads(shown.stdout)


def words(text):
    """The arguments of the last command in a text."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return shlex.split(lines[-1])


def check_torchtitan(text, expected):
    from torchtitan.config import ConfigManager
    arguments = words(text)
    arguments = arguments[arguments.index("--module"):]
    arguments[1], arguments[3] = "llama3", "llama3_8b"
    config = ConfigManager().parse_args(arguments)
    return {"replicas": config.parallelism.data_parallel_replicate_degree,
            "shards": config.parallelism.data_parallel_shard_degree,
            "micro_batch": config.training.local_batch_size, "batch": config.training.global_batch_size}


def check_transformers(text, expected):
    values = {}
    exec(text, values)
    distributed, arguments = values["distributed_config"], values["training_arguments"]
    return {"replicas": distributed.dp_replicate_size, "shards": distributed.fsdp_size,
            "micro_batch": arguments.per_device_train_batch_size,
            "batch": distributed.dp_size * arguments.per_device_train_batch_size *
            arguments.gradient_accumulation_steps}


def check_accelerate(text, expected):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        arguments = launch_command_parser().parse_args(
            ["--config_file", file.name, "--machine_rank", "0", "--main_process_ip", "localhost", "train.py"])
        arguments, _, _ = _validate_launch_command(arguments)
    environment = prepare_multi_gpu_env(arguments)
    return {"replicas": int(environment["PARALLELISM_CONFIG_DP_REPLICATE_SIZE"]),
            "shards": int(environment["PARALLELISM_CONFIG_DP_SHARD_SIZE"]),
            "micro_batch": int(re.search(r"per_device_train_batch_size=(\d+)", text)[1]),
            "batch": arguments.num_processes * int(re.search(r"ACCUMULATION_STEPS=(\d+)", text)[1]) *
            int(re.search(r"per_device_train_batch_size=(\d+)", text)[1])}


def check_deepspeed(text, expected):
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime import config as runtime
    n = expected["ranks"]
    runtime.dist.get_rank = lambda group=None: 0

    class Mesh:  # as many ranks as planned
        def get_data_parallel_world_size(self):
            return n

        def get_sequence_parallel_world_size(self):
            return 1

        get_data_parallel_rank = get_sequence_parallel_rank = lambda self: 0

    config = DeepSpeedConfig(json.loads(text), mpu=Mesh())
    second = config.zero_config.zero_hpz_partition_size
    shards = second if second > 1 else n if config.zero_optimization_stage == 3 else 1
    return {"ranks": n, "replicas": n // shards, "shards": shards, "micro_batch": config.train_micro_batch_size_per_gpu,
            "batch": config.train_batch_size}


def check_megatron(text, expected):
    sys.path.insert(0, megatron)
    sys.argv = ["pretrain_gpt.py", *words(text)[words(text).index("pretrain_gpt.py") + 1:], "--num-layers", "12",
                "--hidden-size", "768", "--num-attention-heads", "12", "--max-position-embeddings", "4096",
                "--lr", "1e-4", "--train-iters", "10", "--tokenizer-type", "NullTokenizer", "--vocab-size", "50257"]
    import typing
    typing.override = getattr(typing, "override", lambda function: function)  # Python 3.11
    from megatron.training.arguments import parse_args
    arguments = parse_args()
    instances = arguments.num_distributed_optimizer_instances
    n = expected["ranks"]
    return {**expected, "shards": n // instances if arguments.use_distributed_optimizer else 1,
            "micro_batch": arguments.micro_batch_size, "batch": arguments.global_batch_size}


def check(target, module, *options):
    global failed
    text, document = plan(target, *options)
    choice = document["choice"]
    n = document["global_batch"] // (choice["micro_batch"] * choice["micro_steps"])
    shards = choice["p_optim"] if target == "megatron" else choice["p_param"]
    expected = {"ranks": n, "replicas": n // shards, "shards": shards, "micro_batch": choice["micro_batch"],
                "batch": document["global_batch"]}
    try:
        version = importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        version = "checkout"
    try:
        found = globals()[f"check_{target}"](text, expected)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    wrong = {key: (value, found.get(key)) for key, value in expected.items() if found.get(key, value if key == "ranks" else None) != value}
    failed = failed or bool(wrong)
    print(f"{target} {version}, {n} ranks, groups of {shards}: {found.get('error') or wrong or 'accepted'}")


for topology, model, batch in (("p5:1", "llama3.2-1b", "64"), ("p4d:4", "llama3.1-8b", "256"), ("p5:4", "gpt2-xl", "512")):
    seq = ["--seq=1024"] if model.startswith("gpt2") else ["--seq=4096"]
    for target, module in (("torchtitan", "torchtitan"), ("transformers", "transformers"), ("accelerate", "accelerate"),
                           ("megatron", "megatron-core"), ("deepspeed", "deepspeed")):
        if target == "megatron" and (not megatron or "8b" in model):
            continue
        check(target, module, f"--topology={topology}", f"--model={model}", f"--global-batch={batch}", *seq)
        if target == "deepspeed" and topology.endswith(":4"):
            check(target, module, f"--topology={topology}", f"--model={model}", f"--global-batch={batch}",
                  "--strategy=hpz:8", *seq)
sys.exit(failed)
