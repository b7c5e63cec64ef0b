#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tokenizers that travel from the data through checkpoints to models, and refusals of others.

load helpers

# A byte-level tokenizer without merges, whose ids are not those of bytes: ID ends a text.
tokenizer() # folder id
{
    mkdir -p "$1"
    jq -n --argjson eos "$2" '[range(33; 127), range(161; 173), range(174; 256)] as $own
        | ($own + [range(256; 324)]) as $characters
        | {version: "1.0", truncation: null, padding: null,
           added_tokens: [{id: $eos, content: "<|endoftext|>", single_word: false, lstrip: false, rstrip: false,
                           normalized: false, special: true}],
           normalizer: null, post_processor: null,
           pre_tokenizer: {type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true},
           decoder: {type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true},
           model: {type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
                   fuse_unk: false, byte_fallback: false, ignore_merges: false, merges: [],
                   vocab: (([$characters | to_entries[] | {key: ([.value] | implode), value: (.key + if .key >= $eos then 1 else 0 end)}]
                           | from_entries) + {"<|endoftext|>": $eos})}}' >"$1/tokenizer.json"
    echo '{"model_max_length": 32}' >"$1/tokenizer_config.json"
}

setup_file()
{
    requires jq
    cd "$BATS_FILE_TMPDIR" || return
    tokenizer own 0
    tokenizer other 9
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=2 --seq=32 -o plan.mp
    head -c 20000 "$root/man/mics.7" >text
    printf '%0.s\x05\x00\x40\x00' {1..500} >ids.bin
    train --tokenizer=own --data=text --steps=2 --out=run
    mics-shard merge run -o hf
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
}

train()
{
    mics-train -q -p plan.mp --val-every=0 --sample=0 "$@"
}

refused() # words...
{
    [ "$status" = 3 ]
    [ "${#stderr_lines[@]}" = 1 ]
    local words
    for words in "$@"; do [[ $stderr == *"$words"* ]]; done
    [ ! -e "$out/latest" ]
}

listed() # path
{
    mics-show --json "$1/manifest.mp" | jq -c '.tokenizer'
}

@test "a checkpoint and a merged model have the tokenizer's files, and the end of a text" {
    for file in tokenizer.json tokenizer_config.json; do
        cmp "own/$file" "run/latest/$file"
        cmp "own/$file" "hf/$file"
    done
    listed run/latest | jq -e '.size == 257 and .end == 0 and (.fingerprint | length == 16) and (.files | length == 2)'
    jq -e '.eos_token_id == 0 and .bos_token_id == 0' hf/config.json
    mics-shard verify run
    mics-show run/latest/manifest.mp | grep -q tokenizer_config.json
}

@test "a run is resumed with its own tokenizer only, wherever that comes from" {
    train --tokenizer=own --data=text --steps=3 --resume=run --out="$out-1"
    train --tokenizer=run --data=text --steps=3 --resume=run --out="$out-2"
    train --data=text --steps=3 --resume=run --out="$out-3"
    for run in 2 3; do
        [ "$(listed "$out-1/latest")" = "$(listed "$out-$run/latest")" ]
        cmp "$out-1/latest/shard-00000.safetensors" "$out-$run/latest/shard-00000.safetensors"
    done
    for option in other bytes; do
        run --separate-stderr train --data=text --tokenizer=$option --other-data --steps=3 --resume=run --out="$out"
        refused "run/latest: trained with another tokenizer (tokenizer.json, 257 ids; now " "--tokenizer=run/latest has that one"
    done
}

@test "a model with a tokenizer begins with no other, and with bytes only if they are insisted on" {
    for model in hf run; do
        train --tokenizer=own --data=text --steps=1 --init=$model --out="$out-$model"
        run --separate-stderr train --data=text --steps=1 --init=$model --out="$out"
        refused "--init=$model: the model has a tokenizer (tokenizer.json, 257 ids), and the data would be bytes" "--tokenizer=bytes insists"
        run --separate-stderr train --tokenizer=other --data=text --steps=1 --init=$model --out="$out"
        refused "--init=$model: the model has another tokenizer"
    done
    train --tokenizer=bytes --data=text --steps=1 --init=hf --out="$out"
    listed "$out/latest" | jq -e '.size == 257 and .end == 256 and .files == []'
    run --separate-stderr train --tokenizer=own --data=text --steps=2 --resume="$out" --out="$out-b"
    [ "$status" = 3 ]
    [[ $stderr == *"(bytes; now tokenizer.json, 257 ids): --tokenizer=bytes has that one"* ]]
}

@test "files of tokens that do not say what they are get the tokenizer of the model" {
    train --data=ids.bin --steps=1 --out="$out-none"
    [ "$(listed "$out-none/latest")" = null ]
    train --data=ids.bin --steps=1 --init=hf --out="$out"
    cmp own/tokenizer.json "$out/latest/tokenizer.json"
    [ "$(listed "$out/latest")" = "$(listed run/latest)" ]
    train --data=ids.bin --steps=2 --resume="$out" --out="$out-on"
    [ "$(listed "$out-on/latest")" = "$(listed run/latest)" ]
}

@test "a data set says what tokenizer it has, which is that of all data" {
    cp ids.bin "$BATS_TEST_TMPDIR/set.bin"
    mkdir "$BATS_TEST_TMPDIR/set.tokenizer"
    cp own/* "$BATS_TEST_TMPDIR/set.tokenizer"
    set=$BATS_TEST_TMPDIR/set
    mics-show --json run/latest/manifest.mp |
        jq --argjson size "$(stat -c %s ids.bin)" \
            '{kind: "mics.dataset", v: 1, tokens: ($size / 2), id_bytes: 2, tokenizer}' >"$set.mp"
    train --data="$set.bin" --steps=1 --out="$out-1"
    [ "$(listed "$out-1/latest")" = "$(listed run/latest)" ]
    train --data="$set.bin" --steps=1 --init=hf --out="$out-2"
    train --data="1:$set.bin 1:text" --tokenizer=own --steps=1 --out="$out-3"
    run --separate-stderr train --data="1:$set.bin 1:text" --steps=1 --out="$out"
    refused "set.bin: encoded with another tokenizer (tokenizer.json, 257 ids) than the rest of the data (bytes)"
    run --separate-stderr train --data="$set.bin" --tokenizer=other --steps=1 --out="$out"
    refused "set.bin: encoded with another tokenizer (tokenizer.json, 257 ids) than --tokenizer (tokenizer.json, 257 ids)"
    echo >>"$set.tokenizer/tokenizer.json"
    run --separate-stderr train --data="$set.bin" --steps=1 --out="$out"
    refused "set.tokenizer/tokenizer.json: damaged"
}

@test "a model is evaluated with its own tokenizer" {
    run --separate-stderr mics-train -p plan.mp --data=text --init=hf --eval
    [ "$status" = 0 ]
    own=$output
    [[ $own =~ ^loss\ [0-9.]+,\ perplexity\ [0-9.]+,\ of\ [0-9]+\ tokens ]]
    own=${BASH_REMATCH[0]}
    [[ "$(mics-train -p plan.mp --data=text --init=run --eval)" == "$own"* ]]
    [[ "$(mics-train -p plan.mp --data=text --init=run --tokenizer=own --eval)" == "$own"* ]]
    [[ "$(mics-train -p plan.mp --data=text --init=run --tokenizer=bytes --eval)" != "$own"* ]]
    run --separate-stderr mics-train -p plan.mp --data=text --init=run --tokenizer=other --eval
    refused "--init=run: the model has another tokenizer (tokenizer.json, 257 ids) than the data (tokenizer.json, 257 ids)"
}

@test "the token that ends documents is what the files say, for mics-data, mics-train and mics-sample" {
    cp -r own named
    jq '.added_tokens[0].content = "<|stop|>" | .model.vocab |= with_entries(if .value == 0 then .key = "<|stop|>" else . end)' \
        own/tokenizer.json >named/tokenizer.json
    echo hello >line.txt
    run --separate-stderr mics-data encode -t named -o "$out" line.txt
    refused 'named: no file of the tokenizer says which token ends a document' --end-token=TEXT
    run --separate-stderr train --tokenizer=named --data=text --steps=1 --out="$out"
    refused 'named: no file of the tokenizer says which token ends a document' --end-token=TEXT

    mics-data encode -t named -o said line.txt --end-token='<|stop|>' --json >said.json
    [ "$(jq -c '[.documents, .tokens, .tokenizer.end]' said.json)" = '[1,7,0]' ]
    train --tokenizer=named --data=text --steps=1 --out=said-run --end-token=0
    mics-show --json said-run/latest/manifest.mp >manifest.json
    [ "$(jq .tokenizer.end manifest.json)" = 0 ]
    [ "$(jq .tokenizer.fingerprint manifest.json)" = "$(jq .tokenizer.fingerprint said.json)" ]
    mics-sample said-run --prompt=a --max-tokens=1
    run -2 --separate-stderr mics-data encode -t named -o "$out" line.txt --end-token='<|x|>'
    [[ $stderr == *"--end-token=<|x|>: the tokenizer has no such token"* ]]

    echo '{"eos_token": {"content": "<|stop|>"}}' >named/special_tokens_map.json
    mics-data encode -t named -o "$out" line.txt --json | jq -e '.tokenizer.end == 0'
    echo '{"eos_token": "<|x|>"}' >named/special_tokens_map.json
    rm -r "$out".*
    run --separate-stderr train --tokenizer=named --data=text --steps=1 --out="$out"
    refused "named: special_tokens_map.json: eos_token '<|x|>' is not in the vocabulary of tokenizer.json"
    mics-data encode -t named -o "$out" line.txt --end-token=5 --json | jq -e '.tokenizer.end == 5'
}

@test "texts end where generation_config.json says, also of checkpoints and merged models" {
    sample() { mics-sample "$1" --ids --prompt='72 101 108' --max-tokens=8 --temperature=0 --json "${@:2}" | jq -c '[(.ids | length), .end]'; }
    cp -r hf generation
    local ids
    ids=$(mics-sample hf --ids --prompt='72 101 108' --max-tokens=8 --temperature=0 --json --ignore-end | jq -c .ids)
    local third first
    third=$(jq '.[2]' <<<"$ids")
    first=$(jq --argjson id "$third" 'index($id)' <<<"$ids")
    [ "$(sample generation)" = '[8,"length"]' ]
    [ "$(sample generation --end-token="$third")" = "[$first,\"end\"]" ]
    jq --argjson id "$third" '.eos_token_id = $id' hf/config.json >generation/config.json
    [ "$(sample generation)" = "[$first,\"end\"]" ]
    echo '{}' >generation/generation_config.json # without an end there is none
    [ "$(sample generation)" = '[8,"length"]' ]
    jq '.eos_token_id = 0' hf/config.json >generation/config.json
    echo "{\"eos_token_id\": [0, $third]}" >generation/generation_config.json
    [ "$(sample generation)" = "[$first,\"end\"]" ]
    [ "$(sample generation --ignore-end)" = '[8,"length"]' ]
    mics-shard split generation -p plan.mp -o split
    [ "$(sample split)" = "[$first,\"end\"]" ]
    mics-shard merge split -o again
    [ "$(sample again)" = "[$first,\"end\"]" ]
    echo '{"eos_token_id": "x"}' >generation/generation_config.json
    run -3 --separate-stderr mics-sample generation --ids --prompt=1
    [[ ${stderr_lines[0]} == *"generation_config.json: eos_token_id: expected an id, or a list of ids" ]]
}

@test "tokenizers: files of tiktoken are found in a folder whose name is a pattern" {
    mkdir 'a[b]c'
    echo 'IQ== 0' >'a[b]c/cl100k_base.tiktoken'
    run --separate-stderr mics-data encode -t 'a[b]c' "$root/README.md" -o out
    one_line_and_code 3
    [ "$stderr" = 'mics-data: a[b]c: cl100k_base.tiktoken: 1 ranks; cl100k_base has 100256' ]
}

@test "tokenizers: a folder with the vocab.txt of a BERT encodes, decodes and ends documents" {
    mkdir -p "$BATS_TEST_TMPDIR/bert"
    cp "$root/tests/reference/tokenizers/bert/vocab.txt" "$BATS_TEST_TMPDIR/bert/"
    echo '{"tokenizer_class": "BertTokenizer", "do_lower_case": true, "mask_token": "[MASK]"}' \
        >"$BATS_TEST_TMPDIR/bert/tokenizer_config.json"
    echo 'The TrÉe, and a tree: [MASK].' | jq -Rr '"\"\(.)\"" | fromjson' >"$BATS_TEST_TMPDIR/text"
    mics-data encode -q -t "$BATS_TEST_TMPDIR/bert" "$BATS_TEST_TMPDIR/text" -o "$out"
    [ -e "$out.tokenizer/vocab.txt" ]
    [ "$(od -An -tu2 -v "$out.bin" | xargs | cut -d' ' -f1)" = 2 ] # [CLS]
    [ "$(od -An -tu2 -v "$out.bin" | xargs | sed 's/.* //')" = 3 ] # [SEP]
    [[ $(mics-data show "$out" --sample=40) == *"[CLS] the tree, and a tree : [UNK] mask [UNK]. [SEP]"* ]]
}

@test "tokenizers: a tokenizer.json of XLM-R encodes a long text in parts as a whole, and decodes it" {
    local folder=$root/tests/reference/tokenizers/xlm-roberta count=40000 size
    yes 'sharded training  of the ranks,' | head -n $count >"$BATS_TEST_TMPDIR/text"
    mics-data encode -q -t "$folder/tokenizer.json" "$BATS_TEST_TMPDIR/text" -o "$out"
    size=$(stat -c %s "$out.bin")
    [ $((size % count)) = 2 ] # the end of the document
    head -c -2 "$out.bin" >"$out.lines"
    [ "$(od -An -tu2 -v -w$((size / count)) "$out.lines" | sort -u | wc -l)" = 1 ]
    [[ $(mics-data show "$out" --sample=40) == *"sharded training of the ranks, sharded"* ]]
}

@test "tokenizers: damaged ones of BERT and XLM-R are refused with one line" {
    local folder=$BATS_TEST_TMPDIR/damaged
    mkdir -p "$folder"
    echo text >"$BATS_TEST_TMPDIR/text"
    printf 'a\nb\n' >"$folder/vocab.txt"
    run -3 --separate-stderr mics-data encode -t "$folder" "$BATS_TEST_TMPDIR/text" -o "$out"
    refused "vocab.txt: the token for unknown words, unk_token or [UNK], is not in it"
    jq '.model.unk_id = 100000' "$root/tests/reference/tokenizers/xlm-roberta/tokenizer.json" >"$folder/tokenizer.json"
    run -3 --separate-stderr mics-data encode -t "$folder" "$BATS_TEST_TMPDIR/text" -o "$out"
    refused "model.unk_id: expected 0 to"
    jq '.normalizer.precompiled_charsmap |= .[: length - 400]' \
        "$root/tests/reference/tokenizers/xlm-roberta/tokenizer.json" >"$folder/tokenizer.json"
    run -3 --separate-stderr mics-data encode -t "$folder" "$BATS_TEST_TMPDIR/text" -o "$out"
    refused "precompiled_charsmap"
    [ ! -e "$out.bin" ]
}
