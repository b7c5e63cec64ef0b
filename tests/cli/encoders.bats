#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# BERT and RoBERTa: their files, masked language modelling, and filling masks.

load helpers
load hf_files

# A WordPiece vocabulary of 29 tokens, the last of which is the mask.
vocabulary() # folder
{
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' . {a..l} '##'{a..k} '[MASK]' >"$1/vocab.txt"
}

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    for model in bert roberta; do
        cp -r "$BATS_TEST_DIRNAME/../reference/$model-tiny" $model && rm $model/reference.safetensors $model/fill.txt
        plan $model $model.mp zero3
    done
    vocabulary bert
    for i in {1..3000}; do
        if ((i % 3)); then printf 'a b c d e f i '; else printf 'a b c d e f h '; fi
    done | fold -w 60 >text
    plan bert train-1.mp ddp 'node:1 gpu:1'
    plan bert train-4.mp mics:2
}

plan() # model file strategy topology
{
    mics-plan --topology="${4:-node:2 gpu:2}" --model="$1" --global-batch=8 --seq=10 --strategy="$3" --optimizer=sgd --dtype=f32 --no-history -o "$2"
}

train() # plan ranks ...
{
    local plan=$1 ranks=$2
    shift 2
    MICS_NODE_RANKS=$((ranks > 1 ? 2 : 1)) mpirun -n "$ranks" mics-train -q -p "$plan" --tokenizer=bert --data=text --val-every=0 --sample=0 --no-history "$@"
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
    reference=$BATS_TEST_DIRNAME/../reference
}

# The bytes of every tensor of a file, in the order of their names.
tensors() # file
{
    perl -MJSON::PP -e 'open F, "<:raw", $ARGV[0]; read F, $n, 8; read F, $h, unpack "Q<", $n; local $/; $d = <F>;
        $j = decode_json $h; delete $j->{__metadata__};
        for (sort keys %$j) { ($a, $b) = @{$j->{$_}{data_offsets}}; print "$_ $j->{$_}{dtype} @{$j->{$_}{shape}}\n", substr $d, $a, $b - $a }' "$1"
}

@test "a BERT and a RoBERTa written by transformers are merged from any plan with their names and bytes" {
    requires perl
    for model in bert roberta; do
        tensors $model/model.safetensors >"$out-want"
        [ "$(grep -ac 'LayerNorm.weight\|layer_norm.weight' "$out-want")" = 6 ]
        for strategy in ddp mics:2 zero3; do
            plan $model "$out-$strategy.mp" $strategy
            mics-shard split $model -p "$out-$strategy.mp" -o "$out-$model-$strategy"
            mics-shard merge "$out-$model-$strategy" -o "$out-m-$model-$strategy"
            tensors "$out-m-$model-$strategy/model.safetensors" | cmp - "$out-want"
        done
    done
}

@test "a BERT with the names of the first files, copies of the head, positions and a pooler is the same model" {
    grep -aq 'LayerNorm.gamma' "$reference/bert-old-tiny/model.safetensors"
    mics-shard split "$reference/bert-old-tiny" -p bert.mp -o "$out"
    mics-shard diff bert "$out"
}

@test "a BERT whose head is not the embedding is refused" {
    requires perl
    mkdir "$out-model"
    cp bert/config.json "$out-model"
    # shellcheck disable=SC2016
    edited "$reference/bert-old-tiny/model.safetensors" "$out-model/model.safetensors" \
        'substr($t{"cls.predictions.decoder.weight"}[2], 0, 1) = "\7"'
    run --separate-stderr mics-shard split "$out-model" -p bert.mp -o "$out"
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'cls.predictions.decoder.weight' is not the embedding"* ]]
}

@test "a configuration of an encoder that changes the arithmetic is refused in one line that names its key" {
    requires perl
    mkdir -p "$out"
    while IFS='|' read -r model change words; do
        perl -0777 -MJSON::PP -e '$c = decode_json shift; $n = decode_json shift; $c->{$_} = $n->{$_} for keys %$n; print encode_json $c' \
            "$(cat "$model/config.json")" "$change" >"$out/config.json"
        run --separate-stderr mics-plan --topology='node:1' --model="$out" --seq=8
        [ "$status" = 3 ]
        [[ $stderr == *"$out/config.json: $words"* ]]
        [ "${#stderr_lines[@]}" = 1 ]
    done <<'END'
bert|{"hidden_act": "gelu_new"}|hidden_act: 'gelu_new' is not supported
bert|{"is_decoder": true}|is_decoder: true is not supported
bert|{"position_embedding_type": "relative_key"}|position_embedding_type: 'relative_key' is not supported
bert|{"tie_word_embeddings": false}|tie_word_embeddings: false is not supported
roberta|{"pad_token_id": 0}|pad_token_id: only 1 is supported
roberta|{"max_position_embeddings": 2}|n_positions: 2, but the first token of a roberta has position 2
END
}

@test "the positions of a RoBERTa begin behind the padding's, so a sequence has two less" {
    mics-plan --topology='node:1 gpu:1' --model=roberta --seq=10 --global-batch=1 -o "$out.mp"
    run --separate-stderr mics-plan --topology='node:1 gpu:1' --model=roberta --seq=11 --global-batch=1
    [ "$status" = 2 ]
    [[ $stderr == *"sequence of 11: the model has 10 positions"* ]]
}

@test "the masks of a step are the same at one rank and at four, and after a resume" {
    requires mpirun
    local constant='--lr-schedule=constant --warmup=0 --lr=0.1'
    # shellcheck disable=SC2086
    {
        train train-1.mp 1 $constant --steps=6 --metrics="$out-1" --out="$out-a"
        train train-4.mp 4 $constant --steps=6 --metrics="$out-4" --out="$out-b"
        train train-1.mp 1 $constant --steps=3 --metrics="$out-r" --out="$out-c"
        train train-1.mp 1 --resume="$out-c" --steps=6 --metrics="$out-s" --out="$out-c"
    }
    losses() { jq -r 'select(.event == "step") | .loss' "$@"; }
    [ "$(losses "$out-1" | wc -l)" = 6 ]
    paste <(losses "$out-1") <(losses "$out-4") | awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 }'
    diff <(losses "$out-1") <(losses "$out-r" "$out-s")
}

@test "an encoded corpus trains a BERT on two ranks, is resumed, evaluated, merged and fills masks" {
    requires mpirun
    local merged=$out-merged
    mics-data encode -q -t bert text -o "$out-corpus" >"$out-encoded"
    mics-plan --topology='node:1 gpu:2' --model=bert --global-batch=8 --seq=10 --strategy=zero3 --dtype=f32 --no-history -o "$out.mp"
    run_2() # ...
    {
        MICS_NODE_RANKS=2 mpirun -n 2 mics-train -q -p "$out.mp" --data="$out-corpus" --lr=0.003 --lr-schedule=constant --warmup=0 \
            --val-every=100 --val-batches=15 --sample=0 --no-history --out="$out-run" "$@"
    }
    run_2 --steps=300 --metrics="$out-metrics"
    run_2 --steps=600 --resume=auto --metrics="$out-metrics"
    # The commonest tokens are one in seven each.
    jq -se '[.[] | select(.event == "val")] | length == 6 and .[-1].loss < .[0].loss and .[-1].accuracy > 3 / 7' "$out-metrics"
    mics-shard merge "$out-run/latest" -o "$merged"
    [ -s "$merged/vocab.txt" ]
    for model in "$out-run/latest" "$merged"; do
        mics-sample "$model" --fill=3 --prompt='a [MASK] c' >"$out-fill"
        [ "$(wc -l <"$out-fill")" = 3 ]
        cp "$out-fill" "$out-fill-$(basename "$model")"
    done
    cmp "$out-fill-latest" "$out-fill-$(basename "$merged")"
    mics-train -p train-1.mp --eval --init="$merged" --data=text --no-history >"$out-eval"
    grep -Eq '^loss [0-9.]+, perplexity [0-9.]+, masked accuracy 0\.[0-9]{6}, of [0-9]+ tokens' "$out-eval"
}

@test "masks need a token, a corpus of the model's vocabulary, and what was masked before" {
    mkdir "$out-vocab"
    head -n 28 bert/vocab.txt >"$out-vocab/vocab.txt"
    mics-data encode -q -t bytes text -o "$out-bytes" >"$out"
    train train-1.mp 1 --steps=1 --out="$out-run" --mask-rate=0.12
    while IFS='|' read -r code words arguments; do
        run --separate-stderr eval "mics-train -q -p train-1.mp $arguments --no-history"
        [ "$status" = "$code" ]
        [[ $stderr == *"$words"* ]]
        [ "${#stderr_lines[@]}" = 1 ]
    done <<'END'
3|the tokenizer has neither [MASK] nor <mask>: --mask-token=TEXT|--data=text --tokenizer=$out-vocab
3|has a vocabulary of 257, more than the model's of 29|--data=$out-bytes
END
    run -3 --separate-stderr train train-1.mp 1 --steps=2 --resume="$out-run" --mask-rate=0.13
    [[ $stderr == *"trained on other data"* ]]
}

@test "a plan's mask rate is that of the training, which may be smaller but not larger" {
    mics-plan --topology='node:1 gpu:1' --model=bert --global-batch=8 --seq=10 --strategy=ddp --dtype=f32 --no-history --mask-rate=0.4 -o "$out.mp"
    [ "$(mics-show --json "$out.mp" | jq .model.mask_rate)" = 0.4 ]
    mics-show --json train-1.mp | jq -e '.model | has("mask_rate") | not'
    train "$out.mp" 1 --steps=1 --out="$out-run" --metrics="$out-metrics"
    jq -se 'any(.event == "run" and .settings.mask_rate == 0.4)' "$out-metrics"
    train "$out.mp" 1 --steps=1 --out="$out-less" --mask-rate=0.3
    run -2 --separate-stderr train train-1.mp 1 --steps=2 --out="$out-more" --mask-rate=0.4
    [[ $stderr == *"--mask-rate: 0.4 is more than the plan computes, 0.15: make the plan with mics-plan --mask-rate=0.4"* ]]
    run -2 --separate-stderr train train-1.mp 1 --steps=2 --resume="$out-run"
    [[ $stderr == *"--mask-rate: 0.4 is more"* ]]
    run -2 --separate-stderr mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --mask-rate=0.2
    [[ $stderr == *"--mask-rate: the model 'gpt2-nano' predicts the next token, not masked ones"* ]]
}

@test "whole words are masked by any number of ranks alike, and after a resume without the option" {
    requires mpirun
    local options='--lr-schedule=constant --warmup=0 --lr=0.1'
    losses() { jq -r 'select(.event == "step") | .loss' "$@"; }
    for i in {1..2000}; do printf 'ab c de fgh i '; done | fold -w 60 -s >"$out-text"
    # shellcheck disable=SC2086
    ranks_of() # plan ranks ...
    {
        train "$@" --data="$out-text" $options
    }
    for topology in 'node:1 gpu:1' 'node:2 gpu:2'; do
        mics-plan --topology="$topology" --model=bert --global-batch=8 --seq=10 --strategy=ddp --dtype=f32 --no-history --mask-rate=0.4 -o "$out-${topology: -1}.mp"
    done
    ranks_of "$out-1.mp" 1 --steps=4 --mask-whole-words --metrics="$out-1" --out="$out-a"
    ranks_of "$out-2.mp" 4 --steps=4 --mask-whole-words --metrics="$out-4" --out="$out-b"
    ranks_of "$out-1.mp" 1 --steps=2 --mask-whole-words --metrics="$out-r" --out="$out-c"
    ranks_of "$out-1.mp" 1 --steps=4 --resume="$out-c" --metrics="$out-s" --out="$out-c"
    ranks_of "$out-1.mp" 1 --steps=4 --metrics="$out-single" --out="$out-d"
    [ "$(losses "$out-1" | wc -l)" = 4 ]
    paste <(losses "$out-1") <(losses "$out-4") | awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 }'
    diff <(losses "$out-1") <(losses "$out-r" "$out-s")
    run ! cmp -s <(losses "$out-1") <(losses "$out-single")
    mics-show --json "$out-c/latest" | jq -e '.training.data.mask_whole_words'
    mics-show --json "$out-d/latest" | jq -e '.training.data | has("mask_whole_words") | not'
    run -3 --separate-stderr ranks_of "$out-1.mp" 1 --steps=5 --resume="$out-d" --mask-whole-words
    [[ $stderr == *"trained on other data"* ]]
}

# Documents of 1 to 20 words, with which sequences of 10 are shared, padded and cut.
documents() # count
{
    awk -v n="$1" 'BEGIN { split("ab c de fgh i b a", word, " "); for (i = 0; i < n; i++) { text = word[1]
        for (j = 1; j < (i * 7) % 20 + 1; j++) text = text " " word[j % 7 + 1]
        printf "{\"text\": \"%s\"}\n", text } }'
}

@test "documents that are kept apart have the same masks at one rank and at four, and after a resume without the option" {
    requires mpirun
    local options='--lr-schedule=constant --warmup=0 --lr=0.1' words
    losses() { jq -r 'select(.event == "step") | .loss' "$@"; }
    documents 300 >"$out-lines.jsonl"
    # shellcheck disable=SC2086
    apart() # plan ranks ...
    {
        MICS_NODE_RANKS=$(($2 > 1 ? 2 : 1)) mpirun -n "$2" mics-train -q -p "$1" --tokenizer=bert --data="$out-lines.jsonl" \
            --val-every=0 --sample=0 --no-history $options "${@:3}"
    }
    for words in '' --mask-whole-words; do
        # shellcheck disable=SC2086
        {
            apart train-1.mp 1 --steps=4 --pack=document $words --metrics="$out-1$words" --out="$out-a$words"
            apart train-4.mp 4 --steps=4 --pack=document $words --metrics="$out-4$words" --out="$out-b$words"
            apart train-1.mp 1 --steps=2 --pack=document $words --metrics="$out-r$words" --out="$out-c$words"
        }
        apart train-1.mp 1 --steps=4 --resume="$out-c$words" --metrics="$out-s$words" --out="$out-c$words"
        [ "$(losses "$out-1$words" | wc -l)" = 4 ]
        paste <(losses "$out-1$words") <(losses "$out-4$words") | awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 }'
        diff <(losses "$out-1$words") <(losses "$out-r$words" "$out-s$words")
        mics-show --json "$out-c$words/latest" | jq -e '.training.data.pack == "document"'
    done
    run ! cmp -s <(losses "$out-1") <(losses "$out-1--mask-whole-words")
    run -3 --separate-stderr apart train-1.mp 1 --steps=5 --resume="$out-c" --pack=concat
    [[ $stderr == *"trained with --pack=document, now --pack=concat"* ]]
}

@test "masked accuracy counts neither padding nor what is around a document" {
    for i in {1..40}; do echo '{"text": "a b c d e f"}'; done >"$out-lines.jsonl" # of 8 tokens: alone in a sequence of 10
    mics-train -p train-1.mp --eval --init=bert --data="$out-lines.jsonl" --pack=document --no-history >"$out"
    # ceil(0.15 6) = 1 of each sequence at most, and not more often none than its share.
    [[ $(<"$out") =~ 'of '([0-9]+)' tokens' ]]
    [ "${BASH_REMATCH[1]}" -le 40 ]
    [ "${BASH_REMATCH[1]}" -ge 28 ]
}

@test "filled masks have the probabilities of transformers" {
    for model in bert roberta; do
        mics-sample $model --tokenizer=bert --fill=5 --prompt='a e [MASK] c [MASK] h' >"$out"
        [ "$(wc -l <"$out")" = 10 ]
        diff <(cut -f 1,3 "$out") <(cut -f 1,3 "$reference/$model-tiny/fill.txt")
        paste "$out" "$reference/$model-tiny/fill.txt" | awk '{ d = $2 - $6; if (d * d > 1e-11) exit 1 }'
    done
    mics-sample bert --fill=3 --json --prompt='[MASK]' >"$out"
    jq -e '.masks | length == 1 and (.[0] | length == 3 and .[0].score >= .[1].score)' "$out"
}

@test "what an encoder cannot do, and what needs one, is refused in one line" {
    while IFS='|' read -r code words command; do
        run --separate-stderr eval "$command"
        [ "$status" = "$code" ]
        [[ $stderr == *"$words"* ]]
        [ "${#stderr_lines[@]}" -le 2 ]
    done <<'END'
2|continues no text: --fill=5|mics-sample bert --prompt=a
3|prompt 1: has no mask|mics-sample bert --tokenizer=bert --fill=2 --prompt=a
3|sequence of 13: the model has 12 positions|mics-sample bert --tokenizer=bert --fill=2 --prompt="a b c d e f g h i j [MASK]"
2|--fill goes without --ids|mics-sample bert --fill=2 --ids
3|token 256 (end of document) is outside|mics-train -q -p train-1.mp --tokenizer=bytes --data=text
2|--mask-prompt goes with models that predict the next token|mics-train -q -p train-1.mp --tokenizer=bert --data=text --mask-prompt
2|'1': must be from 0.0001 to 0.9999|mics-train -q -p train-1.mp --tokenizer=bert --data=text --mask-rate=1
END
}

@test "the mask rate of a model that predicts the next token is refused" {
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=1 --seq=32 -o "$out.mp"
    for option in --mask-rate=0.2 --mask-whole-words; do
        run --separate-stderr mics-train -q -p "$out.mp" --data=text $option
        [ "$status" = 2 ]
        [[ $stderr == *"${option%=*}: the model 'gpt2-nano' predicts the next token"* ]]
    done
}

@test "the paper's BERTs are planned by name" {
    for model in bert-10b bert-15b bert-20b bert-50b roberta-20b; do
        mics-plan --topology='p4d.24xlarge:16' --model=$model --seq=512 --global-batch=8192 --dtype=bf16 -o "$out-$model.mp"
    done
    [ "$(mics-show --json "$out-bert-10b.mp" | jq '.model.parameters / 1e8 | round')" = 101 ]
}
