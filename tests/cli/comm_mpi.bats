#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Communicators over MPI: the checks of tests/unit/comm_checks.h on real processes.

load helpers

comm=$MICS_BUILD/tests/mpi/mpi_comm

setup_file()
{
    requires mpi:4
    if "$comm" world 2>&1 | grep -q 'build is without MPI'; then skip "this build is without MPI"; fi
}

@test "collectives, splits, counts and bits are right on 1 to 5 ranks" {
    for ranks in 1 2 3 4 5; do
        run -0 mpi "$ranks" "$comm" check
        [ "$output" = "all well on $ranks ranks" ]
    done
    MICS_NODE_COPY=0 run -0 mpi 3 "$comm" check
    [ "$output" = "all well on 3 ranks" ]
}

requires_copies()
{
    if [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)" != 0 ]; then
        skip "this kernel keeps processes from reading each other's memory"
    fi
}

@test "ranks of one node copy from each other's memory where they may" {
    requires_copies
    run -0 mpi 2 "$comm" copies
    [ "$output" = copies ]
    MICS_NODE_COPY=0 run -0 mpi 2 "$comm" copies
    [ "$output" = messages ]
}

@test "a rank that dies while another copies its memory is waited for" {
    for _ in 1 2 3; do
        run timeout 60 mpirun -n 2 "$comm" death
        [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
        [[ $output != *"rank 0: "* ]]
    done
}

@test "libraries of cards are left alone where there is none, unless a user wants them" {
    if compgen -G '/sys/class/infiniband/*' || compgen -G '/sys/class/cxi/*'; then
        skip 'this machine has a card'
    fi
    run -0 mpi 2 env LD_DEBUG=files "$comm" copies
    [[ $output == *'calling init: '*/mca_pml_ob1.so* ]]
    [[ $output != *'calling init: '*/libpsm2.so* && $output != *'calling init: '*/libfabric.so* ]]
    if [ -e /usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3/mca_mtl_ofi.so ]; then
        OMPI_MCA_mtl=ofi run -0 mpi 2 env LD_DEBUG=files "$comm" copies
        [[ $output == *'calling init: '*/libfabric.so* ]]
    fi
}

@test "staging memory changes no result and no count" {
    for ranks in 2 3; do
        run -0 mpi "$ranks" "$comm" staged
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "delays between ranks and streams change nothing" {
    run -0 mpi 4 "$comm" delays
    [ "$output" = "all well on 4 ranks" ]
}

@test "an exchange gives way to the transfers of its node, as long as it may" {
    for ranks in 2 3; do
        run -0 mpi "$ranks" "$comm" yield
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "threads that wait for collectives hand MPI over to each other, one at a time" {
    for ranks in 2 4; do
        run -0 mpi "$ranks" "$comm" threads
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "where MPI allows calls of one thread only, the progress thread makes all of them" {
    run -0 mpi 3 "$comm" one-thread
    [ "$output" = "all well on 3 ranks" ]
}

@test "the direct algorithm and copies between processes give the ring's bits and counts" {
    for ranks in 2 3 5 8; do
        run -0 mpi "$ranks" "$comm" routes
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "messages between nodes give the same bits and counts as those inside a node" {
    for shape in '2 4' '3 6' '1 3'; do
        read -r per_node ranks <<<"$shape"
        RANKS_OF_NODE=$per_node run -0 mpi "$ranks" "$comm" copies
        [ "$output" = messages ]
        for what in check routes; do
            RANKS_OF_NODE=$per_node run -0 mpi "$ranks" "$comm" $what
            [ "$output" = "all well on $ranks ranks" ]
        done
    done
    RANKS_OF_NODE=4 run -0 mpi 8 "$comm" check
    [ "$output" = "all well on 8 ranks" ]
}

@test "all ranks use the algorithm that was measured" {
    for ranks in 2 5; do
        MICS_NODE_COPY=0 run -0 mpi "$ranks" "$comm" tuned
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "a rank that aborts ends the job with its exit code, within seconds" {
    run -7 timeout 60 mpirun -n 4 "$comm" abort
    ended=$(date +%s)
    aborted=$(sed -n 's/^aborted at //p' <<<"$output")
    [ $((ended - aborted)) -lt 30 ]
}

@test "a message that cannot be sent fails the device with the collective's name, and every later collective" {
    MICS_NODE_COPY=0 run -9 timeout 60 mpirun -n 4 "$comm" fault
    [[ $output == *"all_reduce among 4 ranks: MPI: MPI_ERR_OTHER: known error not in list"* ]]
    [[ $output == *"barrier among 4 ranks: an earlier collective failed"* ]]
    MICS_NODE_COPY=0 run -9 timeout 60 mpirun -n 4 "$comm" fault all_to_all
    [ "$(grep -c '^all_to_all among 4 ranks: MPI: MPI_ERR_OTHER: known error not in list$' <<<"$output")" = 1 ]
    [[ $output == *"barrier among 4 ranks: an earlier collective failed"* ]]
}

@test "waiting ranks yield their cores" {
    run -0 mpi 4 "$comm" wait 1
    echo "share of a core: $output"
    awk -v share="$output" 'BEGIN { exit !(share < 0.15) }'
}

@test "ranks detect the nodes that they are on" {
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
    [[ $output == *"this job has 4 ranks, but MICS_NODE_RANKS=3 needs a multiple of 3: start it with 'mpirun -n 6'"* ]]
}

@test "switches of the environment that are neither 0 nor 1 are refused" {
    for name in MICS_NODE_COPY MICS_SLOW_RANKS MICS_GPU_SHARE; do
        run -1 env $name=yes "$comm" world
        [[ $output == *"$name: expected 0 or 1, found \"yes\"" ]] || { echo "$name: $output"; return 1; }
        run -0 env $name= "$comm" world
    done
    MICS_NODE_COPY=off run -1 mpi 2 "$comm" world
    [[ $output == *'MICS_NODE_COPY: expected 0 or 1, found "off"'* ]]
    MICS_TF32=yes run -2 --separate-stderr mics-plan --topology=p4d:2 --model=gpt2 --dtype=f32
    [ "$stderr" = 'mics-plan: MICS_TF32: expected 0 or 1, found "yes"' ]
}
