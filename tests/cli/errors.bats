#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Whatever is wrong with a document, or with where the output goes, every program says it in one line and with
# the exit code of the house.

load helpers

# Programs that read a document.
readers()
{
    programs | grep -xE 'mics-(show|plan|train)'
}

# Programs that write one, with what they need for it.
writers()
{
    programs | grep -xE 'mics-(show|plan|probe)'
}

# Give a document to a program, as its user would.
feed() # program file
{
    case $1 in
    mics-show) mics-show "$2" ;;
    mics-plan) mics-plan --model=gpt2-nano --global-batch=8 --seq=64 "$2" ;;
    mics-train) mics-train -p "$2" --data="$root/README.md" --steps=1 --out="$BATS_TEST_TMPDIR/run" ;;
    esac
}

# Let a program write a document.
produce() # program
{
    case $1 in
    mics-show) mics-show --json good.json ;;
    mics-plan) mics-plan --model=gpt2-nano --global-batch=8 --seq=64 --json good.json ;;
    mics-probe) mics-probe --topology='node:2 gpu:2' ;;
    esac
}

# good.json and good.mp: what the program reads without complaint.
make_good() # program
{
    if [ "$1" = mics-train ]; then
        mics-plan --model=gpt2-nano --global-batch=8 --seq=64 --topology='node:1 gpu:1' >good.mp
    else
        mics-probe --topology='node:2 gpu:2' >good.mp
    fi
    mics-show --json good.mp >good.json
}

# Every reader refuses FILE, made anew from its good.json and good.mp by the commands on standard input, with
# exit 3, one line, and these words in it.
refused() # file words
{
    local program commands
    commands=$(cat)
    for program in $(readers); do
        make_good "$program"
        eval "$commands"
        run --separate-stderr feed "$program" "$1"
        one_line_and_code 3
        [ "$output" = "" ]
        [[ $stderr == "$program: $1: "*"$2"* ]] || { echo "$stderr"; return 1; }
    done
}

setup()
{
    cd "$BATS_TEST_TMPDIR"
}

@test "there is something to test, and it reads what is good" {
    [ "$(readers | wc -l)" -ge 1 ]
    make_good mics-show
    run --separate-stderr feed mics-show good.mp
    [ "$status" = 0 ]
    [ "$stderr" = "" ]
}

@test "a truncated document is refused with the offset where it ends" {
    for bytes in 1 10 100 200; do
        refused cut.mp "offset $bytes" <<<"head -c $bytes good.mp >cut.mp"
    done
    refused cut.mp "truncated" <<<"head -c -1 good.mp >cut.mp"
}

@test "a truncated JSON document is refused with line and column" {
    refused cut.json "line 3, column " <<<"head -n 2 good.json >cut.json"
}

@test "bytes after the end are refused with their offset" {
    refused long.mp "1 bytes after the end" <<<"{ cat good.mp; printf x; } >long.mp"
    refused long.mp "bytes after the end" <<<"cat good.mp good.mp >long.mp"
    refused long.json "text after the end" <<<"cat good.json good.json >long.json"
}

@test "what is no document is refused" {
    refused empty.mp "empty: no document" <<<": >empty.mp"
    refused text.mp "neither a msgpack map nor JSON" <<<"echo hello >text.mp"
    refused zero.mp "neither a msgpack map nor JSON" <<<"head -c 1000 /dev/zero >zero.mp"
    refused map.json "kind: missing" <<<"echo '{}' >map.json"
}

@test "bombs are refused at once" {
    refused deep.json "nested deeper than 32" <<<"{ printf '{\"kind\":'; head -c 1000000 /dev/zero | tr '\\0' '['; } >deep.json"
    refused deep.mp "nested deeper than 32" <<<"{ printf '\\x81\\xa1x'; head -c 1000000 /dev/zero | tr '\\0' '\\221'; } >deep.mp"
    refused many.mp "too soon for an array of 4294967295 items" <<<"printf '\\x81\\xa1x\\xdd\\xff\\xff\\xff\\xffabcd' >many.mp"
}

@test "a newer version of a document is refused as such" {
    refused new.json "newer mics" <<<"sed '0,/\"v\": 1/s//\"v\": 1000/' good.json >new.json"
}

@test "a document of another kind is refused, by those that need one kind" {
    for program in $(readers | grep -vx mics-show); do
        make_good "$program"
        sed '0,/"kind": "[^"]*"/s//"kind": "mics.other"/' good.json >other.json
        run --separate-stderr feed "$program" other.json
        one_line_and_code 3
        [[ $stderr == *"found 'mics.other'"* ]]
    done
}

@test "a member of the wrong type is named by its path" {
    refused bad.json 'links.node.latency_s: expected a number, found a string' \
        <<<"sed '0,/\"latency_s\": [^,]*/s//\"latency_s\": \"soon\"/' good.json >bad.json"
}

@test "a file that is not there is a failure of input" {
    for program in $(readers); do
        run --separate-stderr feed "$program" nothing.mp
        one_line_and_code 1
        [[ $stderr == "$program: nothing.mp: "* ]]
    done
}

@test "a folder is no document" {
    mkdir folder
    for program in $(readers | grep -vx mics-show); do
        run --separate-stderr feed "$program" folder
        one_line_and_code 1
        [[ $stderr == "$program: folder: "* ]]
    done
}

# Closed only for the program itself: bash would put a pipe of its own in the place.
from_nothing() # program
{
    feed "$1" - <&-
}

@test "a closed standard input is a failure of input" {
    for program in $(readers); do
        run --separate-stderr from_nothing "$program"
        one_line_and_code 1
        [[ $stderr == "$program: standard input: "* ]]
    done
}

@test "a full disk under standard output exits 1" {
    make_good mics-show
    for program in $(writers); do
        produce "$program" >/dev/null
        run --separate-stderr to_full "$program"
        one_line_and_code 1
        [[ $stderr == *"No space left on device"* ]]
    done
}

to_full() # program
{
    produce "$1" >/dev/full
}

# The reader is gone before the first byte is written.
to_closed_pipe() # program
{
    {
        sleep 0.2
        produce "$1"
        echo $? >code
    } | true
}

@test "when the reader has left a program ends quietly by SIGPIPE" {
    make_good mics-show
    for program in $(writers); do
        run --separate-stderr to_closed_pipe "$program"
        [ "$(cat code)" = 141 ]
        [ "$stderr" = "" ]
    done
}
