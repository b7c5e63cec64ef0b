#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What ranks did last: after a hang or a death the documents name the rank and the operation.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=8 --micro-batch=1 --seq=32 --strategy=mics:2 \
        -q -o plan.mp
}

setup()
{
    requires mpi:4 jq
    cd "$BATS_TEST_TMPDIR" || return
    unset job
}

teardown()
{
    local rank
    if [ -n "${job:-}" ]; then
        for rank in $(pgrep -P "$job" mics-train); do kill -KILL "$rank"; done
        kill -KILL "$job" 2>/dev/null || true
    fi
}

four_ranks() # options...
{
    MICS_NODE_RANKS=2 timeout 120 mpirun -n 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" \
        --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --save-every=0 --out=run -q "$@"
}

verdict() # filter
{
    mics-show --json run/flight | jq -r ".verdict | $1"
}

# A job in the background, as $job; returns when it has made steps.
start_job() # options...
{
    : >said # what an earlier job said is not to be found below
    MICS_NODE_RANKS=2 mpirun -n 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" \
        --val-every=0 --sample=0 --save-every=0 --log-every=1 --steps=1000000 --out=run "$@" >said 2>&1 3>&- &
    job=$!
    until grep -q '^ *10 ' said; do
        kill -0 "$job" || { cat said; return 1; }
        sleep 0.1
    done
}

# The job fails; what it said is printed.
await_failure()
{
    local status=0
    wait "$job" || status=$?
    unset job
    cat said
    [ "$status" != 0 ]
}

@test "flights: a rank that hangs in an operation is named with it, and so is the first that waited" {
    local operation rank=1
    for operation in gather backward reduce sync update; do
        rank=$((rank % 3 + 1))
        rm -rf run
        MICS_FAULT=$rank:$operation:40:hang run --separate-stderr four_ranks --steps=1000000 --timeout=4
        [ "$status" != 0 ]
        [[ $stderr == *"mics-train: no progress for 4 s: "*"(which rank waited for which: mics-show run/flight)"* ]]
        mics-show run/flight
        [ "$(verdict '"\(.what) \(.rank) \(.operation.does)"')" = "late $rank $operation" ]
        [ "$(verdict .first_waiting)" != "$rank" ]
        mics-show run/flight >shown
        grep -qE "^rank $rank \(.*\) is to blame: $operation( of .*)?, micro-step [0-9]+, step [0-9]+, has " shown
        [ "$(grep -c ' to blame$' shown)" = 1 ]
        [ "$(grep -c ' first to wait$' shown)" = 1 ]
    done
}

@test "flights: a rank that is killed is named by those of its node" {
    MICS_FAULT=3:gather:40 run --separate-stderr four_ranks --steps=1000000 --timeout=60
    [ "$status" != 0 ]
    mics-show run/flight
    [ ! -e run/flight/rank-00003.mp ]
    [ "$(verdict .rank)" = 3 ]
    [ "$(verdict .what)" = died ]
    [[ $(verdict .last_seen) == 'step '*': '* ]]
}

@test "flights: a rank that is killed or stopped from outside at any moment is named" {
    start_job --timeout=60
    kill -KILL "$(pgrep -P "$job" mics-train | sed -n 3p)"
    await_failure
    mics-show run/flight
    [ "$(verdict '"\(.what) \(.rank)"')" = "died 2" ]
    rm -rf run
    start_job --timeout=4
    kill -STOP "$(pgrep -P "$job" mics-train | sed -n 2p)"
    await_failure
    mics-show run/flight
    [ "$(verdict .rank)" = 1 ]
    [[ $(verdict .what) == suspended || $(verdict .what) == silent || $(verdict .what) == missing ]]
    [ "$(verdict .operation.does)" != null ]
}

@test "flights: documents of an earlier run are put aside, and an orderly end leaves none" {
    MICS_FAULT=1:update:9:hang run four_ranks --steps=1000000 --timeout=8
    [ "$status" != 0 ]
    [ -e run/flight/rank-00001.mp ]
    four_ranks --steps=2 --timeout=60
    [ ! -e run/flight ]
    [ "$(mics-show --json run/flight.old | jq .verdict.rank)" = 1 ]
    rm -rf run
    start_job --timeout=60
    for rank in $(pgrep -P "$job" mics-train); do kill -TERM "$rank"; done
    status=0
    wait "$job" || status=$?
    unset job
    [ "$status" = 75 ]
    [ ! -e run/flight ]
}

@test "flights: files of ranks are gathered, one alone is a list of operations, others are refused" {
    MICS_FAULT=2:backward:40:hang run four_ranks --steps=1000000 --timeout=8
    mics-show run/flight >folder
    cd run/flight
    mics-show rank-00002.mp rank-00000.mp rank-00003.mp rank-00001.mp >files
    cmp files ../../folder
    mics-show --tsv rank-00002.mp >list
    grep -qP '^running\tstep\t\d+\t\d+\tbackward\t' list
    [ "$(grep -cP '^(ended|running|due)\t' list)" -le 64 ]
    cp rank-00002.mp rank-00004.mp
    run -3 --separate-stderr mics-show .
    one_line_and_code 3
    [[ $stderr == *'two documents of rank 2' ]]
    echo x >rank-00004.mp
    run -3 --separate-stderr mics-show .
    [[ $stderr == *'rank-00004.mp: '* ]]
}

@test "flights: a fault that hangs or delays is checked" {
    requires mpi:4
    for wrong in 1:gather:2:hung 1:gather:2:0 1:gather:2:-1 1:gather:2:1x 1:gather:2hang; do
        MICS_FAULT=$wrong run --separate-stderr four_ranks --steps=1
        [ "$status" = 2 ]
        [[ $stderr == *"MICS_FAULT: expected RANK:OPERATION:N, RANK:OPERATION:N:hang or RANK:OPERATION:N:SECONDS, found \"$wrong\""* ]]
    done
}
