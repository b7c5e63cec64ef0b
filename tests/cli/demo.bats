#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The demonstration, with a few steps.

load helpers

@test "the demonstration makes tokens, shards the state, trains, writes text, and compares strategies" {
    requires mpi:4 bible
    : "${root:?}" # by the helpers
    run env DEMO_STEPS=6 DEMO_FOLDER="$BATS_TEST_TMPDIR" "$root/share/mics/examples/demo.sh"
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *'tokenizer: 2048 tokens, each of 3.59 bytes'* ]]
    [[ $output == *'strategy=ddp'*'no plan fits'* ]]
    [[ $output == *'partition group of 2 ranks, inside a node'* ]]
    [[ $output == *'2 such groups met only once per step'* ]]
    [ -d "$BATS_TEST_TMPDIR/run/step-000006" ]
    [ -s "$BATS_TEST_TMPDIR/hf/tokenizer.json" ]
    if netns_works; then
        [[ $output =~ zero3\ +[0-9]+\ ms\ +([0-9]+)\.[0-9]\ MB ]]
        zero3=${BASH_REMATCH[1]}
        [[ $output =~ mics:2\ +[0-9]+\ ms\ +([0-9]+)\.[0-9]\ MB ]]
        [ "$zero3" -ge $((4 * BASH_REMATCH[1])) ]
    fi
}
