#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoints are independent of the number of ranks: 20 steps on four ranks, resumed on others.

load helpers

# The run that all tests resume, and its continuation on the same ranks.
setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    echo '{"model_type":"gpt2","vocab_size":257,"n_embd":48,"n_layer":2,"n_head":4,"n_positions":32}' >config.json
    if command -v mpirun >/dev/null; then
        plan 'node:2 gpu:2' mics:2 >four.mp
        plan 'node:2 gpu:2' mics:2 --dtype=bf16 >narrow.mp
        on 4 2 four.mp --steps=26 --out=whole --metrics=whole.jsonl
        on 4 2 four.mp --steps=26 --out=base --save-every=20
        rm -r base/step-000026
        ln -sfn step-000020 base/latest
    fi
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    base=$BATS_FILE_TMPDIR
}

plan() # topology strategy options...
{
    mics-plan --topology="$1" --strategy="$2" --model="$BATS_FILE_TMPDIR/config.json" --global-batch=8 --seq=32 --dtype=f32 "${@:3}"
}

on() # ranks ranks-of-a-node plan options...
{
    MICS_NODE_RANKS=$2 mpi "$1" mics-train -p "$3" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 -q "${@:4}"
}

losses() # metrics: of the steps after 20
{
    sed -n 's/.*"event":"step","step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p' "$1" | awk '$1 > 20'
}

# Six steps from the checkpoint on these ranks: the losses of the run that was not interrupted, within
# the rounding of fp32 sums in another order.
continues() # ranks ranks-of-a-node topology strategy
{
    plan "$3" "$4" >other.mp
    on "$1" "$2" other.mp --resume="$base/base" --out=run --metrics=m.jsonl
    paste -d' ' <(losses "$base/whole.jsonl") <(losses m.jsonl) >pairs
    cat pairs
    awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4 * $2) exit 1; n++ } END { exit n != 6 }' pairs
}

@test "resume: four ranks in groups of two continue bit for bit" {
    requires mpi:4
    continues 4 2 'node:2 gpu:2' mics:2
    cmp <(losses "$base/whole.jsonl") <(losses m.jsonl)
    for file in run/step-000026/shard-*; do
        cmp "$file" "$base/whole/step-000026/${file##*/}"
    done
}

@test "resume: at each level of recomputation bit for bit" {
    requires mpi:4
    for level in selective full; do
        plan 'node:2 gpu:2' mics:2 --recompute=$level >$level.mp
        on 4 2 $level.mp --resume="$base/base" --out=$level --metrics=$level.jsonl
        cmp <(losses "$base/whole.jsonl") <(losses $level.jsonl)
        for file in "$level"/step-000026/shard-*; do
            cmp "$file" "$base/whole/step-000026/${file##*/}"
        done
    done
}

@test "resume: on four ranks in one group" {
    requires mpi:4
    continues 4 2 'node:2 gpu:2' mics:4
}

@test "resume: on two ranks without groups" {
    requires mpi:4
    continues 2 2 'node:1 gpu:2' mics:1
}

@test "resume: on eight ranks in groups of four" {
    requires mpi:8
    continues 8 4 'node:2 gpu:4' mics:4
}

@test "resume: on one rank" {
    requires mpi:4
    continues 1 1 'node:1 gpu:1' mics:1
}

@test "resume: as zero3 and as ddp" {
    requires mpi:4
    continues 4 2 'node:2 gpu:2' zero3
    rm -r run
    continues 4 2 'node:2 gpu:2' ddp
}

@test "resume: in bf16 bit for bit with the master, and a run in fp32 is continued in bf16" {
    requires mpi:4
    on 4 2 "$base/narrow.mp" --steps=6 --out=whole --metrics=whole.jsonl
    on 4 2 "$base/narrow.mp" --steps=6 --out=part --save-every=3
    rm -r part/step-000006
    ln -sfn step-000003 part/latest
    on 4 2 "$base/narrow.mp" --resume=part --out=run --metrics=m.jsonl
    for file in run/step-000006/shard-*; do
        cmp "$file" "whole/step-000006/${file##*/}"
    done
    # ranks hold one rounding of the same master, whatever the groups
    plan 'node:1 gpu:1' ddp --dtype=bf16 >alone.mp
    on 1 1 alone.mp --resume="$base/base" --steps=21 --out=one --metrics=one.jsonl
    on 4 2 "$base/narrow.mp" --resume="$base/base" --steps=21 --out=four --metrics=four.jsonl
    paste -d' ' <(losses one.jsonl) <(losses four.jsonl) <(losses "$base/whole.jsonl" | head -n 1) >pairs
    cat pairs
    awk '{ d = $2 - $4; e = $2 - $6; if (d * d > 1e-6 * $2 * $2 || e * e > 1e-4 * $2 * $2) exit 1; n++ }
        END { exit n != 1 }' pairs
}

@test "resume: text that has changed where it was read is refused, whatever its ends are" {
    requires mpi:2
    for _ in {1..40}; do cat "$base/text"; done >whole
    dd if=whole of=text bs=1M count=3 iflag=fullblock status=none
    mics-plan --topology='node:1 gpu:2' --strategy=zero1 --model="$base/config.json" --global-batch=64 --seq=32 >p.mp
    train=(mics-train -p p.mp --data=text --val-every=0 --sample=0 -q)
    mpi 2 "${train[@]}" --steps=4 --out=run
    dd if=whole bs=1M skip=1 count=1 iflag=fullblock status=none | tr e i |
        dd of=text bs=1M seek=1 conv=notrunc status=none
    run -3 mpi 2 "${train[@]}" --steps=5 --out=run --resume=auto
    [[ $output == *"the data differ from what was read in samples "* ]]
    run -0 mpi 2 "${train[@]}" --steps=5 --out=run --resume=auto --other-data
}

# The units that have gradients left are updated before each checkpoint, in the run that goes on as
# well.
@test "resume: in the middle of an interval bit for bit, and with another interval and cluster" {
    requires mpi:4
    plan 'node:2 gpu:2' mics:2 --sync-interval=3 --sync-warmup=3 >three.mp
    plan 'node:2 gpu:1' zero1 --sync-interval=4 --sync-warmup=0 >four.mp
    on 4 2 three.mp --steps=9 --save-every=5 --out=whole --metrics=whole.jsonl
    on 4 2 three.mp --steps=9 --save-every=5 --out=base
    rm -r base/step-000009
    ln -sfn step-000005 base/latest
    on 4 2 three.mp --resume=base --save-every=5 --out=run --metrics=m.jsonl
    cmp <(sed -n 's/.*"event":"step","step":\([6-9]\),"loss":\([^,]*\).*/\1 \2/p' whole.jsonl) \
        <(sed -n 's/.*"event":"step","step":\([6-9]\),"loss":\([^,]*\).*/\1 \2/p' m.jsonl)
    for file in run/step-000009/shard-*; do
        cmp "$file" "whole/step-000009/${file##*/}"
    done
    grep '"event":"end"' whole.jsonl | jq -e '.sync_bytes > 0 and .sync_bytes < 0.8 * .exact_sync_bytes'
    on 2 1 four.mp --resume=base --out=other
    [ -d other/step-000009 ]
}
