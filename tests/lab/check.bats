#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-check on the nodes of a lab: those that are cut off, slow, or slow in one direction.

load helpers
: "${lab:?}" "${stderr:=}" # by the helpers and bats

setup_file()
{
    export OPENBLAS_NUM_THREADS=1
    cd "$BATS_FILE_TMPDIR" || return
    netns_works && command -v mpirun >/dev/null || return 0
    mics-lab up -q --name="c$$" --nodes=4 --slots=1 >line
    echo "c$$" >name
    mics-plan -q --model=gpt2-nano --global-batch=8 --strategy=zero3 -o plan.mp \
        --topology='node:4 gpu:1 flops:50G mem:4G membw:10GB/s net:200mbit,50us'
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
}

check() # options...
{
    mics-lab exec --name="$lab" -- mics-check "$@"
}

# Check until this is found: on a busy machine a link may seem fast, or another one slow.
check_finds() # extended_regular_expression
{
    for _ in 1 2 3; do
        run --separate-stderr check --quick --hostfile=good -p plan.mp 'node[1-4]'
        echo "$status $stderr $output"
        if [ "$status" = 4 ] && grep -qE "$1" <<<"$output"; then return 0; fi
    done
    return 1
}

@test "the check names a node that was cut off, and judges the others" {
    mics-lab cut -q --name="$lab" node2
    run --separate-stderr check --facts 'node[1-4]'
    mics-lab heal -q --name="$lab" node2
    echo "$stderr $output"
    [ "$status" = 4 ]
    grep -qE '^fault +node2 +unreachable +- +.*no route to host +an answer' <<<"$output"
    [ "${lines[-1]}" = 'bad: 1 of 4 nodes; leave out node2' ]
}

@test "the check names a node whose card is slow, and leaves it out" {
    mics-lab slow -q --name="$lab" node3 20mbit
    check_finds '^fault +node3 +slow_card +- +[0-9.]+ Mbit/s +[0-9.]+ Mbit/s +\+[0-9.]+ %$'
    grep -qE '^planned step: [0-9.]+ m?s; with these faults [0-9.]+ m?s, \+[0-9]+ %$' <<<"$output"
    mics-lab heal -q --name="$lab" node3
    run ! grep -q '^node3 ' good
    grep -q '^node[124] slots=1$' good
}

@test "the check names a node that sends slowly but receives well" {
    mics-lab exec --name="$lab" node4 -- \
        tc qdisc replace dev eth0 root handle 1: tbf rate 20mbit burst 20000 latency 50ms
    check_finds '^fault +node4 +slow_send +- +[0-9.]+ Mbit/s +[0-9.]+ Mbit/s'
    mics-lab heal -q --name="$lab" node4
}

@test "nodes with different numbers of ranks are a notice, and no collectives are measured" {
    mics-lab exec --name="$lab" -- mpirun -q -n 3 --oversubscribe --host node1:2,node2:1 \
        mics-check --quick --json -o uneven.json >page || true # rates of this machine may differ
    grep -E '^notice +cluster +uneven_ranks +- +different numbers of ranks +-' page
    run ! grep -q 'over all ranks\|in nodes' page
}
