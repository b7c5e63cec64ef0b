#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a run survives, what it is asked to leave out, and mistakes that are found before it begins.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cat "$BATS_TEST_DIRNAME"/../../man/*.1 >text
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=4 --seq=32 --strategy=mics:2 >plan.mp
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=1 --seq=32 >one.mp
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    unset job
}

teardown()
{
    local rank
    if [ -n "${job:-}" ]; then
        for rank in $(pgrep -P "$job" mics-train); do kill -KILL "$rank"; done
        kill -KILL "$job" 2>/dev/null || true
    fi
    unmount_small_disk
}

four_ranks() # options...
{
    MICS_NODE_RANKS=2 mpi 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 \
        --sample=0 -q "$@"
}

one_rank() # options...
{
    MICS_NODE_RANKS=1 mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 "$@"
}

checkpoints() # folder
{
    find "$1" -maxdepth 1 -name 'step-*' -printf '%f\n' | sort | tr '\n' ' '
}

# Make NAME.so of the C code on standard input, to be loaded before a program's own libraries.
make_shim() # name program
{
    requires gcc
    not_sanitized "$2" "the sanitizer must be loaded first"
    { printf '#define _GNU_SOURCE\n' && cat; } >"$1.c"
    # shellcheck disable=SC2046 # words are wanted
    gcc -shared -fPIC $(pkg-config --cflags ompi-c) -o "$1.so" "$1.c" -ldl
}

# slow.so: each write into a shard takes $SLOW_S seconds, on all ranks or on $SLOW_RANK; what ranks did last takes
# $SLOW_FLIGHT_S to get its name.
make_slow_disk()
{
    make_shim slow mics-train <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");

    if (getenv("SLOW_FLIGHT_S") && strstr(to, "/flight/"))
        sleep((unsigned)atoi(getenv("SLOW_FLIGHT_S")));
    return real(from, to);
}

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    const char *only = getenv("SLOW_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char link[64], path[512] = "";

    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (getenv("SLOW_S") && readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".safetensors") &&
        (!only || strcmp(only, rank) == 0))
        usleep((useconds_t)(1e6 * atof(getenv("SLOW_S"))));
    return real(fd, data, size);
}
END
}

@test "faults: a last save that takes longer than ten time-outs is completed while its writers write" {
    requires mpi:4
    make_slow_disk
    SECONDS=0
    LD_PRELOAD=$PWD/slow.so SLOW_S=1.5 SLOW_RANK=1 four_ranks --steps=1 --out=run --timeout=2
    [ "$SECONDS" -ge 22 ]
    [ "$(readlink run/latest)" = step-000001 ]
}

@test "faults: a writer that stands still ends the job, with its rank" {
    requires mpi:4
    make_slow_disk
    SECONDS=0
    LD_PRELOAD=$PWD/slow.so SLOW_S=500 SLOW_RANK=1 run --separate-stderr four_ranks --steps=1 --out=run --timeout=3
    [ "$status" != 0 ]
    [ "$SECONDS" -lt 90 ]
    [[ $stderr == *'no progress for 30 s: rank 1 ('*') in step 1: writing a checkpoint'* ]]
}

@test "faults: a file system that hangs when ranks write what they did last does not keep a job from ending" {
    requires mpi:4
    make_slow_disk
    local fault
    for fault in 1:backward:9:hang 2:backward:9; do
        rm -rf run
        SECONDS=0
        LD_PRELOAD=$PWD/slow.so SLOW_FLIGHT_S=300 MICS_FAULT=$fault run --separate-stderr four_ranks --steps=1000 --save-every=0 \
            --out=run --timeout=3
        [ "$status" != 0 ]
        [ "$SECONDS" -lt 120 ]
        [ ! -e run/flight/rank-00000.mp ]
        [[ $stderr != *'mics-show run/flight'* ]]
        case $fault in
        1:*) [[ $stderr == *'mics-train: no progress for 3 s: rank '* ]] ;;
        *) [[ $stderr == *'rank 2 ('*') died in step '* || $stderr == *'signal 9'* ]] ;;
        esac
    done
}

# Stop the first and the last of four ranks when $1 is printed; the others end the job.
stop_first_and_last() # text options...
{
    local text=$1 status=0
    shift
    : >said # what an earlier job said is not to be found below
    MICS_NODE_RANKS=2 mpirun -n 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" \
        --val-every=0 --sample=0 --out=run --timeout=1 "$@" >said 2>&1 3>&- &
    job=$!
    until grep -q "$text" said; do
        kill -0 "$job" || { cat said; return 1; }
        sleep 0.1
    done
    pgrep -P "$job" mics-train | sed -n '1p;4p' | xargs kill -STOP
    SECONDS=0
    wait "$job" || status=$?
    unset job
    cat said
    [ "$status" != 0 ]
}

@test "faults: a sample may take longer than the time-out, and a rank that dies meanwhile is named" {
    requires mpi:4
    local status=0
    MICS_NODE_RANKS=2 mpirun -n 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" \
        --val-every=0 --steps=1 --sample=1000000 --out=run --timeout=1 >said 2>&1 3>&- &
    job=$!
    until grep -q ' saved run/' said; do
        kill -0 "$job" || { cat said; return 1; }
        sleep 0.1
    done
    sleep 3
    kill -0 "$job"
    pgrep -P "$job" mics-train | sed -n '4p' | xargs kill -KILL
    wait "$job" || status=$?
    unset job
    cat said
    [ "$status" != 0 ]
    grep -qE 'rank 3 \(.*\) died in step 1: between operations' said
}

@test "faults: if the first and the last rank stop, in steps or while others write, they are named" {
    requires mpi:4
    # Nor does the time of day matter, here an hour ahead where a wait is told when to end.
    LD_PRELOAD=$MICS_BUILD/tests/fake/clock_ahead.so \
        stop_first_and_last '^ *1 .*' --steps=1000000 --save-every=0
    [ "$SECONDS" -lt 30 ]
    grep -qE 'no progress for 1 s: ranks 0 \(.*\) and 3 \(.*\) do not answer; rank [12] is in step [0-9]+: ' said
    make_slow_disk
    rm -rf run
    LD_PRELOAD=$PWD/slow.so SLOW_S=500 SLOW_RANK=1 stop_first_and_last '^ *1 .*' --steps=1
    [ "$SECONDS" -lt 60 ]
    grep -qE 'no progress for 10 s: ranks 0 \(.*\) and 3 \(.*\) do not answer; rank [12] is in step 1: ' said
}

@test "faults: checkpoints are replaced on file systems that cannot exchange folders" {
    make_shim exchange mics-train <<'END'
#include <errno.h>
#include <stdio.h>

int renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
    if (flags)
        return errno = EINVAL, -1;
    return renameat(from, a, to, b);
}
END
    one_rank --steps=2 --save-every=1 --out=run -q
    sum() { sha256sum <"run/step-00000$1/shard-00000.safetensors"; }
    old=$(sum 2)
    LD_PRELOAD=$PWD/exchange.so one_rank --resume=run/step-000001 --lr=0.01 --steps=2 --out=run -q
    [ "$(sum 2)" != "$old" ]
    [ "$(checkpoints run)" = "step-000001 step-000002 " ]
    # killed after the old checkpoint was moved aside
    mv run/step-000002 run/step-000002.old
    one_rank --resume=auto --steps=3 --out=run >said
    grep -q '^resumed   run/step-000002, after step 2$' said
    [ "$(checkpoints run)" = "step-000001 step-000002 step-000003 " ]
}

@test "faults: a run that overwrites another and is killed before its first save is not resumed as the other" {
    one_rank --steps=4 --save-every=2 --out=run -q
    run --separate-stderr env MICS_FAULT=0:backward:9 MICS_NODE_RANKS=1 mics-train -p "$BATS_FILE_TMPDIR/one.mp" \
        --data="$BATS_FILE_TMPDIR/text" --out=run --overwrite --steps=8
    [ "$status" != 0 ]
    [ "$(checkpoints run)" = "step-000002 step-000004 " ]
    one_rank --resume=auto --steps=1 --out=run >said
    run ! grep -q '^resumed' said
    [ "$(readlink run/latest)" = step-000001 ]
}

@test "faults: --keep leaves checkpoints of later steps until the run has passed them, --discard-later does not" {
    one_rank --steps=4 --save-every=1 --out=run -q
    cp -r run other
    one_rank --resume=run/step-000001 --steps=2 --save-every=1 --keep=1 --out=run -q
    [ "$(checkpoints run)" = "step-000002 step-000003 step-000004 " ]
    one_rank --resume=auto --steps=5 --save-every=3 --keep=1 --out=run -q
    [ "$(checkpoints run)" = "step-000005 " ]
    one_rank --resume=other/step-000001 --steps=2 --keep=1 --discard-later --out=other -q
    [ "$(checkpoints other)" = "step-000002 " ]
}

@test "faults: a changed number in a manifest is refused, and one that contradicts others" {
    requires jq
    one_rank --steps=2 --out=run -q
    mics-show --json run/latest >shown
    jq '.training.data.seed = 7' shown >run/latest/manifest.mp
    run --separate-stderr one_rank --resume=run --steps=3 --out=run
    one_line_and_code 3
    [[ $stderr == *'manifest.mp: is damaged: its checksum is '* ]]
    run -3 --separate-stderr mics-shard verify run
    jq '.samples = 5' shown | sealed >run/latest/manifest.mp
    run --separate-stderr one_rank --resume=run --steps=3 --out=run
    one_line_and_code 3
    [[ $stderr == *'samples: 2 steps of 1 sequences do not make 5'* ]]
    jq '.samples = 5 | .since = {step: 2, samples: 5}' shown | sealed >run/latest/manifest.mp
    run --separate-stderr one_rank --resume=run --steps=3 --out=run
    one_line_and_code 3
    [[ $stderr == *'contradicts itself: 5 samples of 32 tokens do not make 64'* ]]
    cp shown run/latest/manifest.mp
    one_rank --resume=run --steps=3 --out=run -q
}

@test "faults: metrics whose last line was cut, wherever, are continued and can be read" {
    one_rank --steps=2 --save-every=1 --out=run -q
    size=$(stat -c %s run/metrics.jsonl)
    for cut in 1 7 100; do
        truncate -s $((size - cut)) run/metrics.jsonl
        one_rank --resume=run/step-000001 --steps=2 --out=run -q
        mics-show --tsv run/metrics.jsonl >shown 2>said
        [ ! -s said ]
        grep -q '^steps	2$' shown
    done
}

@test "faults: SIGUSR1 before MPI has started does not end the job, and is met after the first step" {
    requires mpi:4
    make_shim early mics-train <<'END'
#include <mpi.h>
#include <signal.h>

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    raise(SIGUSR1);
    return PMPI_Init_thread(argc, argv, required, provided);
}
END
    LD_PRELOAD=$PWD/early.so four_ranks --steps=9 --out=run --save-every=0
    [ "$(checkpoints run)" = "step-000001 step-000009 " ]
}

@test "faults: a rank that stops before the first step is named after one time-out" {
    requires mpi:4
    mkfifo plan
    sleep 60 >plan 3>&- & # keeps the other ranks waiting for the plan
    holder=$!
    MICS_NODE_RANKS=2 mpirun -n 4 mics-train -p plan --data="$BATS_FILE_TMPDIR/text" --out=run --timeout=4 >said 2>&1 3>&- &
    job=$!
    for _ in $(seq 100); do
        [ "$(pgrep -P "$job" mics-train | wc -l)" = 4 ] && break
        sleep 0.1
    done
    sleep 3 # they have joined
    kill -STOP "$(pgrep -P "$job" mics-train | sed -n 3p)"
    SECONDS=0
    status=0
    wait "$job" || status=$?
    kill "$holder"
    cat said
    [ "$status" != 0 ]
    [ "$SECONDS" -lt 40 ]
    grep -q 'no progress for 4 s: rank 2 (.*) does not answer; last seen before the first step, waiting for the plan' said
}

@test "faults: a path that cannot be written is found before the work" {
    run --separate-stderr one_rank --steps=1 --out=run --trace=none/trace.json
    one_line_and_code 1
    [[ $stderr == "mics-train: none/trace.json: cannot be written into 'none': No such file or directory" ]]
    [ "$output" = "" ]
    run --separate-stderr mics-probe --seconds=100 --hostfile=none/hosts
    one_line_and_code 1
    run --separate-stderr mics-bench --seconds=100 -o none/bench.mp
    one_line_and_code 1
    run --separate-stderr mics-plan --topology=node:2 --model=gpt2 --global-batch=8 --hostfile=none/hosts -o out.mp
    one_line_and_code 1
    [ ! -e out.mp ]
}

@test "faults: mics-plan and mics-show do not wait for a document from a terminal" {
    requires script
    for command in "mics-plan --model=gpt2-nano --global-batch=8" mics-show; do
        run script -qec "$command" /dev/null </dev/null
        [ "$status" = 2 ]
        [[ $output == *'on standard input'* ]]
    done
}

@test "faults: under a launcher mics-plan and mics-show write one document" {
    requires mpi:4
    mpi 4 mics-plan --topology=node:2 --model=gpt2-nano --global-batch=8 >four.mp
    mics-show --json four.mp >shown
    mpi 4 mics-show --json four.mp | cmp - shown
}

# Make refuse.so: in rank 1, which loads it, pthread_create() fails from call $REFUSE_FROM on.
make_refusing_threads()
{
    not_sanitized mics-train "the sanitizer must be loaded first"
    cat >refuse.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    static int calls;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (rank && atoi(rank) == 1 && __sync_add_and_fetch(&calls, 1) >= atoi(getenv("REFUSE_FROM")))
        return EAGAIN;
    return create(thread, attr, start, arg);
}
END
    gcc -shared -fPIC -o refuse.so refuse.c
}

@test "faults: a rank that gets no threads ends the job, and says so in one line" {
    requires mpi:4
    make_refusing_threads
    local from
    for from in 8 27; do # before MPI has started, and where streams are opened
        MICS_THREADS=1 REFUSE_FROM=$from MICS_NODE_RANKS=2 run --separate-stderr timeout 60 \
            mpirun -q -n 4 env LD_PRELOAD="$PWD/refuse.so" mics-train -p "$BATS_FILE_TMPDIR/plan.mp" \
            --data="$BATS_FILE_TMPDIR/text" --steps=1 --sample=0 --out=run
        [ "$status" = 1 ]
        [ "$(grep -c '^mics-train: ' <<<"$stderr")" = 1 ]
        case $from in
        8) [[ $stderr == *'mics-train: rank 1: MPI: only '*' of 20 threads can be started: '* ]] ;;
        *) [[ $stderr == *'mics-train: rank 1: stream '*': cannot start a thread: '* ]] ;;
        esac
        [ ! -e run/latest ]
    done
}

@test "faults: too little address space is an error before MPI or OpenBLAS fail for it" {
    requires mpi:4
    not_sanitized mics-train "sanitizers reserve more address space"
    local kib
    for kib in 120000 250000; do
        run --separate-stderr timeout 60 bash -c "ulimit -v $kib; exec mpirun -q -n 2 mics-train -p '$BATS_FILE_TMPDIR/plan.mp' --data='$BATS_FILE_TMPDIR/text' --steps=1 --out=run"
        [ "$status" = 1 ]
        [[ $stderr == *'mics-train: MPI: '*'ulimit -v '* ]]
    done
    run --separate-stderr bash -c 'ulimit -v 120000; exec timeout 60 "$@"' bash \
        mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --steps=1 --out=run
    one_line_and_code 1
}

@test "faults: a mistake in MICS_NODE_RANKS does not hide others, and is told if there is no other" {
    requires mpi:4
    train() { mpi 4 mics-train --data="$BATS_FILE_TMPDIR/text" --steps=1 --sample=0 --out=run "$@"; }
    for value in 3 x; do
        MICS_NODE_RANKS=$value run --separate-stderr train -p missing.mp
        [[ $stderr == *'missing.mp'* && $stderr != *MICS_NODE_RANKS* ]]
        MICS_NODE_RANKS=$value run --separate-stderr train -p "$BATS_FILE_TMPDIR/plan.mp" --data=missing
        [[ $stderr == *'missing'* && $stderr != *MICS_NODE_RANKS* ]]
        MICS_NODE_RANKS=$value run --separate-stderr train -p "$BATS_FILE_TMPDIR/plan.mp"
        [ "$status" = 2 ]
        [ "$(grep -c '^mics-train: ' <<<"$stderr")" = 1 ]
        [[ $stderr == *MICS_NODE_RANKS* ]]
        [ ! -e run ]
    done
}

@test "faults: control characters in the name of a model are refused" {
    mics-show --json "$BATS_FILE_TMPDIR/one.mp" | sed 's/"gpt2-nano"/"\\u001b[31mgpt2"/' >red.mp
    run --separate-stderr mics-train -p red.mp --data="$BATS_FILE_TMPDIR/text" --out=run
    one_line_and_code 3
    [[ $stderr == *'model: name: control characters in a name' ]]
    run mics-show red.mp
    [[ $output != *$'\e'* ]]
}

@test "faults: a disk that is full for a while costs checkpoints, not the run" {
    requires root tmpfs
    small_disk 24m
    one_rank --steps=1 --out=small/run -q
    head -c 12M /dev/zero >small/big
    run --separate-stderr one_rank --resume=auto --steps=3 --save-every=1 --save-failures=3 --out=small/run
    [ "$status" = 1 ]
    [[ ${stderr_lines[0]} == 'mics-train: a checkpoint failed (1 in a row; 3 end the run), next try in 10 s: '*'no room'* ]]
    [ "$(readlink small/run/latest)" = step-000001 ]
    one_rank --resume=auto --steps=400 --save-every=5 --keep=1 --save-failures=1000 --out=small/run >said 2>&1 3>&- &
    job=$!
    for _ in $(seq 200); do
        grep -q 'a checkpoint failed (2 in a row' said && break
        sleep 0.1
    done
    rm small/big
    wait "$job"
    unset job
    [ "$(readlink small/run/latest)" = step-000400 ]
    [ "$(grep -c '"event":"save_failed"' small/run/metrics.jsonl)" -ge 2 ]
    [ "$(grep -c '"event":"step"' small/run/metrics.jsonl)" -ge 400 ]
}

@test "faults: samples that are left out do not change the others' steps" {
    one_rank --steps=4 --out=all --metrics=all.jsonl -q
    one_rank --steps=4 --skip-samples=3 --out=without --metrics=without.jsonl -q
    losses() { sed -n 's/.*"event":"step","step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p' "$1"; }
    cmp <(losses all.jsonl | head -n 2) <(losses without.jsonl | head -n 2)
    losses without.jsonl | grep -qx '3 0'
    run ! cmp -s <(losses all.jsonl | tail -n 1) <(losses without.jsonl | tail -n 1)
}

@test "faults: a sample that cannot be read is named, and can be left out" {
    head -c 20000 "$BATS_FILE_TMPDIR/text" | tr '\n' ' ' | LC_ALL=C sed 's/./&\x00/g' >ids.bin
    printf '\xff\xff' | dd of=ids.bin bs=1 seek=20000 conv=notrunc status=none
    tokens()
    {
        MICS_NODE_RANKS=1 mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$PWD/ids.bin:u16" --val-every=0 --sample=0 \
            --steps=700 --out=run -q "$@"
    }
    run --separate-stderr tokens
    [ "$status" -eq 3 ]
    [ ${#stderr_lines[@]} -eq 1 ]
    [[ $stderr == *"data: sample "*" (--skip-samples= leaves it out): "*"token 10000 is 65535, outside of the vocabulary of 257"* ]]
    sample=${stderr##*data: sample }
    tokens --overwrite --skip-samples="${sample%% *}" --steps=600
    tokens --resume=run --steps=602
    [ "$(readlink run/latest)" = step-000602 ]
    # Ids that have become others are noticed.
    printf 'a\0' | dd of=ids.bin bs=1 seek=20000 conv=notrunc status=none
    run --separate-stderr tokens --resume=run --steps=604
    [ "$status" -eq 3 ]
    [[ $stderr == *": --other-data resumes with the data that is there now"* ]]
}

@test "faults: options that do not fit are refused" {
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=1 --seq=32 --no-clip >free.mp
    run --separate-stderr env MICS_NODE_RANKS=1 mics-train -p free.mp --data="$BATS_FILE_TMPDIR/text" --on-nonfinite=skip --out=run
    one_line_and_code 2
    [[ $stderr == *'--on-nonfinite=skip needs clipping'* ]]
    for wrong in --on-nonfinite=go --on-nonfinite=skip:0 --skip-samples=5-3 --skip-samples=0 --save-failures=0; do
        run --separate-stderr one_rank --out=run "$wrong"
        usage_mistake mics-train
    done
}
