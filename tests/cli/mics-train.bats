#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-train: runs on several ranks, checkpoints, signals, and everything that can go wrong.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    export MICS_NODE_RANKS=2
}

teardown()
{
    end_job
    unmount_small_disk
}

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=4 --seq=32 --strategy=mics:2 --dtype=f32 >plan.mp
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=2 --seq=32 >one.mp
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=2 --seq=32 --no-clip --optimizer=sgd >sgd.mp
}

# Train on four ranks by the plan above, quietly and without a sample by default.
train() # options...
{
    mpi 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 "$@"
}

# A long run in the background: $job is the launcher.
begin_job() # options...
{
    mpirun -n 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 \
        --steps=5000 --out=run --metrics=m.jsonl -q "$@" >said 2>&1 3>&- &
    job=$!
}

# The process of the nth rank of the job.
process_of() # n
{
    pgrep -P "$job" mics-train | sed -n "$1p"
}

# End what a failed test left running.
end_job()
{
    local rank
    [ -n "${job:-}" ] || return 0
    for rank in $(pgrep -P "$job" mics-train); do kill -KILL "$rank"; done
    kill -KILL "$job" 2>/dev/null || true
}

# For tests that start programs of one rank themselves.
a_node_is_one_rank()
{
    export MICS_NODE_RANKS=1
}

# One rank.
one_rank() # options...
{
    MICS_NODE_RANKS=1 mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 "$@"
}

# The programs' messages, without those of the launcher.
said()
{
    grep '^mics-' <<<"$stderr"
}

# The job failed with this code, and one line of the programs has these words.
fails() # code words
{
    if [ "$status" != "$1" ] || [ "$(said | wc -l)" != 1 ] || [[ $(said) != *"$2"* ]]; then
        printf 'exit %s, not %s with "%s", saying:\n%s\n' "$status" "$1" "$2" "$stderr"
        return 1
    fi
}

same_numbers() # checkpoint checkpoint
{
    for file in "$1"/shard-*; do
        cmp "$file" "$2/${file##*/}"
    done
}

# Wait until a file has this line, at most 20 s.
wait_for() # file pattern
{
    for ((i = 0; i < 200; i++)); do
        if grep -q "$2" "$1" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "no '$2' in $1"
    return 1
}

@test "train: a run on four ranks learns, saves, and writes its metrics" {
    requires mpi:4
    train --steps=30 --out=run --metrics=m.jsonl --val-every=15 --sample=20 >out
    grep -q 'optimizer shards' out
    grep -q 'communication per step: .* exposed, .* hidden' out
    grep -q 'checkpoint: run/step-000030' out
    [ "$(grep -c '"event":"step"' m.jsonl)" = 30 ]
    [ "$(grep -c '"event":"val"' m.jsonl)" = 2 ]
    grep -q '"event":"end","step":30,"reason":"done"' m.jsonl
    head -1 m.jsonl | grep -q '"event":"run"'
    awk -F '[:,]' '/"step":1,/ { first = $6 } /"step":30,"loss"/ { last = $6 } END { exit !(last < first - 1) }' m.jsonl
    [ "$(readlink run/latest)" = step-000030 ]
    [ "$(find run/step-000030 -name 'shard-*' | wc -l)" = 4 ]
    mics-show run/latest >shown
    grep -q 'steps done *30' shown
    mics-show --history run/latest | grep -q 'mics-plan'
    mics-show --history run/latest | grep -q 'mics-train .*--steps=30'
}

@test "train: metrics and the plan are written into the run's folder, and mics-plan --check compares them" {
    requires mpi:4
    train --steps=12 --out=run -q
    [ "$(jq -s '[.[] | select(.event == "step")] | length' run/metrics.jsonl)" = 12 ]
    run -0 jq -sc '[.[] | select(.event == "operations") | .step]' run/metrics.jsonl
    [ "$output" = '[1,2,3,4,5,6,7,8,9,10]' ]
    # classes are parts of what the step's line has in total
    jq -se '([.[] | select(.event == "step") | {key: "\(.step)", value: .}] | from_entries) as $steps |
        [.[] | select(.event == "operations")] | all(.[]; $steps["\(.step)"] as $step | .operations as $of |
        ($of.classes | (.forward.busy_s + .backward.busy_s + .update.busy_s) * 1000 - $step.compute_ms | fabs) < 0.01
        and $of.net_exposed_s * 1000 < $step.exposed_ms + 0.01)' run/metrics.jsonl
    mics-show --tsv run/plan.mp >kept
    mics-show --tsv "$BATS_FILE_TMPDIR/plan.mp" | cmp - kept

    mics-plan --check=run >checked
    grep -q '^run/metrics.jsonl: done, steps 2 to 12; ' checked
    for row in time tokens/s 'memory of a rank' forward backward update gather_node sync_net 'network bandwidth of a node'; do
        grep -qE "^$row +[0-9.]+ " checked
    done
    grep -qE '^Off most: |^No assumption ' checked
    mics-plan --check=run/metrics.jsonl "$BATS_FILE_TMPDIR/plan.mp" | cmp - checked
    mics-show run >shown
    grep -qE '^state +done at step 12 of 12$' shown
    grep -q '^Predicted and measured, medians of steps 2 to 12:$' shown
    mics-show --json run | jq -e '.check.measured.step_s > 0 and .ends == 1'
    [ "$(mics-plan --check=run --tsv | awk -F '\t' '$1 == "worst"' | wc -l)" = 1 ]
    # the document has the numbers of the tables
    mics-plan --check=run --tsv >checked.tsv
    mics-plan --check=run --json | tee check.json | jq -r '"step_s\t\(.predicted.step_s)\t\(.measured.step_s)",
        (.assumptions | to_entries[] | "\(.key)\t\(.value.predicted)\t\(.value.measured)"),
        (.predicted.operations.classes.forward.busy_s as $p | "forward\t\($p)\t\(.measured.operations.classes.forward.busy_s)"),
        "worst\t\(.worst // "none")"' >members
    [ "$(wc -l <members)" -ge 6 ]
    while IFS=$'\t' read -r name predicted measured; do
        awk -F '\t' -v name="$name" -v p="$predicted" -v m="$measured" '
            function near(a, b) { return a == b || (a - b) ^ 2 <= (1e-6 * b) ^ 2 }
            $1 == name && near($2, p) && near($3, m) { found = 1 } END { exit !found }' checked.tsv
    done <members
    jq -e '.kind == "mics.plan_check" and .v == 1 and .state == "done" and .first_step == 2 and .last_step == 12 and
        .sampled_steps == 9' check.json
    mics-show check.json | grep -q 'mics.plan_check'
    # is the step inside the range?
    mics-show --json run/plan.mp >plan.json
    while read -r low high verdict words; do
        jq ".range.step_low_s = $low | .range.step_high_s = $high" plan.json >edited.json
        mics-plan --check=run edited.json | grep -qE "^The step is $words the predicted range: [0-9.]+ m?s, [0-9.e+-]+ to [0-9.e+-]+\\.$"
        [ "$(mics-plan --check=run --tsv edited.json | awk -F '\t' '$1 == "range" { print $4 }')" = "$verdict" ]
        [ "$(mics-plan --check=run --json edited.json | jq -r .range.verdict)" = "$verdict" ]
    done <<<$'1e-6 1e6 inside inside\n1e-6 2e-6 longer longer than\n1e5 1e6 shorter shorter than'
    jq 'del(.range)' plan.json >edited.json
    run ! grep -q 'predicted range' <(mics-plan --check=run edited.json)
    mics-plan --check=run --json edited.json | jq -e 'has("range") | not'
    run -3 --separate-stderr mics-plan --check=run "$BATS_FILE_TMPDIR/one.mp"
    [[ $stderr == "mics-plan: run/metrics.jsonl: of another plan: its "*", the plan's "* ]]

    train --resume=run --steps=14 --out=run -q
    [ "$(jq -s '[.[] | select(.event == "run")] | length' run/metrics.jsonl)" = 2 ]
    mics-plan --check=run | grep -q ': done, steps 14 to 14; '
}

@test "train: --metrics=none writes no metrics, and another file leaves the folder without them" {
    one_rank --steps=2 --out=run -q --metrics=none
    [ ! -e run/metrics.jsonl ] && [ ! -e none ]
    one_rank --steps=2 --out=other -q --metrics=m.jsonl
    [ -s m.jsonl ] && [ ! -e other/metrics.jsonl ]
    mics-plan --check=m.jsonl "$BATS_FILE_TMPDIR/one.mp" >checked
    run -1 --separate-stderr mics-plan --check=m.jsonl
    [[ $stderr == *"plan.mp: there is no plan; give it as the operand" ]]
}

@test "train: a running job can be checked" {
    requires mpi:4
    begin_job
    wait_for m.jsonl '"event":"operations","step":4,'
    mics-plan --check=m.jsonl "$BATS_FILE_TMPDIR/plan.mp" | grep -q '^m.jsonl: not ended, steps 2 to '
    kill -TERM "$(process_of 1)"
    wait "$job" || true
    mics-plan --check=m.jsonl "$BATS_FILE_TMPDIR/plan.mp" | grep -q '^m.jsonl: stopped, steps 2 to '
}

@test "train: an interrupted and resumed run equals an uninterrupted one bit for bit" {
    requires mpi:4
    train --steps=8 --out=whole -q
    train --steps=8 --out=parts --save-every=3 -q
    same_numbers whole/step-000008 parts/step-000008
    mkdir again
    cp -r parts/step-000003 again/
    ln -s step-000003 again/latest
    mpi 4 mics-train --resume=again --out=again --data="$BATS_FILE_TMPDIR/text" --sample=0 -q
    same_numbers whole/step-000008 again/step-000008
    [ "$(readlink again/latest)" = step-000008 ]
}

@test "train: SGD without clipping resumes bit for bit" {
    a_node_is_one_rank
    for out in whole parts; do
        mics-train -p "$BATS_FILE_TMPDIR/sgd.mp" --data="$BATS_FILE_TMPDIR/text" --steps=6 --lr=0.1 --sample=0 \
            --val-every=0 --save-every=2 --out=$out -q
    done
    rm -r parts/step-00000[46]
    mics-train --resume=parts/step-000002 --data="$BATS_FILE_TMPDIR/text" --sample=0 --out=parts -q
    same_numbers whole/step-000006 parts/step-000006
}

@test "train: the rate is stable, then decays; a lower one lowers its floor when resumed" {
    requires mpi:4 jq
    train --steps=10 --lr-schedule=wsd --lr-decay=4 --warmup=2 --save-every=5 --out=run -q
    rates() { jq -r 'select(.event == "step") | .lr * 1e6 | round' run/metrics.jsonl | tr '\n' ' '; }
    [ "$(rates)" = "1500 3000 3000 3000 3000 3000 1650 1091 662 300 " ]
    jq -se 'map(select(.event == "run"))[0].settings | .lr == 0.003 and .lr_decay == 4' run/metrics.jsonl
    rm run/metrics.jsonl
    train --resume=run/step-000005 --steps=8 --lr=1e-3 --out=run -q
    [ "$(rates)" = "364 221 100 " ]
    run --separate-stderr train --resume=run --steps=9 --min-lr=1e-2 --out=run -q
    fails 2 '--min-lr=0.01 exceeds --lr=0.001'
    run --separate-stderr train --lr-decay=3 --out=new -q
    fails 2 '--lr-decay: goes with --lr-schedule=wsd'
}

@test "train: Lion resumes bit for bit, in other groups too, and its momentum is not taken for SGD's" {
    plan() # optimizer ranks topology...
    {
        mics-plan --optimizer="$1" --model=gpt2-nano --global-batch=4 --seq=32 --dtype=bf16 "${@:3}" >"$1-$2.mp"
    }
    plan lion 4 --topology='node:2 gpu:2' --strategy=mics:2
    plan lion 2 --topology='node:1 gpu:2' --strategy=zero3
    plan sgd 2 --topology='node:1 gpu:2' --strategy=zero3
    for out in whole parts; do
        mpi 4 mics-train -p lion-4.mp --data="$BATS_FILE_TMPDIR/text" --steps=6 --lr=1e-3 --sample=0 --val-every=0 \
            --save-every=2 --out=$out -q
    done
    [ "$(mics-show --json whole/step-000002/manifest.mp | jq -c '[.states, .training.settings.beta2]')" = '[["param","m"],0.99]' ]
    rm -r parts/step-00000[46]
    mpi 4 mics-train --resume=parts/step-000002 --data="$BATS_FILE_TMPDIR/text" --sample=0 --out=parts -q
    same_numbers whole/step-000006 parts/step-000006

    mics-shard reshard whole/step-000002 -p lion-2.mp -o moved
    mics-shard diff whole/step-000002 moved
    mpi 2 mics-train -p lion-2.mp --resume=moved --data="$BATS_FILE_TMPDIR/text" --sample=0 --out=two -q
    [ "$(readlink two/latest)" = step-000006 ]

    run --separate-stderr mics-shard reshard whole/step-000002 -p sgd-2.mp -o wrong
    [ "$status" = 3 ]
    [ "$stderr" = 'mics-shard: whole/step-000002: is of Lion, the plan of SGD with momentum' ]
    run --separate-stderr mpi 2 mics-train -p sgd-2.mp --resume=moved --out=wrong --data="$BATS_FILE_TMPDIR/text"
    fails 3 'the checkpoint is of Lion, the plan of SGD with momentum'
}

@test "train: --resume=auto starts a new run, then continues it" {
    one_rank --resume=auto --steps=2 --out=run -q
    one_rank --resume=auto --steps=4 --out=run --log-every=1 >out
    grep -q 'resumed *run/latest, after step 2' out
    [ "$(readlink run/latest)" = step-000004 ]
    one_rank --resume=auto --steps=4 --out=run >out
    grep -q 'no steps left to train' out
}

@test "train: the CPU time of communication is printed with -v, traced and in the metrics" {
    run -0 train --steps=4 --out=run -v --sample=0 --trace=trace.json --trace-steps=2-3 --metrics=metrics.jsonl
    [[ $output =~ CPU\ time\ of\ communication\ per\ step:\ [0-9.]+\ ms\ \(own\ code ]]
    run -0 jq -c '[.traceEvents[] | select(.ph == "C") | .args | keys] | unique' trace.json
    [ "$output" = '[["kernel","mpi","own"]]' ]
    jq -se '[.[] | select(.event == "step" or .event == "end")]
        | all(.comm_cpu_own_ms >= 0 and .comm_cpu_mpi_ms >= 0 and .comm_cpu_kernel_ms >= 0)' metrics.jsonl
    jq -se '[.[] | select(.event == "step") | .comm_cpu_own_ms + .comm_cpu_mpi_ms + .comm_cpu_kernel_ms] | add > 0' \
        metrics.jsonl
}

@test "train: --trace writes the requested steps of every rank without overlaps" {
    train --steps=5 --out=run -q --trace=trace.json --trace-steps=2-3
    run -0 jq -c '[.traceEvents[] | select(.ph == "X") | .args.step] | unique' trace.json
    [ "$output" = "[2,3]" ]
    run -0 jq -c '[.traceEvents[] | select(.ph == "X") | .pid] | unique' trace.json
    [ "$output" = "[0,1,2,3,4]" ]
    run -0 jq -r '[.traceEvents[] | select(.ph == "M" and .name == "process_name") | .args.name][3]' trace.json
    [[ $output == "rank 3 on "*"#1" ]]
    run -0 jq -r '[.traceEvents[] | select(.ph == "M" and .name == "process_name") | .args.name][4]' trace.json
    [ "$output" = predicted ]
    run -0 jq -c '[.traceEvents[] | select(.ph == "X")] | group_by(.pid) | map(map([.name, .args.step]) | sort) | unique | length' trace.json
    [ "$output" = 1 ] # every rank and the prediction have the same operations
    run -0 jq -r '[.traceEvents[] | select(.ph == "X")] | group_by([.pid, .tid])[] | sort_by(.ts)
        | [.[:-1], .[1:]] | transpose[] | select(.[0].ts + .[0].dur > .[1].ts + 0.0005)
        | select(.[0].ts + .[0].dur + 0.0005 < .[1].ts + .[1].dur) | .[1].name' trace.json # they may nest
    [ "$output" = "" ]
    train --steps=5 --out=run2 -q --trace=last.json
    run -0 jq -c '[.traceEvents[] | select(.ph == "X") | .args.step] | unique' last.json
    [ "$output" = "[3,4,5]" ]
}

@test "train: memory and snapshot have the planned sizes" {
    train --steps=1 --out=run >said
    for member in arena:arena_bytes 'snapshot for checkpoints:snapshot_bytes'; do
        planned=$(mics-show --json "$BATS_FILE_TMPDIR/plan.mp" | jq ".memory.${member#*:}")
        grep -qE "^${member%:*} +$planned " said
    done
}

@test "train: the paced device takes the predicted time and computes and saves nothing" {
    mics-plan --topology='node:2 gpu:2 flops:2G' --model=gpt2-nano --global-batch=4 --seq=32 --strategy=mics:2 >slow.mp
    mpi 4 mics-train -p slow.mp --data="$BATS_FILE_TMPDIR/text" --device=paced --steps=4 --out=run -q --metrics=m.jsonl
    planned=$(mics-show --json slow.mp | jq '.predicted.compute_s * 1000')
    run -0 jq -s --argjson planned "$planned" '[.[] | select(.event == "step")] | length == 4 and
        all(.[]; .loss == 0 and .compute_ms >= 0.99 * $planned) and (map(.compute_ms) | min) < 1.5 * $planned' m.jsonl
    [ "$output" = true ]
    [ ! -e run/latest ]
}

@test "train: the paced device takes the times of another plan with the same operations" {
    mics-plan --topology='node:1 gpu:1 flops:4G' --model=gpt2-nano --global-batch=2 --seq=32 >other.mp
    one_rank --steps=2 --out=run -q --device=paced --pace=other.mp
    mics-plan --topology='node:1 gpu:1 flops:1G' --model=gpt2-micro --global-batch=2 --seq=32 >other.mp
    run -2 --separate-stderr one_rank --steps=2 --out=run -q --device=paced --pace=other.mp
    [[ $(said) == "mics-train: other.mp: its step has "*" operations, that of this plan has "* ]]
    run -2 mics-train --data=x -p x --pace=y
    run -2 mics-train --data=x -p x --device=paced --resume=auto
}

@test "train: a trace that cannot be written is an error with its path" {
    run -1 --separate-stderr train --steps=1 --out=run -q --trace=none/trace.json
    [[ $(said) == "mics-train: none/trace.json: "* ]]
    run -2 mics-train --data=x -p x --trace-steps=1-2
    run -2 mics-train --data=x -p x --trace=t --trace-steps=3-2
}

@test "train: the order of samples does not depend on the ranks" {
    requires mpi:4
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --micro-batch=2 --seq=32 --dtype=f32 >p1.mp
    train --steps=3 --out=four --metrics=four.jsonl -q
    MICS_NODE_RANKS=1 mics-train -p p1.mp --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --steps=3 --out=one \
        --metrics=one.jsonl -q
    paste <(sed -n 's/.*"step":[0-9]*,"loss":\([^,]*\).*/\1/p' four.jsonl) \
        <(sed -n 's/.*"step":[0-9]*,"loss":\([^,]*\).*/\1/p' one.jsonl) |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-4) exit 1; n++ } END { exit n != 3 }'
}

losses() # metrics
{
    sed -n 's/.*"event":"step","step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p' "$1"
}

@test "train: the sample is what mics-sample generates from the checkpoint" {
    requires mpi:4
    for strategy in zero3 mics:2 1,2,4; do
        mics-plan --topology='node:2 gpu:2' --model=llama-nano --global-batch=4 --seq=64 --strategy=$strategy >p.mp
        mpi 4 mics-train -p p.mp --data="$BATS_FILE_TMPDIR/text" --val-every=0 --steps=8 --lr=1e-2 --warmup=1 \
            --sample=50 --temperature=0 --out="run-$strategy" -q >out
        mics-sample "run-$strategy/latest" --prompt='' --temperature=0 --max-tokens=50 --ignore-end >want
        [ -s want ]
        tail -n +2 out | head -c 50 | cmp - <(head -c 50 want)
    done
    # More tokens than a sequence has: the older half is forgotten.
    train --steps=2 --sample=100 --out=run -q >out
    characters=$(tail -n +2 out | LC_ALL=C.UTF-8 wc -m)
    [ "$characters" -gt 64 ] && [ "$characters" -le 101 ]
}

# Losses of 12 steps in these types, within this of those in fp32.
follows_fp32() # dtype grad-dtype tolerance
{
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=8 --micro-batch=1 --seq=32 --strategy=mics:2 \
        --dtype="$1" --grad-dtype="$2" >other.mp
    mpi 4 mics-train -p other.mp --data="$BATS_FILE_TMPDIR/text" --val-every=6 --sample=20 --steps=12 --lr=1e-3 --warmup=2 \
        --overwrite --out="$1-$2" --metrics="$1-$2.jsonl" -q >said
    paste <(losses f32-f32.jsonl) <(losses "$1-$2.jsonl") >pairs
    awk -v most="$3" '{ d = $2 - $4; if (d < 0) d = -d; if (d > most * $2) exit 1; n++ } END { exit n != 12 }' pairs ||
        { cat pairs; return 1; }
}

@test "train: with bf16 parameters or gradients the loss follows that of fp32" {
    requires mpi:4
    follows_fp32 f32 f32 0
    follows_fp32 f32 bf16 0.005
    follows_fp32 bf16 f32 0.02
    follows_fp32 bf16 bf16 0.02
    # bf16 was computed: it is not the same
    run ! diff <(losses f32-f32.jsonl) <(losses bf16-bf16.jsonl)
}

@test "train: SIGTERM to one rank saves on all ranks and exits 75" {
    requires mpi:4
    begin_job
    wait_for m.jsonl '"step":3,'
    kill -TERM "$(process_of 3)"
    status=0
    wait "$job" || status=$?
    [ "$status" = 75 ]
    grep -q '"reason":"stopped"' m.jsonl
    [ -e run/latest/manifest.mp ]
    local step
    step=$(readlink run/latest)
    step=$((10#${step#step-}))
    run --separate-stderr train --resume=run --steps=$((step + 2)) --out=run -q
    [ "$status" = 0 ]
    [ "$((10#$(readlink run/latest | tr -dc 0-9)))" = $((step + 2)) ]
}

@test "train: SIGUSR1 saves and continues" {
    requires mpi:4
    begin_job
    wait_for m.jsonl '"step":3,'
    kill -USR1 "$job"
    wait_for m.jsonl '"event":"checkpoint"'
    local steps
    steps=$(grep -c '"event":"step"' m.jsonl)
    wait_for m.jsonl "\"step\":$((steps + 3)),"
    kill -TERM "$(process_of 1)"
    status=0
    wait "$job" || status=$?
    [ "$status" = 75 ]
    [ "$(grep -c '"event":"checkpoint"' m.jsonl)" = 2 ]
}

@test "train: a killed rank ends the job within seconds and leaves the last checkpoint intact" {
    requires mpi:4
    local begin
    begin_job --save-every=3
    wait_for m.jsonl '"event":"checkpoint","step":6'
    begin=$SECONDS
    kill -KILL "$(process_of 2)"
    status=0
    wait "$job" || status=$?
    [ "$status" != 0 ]
    [ $((SECONDS - begin)) -lt 30 ]
    run --separate-stderr train --resume=run --steps=3 --out=run -q
    [ "$status" = 0 ]
}

@test "train: a loss that is not finite ends the job with one line and keeps the checkpoint" {
    requires mpi:4
    train --steps=2 --out=run -q
    run --separate-stderr train --resume=run --out=run --steps=60 --lr=1e9 --warmup=0 --lr-schedule=constant -q
    fails 1 'training has diverged'
    [ "$(readlink run/latest)" = step-000002 ]
    [ "$(find run -name '*.tmp.*')" = "" ]
}

@test "train: a full disk is detected before anything is written" {
    requires mpi:4 root tmpfs
    small_disk 4m
    run --separate-stderr train --steps=1 --out=small/run -q --metrics=none
    fails 1 'no room for the checkpoint'
    [ "$(find small/run -mindepth 1)" = "" ]
}

@test "train: a disk that becomes full while saving keeps the previous checkpoint" {
    requires mpi:4 root tmpfs
    small_disk 24m
    train --steps=1 --out=small/run -q
    head -c 8M /dev/zero >small/big
    run --separate-stderr train --resume=auto --steps=2 --out=small/run -q
    fails 1 'small/run'
    [ "$(readlink small/run/latest)" = step-000001 ]
    [ "$(find small/run -name '*.tmp.*')" = "" ]
}

@test "train: a file that one rank cannot create fails all ranks and keeps the checkpoint" {
    requires mpi:4 root tmpfs
    small_disk 40m,nr_inodes=14
    train --steps=1 --out=small/run -q
    run --separate-stderr train --resume=auto --steps=2 --out=small/run -q
    fails 1 'shard-0000'
    [[ $(said) == *'No space left on device' ]]
    [ "$(readlink small/run/latest)" = step-000001 ]
    [ "$(find small/run -name '*.tmp.*')" = "" ]
}

@test "train: SIGTERM ends the job without saving if the ranks cannot agree" {
    requires mpi:4
    begin_job
    wait_for m.jsonl '"step":3,'
    kill -STOP "$(process_of 4)"
    kill -TERM "$(process_of 1)"
    status=0
    wait "$job" || status=$?
    [ "$status" = 1 ]
    grep -q '^mics-train: asked to stop, but the ranks could not agree in time: nothing saved$' said
    [ "$(find run -name 'step-*')" = "" ]
}

@test "train: standard output on a full disk ends the job" {
    a_node_is_one_rank
    run --separate-stderr bash -c 'mics-train "$@" >/dev/full' - -p "$BATS_FILE_TMPDIR/one.mp" \
        --data="$BATS_FILE_TMPDIR/text" --steps=2 --out=run
    fails 1 'standard output'
}

@test "train: metrics that cannot be opened end a run's first start, and are reported once at a later one" {
    a_node_is_one_rank
    touch file
    local option text
    for option in --metrics=/dev/full --tensorboard=file/tb --prometheus=none/m.prom; do
        run -1 --separate-stderr one_rank --steps=3 --out=run --sample=0 "$option"
        [ "${#stderr_lines[@]}" = 1 ]
        [ ! -e run/step-000003 ]
        text+="$stderr"$'\n'
    done
    [[ $text == "mics-train: metrics: /dev/full: No space left on device"$'\n'* ]]
    [[ $text == *"mics-train: TensorBoard: file/tb"* ]]
    [[ $text == *"mics-train: Prometheus: none/m.prom: No such file or directory"* ]]

    one_rank --steps=2 --out=run --sample=0
    run -0 --separate-stderr one_rank --steps=3 --out=run --resume=auto --metrics=/dev/full \
        --sample=0 --tensorboard=file/tb --prometheus=none/m.prom
    [ "${#stderr_lines[@]}" = 3 ]
    local goes_on='; training goes on, and it is tried again every 30 s'
    [ "${stderr_lines[0]}" = "mics-train: metrics: /dev/full: No space left on device$goes_on" ]
    [[ ${stderr_lines[1]} == "mics-train: TensorBoard: file/tb"*"$goes_on" ]]
    [ "${stderr_lines[2]}" = "mics-train: Prometheus: none/m.prom: No such file or directory$goes_on" ]
    [ -e run/step-000003 ]
}

@test "train: a step's line has epoch and time left; TensorBoard and Prometheus get its values" {
    a_node_is_one_rank
    one_rank --steps=4 --out=run --log-every=1 --val-every=2 --sample=0 --tensorboard=run/tb \
        --prometheus=m.prom >out
    grep -qE '^ +step +epoch +loss +lr +grad norm +ms +tokens/s +left$' out
    grep -qE '^ +4 +0[.][0-9]{3} +[0-9.]+ +[0-9.e-]+ +[0-9.]+ +[0-9.]+ +[0-9]+ +0:00$' out
    [ "$(grep -cE '^ +[0-9]+ +0[.]' out)" = 4 ]
    [ "$(awk '{ print length($0) }' out | sort -n | tail -n 1)" -lt 80 ]
    grep -q '^Predicted and measured, medians of steps 2 to 4:$' out
    grep -qE '^forward +[0-9.]+ [mu]?s +[0-9.]+ [mu]?s ' out
    set -- run/tb/events.out.tfevents.*
    [ $# = 1 ] && [ "$(grep -acE 'brain.Event:2' "$1")" -gt 0 ]
    [ "$(grep -aoE 'train/loss|val/loss' "$1" | sort | uniq -c | awk '{ print $1 }' | xargs)" = '4 2' ]
    local label
    label="{run=\"$(realpath run)\"}"
    grep -qxF "mics_train_step$label 4" m.prom
    grep -qxF "mics_train_finished$label 1" m.prom
    grep -qxF "mics_train_restarts_total$label 0" m.prom
    grep -qF "mics_train_info{run=\"$(realpath run)\",model=\"gpt2-nano\",job_id=\"\"" m.prom
    jq -e -s 'map(select(.event == "step"))[-1].loss' run/metrics.jsonl |
        awk '{ printf "%.4f\n", $1 }' >last
    grep -F "mics_train_loss$label" m.prom | awk '{ printf "%.4f\n", $2 }' | cmp - last
    one_rank --resume=run --steps=5 --out=run -q --sample=0 --tensorboard=run/tb --prometheus=m.prom
    grep -qxF "mics_train_restarts_total$label 1" m.prom
    set -- run/tb/events.out.tfevents.*
    [ $# = 2 ]
    run --separate-stderr one_rank --steps=1 --prometheus=m.txt
    [ "$status" = 2 ]
    [[ ${stderr_lines[0]} == "mics-train: --prometheus: 'm.txt': the textfile collector only reads files named *.prom" ]]
}

@test "train: mistakes about the plan and the number of ranks say what to type" {
    a_node_is_one_rank
    run --separate-stderr mics-train --data="$BATS_FILE_TMPDIR/text" --out=run </dev/null
    fails 3 'no plan on standard input; use -p FILE'
    run --separate-stderr one_rank --data='my file'
    fails 3 "'my' matches no file; write a blank in a file name as '\\ '"
    MICS_NODE_RANKS=2 run --separate-stderr mics-train -p "$BATS_FILE_TMPDIR/one.mp" \
        --data="$BATS_FILE_TMPDIR/text"
    fails 2 "this job has 1 rank, but MICS_NODE_RANKS=2 needs a multiple of 2: start it with 'mpirun -n 4'"
}

@test "train: a plan for other ranks is refused with both shapes" {
    requires mpi:4
    run --separate-stderr mpi 2 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --out=run
    fails 3 'the plan is for 4 ranks (nodes: 2 of 2), this job has 2 (nodes: 1 of 2)'
    MICS_NODE_RANKS=4 run --separate-stderr train --steps=1 --out=run
    fails 3 'the plan is for 4 ranks (nodes: 2 of 2), this job has 4 (nodes: 1 of 4)'
    [ ! -e run ]
}

@test "train: a checkpoint of another model is refused, naming what differs" {
    a_node_is_one_rank
    echo '{"model_type":"gpt2","vocab_size":257,"n_embd":128,"n_layer":2,"n_head":4,"n_positions":256}' >config.json
    mics-plan --topology='node:1 gpu:1' --model=config.json --global-batch=2 --seq=32 >small.mp
    one_rank --steps=1 --out=run -q
    run --separate-stderr mics-train -p small.mp --resume=run --out=run --data="$BATS_FILE_TMPDIR/text"
    fails 3 "the plan's"
    [[ $stderr == *'tensors are not the model'* ]]
    run --separate-stderr mics-train -p "$BATS_FILE_TMPDIR/sgd.mp" --clip=0 --resume=run --out=run --data="$BATS_FILE_TMPDIR/text"
    fails 3 'it is of AdamW'
}

@test "train: an option that the plan's optimizer ignores is refused, also when resuming" {
    a_node_is_one_rank
    local sgd=$BATS_FILE_TMPDIR/sgd.mp
    run --separate-stderr mics-train -p "$sgd" --beta1=0.5 --out=run --data="$BATS_FILE_TMPDIR/text"
    fails 2 "mics-train: --beta1: the plan's optimizer is sgd, which does not use it"
    [ ! -e run ]
    run --separate-stderr one_rank --momentum=0.5 --steps=1 --out=run -q
    fails 2 "mics-train: --momentum: the plan's optimizer is adamw, which does not use it"
    mics-train -p "$sgd" --momentum=0.5 --steps=1 --sample=0 --out=run -q --data="$BATS_FILE_TMPDIR/text"
    run --separate-stderr mics-train --resume=run --eps=1e-6 --steps=2 --out=run --data="$BATS_FILE_TMPDIR/text"
    fails 2 "mics-train: --eps: the plan's optimizer is sgd, which does not use it"
}

@test "train: input that is not a plan is refused" {
    a_node_is_one_rank
    printf 'x' >bad.mp
    run --separate-stderr mics-train -p bad.mp --data="$BATS_FILE_TMPDIR/text" --out=run
    fails 3 'bad.mp'
    head -c 200 "$BATS_FILE_TMPDIR/one.mp" >bad.mp
    run --separate-stderr mics-train -p bad.mp --data="$BATS_FILE_TMPDIR/text" --out=run
    fails 3 'bad.mp'
    run --separate-stderr mics-train -p none.mp --data="$BATS_FILE_TMPDIR/text" --out=run
    fails 1 'none.mp'
    mics-show --json "$BATS_FILE_TMPDIR/one.mp" | sed 's/"mics.plan"/"mics.topology"/' >bad.json
    run --separate-stderr mics-train -p bad.json --data="$BATS_FILE_TMPDIR/text" --out=run
    fails 3 'bad.json'
}

@test "train: a plan may come through a pipe, also as JSON" {
    requires mpi:4
    mics-show --json "$BATS_FILE_TMPDIR/plan.mp" |
        mpi 4 mics-train --data="$BATS_FILE_TMPDIR/text" --steps=1 --sample=0 --val-every=0 --out=run -q
    [ -e run/latest/manifest.mp ]
}

@test "train: missing and useless data are refused" {
    requires mpi:4
    : >empty
    printf 'short' >short
    run --separate-stderr train --data='nothing*' --out=run
    fails 3 "'nothing*' matches no file"
    run --separate-stderr one_rank --data=. --out=run
    fails 3 'is a folder'
    for file in empty short; do
        MICS_NODE_RANKS=1 run --separate-stderr mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data=$file --out=run
        [ "$status" = 3 ]
        [ "$(said | wc -l)" = 1 ]
    done
    [ ! -e run ]
}

@test "train: a vocabulary too small for bytes is refused" {
    a_node_is_one_rank
    echo '{"model_type":"gpt2","vocab_size":200,"n_embd":32,"n_layer":1,"n_head":2,"n_positions":64}' >config.json
    mics-plan --topology='node:1 gpu:1' --model=config.json --global-batch=1 --seq=32 >small.mp
    run --separate-stderr mics-train -p small.mp --data="$BATS_FILE_TMPDIR/text" --out=run
    fails 3 "token 256 (end of document) is outside the model's vocabulary of 200"
}

@test "train: an output folder that cannot be written is refused" {
    requires mpi:4
    : >file
    run --separate-stderr train --steps=1 --out=file/run
    fails 1 'file/run'
    run --separate-stderr train --steps=1 --out=/proc/run
    fails 1 '/proc/run'
}

@test "train: a new run does not touch the checkpoints of another" {
    one_rank --steps=1 --out=run -q
    run --separate-stderr one_rank --steps=1 --out=run -q
    fails 1 'run: has checkpoints already'
    one_rank --steps=1 --seed=2 --out=run --overwrite -q
    run --separate-stderr one_rank --resume=nowhere --out=run
    fails 3 "'nowhere' is no checkpoint: "
}

@test "train: two runs do not share a folder" {
    mkdir run
    flock run sleep 3 3>&- &
    sleep 0.5
    run --separate-stderr one_rank --steps=1 --out=run -q
    fails 1 'another run is using this folder'
    wait
}

@test "train: --keep leaves only the last checkpoints" {
    one_rank --steps=6 --save-every=1 --keep=2 --out=run -q
    [ "$(find run -maxdepth 1 -name 'step-*' | sort | tr '\n' ' ')" = "run/step-000005 run/step-000006 " ]
}

@test "train: --keep-every keeps every N-th checkpoint" {
    one_rank --steps=6 --save-every=1 --keep=1 --keep-every=4 --out=run -q
    [ "$(find run -maxdepth 1 -name 'step-*' | sort | tr '\n' ' ')" = "run/step-000004 run/step-000006 " ]
}

@test "train: a damaged checkpoint is refused by one line" {
    one_rank --steps=1 --out=run -q
    cp -r run bad
    printf '\1' | dd of=bad/step-000001/shard-00000.safetensors bs=1 seek=50000 conv=notrunc status=none
    run --separate-stderr one_rank --resume=bad --out=bad --steps=2
    fails 3 'bad/latest/shard-00000.safetensors: is damaged'
    truncate -s -1 bad/step-000001/shard-00000.safetensors
    run --separate-stderr one_rank --resume=bad --out=bad --steps=2
    fails 3 'bytes, the manifest says'
    rm bad/step-000001/shard-00000.safetensors
    run --separate-stderr one_rank --resume=bad --out=bad --steps=2
    fails 3 'No such file'
    truncate -s 100 bad/step-000001/manifest.mp
    run --separate-stderr one_rank --resume=bad --out=bad --steps=2
    fails 3 'bad/latest/manifest.mp'
}

@test "train: resuming on other data must be asked for" {
    a_node_is_one_rank
    one_rank --steps=1 --out=run -q
    cat "$BATS_FILE_TMPDIR/text" "$BATS_FILE_TMPDIR/text" >twice
    run --separate-stderr mics-train --resume=run --out=run --data=twice --steps=2 --sample=0
    fails 3 'trained on other data'
    mics-train --resume=run --out=run --data=twice --steps=2 --sample=0 --other-data -q
    [ "$(readlink run/latest)" = step-000002 ]
}

@test "train: data sets are blended, packed and masked, and a resume keeps that" {
    a_node_is_one_rank
    for i in $(seq 300); do echo "{\"prompt\": \"$i+$i=\", \"answer\": \"$((i + i))\"}"; done >sums.jsonl
    data="3:sums.jsonl 1:$BATS_FILE_TMPDIR/text"
    train_all=(mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$data" --pack=document --mask-prompt --sample=0 --val-every=2)
    "${train_all[@]}" --steps=6 --save-every=3 --out=whole -q
    mics-show --json whole/latest/manifest.mp >manifest.json
    [ "$(jq -c '.training.data | [.pack, .mask_prompt, .seed, .tokens, (.sources | map(.samples))]' manifest.json)" = \
        '["document",true,1,384,[9,3]]' ]
    [ "$(jq -c '.training.data.sources | map(.weight)' manifest.json)" = '[0.75,0.25]' ]
    mics-train --resume=whole/step-000003 --data="$data" --out=parts --sample=0 -q
    cmp whole/step-000006/shard-00000.safetensors parts/step-000006/shard-00000.safetensors
    for other in --pack=concat --seed=2 --val-fraction=0.2; do
        run --separate-stderr mics-train --resume=whole/step-000003 --data="$data" --out=parts "$other"
        fails 3 'whole/step-000003: trained '
    done
    sed -i 's/7+7=/7-7=/' sums.jsonl
    run --separate-stderr mics-train --resume=whole/step-000003 --data="$data" --out=parts
    fails 3 'trained on other data'
}

@test "train: what is wrong with a data set is said in one line" {
    a_node_is_one_rank
    printf '{"text": "%0100d"}\n{"words": 3}\n' 0 >bad.jsonl
    run --separate-stderr mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data=bad.jsonl --out=run
    fails 3 "data: 'bad.jsonl': line 2: no string \"text\""
    run --separate-stderr mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="0.5:bad.jsonl $BATS_FILE_TMPDIR/text" --out=run
    fails 3 'has no weight'
    head -c 4000 /dev/zero | tr '\0' '\377' >ids.bin
    run --separate-stderr mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data=ids --steps=1 --val-every=0 --out=run
    [ "$status" != 0 ]
    [[ "$stderr" = *ids.bin*65535* ]]
    [ ! -e run/latest ]
}

@test "train: a file that is truncated while in use is named" {
    a_node_is_one_rank
    for i in 1 2 3 4 5 6 7 8; do cat "$BATS_FILE_TMPDIR/text"; done >text
    mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data=text --val-every=0 --sample=0 --steps=5000 --out=run \
        --metrics=m.jsonl -q 2>err 3>&- &
    job=$!
    wait_for m.jsonl '"step":3,'
    : >text
    status=0
    wait "$job" || status=$?
    [ "$status" = 1 ]
    [ "$(cat err)" = "mics-train: data: 'text' was truncated while in use" ]
}

@test "train: mistakes on the command line exit 2 with a hint" {
    a_node_is_one_rank
    run --separate-stderr mics-train -p plan.mp
    usage_mistake mics-train
    for option in --steps=0 --lr=fast --clip=-1 --lr-schedule=square --device=abacus --save-every=x --sample=-1; do
        run --separate-stderr mics-train -p plan.mp --data=x $option
        usage_mistake mics-train
    done
    run --separate-stderr mics-train --data=x plan.mp
    usage_mistake mics-train
}

@test "train: host staging of all collectives changes no loss" {
    train --steps=4 --out=straight --metrics=straight.jsonl -q
    MICS_COMM=staged train --steps=4 --out=staged --metrics=staged.jsonl -q
    losses='select(.loss) | [.step, .loss, .grad_norm]'
    diff <(jq -c "$losses" straight.jsonl) <(jq -c "$losses" staged.jsonl)
    [ "$(jq -c "$losses" staged.jsonl | wc -l)" = 4 ]
}

@test "train: an unknown MICS_COMM is refused in one line" {
    MICS_COMM=fast run ! train --steps=1 --out=run -q
    [[ $output == *'MICS_COMM: expected "staged", found "fast"'* ]]
}

@test "train: a start that one rank does not join ends after the time-out with the phase" {
    requires mpi:2
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --global-batch=2 --seq=16 -o plan.mp
    # shellcheck disable=SC2016 # the ranks expand it
    run --separate-stderr timeout 60 mpirun -n 2 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec sleep 30; fi
        exec mics-train -p plan.mp --data=plan.mp --steps=1 --timeout=1'
    [ "$status" = 1 ]
    [[ $stderr == *"mics-train: no progress for 2 s before the first step: still joining the other ranks"* ]]
}
