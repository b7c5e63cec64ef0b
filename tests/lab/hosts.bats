#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-run on the hosts of a lab: lost and slow nodes, spares, plans for fewer nodes.

load helpers
: "${lab:?}" "${root:?}" "${stderr:=}" "${stderr_lines:=}" # by the helpers and bats

setup_file()
{
    export OPENBLAS_NUM_THREADS=1
    cd "$BATS_FILE_TMPDIR" || return
    netns_works && command -v mpirun >/dev/null || return 0
    mics-plan --topology='node:3 gpu:2' --model=gpt2-nano --global-batch=12 --seq=32 -o plan.mp
    mics-lab up -q --name="h$$" --nodes=4 --slots=2 >line
    echo "h$$" >name
}

teardown_file()
{
    if [ -s "$BATS_FILE_TMPDIR/name" ]; then mics-lab down -q "$(cat "$BATS_FILE_TMPDIR/name")"; fi
}

setup()
{
    requires netns mpirun
    cd "$BATS_FILE_TMPDIR" || return
    lab=$(cat name)
    hostfile=$(sed 's/.*--hostfile \([^ ]*\).*/\1/' line)
    rm -rf run out err
}

# mics-run on the hub, without the variables of these tests.
hub_run() # options...
{
    mics-lab exec --name="$lab" -- mics-run "$@"
}

train()
{
    echo mics-train -p plan.mp "--data=$root/man/*.1" --out=run --save-every=10 --keep=2 \
        --timeout=5 --val-every=0 --sample=0
}

# Start a training on three nodes, and disconnect the second one when a checkpoint is there.
train_and_cut() # options...
{
    # shellcheck disable=SC2046 # words
    hub_run --no-probe --restarts=5 "$@" -- $(train) --steps=40 >out 2>err 3>&- </dev/null &
    job=$!
    eventually 60 grep -q 'saved run/step-000010' out
    mics-lab cut -q --name="$lab" node2
    code=0
    wait "$job" || code=$?
    # As after a reboot: ranks that were cut off would disturb the next job there.
    kill_ranks node2
    mics-lab heal -q --name="$lab" node2
    cat err
    [ "$code" = 0 ]
    grep -qx 'mics-run: left out: node2: node2: no route to host' err
    [ "$(readlink run/latest)" = step-000040 ]
    grep -o '"restart_reason":"[^"]*' run/metrics.jsonl
    grep -qE '"restart_reason":"exit status 1: .*(does not answer; last seen|died|rank)' run/metrics.jsonl
}

@test "a spare takes the place of a lost node" {
    train_and_cut --hostfile="$hostfile" --spares=1
    grep -qx 'mics-run: hosts: node1 node3 node4' err
}

@test "without a spare the job is planned again for fewer nodes" {
    head -n 3 "$hostfile" >three
    train_and_cut --hostfile=three --elastic
    grep -qx 'mics-run: planned again for 2 nodes instead of 3' err
    mics-show --json run/latest | jq -e '.. | .topology? | objects | .nodes == 2'
}

@test "without a spare and --elastic the job waits for its nodes, then gives up" {
    head -n 3 "$hostfile" >three
    mics-lab cut -q --name="$lab" node2
    # shellcheck disable=SC2046
    run -1 --separate-stderr hub_run --no-probe --restarts=1 --hostfile=three -- $(train)
    mics-lab heal -q --name="$lab" node2
    echo "$stderr"
    [ "$(grep -c ': 2 of the 3 hosts that the job needs can be used' <<<"$stderr")" = 2 ]
    [[ $stderr == *'restart 1 of 1'* ]]
}

# Six nodes, because the links are compared with their median, and a slow node has two of them. On a
# busy machine the others may be as slow for a while.
@test "a node with a slow link is left out" {
    lab=s$$
    mics-lab up -q --name="$lab" --nodes=6 --slots=1 >"$BATS_TEST_TMPDIR/line"
    six=$(sed 's/.*--hostfile \([^ ]*\).*/\1/' "$BATS_TEST_TMPDIR/line")
    mics-lab slow -q --name="$lab" node2 10mbit
    for _ in 1 2 3; do
        run --separate-stderr hub_run --hostfile="$six" --spares=1 -- uname -n
        echo "$status $stderr"
        if [[ $stderr == *'left out: node2: it is slow'* ]]; then break; fi
    done
    mics-lab down -q "$lab"
    [ "$status" = 0 ]
    # On a busy machine one of its two links may not stand out.
    grep -E '^mics-run: slow: (node1 node2|node2 node3): net_link .* times slower than the median' \
        <<<"$stderr"
    [[ $stderr == *'mics-run: left out: node2: it is slow'* ]]
    [[ $output != *node2* ]]
}

@test "host files that cannot be used are one line" {
    printf 'node1 slots=2\nnode2 slots=4\n' >unequal
    printf 'node1 slots=2\nnode1 slots=2\n' >twice
    printf 'node1 slots=many\n' >count
    printf '# none\n' >none
    while IFS='|' read -r code file message; do
        run "-$code" --separate-stderr hub_run --hostfile="$file" -- true
        echo "$stderr"
        [ "${stderr_lines[0]}" = "mics-run: $message" ]
        [ "${#stderr_lines[@]}" = 1 ]
    done <<'END'
1|missing|'missing': cannot be read
3|unequal|'unequal': host 'node2' has 4 slots, 'node1' 2: all need the same
3|twice|twice: line 2: the slots of host 'node1' are given twice
3|count|count: line 1: slots=N expected, N at most 65535
3|none|none: no host is listed
END
    printf 'node1 slots=2\nnode2 slots=1\nnode3 slots=4\n' >spare
    run -0 --separate-stderr hub_run --hostfile=spare --spares=1 -- uname -n
    echo "$stderr"
    [ "${stderr_lines[0]}" = "mics-run: left out: node2: it has slots=1, 'node1' slots=2" ]
    [ "${stderr_lines[1]}" = "mics-run: node3: 2 of its 4 slots are used, as of 'node1'" ]
    [ "$(sort <<<"$output" | tr '\n' ' ')" = 'node1 node1 node3 node3 ' ]
    printf 'node1 slots=2\nelsewhere slots=2\n' >unknown
    run -1 --separate-stderr hub_run --hostfile=unknown -- true
    [[ $stderr == 'mics-run: left out: elsewhere: '* ]]
    run -2 --separate-stderr hub_run --hostfile="$hostfile" --spares=4 -- true
    run -2 --separate-stderr hub_run --hostfile="$hostfile" -n 3 -- true
}
