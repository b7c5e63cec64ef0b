#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-plan --offload: masters and optimizer states in host memory, planned and trained.

load helpers

on=(--model=gpt2-nano --global-batch=8 --seq=32)
llama=(--model=llama2-7b --topology='node:1 gpu:4xRTX4090-24' --seq=2048 --global-batch=16)

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
}

@test "a model of 7B parameters fits four cards of 24 GB with the optimizer's states in host memory" {
    run -4 --separate-stderr mics-plan "${llama[@]}"
    [[ $stderr == *"no plan fits 22.8 GiB per rank"*"it fits with --offload=optimizer, or 2 such nodes" ]]
    run -4 --separate-stderr mics-plan "${llama[@]}" --offload=none
    mics-plan "${llama[@]}" --offload=optimizer -o asked.mp
    mics-plan "${llama[@]}" --offload=auto -o auto.mp
    # fp32 gradients and bf16 parameters of a quarter of the model; 12 bytes each are in host memory.
    mics-show --json asked.mp | jq -e '.choice.offload_piece == 4194304 and .choice.dtype == "bf16" and .choice.p_optim == 4
        and (.memory | .offload_bytes > 12 * 6.7e9 / 4 and .offload_bytes < 12 * 6.8e9 / 4
            and .host_bytes_per_node > 4 * .offload_bytes
            and (.regions[] | select(.name == "gradient shards").bytes) > 4 * 6.7e9 / 4
            and (.regions[] | select(.name == "optimizer pieces").bytes) == 3 * 12 * 4194304)
        and .memory.arena_bytes < 22.8 * 1024 * 1024 * 1024
        and .operations.classes.offload.busy_s > 0 and .predicted.step_s > .on_device_step_s'
    for part in choice memory predicted; do
        [ "$(mics-show --json auto.mp | jq -cS ".$part")" = "$(mics-show --json asked.mp | jq -cS ".$part")" ]
    done
    mics-show asked.mp | tr '\n' ' ' >text
    grep -q 'optimizer  *adamw, gradients clipped, its states in host memory' text
    grep -q 'states are in host memory, 18.8 GiB per rank, which makes a step [0-9.]* % longer than with them on the device, ' text
    grep -q 'there they would need [0-9.]* GiB more than the limit' text
    grep -q 'Copies run at 25.2 GB/s from the host and 25.2 GB/s to it (PCIe 4.0 x16, assumed)' text
}

@test "copies run at what was measured, else at the catalogue's link, else at an assumed one" {
    local how=(--model=gpt2-xl --seq=512 --global-batch=4 --offload=optimizer) gpu='node:1 gpu:1x' copied
    said() # topology
    {
        mics-plan "${how[@]}" "$@" -o said.mp
        mics-show said.mp | tr '\n' ' ' | grep -o 'Copies run at .*)\.'
    }
    [[ $(said --topology="${gpu}GH200-96") == *'297 GB/s from'*'(NVLink-C2C).'* ]]
    copied=$(mics-show --json said.mp | jq .operations.classes.offload.busy_s)
    [[ $(said --topology="${gpu}H100-80") == *'54.8 GB/s from'*'(PCIe 5.0 x16).'* ]]
    mics-show --json said.mp | jq -e ".operations.classes.offload.busy_s > 2 * $copied"
    [[ $(said --topology='node:1 gpu:1') == *'25 GB/s from'*'(PCIe 4.0 x16, assumed).'* ]]
    mics-probe --topology="${gpu}H100-80" | mics-show --json |
        jq '.device += {from_host_bytes_per_s: 4e10, to_host_bytes_per_s: 3e10}' >measured.json
    [[ $(said measured.json) == *'40 GB/s from the host and 30 GB/s to it (measured).'* ]]
    jq 'del(.device.to_host_bytes_per_s)' measured.json >half.json
    [[ $(said half.json) == *'40 GB/s from the host (measured) and 54.8 GB/s to it (PCIe 5.0 x16).'* ]]
    # Two GPUs share an uplink of PCIe 3.0, and the machine's rate replaces its GPU's.
    [[ $(said --topology=p4d --global-batch=8) == *'5.99 GB/s from the host and 5.99 GB/s to it (PCIe 3.0 x16, shared by 2 GPUs).'* ]]
    [[ $(mics-show measured.json) == *'link to the host, PCIe 5.0 x16'*'54.8 GB/s'* ]]
    jq '.device.host_link.bytes_per_s = 0' measured.json >wrong.json
    run -3 --separate-stderr mics-show wrong.json
    [[ $stderr == *'device.host_link.bytes_per_s: expected'* ]]
}

@test "nothing is moved to the host where CPU and GPU have one memory" {
    local how=(--model=qwen3-8b --seq=2048 --global-batch=8 --topology=dgx-spark:1)
    run -2 --separate-stderr mics-plan "${how[@]}" --offload=optimizer
    [[ $stderr == "mics-plan: --offload=optimizer: NVIDIA GB10 has one memory for CPU and GPU, so that nothing is saved" ]]
    run -4 --separate-stderr mics-plan "${how[@]}"
    [[ $stderr != *offload* ]]
    run -4 --separate-stderr mics-plan "${how[@]}" --offload=auto
    [[ $stderr == *"no plan fits 112 GiB per rank"* && $stderr != *host* ]]
    mics-probe --topology=dgx-spark | mics-show --json | jq -e '.device.integrated and .device.host_link == null'
    mics-probe --topology=dgx-spark >spark.mp
    run -2 --separate-stderr mics-plan --model=qwen3-8b --seq=2048 --global-batch=8 --offload=optimizer spark.mp
}

@test "what lacks on one GPU and its host is said" {
    local how=(--model=qwen3-8b --seq=2048 --global-batch=8 --offload=auto)
    run -4 --separate-stderr mics-plan "${how[@]}" --topology='node:1 gpu:1xRTX5090-32 hostmem:64G'
    [[ $stderr == *"the optimizer's states in host memory, needs 47.5 GiB, 17.1 GiB more"* ]]
    # 12 bytes of each parameter, twice with a snapshot: more than the host has, where the GPU would do.
    run -4 --separate-stderr mics-plan "${how[@]}" --topology='node:1 gpu:1xB200-180 hostmem:64G' --memory=60G
    [[ $stderr == *"need "*" GiB of host memory on each node"*"but a node has 64 GiB, "*" less"* ]]
    run -2 --separate-stderr mics-plan "${how[@]}" --topology='node:1 gpu:1 hostmem:0'
    [[ $stderr == *"hostmem"*"expected 1 byte to 1 EiB"* ]]
    run -2 --separate-stderr mics-plan "${how[@]}" --topology='node:1 ram:64G'
    [[ $stderr == *"'ram:64G': expected gpu, node, "*", hostmem or hostbw, a colon and a value"* ]]
    mics-probe --topology='node:1 gpu:1 hostmem:64G' >cluster.mp
    [[ $(mics-show cluster.mp) == *"host memory of a node"*"64 GiB"* ]]
}

@test "experts in groups of their own fit with the optimizer's states in host memory" {
    mics-plan --model=olmoe-1b-7b --seq=2048 --global-batch=64 --topology=p4d:1 --strategy=zero3 \
        --expert-group=8 --memory=12G --offload=optimizer -q -o experts.mp
    mics-show --json experts.mp | jq -e '.choice.offload_piece > 0'
}

@test "auto leaves states on the device where they fit" {
    mics-plan "${llama[@]/RTX4090-24/A100-80}" --offload=auto -o auto.mp
    mics-show --json auto.mp | jq -e '.choice.offload_piece == null and .memory.offload_bytes == null and .offload == "auto"'
}

@test "a plan like one with auto decides again" {
    local how=(--model=llama2-7b --topology='node:2 gpu:4xRTX4090-24 net:100gbit' --seq=2048 --global-batch=32)
    mics-plan "${how[@]}" --offload=auto -o two.mp
    mics-show --json two.mp | jq -e '.choice.offload_piece == null'
    mics-plan --like=two.mp --nodes=1 -o one.mp
    mics-show --json one.mp | jq -e '.choice.offload_piece > 0 and .offload == "auto"'
    mics-plan --like=one.mp --nodes=2 -o back.mp
    mics-show --json back.mp | jq -e '.choice.offload_piece == null and .offload == "auto"'
    run -4 mics-plan --like=two.mp --nodes=1 --offload=none
    mics-show --json two.mp | jq '.offload = "often"' >wrong.json
    run -3 --separate-stderr mics-show wrong.json
    [[ $stderr == *"'often': expected auto"* ]]
}

@test "host memory that a node lacks is named" {
    mics-plan "${llama[@]}" --offload=optimizer -o plan.mp
    mics-show --json plan.mp | jq '.topology + {kind: "mics.topology", v: 1, machine: {memory_bytes: 1e11 | floor}}' >cluster.json
    run -4 --separate-stderr mics-plan --model=llama2-7b --seq=2048 --global-batch=16 --offload=optimizer cluster.json
    [[ $stderr == *"optimizer states and the snapshots of checkpoints need 151 GiB of host memory on each node"* ]]
}

@test "groups are chosen that host memory suffices for" {
    local how=(--model=llama2-7b --seq=2048 --global-batch=64 --offload=optimizer)
    mics-plan "${how[@]}" --topology='node:4 gpu:8xA100-80 net:25gbit' -o plan.mp
    mics-show --json plan.mp | jq -e '.choice.p_optim < 32'
    mics-show --json plan.mp | jq '.topology + {kind: "mics.topology", v: 1, machine: {memory_bytes: 50000000000}}' >cluster.json
    mics-plan "${how[@]}" cluster.json -o fits.mp
    mics-show --json fits.mp | jq -e '.choice.p_optim == 32 and .memory.host_bytes_per_node <= 50000000000
        and ([.alternatives[] | select(.choice.p_optim < 32) | .fits] | length > 0 and (any | not))'
    [[ $(mics-show fits.mp) == *"host memory"* && $(mics-show fits.mp) != *PiB* ]]
    mics-show --tsv fits.mp >/dev/null
    # Where no group is small enough, the least is named; and offloading is no way out.
    mics-show --json plan.mp | jq '.topology + {kind: "mics.topology", v: 1, machine: {memory_bytes: 30000000000}}' >small.json
    run -4 --separate-stderr mics-plan "${how[@]}" small.json
    [[ $stderr == *"need "*" of host memory on each node"*"but a node has 27.9 GiB"* ]]
    run -4 --separate-stderr mics-plan "${how[@]/optimizer/none}" --memory=4G small.json
    [[ $stderr != *"--offload=optimizer"* ]]
}

@test "groups are chosen whose in-memory checkpoints fit host memory, too" {
    local how=(--model=llama2-7b --seq=2048 --global-batch=64 --offload=optimizer --memory-every=50)
    local cluster='node:4 gpu:8xA100-80 net:25gbit'
    mics-plan "${how[@]}" --topology="$cluster hostmem:300GB" -o ample.mp
    mics-plan "${how[@]}" --topology="$cluster hostmem:125GB" -o scarce.mp
    mics-show --json ample.mp | jq -e '.choice.p_optim < 32 and .memory.host_bytes_per_node + .kept.node_bytes > 125e9'
    mics-show --json scarce.mp | jq -e '.choice.p_optim == 32 and .memory.host_bytes_per_node + .kept.node_bytes <= 125e9
        and .kept.every == 50'
    [[ $(mics-show scarce.mp) == *$'\n'"mics:16 "*" host memory"$'\n'* ]]
    run -4 --separate-stderr mics-plan "${how[@]}" --topology="$cluster hostmem:110GB"
    [[ $stderr == "mics-plan: --memory-every: state in memory needs 75.3 GiB on each node beside the 37.8 GiB of its ranks, but a node has 102 GiB" ]]
    run -4 --separate-stderr mics-plan "${how[@]}" --topology="$cluster hostmem:30G"
    [[ $stderr == *"need 37.8 GiB of host memory on each node"* ]]
}

@test "one GPU waits for copies at their rates, and the plan says so" {
    local how=(--model=gpt2-xl --seq=512 --global-batch=1 --offload=optimizer)
    mics-plan "${how[@]}" --topology='node:1 gpu:1xRTX4090-24' -o plan.mp
    mics-show --json plan.mp | jq '.topology + {kind: "mics.topology", v: 1}
        | .device += {from_host_bytes_per_s: 25e9, to_host_bytes_per_s: 12e9}' >cluster.json
    mics-plan "${how[@]}" cluster.json -o plan.mp
    # 12 bytes of each parameter, at 12 GB/s.
    mics-show --json plan.mp | jq -e '.operations.classes.offload.busy_s >= 1.55 and .predicted.step_s >= 1.55'
    mics-show plan.mp | tr '\n' ' ' >text
    grep -q 'Copies of optimizer states and their updates take [0-9.]* s of a step of [0-9.]* s; ' text
    grep -q 'makes a step [0-9.]* times as long as with them on the device' text
    ! grep -q 'is computation only' text || false
}

@test "for DeepSpeed, the host updates the states that are in its memory" {
    run -4 --separate-stderr mics-plan "${llama[@]}" --for=deepspeed
    [[ $stderr == *"it fits with --offload=optimizer"* ]]
    mics-plan "${llama[@]}" --for=deepspeed --offload=optimizer -o plan.mp >ds.json 2>stderr
    jq -e '.zero_optimization.offload_optimizer == {device: "cpu", pin_memory: true}' ds.json
    grep -q 'deepspeed: the optimizer is deepspeed.ops.adam.DeepSpeedCPUAdam' stderr
    mics-plan -q "${llama[@]}" --for=deepspeed --offload=auto | diff ds.json -
    # Master, two moments, gradient in fp32, parameter or sum of gradients in bf16: of a quarter.
    mics-show --json plan.mp | jq -e '.memory | .offload_bytes > 18 * 6.7e9 / 4 and .offload_bytes < 18 * 6.8e9 / 4'
    mics-show plan.mp | tr '\n' ' ' >text
    grep -q "The optimizer's states and gradients are in host memory, 28.2 GiB per rank, which makes a step" text
    # 42 bytes of each parameter, of a quarter of 50 GB/s.
    grep -q "processors update them in 5.66 s, in which nothing else runs, with 12.5 GB/s of the host's memory for each rank (assumed)" text
    mics-plan -q "${llama[@]/RTX4090-24/RTX4090-24 hostbw:200GB/s}" --for=deepspeed --offload=optimizer -o fast.mp >/dev/null
    mics-show fast.mp | tr '\n' ' ' | grep -q 'update them in 1.42 s, .* with 50 GB/s .*(as described)'
    mics-show --json fast.mp | jq -e '.predicted.step_s' >fast
    mics-show --json plan.mp | jq -e --argjson fast "$(cat fast)" '.predicted.step_s - $fast | . > 4 and . < 4.5'
    mics-show --json fast.mp | jq '.topology.machine.memory_bandwidth_bytes_per_s = 0' >wrong.json
    run -3 --separate-stderr mics-show wrong.json
    [[ $stderr == *"machine.memory_bandwidth_bytes_per_s: expected"* ]]
    # One rank has nothing to cut, but stage 0 offloads nothing.
    mics-plan -q --model=gpt2 --topology='node:1 gpu:1xRTX4090-24' --for=deepspeed --offload=optimizer |
        jq -e '.zero_optimization | .stage == 2 and has("offload_optimizer")'
    # auto leaves states where they fit.
    mics-plan -q "${llama[@]/RTX4090-24/A100-80}" --for=deepspeed --offload=auto |
        jq -e '.zero_optimization | has("offload_optimizer") | not'
}

@test "what does not go with --offload is refused by name" {
    local topology=(--topology='node:2 gpu:2')
    run -2 --separate-stderr mics-plan "${on[@]}" "${topology[@]}" --offload=cpu
    [[ $stderr == *"'cpu': expected none, optimizer or auto"* ]]
    run -2 --separate-stderr mics-plan "${on[@]}" "${topology[@]}" --offload=optimizer --outer-steps=4
    [[ $stderr == *"--outer-steps and --offload exclude each other"* ]]
    run -2 --separate-stderr mics-plan "${on[@]}" "${topology[@]}" --offload=optimizer --for=megatron
    [[ $stderr == *"--for=megatron does not go with --offload: --optimizer-cpu-offload updates on the host's processors"* ]]
    run -2 --separate-stderr mics-plan "${on[@]}" "${topology[@]}" --offload=auto --for=fsdp2
    [[ $stderr == *"--for=fsdp2 does not go with --offload: FSDP moves parameters and gradients"* ]]
    run -2 --separate-stderr mics-plan "${on[@]}" "${topology[@]}" --offload=auto --for=deepspeed --optimizer=sgd
    [[ $stderr == *"--for=deepspeed --offload updates on the host's processors, for adamw and lion"* ]]
    run -2 --separate-stderr mics-plan "${on[@]}" "${topology[@]}" --offload=optimizer --for=deepspeed --strategy=ddp
    [[ $stderr == *"strategy ddp: DeepSpeed offloads the optimizer in its stages 1 to 3"* ]]
    mics-plan "${on[@]}" "${topology[@]}" --offload=optimizer -o plan.mp
    mics-plan "${on[@]}" "${topology[@]}" --offload=optimizer --schedule >ops
    [ "$(grep -c ' load ' ops)" -ge 4 ] && [ "$(grep -c ' load ' ops)" = "$(grep -c ' store ' ops)" ]
    mics-plan --like=plan.mp --nodes=1 -o like.mp
    mics-show --json like.mp | jq -e '.choice.offload_piece == 4194304'
    mics-show --json plan.mp | jq '.choice.offload_piece = 100' >wrong.json
    run -3 --separate-stderr mics-show wrong.json
    [[ $stderr == *"choice: optimizer states in host memory in pieces of 100 elements: expected a multiple of 64 up to 268435456"* ]]
    mics-show --json plan.mp | jq '.memory.offload_bytes += 1' >wrong.json
    run -3 --separate-stderr mics-show wrong.json
    [[ $stderr == *"memory.offload_bytes: says"* ]]
}

# The plan with pieces that are smaller than the shards of gpt2-nano.
in_pieces() # plan
{
    mics-show --json "$1" | jq '.choice.offload_piece = 4096' >pieces.json
    # What the choice takes is said by what refuses the document.
    local said path
    while ! said=$(mics-show pieces.json 2>&1); do
        [[ $said =~ :\ memory\.([a-z_]+|regions\[[0-9]+\]\.(bytes|offset)):\ says\ [0-9]+,\ but\ this\ choice\ takes\ ([0-9]+) ]]
        path=.memory.${BASH_REMATCH[1]}
        jq "$path = ${BASH_REMATCH[3]}" pieces.json >next.json
        mv next.json pieces.json
    done
}

@test "ranks on emulated GPUs train, save and resume the same with states in host memory and on the device" {
    requires jq mpi:2
    [ -f "$MICS_BUILD/emulated/libmics-cuda.so" ]
    export MICS_PLUGIN_PATH=$MICS_BUILD/emulated MICS_CUDA_MEASURE=0 MICS_NODE_RANKS=2
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    local how=(--model=gpt2-nano --global-batch=4 --seq=8 --topology='node:1 gpu:2' --dtype=bf16 --micro-batch=1)
    mics-plan "${how[@]}" -o device.mp
    mics-plan "${how[@]}" --offload=optimizer -o host.mp
    in_pieces host.mp
    train() # plan out options...
    {
        mpi 2 mics-train -p "$1" --data=text --val-every=0 --sample=0 --save-every=1 --keep=0 --out="$2" --device=cuda -q \
            --metrics=m.jsonl "${@:3}"
        jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' m.jsonl >"$2.losses"
        rm m.jsonl
    }
    sums() # folder
    {
        (cd "$1" && find . -name 'shard*' -o -name '*.bin' | sort | xargs sha256sum)
    }
    train device.mp device --steps=2
    train pieces.json host --steps=2
    cmp device.losses host.losses
    sums device/step-000002 >device.sums
    [ -s device.sums ]
    sums host/step-000002 | cmp - device.sums
    train pieces.json resumed-on-host --resume="$PWD/device/step-000001"
    train device.mp resumed-on-device --resume="$PWD/host/step-000001"
    for where in host device; do
        cmp <(tail -n 1 device.losses) "resumed-on-$where.losses"
        sums "resumed-on-$where/step-000002" | cmp - device.sums
    done
    # Another group, directly and by way of a reshard.
    one=("${how[@]/gpu:2/gpu:1}")
    mics-plan "${one[@]}" -o one-device.mp
    mics-plan "${one[@]}" --offload=optimizer -o host.mp
    in_pieces host.mp
    mics-shard reshard -q -p pieces.json -o resharded device/step-000001
    resume_on_one() # plan checkpoint
    {
        MICS_NODE_RANKS=1 mics-train -p "$1" --data=text --val-every=0 --sample=0 --steps=2 --resume="$2" --out=on-one \
            --device=host -q --metrics=m.jsonl
        jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' m.jsonl
        sums on-one/step-000002
        rm -r m.jsonl on-one
    }
    resume_on_one one-device.mp device/step-000001 >expected
    [ "$(wc -l <expected)" = 2 ]
    resume_on_one pieces.json device/step-000001 | cmp - expected
    resume_on_one one-device.mp host/step-000001 | cmp - expected
    resume_on_one pieces.json resharded | cmp - expected
}

@test "on hosts the option changes no bit, and the plan says that it saves nothing" {
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    mics-plan "${on[@]}" --topology='node:1 gpu:1 dtype:f32' -o gpu.mp
    mics-show --json gpu.mp | jq '.topology + {kind: "mics.topology", v: 1} | .device.name = "host"' >cluster.json
    for offload in none optimizer; do
        mics-plan "${on[@]}" --offload=$offload -o $offload.mp cluster.json
        mics-train -p $offload.mp --data=text --val-every=0 --sample=0 --steps=3 --out=$offload --metrics=$offload.jsonl >said
        jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' $offload.jsonl >$offload.losses
    done
    [ -s none.losses ]
    cmp none.losses optimizer.losses
    grep -qE "^optimizer states in host memory +$(mics-show --json optimizer.mp | jq .memory.offload_bytes) " said
    mics-plan --check=optimizer.jsonl optimizer.mp --json | jq -e '[.predicted, .measured][] | .operations.classes.offload.busy_s > 0'
    [[ $(mics-plan --check=optimizer.jsonl optimizer.mp) == *$'\n'"copies of states in host memory "* ]]
    run -3 --separate-stderr mics-plan --check=optimizer.jsonl none.mp
    [[ $stderr == *"of another plan"* ]]
    mics-show optimizer.mp | tr '\n' ' ' >text
    grep -q 'there they would fit, and leave' text
    [[ $(mics-show --tsv optimizer.mp) == *$'\noffload\t'* ]]
}
