#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The demonstration, with a few steps.

load helpers

@test "the demonstration makes tokens, shards the state, trains, writes text, and compares strategies" {
    requires mpi:4 bible
    : "${root:?}" # by the helpers
    folder="$BATS_TEST_TMPDIR/a folder"
    ln -s "$MICS_BUILD" "$BATS_TEST_TMPDIR/the programs"
    run env DEMO_STEPS=6 DEMO_FOLDER="$folder" "$root/share/mics/examples/demo.sh" \
        "$BATS_TEST_TMPDIR/the programs"
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *'tokenizer: 2048 tokens, each of 3.59 bytes'* ]]
    [[ $output == *'strategy=ddp'*'no plan fits'* ]]
    [[ $output == *'partition group of 2 ranks, inside a node'* ]]
    [[ $output == *'2 such groups met only once per step'* ]]
    [ -d "$folder/run/step-000006" ]
    eval "$(sed -n 's/^ *Show the plan again: *//p' <<<"$output")" >"$BATS_TEST_TMPDIR/shown"
    [ -s "$folder/hf/tokenizer.json" ]
    if netns_works; then
        [[ $output == *'and sent 0.2'*' times the bytes over the network.'* ]]
        [[ $output =~ zero3\ +[0-9]+\ ms\ +([0-9]+)\.[0-9]\ MB ]]
        zero3=${BASH_REMATCH[1]}
        [[ $output =~ mics:2\ +[0-9]+\ ms\ +([0-9]+)\.[0-9]\ MB ]]
        [ "$zero3" -ge $((4 * BASH_REMATCH[1])) ]
        [[ $output =~ mics:2-int8\ +[0-9]+\ ms\ +([0-9]+)\.[0-9]\ MB ]]
        [ "$zero3" -ge $((7 * BASH_REMATCH[1])) ]
    fi
}

@test "the demonstration says what it lacks, and where it stopped" {
    demo=$root/share/mics/examples/demo.sh
    mkdir -p "$BATS_TEST_TMPDIR/my texts"
    cd "$BATS_TEST_TMPDIR"
    run --separate-stderr env DEMO_TEXT='none/*' DEMO_FOLDER=made "$demo"
    [ "$status" = 1 ]
    [ "${stderr_lines[0]}" = "demo: DEMO_TEXT: 'none/*' matches no file" ]
    [ "${stderr_lines[1]}" = "demo: not finished; its files are in $PWD/made" ]

    # Text of the user's, in folders with blanks; a memory that no strategy fits.
    for i in {1..900}; do echo "Line $i of a text, which is $((i * i)) long."; done >'my texts/a b.txt'
    run --separate-stderr env DEMO_TEXT='my texts/*.txt' DEMO_MEMORY=1M DEMO_FOLDER=own "$demo"
    [ "$status" != 0 ]
    [[ $output == *'Line 1 of a text'* ]]
    [[ ${stderr_lines[-1]} == "demo: not finished; its files are in $PWD/own" ]]

    run --separate-stderr env DEMO_FOLDER=own "$demo"
    [ "$status" = 1 ]
    [ "$stderr" = "demo: $PWD/own has a demonstration already: remove it, or choose another DEMO_FOLDER" ]
}
