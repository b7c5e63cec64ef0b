#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A run names the rank that all others wait for, and what it is slow in.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    mics-plan --topology='node:2 gpu:1' --model=gpt2-nano --global-batch=4 --micro-batch=1 --seq=32 --strategy=mics:2 \
        -q -o plan.mp
}

setup()
{
    requires mpi:2 jq
    unset MICS_SLOW_RANKS
    cd "$BATS_TEST_TMPDIR" || return
}

# Until the first window of steps is judged. The fault takes longer than anything else in a step.
two_ranks() # options...
{
    MICS_NODE_RANKS=1 timeout 120 mpirun -n 2 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" \
        --val-every=0 --sample=0 --save-every=0 --steps=24 --out=run "$@"
}

@test "slow: a rank that computes for longer than the others is named once, in a line and in the metrics" {
    MICS_FAULT=1:backward:1:0.02 run -0 --separate-stderr two_ranks
    local times='[0-9.]+ [um]?s, the others [0-9.]+ [um]?s; it cost [0-9]+ % of the last 20 steps'
    grep -E "^mics-train: step 2[0-9]: rank 1 \(.*\) is slow in computing: $times\$" <<<"$stderr"
    [ "$(grep -c ' is slow in ' <<<"$stderr")" = 1 ]
    [ "$(jq -c 'select(.event == "slow") | [.rank, .ranks, .what, .ms > .others_ms + 30, .cost > 0.2]' run/metrics.jsonl)" = \
        '[1,1,"computing",true,true]' ]
    mics-show run | grep -E '^1 .* computing '
}

@test "slow: a rank that waits for its samples is named" {
    MICS_FAULT=0:input:1:0.2 run -0 --separate-stderr two_ranks
    grep -E '^mics-train: step 2[0-9]: rank 0 \(.*\) is slow in reading data: ' <<<"$stderr"
    [ "$(jq -c 'select(.event == "slow") | [.rank, .what]' run/metrics.jsonl)" = '[0,"reading data"]' ]
}

@test "slow: with MICS_SLOW_RANKS=0 none is named" {
    MICS_SLOW_RANKS=0 MICS_FAULT=1:backward:1:0.02 run -0 --separate-stderr two_ranks
    run ! grep -q ' is slow in ' <<<"$stderr"
}
