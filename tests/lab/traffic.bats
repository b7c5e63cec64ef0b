#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bytes on the wire: what training counts itself, against the counters of the nodes' interfaces.

load helpers
: "${lab:?}" "${root:?}" # by the helpers
stderr="" stderr_lines=() # by run

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

@test "run --traffic prints what each node has sent and received, and when" {
    run --separate-stderr mics-lab run -q --traffic --name="$lab" --nodes=2 --slots=1 -- \
        mics-bench -b 4M -e 4M -n 1 -w 0 -c 0 --op=all_gather --algo=flat --outliers=0
    [ "$status" = 0 ]
    [[ ${stderr_lines[-6]} =~ ^node\ +sent\ +received$ ]]
    [[ ${stderr_lines[-3]} =~ ^MB\ sent\ +0-0\.5\ s ]]
    for i in 2 1; do
        [[ ${stderr_lines[-$i - 3]} =~ ^node$((3 - i))\ +([0-9]+)\ +([0-9]+)$ ]]
        [ "${BASH_REMATCH[1]}" -gt 4194304 ] # out of place and in place, half of 4 MiB each
        [ "${BASH_REMATCH[2]}" -gt 4194304 ]
        # The intervals add up to what was sent, but for what was sent before and after the samples.
        awk -v sent="${BASH_REMATCH[1]}" '{ for (i = 2; i <= NF; i++) sum += $i }
            END { exit !(sum > 4.19 && sum < sent / 1e6 + 0.001 * NF) }' <<<"${stderr_lines[-$i]}"
    done
}

# Send this many datagrams of 1,000 bytes from node1 to node2, by an address that nobody answers for.
flood() # count [option...]
{
    run --separate-stderr mics-lab run -q --name="$lab" --nodes=2 --slots=1 --env=none "${@:2}" -- \
        bash -c "if [ \"\$(hostname)\" = node1 ]; then
            dd if=/dev/zero bs=1000 count=$1 status=none >/dev/udp/10.77.0.253/9
        else sleep 1; fi"
}

@test "a run whose traffic is not as expected fails, and says which node" {
    flood 2000 --expect-traffic='node: sent<=3MB' --expect-traffic='node2: received >= 1.9MB'
    [ "$status" = 0 ]
    [ "$stderr" = "" ]
    flood 2000 --expect-traffic='node: sent <= 1.5MB' --expect-traffic='node1: received >= 1GiB'
    [ "$status" = 4 ]
    [[ ${stderr_lines[-2]} =~ ^mics-lab:\ node1\ sent\ 2[0-9]{6}\ bytes\;\ expected\ \<=\ 1500000$ ]]
    [[ ${stderr_lines[-1]} =~ ^mics-lab:\ node1\ received\ [0-9]+\ bytes\;\ expected\ \>=\ 1073741824$ ]]
    [[ $stderr == *"MB sent"* ]]
    run --separate-stderr mics-lab run -q --name="$lab" --nodes=2 --slots=1 --expect-traffic='node: sent >= 1GB' -- \
        sh -c 'exit 7'
    [ "$status" = 7 ]
}

@test "expectations that mean nothing are refused before a lab is created" {
    for text in '' 'node' 'node: sent' 'node: sent <= 5' 'node: sent < 5MB' 'node0: sent <= 5MB' 'rank: sent <= 5MB' \
        'node: lost <= 5MB' 'node: sent <= 1e3MB' 'node5: sent <= 5MB' 'node: sent <= 5MB; id'; do
        run --separate-stderr mics-lab run --name="$lab" --expect-traffic="$text" -- true
        usage_mistake mics-lab || { echo "$text"; return 1; }
    done
    run --separate-stderr mics-lab run --name="$lab" --env=gloo -- true
    usage_mistake mics-lab
}

@test "commands that run no job refuse its options" {
    for words in 'up --env=torch' 'list --traffic' 'down --expect-traffic=node:sent<=5MB'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-lab $words
        usage_mistake mics-lab || { echo "$words"; return 1; }
    done
}

@test "ranks get the variables of torch.distributed, or none" {
    export HOSTNAME=elsewhere # as in a container
    # shellcheck disable=SC2016 # each rank expands it
    run --separate-stderr mics-lab run -q --name="$lab" --nodes=2 --slots=2 --env=torch -- \
        sh -c 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $GLOO_SOCKET_IFNAME $(hostname)"'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0/4 0/2 0 10.77.0.1:29500 eth0 node1
1/4 1/2 0 10.77.0.1:29500 eth0 node1
2/4 0/2 1 10.77.0.1:29500 eth0 node2
3/4 1/2 1 10.77.0.1:29500 eth0 node2" ]
    run --separate-stderr mics-lab run -q --name="$lab" --nodes=1 --slots=2 --env=none -- \
        sh -c 'env | grep -cE "^(OMPI|PMIX|RANK|WORLD_SIZE)" || true'
    [ "$status" = 0 ]
    [ "$output" = "0
0" ]
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
