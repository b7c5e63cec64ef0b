#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A run names the node whose network all ranks wait for, and no node of a good network.

load helpers
: "${lab:?}" "${stderr:=}" # by the helpers and bats

setup_file()
{
    export OPENBLAS_NUM_THREADS=1 MICS_THREADS=1
    cd "$BATS_FILE_TMPDIR" || return
    netns_works && command -v mpirun >/dev/null || return 0
    echo "s$$" >name
    mics-lab up -q --name="s$$" --nodes=4 --slots=1 --net=200mbit >line
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    mics-plan --topology='node:4 gpu:1' --model=gpt2-nano --global-batch=4 --micro-batch=1 --seq=32 --strategy=mics:4 \
        -q -o plan.mp
}

teardown_file()
{
    if [ -s "$BATS_FILE_TMPDIR/name" ]; then mics-lab down -q "$(cat "$BATS_FILE_TMPDIR/name")"; fi
}

setup()
{
    requires netns mpirun jq
    unset MICS_SLOW_RANKS
    cd "$BATS_FILE_TMPDIR" || return
    lab=$(cat name)
}

teardown()
{
    if [ -s "$BATS_FILE_TMPDIR/name" ]; then mics-lab heal -q --name="$lab" node3; fi
}

# Beyond the first window of steps, after which links are measured. Losses and norms of the steps are in the file.
train() # file options...
{
    local file=$1
    shift
    rm -rf run
    # shellcheck disable=SC2046 # words
    timeout 300 $(cat line) mics-train -p plan.mp --data=text --val-every=0 --sample=0 --save-every=0 --steps=26 \
        --out=run "$@" 2>said
    jq -c 'select(.event == "step") | [.step, .loss, .grad_norm]' run/metrics.jsonl >"$file"
}

# What is named of the network.
named()
{
    jq -r 'select(.event == "slow" and .bytes_per_s) | "\(.host) \(.what)"' run/metrics.jsonl
}

@test "a run names the node whose card is slow, and its results are those without measuring" {
    mics-lab slow -q --name="$lab" node3 40mbit
    for _ in 1 2 3; do # on a machine that is too busy to be sure, nothing is named
        train with
        cat said
        if [ -n "$(named)" ]; then break; fi
    done
    [ "$(named)" = 'node3 sending and receiving' ]
    grep -E '^mics-train: step 2[0-9]: node3 is slow in sending and receiving: [0-9.]+ Mbit/s, usual are [0-9.]+ Mbit/s; it cost up to [0-9]+ % of the last 20 steps$' said
    [ "$(jq -c 'select(.event == "slow" and .bytes_per_s) | [.rank, .ranks, .bytes_per_s < .others_bytes_per_s / 2, .cost > 0.05]' run/metrics.jsonl)" = '[2,1,true,true]' ]
    mics-show run | grep -E '^2 +node3 +2[0-9] +sending and receiving '
    mics-lab heal -q --name="$lab" node3
    MICS_SLOW_RANKS=0 train without
    run ! grep ' is slow in ' said
    diff with without
}

@test "no node of a good network is named" {
    train with
    cat said
    [ -z "$(named)" ]
}
