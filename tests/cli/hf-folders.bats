#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Folders of Hugging Face's files as people have them: the Hub's cache, leftover indexes, tied pairs,
# buffers, names of wrappers. What transformers reads is read, and gives the same numbers.

load helpers
load hf_files

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    command -v perl >/dev/null || return 0
    cp -r "$BATS_TEST_DIRNAME/../reference/llama-tiny" tiny && rm tiny/reference.safetensors tiny/config-5.json
    cp -r "$BATS_TEST_DIRNAME/../reference/gpt2-tiny" gpt2 && rm gpt2/reference*
    mkdir tied && sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tiny/config.json >tied/config.json
    edited tiny/model.safetensors tied/model.safetensors 'delete $t{"lm_head.weight"}'
    mkdir sharded && cp tiny/config.json sharded/
    shard tiny/model.safetensors sharded
    for model in tiny tied gpt2; do
        mics-plan --topology='node:2 gpu:2' --model=./$model --global-batch=4 --seq=8 --strategy=mics:2 \
            --no-history -o $model.mp
    done
}

setup()
{
    requires perl
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    model=$BATS_TEST_TMPDIR/model
    export MICS_NODE_RANKS=2
}

# Two shards, and their index.
shard() # source folder
{
    edited "$1" "$2/a.safetensors" 'delete $t{$_} for grep { /layers/ } keys %t'
    edited "$1" "$2/b.safetensors" 'delete $t{$_} for grep { !/layers/ } keys %t'
    index "$2" model.norm.weight a.safetensors model.layers.0.input_layernorm.weight b.safetensors
}

# A copy of a folder in $model.
fresh() # folder
{
    rm -rf "$model"
    cp -r "$1" "$model"
}

# The folder $model, or another one, has the numbers of a model, in conversions as in comparisons.
same_as() # folder [folder]
{
    local with=${2:-$model}
    mics-shard diff "$1" "$with" && rm -rf "$out" && mics-shard split "$with" -p "$1.mp" -o "$out" &&
        mics-shard diff "$1" "$out"
}

# The folder $model is refused in one line, which has a text.
refused() # text plan
{
    rm -rf "$out"
    run --separate-stderr mics-shard split "$model" -p "$2.mp" -o "$out"
    if ! one_line_and_code 3 || [[ $stderr != *"$1"* ]] || [ -e "$out" ]; then
        printf 'expected: %s\ngot: %s\n' "$1" "$stderr"
        return 1
    fi
}

@test "links are followed wherever they lead, as in the Hub's cache" {
    local cache=$BATS_TEST_TMPDIR/models--a--b snapshot
    for links in relative absolute folder; do
        rm -rf "$cache"
        mkdir -p "$cache/blobs" "$cache/snapshots/abc"
        for file in sharded/*; do
            cp "$file" "$cache/blobs/$(basename "$file").blob"
            case $links in
            relative) ln -s "../../blobs/$(basename "$file").blob" "$cache/snapshots/abc/$(basename "$file")" ;;
            *) ln -s "$cache/blobs/$(basename "$file").blob" "$cache/snapshots/abc/$(basename "$file")" ;;
            esac
        done
        snapshot=$cache/snapshots/abc
        if [ $links = folder ]; then
            ln -s "$snapshot" "$cache/latest"
            snapshot=$cache/latest
        fi
        same_as tiny "$snapshot"
        mics-shard verify "$snapshot"
    done
    run --separate-stderr mics-shard list "$cache"
    one_line_and_code 3
    [[ $stderr == *"is a model in the Hub's cache: give the folder of a revision, such as '$cache/snapshots/abc'" ]]
    mics-sample "$snapshot" --ids --prompt='1 2 3' --max-tokens=4 --temperature=0 --json >"$BATS_TEST_TMPDIR/one"
    mics-sample tiny --ids --prompt='1 2 3' --max-tokens=4 --temperature=0 --json >"$BATS_TEST_TMPDIR/two"
    cmp "$BATS_TEST_TMPDIR/one" "$BATS_TEST_TMPDIR/two"
    printf '\1\0\2\0\3\0\4\0\5\0\6\0\7\0\10\0\11\0' >"$BATS_TEST_TMPDIR/ids.bin"
    mics-plan --topology='node:1 gpu:1 dtype:f32' --model=./tiny --global-batch=1 --seq=8 --no-history -o one.mp
    for folder in tiny "$snapshot"; do
        MICS_NODE_RANKS=1 mics-train -p one.mp --data="$BATS_TEST_TMPDIR/ids.bin" --init="$folder" --eval
    done | cut -d' ' -f1-4 | uniq -c | grep -q '^ *2 '
    [ "$(mics-shard list "$snapshot" --json | jq '.tensors | length')" = "$(mics-shard list tiny --json | jq '.tensors | length')" ]
}

@test "names in an index may not leave the folder, but may be in another folder inside" {
    for name in ../tiny/model.safetensors "$PWD/tiny/model.safetensors" a/../../tiny/model.safetensors .. a/..; do
        fresh sharded
        index "$model" model.norm.weight "$name"
        refused 'which is not inside the folder' tiny
    done
    fresh sharded
    mkdir "$model/parts"
    mv "$model/b.safetensors" "$model/parts/"
    index "$model" model.norm.weight ./a.safetensors model.layers.0.input_layernorm.weight parts/b.safetensors
    same_as tiny
}

@test "a whole file is read, and an index beside it is not, which is said" {
    fresh tiny
    cp sharded/model.safetensors.index.json "$model/"
    same_as tiny
    for command in "verify $model" "list $model" "diff tiny $model" "split $model -p tiny.mp -o $out-2"; do
        # shellcheck disable=SC2086
        run --separate-stderr mics-shard $command
        [ "$status" = 0 ]
        [ "${#stderr_lines[@]}" = 1 ]
        [[ $stderr == *"$model: has model.safetensors and model.safetensors.index.json: reading the former"* ]]
    done
    run --separate-stderr mics-sample "$model" --ids --prompt='1 2' --max-tokens=1
    [ "$status" = 0 ]
    [[ $stderr == *"mics-sample: $model: has model.safetensors and"* ]]
}

@test "an index says which files are read, and no more" {
    for metadata in '' '"metadata": null,' '"metadata": {"total_size": "7"},' '"metadata": {"total_size": 7},'; do
        fresh sharded
        sed -i "s/\"metadata\": {[^}]*},/$metadata/" "$model/model.safetensors.index.json"
        same_as tiny
    done
    fresh sharded # tensors said to be in another file than they are
    index "$model" model.norm.weight b.safetensors model.layers.0.input_layernorm.weight a.safetensors
    same_as tiny
    fresh sharded # names of buffers that no file has
    index "$model" model.norm.weight a.safetensors model.layers.0.input_layernorm.weight b.safetensors \
        model.layers.0.self_attn.rotary_emb.inv_freq b.safetensors model.embed_tokens.position_ids a.safetensors
    same_as tiny
    mics-shard verify "$model"
    fresh sharded
    index "$model" model.norm.weight a.safetensors model.layers.0.input_layernorm.weight c.safetensors
    refused 'c.safetensors: No such file or directory' tiny
    fresh sharded
    index "$model" model.norm.weight a.safetensors nothing b.safetensors
    run --separate-stderr mics-shard verify "$model"
    one_line_and_code 3
    [[ $stderr == *"no file has tensor 'nothing', which the index says is in 'b.safetensors'"* ]]
    run --separate-stderr mics-shard cast "$model" --dtype=bf16 -o "$out-cast"
    one_line_and_code 3
    [ ! -e "$out-cast" ]
}

@test "a tensor that is in two files must be the same in both" {
    fresh sharded
    edited tiny/model.safetensors "$model/b.safetensors" 'delete $t{$_} for grep { !/layers|norm/ } keys %t'
    same_as tiny
    edited tiny/model.safetensors "$model/b.safetensors" 'delete $t{$_} for grep { !/layers|norm/ } keys %t;
        substr($t{"model.norm.weight"}[2], 4, 1) = "\7"'
    refused "b.safetensors: tensor 'model.norm.weight' is also in 'a.safetensors', but differs" tiny
    edited tiny/model.safetensors "$model/b.safetensors" 'delete $t{$_} for grep { !/layers|norm/ } keys %t;
        $t{"model.norm.weight"} = ["F32", [2, 9], $t{"model.norm.weight"}[2]]'
    refused "is also in 'a.safetensors', but differs" tiny
}

@test "a tied pair has either name, or both and the same numbers" {
    fresh tied
    edited tied/model.safetensors "$model/model.safetensors" '$t{"lm_head.weight"} = delete $t{"model.embed_tokens.weight"}'
    same_as tied
    edited tied/model.safetensors "$model/model.safetensors" '$t{"lm_head.weight"} = $t{"model.embed_tokens.weight"}'
    same_as tied
    cp tiny/model.safetensors "$model/"
    refused "'lm_head.weight' is not the embedding, but the head is tied to it: transformers then unties them" tied
    edited tied/model.safetensors "$model/model.safetensors" 'delete $t{"model.embed_tokens.weight"}'
    refused "tensor 'embed_tokens.weight' of the model is missing" tied
    fresh tiny
    cp tied/model.safetensors "$model/"
    refused "tensor 'lm_head.weight' of the model is missing; if the embedding takes its place" tiny
    fresh gpt2
    edited gpt2/model.safetensors "$model/model.safetensors" '$t{"lm_head.weight"} = delete $t{"wte.weight"}'
    same_as gpt2
    edited gpt2/model.safetensors "$model/model.safetensors" '$t{"lm_head.weight"} = ["F32", $t{"wte.weight"}[1], "\0" x length $t{"wte.weight"}[2]]'
    refused "'lm_head.weight' is not the embedding, but the head is tied to it" gpt2
}

@test "buffers are no tensors of the model" {
    fresh tiny
    edited tiny/model.safetensors "$model/model.safetensors" '$f = ["F32", [3], "\0" x 12];
        $t{$_} = $f for qw(model.layers.1.self_attn.rotary_emb.inv_freq model.rotary_emb.inv_freq rotary_emb.original_inv_freq
            model.layers.0.self_attn.rotary_emb.cos_cached model.layers.0.self_attn.rotary_emb.sin_cached)'
    same_as tiny
    fresh gpt2
    edited gpt2/model.safetensors "$model/model.safetensors" '$t{"h.$_.attn.bias"} = ["BOOL", [1, 1, 2, 2], "\1\0\1\1"],
        $t{"h.$_.attn.masked_bias"} = ["F32", [], "\0" x 4] for 0, 1; $t{"position_ids"} = ["I64", [1], "\0" x 8]'
    same_as gpt2
}

@test "prefixes of wrappers are understood, also in the middle, and others are named" {
    for rename in 's/^/module./' 's/^/_orig_mod./' 's/^/_fsdp_wrapped_module./' 's/^/model./' 's/^/base_model.model./' \
        's/^/module._orig_mod.model./' 's/^model\.//' 's/^model\./model._orig_mod./' 's/layers\.1\./$&_fsdp_wrapped_module./' \
        's/layers\.\d\./$&_fsdp_wrapped_module._checkpoint_wrapped_module./' 's/(self_attn|mlp)/_fsdp_wrapped_module.$1._orig_mod/' \
        's/_proj\./$&base_layer./' 's/^/_forward_module./'; do
        fresh tiny
        edited tiny/model.safetensors "$model/model.safetensors" "for (keys %t) { (\$b = \$_) =~ $rename; \$t{\$b} = delete \$t{\$_} }"
        same_as tiny || { echo "$rename"; return 1; }
    done
    edited tiny/model.safetensors "$model/model.safetensors" 'for (keys %t) { $t{"ema.$_"} = delete $t{$_} }'
    refused "has the prefix 'ema." tiny
    edited tiny/model.safetensors "$model/model.safetensors" 'for (keys %t) { $t{"language_model.$_"} = delete $t{$_} if /layers/ }'
    refused "has the prefix 'language_model." tiny
    edited tiny/model.safetensors "$model/model.safetensors" '$t{"module.model.norm.weight"} = ["F32", [18], "\0" x 72]'
    refused "occurs twice: 'model.norm.weight'" tiny
    edited tiny/model.safetensors "$model/model.safetensors" '$t{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"} = ["F32", [1], "\0" x 4]'
    refused "is of an adapter (LoRA): merge it" tiny
    fresh gpt2
    for rename in 's/^/transformer./' 's/^/module.transformer./' 's/^/model.transformer./' 's/^/_orig_mod./'; do
        edited gpt2/model.safetensors "$model/model.safetensors" "for (keys %t) { (\$b = \$_) =~ $rename; \$t{\$b} = delete \$t{\$_} }"
        same_as gpt2 || { echo "$rename"; return 1; }
    done
}

@test "floating-point types may be mixed, F64 among them" {
    fresh tiny
    edited tiny/model.safetensors "$model/model.safetensors" 'for (grep { /layers|lm_head/ } keys %t) {
        $t{$_} = ["F64", $t{$_}[1], pack "d<*", unpack "f<*", $t{$_}[2]] }'
    same_as tiny
    mics-shard verify "$model"
    mics-shard cast "$model" --dtype=f32 -o "$out-cast"
    mics-shard diff tiny "$out-cast"
    edited tiny/model.safetensors "$model/model.safetensors" '$t{"model.norm.weight"} = ["F64", [18], pack "d<*", (1e300) x 18]'
    run --separate-stderr mics-shard split "$model" -p tiny.mp -o "$out-large"
    one_line_and_code 3
    [[ $stderr == *"'model.norm.weight' holds numbers that are too large for the type asked for"* ]]
    edited tiny/model.safetensors "$model/model.safetensors" '$t{"model.norm.weight"} = ["F8_E4M3", [18], "\1" x 18]'
    refused "tensor 'model.norm.weight' is of type F8_E4M3" tiny
}

@test "a model in another format is named, with what to do" {
    while IFS='|' read -r file text; do
        rm -rf "$model"
        mkdir "$model"
        cp tiny/config.json "$model/"
        head -c 100 /dev/zero >"$model/$file"
        if [[ $file == pytorch_model* ]]; then # split reads them
            refused "$file: not a file of torch.save" tiny
        else
            refused "$text" tiny
        fi
        for command in "list $model" "verify $model" "diff tiny $model"; do
            # shellcheck disable=SC2086
            run --separate-stderr mics-shard $command
            one_line_and_code 3
            [[ $stderr == *"$text"* ]]
        done
    done <<'END'
pytorch_model.bin|'pytorch_model.bin', a pickle: only 'mics-shard split FILE' reads it; to convert it
pytorch_model-00001-of-00002.bin|'pytorch_model-00001-of-00002.bin', a pickle
consolidated.00.pth|'consolidated.00.pth', a pickle
adapter_model.safetensors|'adapter_model.safetensors', an adapter (LoRA) without its model
model.fp16.safetensors|'model.fp16.safetensors', which only an index
model-q4.gguf|'model-q4.gguf', a GGUF file
END
    printf 'PK\3\4%01000d' 0 >"$model/pytorch_model.bin"
    run --separate-stderr mics-shard split "$model/pytorch_model.bin" -p tiny.mp -o "$out"
    one_line_and_code 3
    [[ $stderr == *"pytorch_model.bin: damaged archive of torch.save: its end is missing" ]]
    run --separate-stderr mics-shard cast "$model/pytorch_model.bin" --dtype=f32 -o "$out"
    one_line_and_code 3
    [[ $stderr == *"pytorch_model.bin: not a safetensors file, but a pickle"* ]]
}

@test "a GGUF file and a pointer of Git LFS in the place of weights are named, with what to do" {
    pointer='version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 14064895\n'
    rm -rf "$model"
    mkdir "$model"
    cp tiny/config.json "$model/"
    printf 'GGUF\3\0\0\0\1\0\0\0' >other.safetensors
    run --separate-stderr mics-shard list other.safetensors
    one_line_and_code 3
    [[ $stderr == *'not a safetensors file, but a GGUF file, which is not read here: take '* ]]
    # shellcheck disable=SC2059
    printf "$pointer" 1 >"$model/model.safetensors"
    refused "model.safetensors: not a safetensors file, but a pointer of Git LFS: 'git lfs pull' fetches" tiny
    mv "$model/model.safetensors" "$model/pytorch_model.bin"
    refused "pytorch_model.bin: a pointer of Git LFS: 'git lfs pull' fetches the file" tiny
    run --separate-stderr mics-show "$model/pytorch_model.bin"
    one_line_and_code 3
    [[ $stderr == *": a pointer of Git LFS: 'git lfs pull' fetches the file" ]]
}

@test "a folder that is no checkpoint is named, with the command that reads it" {
    run --separate-stderr mics-show tiny
    one_line_and_code 3
    [[ $stderr == *"'tiny' is a model in Hugging Face files: 'mics-shard list' shows its tensors, and "* ]]
    mkdir other
    : >other/.metadata
    for command in "mics-show other" "mics-shard list other" "mics-shard diff tiny other"; do
        # shellcheck disable=SC2086
        run --separate-stderr $command
        one_line_and_code 3
        [[ $stderr == *"'other' is a checkpoint of torch.distributed.checkpoint: 'mics-shard split' makes "* ]]
    done
    rm -r other
}

@test "what is no file, or a link to none, is said in one line and never waited for" {
    fresh sharded
    rm "$model/b.safetensors"
    mkfifo "$model/b.safetensors"
    refused 'b.safetensors: not a regular file' tiny
    rm "$model/b.safetensors"
    ln -s "$BATS_TEST_TMPDIR/none" "$model/b.safetensors"
    refused 'b.safetensors: No such file or directory' tiny
    rm "$model/b.safetensors"
    mkdir "$model/b.safetensors"
    refused 'b.safetensors: not a regular file' tiny
}
