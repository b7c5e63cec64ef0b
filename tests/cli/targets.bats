#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-plan --for: plans in the words of other trainers. bench/targets.py hands them to the real software.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
}

plan() # target [option...]
{
    mics-plan -q --model=gpt2-xl --topology=p4d:4 --global-batch=512 --seq=1024 --for="$1" -o plan.mp "${@:2}" >output
    mics-show --json plan.mp >plan.json
}

choice() # key...
{
    local key
    for key in "$@"; do jq -r ".choice.$key" plan.json; done | xargs
}

# The word after an option in the output.
after() # option
{
    sed -n "s/.*$1[ =]\([^ ,]*\).*/\1/p" output | head -1
}

@test "torchtitan, transformers and accelerate have one group for parameters, gradients and optimizer, and flat gathers" {
    for target in fsdp2 torchtitan transformers accelerate; do
        plan $target
        read -r p g o hierarchical segments prefetch < <(choice p_param p_grad p_optim hierarchical_gather segments prefetch)
        [ "$p" = "$g" ] && [ "$p" = "$o" ] && [ "$hierarchical" = false ] && [ "$segments" = 1 ] && [ "$prefetch" -le 1 ]
        case $target in
        fsdp2)
            read -r replicas shards < <(sed -n 's/.*_mesh("cuda", (\([0-9]*\),* *\([0-9]*\)).*/\1 \2/p' output)
            [ -n "$shards" ] || shards=$replicas replicas=1
            ;;
        torchtitan) shards=$(after data_parallel_shard_degree) replicas=$(after data_parallel_replicate_degree) ;;
        transformers) shards=$(after fsdp_size) replicas=$(after dp_replicate_size) ;;
        accelerate) shards=$(after config_dp_shard_size:) replicas=$(after config_dp_replicate_size:) ;;
        esac
        echo "$target: $shards x $replicas, $p"
        [ "$shards" = "$p" ] && [ $((shards * replicas)) = 32 ]
    done
}

@test "DeepSpeed gets a stage and batches that fit together, Megatron a distributed optimizer" {
    plan deepspeed
    [ "$(jq '.train_micro_batch_size_per_gpu * .gradient_accumulation_steps * 32 == .train_batch_size' output)" = true ]
    read -r p g o < <(choice p_param p_grad p_optim)
    [ "$(jq .zero_optimization.stage output)" = $(((p > 1) + (g > 1) + (o > 1))) ]
    for size in $p $g $o; do [ "$size" = 1 ] || [ "$size" = 32 ]; done
    plan deepspeed --strategy=zero3
    [ "$(jq .zero_optimization.stage output)" = 3 ]
    # A second partition is a strategy of its own, which the search includes.
    plan deepspeed --strategy=hpz:8
    jq -e '.zero_optimization | .stage == 3 and .zero_hpz_partition_size == 8' output
    [ "$(choice p_param p_grad p_optim secondary_shards)" = "8 32 32 true" ]
    mics-plan -q --model=gpt2-xl --topology='node:4 gpu:8 flops:100T membw:1TB/s mem:8G link:200GB/s,3us net:25gbit,20us' \
        --global-batch=2048 --micro-batch=2 --seq=1024 --for=deepspeed -o plan.mp >output
    mics-show --json plan.mp >plan.json
    [ "$(jq .zero_optimization.zero_hpz_partition_size output)" = "$(choice p_param)" ]
    mics-show plan.mp | grep -q "parameters $(choice p_param) (secondary), gradients 32, optimizer 32"
    # That it does not fit is said rather than that stages cut no model so; where it gains less than a tie it is left out.
    run -4 --separate-stderr mics-plan --model=llama2-7b --topology=p4d:4 --global-batch=64 --seq=1024 --for=deepspeed \
        --strategy=hpz:8 --memory=2G
    [[ $stderr == *"no plan fits 2 GiB per rank"* ]]
    mics-plan -q --model=llama3-8b --topology=p4d:4 --global-batch=64 --seq=8192 --for=deepspeed -o plan.mp >output
    jq -e '.zero_optimization | .stage == 3 and (has("zero_hpz_partition_size") | not)' output
    mics-plan -q --model=gpt2 --topology=p4d:4 --strategy=hpz:16 --gather-dtype=int8 --hierarchical=on -o plan.mp
    mics-show plan.mp | grep -q "gather between nodes  *in int8; a unit's first in a step exact"
    run --separate-stderr mics-plan --model=gpt2 --topology=p4d:4 --for=deepspeed --strategy=8,32,32
    one_line_and_code 2
    run --separate-stderr mics-plan --model=gpt2 --topology='node:1 gpu:2' --strategy=hpz
    one_line_and_code 2
    [[ $stderr == *"hpz: no group is larger than one rank and smaller than all 2" ]]
    run --separate-stderr mics-plan --model=gpt2 --topology=p4d:1 --strategy=hpz:8
    one_line_and_code 2
    mics-plan -q --model=gpt2 --topology='node:1 gpu:2' --for=deepspeed -o plan.mp >output
    plan megatron --strategy=1,1,8
    [ "$(after --num-distributed-optimizer-instances)" = 4 ]
    [ "$(choice p_param p_grad p_optim)" = "1 1 8" ]
    plan megatron --strategy=zero1
    grep -q -- --use-distributed-optimizer output
    run ! grep -q instances output
}

@test "DeepSpeed all-reduces gradients in stages 1 and 2, as its plan counts and says" {
    # A reduce-scatter and a gather of stage 3, which keeps what it gathers; an all-reduce and a gather of the others.
    local options=(--model=gpt2 --global-batch=32 --micro-batch=1)
    plan deepspeed --strategy=zero3 "${options[@]}"
    local three
    three=$(jq .predicted.net_bytes plan.json)
    for stage in zero1 zero2; do
        plan deepspeed --strategy=$stage "${options[@]}"
        jq -e --argjson three "$three" '.predicted.net_bytes / $three | . > 1.49 and . < 1.51' plan.json
    done
    mics-plan --model=gpt2-xl --topology=p4d:4 --strategy=zero1 --for=deepspeed -o plan.mp 2>stderr >output
    grep -q '^mics-plan: deepspeed all-reduces gradients in stages 1 and 2, and each rank takes its part: +[0-9.]* % step$' stderr
    mics-plan --model=gpt2-xl --topology=p4d:4 --strategy=zero3 --for=deepspeed -o plan.mp 2>stderr >output
    run ! grep -q all-reduces stderr
}

@test "bf16 gradients are reduced as each trainer does it" {
    plan torchtitan
    [ "$(choice dtype grad_dtype)" = "bf16 f32" ]
    grep -q 'max_norm 1.0' output
    plan accelerate
    [ "$(choice dtype grad_dtype)" = "bf16 bf16" ]
    plan torchtitan --dtype=f32 --no-clip
    grep -q 'max_norm inf' output # its default is 1
    [ "$(choice dtype grad_dtype)" = "f32 f32" ]
    grep -q 'mixed_precision_param float32' output
}

@test "gradients that are added up whole need their memory, or a step of one micro-step" {
    plan accelerate --model=llama3.1-8b --global-batch=128 --memory=24G
    [ "$(choice micro_steps)" = 1 ]
    run --separate-stderr mics-plan --model=gpt2-xl --topology=p4d:4 --global-batch=32768 --seq=1024 --for=accelerate \
        -o plan.mp
    [ "$status" = 0 ]
    mics-show --json plan.mp >plan.json
    [ "$(choice micro_steps)" -gt 1 ]
    [[ $stderr == *"accelerate adds up whole gradients over micro-steps: 2.9 GiB more per rank"* ]]
    [ "$(jq '.memory.total_bytes // ([.memory.regions[].bytes] | add) | . < 36e9' plan.json)" = true ]
}

@test "a cluster in words is planned for other trainers, too" {
    mics-plan -q --model=gpt2-nano --topology='node:2 gpu:4' --for=torchtitan >output
    [ $(($(after data_parallel_replicate_degree) * $(after data_parallel_shard_degree))) = 8 ]
}

@test "what a trainer cannot do is said with its cost" {
    run --separate-stderr mics-plan --model=llama3.1-8b --topology=p4d:4 --global-batch=256 --seq=4096 --for=accelerate
    [ "$status" = 0 ]
    [[ $stderr =~ accelerate\ with\ all\ its\ restrictions:\ \+[0-9.]+\ %\ step ]]
    [[ $stderr =~ does\ not\ reduce\ gradients\ before\ the\ last\ micro-step:\ \+[0-9.]+\ %\ step ]]
    [[ $stderr =~ accelerate\ gathers\ flat\ across\ nodes:\ \+[0-9.]+\ %\ step ]]
    run --separate-stderr mics-plan --model=llama3.1-8b --topology=p4d:4 --global-batch=256 --seq=4096 --for=torchtitan
    [ "$status" = 0 ]
    [[ $stderr == *"torchtitan: "*"s per step, "*" tokens/s, "*" GiB per rank"* ]]
    [[ $stderr =~ torchtitan\ cannot\ cut\ .*\ otherwise:\ \+[0-9.]+\ %\ step ]]
    run --separate-stderr mics-plan --model=llama3.1-8b --topology=p4d:4 --global-batch=256 --seq=4096 --for=megatron
    one_line_and_code 4
    [[ $stderr == "mics-plan: --for=megatron: no plan fits "* ]]
}

@test "transformers exchanges a tied head and embedding one by one: the plan has the bytes, and says what that costs" {
    local target
    for target in fsdp2 transformers; do
        run --separate-stderr mics-plan --model=gpt2-xl --topology=p4d:2 --global-batch=64 --seq=1024 --strategy=mics:8 \
            --micro-batch=2 --recompute=full --for=$target -o $target.mp
        [ "$status" = 0 ]
        mics-show --json $target.mp >$target.json
    done
    [[ $stderr =~ before\ it\ ties\ the\ head\ to\ the\ embedding,\ gathers\ and\ reduces\ both:\ \+[0-9.]+\ %\ step ]]
    # The second hop sends all of 1.56 G parameters in fp32, and the embedding of 82 M a second time.
    jq -es 'map(.predicted.net_bytes) | .[1] / .[0] > 1.05 and .[1] / .[0] < 1.06' fsdp2.json transformers.json
}

@test "an optimizer that is not AdamW is written, or the training program must make it" {
    local must='the training program must make the optimizer that is planned: sgd'
    run -0 --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 --for=megatron --optimizer=sgd
    [[ $output == *'--optimizer sgd'* ]] && [[ $stderr != *"$must"* ]]
    run -0 --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 --for=deepspeed --optimizer=sgd
    [[ $stderr == *"mics-plan: deepspeed: $must"* ]]
    run -0 --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 --for=deepspeed
    [[ $stderr != *"$must"* ]]
}

@test "options that another trainer has no word for are refused" {
    for words in '--for=fairscale' '--for=torchtitan --hierarchical=on' '--for=megatron --sync-dtype=int8' \
        '--for=accelerate --recompute=selective' '--for=deepspeed --outer-steps=10' '--for=torchtitan --segments=2' \
        '--for=torchtitan --launch=srun' '--for=torchtitan --experts=auto' '--for=torchtitan --check=run' '--for=torchtitan --like=plan.mp' '--for=torchtitan -o -'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 $words
        usage_mistake mics-plan || { echo "$words"; return 1; }
    done
    run --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 --for=torchtitan --optimizer=sgd
    one_line_and_code 2
    [[ $stderr == 'mics-plan: --optimizer=sgd: torchtitan has '* ]]
    run --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 --for=megatron --optimizer=lion
    one_line_and_code 2
    run --separate-stderr mics-plan --model=gpt2 --topology=p4d:2 --for=torchtitan --strategy=zero1
    one_line_and_code 2
    [[ $stderr == *"--for=torchtitan: "*"cannot cut a model so"* ]]
}

@test "the memory is that of the trainer: its loss, its fp32 shards, its buckets" {
    local common=(-q --model=llama3.2-1b --topology=p4d:1 --global-batch=8 --seq=2048 --micro-batch=1 --recompute=full)
    mics-plan "${common[@]}" --strategy=zero3 -o mics.mp
    for target in fsdp2 torchtitan transformers deepspeed; do
        mics-plan "${common[@]}" --for=$target --strategy=zero3 -o $target.mp >/dev/null
    done
    # Logits in fp32, their gradient and that of the loss: 12 bytes for each of 2048 x 128256, and what the loop holds.
    mics-show --json transformers.mp | jq -e '.choice.trainer == "transformers" and
        ([.memory.regions[] | select(.name == "logits and loss") | .bytes][0] | . > 3.15e9 and . < 3.2e9)'
    mics-show --json fsdp2.mp | jq -e '[.memory.regions[] | select(.name == "logits and loss") | .bytes][0] > 3.67e9'
    mics-show --json mics.mp | jq -e '(.choice | has("trainer") | not) and .memory.regions[6].name == "scratch"'
    # fp32 of 1,235,814,400 parameters on 8 ranks, and two states.
    mics-show --json fsdp2.mp | jq -e '[.memory.regions[0, 2].bytes] == [617910272, 1235816448]'
    mics-show fsdp2.mp | grep -q 'logits and loss  *3.* GiB'
    # Of 16 bits 1/16 in the primary, 1/8 in the secondary shard.
    mics-plan "${common[@]}" --topology=p4d:2 --global-batch=16 --for=deepspeed --strategy=hpz:8 -o hpz.mp >/dev/null
    mics-show --json hpz.mp | jq -e '.memory.regions[0].bytes | . >= 463430400 and . < 463430400 + 4096'
    # DeepSpeed's bucket of 5e8 gradients in bf16.
    mics-show --json deepspeed.mp | jq -e '.memory.regions[4] | .name == "gradients to reduce" and .bytes == 1000001536'
}

@test "mics-train does not take the memory of another trainer for its own" {
    mics-plan -q --model=gpt2-nano --topology='node:1 gpu:1' --for=torchtitan -o plan.mp >/dev/null
    run --separate-stderr mics-train -p plan.mp --data=none.bin
    [ "$status" = 2 ]
    [[ $stderr == *"plan.mp: the plan is for torchtitan, with the memory that it takes; one for mics is made without --for"* ]]
    run -2 --separate-stderr mics-plan --like=plan.mp
    [[ $stderr == *"plan.mp: the plan is for torchtitan, "* ]]
    jq '.choice.trainer |= empty | .choice.whole_gradients = true' <(mics-show --json plan.mp) >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    jq '.model.family = "gpt9"' <(mics-show --json plan.mp) >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    jq '.choice.trainer = "fairscale"' <(mics-show --json plan.mp) >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    [[ $stderr == *"choice.trainer: 'fairscale': no such trainer" ]]
}

@test "all-reduces that nothing does in hops are no gain" {
    local how=(--model=gpt2-xl --global-batch=64 --seq=1024 --topology=p4d:4)
    run -0 --separate-stderr mics-plan "${how[@]}" --for=deepspeed --strategy=zero2
    [[ $stderr == *"deepspeed all-reduces gradients in stages 1 and 2"* && $stderr == *"with all its restrictions"* ]]
    [[ $stderr != *"flat across nodes"* ]]
    run -0 --separate-stderr mics-plan "${how[@]}" --for=deepspeed --strategy=zero3
    [[ $stderr == *"deepspeed gathers flat across nodes"* ]]
}
