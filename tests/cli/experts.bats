#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts: configurations, files of transformers, training on several ranks.

load helpers
load hf_files

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    reference=$BATS_TEST_DIRNAME/../reference
    export MICS_NODE_RANKS=2
}

plan() # model file strategy
{
    mics-plan --topology='node:2 gpu:2' --model="$1" --global-batch=4 --seq=8 --strategy="$3" --no-history -o "$2"
}

# The bytes of every tensor of a file, in the order of their names.
tensors() # file
{
    perl -MJSON::PP -e 'open F, "<:raw", $ARGV[0]; read F, $n, 8; read F, $h, unpack "Q<", $n; local $/; $d = <F>;
        $j = decode_json $h; delete $j->{__metadata__};
        for (sort keys %$j) { ($a, $b) = @{$j->{$_}{data_offsets}}; print "$_ $j->{$_}{dtype} @{$j->{$_}{shape}}\n", substr $d, $a, $b - $a }' "$1"
}

@test "Mixtral, OLMoE, Qwen2-MoE and Qwen3-MoE written by transformers are merged from any plan with their names and bytes" {
    requires perl
    for family in mixtral olmoe qwen2-moe qwen3-moe; do
        mkdir -p "$out-$family"
        cp "$reference/$family-tiny/"{config.json,model.safetensors} "$out-$family"
        tensors "$out-$family/model.safetensors" >"$out-want"
        for strategy in mics:2 zero3; do
            plan "$out-$family" "$out.mp" $strategy
            mics-shard split "$out-$family" -p "$out.mp" -o "$out-s-$family-$strategy"
            mics-shard merge "$out-s-$family-$strategy" -o "$out-m-$family-$strategy"
            tensors "$out-m-$family-$strategy/model.safetensors" | cmp - "$out-want"
        done
        mics-shard diff -q "$out-s-$family-mics:2" "$out-s-$family-zero3"
    done
    grep -aq block_sparse_moe.experts.3.w2.weight "$out-m-mixtral-zero3/model.safetensors"
    grep -q '"num_local_experts": 4' "$out-m-mixtral-zero3/config.json"
}

@test "experts of a layer in two tensors, as version 5 of transformers may write them, are those in one tensor each" {
    requires perl
    plan "$reference/mixtral-tiny" "$out.mp" zero3
    mics-shard split "$reference/mixtral-tiny/model.safetensors" -p "$out.mp" -o "$out-4"
    mics-shard split "$reference/mixtral-fused-tiny" -p "$out.mp" -o "$out-5"
    mics-shard diff -q "$out-4" "$out-5"
    plan "$reference/qwen2-moe-tiny" "$out-q.mp" mics:2
    mics-shard split "$reference/qwen2-moe-tiny" -p "$out-q.mp" -o "$out-q4"
    mics-shard split "$reference/qwen2-moe-fused-tiny" -p "$out-q.mp" -o "$out-q5"
    mics-shard diff -q "$out-q4" "$out-q5"
    # shellcheck disable=SC2016
    edited "$reference/mixtral-fused-tiny/model.safetensors" both.safetensors \
        '$t{"model.layers.1.block_sparse_moe.experts.2.w1.weight"} = ["F32", [26, 18], "\0" x 1872]'
    run --separate-stderr mics-shard split both.safetensors -p "$out.mp" -o "$out-x"
    [ "$status" = 3 ]
    [[ $stderr == *"the experts of 'layers.1.mlp.experts.gate_up_proj' are also in a tensor of their own, 'layers.1.block_sparse_moe.experts.2.w1.weight'"* ]]
    # shellcheck disable=SC2016
    edited "$reference/mixtral-fused-tiny/model.safetensors" part.safetensors 'delete $t{"model.layers.1.mlp.experts.down_proj"}'
    run --separate-stderr mics-shard split part.safetensors -p "$out.mp" -o "$out-x"
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'layers.1.mlp.experts.down_proj' of the model is missing"* ]]
    # shellcheck disable=SC2016
    edited "$reference/mixtral-tiny/model.safetensors" less.safetensors \
        'delete $t{"model.layers.0.block_sparse_moe.experts.3.w3.weight"}'
    run --separate-stderr mics-shard split less.safetensors -p "$out.mp" -o "$out-x"
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'layers.0.block_sparse_moe.experts.3.w3.weight' of the model is missing"* ]]
    [ ! -e "$out-x" ]
}

@test "a setting of experts that is not possible is refused in one line that names its key" {
    requires perl
    mkdir -p "$out"
    while IFS='|' read -r model change words; do
        perl -0777 -MJSON::PP -e '$c = decode_json shift; $n = decode_json shift; $c->{$_} = $n->{$_} for keys %$n; print encode_json $c' \
            "$(cat "$reference/$model-tiny/config.json")" "$change" >"$out/config.json"
        run --separate-stderr mics-plan --topology='node:1' --model="$out" --seq=8
        [ "$status" = 3 ]
        [[ $stderr == *"$out/config.json: $words"* ]]
        [ "${#stderr_lines[@]}" = 1 ]
    done <<'END'
mixtral|{"num_experts_per_tok": 5}|num_experts_per_tok: 5 experts of a token, but a layer has 4
mixtral|{"num_experts": 8}|num_local_experts: 4, but num_experts is 8
mixtral|{"num_local_experts": 2000}|num_local_experts: expected 1 to 1024, found 2000
mixtral|{"router_jitter_noise": 0.1}|router_jitter_noise: is not supported
olmoe|{"clip_qkv": 8}|clip_qkv: is not supported
qwen2-moe|{"layer_types": null}|layer_types: must list the layers of the window
qwen2-moe|{"num_experts_per_tok": 6}|num_experts_per_tok: 6 experts of a token, but a layer has 5
qwen3-moe|{"mlp_only_layers": [3]}|mlp_only_layers[0]: expected the number of a layer below 3
llama|{"num_local_experts": 4}|num_local_experts: a llama has no experts
llama|{"model_type": "deepseek_v3", "n_routed_experts": 4}|model_type: 'deepseek_v3' is not supported
END
}

@test "a plan of a mixture of experts counts the active parameters" {
    mics-plan --topology=p4d:4 --model=qwen3-30b-a3b --global-batch=512 --seq=4096 --no-history -o "$out.mp"
    mics-show "$out.mp" | grep -q '^experts *8 of 128 for a token, in 48 of 48 layers: 3.35 G parameters active$'
    mics-show --tsv "$out.mp" | grep -qP '^active_param_count\t3353\d{6}$'
    mics-plan --topology='node:1 gpu:1' --model="$reference/qwen3-moe-tiny" --seq=8 --no-history -o "$out.mp"
    mics-show "$out.mp" | grep -q '^experts *2 of 4 for a token, in 2 of 3 layers'
    mics-plan --topology=p4d:2 --model=qwen1.5-moe-a2.7b --global-batch=512 --seq=4096 --no-history -o "$out.mp"
    mics-show "$out.mp" | grep -q '^experts *4 of 60 for a token and one that all share, in 24 of 24 layers: 2.69 G parameters active$'
}

@test "a plan shards experts over groups of their own, with which four ranks train as with any others" {
    requires mpi:4 jq
    options=(--topology='node:2 gpu:2' --model=moe-nano --global-batch=4 --seq=32 --dtype=f32 --no-history)
    mics-plan "${options[@]}" --strategy=mics:1 --expert-group=4 -o "$out-own.mp"
    mics-plan "${options[@]}" --strategy=mics:2 --expert-group=same -o "$out-same.mp"
    mics-plan "${options[@]}" --strategy=mics:2 -o "$out-default.mp"
    cmp "$out-same.mp" "$out-default.mp"
    [ "$(mics-show --json "$out-own.mp" | jq -c '.choice | [.p_param, .experts.p_param, .experts.p_optim]')" = '[1,4,4]' ]
    mics-show "$out-own.mp" >"$out-shown"
    grep -q '^shards of experts *parameters 4, gradients 4, optimizer 4$' "$out-shown"
    grep -qE '^state per rank *[0-9.]+ MiB of experts, [0-9.]+ MiB of all else$' "$out-shown"
    grep -q 'Experts are sharded over 4 ranks, all else over 1' "$out-shown"
    train=(mics-train -q --data="$root/man/*.1" --val-every=0 --sample=0 --steps=3 --seed=1)
    for name in own same; do
        mpi 4 "${train[@]}" -p "$out-$name.mp" --out="$out-$name" --metrics="$out-$name.jsonl"
    done
    jq -s 'map(select(.event == "step").loss) | length == 6 and all(range(3) as $i | .[$i] - .[$i + 3]; fabs < 1e-5)' \
        "$out-own.jsonl" "$out-same.jsonl" | grep -qx true
    run --separate-stderr mics-plan "${options[@]}" --expert-group=3
    [ "$status" = 2 ]
    [[ $stderr == *"--expert-group: "* ]]
    run --separate-stderr mics-plan "${options[@]}" --expert-group=4 --sync-dtype=int8
    [ "$status" = 2 ]
    run --separate-stderr mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --expert-group=2
    [ "$status" = 2 ]
    [[ $stderr == *"--expert-group: 'gpt2-nano' has no experts"* ]]
}

@test "a mixture of experts is trained on four ranks, moved to another plan, exported and imported again" {
    requires mpi:4
    for strategy in mics:2 zero3; do
        mics-plan --topology='node:2 gpu:2' --model=moe-nano --global-batch=4 --seq=32 --strategy=$strategy -o "$out-$strategy.mp"
    done
    data=(--data="$root/man/*.1" --val-every=0 --sample=0)
    mpi 4 mics-train -q -p "$out-mics:2.mp" "${data[@]}" --steps=2 --out="$out-run"
    mics-shard reshard "$out-run" -p "$out-zero3.mp" -o "$out-z"
    mpi 4 mics-train -q -p "$out-zero3.mp" "${data[@]}" --steps=3 --resume="$out-z" --out="$out-on"
    mics-shard merge "$out-on" -o "$out-hf"
    mpi 4 mics-train -q -p "$out-mics:2.mp" "${data[@]}" --steps=1 --lr=1e-9 --min-lr=0 --weight-decay=0 \
        --init="$out-hf" --out="$out-begun"
    mics-shard diff -q "$out-begun" "$out-hf"
    mics-sample "$out-hf" --tokenizer=bytes --prompt='The ' --temperature=0 --max-tokens=8 >"$out-text"
    mics-sample "$out-on" --prompt='The ' --temperature=0 --max-tokens=8 | cmp - "$out-text"
}

@test "losses of balance are the same on any number of ranks, and belong to models with experts" {
    requires mpi:4 jq
    options=(--model=moe-nano --global-batch=4 --seq=32 --dtype=f32 --balance-loss=sequence:0.5 --router-z-loss=0.01)
    mics-plan --topology='node:2 gpu:2' "${options[@]}" --strategy=zero3 --micro-batch=1 -o "$out-4.mp"
    mics-plan --topology='node:1 gpu:1' "${options[@]}" --recompute=full --micro-batch=2 -o "$out-1.mp"
    [ "$(mics-show --json "$out-1.mp" | jq -c '.model | [.balance_loss.over, .balance_loss.coefficient, .router_z_loss]')" = '["sequence",0.5,0.01]' ]
    train=(mics-train -q --data="$root/man/*.1" --val-every=0 --sample=0 --steps=3 --seed=1)
    mpi 4 "${train[@]}" -p "$out-4.mp" --out="$out-4" --metrics="$out-4.jsonl"
    MICS_NODE_RANKS=1 "${train[@]}" -p "$out-1.mp" --out="$out-1" --metrics="$out-1.jsonl"
    jq -s '[.[] | select(.loss and .step) | .loss]' "$out-4.jsonl" "$out-1.jsonl" |
        jq -e 'length == 6 and all(range(3) as $i | .[$i] - .[$i + 3]; fabs < 1e-5) and .[0] > 6.5' >/dev/null
    run --separate-stderr mics-plan --topology='node:1' --model=gpt2-nano --balance-loss=none
    [ "$status" = 2 ]
    [[ $stderr == *"--balance-loss: 'gpt2-nano' has no experts"* ]]
    run --separate-stderr mics-plan --topology='node:1' --model=moe-nano --balance-loss=token:1
    [ "$status" = 2 ]
    run --separate-stderr mics-plan --like="$out-1.mp" --router-z-loss=1
    [ "$status" = 2 ]
    [[ $stderr == *"--like has "*losses*" of its plan"* ]]
}

@test "metrics have the load of experts, the entropy of routers and the losses of balance, whatever the number of ranks" {
    requires mpi:4 jq
    options=(--model=moe-nano --global-batch=4 --seq=32 --dtype=f32)
    mics-plan --topology='node:2 gpu:2' "${options[@]}" --strategy=zero3 --micro-batch=1 \
        --balance-loss=sequence:0.5 --router-z-loss=0.01 -o "$out-4.mp"
    mics-plan --topology='node:1 gpu:1' "${options[@]}" --micro-batch=2 --balance-loss=none -o "$out-1.mp"
    train=(mics-train --data="$root/man/*.1" --val-every=0 --sample=0 --steps=2 --seed=1 --log-every=1)
    mpi 4 "${train[@]}" -p "$out-4.mp" --out="$out-4" --metrics="$out-4.jsonl" >"$out-4.log"
    MICS_NODE_RANKS=1 "${train[@]}" -p "$out-1.mp" --out="$out-1" --metrics="$out-1.jsonl" >"$out-1.log"
    jq -s 'map(select(.event == "step" and .step == 1))' "$out-4.jsonl" "$out-1.jsonl" >"$out-both"
    # In the first step the parameters are the same: the losses differ by the losses of balance.
    jq -e '.[0] as $a | .[1] as $b | [$a.loss - $a.aux_loss - $a.z_loss - $b.loss,
        $a.router_entropy - $b.router_entropy, $a.expert_load - $b.expert_load] | all(fabs < 2e-6)' "$out-both"
    jq -e '.[0] | .layer_loads == $b[0].layer_loads and (.layer_loads | max - $b[0].expert_load | fabs < 1e-3) and
        (.aux_loss >= 0.5 * 2 and .aux_loss < 1.5) and (.z_loss > 0.01 * (8 | log) * (8 | log) * 0.9) and
        (.router_entropy > 1.9 and .router_entropy < (8 | log)) and .expert_load > 1 and .expert_load < 4' \
        --argjson b "$(jq '.[1:]' "$out-both")" "$out-both"
    jq -e '.[1] | .aux_loss == 0 and .z_loss == 0' "$out-both"
    grep -qE ' load +entropy +aux loss +z-loss$' "$out-4.log"
    run -1 grep 'aux loss' "$out-1.log"
    mics-show "$out-4.jsonl" | grep -q '^load, largest/mean '
    mics-show --tsv "$out-4.jsonl" | grep -qP '^first\t.*\texpert_load\trouter_entropy\taux_loss\tz_loss$'
}

@test "resident experts train as gathered ones do on four ranks, and a plan without them says why" {
    requires mpi:4 jq
    options=(--topology='node:2 gpu:2' --global-batch=8 --seq=32 --dtype=f32 --micro-batch=1)
    for way in gathered resident; do
        mics-plan "${options[@]}" --model=moe-nano --strategy=zero3 --experts=$way -o "$out-$way.mp"
        mpi 4 mics-train -q -p "$out-$way.mp" --data="$root/man/*.1" --val-every=0 --sample=0 --steps=3 --seed=1 \
            --out="$out-$way" --metrics="$out-$way.jsonl"
    done
    mics-show "$out-resident.mp" | grep -q '^resident experts  *2 on each of 4 ranks; up to .* rows to each in a round'
    mics-show "$out-resident.mp" | tr '\n' ' ' | grep -q 'Experts are resident; with gathered ones a step would take .* below about [0-9].*busiest rank with 2 times the mean rows\. With resident experts a step takes '
    [ "$(mics-show --json "$out-resident.mp" | jq '.experts.resident_step_s == .predicted.step_s and .experts.gathered_s > 0')" = true ]
    [ "$(mics-show --json "$out-gathered.mp" | jq '.choice.resident_experts')" = null ]
    [ "$(mics-show --json "$out-resident.mp" | jq '.choice.resident_experts')" = true ]
    jq -s '[.[] | select(.loss and .step) | .loss]' "$out-gathered.jsonl" "$out-resident.jsonl" |
        jq -e 'length == 6 and all(range(3) as $i | .[$i] - .[$i + 3]; fabs < 1e-4)' >/dev/null
    mics-plan --like="$out-resident.mp" --strategy=mics:2 --no-history -o "$out-like.mp"
    [ "$(mics-show --json "$out-like.mp" | jq '.choice.resident_experts')" = true ]
    mics-plan "${options[@]}" --model=moe-nano --strategy=ddp --experts=auto --no-history -o "$out-auto.mp"
    [ "$(mics-show --json "$out-auto.mp" | jq '.choice.resident_experts')" = null ]
    while IFS='|' read -r model strategy why; do
        run --separate-stderr mics-plan "${options[@]}" --model="$model" --strategy="$strategy" --experts=resident -o "$out-no.mp"
        [ "$status" = 2 ]
        [[ $stderr == *"resident experts: $why"* ]]
        [ ! -e "$out-no.mp" ]
    done <<'END'
gpt2-nano|zero3|the model 'gpt2-nano' has no experts
moe-nano|ddp|strategy ddp does not cut parameters
moe-nano|2,4,4|their gradients are cut over 4 ranks, but their parameters over 2
END
    run --separate-stderr mics-plan "${options[@]}" --model=moe-nano --experts=some
    [ "$status" = 2 ]
    [[ $stderr == *"--experts: 'some': expected gathered, resident or auto"* ]]
}

@test "plans for GPUs have resident experts: their memory, a crossing, and a choice" {
    requires jq
    options=(--topology=p4d:4 --model=qwen3-30b-a3b --strategy=zero3 --seq=1024 --global-batch=64 --micro-batch=1 --no-history)
    field() { mics-show --json "$1" | jq -c "$2"; }
    mics-plan "${options[@]}" --balance-loss=sequence:0.01 --experts=auto -o "$out-auto.mp"
    for way in gathered resident; do
        mics-plan "${options[@]}" --balance-loss=sequence:0.01 --experts=$way -o "$out-$way.mp"
    done
    # The host reads the rows that 32 ranks have for 128 experts. NCCL has two communicators more, and none that gathers experts.
    [ "$(jq -n --argjson a "$(field "$out-resident.mp" .memory.pinned_bytes)" --argjson b "$(field "$out-gathered.mp" .memory.pinned_bytes)" \
        '$a - $b')" = $((32 * 129 * 4)) ]
    [ "$(field "$out-resident.mp" .memory.communicator_bytes)" -gt "$(field "$out-gathered.mp" .memory.communicator_bytes)" ]
    [ "$(field "$out-auto.mp" '.choice.resident_experts == true')" = \
        "$(field "$out-resident.mp" '.experts | .resident_step_s < 0.995 * .gathered_step_s')" ]
    mics-show "$out-resident.mp" | tr '\n' ' ' | grep -qE 'below about [0-9.]+ k? ?tokens .* up to a load of [0-9.]+\.'
    # The micro-batches of gathered experts leave no room for tokens that are sent.
    options=(--topology=p4d:4 --model=qwen3-30b-a3b --strategy=zero3 --seq=2048 --global-batch=512 --balance-loss=sequence:0.01 --no-history)
    for way in gathered resident; do mics-plan "${options[@]}" --experts=$way -o "$out-$way.mp"; done
    of() { field "$out-$1.mp" ".choice.$2"; }
    [ "$(of resident micro_batch)" -lt "$(of gathered micro_batch)" ]
    [ $(($(of resident micro_batch) * $(of resident micro_steps))) = $(($(of gathered micro_batch) * $(of gathered micro_steps))) ]
    # The row of the plan among the alternatives is that of the plan.
    [ "$(field "$out-resident.mp" '.predicted.step_s as $s | [.alternatives[] | select(.why == "") |
        .choice.resident_experts and .predicted.step_s == $s and .choice.micro_batch == '"$(of resident micro_batch)"']')" = '[true]' ]
    # Where gathered ones are better, both ways are compared with their micro-batches.
    fixed=("${options[@]:1}" --recompute=full --prefetch=1 --segments=4 --coalesce=1)
    mics-plan --topology=p4d:4 "${fixed[@]}" --experts=auto -o "$out-auto.mp"
    [ "$(of auto resident_experts) $(of auto micro_batch)" = "null $(of gathered micro_batch)" ]
    field "$out-auto.mp" '.topology | .device.memory_bytes *= 2' >"$out-large.mp"
    mics-plan "$out-large.mp" "${fixed[@]}" --experts=resident --micro-batch="$(of gathered micro_batch)" -o "$out-same.mp"
    [ "$(field "$out-auto.mp" '.experts | [.gathered_s, .resident_s]')" = "$(field "$out-same.mp" '.experts | [.gathered_s, .resident_s]')" ]
    run --separate-stderr mics-plan "${options[@]}" --recompute=full --prefetch=4 --segments=4 --coalesce=1 --experts=resident \
        --micro-batch="$(of gathered micro_batch)"
    [ "$status" = 4 ]
    [[ $stderr == *"resident experts need "*" more than the plan's memory limit, for tokens that are sent; a smaller --micro-batch needs less"* ]]
    # One round in buffers of its size: nothing is read.
    options=(--topology=p4d:4 --model=qwen3-30b-a3b --strategy=zero3 --seq=1024 --global-batch=64 --micro-batch=1 --no-history)
    for way in gathered resident; do mics-plan "${options[@]}" --experts=$way -o "$out-$way.mp"; done
    mics-plan "${options[@]}" --experts=resident --capacity=1 -o "$out-one.mp"
    [ "$(field "$out-one.mp" .memory.pinned_bytes)" = "$(field "$out-gathered.mp" .memory.pinned_bytes)" ]
    [ "$(field "$out-one.mp" .memory.arena_bytes)" -lt "$(field "$out-resident.mp" .memory.arena_bytes)" ]
    mics-show --tsv "$out-one.mp" | grep -qP '^dispatch_rounds\t1$'
}

@test "the load that is expected of routers decides between gathered and resident experts, and what it was is in metrics" {
    requires mpi:4 jq
    options=(--topology='node:2 gpu:2 flops:1T mem:16G membw:100GB/s link:20GB/s,3us net:1gbit,30us' --model=moe-nano
        --global-batch=16 --seq=32 --dtype=f32 --micro-batch=1 --strategy=zero3 --no-history)
    field() { mics-show --json "$1" | jq -r "$2"; }
    for load in 1 1.2 2 4; do
        mics-plan "${options[@]}" --experts=resident --expert-load=$load -o "$out-$load.mp"
        [ "$(field "$out-$load.mp" '.choice.expert_load == .experts.load and .experts.resident_step_s == .predicted.step_s')" = true ]
        field "$out-$load.mp" .predicted.step_s >>"$out-steps"
    done
    # More rows to compute in the only round, then two rounds, then four, which are all that there can be.
    sort -g -c -u "$out-steps"
    [ "$(field "$out-1.mp" '.experts | .even_step_s == .resident_step_s and .worst_load == 4')" = true ]
    [ "$(field "$out-4.mp" '.experts | .worst_step_s == .resident_step_s')" = true ]
    for load in 1 1.2 2 4; do mics-show --tsv "$out-$load.mp" | grep -oP '^dispatch_rounds_expected\t\K.*'; done | paste -sd' ' | grep -qx '1 1 2 4'
    # Between those the step is as long as with gathered experts.
    [ "$(field "$out-1.mp" '.experts | .even_step_s < .gathered_step_s and .gathered_step_s < .worst_step_s and
        .crossing_load > 1 and .crossing_load < 4')" = true ]
    crossing=$(field "$out-1.mp" .experts.crossing_load)
    mics-show "$out-1.mp" | tr '\n' ' ' | grep -qE "at the most, 4 times the mean: they are faster up to a load of $(printf %.2g "$crossing")\\."
    for factor in 0.9 1.1; do
        mics-plan "${options[@]}" --experts=auto --expert-load="$(jq -n "$crossing * $factor")" -o "$out-auto-$factor.mp"
    done
    [ "$(field "$out-auto-0.9.mp" .choice.resident_experts)" = true ]
    [ "$(field "$out-auto-1.1.mp" '.choice.resident_experts, .choice.expert_load' | paste -sd' ')" = 'null null' ]
    # Without the option the load depends on whether a loss balances experts. More than all rows cannot go to one rank.
    mics-plan "${options[@]}" --experts=resident -o "$out-free.mp"
    mics-plan "${options[@]}" --experts=resident --balance-loss=sequence:0.01 -o "$out-balanced.mp"
    mics-plan "${options[@]}" --experts=resident --expert-load=100 -o "$out-most.mp"
    for name in free balanced most; do field "$out-$name.mp" .choice.expert_load; done | paste -sd' ' | grep -qxE '2(.0)? 1.25 4(.0)?'
    mics-plan --like="$out-1.mp" --no-history -o "$out-like.mp"
    [ "$(field "$out-like.mp" .choice.expert_load)" = "$(field "$out-1.mp" .choice.expert_load)" ]
    run --separate-stderr mics-plan "${options[@]}" --expert-load=2
    [ "$status" = 2 ]
    [[ $stderr == *"--expert-load goes with --experts=resident and --experts=auto"* ]]
    run --separate-stderr mics-plan "${options[@]}" --experts=auto --expert-load=0.5
    [ "$status" = 2 ]
    mpi 4 mics-train -q -p "$out-1.mp" --data="$root/man/*.1" --val-every=0 --sample=0 --steps=2 --seed=1 \
        --out="$out-run" --metrics="$out-run.jsonl"
    jq -se '[.[] | select(.event == "step")] | length == 2 and all(.rank_load >= 1 and .rank_load <= .expert_load)' "$out-run.jsonl"
    mics-show --tsv "$out-run.jsonl" | grep -qP '^rank_load\t'
}

@test "experts with a capacity drop the same rows in both ways and on any number of ranks, and metrics say how many" {
    requires mpi:4 jq
    options=(--model=moe-nano --global-batch=8 --seq=32 --dtype=f32 --micro-batch=1 --no-history)
    plan=(mics-plan "${options[@]}" --topology='node:2 gpu:2' --strategy=zero3)
    train=(mics-train --data="$root/man/*.1" --val-every=0 --sample=0 --seed=1 --log-every=1)
    for way in gathered resident; do
        "${plan[@]}" --experts=$way --capacity=1 -o "$out-$way.mp"
        mpi 4 "${train[@]}" --steps=3 -p "$out-$way.mp" --out="$out-$way" --metrics="$out-$way.jsonl" >"$out-$way.log"
    done
    mics-plan "${options[@]}" --topology='node:1 gpu:1' --capacity=1 -o "$out-one.mp"
    MICS_NODE_RANKS=1 "${train[@]}" --steps=3 -p "$out-one.mp" --out="$out-one" --metrics="$out-one.jsonl" >"$out-one.log"
    jq -s 'map(select(.event == "step"))' "$out-gathered.jsonl" "$out-resident.jsonl" "$out-one.jsonl" >"$out-steps"
    jq -e 'length == 9 and ([range(3) as $i | (.[$i], .[$i + 3]).loss - .[$i + 6].loss] | all(fabs < 1e-4)) and
        .[0].dropped_share == .[3].dropped_share and .[0].dropped_share == .[6].dropped_share and
        all(.dropped_share > 0.02 and .dropped_share < 0.9)' "$out-steps"
    grep -qE ' load +entropy +dropped$' "$out-one.log"
    grep -qE ' [0-9]+\.[0-9] %$' "$out-one.log"
    mics-show --tsv "$out-one.jsonl" | grep -qP '^dropped_share\t'
    # 8 rows of even loads, 4 experts of 8 rows on the other ranks: one round, in smaller buffers.
    mics-show "$out-resident.mp" | grep -q '^capacity  *an expert takes up to 8 rows of a rank.s micro-batch, 1 times those of even loads, and drops the rest$'
    "${plan[@]}" --experts=resident -o "$out-all.mp"
    [ "$(mics-show --tsv "$out-resident.mp" | grep -oP '^dispatch_rounds\t\K.*')" = 1 ]
    [ "$(mics-show --tsv "$out-all.mp" | grep -oP '^dispatch_rounds\t\K.*')" = 4 ]
    [ "$(mics-show --json "$out-resident.mp" | jq .memory.arena_bytes)" -lt "$(mics-show --json "$out-all.mp" | jq .memory.arena_bytes)" ]
    [ "$(mics-show --json "$out-resident.mp" | jq '.model.expert_capacity == 1')" = true ]
    mics-plan "${options[@]}" --topology='node:1 gpu:1' --capacity=0.25 -o "$out-few.mp"
    MICS_NODE_RANKS=1 run --separate-stderr "${train[@]}" --steps=2 -p "$out-few.mp" --out="$out-few"
    [ "$status" = 0 ]
    [ "$(grep -c 'step 1: experts dropped [0-9]* % of their rows: a --capacity of 0.25 is too small for a load this uneven' <<<"$stderr")" = 1 ]
    [[ $stderr != *"step 2"* ]]
    MICS_NODE_RANKS=1 run --separate-stderr "${train[@]}" -q --steps=2 -p "$out-one.mp" --init="$out-few" --out="$out-no"
    [ "$status" = 2 ]
    [[ $stderr == *"--init="*": experts of the plan drop rows (--capacity=1), which is for training from the first step on"* ]]
    # A resumed run keeps its capacity; samples drop nothing, as those of a folder that has none.
    mics-plan "${options[@]}" --topology='node:1 gpu:1' -o "$out-none.mp"
    MICS_NODE_RANKS=1 run --separate-stderr "${train[@]}" -p "$out-none.mp" --resume="$out-few" --steps=3 --out="$out-few"
    [ "$status" = 3 ]
    [[ $stderr == *"the checkpoint's model has expert_capacity (mics-plan --capacity) 0.25, the plan's none"* ]]
    MICS_NODE_RANKS=1 "${train[@]}" -q --steps=30 -p "$out-few.mp" --out="$out-long"
    mics-shard merge "$out-long" -o "$out-hf" >/dev/null
    for model in "$out-long" "$out-hf"; do
        mics-sample "$model" --tokenizer=bytes --prompt='the quick brown fox jumps over' --temperature=1 --max-tokens=200 --json |
            jq -c .ids >>"$out-samples"
    done
    [ "$(wc -l <"$out-samples")" = 2 ]
    [ "$(sort -u "$out-samples" | wc -l)" = 1 ]
    run --separate-stderr mics-plan --topology='node:1' --model=gpt2-nano --capacity=1
    [ "$status" = 2 ]
    [[ $stderr == *"--capacity: 'gpt2-nano' has no experts"* ]]
    run --separate-stderr mics-plan --like="$out-one.mp" --capacity=2
    [ "$status" = 2 ]
}
