#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Every program reports an invalid document, or output that cannot be written, in one line and with
# the documented exit code.

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

# Pass a document to a program as a user would.
feed() # program file
{
    case $1 in
    mics-show) mics-show "$2" ;;
    mics-plan) mics-plan --model=gpt2-nano --global-batch=8 --seq=64 "$2" ;;
    mics-train) mics-train -p "$2" --data="$root/README.md" --steps=1 --out="$BATS_TEST_TMPDIR/run" ;;
    esac
}

# Run a program that writes a document.
produce() # program
{
    case $1 in
    mics-show) mics-show --json good.json ;;
    mics-plan) mics-plan -q --model=gpt2-nano --global-batch=8 --seq=64 --json good.json ;;
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

# Every reader refuses FILE, which the commands on standard input make from its good.json and
# good.mp, with exit 3 and one line that contains these words.
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

@test "at least one program is tested, and mics-show reads the valid document" {
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

@test "input that is not a document is refused" {
    refused empty.mp "empty: there is no document in it" <<<": >empty.mp"
    refused text.mp "neither a msgpack map nor JSON" <<<"echo hello >text.mp"
    refused zero.mp "neither a msgpack map nor JSON" <<<"head -c 1000 /dev/zero >zero.mp"
    refused map.json "kind: missing" <<<"echo '{}' >map.json"
}

@test "documents nested without bound are refused at once" {
    refused deep.json "nested deeper than 32" <<<"{ printf '{\"kind\":'; head -c 1000000 /dev/zero | tr '\\0' '['; } >deep.json"
    refused deep.mp "nested deeper than 32" <<<"{ printf '\\x81\\xa1x'; head -c 1000000 /dev/zero | tr '\\0' '\\221'; } >deep.mp"
    refused many.mp "too soon for an array of 4294967295 items" <<<"printf '\\x81\\xa1x\\xdd\\xff\\xff\\xff\\xffabcd' >many.mp"
}

@test "a newer version of a document is refused as such" {
    refused new.json "newer mics" <<<"sed '0,/\"v\": 1/s//\"v\": 1000/' good.json >new.json"
}

@test "programs that need one kind of document refuse another kind" {
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

@test "a missing file is an input error" {
    for program in $(readers); do
        run --separate-stderr feed "$program" nothing.mp
        one_line_and_code 1
        [[ $stderr == "$program: nothing.mp: "* ]]
    done
}

@test "a folder is refused as a document" {
    mkdir folder
    for program in $(readers | grep -vx mics-show); do
        run --separate-stderr feed "$program" folder
        one_line_and_code 1
        [[ $stderr == "$program: folder: "* ]]
    done
}

# Closed only for the program itself; otherwise bash would reuse the descriptor for a pipe.
from_nothing() # program
{
    feed "$1" - <&-
}

@test "a closed standard input is an input error" {
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

# The reader closes the pipe before the first byte is written.
to_closed_pipe() # program
{
    {
        sleep 0.2
        produce "$1"
        echo $? >code
    } | true
}

@test "a program whose reader has closed the pipe ends by SIGPIPE without a message" {
    make_good mics-show
    for program in $(writers); do
        run --separate-stderr to_closed_pipe "$program"
        [ "$(cat code)" = 141 ]
        [ "$stderr" = "" ]
    done
}

# Fail if a file has what a terminal would obey: control characters, marks of the direction of
# writing, separators of lines.
harmless() # file
{
    run ! env LC_ALL=C grep -qaP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]' "$1"
    [ -s "$1" ]
}

@test "nothing that a terminal obeys is printed for people, wherever it comes from" {
    local text=$'a\xc2\x9b31m\xe2\x80\xaeb\xe2\x81\xa6c\xe2\x80\xa8d\xd8\x9cz'
    printf '{"kind": "k", "v": 1, "%s": "%s"}' "$text" "$text" >doc.json
    printf 'SwitchName=%s Nodes=n\nSwitchName=%s Nodes=m\n' "$text" "$text" >topology.conf
    printf '{"instances": [{"name": "%s"}]}' "$text" >catalogue.json
    printf '%s\n' "$text" >hosts
    mics-probe --topology=node:2 --json | jq --arg t "$text" '. + {hosts: [$t, "n"]}' >topo.json
    while IFS= read -r words; do
        rm -f out
        # shellcheck disable=SC2294 # words with quotes
        eval "$words" >out 2>&1 </dev/null || true
        harmless out
    done <<'END'
mics-show doc.json
mics-show "$text"
mics-show doc.json doc.json
mics-show --dot doc.json
mics-show topo.json
mics-plan --model="$text" --topology=node:1
mics-plan --model=gpt2-nano --topology="$text"
mics-plan --model=gpt2-nano --seq="$text" --topology=node:1
mics-plan --model=gpt2-nano topo.json
mics-plan --model=gpt2-nano --topology=node:2 --hosts=n,m --switches=topology.conf
mics-plan --model=gpt2-nano --topology=node:2 --hosts=hosts
mics-probe --list="$text"
mics-probe --catalogue=catalogue.json --list
mics-probe --nccl-topo="$text"
mics-shard list "$text"
mics-data "$text"
mics-sample "$text" --prompt=x
mics-bench --op="$text"
mics-train -p "$text"
mics-run --"$text"
mics-run --hostfile="$text" -- true
mics-run "$text"
mics-lab "$text"
mics-lab --"$text"
END
    # Programs get the text as it is.
    [ "$(mics-show --json doc.json | jq -r --arg t "$text" '.[$t]')" = "$text" ]
    mics-show --tsv doc.json >out
    grep -qF "$text" out
    # A terminal does not.
    script -qec 'mics-show --tsv doc.json' /dev/null </dev/null | tr -d '\r' >out
    harmless out
}

@test "errors: two outputs are never one file, by whatever name" {
    cd "$BATS_TEST_TMPDIR" || return
    touch there
    ln -s there link
    for words in 'mics-check --facts -o x --hostfile=x' 'mics-probe -o x --hostfile=x' \
        'mics-check --facts -o there --hostfile=link' \
        'mics-plan --model=gpt2-nano --topology=p4d:2 -o x --trace=x' \
        'mics-plan --model=gpt2-nano --topology=p4d:2 --hosts=a,b -o x --hostfile=x'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr $words
        usage_mistake "${words%% *}" || { echo "$words"; return 1; }
        [[ ${stderr_lines[0]} == *' name one file' ]]
        [ ! -e x ] && [ ! -s there ]
    done
}

@test "errors: an input is never replaced by an output, by whatever name" {
    cd "$BATS_TEST_TMPDIR" || return
    for name in in in.bin in.prom tokenizer.json; do echo localhost >$name; done
    ln -s in link
    ln in hard
    while read -r words; do
        # shellcheck disable=SC2086 # words
        run -2 --separate-stderr $words <in
        echo "$words: $stderr"
        [[ ${stderr_lines[0]} == "${words%% *}: "*' would replace '*"'"* ]]
        grep -qx localhost in && grep -qx localhost in.bin && grep -qx localhost in.prom &&
            grep -qx localhost tokenizer.json
    done <<'END'
mics-check --facts --hostfile=in in
mics-check --facts --hosts=link --hostfile=in
mics-check --facts --baseline=in -o ./hard
mics-check --expect=in -o in
mics-check -p in --hostfile=in
mics-probe --hosts=in -o in
mics-probe --nccl-topo=in -o link
mics-probe --topology=p4d:2 --catalogue=in -o in
mics-plan --model=gpt2-nano in -o in
mics-plan --model=gpt2-nano -o in
mics-plan --model=in --topology=p4d:2 --trace=in
mics-plan --like=in -o in
mics-plan --model=gpt2-nano --topology=p4d:2 --hosts=in --hostfile=in
mics-plan --model=gpt2-nano --topology=p4d:2 --hosts=a,b --switches=in --hostfile=in
mics-bench --calibrate in -o in
mics-bench --baseline=in -o hard
mics-bench --import=in.bin,in --topology=p5:8 -o in
mics-show --json -o in in
mics-show -o link in.bin in
mics-train -p in --data=in.bin --trace=in
mics-train -p in --data=in.bin --metrics=in.bin
mics-train -p in --data=in --val-data=in.prom --prometheus=in.prom
mics-data encode --binary in.bin -t bytes -o in
mics-data train --binary tokenizer.json --vocab=260 -o .
END
}
