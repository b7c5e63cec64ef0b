#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The demonstration, with a few steps.

load helpers

@test "the demonstration shards the state over groups of two ranks, trains, and prints a summary" {
    requires mpi:4
    : "${root:?}" # by the helpers
    run env DEMO_STEPS=6 DEMO_FOLDER="$BATS_TEST_TMPDIR" "$root/share/mics/examples/demo.sh"
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *'strategy=ddp'*'no plan fits'* ]]
    [[ $output == *'partition group of 2 ranks, inside a node'* ]]
    [[ $output == *'2 such groups met only once per step'* ]]
    [ -d "$BATS_TEST_TMPDIR/run/step-000006" ]
}
