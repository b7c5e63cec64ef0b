#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Planning the Llama family and its descendants, and conversion from and to Hugging Face.

load helpers
load hf_files

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cp -r "$BATS_TEST_DIRNAME/../reference/llama-tiny" tiny && rm tiny/reference.safetensors
    mkdir tied && sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tiny/config.json >tied/config.json
    plan tiny zero3.mp zero3
    plan tied tied.mp mics:2
}

plan() # model file strategy
{
    mics-plan --topology='node:2 gpu:2' --model="$1" --global-batch=4 --seq=8 --strategy="$3" --no-history -o "$2"
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    reference=$BATS_TEST_DIRNAME/../reference
    export MICS_NODE_RANKS=2
}

# The bytes of every tensor of a file, in the order of their names.
tensors() # file
{
    perl -MJSON::PP -e 'open F, "<:raw", $ARGV[0]; read F, $n, 8; read F, $h, unpack "Q<", $n; local $/; $d = <F>;
        $j = decode_json $h; delete $j->{__metadata__};
        for (sort keys %$j) { ($a, $b) = @{$j->{$_}{data_offsets}}; print "$_ $j->{$_}{dtype} @{$j->{$_}{shape}}\n", substr $d, $a, $b - $a }' "$1"
}

@test "a Llama written by transformers is merged from any plan with its names and bytes" {
    requires perl
    tensors tiny/model.safetensors >"$out-want"
    [ "$(grep -ac 'proj.weight' "$out-want")" = 14 ]
    for strategy in ddp mics:2 zero3 zero1; do
        plan tiny "$out-$strategy.mp" $strategy
        mics-shard split tiny -p "$out-$strategy.mp" -o "$out-s-$strategy"
        mics-shard verify "$out-s-$strategy"
        mics-shard merge "$out-s-$strategy" -o "$out-m-$strategy"
        tensors "$out-m-$strategy/model.safetensors" | cmp - "$out-want"
        mics-shard diff tiny "$out-s-$strategy"
    done
}

@test "names without the prefix are accepted, and frequencies in old files are ignored" {
    requires perl
    # shellcheck disable=SC2016
    edited tiny/model.safetensors bare.safetensors 'for (keys %t) { ($b = $_) =~ s/^model\.//; $t{$b} = delete $t{$_} }
        $t{"layers.$_.self_attn.rotary_emb.inv_freq"} = ["F32", [3], "\1" x 12] for 0, 1'
    mics-shard split bare.safetensors -p zero3.mp -o "$out"
    mics-shard diff tiny "$out"
    # shellcheck disable=SC2016
    edited tiny/model.safetensors other.safetensors '$t{"model.layers.0.self_attn.q_proj.bias"} = ["F32", [3], "\1" x 12]'
    run --separate-stderr mics-shard split other.safetensors -p zero3.mp -o "$out-2"
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'model.layers.0.self_attn.q_proj.bias' does not belong to the model"* ]]
}

@test "a separate head is read if the head is not tied, and must equal the embedding if it is tied" {
    requires perl
    # shellcheck disable=SC2016
    edited tiny/model.safetensors tied/model.safetensors '$t{"lm_head.weight"} = $t{"model.embed_tokens.weight"}'
    mics-shard split tied -p tied.mp -o "$out"
    mics-shard merge "$out" -o "$out-m"
    run ! grep -aq lm_head "$out-m/model.safetensors"
    mics-shard diff tied "$out"
    run --separate-stderr mics-shard split tiny/model.safetensors -p tied.mp -o "$out-2"
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'lm_head.weight' is not the embedding, but the head is tied to it"* ]]
    run --separate-stderr mics-shard split "$out-m/model.safetensors" -p zero3.mp -o "$out-3"
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'lm_head.weight' of the model is missing"* ]]
    run --separate-stderr mics-shard split tied -p zero3.mp -o "$out-4"
    [ "$status" = 3 ]
    [[ $stderr == *"tie_word_embeddings"* ]]
}

@test "a configuration written by version 5 of transformers is the same model, and merge also writes the older keys" {
    mkdir -p "$out-5"
    cp tiny/config-5.json "$out-5/config.json"
    cp tiny/model.safetensors "$out-5"
    run ! grep -q '^  "rope_theta"' "$out-5/config.json"
    mics-shard split "$out-5" -p zero3.mp -o "$out-s"
    plan "$out-5" "$out-5.mp" zero3
    mics-shard split "$out-5" -p "$out-5.mp" -o "$out-t"
    mics-shard merge "$out-t" -o "$out"
    grep -q '^  "rope_theta": 500.0,' "$out/config.json"
    grep -q '^  "torch_dtype": "float32"' "$out/config.json"
    [ "$(grep -c rope_theta "$out/config.json")" = 2 ]
}

@test "a setting that would change the arithmetic is refused in one line that names its key" {
    requires perl
    mkdir -p "$out"
    while IFS='|' read -r change words; do
        perl -0777 -MJSON::PP -e '$c = decode_json shift; $n = decode_json shift; $c->{$_} = $n->{$_} for keys %$n; print encode_json $c' \
            "$(cat tiny/config.json)" "$change" >"$out/config.json"
        run --separate-stderr mics-plan --topology='node:1' --model="$out" --seq=8
        [ "$status" = 3 ]
        [[ $stderr == *"$out/config.json: $words"* ]]
        [ "${#stderr_lines[@]}" = 1 ]
    done <<'END'
{"rope_scaling": {"rope_type": "llama3", "factor": 8}}|rope_scaling.low_freq_factor: missing
{"rope_scaling": {"type": "linear", "factor": "2"}}|rope_scaling.factor: expected a number, found a string
{"rope_scaling": {"type": "longrope", "factor": 2}}|rope_scaling.type: 'longrope' is not supported
{"rope_parameters": {"rope_type": "yarn"}}|rope_parameters.factor: missing
{"mlp_bias": 1}|mlp_bias: expected a boolean, found a number
{"hidden_act": "gelu"}|hidden_act: 'gelu' is not supported
{"num_key_value_heads": 2}|n_kv_head: 2 heads of keys do not divide 3 heads of queries
END
}

@test "a checkpoint of a Llama with other positions or heads is refused with both values" {
    mics-shard split tiny -p zero3.mp -o "$out"
    mkdir "$out-other"
    sed 's/"rope_theta": 500.0/"rope_theta": 600.0/' tiny/config.json >"$out-other/config.json"
    plan "$out-other" "$out-theta.mp" ddp
    run --separate-stderr mics-shard reshard "$out" --plan="$out-theta.mp" -o "$out-2"
    [ "$status" = 3 ]
    [[ $stderr == *"rope_theta 500.0, the plan one with 600.0"* ]]
}

@test "scaled positions of Llama 3.1 survive split, checkpoint and merge in the keys of both generations" {
    requires perl
    mkdir "$out"
    cp tiny/model.safetensors "$out"
    perl -0777 -MJSON::PP -e '$c = decode_json <>; $c->{rope_scaling} = {rope_type => "llama3", factor => 8, low_freq_factor => 1,
        high_freq_factor => 4, original_max_position_embeddings => 64}; print encode_json $c' tiny/config.json >"$out/config.json"
    plan "$out" "$out.mp" mics:2
    mics-show --json "$out.mp" | grep -q '"rope_type": "llama3"'
    mics-shard split "$out" -p "$out.mp" -o "$out-s"
    mics-shard merge "$out-s" -o "$out-m"
    perl -0777 -MJSON::PP -e '$c = decode_json <>; for (@$c{qw(rope_scaling rope_parameters)}) { exit 1 unless $_->{rope_type} eq "llama3"
        && $_->{factor} == 8 && $_->{low_freq_factor} == 1 && $_->{high_freq_factor} == 4 && $_->{original_max_position_embeddings} == 64 }
        exit !($c->{rope_theta} == 500 && $c->{rope_parameters}{rope_theta} == 500)' "$out-m/config.json"
    plan "$out-m" "$out-again.mp" mics:2
    # conversely, a model without such scaling is a different model
    for other in "split tiny -p $out.mp -o $out-x" "reshard $out-s --plan=zero3.mp -o $out-x"; do
        # shellcheck disable=SC2086
        run --separate-stderr mics-shard $other
        [ "$status" = 3 ]
        [[ $stderr == *"rope_scaling {"*llama3* ]]
        [ ! -e "$out-x" ]
    done
}

@test "dynamic and yarn scalings, positions beside the map and millions of positions survive split and merge" {
    requires perl
    mkdir "$out"
    cp tiny/model.safetensors "$out"
    while IFS='|' read -r change want; do
        perl -0777 -MJSON::PP -e '$c = decode_json shift; $n = decode_json shift; $c->{$_} = $n->{$_} for keys %$n; print encode_json $c' \
            "$(cat tiny/config.json)" "$change" >"$out/config.json"
        plan "$out" "$out.mp" mics:2
        mics-shard split "$out" -p "$out.mp" -o "$out-s"
        mics-shard merge "$out-s" -o "$out-m"
        perl -MJSON::PP -e '$want = decode_json shift; open $f, "<", shift; $c = decode_json join "", <$f>;
            for $map (@$c{qw(rope_scaling rope_parameters)}) { for (keys %$want) { exit 1 unless $map->{$_} eq $want->{$_} } }' \
            "$want" "$out-m/config.json"
        plan "$out-m" "$out-again.mp" mics:2
        mics-shard split "$out-m" -p "$out.mp" -o "$out-t"
        rm -r "$out-s" "$out-m" "$out-t"
    done <<'END'
{"rope_scaling": {"type": "dynamic", "factor": 2}}|{"factor": 2}
{"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}, "original_max_position_embeddings": 5}|{"rope_type": "llama3"}
{"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 3}, "max_position_embeddings": 10485760}|{"factor": 4}
END
}

@test "a released Llama that scales its positions is planned by its name" {
    requires perl
    mics-plan --topology='node:1 gpu:1 mem:80GB' --model=llama3.2-1b --global-batch=1 --seq=8192 -o "$out.mp"
    mics-show --json "$out.mp" >"$out.json"
    perl -0777 -MJSON::PP -e '$m = decode_json(<>)->{model}; exit !($m->{rope_scaling}{factor} == 32 && $m->{n_positions} == 131072
        && $m->{parameters} == 1235814400 && $m->{tie_word_embeddings})' "$out.json"
}

@test "Mistral, Qwen2, Qwen3 and a Llama with biases written by transformers are merged from any plan with their names and bytes" {
    requires perl
    for family in mistral qwen2 qwen3 llama-yarn; do
        mkdir -p "$out-$family"
        cp "$BATS_TEST_DIRNAME/../reference/$family-tiny/"{config.json,model.safetensors} "$out-$family"
        tensors "$out-$family/model.safetensors" >"$out-want"
        for strategy in mics:2 zero3; do
            plan "$out-$family" "$out.mp" $strategy
            mics-shard split "$out-$family" -p "$out.mp" -o "$out-s-$family-$strategy"
            mics-shard merge "$out-s-$family-$strategy" -o "$out-m-$family-$strategy"
            tensors "$out-m-$family-$strategy/model.safetensors" | cmp - "$out-want"
        done
        plan "$out-m-$family-zero3" "$out-again.mp" zero3
        grep -q "\"model_type\": \"${family%%-*}\"" "$out-m-$family-zero3/config.json"
    done
    grep -aq mlp.up_proj.bias "$out-m-llama-yarn-zero3/model.safetensors"
    grep -q '"attention_bias": true' "$out-m-llama-yarn-zero3/config.json"
    [ "$(grep -c '"rope_type": "yarn"' "$out-m-llama-yarn-zero3/config.json")" = 2 ] # in the keys of both generations
    grep -aq q_proj.bias "$out-m-qwen2-zero3/model.safetensors"
    grep -aq k_norm.weight "$out-m-qwen3-zero3/model.safetensors"
}

@test "a sequence may be longer than the sliding window, which plans, tables and written models have" {
    requires perl
    mics-plan --topology='node:1 gpu:1' --model="$reference/mistral-window-tiny" --no-history -o "$out.mp"
    mics-show --json "$out.mp" >"$out.json"
    grep -q '"seq": 12' "$out.json"
    grep -q '"sliding_window": 4' "$out.json"
    run ! grep -q layer_types <(perl -0777 -MJSON::PP -e '$m = decode_json(<>)->{model}; delete $m->{source}; print encode_json $m' "$out.json")
    mics-show "$out.mp" | grep -q '^sliding window *4 tokens$'
    for family in mistral qwen2 qwen3; do
        mkdir "$out-$family"
        cp "$reference/$family-window-tiny/"{config.json,model.safetensors} "$out-$family"
        plan "$out-$family" "$out-$family.mp" mics:2
        mics-shard split "$out-$family" -p "$out-$family.mp" -o "$out-s-$family"
        mics-shard merge "$out-s-$family" -o "$out-m-$family"
        plan "$out-m-$family" "$out-again.mp" mics:2
        mics-shard diff "$out-m-$family" "$out-s-$family"
        for key in sliding_window layer_types use_sliding_window max_window_layers; do
            perl -0777 -MJSON::PP -e '$json = JSON::PP->new->canonical->allow_nonref; ($key, @files) = @ARGV;
                for (@files) { open $f, "<", $_; $c = decode_json join "", <$f>; push @values, $json->encode($c->{$key}) }
                exit !($values[0] eq $values[1])' $key "$out-$family/config.json" "$out-m-$family/config.json"
        done
    done
    mics-show "$out-qwen2.mp" | grep -q '^sliding window *3 tokens in 1 of 2 layers$'
    mics-show --tsv "$out-qwen3.mp" | grep -qP '^sliding_window_layers\t1$'
    # a plan of other windows is one of another model
    mkdir "$out"
    sed 's/"full_attention"/"sliding_attention"/' "$out-qwen2/config.json" >"$out/config.json"
    plan "$out" "$out-other.mp" mics:2
    run --separate-stderr mics-shard reshard "$out-s-qwen2" --plan="$out-other.mp" -o "$out-x"
    [ "$status" = 3 ]
    [[ $stderr == *"layer_types [\"full_attention\", \"sliding_attention\"], the plan one with none"* ]]
    run --separate-stderr mics-plan --topology='node:1 gpu:1' --model=counting
    [ "$status" = 2 ]
}
