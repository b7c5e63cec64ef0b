#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Files of tokens that other programs made, or that are damaged, as mics-data and mics-train see them.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR"
    yes 'Once upon a time, there was a file of tokens.' | head -c 20000 >text.txt
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=2 --micro-batch=2 \
        --seq=32 --dtype=f32 -o plan.mp
    mics-data encode -q -t bytes text.txt -o corpus >/dev/null
}

setup()
{
    cd "$BATS_FILE_TMPDIR"
}

train() # data
{
    run --separate-stderr mics-train -q -p plan.mp --steps=1 --sample=0 --val-every=0 \
        --out="$BATS_TEST_TMPDIR/run" --data="$1"
}

refused() # reason
{
    one_line_and_code 3
    [[ $stderr == "mics-train: data: "*"$1"* ]] || {
        echo "$stderr"
        return 1
    }
    [ ! -e "$BATS_TEST_TMPDIR/run" ]
}

# As data/shakespeare_char/prepare.py of nanoGPT makes them: $1/train.bin of type $2, $1/meta.pkl of
# protocol $3, with the Python expression $4 as vocab_size.
make_nanogpt()
{
    requires python3
    mkdir "$1"
    python3 - "$@" <<'END'
import array, collections, pickle, sys
folder, dtype, protocol, size = sys.argv[1:]
text = open("text.txt").read()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
with open(folder + "/train.bin", "wb") as out:
    array.array({"u16": "H", "u32": "I"}[dtype], [stoi[c] for c in text]).tofile(out)
meta = {"vocab_size": eval(size), "itos": dict(enumerate(chars)), "stoi": stoi}
with open(folder + "/meta.pkl", "wb") as out:
    pickle.dump(meta, out, int(protocol))
END
}

@test "tokens: nanoGPT's meta.pkl tells vocabulary and type" {
    for protocol in 2 3 4 5; do
        make_nanogpt "nano$protocol" u16 "$protocol" 'len(chars)'
        [ "$(mics-data show --json "nano$protocol/train.bin" |
            jq -c '[.format, .tokens, .id_bytes, .vocab_size]')" = '["raw",20000,2,22]' ]
    done
    train nano4/train.bin
    [ "$status" = 0 ]
    make_nanogpt wide u32 4 65537
    [ "$(mics-data show --json wide/train.bin | jq -c '[.tokens, .id_bytes]')" = '[20000,4]' ]
    mv "$BATS_TEST_TMPDIR/run" "$BATS_TEST_TMPDIR/trained"
    train wide/train.bin
    refused "'wide/train.bin' has a vocabulary of 65537, more than the model's of 257"
}

@test "tokens: a meta.pkl that makes objects, or is truncated, is refused, and not needed with a type" {
    make_nanogpt object u16 4 'collections.OrderedDict()'
    train object/train.bin
    refused "'object/meta.pkl' (say u16 or u32 to do without it): byte "
    [[ $stderr == *": opcode STACK_GLOBAL: only dicts, lists, strings and numbers are read" ]]
    run --separate-stderr mics-data show object/train.bin
    one_line_and_code 3
    mics-data show -q --dtype=u16 object/train.bin
    make_nanogpt short u16 4 'len(chars)'
    truncate -s 40 short/meta.pkl
    train short/train.bin
    refused ": the pickle is truncated"
    make_nanogpt none u16 4 None
    train none/train.bin
    refused ": no dict with a number vocab_size"
    train short/train.bin:u16
    [ "$status" = 0 ]
}

@test "tokens: an id outside of nanoGPT's vocabulary is named with its position" {
    make_nanogpt beyond u16 4 'len(chars) - 1'
    run --separate-stderr mics-data show --check beyond/train.bin
    one_line_and_code 3
    [[ $stderr =~ "'beyond/train.bin': token "[0-9]+" is 21, outside of the vocabulary of 21"$ ]]
}

@test "tokens: a pattern may say the type of ids, with a weight and without the ending" {
    make_nanogpt typed u32 4 'len(chars)'
    rm typed/meta.pkl
    train '0.5:typed/train:u32 0.5:corpus'
    [ "$status" = 0 ]
    jq -se '.[] | select(.event == "step")' "$BATS_TEST_TMPDIR/run/metrics.jsonl" >/dev/null
    mv "$BATS_TEST_TMPDIR/run" "$BATS_TEST_TMPDIR/trained"
    truncate -s -1 typed/train.bin
    train typed/train.bin:u32
    refused "79999 bytes are not a whole number of ids of 4 bytes"
    train corpus.bin:u16
    refused "'corpus.bin' says itself what its ids are (megatron): it takes no type"
    train text.txt:u32
    refused "'text.txt' is text: it has no type of ids"
}

@test "tokens: a document or an index of other tokens is refused" {
    for suffix in bin idx mp; do cp "corpus.$suffix" "other.$suffix"; done
    printf 'Other text.' >other.txt
    mics-data encode -q -t bytes other.txt -o new >/dev/null
    cp new.bin other.bin
    train other
    refused "'other.idx': it describes 40002 bytes, but 'other.bin' has 24"
    cp new.idx other.idx
    train other
    refused "the document of 'other.bin': it describes 20001 tokens of 2 bytes, but 'other.bin' has 12"
    truncate -s -3 other.idx
    train other.idx
    refused "'other.idx': 59 bytes do not hold 1 sequences and 1 documents"
}

@test "tokens: data without any text name their files" {
    printf '\n\n' >blank.jsonl
    train blank.jsonl
    refused "'blank.jsonl': 0 tokens to train on are too few: one sequence needs 33"
    : >empty.bin
    train empty.bin
    refused "'empty.bin': there are no tokens"
    run --separate-stderr mics-data encode -t bytes blank.jsonl -o blank
    one_line_and_code 3
    printf '{"text": "a\377"}\n' >invalid.jsonl
    train invalid.jsonl
    refused "'invalid.jsonl': line 1: column "
    run --separate-stderr mics-data encode -t bytes invalid.jsonl -o blank
    one_line_and_code 3
    [ ! -e blank.bin ] && [ ! -e blank.mp ]
}
