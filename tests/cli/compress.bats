#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Exchanges in blocks of int8 and int4: what plans say of them, and training with them.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    echo '{"model_type":"gpt2","vocab_size":257,"n_embd":48,"n_layer":2,"n_head":4,"n_positions":32}' >config.json
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    shared=$BATS_FILE_TMPDIR
}

plan() # topology strategy options...
{
    mics-plan --topology="$1" --strategy="$2" --model="$shared/config.json" --global-batch=8 --seq=32 \
        --micro-batch=1 --dtype=f32 --no-history "${@:3}"
}

on() # ranks ranks-of-a-node plan options...
{
    MICS_NODE_RANKS=$2 mpi "$1" mics-train -p "$3" --data="$shared/text" --val-every=0 --sample=0 "${@:4}"
}

choice() # plan: the formats in it
{
    mics-show --json "$1" |
        jq -c '.choice | [.sync_dtype, .sync_down_dtype, .sync_stochastic, .gather_dtype]'
}

losses() # metrics
{
    sed -n 's/.*"event":"step","step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p' "$1"
}

@test "compress: formats are in the plan, and nothing is at the defaults" {
    plan 'node:2 gpu:2' mics:2 >exact.mp
    plan 'node:2 gpu:2' mics:2 --sync-dtype=exact --gather-dtype=exact >same.mp
    cmp exact.mp same.mp
    [ "$(choice exact.mp)" = '[null,null,null,null]' ]
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int8 >int8.mp
    [ "$(choice int8.mp)" = '["int8","int8",null,null]' ]
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int4 --sync-rounding=stochastic >int4.mp
    [ "$(choice int4.mp)" = '["int4","int8",true,null]' ]
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int4,int4 >both.mp
    [ "$(choice both.mp)" = '["int4","int4",null,null]' ]
    plan 'node:2 gpu:2' mics:4 --gather-dtype=int8 --hierarchical=on >gather.mp
    [ "$(choice gather.mp)" = '[null,null,null,"int8"]' ]
    mics-plan --like=int4.mp --no-history >like.mp
    [ "$(choice like.mp)" = "$(choice int4.mp)" ]
    mics-show int8.mp | grep -q '^second hop  *in int8'
    [ "$(mics-show --json int8.mp | jq .predicted.net_bytes)" -lt \
        "$(mics-show --json exact.mp | jq '.predicted.net_bytes / 3.5 | floor')" ]
}

@test "compress: few replicas gather blocks, many exchange pieces, as is predicted to be faster" {
    local net='flops:1T membw:100GB/s link:20GB/s,1us net:1gbit,10us'
    mics-plan --topology="node:2 gpu:2 $net" --model=gpt2 --strategy=mics:2 --sync-dtype=int8 >two.mp
    mics-plan --topology="node:8 gpu:2 $net" --model=gpt2 --strategy=mics:2 --sync-dtype=int8 >eight.mp
    [ "$(mics-show --json two.mp | jq .choice.sync_gathers)" = true ]
    [ "$(mics-show --json eight.mp | jq .choice.sync_gathers)" = null ]
}

@test "compress: auto takes the weakest format, for the fewest units, that is as fast as any" {
    local rest='flops:100G mem:8G membw:10GB/s link:5GB/s,50us' net
    for net in 200mbit 5gbit 100gbit; do
        mics-plan --topology="node:4 gpu:2 $rest net:$net,200us" --model=gpt2-nano --global-batch=8 --seq=64 \
            --micro-batch=1 --dtype=f32 --strategy=mics:2 --sync-dtype=auto --json >$net.json
    done
    jq -e '.choice | .sync_dtype == "int4" and .sync_exact_units > 0' 200mbit.json
    jq -e '.exact_step_s > 1.3 * .predicted.step_s' 200mbit.json
    mics-show 200mbit.json | tr '\n' ' ' | grep -qE 'With an exact second hop a step would take .*; that of the first [0-9]+ of 5 units'
    jq -e '.choice | .sync_dtype == "int8" and .sync_exact_units > 0' 5gbit.json
    mics-show 5gbit.json | grep -qE '^second hop .*; exact for the last [0-9]+ unit'
    jq -e '.choice.sync_dtype == null' 100gbit.json
    mics-show 100gbit.json | tr '\n' ' ' | grep -q 'blocks of int8 or int4 would make a step less than 0.5 % faster'
    jq '.choice.sync_exact_units = 5' 5gbit.json >bad.json
    run -3 --separate-stderr mics-show bad.json
    [[ $stderr = *'5 units with an exact second hop: expected fewer than 5'* ]]
    mics-plan --like=5gbit.json --json | jq -e '.choice.sync_dtype == "int8"'
}

@test "compress: what has no effect, or crosses no network, is warned of" {
    run -0 --separate-stderr plan 'node:2 gpu:2' zero3 --sync-dtype=int8 -o zero3.mp
    [ "$stderr" = 'mics-plan: --sync-dtype=int8: has no effect: all ranks are one partition group, so there is no second hop' ]
    [ "$(choice zero3.mp)" = '[null,null,null,null]' ]
    run -0 --separate-stderr plan 'node:1 gpu:4' ddp --sync-dtype=int4 -o ddp.mp
    [ "$stderr" = 'mics-plan: --sync-dtype=int4: nothing of the second hop crosses a network: its groups are inside a node' ]
    run -0 --separate-stderr plan 'node:2 gpu:2' mics:2 --gather-dtype=int8 -o flat.mp
    [ "$stderr" = 'mics-plan: --gather-dtype=int8: has no effect: no gather goes between nodes first and then inside nodes' ]
}

@test "compress: unknown formats are refused, on the command line and in documents" {
    run -2 --separate-stderr plan 'node:2 gpu:2' mics:2 --sync-dtype=int7
    [[ $stderr = *"'int7': expected exact, int8, int4, int4,int4 or auto"* ]]
    run -2 --separate-stderr plan 'node:2 gpu:2' mics:2 --gather-dtype=int4
    [[ $stderr = *"'int4': expected exact or int8"* ]]
    run -2 --separate-stderr plan 'node:2 gpu:2' mics:2 --sync-rounding=stochastic
    [[ $stderr = *'--sync-rounding=stochastic goes with --sync-dtype'* ]]
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int8 --json >plan.json
    jq '.choice.sync_dtype = "fp4"' plan.json >bad.json
    run -3 --separate-stderr mics-show bad.json
    [[ $stderr = *"choice.sync_dtype: 'fp4': expected int8 or int4"* ]]
    jq 'del(.choice.sync_down_dtype)' plan.json >bad.json
    run -3 --separate-stderr mics-show bad.json
    [[ $stderr = *'one way only'* ]]
    jq '.choice.gather_dtype = "int4"' plan.json >bad.json
    run -3 --separate-stderr mics-show bad.json
    [[ $stderr = *'parameters are sent in int8, not in int4'* ]]
}

@test "compress: --like takes formats from the plan, unless options say otherwise" {
    plan 'node:2 gpu:2' mics:2 >exact.mp
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int4 --sync-rounding=stochastic >int4.mp
    mics-plan --like=int4.mp --sync-dtype=int8 >int8.mp
    [ "$(choice int8.mp)" = '["int8","int8",true,null]' ]
    mics-plan --like=int4.mp --sync-rounding=nearest >nearest.mp
    [ "$(choice nearest.mp)" = '["int4","int8",null,null]' ]
    mics-plan --like=int4.mp --sync-dtype=exact >none.mp
    [ "$(choice none.mp)" = '[null,null,null,null]' ]
    plan 'node:2 gpu:2' mics:4 --gather-dtype=int8 --hierarchical=on >gather.mp
    mics-plan --like=gather.mp --strategy=mics:4 --hierarchical=on --gather-dtype=exact >same.mp
    [ "$(choice same.mp)" = '[null,null,null,null]' ]
    mics-plan --like=gather.mp --strategy=mics:4 --hierarchical=on >same.mp
    [ "$(choice same.mp)" = '[null,null,null,"int8"]' ]
    # What the two say together is checked as on one command line.
    run -2 --separate-stderr mics-plan --like=exact.mp --sync-rounding=stochastic -o bad.mp
    [ "${stderr_lines[0]}" = 'mics-plan: exact.mp: --sync-rounding=stochastic goes with --sync-dtype' ]
    run -2 --separate-stderr mics-plan --like=int4.mp --sync-dtype=exact --sync-rounding=stochastic -o bad.mp
    [ ! -e bad.mp ]
    mics-plan --like=exact.mp --sync-dtype=int8 --sync-rounding=stochastic >int8.mp
    [ "$(choice int8.mp)" = '["int8","int8",true,null]' ]
    for word in int8,int8 int4,int8; do
        run -2 --separate-stderr plan 'node:2 gpu:2' mics:2 --sync-dtype=$word
        [[ $stderr = *"'$word': expected exact, int8, int4, int4,int4 or auto"* ]]
    done
}

@test "compress: training sends a quarter of the bytes, and says so" {
    requires mpi:4
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int8 >int8.mp
    plan 'node:2 gpu:2' mics:2 >exact.mp
    on 4 2 int8.mp --steps=10 --out=run --metrics=int8.jsonl >out
    on 4 2 exact.mp --steps=10 --out=exact --metrics=exact.jsonl >/dev/null
    grep -q '^sent in second hops: .*; exact ones would send ' out
    tail -1 int8.jsonl | jq -e '.sync_bytes <= 0.26 * .exact_sync_bytes'
    [ "$(tail -1 exact.jsonl | jq .sync_bytes)" = null ]
    run -1 grep sync_bytes exact.jsonl
    jq -se 'map(select(.event == "step").sync_bytes) | length == 10' int8.jsonl
    for name in sync_bytes exact_sync_bytes; do
        jq -se "(map(select(.event == \"step\").$name) | add) == .[-1].$name" int8.jsonl
    done
    mics-show int8.jsonl >shown
    grep -qE '^second hops  *[0-9.]+ [KM]i?B sent, 25.[0-9] % of the [0-9.]+ [KM]i?B of exact ones in every step' shown
    grep -q '^bytes of second hops ' shown
    mics-show exact.jsonl >shown
    run -1 grep 'second hop' shown
    mics-show --tsv int8.jsonl | grep -q '^first.*tokens_per_s.sync_bytes.exact_sync_bytes$'
    mics-show --tsv exact.jsonl | grep -q '^first.*tokens_per_s$'
    paste -d' ' <(losses exact.jsonl) <(losses int8.jsonl) >pairs
    cat pairs
    awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 2e-3 * $2) exit 1; n++ } END { exit n != 10 }' pairs
    run ! cmp -s <(losses exact.jsonl) <(losses int8.jsonl)
}

@test "compress: a run continues bit for bit, and its checkpoint goes into an exact plan and back" {
    requires mpi:4
    plan 'node:2 gpu:2' mics:2 --sync-dtype=int4 --sync-rounding=stochastic >int4.mp
    plan 'node:2 gpu:2' mics:2 >exact.mp
    on 4 2 int4.mp --steps=12 --out=whole --metrics=whole.jsonl >/dev/null
    on 4 2 int4.mp --steps=12 --out=run --save-every=6 >/dev/null
    rm -r run/step-000012
    ln -sfn step-000006 run/latest
    mics-shard verify run/step-000006
    mics-shard merge run/step-000006 -o hf
    on 4 2 int4.mp --steps=12 --resume=run --out=again --metrics=again.jsonl >/dev/null
    for file in again/step-000012/shard-*; do cmp "$file" "whole/step-000012/${file##*/}"; done
    on 4 2 exact.mp --steps=7 --resume=run --out=exact >/dev/null
    on 4 2 int4.mp --steps=8 --resume=exact --out=back >/dev/null
    mics-shard reshard run/step-000006 -p exact.mp -o resharded
    mics-shard diff run/step-000006 resharded
}
