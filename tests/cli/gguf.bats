#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-shard merge --to=gguf: keys, tensors and numbers of the file, and what is refused. What
# llama.cpp computes from such files is compared by tests/reference/check_gguf.py.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    local model
    for model in llama gpt2 mixtral qwen2-moe qwen3-moe llama-yarn bert mistral-window qwen3-window; do
        cp -r "$BATS_TEST_DIRNAME/../reference/$model-tiny" $model
        rm -f $model/reference* $model/config-5.json
        mics-plan --topology='node:2 gpu:2' --model=./$model --global-batch=4 --seq=8 --strategy=mics:2 --no-history -q |
            mics-shard split $model -o $model-s >/dev/null
    done
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    made=$BATS_TEST_TMPDIR/made
    out=$made/out.gguf
    mkdir "$made"
}

# Read a file of GGUF: print its keys and tensors as JSON, with the numbers of those that are not
# long; check that nothing is left and that all begins where it should.
show() # file
{
    perl -MJSON::PP -e '
        open my $f, "<:raw", $ARGV[0] or die; local $/; my $d = <$f>; my $at = 0;
        sub take { my ($t, $n) = @_; my @v = unpack $t, substr $d, $at, $n; $at += $n; return $v[0] }
        sub text { my $n = take("Q<", 8); return take("a$n", $n) }
        my %read; %read = (4 => sub { take("L<", 4) }, 5 => sub { take("l<", 4) }, 6 => sub { take("f<", 4) },
            7 => sub { take("C", 1) ? JSON::PP::true : JSON::PP::false }, 8 => \&text,
            9 => sub { my $t = take("L<", 4); my $n = take("Q<", 8); return [map { $read{$t}->() } 1 .. $n] });
        die "magic" unless take("a4", 4) eq "GGUF" && take("L<", 4) == 3;
        my ($tensors, $keys) = (take("Q<", 8), take("Q<", 8)); my (%k, %t, @order);
        for (1 .. $keys) { my $k = text(); die "twice: $k" if exists $k{$k}; $k{$k} = $read{take("L<", 4)}->() }
        for (1 .. $tensors) {
            my $name = text(); my $rank = take("L<", 4); my @shape = map { take("Q<", 8) } 1 .. $rank;
            $t{$name} = {shape => [reverse @shape], type => take("L<", 4), offset => take("Q<", 8)};
            push @order, $name;
        }
        my $data = int(($at + 31) / 32) * 32; my $end = $data;
        my %size = (0 => 4, 1 => 2, 30 => 2);
        for (@order) {
            my $t = $t{$_}; my $n = 1; $n *= $_ for @{$t->{shape}};
            die "$_ at $t->{offset}" if $t->{offset} != int(($end - $data + 31) / 32) * 32;
            my $bytes = $t->{type} == 8 ? $n / 32 * 34 : $n * $size{$t->{type}};
            my $raw = substr $d, $data + $t->{offset}, $bytes; die "cut" if length $raw != $bytes;
            $t->{numbers} = [unpack "f<*", $raw] if $t->{type} == 0;
            $t->{hex} = unpack "H*", $raw; $end = $data + $t->{offset} + $bytes; delete $t->{offset};
        }
        die "length" if length $d != int(($end + 31) / 32) * 32;
        print JSON::PP->new->canonical->encode({keys => \%k, tensors => \%t}), "\n"' "$1"
}

# The numbers of a tensor of a safetensors file, in hexadecimal digits.
tensor() # file name
{
    perl -MJSON::PP -e 'open F, "<:raw", $ARGV[0]; read F, $n, 8; $n = unpack "Q<", $n; read F, $h, $n;
        $t = decode_json($h)->{$ARGV[1]} or die; ($a, $b) = @{$t->{data_offsets}};
        seek F, 8 + $n + $a, 0; read F, $d, $b - $a; print unpack "H*", $d' "$@"
}

# Rows of a matrix in hexadecimal digits, in the order of the arguments.
rows() # columns row ...
{
    perl -e '$h = <STDIN>; $n = 8 * shift; print map { substr $h, $_ * $n, $n } @ARGV' "$@"
}

# Merge refuses in one line, which ends with a text, and leaves nothing.
refused() # status text argument ...
{
    local status_wanted=$1 text=$2
    shift 2
    run --separate-stderr mics-shard merge "$@" -o "$out"
    [ "$status" = "$status_wanted" ] || { echo "$status: $stderr"; false; }
    [ "$(head -n1 <<<"$stderr")" = "mics-shard: $text" ] || { echo "$stderr"; false; }
    [ "$(ls -A "$made")" = "" ]
}

@test "gguf: a Llama has llama.cpp's names, keys and order of queries and keys" {
    requires jq perl
    run --separate-stderr mics-shard merge llama-s --to=gguf -o "$out"
    [ "$status" = 0 ]
    [ "$stderr" = "mics-shard: 'llama-s' has no tokenizer: llama.cpp takes and gives ids only; --base=FOLDER names one" ]
    show "$out" >"$BATS_TEST_TMPDIR/shown"
    [ "$(jq -c '.keys | with_entries(select(.key | test("^general|tokenizer")))' "$BATS_TEST_TMPDIR/shown")" = \
        '{"general.architecture":"llama","general.file_type":0,"general.name":"llama","tokenizer.ggml.model":"none"}' ]
    [ "$(jq -c '.keys | [."llama.vocab_size", ."llama.context_length", ."llama.embedding_length", ."llama.block_count",
        ."llama.feed_forward_length", ."llama.attention.head_count", ."llama.attention.head_count_kv",
        ."llama.attention.key_length", ."llama.rope.dimension_count"]' "$BATS_TEST_TMPDIR/shown")" = '[29,12,18,2,26,3,1,6,6]' ]
    [ "$(jq -c '.tensors | map_values(.shape) | [."token_embd.weight", ."blk.1.ffn_down.weight", ."output_norm.weight"]' \
        "$BATS_TEST_TMPDIR/shown")" = '[[29,18],[18,26],[18]]' ]
    [ "$(jq '.tensors | length' "$BATS_TEST_TMPDIR/shown")" = 21 ]
    hex() { jq -r ".tensors[\"$1\"].hex" "$BATS_TEST_TMPDIR/shown"; }
    for pair in blk.1.ffn_gate=model.layers.1.mlp.gate_proj blk.0.attn_v=model.layers.0.self_attn.v_proj \
        token_embd=model.embed_tokens output=lm_head blk.1.ffn_norm=model.layers.1.post_attention_layernorm; do
        [ "$(hex "${pair%%=*}.weight")" = "$(tensor llama/model.safetensors "${pair#*=}.weight")" ]
    done
    # Heads of 6 rows: the two halves take turns.
    [ "$(hex blk.1.attn_q.weight)" = "$(tensor llama/model.safetensors model.layers.1.self_attn.q_proj.weight |
        rows 18 0 3 1 4 2 5 6 9 7 10 8 11 12 15 13 16 14 17)" ]
    [ "$(hex blk.0.attn_k.weight)" = "$(tensor llama/model.safetensors model.layers.0.self_attn.k_proj.weight |
        rows 18 0 3 1 4 2 5)" ]
}

@test "gguf: matrices of a GPT-2 are transposed, its positions stay" {
    requires jq perl
    mics-shard merge gpt2-s --to=gguf -o "$out" -q
    show "$out" >"$BATS_TEST_TMPDIR/shown"
    [ "$(jq -c '.keys | [."general.architecture", ."gpt2.attention.head_count"]' "$BATS_TEST_TMPDIR/shown")" = '["gpt2",4]' ]
    [ "$(jq -c '[.tensors."blk.0.attn_qkv.weight".shape, .tensors."blk.0.ffn_up.bias".shape]' "$BATS_TEST_TMPDIR/shown")" = \
        '[[48,16],[64]]' ]
    tensor gpt2/model.safetensors transformer.h.0.attn.c_attn.weight >"$BATS_TEST_TMPDIR/want" ||
        tensor gpt2/model.safetensors h.0.attn.c_attn.weight >"$BATS_TEST_TMPDIR/want"
    jq -r '.tensors."blk.0.attn_qkv.weight".hex' "$BATS_TEST_TMPDIR/shown" >"$BATS_TEST_TMPDIR/have"
    perl -e 'open A, $ARGV[0]; $a = <A>; open B, $ARGV[1]; $b = <B>;
        for $i (0 .. 15) { for $j (0 .. 47) {
            die "$i $j" if substr($a, 8 * ($i * 48 + $j), 8) ne substr($b, 8 * ($j * 16 + $i), 8) } }' \
        "$BATS_TEST_TMPDIR/want" "$BATS_TEST_TMPDIR/have"
    mics-shard merge gpt2-s --to=gguf -o "$out-16" --dtype=bf16 -q
    [ "$(show "$out-16" | jq -c '[.keys."general.file_type", (.tensors | ."position_embd.weight", ."token_embd.weight",
        ."blk.0.ffn_up.weight", ."blk.0.ffn_up.bias" | .type)]')" = '[32,0,30,30,0]' ]
}

@test "gguf: the experts of a layer are one tensor, routers stay F32" {
    requires jq perl
    mics-shard merge mixtral-s --to=gguf -o "$out" -q
    show "$out" >"$BATS_TEST_TMPDIR/shown"
    [ "$(jq -c '[.keys | ."general.architecture", ."llama.expert_count" > 1, ."llama.feed_forward_length"]' "$BATS_TEST_TMPDIR/shown")" = \
        '["llama",true,26]' ]
    mics-shard merge mixtral-s -o "$BATS_TEST_TMPDIR/hf"
    local count expert want=
    count=$(jq '.tensors."blk.1.ffn_up_exps.weight".shape[0]' "$BATS_TEST_TMPDIR/shown")
    for expert in $(seq 0 $((count - 1))); do
        want+=$(tensor "$BATS_TEST_TMPDIR/hf/model.safetensors" "model.layers.1.block_sparse_moe.experts.$expert.w3.weight")
    done
    [ "$(jq -r '.tensors."blk.1.ffn_up_exps.weight".hex' "$BATS_TEST_TMPDIR/shown")" = "$want" ]
    mics-shard merge mixtral-s --to=gguf -o "$out-16" --dtype=f16 -q
    [ "$(show "$out-16" | jq -c '[.keys."general.file_type",
        (.tensors | ."blk.0.ffn_gate_inp.weight", ."blk.0.ffn_down_exps.weight", ."blk.0.attn_norm.weight" | .type)]')" = '[1,0,1,0]' ]
}

@test "gguf: Q8_0 where rows are whole blocks, else F16" {
    requires jq perl
    sed 's/"hidden_size": 18/"hidden_size": 64/; s/"num_attention_heads": 3/"num_attention_heads": 2/' llama/config.json >wide.json
    perl -MJSON::PP -e '$at = 0;
        %s = ("model.embed_tokens.weight" => [29, 64], "lm_head.weight" => [29, 64], "model.norm.weight" => [64]);
        for (0, 1) {
            $l = "model.layers.$_."; %s = (%s, map { ("$l$_.weight" => [64]) } "input_layernorm", "post_attention_layernorm");
            %s = (%s, "${l}self_attn.q_proj.weight" => [64, 64], "${l}self_attn.k_proj.weight" => [32, 64],
                "${l}self_attn.v_proj.weight" => [32, 64], "${l}self_attn.o_proj.weight" => [64, 64],
                "${l}mlp.gate_proj.weight" => [26, 64], "${l}mlp.up_proj.weight" => [26, 64], "${l}mlp.down_proj.weight" => [64, 26]);
        }
        for (sort keys %s) { $n = 1; $n *= $_ for @{$s{$_}}; $e = $at + 4 * $n;
            $h{$_} = {dtype => "F32", shape => $s{$_}, data_offsets => [$at, $e]}; $at = $e }
        $h = encode_json \%h; open O, ">:raw", "wide.safetensors"; print O pack("Q<", length $h), $h;
        print O pack "f<", sin($_ * 0.7) * exp(($_ % 97) / 50 - 1) for 0 .. $at / 4 - 1'
    mkdir -p wide && mv wide.json wide/config.json && mv wide.safetensors wide/model.safetensors
    mics-plan --topology='node:1 gpu:2' --model=./wide --global-batch=4 --seq=8 --strategy=zero3 -q | mics-shard split wide -o wide-s >/dev/null
    mics-shard merge wide-s --to=gguf --dtype=q8_0 -o "$out" -q
    show "$out" >"$BATS_TEST_TMPDIR/shown"
    [ "$(jq -c '[(.keys | ."general.file_type", ."general.quantization_version"), (.tensors | ."token_embd.weight",
        ."blk.0.attn_q.weight", ."blk.0.ffn_down.weight", ."blk.0.attn_norm.weight" | .type)]' "$BATS_TEST_TMPDIR/shown")" = \
        '[7,2,8,8,1,0]' ]
    # Each number within half a step of its block.
    perl -e '$a = pack "H*", $ARGV[0]; $b = pack "H*", $ARGV[1]; @a = unpack "f<*", $a;
        while (length $b) {
            ($s, @q) = unpack "S<c32", substr $b, 0, 34, ""; $e = ($s >> 10) & 31;
            $s = $e ? (1 + ($s & 1023) / 1024) * 2 ** ($e - 15) : ($s & 1023) * 2 ** -24;
            for (@q) { $x = shift @a; $n++; die "$n: $x $_ $s" if abs($x - $s * $_) > $s * 0.51 + abs($x) * 0.001 }
            $most += grep { abs == 127 } @q }
        die "$n $most" if @a || $n != 29 * 64 || $most < $n / 32' \
        "$(tensor wide/model.safetensors model.embed_tokens.weight)" "$(jq -r '.tensors."token_embd.weight".hex' "$BATS_TEST_TMPDIR/shown")"
}

@test "gguf: the tokenizer that mics-data makes, with unused ids, and that of bytes" {
    requires jq perl
    yes 'the cats and the dogs, and the catalogue: 12 345' | head -c 20000 >text.txt
    mics-data train --vocab=270 -o tok text.txt -q
    sed 's/"vocab_size": 29/"vocab_size": 300/' llama/config.json >big.json
    mkdir -p big && mv big.json big/config.json
    mics-plan --topology='node:1 gpu:1' --model=./big --global-batch=2 --seq=8 -q -o big.mp
    MICS_NODE_RANKS=1 mics-train -p big.mp --data=text.txt --tokenizer=tok --steps=1 --out=big-run -q >/dev/null
    mics-shard merge big-run --to=gguf -o "$out"
    show "$out" | jq .keys >"$BATS_TEST_TMPDIR/keys"
    [ "$(jq -c '[."tokenizer.ggml.model", ."tokenizer.ggml.pre", (."tokenizer.ggml.tokens" | length), ."tokenizer.ggml.add_bos_token"]' \
        "$BATS_TEST_TMPDIR/keys")" = '["gpt2","gpt-2",300,false]' ]
    # Tokens and merges as in tokenizer.json.
    local size end
    size=$(jq '.model.vocab | length' tok/tokenizer.json)
    [ "$(jq -c '."tokenizer.ggml.tokens"[:'"$size"']' "$BATS_TEST_TMPDIR/keys")" = \
        "$(jq -c '.model.vocab | to_entries | sort_by(.value) | map(.key)' tok/tokenizer.json)" ]
    [ "$(jq -c '."tokenizer.ggml.merges"' "$BATS_TEST_TMPDIR/keys")" = \
        "$(jq -c '.model.merges | map(if type == "array" then join(" ") else . end)' tok/tokenizer.json)" ]
    end=$(jq '.added_tokens[0].id' tok/tokenizer.json)
    [ "$(jq -c '[."tokenizer.ggml.eos_token_id", ."tokenizer.ggml.bos_token_id", ."tokenizer.ggml.token_type"['"$end"'],
        ."tokenizer.ggml.token_type"[0], ."tokenizer.ggml.token_type"[299], ."tokenizer.ggml.tokens"[299]]' "$BATS_TEST_TMPDIR/keys")" = \
        "[$end,$end,3,1,5,\"[PAD299]\"]" ]
    mics-shard merge big-run --to=gguf --base=bytes -o "$out-bytes"
    [ "$(show "$out-bytes" | jq -c '.keys | [."tokenizer.ggml.merges", ."tokenizer.ggml.eos_token_id",
        ."tokenizer.ggml.tokens"[32], ."tokenizer.ggml.tokens"[65], ."tokenizer.ggml.tokens"[256]]')" = '[[],256,"Ġ","A","<|endoftext|>"]' ]
    for kind in sentencepiece=Unigram bert=WordPiece; do
        run --separate-stderr mics-shard merge big-run --to=gguf -o "$out-2" \
            --base="$BATS_TEST_DIRNAME/../reference/tokenizers/${kind%=*}"
        [ "$status" = 3 ]
        [ "$stderr" = "mics-shard: big-run: tokenizer: ${kind#*=} cannot be written as GGUF" ] || { echo "$stderr"; false; }
        [ ! -e "$out-2" ]
    done
    # What llama.cpp does not do to text, though most texts do not show it.
    while IFS='|' read -r change error; do
        rm -rf changed && cp -r tok changed
        jq "$change" tok/tokenizer.json >changed/tokenizer.json
        run --separate-stderr mics-shard merge big-run --to=gguf -o "$out-2" --base=changed
        [ "$status" = 3 ]
        [ "$stderr" = "mics-shard: big-run: tokenizer: $error" ] || { echo "$stderr"; false; }
    done <<'EOF'
.normalizer = {type: "Replace", pattern: {String: "``"}, content: "\""}|its normalizer changes text, which llama.cpp does not
.normalizer = {type: "NFKC"}|its normalizer changes text, which llama.cpp does not
.added_tokens[0].rstrip = true|token 269 has "rstrip", which GGUF cannot say
EOF
    mkdir nfc
    cp tok/* nfc
    jq '.normalizer = {type: "NFC"}' tok/tokenizer.json >nfc/tokenizer.json
    # Of several chat templates the default, or none.
    echo '{"chat_template": [{"name": "default", "template": "{{ a }}"}, {"name": "rag", "template": "{{ b }}"}]}' \
        >nfc/tokenizer_config.json
    mics-shard merge big-run --to=gguf -o "$out-default" --base=nfc -q
    [ "$(show "$out-default" | jq -r '.keys."tokenizer.chat_template"')" = '{{ a }}' ]
    echo '{"chat_template": [{"name": "rag", "template": "{{ b }}"}]}' >nfc/tokenizer_config.json
    run --separate-stderr mics-shard merge big-run --to=gguf -o "$out-rag" --base=nfc
    [ "$status" = 0 ]
    [[ $stderr == *"'$out-rag' has no chat template: of those of the tokenizer none is called \"default\""* ]]
    [ "$(show "$out-rag" | jq '.keys."tokenizer.chat_template"')" = null ]
}

@test "gguf: windows end the context, and ranks write the same file as one process" {
    requires jq perl mpi:3
    mics-shard merge mistral-window-s --to=gguf -o "$out" -q
    [ "$(show "$out" | jq -c '[.keys."general.architecture", .keys."llama.context_length"]')" = '["llama",4]' ]
    MICS_NODE_RANKS=1 mpi 3 mics-shard merge mistral-window-s --to=gguf -o "$out-3" -q
    cmp "$out" "$out-3"
    [ "$(ls -A "$made")" = $'out.gguf\nout.gguf-3' ]
}

@test "gguf: what llama.cpp does not compute is refused by name, and nothing is left" {
    refused 3 "bert-s: family 'bert': llama.cpp has no head that predicts masked tokens" bert-s --to=gguf
    refused 3 "llama-yarn-s: rope_scaling 'yarn' with other numbers than beta_fast 32, beta_slow 1 and the customary attention_factor cannot be said in GGUF" \
        llama-yarn-s --to=gguf
    refused 3 "qwen2-moe-s: family 'qwen2_moe' cannot be written as GGUF" qwen2-moe-s --to=gguf
    refused 3 "qwen3-moe-s: layers without experts are not in llama.cpp's architecture 'qwen3moe'" qwen3-moe-s --to=gguf
    refused 3 "qwen3-window-s: attention_bias is not in llama.cpp's architecture 'qwen3'" qwen3-window-s --to=gguf
    refused 3 "llama-s: tokenizer: it has 257 ids, the model 29" llama-s --to=gguf --base=bytes
    refused 2 "--dtype: 'q4_0': expected f32, f16, bf16 or q8_0" llama-s --to=gguf --dtype=q4_0
    refused 2 "--dtype=q8_0: only merge --to=gguf writes it" llama-s --dtype=q8_0
    refused 2 "--max-file: only of Hugging Face files" llama-s --to=gguf --max-file=1M
    refused 2 "--to: 'onnx': expected hf, gguf or dcp" llama-s --to=onnx
    run --separate-stderr mics-shard cast llama --to=gguf --dtype=f16 -o "$out"
    [ "$status" = 2 ]
    [ "$(head -n1 <<<"$stderr")" = "mics-shard: cast: does not take --to" ]
    # A file that exists, and a damaged checkpoint.
    echo mine >"$out"
    run --separate-stderr mics-shard merge llama-s --to=gguf -o "$out"
    [ "$status" = 2 ]
    [ "$(head -n1 <<<"$stderr")" = "mics-shard: '$out' exists" ]
    [ "$(cat "$out")" = mine ]
    rm "$out"
    cp -r llama-s damaged
    for file in damaged/shard-*; do printf '\377' | dd of="$file" bs=1 seek=9000 conv=notrunc status=none; done
    run --separate-stderr mics-shard merge damaged --to=gguf -o "$out"
    [ "$status" = 3 ]
    [ "$(ls -A "$made")" = "" ]
    run --separate-stderr mics-shard merge llama-s --to=gguf -o "$out" --dry-run
    [ "$status" = 0 ]
    [ "$(ls -A "$made")" = "" ]
}
