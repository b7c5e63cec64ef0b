#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Files of text as people have them: compressed, under other names, damaged, or not text at all.
bats_require_minimum_version 1.5.0
load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR"
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=2 --micro-batch=2 \
        --seq=8 --dtype=f32 -o plan.mp
    for i in {1..40}; do printf '{"text": "line %d", "n": %d}\n' "$i" "$i"; done >lines.jsonl
    for i in {1..40}; do printf 'This is line %d. ' "$i"; done >text.txt
}

setup()
{
    cd "$BATS_TEST_TMPDIR"
    ln -s "$BATS_FILE_TMPDIR"/{plan.mp,lines.jsonl,text.txt} .
}

encode() # file... : prints documents, tokens and the fingerprint of the text
{
    mics-data encode -q -t bytes --json "$@" -o out |
        jq -c '[.documents, .tokens, .text.fingerprint]'
}

refused() # words file [option...]
{
    local words=$1
    shift
    run -3 --separate-stderr mics-data encode -q -t bytes "$@" -o refused
    [[ $stderr == "mics-data: "*"$words"* ]] || { echo "$stderr"; return 1; }
    [ "${#stderr_lines[@]}" = 1 ]
    [ -z "$(ls refused* 2>/dev/null)" ]
}

zstd_frame() # file: a frame with one raw block, which needs no zstd(1)
{
    local size
    size=$(stat -Lc %s "$1")
    # shellcheck disable=SC2059 # the format has the bytes
    printf "$(printf '\\x28\\xb5\\x2f\\xfd\\xa0\\x%02x\\x%02x\\0\\0\\x%02x\\x%02x\\x%02x' \
        $((size & 255)) $((size >> 8)) $(((size * 8 + 1) & 255)) $((size >> 5 & 255)) \
        $((size >> 13)))"
    cat "$1"
}

@test "corpora: compressed text and JSON lines are the same as others, whatever they are called" {
    local plain
    plain=$(encode lines.jsonl)
    [[ $plain == '[40,'* ]]
    gzip -c lines.jsonl >a.jsonl.gz
    { head -n 7 lines.jsonl | gzip; tail -n +8 lines.jsonl | gzip -1; } >two.JSON.GZ
    zstd_frame lines.jsonl >a.ndjson.zst
    cp a.jsonl.gz gzip.jsonl
    for name in a.json A.JSONL a.ndjson; do cp lines.jsonl "$name"; done
    for name in a.jsonl.gz two.JSON.GZ a.ndjson.zst gzip.jsonl a.json A.JSONL a.ndjson; do
        [ "$(encode "$name")" = "$plain" ] || { echo "$name"; return 1; }
    done
    { printf '\xef\xbb\xbf'; cat lines.jsonl; } >bom.jsonl
    [ "$(encode bom.jsonl | cut -d, -f1,2)" = "$(cut -d, -f1,2 <<<"$plain")" ]

    plain=$(encode text.txt)
    gzip -c text.txt >b.txt.gz
    zstd_frame text.txt >b.txt.zst
    printf '\x5a\x2a\x4d\x18\x03\0\0\0abc' | cat - b.txt.zst >b.zst
    for name in b.txt.gz b.txt.zst b.zst; do [ "$(encode "$name")" = "$plain" ]; done
    [ "$(encode b.txt.gz b.txt.zst a.jsonl.gz text.txt lines.jsonl | cut -d, -f1)" = '[83' ]
}

@test "corpora: damaged and truncated files are errors with their names and positions" {
    gzip -c text.txt >a.gz
    head -c -9 a.gz >cut.gz
    refused "'cut.gz': truncated: its $(stat -c %s cut.gz) bytes end inside of a gzip member" cut.gz
    { head -c 60 a.gz; printf 'damage'; tail -c +67 a.gz; } >damaged.txt.gz
    refused "'damaged.txt.gz': damaged: gzip data at byte " text.txt damaged.txt.gz
    { cat a.gz; echo more; } >more.gz
    refused "'more.gz': damaged: gzip data at byte " more.gz
    zstd_frame text.txt | head -c 100 >cut.zst
    refused "'cut.zst': truncated: its 100 bytes end inside of a zstd frame" cut.zst
    : >empty.gz
    refused "'empty.gz' is not gzip, as its name says: it is empty" empty.gz
}

@test "corpora: text that does not fit where it is decompressed to is an error that names TMPDIR" {
    gzip -c text.txt >a.gz
    TMPDIR=$BATS_TEST_TMPDIR/none run -1 --separate-stderr mics-data encode -q -t bytes a.gz -o out
    [ "$stderr" = "mics-data: 'a.gz': no temporary file for the text: '$BATS_TEST_TMPDIR/none': No such file or directory" ]
    mkdir here
    TMPDIR=$PWD/here mics-data encode -q -t bytes a.gz -o out >/dev/null
    [ -z "$(ls here)" ]
}

@test "corpora: what is not text is refused by what it seems to be" {
    printf 'PAR1\x15\0' >a.parquet
    refused "'a.parquet' is a Parquet file: convert it to JSON lines" a.parquet
    cp a.parquet disguised.txt
    refused "'disguised.txt' is a Parquet file" text.txt disguised.txt
    gzip -c a.parquet >a.gz
    refused "'a.gz' is a Parquet file" a.gz
    gzip -c a.gz >twice.gz
    refused "'twice.gz' is a gzip file: decompress it first" twice.gz
    printf '\x93NUMPY\x01\0v\0{}' >a.npy
    refused "'a.npy' is a NumPy array" a.npy
    iconv -t UTF-16 text.txt >wide.txt
    refused "'wide.txt' is UTF-16 text: convert it to UTF-8" wide.txt
    iconv -t UTF-16LE text.txt >wide.txt
    refused "'wide.txt' is UTF-16 text (UTF-16LE)" wide.txt
    iconv -t UTF-16BE lines.jsonl >wide.jsonl
    refused "'wide.jsonl' is UTF-16 text (UTF-16BE)" wide.jsonl
    printf '1\0' >a.bin
    refused "'a.bin' has tokens already, by its name" a.bin
    jq -s . lines.jsonl >array.json
    refused "'array.json' is a JSON array, not JSON lines: jq -c '.[]'" array.json
    head -n 1 lines.jsonl | jq . >object.json
    refused "'object.json' has a JSON object over several lines" object.json
    echo 'text' >a.tar.gz
    refused "'a.tar.gz' is not gzip, as its name says" a.tar.gz
}

@test "corpora: bytes that are not text need --binary, for encoding and for training" {
    { cat text.txt; printf '\0\1\2'; } >nul.txt
    refused "'nul.txt' is not text: byte $(stat -Lc %s text.txt) is NUL; --binary takes" nul.txt
    printf 'caf\xe9 cr\xe8me' >latin1.txt
    refused "'latin1.txt' is not text: 20 % of its bytes are not UTF-8" latin1.txt
    { for _ in {1..20}; do cat text.txt; done; printf '\xe9'; } >mild.txt
    [[ $(encode mild.txt) == '[1,'* ]]
    run -3 --separate-stderr mics-data train --vocab=300 nul.txt -o tokenizer
    [[ $stderr == "mics-data: 'nul.txt' is not text"* ]]

    run -3 --separate-stderr mics-data train --vocab=300 lines.jsonl -o tokenizer
    [[ $stderr == "mics-data: 'lines.jsonl' has JSON lines, of which train would learn quotes"* ]]

    gzip -c nul.txt >a.gz
    [ "$(encode nul.txt --binary)" != "$(encode a.gz --binary)" ] # taken as they are
    mics-data train --binary --vocab=300 nul.txt -o tokenizer
    run -3 --separate-stderr mics-train -q -p plan.mp --steps=1 --sample=0 --data=nul.txt --out=run
    [[ $stderr == "mics-train: data: 'nul.txt' is not text: byte "* ]]
    mics-train -q -p plan.mp --steps=1 --sample=0 --data=nul.txt --binary --out=run
}

@test "corpora: a damaged line stops with file and line, or is skipped and counted" {
    { cat lines.jsonl; printf 'no JSON\n[1]\n{"text": 5}\n{"txt": ""}\n{"text": "\xff"}\n'; } >bad.jsonl
    printf '{"text": "good"}\n\n{"text": "cut o' >>bad.jsonl
    refused "'bad.jsonl': line 41: column 1: " bad.jsonl
    refused "'bad.jsonl': line 48: " bad.jsonl --bad-lines=skip:5
    [[ $stderr == *", after 5 damaged lines that --bad-lines skips" ]]
    run -0 --separate-stderr mics-data encode -t bytes --json bad.jsonl --bad-lines=skip:6 -o out
    [[ $stderr == "mics-data: skipped 6 damaged lines: 'bad.jsonl': line 41: column 1: "* ]]
    [ "$(jq -c '[.documents, .text.bad_lines]' <<<"$output")" = '[41,6]' ]
    [ "$(mics-data show --sample=0 --tsv out | grep bad_lines)" = $'bad_lines\t6' ]
    run -2 --separate-stderr mics-data encode -t bytes bad.jsonl --bad-lines=6 -o out
    [ "${stderr_lines[0]}" = "mics-data: --bad-lines: '6': expected skip:N with N from 1" ]
    run -2 --separate-stderr mics-data encode -t bytes bad.jsonl --bad-lines=skip:-1 -o out
    [ "${stderr_lines[0]}" = "mics-data: --bad-lines: 'skip:-1': expected skip:N with N from 1" ]

    run -3 --separate-stderr mics-train -q -p plan.mp --steps=1 --sample=0 --data=bad.jsonl
    [[ $stderr == "mics-train: data: 'bad.jsonl': line 41: "* ]]
    gzip bad.jsonl
    run -0 --separate-stderr mics-train -p plan.mp --steps=1 --sample=0 --data=bad.jsonl.gz \
        --bad-lines=skip:100 --out=run
    [[ $stderr == *"data: skipped 6 damaged lines: 'bad.jsonl.gz': line 41: "* ]]
}

@test "corpora: numbers of lines count all lines of large files, in every thread" {
    awk 'BEGIN { for (i = 1; i <= 60000; i++)
        print (i % 20000 == 7 ? "{" : "{\"text\": \"this is line " i "\"}") }' >large.jsonl
    run -0 --separate-stderr mics-data encode -v -t bytes large.jsonl --bad-lines=skip:3 -o out
    [[ $stderr == *"skipped 3 damaged lines: 'large.jsonl': line 7: "* ]]
    [[ $stderr == *"skipped 'large.jsonl': line 20007: "* ]]
    [[ $stderr == *"skipped 'large.jsonl': line 40007: "* ]]
    refused "'large.jsonl': line 40007: " large.jsonl --bad-lines=skip:2
}

@test "corpora: ids of 32 and 64 bits are not read as 16, and files of OLMo need a type" {
    local i
    for i in {1..40}; do printf '%b' "\\x$(printf %02x "$i")\\0\\0\\0"; done >wide.bin
    run -3 --separate-stderr mics-data show wide.bin
    [[ $stderr == "mics-data: 'wide.bin' seems to have ids of 32 bits"*"--dtype=u32"* ]]
    [[ $(mics-data show --json --dtype=u32 wide.bin | jq .tokens) == 40 ]]
    [[ $(mics-data show --json --dtype=u16 wide.bin | jq .tokens) == 80 ]]
    mics-train -q -p plan.mp --steps=1 --sample=0 --data=wide.bin:u32 --val-every=0 --out=run
    for i in {1..20}; do printf '%b' "\\x$(printf %02x "$i")\\0\\0\\0\\0\\0\\0\\0"; done >long.bin
    run -3 --separate-stderr mics-data show long.bin
    [[ $stderr == "mics-data: 'long.bin' seems to have ids of 64 bits"* ]]
    cp wide.bin part.npy
    run -3 --separate-stderr mics-train -q -p plan.mp --steps=1 --data=part.npy
    [[ $stderr == "mics-train: data: 'part.npy' has no header that tells the type of its ids"* ]]
    mics-train -q -p plan.mp --steps=1 --sample=0 --data=part.npy:u32 --out=run --overwrite
    printf 'PK\3\4aaaaaaaaaaaa' >zip.bin
    run -3 --separate-stderr mics-train -q -p plan.mp --steps=1 --data=zip.bin
    [[ $stderr == "mics-train: data: 'zip.bin' is a zip archive"* ]]
    gzip -c wide.bin >wide.bin.gz
    run -3 --separate-stderr mics-train -q -p plan.mp --steps=1 --data=wide.bin.gz
    [[ $stderr == "mics-train: data: 'wide.bin.gz' is compressed tokens: "* ]]
}

@test "corpora: an error in the middle of a folder is not its end" {
    not_sanitized mics-data "the sanitizer must be loaded first"
    mkdir folder
    touch folder/{a,b,c,d,e,f}.txt
    cp text.txt folder/g.txt
    mics-data encode -q -t bytes 'folder/*.txt' -o out >/dev/null
    LD_PRELOAD=$MICS_BUILD/tests/fake/broken_readdir.so run -1 --separate-stderr \
        mics-data encode -q -t bytes 'folder/*.txt' -o out
    [ "$stderr" = "mics-data: 'folder/*.txt': a folder cannot be read: Input/output error" ]
}

train() # option...
{
    mics-train -p plan.mp --sample=0 --val-every=2 "$@" >log
}

@test "corpora: validation has data of its own, and the start says what is kept" {
    gzip -c text.txt >text.gz
    train --steps=2 --data=text.txt --out=kept
    grep -qE '^ *5.1 % of the tokens are kept for validation; --val-fraction=0 trains on all$' log
    train --steps=2 --data=text.txt --val-fraction=0 --out=all
    run ! grep -q 'kept for validation' log
    train --steps=2 --data=text.gz --val-data=lines.jsonl --out=own
    grep -q '^ *311 tokens of --val-data are validated$' log
    # It trains on all, as without validation, and the loss is that of --eval.
    [ "$(jq -r 'select(.event == "step") | .loss' all/metrics.jsonl)" = \
        "$(jq -r 'select(.event == "step") | .loss' own/metrics.jsonl)" ]
    mics-data encode -q -t bytes lines.jsonl -o tokens >/dev/null
    for data in lines.jsonl tokens.bin '0.1:tokens 0.9:lines.jsonl'; do
        mics-train --eval -p plan.mp --init=own --val-data="$data" | cut -d' ' -f1-4
    done >losses
    [ "$(sed 's/,.*//' losses | sort -u | wc -l)" -le 2 ] # the blend crosses another border
    [ "$(sed -n 1p losses)" = "$(sed -n 2p losses)" ]
    [ "$(mics-train --eval -p plan.mp --init=own --data=lines.jsonl | cut -d' ' -f1-4)" = \
        "$(sed -n 1p losses)" ]

    # A resumed run has the same data for validation.
    run -3 --separate-stderr mics-train -q --resume=own --data=text.txt --steps=4 --sample=0
    [[ $stderr == *"own/latest: validated with --val-data, which is missing now: --other-data "* ]]
    run -3 --separate-stderr mics-train -q --resume=own --data=text.txt --val-data=text.txt --steps=4
    [[ $stderr == *"own/latest: validated with other data (fingerprint "* ]]
    mics-train -q --resume=own --data=text.txt --val-data=lines.jsonl --steps=4 --sample=0 --out=own
    mics-train -q --resume=kept --data=text.gz --val-data=lines.jsonl --steps=4 --sample=0 --out=kept
    run -3 --separate-stderr mics-train -q -p plan.mp --data=text.txt --val-data=none.txt
    [ "$stderr" = "mics-train: data: for validation: 'none.txt' matches no file" ]
}
