#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-sample and mics-train --eval, on small models.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 | head -c 20000 >text
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --seq=64 --dtype=f32 >one.mp
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=4 --seq=64 --strategy=zero3 --dtype=f32 >zero3.mp
    mics-train -p one.mp --data=text --steps=3 --val-every=0 --sample=0 --out=one -q
    mics-shard reshard one -p zero3.mp -o sharded
    mics-shard merge one -o hf
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    reference=$BATS_TEST_DIRNAME/../reference
    export MICS_NODE_RANKS=2
}

refused() # code text command...
{
    local code=$1 text=$2
    shift 2
    run --separate-stderr "$@"
    [ "$output" = "" ]
    if [ "$code" = 2 ]; then usage_mistake "$1"; else one_line_and_code "$code"; fi
    [[ $stderr == *"$text"* ]]
}

@test "greedy texts of every family are those of transformers" {
    local printed=0
    while IFS=: read -r model prompt want; do
        if [[ $model == '#'* ]]; then continue; fi
        got=$(mics-sample "$reference/$model" --ids --temperature=0 --max-tokens=24 --prompt="${prompt# }")
        # generate() ends one token earlier where the model takes no more.
        [[ "$got " == "${want# } "* ]]
        printed=$((printed + 1))
    done <"$reference/generate.txt"
    [ "$printed" -ge 15 ]
}

@test "a text depends neither on what is generated beside it nor on the number of threads" {
    for i in {1..20}; do echo "prompt $i is $((i * i * 17))"; done >prompts
    mics-sample one --max-tokens=40 --top-k=50 --top-p=0.95 --json <prompts >alone
    [ "$(wc -l <alone)" = 20 ]
    mics-sample one --max-tokens=40 --top-k=50 --top-p=0.95 --json --batch=16 <prompts | cmp - alone
    MICS_THREADS=3 mics-sample one --max-tokens=40 --top-k=50 --top-p=0.95 --json --batch=5 <prompts | cmp - alone
    run ! cmp -s <(mics-sample one --max-tokens=40 --json --seed=2 <prompts) alone
}

@test "a checkpoint of any plan and its merged model generate the same" {
    mics-sample one --prompt='Once ' --max-tokens=60 --seed=5 >want
    [ -s want ]
    mics-sample sharded --prompt='Once ' --max-tokens=60 --seed=5 | cmp - want
    mics-sample hf --tokenizer=bytes --prompt='Once ' --max-tokens=60 --seed=5 | cmp - want
}

@test "a text ends before a stop string, and says why it ended" {
    mics-sample one --ids --temperature=0 --max-tokens=30 --ignore-end --prompt='1 2 3' >ids
    read -r -a all <ids
    [ ${#all[@]} = 30 ]
    run -0 mics-sample one --ids --temperature=0 --max-tokens=30 --ignore-end --json --prompt='1 2 3' \
        --stop="${all[5]} ${all[6]}" --stop=nothing
    [[ $output == *'"end":"stop"}' ]]
    text=${output#*'"text":"'}
    text=${text%%\"*}
    [[ "$(cat ids)" == "$text"* && $text != *"${all[5]} ${all[6]}"* ]]
    run -0 mics-sample one --prompt=a --max-tokens=3 --json --ignore-end
    [[ $output == *'"end":"length"}' ]]
    run -0 mics-sample "$reference/llama-tiny" --ids --prompt='1 2' --ignore-end --json
    [[ $output == *'"end":"limit"}' ]]
}

@test "--echo prints the prompt before its text, for each line of standard input" {
    printf 'one\ntwo\n' | mics-sample one --max-tokens=5 --temperature=0 --echo >echoed
    printf 'one\ntwo\n' | mics-sample one --max-tokens=5 --temperature=0 >plain
    [ "$(head -c 3 echoed)" = one ]
    [ $(($(wc -c <plain) + 6)) = "$(wc -c <echoed)" ]
}

@test "bad prompts and models are refused in one line" {
    refused 3 'prompt 1: 400 tokens are more than the model'\''s 256' \
        mics-sample one --prompt="$(printf 'x%.0s' {1..400})"
    refused 3 'prompt 1: token 9999 is outside the model'\''s vocabulary of 257' mics-sample one --ids --prompt='1 9999'
    refused 3 "prompt 1: 'a' is not a token id" mics-sample one --ids --prompt='1 a b'
    refused 3 'prompt 1: is empty' mics-sample one --ids --prompt=' '
    refused 3 'has no tokenizer' mics-sample hf --prompt=a
    refused 1 'absent' mics-sample absent --prompt=a
    mkdir -p bare && cp hf/model.safetensors bare
    refused 3 'no config.json' mics-sample bare --prompt=a
    refused 2 '--ids goes without --tokenizer' mics-sample one --ids --tokenizer=bytes --prompt=1
}

@test "--eval prints the loss of all data, whatever the plan, and writes nothing" {
    mpi 4 mics-train -p zero3.mp --data=text --init=one --eval --out=absent >four
    MICS_NODE_RANKS=1 mics-train -p one.mp --data=text --init=hf --eval --out=absent >alone
    [ ! -e absent ]
    [[ $(cat alone) =~ ^loss\ ([0-9.]+),\ perplexity\ [0-9.]+,\ of\ 20000\ tokens ]]
    loss=${BASH_REMATCH[1]}
    [[ $(cat four) =~ ^loss\ ([0-9.]+), ]]
    awk -v a="$loss" -v b="${BASH_REMATCH[1]}" 'BEGIN { exit !(a > 1 && a - b < 1e-5 && b - a < 1e-5) }'
    MICS_NODE_RANKS=1 refused 2 '--eval needs the model' mics-train -p one.mp --data=text --eval
}
