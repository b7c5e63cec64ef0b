#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-plan: topology in, plan out; what fits, what does not, and invalid options.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR"
}

# A number in the plan's tables, by name.
field() # name file
{
    awk -F '\t' -v name="$1" '$1 == name { print $2; exit }' "$2"
}

nano() # more options
{
    mics-plan --topology='node:2 gpu:2 flops:200G mem:4G membw:10GB/s link:5GB/s,2us net:1gbit,50us' \
        --model=gpt2-nano --global-batch=8 --seq=256 "$@"
}

# What a mistaken command line says: a line of the message after the program's name.
says() # message command...
{
    local message=$1
    shift
    run --separate-stderr "$@"
    [ "$status" -gt 0 ]
    [ "${stderr_lines[0]}" = "$message" ] || { echo "${stderr_lines[0]}"; return 1; }
}

@test "plan: writes a document that mics-show prints" {
    nano >plan.mp
    run mics-show plan.mp
    [ "$status" = 0 ]
    grep -qE '^strategy ' <<<"$output"
    grep -qE 'chosen$' <<<"$output"
    mics-show --json plan.mp >plan.json
    grep -q '"kind": "mics.plan"' plan.json
}

@test "plan: reads a topology from a file or standard input, as msgpack or JSON" {
    nano --json -o plan.json
    python3 -c 'import json; json.dump(json.load(open("plan.json"))["topology"], open("topology.json", "w"))'
    mics-plan --model=gpt2-nano --no-history topology.json >a.mp
    mics-plan --model=gpt2-nano --no-history <topology.json >b.mp
    mics-plan --model=gpt2-nano --no-history - <topology.json >c.mp
    cmp a.mp b.mp
    cmp b.mp c.mp
}

@test "plan: a preset takes precedence over a file or folder of its name, with a warning" {
    mkdir gpt2-nano
    run -0 --separate-stderr nano --tsv
    [ "$stderr" = "mics-plan: model 'gpt2-nano': taking the preset; write ./gpt2-nano for the folder" ]
    with=$output
    echo '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 256, "vocab_size": 257}' \
        >gpt2-nano/config.json
    run -0 --separate-stderr nano --tsv --model=./gpt2-nano
    [ -z "$stderr" ]
    [ "$output" != "$with" ]
    run -0 --separate-stderr nano --tsv -q
    [ -z "$stderr" ]

    mv gpt2-nano/config.json . && rmdir gpt2-nano && mv config.json gpt2-nano
    run -0 --separate-stderr nano --tsv
    [ "$stderr" = "mics-plan: model 'gpt2-nano': taking the preset; write ./gpt2-nano for the file" ]
    [ "$output" = "$with" ]
    rm gpt2-nano
    run -0 --separate-stderr nano --tsv
    [ -z "$stderr" ]
    [ "$output" = "$with" ]
}

@test "plan: an unknown model is refused with similar ones, and too much memory is warned of" {
    run --separate-stderr mics-plan --topology=p4d:1 --model=gpt2-xxl -o plan.mp
    one_line_and_code 2
    [[ $stderr == *"--model: unknown model 'gpt2-xxl'; did you mean gpt2-xl, gpt2? All: mics-plan --list-models" ]]
    run --separate-stderr mics-plan --topology=p4d:1 --model=zzz -o plan.mp
    one_line_and_code 2
    [[ $stderr == *"--model: unknown model 'zzz'; all: mics-plan --list-models" ]]
    [ ! -e plan.mp ]
    run -0 --separate-stderr mics-plan --topology=p4d:1 --model=gpt2-nano --memory=80G -o plan.mp
    [ "$stderr" = 'mics-plan: --memory: 80 GiB is more than the 39.5 GiB of a rank in the topology' ]
}

@test "plan: computation and exposed communication are no more than the step" {
    mics-plan --topology=p4d:4 --model=gpt2-large --global-batch=256 --strategy=8,8,16 --json |
        jq -e '.predicted | .compute_s + .exposed_s <= 1.0001 * .step_s and .exposed_s > 0'
}

@test "plan: equal commands write equal documents" {
    nano >a.mp
    nano >b.mp
    cmp a.mp b.mp
}

@test "plan: less memory gives larger groups, until nothing fits: exit 4 and by how much" {
    last=1
    for p in 1 2 4; do # each just too large for the group before
        nano --strategy="mics:$p" --micro-batch=1 --recompute=none --prefetch=0 --tsv >one
        limit=$(field total one)
        nano --strategy=mics --micro-batch=1 --recompute=none --prefetch=0 --memory="$limit" --tsv >plan
        [ "$(field total plan)" -le "$limit" ]
        [ "$(field p_param plan)" -ge "$last" ]
        last=$(field p_param plan)
    done
    [ "$last" -gt 1 ]
    run --separate-stderr nano --memory=18M
    one_line_and_code 4
    [[ $stderr == *"no plan fits 18 MiB per rank"*" more; "* ]]
    [ "$output" = "" ]
}

@test "plan: a partition group is chosen where p = 1 does not fit" {
    nano --strategy=ddp --micro-batch=1 --recompute=none --tsv >ddp
    limit=$(($(field total ddp) - 1))
    nano --micro-batch=1 --recompute=none --memory=$limit --tsv >plan
    grep -qE '^ddp.*needs .* more$' plan
    [ "$(field p_optim plan)" -gt 1 ]
}

@test "plan: every strategy can be requested by name" {
    for want in ddp:1:1:1 zero1:1:1:4 zero2:1:4:4 zero3:4:4:4 mics:2:2:2; do
        IFS=: read -r name param grad optim <<<"$want"
        strategy=$name
        if [ "$name" = mics ]; then strategy=mics:2; fi
        nano --strategy="$strategy" --tsv >plan
        [ "$(field strategy plan)" = "$name" ]
        [ "$(field p_param plan) $(field p_grad plan) $(field p_optim plan)" = "$param $grad $optim" ]
    done
}

@test "plan: options are in the plan" {
    nano --micro-batch=1 --recompute=full --optimizer=sgd --prefetch=3 --no-clip --strategy=zero3 --tsv >plan
    [ "$(field micro_batch plan)" = 1 ]
    [ "$(field micro_steps plan)" = 2 ]
    [ "$(field recompute plan)" = full ]
    [ "$(field optimizer plan)" = sgd ]
    [ "$(field prefetch plan)" = 3 ]
    [ "$(field clip plan)" = 0 ]
    nano --optimizer=lion --no-clip --strategy=zero3 --tsv >lion
    nano --optimizer=sgd --no-clip --strategy=zero3 --tsv >sgd
    [ "$(field optimizer lion)" = lion ]
    [ "$(field 'optimizer shards' lion)" = "$(field 'optimizer shards' sgd)" ]
}

@test "plan: each level of recomputation saves memory, and auto chooses one that fits" {
    last=0
    for level in full selective none; do
        nano --micro-batch=2 --strategy=zero3 --prefetch=0 --hierarchical=off --recompute=$level --tsv >$level
        [ "$(field recompute $level)" = $level ]
        [ "$(field activations $level)" -gt "$last" ]
        last=$(field activations $level)
        nano --micro-batch=2 --strategy=zero3 --prefetch=0 --hierarchical=off --memory="$(field total $level)" --tsv >auto
        [ "$(field recompute auto)" = $level ]
    done
    nano --recompute=selective | mics-show | grep -q '^activations  *kept until backward, norms and GELU or SwiGLU recomputed'
}

@test "plan: a plan of another version, or with an unknown level of recomputation, is refused" {
    nano --json -o new.json
    jq '.v = 1' new.json >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    [[ $stderr == *"'mics.plan' of version 1: this mics reads version 2" ]]
    jq '.choice.recompute = "some"' new.json >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    [[ $stderr == *"choice.recompute: 'some': expected none, selective or full" ]]
    jq '.choice.recompute = true' new.json >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    [[ $stderr == *"choice.recompute: "* ]]
}

@test "plan: --launch prints the command for both launchers, and -o writes the plan" {
    run --separate-stderr nano --launch=mpirun
    [ "$output" = "mpirun -n 4 --map-by ppr:2:node mics-train -p plan.mp --data=FILES" ]
    run --separate-stderr nano --launch=srun -o "my plan.mp"
    [[ $output == "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 "*" --mpi=pmix mics-train -p 'my plan.mp' --data=FILES" ]]
    mics-show "my plan.mp" >/dev/null
}

@test "plan: --trace writes the predicted timeline, whose events do not overlap" {
    nano --strategy=zero3 --trace=trace.json -o plan.mp
    run -0 jq -r '[.traceEvents[] | select(.ph == "X")] | length' trace.json
    [ "$output" -gt 30 ]
    run -0 jq -r '[.traceEvents[] | select(.ph == "X")] | group_by(.tid)[] | sort_by(.ts)
        | [.[:-1], .[1:]] | transpose[] | select(.[0].ts + .[0].dur > .[1].ts + 0.0005)
        | select(.[0].ts + .[0].dur + 0.0005 < .[1].ts + .[1].dur) | .[1].name' trace.json # they may nest
    [ "$output" = "" ]
    run -1 nano --trace=none/trace.json -o plan.mp
}

@test "plan: --schedule prints one line per operation" {
    nano --strategy=zero3 --schedule >schedule
    [ "$(awk '$2 == "forward"' schedule | wc -l)" = 6 ]
    [ "$(awk '$2 == "backward"' schedule | wc -l)" = 5 ]
    [ "$(awk '$2 == "update"' schedule | wc -l)" = 5 ]
    grep -qE ' gather +gather_(net|node)' schedule
}

# Run a command on a terminal of so many columns.
on_terminal() # columns command...
{
    local columns=$1
    shift
    TERM=dumb script -qec "stty cols $columns; $(printf '%q ' "$@")" /dev/null | tr -d '\r'
}

@test "plan: on a terminal the table of alternatives fits its width, and 80 columns at least" {
    type script || skip 'no script'
    for columns in 40 80 100 160; do
        on_terminal $columns mics-plan --topology=p4d.24xlarge:64 --model=llama3-70b --global-batch=2048 --seq=4096 >out
        awk '/^fits +batch/, /^MFU/' out >table
        [ "$(wc -l <table)" -gt 5 ]
        least=$((columns < 80 ? 80 : columns))
        [ "$(awk '{ if (length > most) most = length } END { print most }' table)" -le $least ]
        grep -q '^does not fit ' out
    done
    grep -q 'against the plan$' out # the widest form has reasons
}

@test "plan: the reasons for the plan are in its tables" {
    nano >plan.mp
    mics-show plan.mp | tr '\n' ' ' | grep -q 'take .* of a step of .* with computation\.'
    nano --tsv | grep -qE '^reasons	.*\. .*\.$'
    seven() { mics-plan --topology=p4d.24xlarge:1 --model=llama2-7b --seq=1024 --micro-batch=1 --recompute=full --tsv "$@"; }
    seven --strategy=mics:8 >eight
    seven --strategy=mics --memory="$(field total eight)" >plan
    [ "$(field p_param plan)" = 8 ]
    grep -qE '^reasons	8 ranks are the fewest that hold one copy of the state: 4 ranks would need .* more each\. ' plan
}

@test "plan: --tsv has all alternatives with all figures" {
    nano --tsv >plan
    columns=$(awk -F '\t' '$1 == "strategy" && NF > 2 { print NF }' plan)
    [ "$columns" -ge 20 ]
    awk -F '\t' -v n="$columns" '/^strategy\tp_param/ { on = 1; next } on && NF != n { exit 1 }' plan
    [ "$(grep -c 'chosen$' plan)" = 1 ]
    awk -F '\t' '$NF == "chosen"' plan | awk -F '\t' '{ exit !($14 == 1 && $15 == 0 && $17 > 0 && $18 > 0 && $18 < 1) }'
    for key in mfu mfu_flops_per_s net_bytes; do [ -n "$(field $key plan)" ]; done
}

@test "plan: --tokens gives time and GPU-hours, --price the price, in tables and in the document" {
    nano --tokens=300M --price='USD 2.50' -o plan.mp
    mics-show --json plan.mp >plan.json
    jq -e '.training.tokens == 300000000 and .training.currency == "USD" and .training.node_hour_price == 2.5' plan.json
    jq -e '(.training.seconds - .training.tokens / .predicted.tokens_per_s | fabs) < 1e-6 * .training.seconds' plan.json
    jq -e '(.training.rank_hours - .training.seconds / 3600 * 4 | fabs) < 1e-9 * .training.rank_hours' plan.json
    jq -e '(.training.price - .training.seconds / 3600 * 2 * 2.5 | fabs) < 1e-9 * .training.price' plan.json
    mics-show plan.mp >table
    grep -qE '^time for 300 M tokens +[0-9.]+ (hours?|days)$' table
    grep -qE '^GPU-hours +[0-9.,]+$' table
    grep -qE '^price at 2.5 USD per node-hour +[0-9.,]+ USD$' table
    mics-show --tsv plan.mp >tsv
    [ "$(field currency tsv)" = USD ]
    [ "$(field tokens tsv)" = 300000000 ]
    mics-show --json plan.json | cmp - plan.json
    for price in 2.5 2.5USD '$2.5' '2.5 EUR'; do nano --tokens=1T --price="$price" -o plan.mp; done
    mics-show plan.mp | grep -qE '^time for 1 T tokens +[0-9.]+ days$'
    nano --json | jq -e 'has("training") | not'
}

@test "plan: counts of tokens and prices that are none are refused" {
    for bad in --tokens=0 --tokens=3GiB --tokens=x --tokens=-1 --price=0 --price=-1 --price=USD --price=1USD2 \
        --price=1.2.3 --price=1abcdefghijklm $'--price=1\xff'; do
        run --separate-stderr nano --tokens=1G "$bad"
        [ "$status" = 2 ]
        [[ ${stderr_lines[0]} == "mics-plan: ${bad%%=*}: '"* ]]
    done
    run --separate-stderr nano --price=1
    [ "$status" = 2 ]
    [ "${stderr_lines[0]}" = 'mics-plan: --price goes with --tokens' ]
}

@test "plan: damaged costs and times of operations in a plan are refused" {
    nano --tokens=1G --price=1 --json -o plan.json
    for edit in '.training.tokens = 0' '.training.node_hour_price = "1"' 'del(.training.currency)' \
        '.operations.net_s = -1' 'del(.operations.classes)' 'del(.operations)'; do
        jq "$edit" plan.json >bad.json
        run --separate-stderr mics-show bad.json
        one_line_and_code 3
    done
}

@test "plan: steps and rates are predicted with a range, which the document explains" {
    nano -o plan.mp
    mics-show --tsv plan.mp >tsv
    mics-show --json plan.mp >plan.json
    jq -e '.range.step_low_s < .predicted.step_s and .predicted.step_s < .range.step_high_s and
        .range.tokens_per_s_low < .predicted.tokens_per_s and
        .predicted.tokens_per_s < .range.tokens_per_s_high and
        (.range.errors | keys) == ["compute", "net", "node"] and
        all(.range.errors[]; .low < 1 and .high > 1 and .source == "assumed")' plan.json
    for name in step_low_s step_high_s tokens_per_s_low tokens_per_s_high; do
        awk -v a="$(field $name tsv)" -v b="$(jq .range.$name plan.json)" \
            'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-6 * b) ^ 2) }'
    done
    mics-show plan.mp >shown
    grep -qE '^predicted step +[0-9.]+ m?s, [0-9.]+ to [0-9.]+$' shown
    grep -qE '^tokens per second +[0-9.]+( k)?, [0-9.]+ to [0-9.]+$' shown

    # GPUs of the catalogue have the errors of published runs; eager PyTorch a wider one
    for profile in mics pytorch; do
        mics-plan --model=gpt2 --topology=p4d:2 --global-batch=64 --profile=$profile --json -o $profile.json
        jq -e 'all(.range.errors[]; .source == "published")' $profile.json
    done
    jq -es '.[0].range.errors.compute.high < .[1].range.errors.compute.high' mics.json pytorch.json
    # one rank has no collectives
    mics-plan --model=gpt2 --topology='node:1 gpu:1' --global-batch=8 --json | jq -e '.range.errors | keys == ["compute"]'

    # a plan of an older version has none, and is shown without; a damaged one is refused
    jq 'del(.range)' plan.json >old.json
    mics-show old.json | grep -qE '^predicted step +[0-9.]+ m?s$'
    for edit in '.range.step_low_s = 0' '.range.step_high_s = .range.step_low_s / 2' 'del(.range.errors)' \
        '.range.errors.net.source = "guessed"' '.range.errors.net.low = 1.5'; do
        jq "$edit" plan.json >bad.json
        run --separate-stderr mics-show bad.json
        one_line_and_code 3
    done
}

@test "plan: --check goes with a plan only, and needs the metrics of a run" {
    for other in --model=gpt2-nano --topology=node:1 -ox --schedule --tokens=1G; do
        run --separate-stderr mics-plan --check=run "$other"
        [ "$status" = 2 ]
        [[ ${stderr_lines[0]} == 'mics-plan: --check only goes with a plan, --json and --tsv' ]]
    done
    run --separate-stderr mics-plan --check=run a b
    [ "$status" = 2 ]
    run --separate-stderr mics-plan --check=run
    one_line_and_code 1
    mkdir run
    run --separate-stderr mics-plan --check=run
    one_line_and_code 1
    echo nonsense >run/metrics.jsonl
    nano -o run/plan.mp
    run --separate-stderr mics-plan --check=run
    one_line_and_code 3
    [[ $stderr == "mics-plan: run/metrics.jsonl: line 1"* ]]
}

@test "plan: --model accepts a config.json" {
    mkdir mine
    cat >mine/config.json <<-'END'
	{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 500,
	 "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
	END
    mics-plan --topology='node:1 gpu:2' --model=mine --json >plan.json
    grep -q '"name": "mine"' plan.json
    mics-plan --topology='node:1 gpu:2' --model=mine/config.json >/dev/null
}

@test "plan: --profile=pytorch is slower, is in the plan, and says what it assumes" {
    plan() { mics-plan --topology=p5.48xlarge --model=gpt2-xl --global-batch=64 --strategy=zero1 --micro-batch=8 "$@"; }
    plan --tsv >mics
    plan --profile=pytorch -o eager.mp
    mics-show --tsv eager.mp >eager
    awk -v a="$(field tokens_per_s mics)" -v b="$(field tokens_per_s eager)" 'BEGIN { exit !(b < 0.8 * a && b > 0.6 * a) }'
    [ "$(field profile eager)" = "eager PyTorch at 0.72 of fused kernels" ]
    [ "$(field attention eager)" = "at FlashAttention-2's rates, not measured" ]
    run ! grep -q '^profile' mics
    mics-show --json eager.mp | grep -q '"profile": "pytorch"'
    run --separate-stderr nano --profile=jax
    [ "$status" = 2 ]
    [[ ${stderr_lines[0]} == "mics-plan: --profile: 'jax': expected mics or pytorch" ]]
    mics-probe --topology='node:1' --json --no-history | sed 's/"name": "synthetic",$/"name": "host",/' >host.json
    run --separate-stderr mics-plan --model=gpt2-nano --profile=pytorch host.json
    one_line_and_code 2
    [[ $stderr == "mics-plan: --profile: pytorch is known for GPUs only"* ]]
}

@test "plan: fp32 on a GPU has its own rate, TF32 only with MICS_TF32=1" {
    plan() { mics-plan --topology=p4de.24xlarge --model=gpt2-xl --global-batch=64 --strategy=zero1 --micro-batch=8 --tsv "$@"; }
    plan >bf16
    plan --dtype=f32 >f32
    MICS_TF32=1 plan --dtype=f32 >tf32
    awk -v a="$(field compute_s bf16)" -v b="$(field compute_s tf32)" -v c="$(field compute_s f32)" \
        'BEGIN { exit !(b > 1.3 * a && c > 3 * b) }'
}

@test "plan: a GPU with fp16 but no bf16 is planned in fp16, and what fp16 cannot do in fp32, with a warning" {
    run --separate-stderr mics-plan --topology=p3dn.24xlarge --model=gpt2 --tsv
    [ "$status" = 0 ] && [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == "mics-plan: NVIDIA V100 32GB has compute capability 7.0, on which mics-train does not run"*"plan with --for" ]]
    [[ $output == *"dtype"$'\t'"f16"* ]]
    echo "$output" >f16
    for option in --dtype=f32 --no-clip --for=torchtitan; do
        run --separate-stderr mics-plan --topology=p3dn.24xlarge --model=gpt2 --tsv $option
        [ "$status" = 0 ]
        [[ $stderr == *"mics-plan: NVIDIA V100 32GB multiplies 16-bit matrices in fp16"*"planned in f32"* ]]
    done
    run -0 mics-plan --topology=p3dn.24xlarge --model=gpt2 --tsv --dtype=f32
    echo "$output" >f32
    awk -v half="$(field compute_s f16)" -v full="$(field compute_s f32)" 'BEGIN { exit !(full > 2 * half) }'
}

@test "plan: predictions agree with published throughput" {
    run "$BATS_TEST_DIRNAME/../../bench/plan/published" "$MICS_BUILD"
    echo "$output"
    [ "$status" = 0 ]
    [ "$(grep -c '^| llm.c ' <<<"$output")" = 5 ]
    [ "$(grep -c '^| llmq ' <<<"$output")" = 6 ]
    [ "$(grep -c '^| NVIDIA | bert-large ' <<<"$output")" = 5 ]
}

@test "plan: a topology's rates of a GPU are checked" {
    mics-probe --topology=p5.48xlarge --json --no-history >p5.json
    for bad in 's/"sms": 132/"sms": 0/=device.gpu_rates.sms' 's/"H100",/"K80",/=device.gpu_rates.attention' \
        's/"bf16_flops_per_s": 7/"bf16_flops_per_s": -7/=device.gpu_rates.bf16_flops_per_s'; do
        sed "${bad%=*}" p5.json >bad.json
        run --separate-stderr mics-plan --model=gpt2 bad.json
        one_line_and_code 3
        [[ $stderr == *"${bad##*=}: "* ]]
    done
}

# 3 s are asked, and measured by bench/run on an idle machine; here cores may be shared with others.
@test "plan: the whole space of a thousand nodes is searched in seconds" {
    (
        ulimit -t 12
        mics-plan --topology=p4d.24xlarge:1024 --model="$root/bench/plan/gpt-100b.json" --seq=2048 --global-batch=32768 -o plan.mp
    )
    mics-show plan.mp | grep -q '8192'
}

@test "plan: a sequence longer than the model's positions exits 2" {
    run --separate-stderr mics-plan --topology='node:1' --model=gpt2-nano --seq=257
    one_line_and_code 2
    [[ $stderr == *"sequence of 257: the model has 256 positions" ]]
}

@test "plan: a batch that is not a multiple of the ranks exits 2 with the closest multiples" {
    run --separate-stderr nano --global-batch=10
    one_line_and_code 2
    [[ $stderr == *"8 and 12 are" ]]
    run --separate-stderr nano --global-batch=4 --micro-batch=3
    one_line_and_code 2
    [[ $stderr == *"the least is 12" ]]
}

@test "plan: segments, coalescing, hierarchy and a triple of group sizes can be requested" {
    plan_two=(mics-plan --topology=p4d.24xlarge:2 --model=gpt2)
    "${plan_two[@]}" --strategy=zero3 --segments=3 --coalesce=2 --hierarchical=on --tsv >plan
    [ "$(field segments plan) $(field joined plan)" = "3 1" ]
    [ "$(field hierarchical_gather plan) $(field hierarchical_reduce plan)" = "1 1" ]
    "${plan_two[@]}" --strategy=2,4,8 --hierarchical=off --tsv >plan
    [ "$(field strategy plan) $(field p_param plan) $(field p_grad plan) $(field p_optim plan)" = "custom 2 4 8" ]
    "${plan_two[@]}" --strategy=1,16,16 --tsv >plan
    [ "$(field strategy plan)" = zero2 ]
    for bad in --segments=65 --coalesce=9 --sync-interval={0,-1,65,often} --hierarchical=yes --strategy=2,3,8 --strategy=2,4; do
        run --separate-stderr "${plan_two[@]}" "$bad"
        [ "$status" = 2 ]
    done
}

@test "plan: an interval of the second hop is in the plan if it is not 1, and sends less" {
    slow=(mics-plan --topology='node:4 gpu:2 flops:1T link:10GB/s net:1gbit' --model=gpt2-nano --strategy=mics:2)
    "${slow[@]}" --json -o exact.json
    "${slow[@]}" --sync-interval=1 --json -o one.json
    "${slow[@]}" --sync-interval=4 --json -o four.json
    jq -e '.choice | has("sync_interval") | not' one.json
    cmp <(jq -S 'del(.history)' exact.json) <(jq -S 'del(.history)' one.json)
    jq -e '.choice.sync_interval == 4 and .choice.sync_warmup == 100' four.json
    "${slow[@]}" --sync-interval=4 --sync-warmup=0 --json | jq -e '.choice | has("sync_warmup") | not'
    mics-plan --like=four.json --json | jq -e '.choice.sync_warmup == 100'
    for bad in --sync-warmup=9 '--sync-warmup=x --sync-interval=4'; do
        # shellcheck disable=SC2086 # two words
        run --separate-stderr -2 "${slow[@]}" $bad
    done
    jq -se '.[1].predicted.step_s < 0.6 * .[0].predicted.step_s' exact.json four.json
    jq -se '.[1].predicted.net_bytes / .[0].predicted.net_bytes | . > 0.24 and . < 0.26' exact.json four.json
    jq -se '.[0].memory == .[1].memory' exact.json four.json
    mics-show four.json | grep -q 'in every 4 steps, in turn'
    for bad in 1 65 '"often"'; do
        jq ".choice.sync_interval = $bad" four.json >bad.json
        run --separate-stderr mics-show bad.json
        [ "$status" = 3 ]
        [[ $stderr == *choice.sync_interval* ]]
    done
    # Automatically: as few as hide it, up to 16; none for one group, which has no second hop.
    mics-plan --topology=p4d.24xlarge:2 --model=gpt2 --strategy=zero3 --sync-interval=auto --json |
        jq -e '.choice | has("sync_interval") | not'
    "${slow[@]}" --sync-interval=auto --json | jq -e '.choice.sync_interval > 1 and .choice.sync_interval <= 16'
}

@test "plan: if nothing fits, the message says what would, and that does fit" {
    run --separate-stderr mics-plan --topology=p4d.24xlarge:1 --model=llama3-8b --seq=8192 --recompute=none \
        --micro-batch=4 --global-batch=32
    one_line_and_code 4
    [[ $stderr =~ "it fits with --recompute=full, or --seq="([0-9]+) ]]
    for way in --recompute=full "--recompute=none --seq=${BASH_REMATCH[1]}"; do
        # shellcheck disable=SC2086
        mics-plan --topology=p4d.24xlarge:1 --model=llama3-8b --seq=8192 --micro-batch=4 --global-batch=32 $way >plan.mp
    done
    run --separate-stderr mics-plan --topology=p4d.24xlarge:2 --model=llama3-70b
    one_line_and_code 4
    [[ $stderr =~ "it fits with "([0-9]+)" such nodes" ]]
    mics-plan --topology="p4d.24xlarge:${BASH_REMATCH[1]}" --model=llama3-70b >plan.mp
    run mics-plan --topology="p4d.24xlarge:$((BASH_REMATCH[1] - 1))" --model=llama3-70b
    [ "$status" = 4 ]
}

@test "plan: invalid values exit 2 with the option's name" {
    for bad in --global-batch=0 --micro-batch=x --seq=-1 --memory=12Q --memory=0 --recompute=some --optimizer=adam \
        --prefetch=99999999 --launch=ssh; do
        run --separate-stderr nano "$bad"
        [ "$status" = 2 ]
        [[ ${stderr_lines[0]} == "mics-plan: ${bad%%=*}: "* ]]
    done
    run --separate-stderr nano --recompute=some
    [[ ${stderr_lines[0]} == "mics-plan: --recompute: 'some': expected auto, none, selective or full" ]]
    for bad in --strategy=fsdp --strategy=mics:3 --strategy=mics: --model=gpt9 --topology=p99; do
        run --separate-stderr nano "$bad"
        [ "$status" = 2 ]
        [[ ${stderr_lines[0]} == "mics-plan: "*"${bad%%=*}"* || ${stderr_lines[0]} == "mics-plan: strategy: "* ]]
    done
}

@test "plan: --list-models lists every model by name, and each can be planned with" {
    run -0 --separate-stderr mics-plan --list-models --tsv
    [ "${lines[0]}" = 'model	parameters	layers	width	vocabulary	positions' ]
    [ "${lines[4]}" = 'gpt2	124439808	12	768	50257	1024' ]
    [ "${#lines[@]}" -gt 20 ]
    run --separate-stderr mics-plan --list-models dgx-h100:1
    [ "$status" = 2 ]
    run --separate-stderr mics-plan --list-models --json
    [ "$status" = 2 ]
}

@test "plan: a message says what is wrong and what to type instead" {
    cd "$BATS_TEST_TMPDIR"
    says "mics-plan: --model: unknown model 'gpt-2'; did you mean gpt2? All: mics-plan --list-models" \
        mics-plan --model=gpt-2 --topology=dgx-h100:1
    says "mics-plan: --model: 'meta-llama/Llama-2-7b-hf': no such file or folder; models are not downloaded. By name, there is llama2-7b" \
        mics-plan --model=meta-llama/Llama-2-7b-hf --topology=dgx-h100:1
    printf '\xf8\0\0\0\0\0\0\0{}' >model.safetensors
    says "mics-plan: --model: 'model.safetensors' has weights; give its folder or its config.json" \
        mics-plan --model=model.safetensors --topology=dgx-h100:1
    says "mics-plan: --memory: '16' means 16 bytes; did you mean 16G?" \
        mics-plan --model=gpt2 --topology=dgx-h100:1 --memory=16
    says "mics-plan: --global-batch=1099511627776 is too large: at most 8388608 sequences here" \
        mics-plan --model=gpt2 --topology=dgx-h100:1 --micro-batch=1 --global-batch=1099511627776
    says "mics-plan: unknown option '--modle'; did you mean --model?" mics-plan --modle=gpt2
    says "mics-plan: --global-batch=1000000000000 is too large: at most 19922944 sequences fit here" \
        mics-plan --model=gpt2-nano --topology='node:1 gpu:1' --global-batch=1000000000000
    says "mics-shard: unknown command 'merg'; did you mean merge?" mics-shard merg a b
    says "mics-data: unknown command 'trian'; did you mean train?" mics-data trian
    says "mics-train: unexpected argument 'plan.mp'; plans go with -p, file patterns in quotes" \
        mics-train --data=text plan.mp
    says "mics-train: --trace-steps: '9-2': the last step comes before the first" \
        mics-train --data=text --trace=t --trace-steps=9-2
    says "mics-probe: unexpected argument 'node:1'; a description goes with --topology" \
        mics-probe node:1
    says "mics-lab: put '--' before the program: mics-lab run -- mics-probe" mics-lab run mics-probe
    says "mics-lab: unknown option '--nods'; did you mean --nodes?" mics-lab --nods=3
}

@test "plan: no model, two topologies, or both --topology and a file exit 2" {
    run --separate-stderr mics-plan --topology='node:1'
    [ "$status" = 2 ]
    [[ ${stderr_lines[0]} == "mics-plan: --model is missing; --list-models lists names" ]]
    run --separate-stderr mics-plan --model=gpt2-nano a b
    [ "$status" = 2 ]
    run --separate-stderr nano a
    [ "$status" = 2 ]
}

@test "plan: a document of another kind exits 3 and names the kind" {
    nano >plan.mp
    run --separate-stderr mics-plan --model=gpt2-nano plan.mp
    one_line_and_code 3
    [[ $stderr == "mics-plan: plan.mp: "*"mics.plan"* ]]
    printf '{"kind":"mics.topology","v":1' >cut.json
    run --separate-stderr mics-plan --model=gpt2-nano cut.json
    one_line_and_code 3
    run --separate-stderr mics-plan --model=gpt2-nano </dev/null
    one_line_and_code 3
    [[ $stderr == *"standard input"* ]]
}

@test "plan: a missing file and a full disk exit 1" {
    run --separate-stderr mics-plan --model=gpt2-nano missing.mp
    one_line_and_code 1
    run --separate-stderr bash -c 'mics-plan --topology=node:1 --model=gpt2-nano >/dev/full'
    one_line_and_code 1
}

@test "plan: inconsistent figures in a plan are refused" {
    nano --json -o plan.json
    sed 's/"arena_bytes": [0-9]*/"arena_bytes": 4096/' plan.json >lie.json
    run --separate-stderr mics-show lie.json
    one_line_and_code 3
    [[ $stderr == *"memory.arena_bytes: says 4096, but this choice takes "* ]]
}

@test "plan: the history has the topology's commands before the plan's" {
    nano --json -o plan.json
    [ "$(grep -c '"program": "mics-plan"' plan.json)" = 1 ]
    nano --json --no-history >none.json
    [ "$(grep -c '"program"' none.json)" = 0 ]
}

@test "plan: bf16 halves parameters and activations and adds a master; --grad-dtype sets the type of communicated gradients" {
    for types in 'f32 f32' 'bf16 bf16' 'bf16 f32' 'f32 bf16'; do
        nano --strategy=mics:2 --micro-batch=1 --recompute=none --prefetch=1 --dtype="${types% *}" \
            --grad-dtype="${types#* }" --tsv >"${types/ /-}"
        [ "$(field dtype "${types/ /-}") $(field grad_dtype "${types/ /-}")" = "$types" ]
    done
    for region in 'parameter shards' 'gathered parameters'; do # up to the page that regions end at
        more=$((2 * $(field "$region" bf16-bf16) - $(field "$region" f32-f32)))
        [ "$more" -ge 0 ] && [ "$more" -le 4096 ]
    done
    [ "$(field 'gradient shards' bf16-bf16)" = "$(field 'gradient shards' f32-f32)" ]
    [ "$(field 'gradients to reduce' bf16-f32)" = "$(field 'gradients to reduce' f32-f32)" ]
    [ "$(field 'gradients to reduce' f32-bf16)" = "$(field 'gradients to reduce' bf16-bf16)" ]
    # m, v and the master against m and v, up to the alignment of regions
    more=$((2 * $(field 'optimizer shards' bf16-bf16) - 3 * $(field 'optimizer shards' f32-f32)))
    [ "$more" -ge -12288 ] && [ "$more" -le 12288 ]
    # half the bytes are sent, except by the two sums of the whole step
    full=$(field sent_bytes f32-f32) half=$(field sent_bytes bf16-bf16)
    [ $((2 * half - full)) -ge 0 ] && [ $((2 * half - full)) -lt 100 ]
}

@test "plan: the default type is bf16 where the topology's FLOP/s are in bf16, else fp32" {
    mics-plan --topology=p4d.24xlarge:2 --model=gpt2-xl --tsv >gpu
    [ "$(field dtype gpu) $(field grad_dtype gpu)" = 'bf16 bf16' ]
    mics-plan --topology='node:1 gpu:2 dtype:f32' --model=gpt2-nano --grad-dtype=bf16 --tsv >host
    [ "$(field dtype host) $(field grad_dtype host)" = 'f32 bf16' ]
    run -2 mics-plan --topology=p4d.24xlarge:2 --model=gpt2-xl --dtype=f8
    [[ $output == *"'f8': expected f32, bf16 or fp16"* ]]
}

@test "plan: a plan without types, with unknown ones or with those of another memory is refused" {
    nano --dtype=f32 --json -o plan.json
    python3 - <<'PY'
import json
plan = json.load(open("plan.json"))
del plan["choice"]["dtype"]
json.dump(plan, open("without.json", "w"))
plan["choice"]["dtype"] = "bf16"
json.dump(plan, open("other.json", "w"))
plan["choice"]["dtype"] = "f64"
json.dump(plan, open("wrong.json", "w"))
PY
    run -3 mics-show without.json
    [[ $output == *'choice.dtype'* ]]
    run -3 mics-show other.json
    [[ $output == *'but this choice takes'* ]]
    run -3 mics-show wrong.json
    [[ $output == *"choice.dtype: 'f64': expected f32, bf16 or f16"* ]]
}

# A plan for one node of eight A100.
on_gpu() # options...
{
    mics-plan --topology=p4d --model=gpt2 --global-batch=8 --seq=128 --strategy=zero3 --micro-batch=1 --recompute=none \
        --prefetch=1 "$@"
}

@test "plan: the context, the workspace and NCCL's communicators of a GPU are rows of the memory table" {
    on_gpu --tsv >plan
    [ "$(field context plan)" = $((640 << 20)) ]
    [ "$(field workspace plan)" = $((32 << 20)) ]
    [ "$(field communicators plan)" = $(((385 + 724 + 2 * 436) << 20)) ] # code; 24 channels: all ranks, gathers, reductions
    [ "$(field memory plan)" = $(((40960 - 512) << 20)) ]
    [ "$(field limit plan)" = "$(awk 'BEGIN { m = (40960 - 512) * 2^20; printf "%.0f", m - int(0.03 * m) }')" ]
    sum=$(($(field arena plan) + $(field context plan) + $(field workspace plan) + $(field communicators plan)))
    [ "$(field total plan)" = "$sum" ]
    on_gpu -o plan.mp
    mics-show plan.mp >table
    grep -qE '^\+ CUDA context and modules +640 MiB' table
    grep -qE "^\+ cuBLASLt's workspace +32 MiB" table
    grep -qE "^\+ NCCL's communicators +1.93 GiB" table
}

@test "plan: the context and communicators count against the memory limit" {
    on_gpu --tsv >plan
    total=$(field total plan)
    on_gpu --memory="$total" -o fits.mp
    run --separate-stderr on_gpu --memory=$((total - (1 << 20)))
    one_line_and_code 4
    [[ $stderr == *" with micro-batch 1 and recompute none needs "*", 1 MiB more; it fits with "* ]]
    run --separate-stderr on_gpu --memory="$(($(field arena plan) + $(field workspace plan)))"
    one_line_and_code 4
    [[ $stderr == *", 2.56 GiB more; no shorter sequence and no number of such nodes is enough" ]] # 640 + 385 + 724 + 872 MiB
}

@test "plan: a warning says where one node is as fast as several" {
    on=(--model=gpt2 --global-batch=64 --seq=1024 -o plan.mp)
    run -0 --separate-stderr mics-plan --topology='node:2 gpu:8xRTX4090-24 eth:1gbit' "${on[@]}"
    [[ $stderr =~ ^'mics-plan: one node alone would not be slower: 0.'[0-9]+' times the step of 2 nodes' ]]
    # measured: with the names of hosts, and collectives of groups on one node and on both
    jq '.topology | .hosts = ["a", "b"] | .bad_nodes = [] | .collectives = [(1, 2) as $nodes |
        {collective: "all_gather", nodes: $nodes, per_node: 8, latency_s: 1e-5, bandwidth_bytes_per_s: (3e9 / (1e3 * $nodes - 999)),
         samples: 9, spread: 0.1}]' <(mics-show --json plan.mp) >topo.json
    run -0 --separate-stderr mics-plan "${on[@]}" topo.json
    [[ $stderr == *'one node alone would not be slower: 0.'* ]]
    for enough in 'node:2 gpu:8xRTX4090-24 roce:100gbit' 'node:1 gpu:8xRTX4090-24'; do
        run -0 --separate-stderr mics-plan --topology="$enough" "${on[@]}"
        [ -z "$stderr" ]
    done
}

@test "plan: --headroom leaves part of a GPU's memory free, 3 % unless told" {
    on_gpu --headroom=10 --tsv >plan
    [ "$(field limit plan)" = "$(awk 'BEGIN { m = (40960 - 512) * 2^20; printf "%.0f", m - int(0.1 * m) }')" ]
    on_gpu --headroom=0% --tsv >plan
    [ "$(field limit plan)" = $(((40960 - 512) << 20)) ]
    # a GPU that the plan fills
    on=(--model=gpt2-nano --seq=64 --global-batch=8 --micro-batch=1 --recompute=none)
    mics-plan --topology='node:1 gpu:2' "${on[@]}" --strategy=zero3 --prefetch=0 --segments=1 --coalesce=1 --tsv >nano
    run --separate-stderr mics-plan --topology="node:1 gpu:2 mem:$(field total nano)" "${on[@]}" --strategy=zero3 --prefetch=0
    one_line_and_code 4
    [[ $stderr == *"it fits with "*"--headroom=0"* ]]
    mics-plan --topology="node:1 gpu:2 mem:$(field total nano)" "${on[@]}" --strategy=zero3 --prefetch=0 --headroom=0 -o full.mp
    run -2 --separate-stderr on_gpu --headroom=3 --memory=20G
    [[ $stderr == *"--headroom is of the topology's memory, and excludes --memory"* ]]
    for bad in x -1 91 % ''; do
        run -2 --separate-stderr on_gpu --headroom=$bad
        [[ ${stderr_lines[0]} == "mics-plan: --headroom: "* ]]
    done
    mics-plan --topology='node:1' --model=gpt2-nano --global-batch=4 --seq=64 --json |
        jq '.topology | .device.name = "host" | .device.flops_dtype = "f32"' >host.json # has none
    mics-plan --headroom=20 --model=gpt2-nano --global-batch=4 --seq=64 --tsv host.json >plan
    [ "$(field limit plan)" = "$(jq .device.memory_bytes host.json)" ]
}

@test "plan: ranks that compute on a host have no context and no communicators of NCCL" {
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --global-batch=4 --seq=64 --json -o plan.json
    jq '.topology | .device.name = "host" | .device.flops_dtype = "f32"' plan.json >host.json
    mics-plan --model=gpt2-nano --global-batch=4 --seq=64 --tsv host.json >plan
    [ "$(field process plan)" = $(((16 << 20) + (2304 << 10))) ]
    [ "$(field workspace plan)" -lt $((2 << 20)) ]
    [ -z "$(field context plan)$(field communicators plan)" ]
    mics-plan --model=gpt2-nano --global-batch=4 --seq=64 --json host.json |
        jq -e '.memory | .context_bytes == 0 and .communicator_bytes == 0'
}

@test "plan: a host that multiplies bf16 in hardware is planned in bf16, with oneDNN in the process" {
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --global-batch=4 --seq=64 --json -o plan.json
    for type in f32 bf16; do
        jq --arg type $type '.topology | .device.name = "host" | .device.flops_dtype = $type' plan.json >host.json
        mics-plan --model=gpt2-nano --global-batch=4 --seq=64 --json host.json >$type.json
        [ "$(jq -r .choice.dtype $type.json)" = $type ]
    done
    [ "$(jq -s '.[1].memory.process_bytes - .[0].memory.process_bytes' f32.json bf16.json)" = $((24 << 20)) ]
}

@test "plan: the context and communicators of a plan must be those of its choice" {
    on_gpu --json --recompute=selective -o plan.json
    jq 'del(.memory.communicator_bytes)' plan.json >lacks.json
    run --separate-stderr mics-show lacks.json
    one_line_and_code 3
    [[ $stderr == *"memory.communicator_bytes"* ]]
    jq '.memory.context_bytes -= 1' plan.json >lies.json
    run --separate-stderr mics-show lies.json
    one_line_and_code 3
    [[ $stderr == *"memory.context_bytes: says 671088639, but this choice takes 671088640"* ]]
}

@test "--vocab: a model by name takes another vocabulary; others keep theirs" {
    cd "$BATS_TEST_TMPDIR"
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --vocab=2048 --global-batch=8 -o plan.mp
    mics-show --json plan.mp | grep -q '"vocab_size": *2048'
    run --separate-stderr mics-plan --topology='node:1 gpu:2' --model="$root/tests/reference/gpt2-tiny" --vocab=2048
    [ "$status" = 2 ]
    [[ $stderr == *"--vocab goes with a model by name"* ]]
}
