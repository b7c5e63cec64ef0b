#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bytes on the wire: what training counts itself, against the counters of the nodes' interfaces.

load helpers
: "${lab:?}" "${root:?}" # by the helpers
stderr_lines=()            # by run

setup()
{
    requires netns mpirun
    cd "$BATS_TEST_TMPDIR" || return
}

teardown()
{
    lab_gone
}

# The sum of a column of a table of traffic.
column() # file number
{
    awk -v column="$2" 'NR > 1 { sum += $column } END { printf "%.0f", sum }' "$1"
}

# Train by a plan; what all nodes sent by their interfaces, from one table to the next, is what the ranks counted, but for
# headers and what is sent before the first step.
agrees() # strategy steps
{
    local counted sent received
    mics-plan --topology='node:2 gpu:2' --model=gpt2-micro --global-batch=8 --seq=16 --micro-batch=1 --dtype=f32 --strategy="$1" \
        -o plan.mp
    mics-lab traffic --name="$lab" >before
    sh -c "$(cat line) mics-train -q -p plan.mp --data='$root/man/*.1' --steps=$2 --sample=0 --val-every=0 \
        --out=$1 --metrics=$1.jsonl"
    mics-lab traffic --name="$lab" >after
    counted=$(sed -n 's/.*"event": *"end".*"net_bytes": *\([0-9]*\).*/\1/p' "$1.jsonl")
    sent=$(($(column after 2) - $(column before 2))) received=$(($(column after 3) - $(column before 3)))
    echo "$1: counted $counted, sent $sent, received $received"
    [ "$counted" -gt 400000000 ]
    for bytes in "$sent" "$received"; do
        [ "$bytes" -ge "$counted" ]
        [ $((bytes * 100)) -le $((counted * 105)) ]
    done
}

@test "the bytes that training counts are those of the interfaces, within 5 %" {
    mics-lab up -q --name="$lab" --nodes=2 --slots=2 --net=1gbit >line
    agrees zero3 8
    agrees mics:2 12
}

@test "run --traffic prints what each node has sent and received" {
    run --separate-stderr mics-lab run -q --traffic --name="$lab" --nodes=2 --slots=1 -- \
        mics-bench -b 4M -e 4M -n 1 -w 0 -c 0 --op=all_gather --algo=flat --outliers=0
    [ "$status" = 0 ]
    [[ ${stderr_lines[-3]} =~ ^node\ +sent\ +received$ ]]
    for i in 2 1; do
        [[ ${stderr_lines[-$i]} =~ ^node$((3 - i))\ +([0-9]+)\ +([0-9]+)$ ]]
        [ "${BASH_REMATCH[1]}" -gt 4194304 ] # out of place and in place, half of 4 MiB each
        [ "${BASH_REMATCH[2]}" -gt 4194304 ]
    done
}

@test "traffic counts from the moment when the lab was ready" {
    mics-lab up -q --name="$lab" --nodes=2 --slots=1 >line
    mics-lab traffic --name="$lab" >before
    [ "$(column before 2)" -lt 100000 ] # not the datagrams that measured the link
    run --separate-stderr mics-lab traffic --name=nobody
    one_line_and_code 1
    run --separate-stderr mics-lab traffic --name="$lab" one-too-many
    usage_mistake mics-lab
}
