#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Training of the Llama family and its descendants: on several ranks, on the emulated GPU, and
# through export to Hugging Face and import.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    export MICS_NODE_RANKS=2
}

@test "the configuration of a merged model has the keys of both generations of transformers" {
    requires perl
    mics-plan --topology='node:1 gpu:1' --model=llama-nano --seq=8 -o "$out.mp"
    MICS_NODE_RANKS=1 mics-train -q -p "$out.mp" --data="$root/man/*.1" --steps=1 --val-every=0 --sample=0 --out="$out-run"
    mics-shard merge "$out-run" --dtype=bf16 -o "$out"
    perl -0777 -MJSON::PP -e '$c = decode_json <>; exit !($c->{model_type} eq "llama" && $c->{rope_theta} == 1e4
        && $c->{rope_parameters}{rope_theta} == 1e4 && $c->{rope_parameters}{rope_type} eq "default"
        && $c->{dtype} eq "bfloat16" && $c->{torch_dtype} eq "bfloat16" && $c->{num_key_value_heads} == 2
        && $c->{head_dim} == 32 && !$c->{tie_word_embeddings})' "$out/config.json"
    mics-plan --topology='node:1 gpu:1' --model="$out" --seq=8 | mics-shard split "$out" -o "$out-s" >/dev/null
}

# Train on four ranks, continue with another plan, export to Hugging Face and import again.
four_ranks() # model
{
    for strategy in mics:2 zero3; do
        mics-plan --topology='node:2 gpu:2' --model="$1" --global-batch=4 --seq=32 --strategy=$strategy -o "$out-$strategy.mp"
    done
    data=(--data="$root/man/*.1" --val-every=0 --sample=0)
    mpi 4 mics-train -q -p "$out-mics:2.mp" "${data[@]}" --steps=2 --out="$out-run"
    mics-shard reshard "$out-run" -p "$out-zero3.mp" -o "$out-z"
    mpi 4 mics-train -q -p "$out-zero3.mp" "${data[@]}" --steps=3 --resume="$out-z" --out="$out-on"
    mics-shard merge "$out-on" -o "$out-hf"
    mpi 4 mics-train -q -p "$out-mics:2.mp" "${data[@]}" --steps=1 --lr=1e-9 --min-lr=0 --weight-decay=0 \
        --init="$out-hf" --out="$out-begun"
    mics-shard diff -q "$out-begun" "$out-hf"
}

@test "a Llama is trained on four ranks, moved to another plan, exported and imported again" {
    requires mpi:4
    four_ranks llama-nano
}

@test "a Qwen3 is trained on four ranks, moved to another plan, exported and imported again" {
    requires mpi:4
    four_ranks qwen3-nano
}

@test "a Llama on the emulated GPU gives the losses of the host" {
    requires jq
    [ -f "$MICS_BUILD/emulated/libmics-cuda.so" ] || skip "this build has no emulated plug-in"
    export MICS_PLUGIN_PATH=$MICS_BUILD/emulated MICS_NODE_RANKS=1
    mics-plan --topology='node:1 gpu:1 dtype:f32' --model=llama-nano --global-batch=4 --seq=16 -o "$out.mp"
    for device in host cuda; do
        mics-train -q -p "$out.mp" --data="$root/man/*.1" --val-every=0 --sample=0 --steps=3 --device=$device \
            --out="$out-$device" --metrics="$out-$device.jsonl"
        jq -r 'select(.event == "step") | .loss' "$out-$device.jsonl" >"$out-$device.losses"
    done
    paste "$out-host.losses" "$out-cuda.losses" |
        awk '{ d = ($1 - $2) / $1; bad += d > 1e-5 || -d > 1e-5 } END { exit bad || NR != 3 }'
}
