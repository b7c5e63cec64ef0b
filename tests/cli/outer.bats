#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Outer steps: replicas train on their own and meet every few steps (mics-plan --outer-steps).

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    cat >config.json <<'END'
{"model_type":"gpt2","vocab_size":257,"n_embd":48,"n_layer":2,"n_head":4,"n_positions":32}
END
    plan 'node:2 gpu:2' mics:2 >exact.mp
    plan 'node:2 gpu:2' mics:2 --outer-steps=3 --sync-warmup=0 >outer.mp
    plan 'node:2 gpu:2' mics:2 --outer-steps=3 --sync-warmup=2 --outer-overlap --sync-dtype=int8 >overlap.mp
    if command -v mpirun >/dev/null; then
        on 4 2 outer.mp --steps=7 --out=whole --save-every=1
        on 4 2 overlap.mp --steps=7 --out=overlap --save-every=1
    fi
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    base=$BATS_FILE_TMPDIR
}

plan() # topology strategy options...
{
    mics-plan --topology="$1" --strategy="$2" --model="$BATS_FILE_TMPDIR/config.json" \
        --global-batch=8 --seq=32 --dtype=f32 "${@:3}"
}

on() # ranks ranks-of-a-node plan options...
{
    MICS_NODE_RANKS=$2 mpi "$1" mics-train -p "$3" --data="$BATS_FILE_TMPDIR/text" --val-every=0 \
        --sample=0 "${@:4}" 2>log
}

# A run that ended after this step.
part() # step [run]
{
    mkdir part
    cp -r "$base/${2-whole}/step-00000$1" part/
    ln -s "step-00000$1" part/latest
}

@test "outer: resumed at each inner step, a run is the one that was not interrupted, bit for bit" {
    requires mpi:4
    for step in 1 2 3 4 5 6; do
        part $step
        on 4 2 "$base/outer.mp" --resume=part --out=part --save-every=1
        for file in part/step-000007/shard-*; do
            cmp "$file" "$base/whole/step-000007/${file##*/}"
        done
        rm -r part
    done
}

# Checkpoints of steps 3 and 6 are made while their meetings would be exchanged.
@test "outer: meetings that overlap, and the first steps, resume bit for bit at each step" {
    requires mpi:4
    for step in 1 2 3 4 5 6; do
        part $step overlap
        on 4 2 "$base/overlap.mp" --resume=part --out=part --save-every=1
        for file in part/step-000007/shard-*; do
            cmp "$file" "$base/overlap/step-000007/${file##*/}"
        done
        rm -r part
    done
    on 4 2 "$base/overlap.mp" --steps=7 --out=seldom --save-every=4 >out
    mics-shard verify seldom/step-000007
    # Sent in the first 2 steps, and in 4 of the meeting at 3; that at 6 merges in 7.
    jq -se 'map(select(.event == "step").sync_bytes) | .[0] == .[1] and .[0] > 0 and .[2] < 200 and
        .[3] > 0.9 * .[0] and .[4] < 200 and .[5] < 200 and .[6] == .[3]' seldom/metrics.jsonl
    grep '^sent in second hops: .*; exact ones in every step would send ' out
    run -4 mics-shard diff seldom/step-000007 "$base/overlap/step-000007"
}

@test "outer: the first steps are those without outer steps" {
    requires mpi:4
    plan 'node:2 gpu:2' mics:2 --outer-steps=3 --outer-overlap --sync-warmup=4 >four.mp
    on 4 2 four.mp --steps=6 --out=four --metrics=four.jsonl
    on 4 2 "$base/exact.mp" --steps=6 --out=exact --metrics=exact.jsonl
    paste -d' ' <(sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\).*"grad_norm":\([^,]*\).*/\1 \2 \3/p' four.jsonl) \
        <(sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\).*"grad_norm":\([^,]*\).*/\2 \3/p' exact.jsonl) >both
    cat both
    awk '$1 <= 4 { n++; if (($2 - $4) ^ 2 > 1e-10 || ($3 - $5) ^ 2 > 1e-8) exit 1 } END { exit n != 4 }' both
    awk '$1 == 6 { exit $2 == $4 }' both
    # A checkpoint of these steps begins outer steps at its parameters, for plans with fewer of them.
    on 4 2 four.mp --steps=2 --out=two
    python3 - two/latest/shard-*.safetensors <<'END'
import json, struct, sys
checked = 0
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    def read(name):
        begin, end = header[name]["data_offsets"]
        return data[8 + size + begin:8 + size + end]
    for name in header:
        if name.endswith(".param"):
            unit = name[:-len(".param")]
            assert read(name) == read(unit + ".anchor"), unit
            assert not any(read(unit + ".outer_m")), unit
            checked += 1
assert checked >= 4
END
}

@test "outer: meetings that overlap are predicted to be faster, with one vector more" {
    local net='flops:100G mem:8G membw:10GB/s link:5GB/s,50us net:200mbit,200us' options
    for options in '' --outer-overlap '--outer-overlap --sync-dtype=int8'; do
        # shellcheck disable=SC2086 # several words
        mics-plan --model=gpt2-nano --global-batch=8 --seq=64 --micro-batch=1 --dtype=f32 \
            --strategy=mics:2 --topology="node:4 gpu:2 $net" --outer-steps=5 $options --json
    done | jq -se '.[0].choice.outer_overlap == null and .[1].choice.outer_overlap and
        .[0].choice.sync_warmup == 100 and
        .[1].predicted.step_s < 0.95 * .[0].predicted.step_s and
        .[1].predicted.exposed_s < 0.5 * .[0].predicted.exposed_s and
        .[1].predicted.net_bytes == .[0].predicted.net_bytes and
        .[2].predicted.step_s < .[1].predicted.step_s and
        (map(.memory.regions[] | select(.name == "optimizer shards").bytes) |
            .[1] / .[0] | . > 1.245 and . < 1.255)'
    mics-plan --like="$base/overlap.mp" --json |
        jq -e '.choice | .outer_overlap and .sync_warmup == 2'
    mics-show "$base/overlap.mp" | grep 'exchanged during the step after, and applied at its end'
    mics-show "$base/overlap.mp" | grep '2 steps with the second hop of all units'
}

@test "outer: validation, the last checkpoint and --eval are of the averaged parameters" {
    requires mpi:4
    cat "$BATS_TEST_DIRNAME"/../../docs/planning.md >held.txt
    plan 'node:1 gpu:1' ddp >one.mp
    local steps train=(--val-data=held.txt --val-every=4 --val-batches=100000 --lr-schedule=constant --warmup=1)
    for name in outer overlap; do
        # The longer run makes no checkpoint at step 4, and goes on with each replica's parameters.
        for steps in 4 5; do
            on 4 2 "$base/$name.mp" "${train[@]}" --steps=$steps --out="run-$steps" --metrics=$steps.jsonl
        done
        MICS_NODE_RANKS=1 mpi 1 mics-train --eval -p one.mp --init=run-4/latest --data=held.txt >said 2>log
        cat said 4.jsonl
        jq -r 'select(.event == "val" and .step == 4) | .loss' 4.jsonl 5.jsonl >losses
        [ "$(sort -u losses | wc -l)" = 1 ]
        awk -v of="$(sed 's/^loss \([0-9.]*\),.*/\1/' said)" \
            '{ d = $1 - of; if (d < 0) d = -d; if (d > 2e-5) exit 1 }' losses
        rm -r run-*
    done
}

# With the plan's options, in the middle of an outer phase or an interval: the run that resumes
# equals one that makes a checkpoint at the same step and goes on.
check_stop() # plan
{
    local job step status=0 train=(--lr-schedule=constant --warmup=1 --save-every=0)
    rm -rf run whole
    MICS_NODE_RANKS=2 mpirun -n 4 mics-train -p "$1" --data="$base/text" --val-every=0 --sample=0 \
        --steps=100000 --out=run -q "${train[@]}" >said 2>&1 3>&- &
    job=$!
    until grep -q '"step":5,' run/metrics.jsonl 2>/dev/null; do
        kill -0 "$job"
        sleep 0.1
    done
    kill -TERM "$(pgrep -P "$job" mics-train | sed -n 2p)"
    wait "$job" || status=$?
    [ "$status" = 75 ]
    step=$(readlink run/latest)
    step=$((10#${step#step-}))
    on 4 2 "$1" --resume=run --steps=$((step + 4)) --out=run "${train[@]}"
    on 4 2 "$1" --steps=$((step + 4)) --out=whole "${train[@]}" --save-every=$step
    cmp <(jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' run/metrics.jsonl) \
        <(jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' whole/metrics.jsonl)
    [ "$(grep -c '"event":"step"' whole/metrics.jsonl)" = $((step + 4)) ]
}

@test "outer: stopped by a signal between two meetings, a run resumes with equal losses" {
    requires mpi:4
    plan 'node:2 gpu:2' mics:2 --outer-steps=7 --sync-warmup=2 >seven.mp
    check_stop seven.mp
    check_stop "$base/overlap.mp"
}

@test "outer: stopped by a signal in the middle of an interval, a run resumes with equal losses" {
    requires mpi:4
    plan 'node:2 gpu:2' mics:2 --sync-interval=5 --sync-warmup=2 --sync-dtype=int8 >five.mp
    check_stop five.mp
}

@test "outer: validation changes nothing" {
    requires mpi:4
    on 4 2 "$base/outer.mp" --val-every=2 --steps=7 --out=run --save-every=1 --val-fraction=0.1 \
        --metrics=m.jsonl
    on 4 2 "$base/outer.mp" --steps=7 --out=other --save-every=1 --val-fraction=0.1
    mics-shard diff run/step-000007 other/step-000007
    [ "$(grep -c '"event":"val"' m.jsonl)" -ge 3 ]
}

@test "outer: a checkpoint between two meetings loads at other ranks and without outer steps" {
    requires mpi:4
    part 4
    plan 'node:1 gpu:2' mics:1 --outer-steps=3 --sync-warmup=0 >two.mp
    on 2 2 two.mp --resume=part --out=two --save-every=1
    mics-shard verify two/step-000007
    plan 'node:2 gpu:2' zero3 >zero3.mp
    on 4 2 zero3.mp --resume=part --out=three
    grep 'the plan has no outer steps: their state in the checkpoint is ignored' log
    mics-shard list --json three/step-000007 >list
    run -1 grep outer_m list
}

@test "outer: a checkpoint without outer steps loads, and they begin at its parameters" {
    requires mpi:4
    on 4 2 "$base/exact.mp" --steps=2 --out=run
    on 4 2 "$base/outer.mp" --resume=run --steps=4 --out=run
    grep 'the checkpoint has no state of outer steps: they begin at its parameters' log
    mics-shard verify run/step-000004
}

@test "outer: mics-shard reshards, merges, lists and compares the state of outer steps" {
    requires mpi:4
    mics-shard list --json "$base/whole/step-000005" >list
    grep -q '"anchor"' list
    grep -q '"outer_m"' list
    mics-shard reshard "$base/whole/step-000005" -p "$base/exact.mp" -o same
    mics-shard diff same "$base/whole/step-000005"
    run -4 mics-shard diff --json "$base/whole/step-000005" "$base/whole/step-000006"
    [[ $output == *'"outer_m"'* ]]
    mics-shard merge "$base/whole/step-000005" -o model
    [ -e model/model.safetensors ]
}

@test "outer: plans count two vectors more in each optimizer shard, and fewer bytes sent" {
    mics-show --json "$base/exact.mp" >exact.json
    mics-show --json "$base/outer.mp" >outer.json
    python3 - <<'END'
import json
exact, outer = (json.load(open(name)) for name in ("exact.json", "outer.json"))
def optimizer(plan):
    return next(r["bytes"] for r in plan["memory"]["regions"] if r["name"] == "optimizer shards")
# AdamW in fp32 has two vectors; with outer steps four. Regions are rounded to 4096 bytes.
assert abs(optimizer(outer) - 2 * optimizer(exact)) <= 2 * 4096
assert outer["choice"]["outer_steps"] == 3 and outer["choice"]["outer_lr"] == 0.7
assert "outer_steps" not in exact["choice"]
ratio = outer["predicted"]["net_bytes"] / exact["predicted"]["net_bytes"]
assert 0.30 < ratio < 0.36, ratio
assert outer["predicted"]["step_s"] < exact["predicted"]["step_s"]
END
}

@test "outer: --schedule marks what is in some steps only" {
    plan 'node:2 gpu:2' mics:2 --outer-steps=3 --schedule | grep -oE '(turn [0-9]+|warmup)  ' |
        sort -u >marks
    [ "$(tr -d ' ' <marks | tr '\n' ' ')" = 'turn0 warmup ' ]
    plan 'node:2 gpu:2' mics:2 --outer-steps=3 --sync-warmup=0 --schedule >schedule
    run -1 grep -q warmup schedule
    plan 'node:2 gpu:2' mics:2 --sync-interval=2 --schedule | grep -oE 'turn [0-9]+  ' | sort -u >marks
    [ "$(tr -d ' ' <marks | tr '\n' ' ')" = 'turn0 turn1 ' ]
}

outer_of() # plan: steps, rate and momentum
{
    mics-show --json "$1" | jq -c '.choice | [.outer_steps, .outer_lr, .outer_momentum]'
}

@test "outer: --like takes outer steps and interval from the plan, unless options say otherwise" {
    requires jq
    [ "$(outer_of "$base/outer.mp")" = '[3,0.7,0.9]' ]
    mics-plan --like="$base/outer.mp" --outer-lr=0.5 >rate.mp
    [ "$(outer_of rate.mp)" = '[3,0.5,0.9]' ]
    mics-plan --like=rate.mp --outer-momentum=0.8 >momentum.mp
    [ "$(outer_of momentum.mp)" = '[3,0.5,0.8]' ]
    mics-plan --like=momentum.mp --outer-steps=4 >four.mp
    [ "$(outer_of four.mp)" = '[4,0.5,0.8]' ]
    mics-plan --like="$base/exact.mp" --outer-steps=2 >two.mp
    [ "$(outer_of two.mp)" = '[2,0.7,0.9]' ]
    plan 'node:2 gpu:2' mics:2 --sync-interval=2 >interval.mp
    for options in "exact --outer-lr=0.5" "exact --outer-momentum=0.5" "outer --sync-interval=2" \
        "outer --sync-interval=auto"; do
        # shellcheck disable=SC2086 # several words
        run --separate-stderr -2 mics-plan --like="$base/"${options/ /.mp }
        [[ ${stderr_lines[0]} == "mics-plan: $base/${options%% *}.mp: --outer-"* ]]
        [ -z "$output" ]
    done
    run --separate-stderr -2 mics-plan --like=interval.mp --outer-steps=2
    [ "${stderr_lines[0]}" = 'mics-plan: interval.mp: --outer-steps and --sync-interval exclude each other' ]
    mics-plan --like=interval.mp --outer-steps=2 --sync-interval=1 >two.mp
    [ "$(outer_of two.mp)" = '[2,0.7,0.9]' ]
}

@test "outer: what is out of range, and strategies with one replica, are refused in one line" {
    for options in --outer-steps=0 --outer-steps=x '--outer-steps=3 --outer-lr=0' \
        '--outer-steps=3 --outer-lr=11' \
        '--outer-steps=3 --outer-momentum=1' '--outer-steps=3 --outer-momentum=-0.1' \
        --outer-overlap '--outer-steps=1 --outer-overlap' --sync-warmup=5 \
        '--outer-steps=3 --sync-interval=2' --outer-lr=0.5 --outer-momentum=0.5; do
        # shellcheck disable=SC2086 # several words
        run --separate-stderr -2 plan 'node:2 gpu:2' mics:2 $options
        [ -z "$output" ]
    done
    run --separate-stderr plan 'node:2 gpu:2' zero3 --outer-steps=3
    [ "$status" -ne 0 ]
    [ "${#stderr_lines[@]}" -le 2 ]
    [[ $stderr == *"outer steps need more than one replica"*"zero3"* ]]
    mics-show --json "$base/outer.mp" | sed 's/"outer_momentum": *0.9/"outer_momentum":1/' >bad.json
    run --separate-stderr -3 mics-show bad.json
    mics-show --json "$base/overlap.mp" | jq '.choice.outer_steps = 1' >bad.json
    run --separate-stderr -3 mics-show bad.json
    [[ $stderr == *'expected at least 2 outer steps, found 1'* ]]
    jq '.choice.sync_warmup = 9' <(mics-show --json "$base/exact.mp") >bad.json
    run --separate-stderr -3 mics-show bad.json
    [[ $stderr == *'expected up to'*'and an interval or outer steps'* ]]
}
