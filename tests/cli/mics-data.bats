#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-data: text to tokens and back, files of tokens of other programs, damaged files.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR"
    mkdir text
    printf 'The first text.\n' >text/a.txt
    printf 'Zweiter Text: \303\244\303\266\303\274.\n' >text/b.txt
    : >text/empty.txt
}

# The member of a document as JSON: member PREFIX .tokens
member()
{
    mics-data show --json "$1" | jq -c "$2"
}

@test "data: encode writes tokens, documents, a document and prints it" {
    mics-data encode -t bytes 'text/*.txt' -o out/corpus >printed
    [ "$(ls out)" = $'corpus.bin\ncorpus.idx\ncorpus.mp' ]
    # 16 and 22 bytes, each with the token that ends a document, in 16 bits
    [ "$(member out/corpus '[.tokens, .documents, .id_bytes, .vocab_size]')" = '[40,2,2,257]' ]
    [ "$(stat -c %s out/corpus.bin)" = 80 ]
    [ "$(mics-show --json printed | jq -c .tokens)" = 40 ]
    mics-show --history out/corpus.mp | grep -q 'mics-data -t bytes .*encode'
    mics-show printed | grep -qE '^bytes per token +0.95$'
}

@test "data: show decodes a sample from a position on" {
    mics-data encode -q -t bytes 'text/*.txt' -o corpus >/dev/null
    run --separate-stderr mics-data show --at=4 --sample=5 corpus.idx
    [ "$status" = 0 ]
    [ "${lines[-1]}" = first ]
    run --separate-stderr mics-data show --at=17 --sample=7 corpus
    [ "${lines[-1]}" = Zweiter ]
    run --separate-stderr mics-data show --at=40 corpus
    one_line_and_code 3
    [[ $stderr == *"there is no token 40 among 40" ]]
}

@test "data: files that the shell found may have blanks and brackets in their names" {
    mkdir 'a folder'
    cp text/a.txt 'a folder/x y.txt'
    cp text/b.txt 'a folder/[z].txt'
    mics-data encode -q -t bytes 'a folder'/*.txt -o corpus >/dev/null
    [ "$(member corpus .documents)" = 2 ]
    mics-data encode -q -t bytes 'a\ folder/*.txt' -o escaped >/dev/null
    cmp corpus.bin escaped.bin
}

@test "data: show takes the document, and says that a folder is none" {
    mics-data encode -q -t bytes 'text/*.txt' -o corpus >/dev/null
    [ "$(member corpus.mp .tokens)" = 40 ]
    run --separate-stderr mics-data show text
    one_line_and_code 3
    [ "$stderr" = "mics-data: 'text' is a folder, not a file of tokens" ]
}

@test "data: the document of a data set stands for its tokens when training" {
    mics-data encode -q -t bytes 'text/*.txt' -o corpus >/dev/null
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --seq=8 -o plan.mp
    mics-train -q -p plan.mp --data=corpus.mp --steps=1 --out=one --val-every=0 >/dev/null
    mics-train -q -p plan.mp --data=corpus.bin --steps=1 --out=two --val-every=0 >/dev/null
    cmp one/step-000001/*.safetensors two/step-000001/*.safetensors
}

@test "data: the result does not depend on the number of cores" {
    requires taskset
    for i in {1..40}; do
        head -c 300000 </dev/urandom | base64 -w 77 >"text/$i.txt"
    done
    cat text/*.txt text/*.txt >text/large.txt
    mics-data encode -q -t bytes 'text/*.txt' -o all >/dev/null
    taskset -c 0 mics-data encode -q -t bytes 'text/*.txt' -o one >/dev/null
    cmp all.bin one.bin
    cmp all.idx one.idx
    mics-data show -q --sample=0 --check all
}

@test "data: JSON lines are documents, of the member that is asked for" {
    printf '{"text": "one"}\n\n{"text": ""}\n{"text": "two", "body": "b"}\n' >lines.jsonl
    mics-data encode -q -t bytes lines.jsonl -o lines >/dev/null
    [ "$(member lines '[.tokens, .documents]')" = '[8,2]' ]
    run --separate-stderr mics-data encode -t bytes --field=body lines.jsonl -o bad
    one_line_and_code 3
    [ "$stderr" = "mics-data: 'lines.jsonl': line 1: no string \"body\" (--bad-lines=skip:N skips N such lines)" ]
    printf '{"text": "one"}\n{"text": \n' >lines.jsonl
    run --separate-stderr mics-data encode -t bytes lines.jsonl -o bad
    one_line_and_code 3
    [[ $stderr == "mics-data: 'lines.jsonl': line 2: column "* ]]
    run ! ls bad.*
}

@test "data: llm.c's format is written and read" {
    mics-data encode -q -t bytes --format=llmc 'text/*.txt' -o corpus.bin >/dev/null
    [ "$(ls corpus*)" = $'corpus.bin\ncorpus.mp' ]
    [ "$(od -An -t d4 -N 12 corpus.bin | tr -s ' ')" = " 20240520 1 40" ]
    [ "$(member corpus .format)" = '"llmc"' ]
    mics-data encode -q -t bytes 'text/*.txt' -o both >/dev/null
    run --separate-stderr mics-data encode -t bytes --format=llmc 'text/*.txt' -o both
    one_line_and_code 3
    [[ $stderr == *"choose another name" ]]
}

@test "data: files of other programs are shown without a document" {
    printf 'H\0i\0' >raw.bin
    run --separate-stderr mics-data show raw.bin
    [ "$status" = 0 ]
    [ "${lines[-1]}" = "72 105" ]
    run --separate-stderr mics-data show -t bytes raw.bin
    [ "${lines[-1]}" = Hi ]
    [ "$(mics-data show --json --dtype=u32 raw.bin | jq -c '[.format, .tokens]')" = '["raw",1]' ]
    run --separate-stderr mics-data show -t bytes --dtype=u32 raw.bin
    one_line_and_code 3
    [ "$stderr" = "mics-data: 'raw.bin': token 0 is 6881352, outside of the vocabulary of 257" ]
}

@test "data: a damaged file is found by its checksum, a shorter one at once" {
    mics-data encode -q -t bytes 'text/*.txt' -o corpus >/dev/null
    printf 'X' | dd of=corpus.bin bs=1 seek=20 conv=notrunc status=none
    run --separate-stderr mics-data show --check corpus
    one_line_and_code 3
    [[ $stderr == "mics-data: the document of 'corpus': 'corpus.bin' is damaged, or not of this set: 80 bytes "* ]]
    mics-show --json corpus.mp | jq 'del(.files)' >without
    mv without corpus.mp
    run --separate-stderr mics-data show --check corpus
    one_line_and_code 3
    [[ $stderr == "mics-data: 'corpus.bin' is damaged: its checksum is "* ]]
    truncate -s 78 corpus.bin
    run --separate-stderr mics-data show corpus
    one_line_and_code 3
    [[ $stderr == "mics-data: 'corpus.idx': it describes 80 bytes, but 'corpus.bin' has 78" ]]
}

@test "data: without text nothing is written" {
    run --separate-stderr mics-data encode -t bytes text/empty.txt -o corpus
    one_line_and_code 3
    run --separate-stderr mics-data encode -t bytes 'none/*' -o corpus
    one_line_and_code 3
    run --separate-stderr mics-data encode -t no-such-tokenizer.json text/a.txt -o corpus
    [ "$status" != 0 ]
    run ! ls corpus.*
}

@test "data: a trained tokenizer travels with what it encoded" {
    for _ in {1..50}; do cat text/a.txt text/b.txt; done >text/more.txt
    mics-data train -q --vocab=300 text/more.txt -o tokenizer
    mics-data encode -q -t tokenizer 'text/*.txt' -o corpus >/dev/null
    cmp tokenizer/tokenizer.json corpus.tokenizer/tokenizer.json
    run --separate-stderr mics-data show --sample=6 --at=0 corpus
    [ "$status" = 0 ]
    [[ $output == *"The first text."* ]]
    mics-data show -q --sample=0 --check corpus
}

@test "data: options of other commands are refused" {
    run --separate-stderr mics-data show --vocab=5 x
    usage_mistake mics-data
    [ "${stderr_lines[0]}" = "mics-data: show: does not take --vocab" ]
    run --separate-stderr mics-data encode -o x text/a.txt
    usage_mistake mics-data
    run --separate-stderr mics-data encode -t bytes text/a.txt
    usage_mistake mics-data
    run --separate-stderr mics-data
    usage_mistake mics-data
    run --separate-stderr mics-data encode -t bytes -o x --format=raw text/a.txt
    usage_mistake mics-data
}
