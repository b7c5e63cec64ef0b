#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Who multiplies bf16 on hosts: oneDNN, or kernels of mics.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    echo '{"model_type":"gpt2","vocab_size":257,"n_embd":48,"n_layer":2,"n_head":4,"n_positions":32}' >config.json
    for ranks in 1 2; do
        for type in f32 bf16; do
            mics-plan --topology="node:1 gpu:$ranks" --model=config.json --global-batch=4 --seq=32 \
                --dtype="$type" -o "$type-$ranks.mp"
        done
    done
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    job=(--data="$BATS_FILE_TMPDIR/text" --steps=3 --val-every=0 --sample=0 -q)
    built=no
    if MICS_ONEDNN=1 mics-train -p "$BATS_FILE_TMPDIR/f32-1.mp" "${job[@]}" --out=try 2>/dev/null; then
        built=yes
    fi
}

needs_onednn()
{
    [ "$built" = yes ] || skip "this build is without oneDNN"
}

losses() # metrics
{
    jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' "$1"
}

train() # plan name
{
    mics-train -p "$BATS_FILE_TMPDIR/$1" "${job[@]}" --out="$2" --metrics="$2.jsonl"
}

has_bf16()
{
    grep -qw avx512_bf16 /proc/cpuinfo
}

@test "onednn: a job in fp32 does not use it, whatever is asked for" {
    needs_onednn
    MICS_ONEDNN=0 train f32-1.mp without
    MICS_ONEDNN=1 train f32-1.mp with
    cmp <(losses without.jsonl) <(losses with.jsonl)
    [ "$(losses with.jsonl | wc -l)" = 3 ]
}

@test "onednn: MICS_ONEDNN=1 ends a job in bf16 in one line where the processor cannot multiply it" {
    needs_onednn
    if has_bf16; then skip "the processor multiplies bf16"; fi
    MICS_ONEDNN=1 run --separate-stderr train bf16-1.mp run
    one_line_and_code 1
    [[ $stderr == "mics-train: "*"oneDNN does not use AVX512-BF16 here, but "*"; MICS_ONEDNN=0 computes without oneDNN" ]]
    MICS_ONEDNN=0 train bf16-1.mp without
    train bf16-1.mp default
    cmp <(losses without.jsonl) <(losses default.jsonl)
    MICS_ONEDNN=1 run --separate-stderr mics-probe
    one_line_and_code 1
    [[ $stderr == *"oneDNN does not use AVX512-BF16 here, but "*"; MICS_ONEDNN=0 computes without oneDNN" ]]
}

@test "onednn: jobs in bf16 learn with it as without it" {
    needs_onednn
    if ! has_bf16; then skip "the processor does not multiply bf16"; fi
    MICS_ONEDNN=0 train bf16-1.mp without
    MICS_ONEDNN=1 train bf16-1.mp default
    paste -d' ' <(losses without.jsonl) <(losses default.jsonl) |
        awk '{ d = $2 - $5; if (d < 0) d = -d; if (d > 1e-2 * $2) exit 1; n++ } END { exit n != 3 }'
}

@test "onednn: jobs in bf16 learn by the processor's own instructions as by fp32 arithmetic" {
    if ! has_bf16; then skip "the processor does not multiply bf16"; fi
    MICS_ONEDNN=0 train bf16-1.mp without
    train bf16-1.mp default
    [ "$(losses without.jsonl)" != "$(losses default.jsonl)" ]
    paste -d' ' <(losses without.jsonl) <(losses default.jsonl) |
        awk '{ d = $2 - $5; if (d < 0) d = -d; if (d > 1e-2 * $2) exit 1; n++ } END { exit n != 3 }'
}

@test "onednn: ranks that would multiply bf16 in different ways are refused, in one line" {
    needs_onednn
    requires mpi:2
    cat >each <<'END'
#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export MICS_ONEDNN=0; else export MICS_ONEDNN=1; fi
exec mics-train "$@"
END
    chmod +x each
    run --separate-stderr mpirun -n 2 ./each -p "$BATS_FILE_TMPDIR/bf16-2.mp" "${job[@]}" --out=run
    [ "$status" != 0 ]
    [ "$(grep -c '^mics-' <<<"$stderr")" = 1 ]
    [[ $stderr == *"rank 0 on "*" multiplies bf16 by oneDNN "*", rank 1 on "*" by fp32 arithmetic, which rounds otherwise; set MICS_ONEDNN=0 for all ranks"* ]]
    run -0 mpirun -n 2 ./each -p "$BATS_FILE_TMPDIR/f32-2.mp" "${job[@]}" --out=run
}

@test "onednn: another value of MICS_ONEDNN is a mistake" {
    MICS_ONEDNN=2 run --separate-stderr train f32-1.mp run
    one_line_and_code 2
    [[ $stderr == *'MICS_ONEDNN: expected 0 or 1, found "2"'* ]]
}
