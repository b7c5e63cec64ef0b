#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-shard: conversion from and to Hugging Face's files, and invalid files.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cp -r "$BATS_TEST_DIRNAME/../reference/gpt2-tiny" tiny && rm tiny/reference.safetensors
    local strategy
    for strategy in ddp mics:2 zero3 zero1; do
        mics-plan --topology='node:2 gpu:2' --model=tiny --global-batch=4 --seq=8 --strategy=$strategy \
            --no-history -o "$strategy.mp"
    done
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    export MICS_NODE_RANKS=2
}

teardown()
{
    unmount_small_disk
}

# A safetensors file from a header, with N bytes of zeros behind it.
safetensors() # file header bytes
{
    local length=${#2} hex=
    while [ ${#hex} -lt 32 ]; do
        hex+=$(printf '\\x%02x' $((length & 255)))
        length=$((length >> 8))
    done
    printf '%b%s' "$hex" "$2" >"$1"
    truncate -s "+$3" "$1"
}

# The data of a tensor in a file that this test suite wrote, by name.
tensor_bytes() # file name
{
    perl -MJSON::PP -e 'open F, "<:raw", $ARGV[0]; read F, $n, 8; $n = unpack "Q<", $n; read F, $h, $n;
        ($a, $b) = @{decode_json($h)->{$ARGV[1]}{data_offsets}}; seek F, 8 + $n + $a, 0; read F, $d, $b - $a; print $d' "$@"
}

@test "split by any plan, and merged, every tensor has the same bytes" {
    requires perl
    for plan in ddp mics:2 zero3 zero1; do
        mics-shard split tiny -p "$plan.mp" -o "$out-$plan"
        mics-shard verify "$out-$plan"
        mics-shard merge "$out-$plan" -o "$out-hf-$plan"
        for name in wte.weight ln_f.bias h.1.mlp.c_fc.weight h.0.attn.c_attn.bias; do
            cmp <(tensor_bytes tiny/model.safetensors "$name") \
                <(tensor_bytes "$out-hf-$plan/model.safetensors" "transformer.$name")
        done
        mics-shard diff tiny "$out-hf-$plan"
    done
    cmp "$out-hf-ddp/model.safetensors" "$out-hf-zero3/model.safetensors"
}

@test "split passes the plan on, with its own name in the history" {
    mics-shard split tiny -o "$out" <zero3.mp >"$BATS_TEST_TMPDIR/plan.mp"
    [ "$(mics-show --history --tsv "$BATS_TEST_TMPDIR/plan.mp" | grep -c mics-shard)" = 1 ]
    mics-shard split tiny -o "$out-2" --no-history <zero3.mp | cmp - zero3.mp
}

@test "a model written by transformers is merged with its names and bytes" {
    requires perl
    model=$BATS_TEST_DIRNAME/../reference/gpt2-transformers
    mics-plan --topology='node:2 gpu:2' --model="$model" --seq=8 --strategy=zero3 -o theirs.mp
    mics-shard split "$model" -p theirs.mp -o "$out-s"
    mics-shard merge "$out-s" --base="$model" -o "$out"
    cmp "$model/generation_config.json" "$out/generation_config.json"
    names=$(mics-shard list --tsv "$model" | cut -f1 | sort)
    [ "$(wc -w <<<"$names")" -ge 28 ]
    [ "$names" = "$(mics-shard list --tsv "$out" | cut -f1 | sort)" ]
    for name in $names; do
        [ "$name" = tensor ] || cmp <(tensor_bytes "$model/model.safetensors" "$name") <(tensor_bytes "$out/model.safetensors" "$name")
    done
}

@test "a cast to bf16 and back changes nothing further" {
    mics-shard cast tiny --dtype=bf16 -o "$out-b"
    grep -q '"torch_dtype": "bfloat16"' "$out-b/config.json"
    grep -q '"dtype": "bfloat16"' "$out-b/config.json"
    mics-shard cast "$out-b" --dtype=f32 -o "$out-f"
    mics-shard diff "$out-b" "$out-f"
    mics-shard cast "$out-f" --dtype=bf16 -o "$out-c"
    cmp "$out-b/model.safetensors" "$out-c/model.safetensors"
    run mics-shard diff tiny "$out-b" --tsv
    [ "$status" = 4 ]
    [ "${#lines[@]}" -ge 10 ]
}

@test "split takes bf16 and f16, and merge writes them" {
    for dtype in bf16 f16; do
        mics-shard cast tiny --dtype=$dtype -o "$out-$dtype"
        mics-shard split "$out-$dtype" -p zero3.mp -o "$out-s-$dtype"
        mics-shard merge "$out-s-$dtype" --dtype=$dtype -o "$out-m-$dtype"
        mics-shard diff "$out-$dtype" "$out-m-$dtype"
    done
}

@test "several files have an index that names every tensor" {
    mics-shard cast tiny --dtype=f32 --max-file=8K -o "$out"
    [ -e "$out/model-00001-of-00005.safetensors" ]
    [ "$(grep -c safetensors\" "$out/model.safetensors.index.json")" = 28 ]
    mics-shard diff tiny "$out"
    mics-shard split "$out" -p mics:2.mp -o "$out-s"
    mics-shard diff tiny "$out-s"
}

@test "--base copies the tokenizer's files" {
    mkdir base
    echo '{}' >base/tokenizer.json
    echo no >base/other
    mics-shard split tiny -p ddp.mp -o "$out-s"
    mics-shard merge "$out-s" --base=base -o "$out"
    cmp base/tokenizer.json "$out/tokenizer.json"
    [ ! -e "$out/other" ]
}

@test "a tokenizer's files go through split, reshard and merge, and their sums are compared" {
    requires jq
    mics-shard cast tiny --dtype=f32 -o "$out-hf"
    echo '{"version": "1.0"}' >"$out-hf/tokenizer.json"
    echo '{"eos_token_id": 28}' >"$out-hf/generation_config.json"
    mics-shard split "$out-hf" -p zero3.mp -o "$out-s"
    cmp "$out-hf/tokenizer.json" "$out-s/tokenizer.json"
    mics-show --json "$out-s/manifest.mp" | jq -e '[.tokenizer.files[].name] == ["tokenizer.json", "generation_config.json"]'
    mics-shard verify "$out-s"
    mics-shard reshard "$out-s" -p mics:2.mp -o "$out-r"
    mics-shard merge "$out-r" -o "$out"
    mics-shard cast "$out" --dtype=bf16 -o "$out-c"
    for name in tokenizer.json generation_config.json; do
        cmp "$out-hf/$name" "$out/$name"
        cmp "$out-hf/$name" "$out-c/$name"
    done
    mkdir other
    echo '{"version": "2.0"}' >other/tokenizer.json
    mics-shard merge "$out-r" --base=other -o "$out-b"
    cmp other/tokenizer.json "$out-b/tokenizer.json"
    [ ! -e "$out-b/generation_config.json" ]
    echo '{"version": "1.1"}' >"$out-r/tokenizer.json"
    for damaged in "verify $out-r" "merge $out-r -o $out-m"; do
        read -ra words <<<"$damaged"
        run --separate-stderr mics-shard "${words[@]}"
        one_line_and_code 3
        [[ $stderr == *"tokenizer.json: damaged: 19 bytes with XXH64 "* ]]
        [ ! -e "$out-m" ]
    done
}

@test "masks and a tied head are ignored, a different head is refused" {
    requires perl
    perl -MJSON::PP -e 'open F, "<:raw", "tiny/model.safetensors"; read F, $n, 8; read F, $h, unpack "Q<", $n; local $/; $d = <F>;
        $j = decode_json $h; $e = length $d; ($a, $b) = @{$j->{"wte.weight"}{data_offsets}}; $w = substr $d, $a, $b - $a;
        $j->{"h.0.attn.bias"} = {dtype => "U8", shape => [1, 1, 2, 2], data_offsets => [$e, $e + 4]};
        $j->{"lm_head.weight"} = {dtype => "F32", shape => [29, 16], data_offsets => [$e + 4, $e + 4 + length $w]};
        for ("good", "bad") { substr($w, 9, 1) = "\1" if /bad/; $h = encode_json $j; open O, ">:raw", "$_.safetensors";
            print O pack("Q<", length $h), $h, $d, "\0" x 4, $w; close O }'
    mics-shard split good.safetensors -p ddp.mp -o "$out"
    mics-shard diff tiny "$out"
    run --separate-stderr mics-shard split bad.safetensors -p ddp.mp -o "$out-2"
    [ "$status" = 3 ]
    [[ $stderr == *"the head is tied to it"* ]]
    [ ! -e "$out-2" ]
}

@test "every tensor that does not fit is named, and nothing is written" {
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --seq=32 -o nano.mp
    run --separate-stderr mics-shard split tiny/model.safetensors -p nano.mp -o "$out"
    [ "$status" = 3 ]
    [ "${#stderr_lines[@]}" -ge 50 ]
    [[ $stderr == *"tensor 'wte.weight' is [29, 16], the model's is [257, 128]"* ]]
    [[ $stderr == *"tensor 'h.3.ln_1.weight' of the model is missing"* ]]
    [ ! -e "$out" ]
    run --separate-stderr mics-shard split tiny -p nano.mp -o "$out"
    one_line_and_code 3
}

@test "malformed safetensors are reported in one line" {
    safetensors overlap.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 12
    safetensors twice.safetensors '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}' 8
    safetensors huge.safetensors '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}' 4
    safetensors short.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 4
    head -c 5 /dev/zero >tiny5.safetensors
    head -c 100 /dev/urandom >noise.safetensors
    for file in overlap twice huge short tiny5 noise; do
        run --separate-stderr mics-shard list $file.safetensors
        [ "$status" = 3 ]
        [[ ${stderr_lines[0]} == "mics-shard: $file.safetensors: "* ]]
    done
}

@test "numbers that are not finite, or too large for the type, are refused by name" {
    cp tiny/model.safetensors nan.safetensors
    printf '\x00\x00\xc0\x7f' | dd of=nan.safetensors bs=1 seek=$(($(stat -c %s nan.safetensors) - 4)) conv=notrunc status=none
    run --separate-stderr mics-shard verify nan.safetensors
    [ "$status" = 3 ]
    [[ $stderr == *"holds numbers that are not finite"* ]]
    run --separate-stderr mics-shard split nan.safetensors -p ddp.mp -o "$out"
    one_line_and_code 3
    [ ! -e "$out" ]
    printf '\x00\x00\x80\x4f' | dd of=nan.safetensors bs=1 seek=$(($(stat -c %s nan.safetensors) - 4)) conv=notrunc status=none
    run --separate-stderr mics-shard cast nan.safetensors --dtype=f16 -o "$out"
    one_line_and_code 3
    [[ $stderr == *"too large"* ]]
}

@test "verify names every tensor with a number that is not finite, each once" {
    requires perl
    perl -MJSON::PP -e 'open F, "<:raw", "tiny/model.safetensors"; read F, $n, 8; read F, $h, unpack "Q<", $n; local $/; $d = <F>;
        $j = decode_json $h; for ("wte.weight", "ln_f.bias", "h.1.mlp.c_fc.weight") { ($a, $b) = @{$j->{$_}{data_offsets}};
            substr($d, $_, 4) = pack "f<", "inf" for $a, $b - 4; } open O, ">:raw", "bad3.safetensors"; print O $n, $h, $d'
    run --separate-stderr mics-shard verify bad3.safetensors
    [ "$status" = 3 ]
    [ "${#stderr_lines[@]}" = 4 ]
    for name in wte.weight ln_f.bias h.1.mlp.c_fc.weight; do [[ $stderr == *"'$name' holds numbers that are not finite"* ]]; done
}

@test "a flipped bit is found by verify, merge and reshard, which name the file" {
    mics-shard split tiny -p zero3.mp -o "$out"
    printf '\x01' | dd of="$out/shard-00002.safetensors" bs=1 seek=5000 conv=notrunc status=none
    for command in "verify $out" "merge $out -o $out-m" "reshard $out -p ddp.mp -o $out-r"; do
        # Words on purpose.
        # shellcheck disable=SC2086
        run --separate-stderr mics-shard $command
        [ "$status" = 3 ]
        [[ ${stderr_lines[0]} == *"shard-00002.safetensors: is damaged"* ]]
    done
    [ ! -e "$out-m" ]
    [ ! -e "$out-r" ]
    truncate -s -1 "$out/shard-00001.safetensors"
    run --separate-stderr mics-shard verify "$out"
    one_line_and_code 3
    rm "$out/shard-00001.safetensors"
    run --separate-stderr mics-shard list "$out"
    one_line_and_code 3
}

@test "a checkpoint whose plan was computed by other formulas is read" {
    requires jq
    mics-shard split tiny -p mics:2.mp -o "$out"
    mics-show --json "$out/manifest.mp" | jq '.plan.memory.arena_bytes += 256 | .plan.choice.invented = 1' | sealed >"$BATS_TEST_TMPDIR/old"
    jq .plan "$BATS_TEST_TMPDIR/old" >old-plan.json
    run -3 --separate-stderr mics-shard split tiny -p old-plan.json -o "$out-none"
    [[ $stderr == *"memory.arena_bytes"* ]]
    cp "$BATS_TEST_TMPDIR/old" "$out/manifest.mp"
    mics-shard verify "$out"
    mics-shard diff tiny "$out"
    mics-shard reshard "$out" -p zero3.mp -o "$out-r"
    mics-shard merge "$out" -o "$out-m"
    mics-shard diff tiny "$out-m"
    jq '.model.n_embd = 32 | del(.model.parameters)' "$BATS_TEST_TMPDIR/old" | sealed >"$out/manifest.mp"
    run -3 --separate-stderr mics-shard list "$out"
    [[ $stderr == *"tensors are not the model's"* ]]
}

@test "other families are refused by name" {
    mkdir -p llama
    cp tiny/model.safetensors llama/
    echo '{"model_type": "llama", "hidden_size": 8}' >llama/config.json
    run --separate-stderr mics-shard split llama -p ddp.mp -o "$out"
    one_line_and_code 3
    [[ $stderr == *"llama"* ]]
}

@test "a folder that is not empty, a missing option, an unknown command are usage mistakes" {
    mkdir -p "$out" && touch "$out/x"
    run --separate-stderr mics-shard cast tiny --dtype=f16 -o "$out"
    usage_mistake mics-shard || one_line_and_code 2
    for line in "" "melt tiny" "merge tiny" "cast tiny -o $out" "diff tiny" "list tiny tiny" "list tiny --dtype=f16" \
        "merge tiny -o x --plan=ddp.mp" "verify tiny -o x" "merge tiny -o x --dtype=f64"; do
        # shellcheck disable=SC2086
        run --separate-stderr mics-shard $line
        usage_mistake mics-shard
    done
}

@test "a mount point as output folder is refused before the work" {
    unshare -rm true || skip "no user namespaces"
    mkdir disk
    # shellcheck disable=SC2016
    run unshare -rm sh -c 'mount -t tmpfs none disk && mics-shard cast "$0" --dtype=f32 -o disk' "$root/tests/reference/gpt2-tiny"
    [[ $status = 2 && $output == *"/disk' is a mount point, which cannot be replaced: name a folder in it" ]]
    [ -z "$(compgen -G "disk.tmp.*")" ]
}

@test "a link to an empty folder stays, and its folder is written" {
    mkdir -p disk/empty
    ln -s disk/empty link
    ln -s nowhere dangling
    mics-shard cast "$root/tests/reference/gpt2-tiny" --dtype=f32 -o link/
    [ -L link ]
    mkdir second third
    ln -s third elsewhere
    mics-shard cast "$root/tests/reference/gpt2-tiny" --dtype=f32 -o second/.
    mics-shard cast "$root/tests/reference/gpt2-tiny" --dtype=f32 -o elsewhere/.
    [ -L elsewhere ] && cmp second/model.safetensors third/model.safetensors
    [ "$(ls -A disk)" = empty ]
    mics-shard cast "$root/tests/reference/gpt2-tiny" --dtype=f32 -o fourth/.
    cmp second/model.safetensors fourth/model.safetensors
    mkdir here
    run -2 --separate-stderr env -C here mics-shard cast "$root/tests/reference/gpt2-tiny" \
        --dtype=f32 -o .
    [[ $stderr == *"is the current folder, which cannot be replaced"* ]]
    mics-shard diff link "$root/tests/reference/gpt2-tiny"
    run --separate-stderr mics-shard cast "$root/tests/reference/gpt2-tiny" --dtype=f32 -o dangling
    [ "$status" = 2 ]
    [ -L dangling ] && [ ! -e nowhere ]
}

@test "--dry-run prints the bytes and writes nothing" {
    run mics-shard split tiny -p zero3.mp -o "$out" --dry-run --tsv
    [ "$status" = 0 ]
    mics-shard split tiny -p zero3.mp -o "$out-s"
    bytes=$(cat "$out-s"/shard-* | wc -c)
    [[ ${lines[1]} == $'bytes\t'"$bytes" ]]
    [ ! -e "$out" ]
}

@test "a disk that is too small is refused before anything is written" {
    requires root tmpfs
    small_disk 1m
    run --separate-stderr mics-shard cast tiny --dtype=f32 -o "$BATS_TEST_TMPDIR/small/out"
    one_line_and_code 1
    [[ $stderr == *"no room"* ]]
    [ -z "$(ls "$BATS_TEST_TMPDIR/small")" ]
}

@test "an interrupt leaves nothing behind" {
    mkdir -p big
    safetensors big/model.safetensors '{"a":{"dtype":"F32","shape":[268435456],"data_offsets":[0,1073741824]}}' 1073741824
    mics-shard cast big --dtype=bf16 -o "$BATS_TEST_TMPDIR/i/out" 3>&- &
    job=$!
    for _ in $(seq 200); do
        if ls "$BATS_TEST_TMPDIR"/i/*/model.safetensors 2>/dev/null; then break; fi
        sleep 0.01
    done
    kill -TERM $job
    wait $job || code=$?
    [ "$code" = 143 ]
    [ -z "$(ls "$BATS_TEST_TMPDIR/i")" ]
}

@test "the next run removes the files of a killed run, but not those of a running one" {
    requires flock
    mkdir -p "$BATS_TEST_TMPDIR/l/out.tmp.1/deep" "$BATS_TEST_TMPDIR/l/out.tmp.2" "$BATS_TEST_TMPDIR/l/out.tmp.x" "$BATS_TEST_TMPDIR/l/output.tmp.1"
    echo x >"$BATS_TEST_TMPDIR/l/out.tmp.1/deep/x"
    echo x >"$BATS_TEST_TMPDIR/l/out.tmp.3"
    flock "$BATS_TEST_TMPDIR/l/out.tmp.2" mics-shard cast tiny --dtype=bf16 -o "$BATS_TEST_TMPDIR/l/out" --dry-run
    [ -e "$BATS_TEST_TMPDIR/l/out.tmp.1" ]
    flock "$BATS_TEST_TMPDIR/l/out.tmp.2" mics-shard cast tiny --dtype=bf16 -o "$BATS_TEST_TMPDIR/l/out/"
    [ "$(cd "$BATS_TEST_TMPDIR/l" && echo *)" = "out out.tmp.2 out.tmp.3 out.tmp.x output.tmp.1" ]
}

@test "memory does not grow with the model" {
    bash -c 'ulimit -d 131072; exec mics-shard --version' || skip "no program runs in so little: a sanitizer's build"
    mkdir -p wide
    safetensors wide/model.safetensors '{"a":{"dtype":"F32","shape":[268435456],"data_offsets":[0,1073741824]}}' 1073741824
    bash -c 'ulimit -d 131072; exec mics-shard verify wide'
}
