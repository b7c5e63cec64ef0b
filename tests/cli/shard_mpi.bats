#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-shard under mpirun: the ranks share the work, and succeed or fail together.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cp -r "$BATS_TEST_DIRNAME/../reference/gpt2-tiny" tiny
    rm tiny/reference.safetensors
    local strategy
    for strategy in ddp mics:2 zero3; do
        mics-plan --topology='node:2 gpu:2' --model=tiny --global-batch=4 --seq=8 --strategy=$strategy --no-history -o "$strategy.mp"
    done
    mics-shard split tiny -p zero3.mp -o one --no-history
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    export MICS_NODE_RANKS=2
}

# How many of the lines are not the launcher's.
lines_of_shard()
{
    grep -c '^mics-shard: ' <<<"$stderr"
}

@test "any number of ranks writes the same files, and the plan is passed on once" {
    requires mpi:3
    for ranks in 1 2 3; do
        mpi $ranks mics-shard split tiny -o "$out-$ranks" --no-history <zero3.mp >"$BATS_TEST_TMPDIR/passed.mp"
        cmp "$BATS_TEST_TMPDIR/passed.mp" zero3.mp
        for file in one/*; do cmp "$file" "$out-$ranks/${file#one/}"; done
    done
    [ -e one/shard-00003.safetensors ]
}

@test "reshard, merge and cast are divided among ranks" {
    requires mpi:3
    for plan in ddp mics:2; do
        mics-shard reshard one -p $plan.mp -o "$out-1-$plan"
        mpi 3 mics-shard reshard one -p $plan.mp -o "$out-3-$plan"
        for file in "$out-1-$plan"/shard-*; do cmp "$file" "$out-3-$plan/${file##*/}"; done
    done
    mics-shard merge one -o "$out-m1" --max-file=8K
    mpi 3 mics-shard merge one -o "$out-m3" --max-file=8K
    diff -r "$out-m1" "$out-m3"
    mics-shard cast tiny --dtype=bf16 -o "$out-c1"
    mpi 3 mics-shard cast tiny --dtype=bf16 -o "$out-c3"
    diff -r "$out-c1" "$out-c3"
}

@test "verify is divided among ranks and reports every damaged file once" {
    requires mpi:3
    mpi 3 mics-shard verify one
    cp -r one bad
    for shard in 1 2; do printf '\x01' | dd of=bad/shard-0000$shard.safetensors bs=1 seek=5000 conv=notrunc status=none; done
    run --separate-stderr mpi 3 mics-shard verify bad
    [ "$status" = 3 ]
    [ "$(lines_of_shard)" = 3 ]
    [[ $stderr == *"shard-00001.safetensors: is damaged"*"shard-00002.safetensors: is damaged"*"bad: 2 problems"* ]]
}

@test "a damaged source is reported once, and nothing is written" {
    requires mpi:3
    cp -r one flipped
    printf '\x01' | dd of=flipped/shard-00002.safetensors bs=1 seek=5000 conv=notrunc status=none
    for command in "merge flipped" "reshard flipped -p ddp.mp" "merge flipped --dry-run"; do
        # Words on purpose.
        # shellcheck disable=SC2086
        run --separate-stderr mpi 3 mics-shard $command -o "$BATS_TEST_TMPDIR/new/out"
        [ "$status" = 3 ]
        [ "$(lines_of_shard)" = 1 ]
        [[ $stderr == *"shard-00002.safetensors: is damaged"* ]]
        [ -z "$(ls "$BATS_TEST_TMPDIR/new" 2>/dev/null)" ]
    done
}

@test "an invalid plan, an existing target and a model that does not fit are reported once" {
    requires mpi:3
    run --separate-stderr mpi 3 mics-shard split tiny -o "$out" <tiny/config.json
    [ "$status" = 3 ] && [ "$(lines_of_shard)" = 1 ]
    run --separate-stderr mpi 3 mics-shard reshard one -p zero3.mp -o one
    [ "$status" = 2 ] && [ "$(lines_of_shard)" = 1 ]
    run --separate-stderr mpi 3 mics-shard merge nothing -o "$out"
    [ "$status" = 1 ] && [ "$(lines_of_shard)" = 1 ]
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --seq=32 -o nano.mp
    run --separate-stderr mpi 3 mics-shard split tiny/model.safetensors -p nano.mp -o "$out"
    [ "$status" = 3 ] && [ "$(lines_of_shard)" -ge 50 ]
    [ "$(grep -c "tensor 'h.3.ln_1.weight' of the model is missing" <<<"$stderr")" = 1 ]
    [ ! -e "$out" ]
}

@test "a dry run prints one table" {
    requires mpi:3
    mics-shard merge one -o "$out" --dry-run --tsv | head -n 2 >"$BATS_TEST_TMPDIR/1"
    mpi 3 mics-shard merge one -o "$out" --dry-run --tsv | head -n 2 | cmp - "$BATS_TEST_TMPDIR/1"
    [ ! -e "$out" ]
}

@test "a killed rank leaves no files" {
    requires mpi:3 perl
    mkdir big "$BATS_TEST_TMPDIR/k"
    perl -e '$h = q({"a":{"dtype":"F32","shape":[536870912],"data_offsets":[0,2147483648]}}); print pack("Q<", length $h), $h;' >big/model.safetensors
    truncate -s +2147483648 big/model.safetensors
    mpirun -n 3 mics-shard cast big --dtype=bf16 -o "$BATS_TEST_TMPDIR/k/out" 3>&- &
    job=$!
    for _ in $(seq 500); do
        if ls "$BATS_TEST_TMPDIR"/k/*/model.safetensors 2>/dev/null; then break; fi
        sleep 0.01
    done
    for rank in $(pgrep -P "$job"); do last=$rank; done
    kill -KILL "$last"
    code=0
    wait "$job" || code=$?
    [ "$code" != 0 ]
    [ -z "$(ls "$BATS_TEST_TMPDIR/k")" ]
}
