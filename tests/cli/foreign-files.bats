#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# JSON files of other programs: what does not matter is skipped, what cannot be read is named.

load helpers

setup()
{
    requires jq
    cd "$BATS_TEST_TMPDIR" || return
}

# A byte-level tokenizer of one merge.
tokenizer() # folder
{
    mkdir -p "$1"
    jq -n '{version: "1.0", added_tokens: [], normalizer: null, post_processor: null,
            pre_tokenizer: {type: "ByteLevel", add_prefix_space: false},
            decoder: {type: "ByteLevel"},
            model: {type: "BPE", vocab: {"<|endoftext|>": 0, h: 1, i: 2, hi: 3}, merges: ["h i"]}}' >"$1/tokenizer.json"
    echo '{"eos_token": "<|endoftext|>"}' >"$1/tokenizer_config.json"
}

encode() # arguments...
{
    run --separate-stderr timeout 20 mics-data encode -q -o "$BATS_TEST_TMPDIR/out" "$@"
}

@test "members of a line that are not read do not matter" {
    tokenizer t
    local line
    while IFS= read -r line; do
        printf '%b\n' "$line" >a.jsonl
        encode -t t a.jsonl
        [ "$status" = 0 ] || { echo "$line: $stderr"; false; }
        [ "$(od -An -tu2 out.bin | xargs)" = "3 0" ] || { echo "$line: $(od -An -tu2 out.bin)"; false; }
    done <<'END'
{"text":"hi","x":NaN}
{"x":[-Infinity,1e999],"text":"hi"}
{"text":"hi","x":17293822569102704640}
{"text":"hi","x\\u0000":"\\ud83d"}
\xef\xbb\xbf{"text":"hi"}
{"text":"h","text":"hi"}
{"text":"\\u0068\\u0069"}\r
END
}

@test "a text with half of a surrogate pair has U+FFFD there, and a line that is no JSON is named" {
    echo '{"text":"a\ud83dz"}' >a.jsonl
    encode -t bytes a.jsonl
    [ "$status" = 0 ]
    [ "$(od -An -tu2 out.bin | xargs)" = "97 239 191 189 122 256" ]
    printf '{"text":"a"}\n{"text":"a",}\n' >a.jsonl
    encode -t bytes a.jsonl
    [ "$status" = 3 ]
    [[ $stderr == *"'a.jsonl': line 2: column 13: expected a key in quotes, found '}'"* ]]
    echo '{"text":NaN}' >a.jsonl
    encode -t bytes a.jsonl
    [ "$status" = 3 ]
}

@test "a file beside the tokenizer that cannot be read is named, not taken as absent" {
    echo hi >a.txt
    local name
    for name in tokenizer_config.json special_tokens_map.json added_tokens.json; do
        tokenizer t
        rm -rf "t/$name"
        ln -s gone "t/$name"
        encode -t t a.txt
        [ "$status" = 1 ]
        [[ $stderr == *"t/$name: No such file or directory" ]]
        rm -rf "t/$name"
        mkdir "t/$name"
        encode -t t a.txt
        [ "$status" = 1 ]
        [[ $stderr == *"t/$name: is a folder, not a file" ]]
        rmdir "t/$name"
        mkfifo "t/$name"
        encode -t t a.txt
        [ "$status" = 1 ]
        [[ $stderr == *"t/$name: is a pipe, not a file" ]]
        rm -r t
    done
}

@test "a pipe in the folder of a model never blocks" {
    local name
    for name in config.json model.safetensors model.safetensors.index.json; do
        rm -rf m
        cp -r "$root/tests/reference/llama-tiny" m
        rm -f m/*reference* "m/$name"
        [[ $name != *.index.json ]] || rm m/model.safetensors
        mkfifo "m/$name"
        case $name in
            config.json) run --separate-stderr timeout 20 mics-plan --topology='node:1 gpu:1' --model=m --global-batch=2 --seq=8 ;;
            *) run --separate-stderr timeout 20 mics-shard verify m ;;
        esac
        [[ $status == [13] ]] || { echo "$name: $status $stderr"; false; }
        [[ $stderr == *"m/$name: is a pipe, not a file"* ]]
    done
    mkdir c
    mkfifo c/manifest.mp
    run --separate-stderr timeout 20 mics-shard verify c
    [ "$status" = 1 ]
    [[ $stderr == *"c/manifest.mp: is a pipe, not a file" ]]
}

@test "a configuration with members that JSON does not have is read, kept and written back" {
    cp -r "$root/tests/reference/llama-tiny" m
    sed -i '1s/{/{"time_step_limit": [0.0, Infinity], "x": 1e30, /' m/config.json
    mics-plan --topology='node:1 gpu:1' --model=m --global-batch=2 --seq=8 -o plan.mp
    mics-shard split m -p plan.mp -o c
    mics-shard merge c -o back
    [ "$(jq -c '[.time_step_limit, .x == 1e30]' back/config.json)" = '[[0,{"__float__":"Infinity"}],true]' ]
    sed -i 's/"rope_theta": *[0-9.]*/"rope_theta": NaN/' m/config.json
    run --separate-stderr mics-plan --topology='node:1 gpu:1' --model=m --global-batch=2 --seq=8
    [ "$status" = 3 ]
    [[ $stderr == *"config.json: "*"rope_theta: expected a number, found NaN" ]]
}
