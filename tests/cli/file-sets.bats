#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Files that are replaced together: faults and kills at every step leave the old set or the new one.

load helpers

setup_file()
{
    requires jq
    cd "$BATS_FILE_TMPDIR" || return
    seq 1 3000 >one.txt
    seq 5000 9000 >two.txt
    mics-data train --vocab=270 -q one.txt -o t1
    mics-data train --vocab=280 -q two.txt -o t2
    mkdir old new
    mics-data encode -t t1 one.txt -o old/x >passed
    mics-data encode -t t2 two.txt -o new/x >passed
}

teardown()
{
    unmount_small_disk
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/{one.txt,two.txt,t1,t2} .
}

old_set()
{
    rm -rf x x.*
    cp -r "$BATS_FILE_TMPDIR"/old/x.* .
}

encode_two()
{
    mics-data encode -q -t t2 two.txt -o x >printed
}

# Is x the set of folder $1, and nothing else?
is_set() # old|new
{
    local from=$BATS_FILE_TMPDIR/$1
    cmp "$from/x.bin" x.bin && cmp "$from/x.idx" x.idx && diff -rq "$from/x.tokenizer" x.tokenizer &&
        [ "$(mics-show --json x.mp | jq .xxh64)" = "$(mics-show --json "$from/x.mp" | jq .xxh64)" ]
}

# It is the old set or the new one, to whoever reads it first.
is_whole()
{
    mics-data show --check --sample=2 x >shown
    is_set old 2>/dev/null || is_set new
    [ ! -e x.commit ]
}

# The next writer leaves only its own files.
is_clean()
{
    encode_two
    is_set new
    [ "$(echo x.*)" = "x.bin x.idx x.mp x.tokenizer" ]
}

inject() # what...
{
    local injections=() what
    for what in "$@"; do injections+=(-e "inject=$what"); done
    strace -f -qq -o trace "${injections[@]}" mics-data encode -q -t t2 two.txt -o x >printed
}

can_trace()
{
    requires strace
    not_sanitized mics-data "LeakSanitizer does not work under strace"
    strace -qq -o trace -e inject=rename:error=EIO:when=1 true 2>/dev/null || skip "strace cannot inject here"
}

@test "file sets: an error of any call leaves the old set, and one line" {
    can_trace
    local call count number fault step
    for call in rename:EIO mkdir:EACCES fsync:EIO write:ENOSPC unlink:EIO; do
        fault=${call#*:} call=${call%:*}
        old_set
        strace -f -qq -o trace -e trace="$call" mics-data encode -q -t t2 two.txt -o x >printed
        count=$(grep -c "$call(" trace)
        [ "$count" -gt 0 ]
        step=1
        if [ "$call" != rename ]; then step=$(((count + 2) / 3)); fi
        for ((number = 1; number <= count; number += step)); do
            old_set
            run --separate-stderr inject "$call:error=$fault:when=$number"
            if [ "$status" = 0 ]; then
                is_set new
            else
                # Calls are counted by thread, and the write of the line may be the one that fails.
                [ "$status" = 1 ]
                if [ "$call" != write ]; then one_line_and_code 1; fi
                if [ "$call" = rename ]; then is_set old; else is_whole; fi
            fi
        done
    done
    is_clean
}

@test "file sets: if the old set cannot be put back, the new one waits, and is put in place" {
    can_trace
    local number
    for ((number = 5; number <= 16; number++)); do
        old_set
        run --separate-stderr inject "rename:error=EIO:when=$number+"
        [ "$status" = 0 ] || one_line_and_code 1
        is_whole
    done
    is_clean
}

@test "file sets: a process that is killed at any rename leaves a whole set" {
    can_trace
    local number killed=0
    for ((number = 1; number <= 15; number++)); do
        old_set
        run --separate-stderr inject "rename:signal=KILL:when=$number"
        killed=$((killed + (status != 0)))
        is_whole
        is_clean
    done
    [ "$killed" -ge 12 ]
    # After the last one, too.
    old_set
    run --separate-stderr inject unlink:signal=KILL:when=1
    is_whole
    is_clean
}

encode_all()
{
    mics-data encode -q -t bytes one.txt two.txt all.txt -o small/x >printed
}

@test "file sets: a full disk leaves the old set" {
    requires root tmpfs
    local size
    seq 1 9000 >all.txt
    for size in 100k 120k 140k 160k; do
        small_disk $size
        cp -r "$BATS_FILE_TMPDIR"/old/x.* small
        run --separate-stderr encode_all
        one_line_and_code 1
        [[ $stderr == *'No space left on device'* ]]
        (cd small && is_set old)
        [ "$(cd small && echo x*)" = "x.bin x.idx x.mp x.tokenizer" ]
        unmount_small_disk
    done
}

@test "file sets: members of two sets are refused by name" {
    old_set
    cp "$BATS_FILE_TMPDIR/new/x.mp" .
    run --separate-stderr mics-data show x
    [ "$status" = 3 ] && [ "${#stderr_lines[@]}" = 1 ]
    old_set
    printf '\1\0' | dd of=x.bin bs=1 seek=100 conv=notrunc status=none
    run --separate-stderr mics-data show x
    [ "$status" = 3 ] && [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == *"'x.bin' is damaged, or not of this set"* ]]
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --vocab=512 --global-batch=2 --seq=32 -o plan.mp
    run --separate-stderr mics-train -q -p plan.mp --data=x --steps=1 --out=run
    [ "$status" = 3 ] && [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == *"'x.bin' is damaged, or not of this set"* ]]
    # Renamed together they are a set, and without a document they are those of another trainer.
    old_set
    for member in bin idx tokenizer mp; do mv x.$member y.$member; done
    mics-data show --check y >shown
    rm y.mp
    mics-data show y >shown
}

@test "file sets: a set may be encoded with the tokenizer that is in it" {
    old_set
    mics-data encode -q -t x.tokenizer one.txt -o x >printed
    is_set old
    mics-data encode -q -t bytes one.txt -o x >printed
    [ ! -e x.tokenizer ]
}

@test "file sets: two processes do not write the same set" {
    old_set
    mkfifo text
    mics-data encode -q -t bytes one.txt -o x >printed
    exec 5<>x.lock
    flock 5
    run --separate-stderr encode_two
    [ "$status" = 1 ]
    [ "$stderr" = "mics-data: x: another process is writing it: wait, or choose another name" ]
    exec 5>&-
    encode_two
    is_set new
    [ ! -e x.lock ]
}

@test "file sets: a tokenizer that is trained again is replaced as a whole" {
    can_trace
    local number
    for ((number = 1; number <= 8; number++)); do
        rm -rf t
        cp -r t1 t
        run --separate-stderr strace -f -qq -o trace -e inject="rename:signal=KILL:when=$number" \
            mics-data train --vocab=280 -q two.txt -o t
        mics-data encode -q -t t one.txt -o y >printed
        cmp t/tokenizer.json t1/tokenizer.json || cmp t/tokenizer.json t2/tokenizer.json
    done
    mics-data train --vocab=280 -q two.txt -o t
    diff -rq t t2
}

@test "file sets: a journal that is damaged is refused" {
    local text
    for text in 'mics file set 1\0x.tmp.1\0+../y\0' 'mics file set 1\0y.tmp.1\0+x.bin\0' 'mics file set 1\0x.tmp.1\0' \
        'mics file set 1' '' 'mics file set 1\0x.tmp.1\0+/x\0' 'mics file set 1\0x.tmp.1\0x\0'; do
        old_set
        printf '%b' "$text" >x.commit
        run --separate-stderr mics-data show x
        [ "$status" = 3 ] && [ "${#stderr_lines[@]}" = 1 ]
        [[ $stderr == *"x.commit: not the list of files"* ]]
    done
    is_set old
}
