#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Communicators over MPI: the checks of tests/unit/comm_checks.h on real processes.

load helpers

comm=$MICS_BUILD/tests/mpi/mpi_comm

setup()
{
    requires mpi:4
    if "$comm" world 2>&1 | grep -q 'build is without MPI'; then skip "this build is without MPI"; fi
}

@test "collectives, splits, counts and bits are right on 1 to 5 ranks" {
    for ranks in 1 2 3 4 5; do
        run -0 mpi "$ranks" "$comm" check
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "delays between ranks and streams change nothing" {
    run -0 mpi 4 "$comm" delays
    [ "$output" = "all well on 4 ranks" ]
}

@test "a rank that aborts ends the job with its exit code, within seconds" {
    began=$SECONDS
    run -7 timeout 20 mpirun -n 4 "$comm" abort
    [ $((SECONDS - began)) -lt 10 ]
}

@test "ranks that wait leave the cores to others" {
    run -0 mpi 4 "$comm" wait 1
    echo "share of a core: $output"
    awk -v share="$output" 'BEGIN { exit !(share < 0.15) }'
}

@test "ranks find the nodes that they are on" {
    run -0 mpi 4 "$comm" world
    [ "$output" = "node 0: 4 ranks alone" ]
}

@test "MICS_NODE_RANKS declares nodes" {
    MICS_NODE_RANKS=2 run -0 mpi 4 "$comm" world
    [ "$output" = $'node 0: 2 ranks #0\nnode 1: 2 ranks #1' ]
}

@test "MICS_NODE_RANKS that does not divide the ranks is refused" {
    MICS_NODE_RANKS=3 run mpi 4 "$comm" world
    [ "$status" = 1 ]
    [[ $output == *"MICS_NODE_RANKS: 4 ranks cannot be divided into nodes of 3"* ]]
}
