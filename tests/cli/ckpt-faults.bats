#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Faults of checkpoints: ranks killed while they save, full disks, manifests of other versions.

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
    end_job
    unmount_small_disk
}

# Four ranks that save after every step, in the background: $job is the launcher.
begin_job()
{
    MICS_NODE_RANKS=2 mpirun -n 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 \
        --sample=0 --steps=100000 --save-every=1 --keep=2 --resume=auto --out=run --metrics=m.jsonl -q >said 2>&1 3>&- &
    job=$!
}

end_job()
{
    local rank
    [ -n "${job:-}" ] || return 0
    for rank in $(pgrep -P "$job" mics-train); do kill -KILL "$rank"; done
    kill -KILL "$job" 2>/dev/null || true
}

one_rank() # options...
{
    MICS_NODE_RANKS=1 mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 -q "$@"
}

latest() # folder: the step of its latest checkpoint
{
    local name
    name=$(readlink "$1/latest")
    echo $((10#${name#step-}))
}

# The checkpoint is intact: it loads, and a step can be trained from it.
loads() # folder
{
    one_rank --resume="$1" --steps=$(($(latest "$1") + 1)) --out=proof
    [ "$(latest proof)" = $(($(latest "$1") + 1)) ]
    rm -r proof
}

# Kill a rank while a save is under way, at most 20 s from now.
kill_while_saving() # rank
{
    local first i
    touch m.jsonl
    first=$(grep -c '"event":"checkpoint"' m.jsonl || true)
    for ((i = 0; i < 2000; i++)); do
        if [ "$(grep -c '"event":"checkpoint"' m.jsonl || true)" -ge $((first + 2)) ] &&
            compgen -G 'run/step-*.tmp.*' >/dev/null; then
            kill -KILL "$(pgrep -P "$job" mics-train | sed -n "$1p")"
            return 0
        fi
        sleep 0.01
    done
    return 1
}

@test "checkpoint faults: any rank killed while it saves leaves an intact checkpoint" {
    requires mpi:4
    local rank status
    for rank in 1 3 4; do
        begin_job
        kill_while_saving $rank
        status=0
        wait "$job" || status=$?
        [ "$status" != 0 ]
        loads run
    done
    # The next run in the folder removes the files of the killed ones.
    MICS_NODE_RANKS=2 mpi 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 \
        --steps=1 --resume=auto --out=run -q
    [ "$(find run -name '*.tmp.*')" = "" ]
}

@test "checkpoint faults: on a disk of any size the last checkpoint that fits is intact" {
    requires root tmpfs
    local size
    for size in 2 11 15 25 34; do
        small_disk ${size}m
        run --separate-stderr one_rank --steps=4 --save-every=1 --out=small/run
        one_line_and_code 1
        [[ $stderr == *'no room for the checkpoint: it needs '*' are free' ]]
        [ "$(find small/run -name '*.tmp.*')" = "" ]
        if [ -e small/run/latest ]; then loads small/run; fi
        echo "$size MiB: $(find small/run -name 'step-*' | wc -l) checkpoints"
        unmount_small_disk
    done
    small_disk 34m
    one_rank --steps=6 --save-every=1 --keep=1 --out=small/run
    [ "$(latest small/run)" = 6 ]
}

@test "checkpoint faults: a checkpoint without optimizer state is refused with a hint at its use" {
    one_rank --steps=1 --out=run
    mics-shard merge run/latest -o hf -q
    mics-shard split hf -o split -p "$BATS_FILE_TMPDIR/one.mp" -q >passed
    run --separate-stderr one_rank --resume=split --steps=2 --out=run
    one_line_and_code 3
    [[ $stderr == *'split: has parameters only'*'--init=split'* ]]
    one_rank --init=split --steps=1 --out=new
}

@test "checkpoint faults: a manifest of another version is refused" {
    one_rank --steps=1 --out=run
    mics-show --json run/latest >shown
    sed 's/"v": *2\b/"v": 3/' shown >run/latest/manifest.mp
    run --separate-stderr one_rank --resume=run --steps=2 --out=run
    one_line_and_code 3
    [[ $stderr == *manifest.mp*newer* ]]
    sed 's/"v": *2\b/"v": 1/' shown >run/latest/manifest.mp
    run --separate-stderr one_rank --resume=run --steps=2 --out=run
    one_line_and_code 3
    [[ $stderr == *"manifest.mp: 'mics.checkpoint' of version 1: this mics reads version 2" ]]
}

@test "checkpoint faults: all tensors that are not the model's are named in one line" {
    requires jq
    one_rank --steps=1 --out=run
    mics-show --json run/latest >shown
    sed -e 's/"h.0.ln_1.weight"/"h.0.ln_9.weight"/' -e 's/"h.1.mlp.c_fc.bias"/"h.1.mlp.c_fc.bios"/' shown |
        sealed >run/latest/manifest.mp
    run --separate-stderr one_rank --resume=run --steps=2 --out=run
    one_line_and_code 3
    [[ $stderr == *'4 tensors are not the model'* ]]
    [[ $stderr == *'h.0.ln_1.weight is missing'* && $stderr == *'h.1.mlp.c_fc.bias is missing'* ]]
    [[ $stderr == *'h.0.ln_9.weight is not in the model'* && $stderr == *'h.1.mlp.c_fc.bios is not in the model'* ]]
}

@test "checkpoint faults: a flipped bit and a missing shard are reported, also on other ranks" {
    requires mpi:4
    MICS_NODE_RANKS=2 mpi 4 mics-train -p "$BATS_FILE_TMPDIR/plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 \
        --steps=1 --out=run -q
    cp run/latest/shard-00002.safetensors kept
    printf '\1' | dd of=run/latest/shard-00002.safetensors bs=1 seek=90001 conv=notrunc status=none
    run --separate-stderr one_rank --resume=run --steps=2 --out=run
    one_line_and_code 3
    [[ $stderr == *'shard-00002.safetensors: is damaged'* ]]
    rm run/latest/shard-00002.safetensors
    run --separate-stderr one_rank --resume=run --steps=2 --out=run
    one_line_and_code 3
    [[ $stderr == *'shard-00002.safetensors: No such file'* ]]
    mv kept run/latest/shard-00002.safetensors
    one_rank --resume=run --steps=2 --out=run
    [ "$(latest run)" = 2 ]
}

# Fail a system call of a run of two steps in `run`, a copy of `base`, which has a checkpoint of one
# step: in each thread the N-th call with that name. False: there was none.
inject() # CALL:ERROR:N options...
{
    local call=${1%%:*} error=${1#*:}
    rm -rf run
    cp -a base run
    MICS_NODE_RANKS=1 strace -f -qq -o trace -e trace="$call" -e signal=none \
        -e inject="$call:error=${error%:*}:when=${error#*:}" mics-train -p "$BATS_FILE_TMPDIR/one.mp" \
        --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 -q --steps=2 --save-every=1 --out=run \
        "${@:2}" >said 2>&1 || true
    grep -q INJECTED trace
}

works_under_strace()
{
    requires strace
    strace -f -qq -o trace -e trace=symlink -e inject=symlink:error=EIO true 2>/dev/null ||
        skip "strace cannot trace here"
}

@test "checkpoint faults: whatever call fails, latest is a complete checkpoint" {
    works_under_strace
    one_rank --steps=1 --out=base
    for fault in symlink:ENOSPC:1 rename:EIO:2 fsync:EIO:1 fsync:EIO:2 mkdir:ENOSPC:2 \
        openat:EMFILE:1 openat:EMFILE:3 clone3:EAGAIN:14+; do
        for mode in --overwrite --resume=auto; do
            inject $fault $mode || continue
            echo "$fault $mode: $(readlink run/latest): $(cat said)"
            mics-shard verify -q run/latest
            [ "$(find run -maxdepth 1 -name 'step-*.tmp.*')" = "" ]
        done
    done
}

@test "checkpoint faults: a run that overwrites another is not continued as the other" {
    works_under_strace
    one_rank --steps=3 --save-every=1 --out=base
    inject mkdir:ENOSPC:2 --overwrite --save-failures=1
    [ "$(readlink run/latest)" = step-000003 ]
    [ "$(readlink run/overwritten)" = step-000003 ]
    one_rank --steps=1 --resume=auto --out=run
    [ "$(readlink run/latest)" = step-000001 ]
    [ ! -L run/overwritten ]
}

@test "checkpoint faults: a folder that cannot be read to its end is an error, not an empty one" {
    works_under_strace
    one_rank --steps=1 --out=base
    inject getdents64:EIO:1
    grep -q 'run: cannot be read: Input/output error' said
    [ "$(readlink run/latest)" = step-000001 ]
}

@test "checkpoint faults: on a file system without flock a second run is kept out" {
    works_under_strace
    MICS_NODE_RANKS=1 strace -f -qq -o trace -e trace=flock -e inject=flock:error=EOPNOTSUPP \
        mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 -q \
        --steps=100000 --out=run >first 2>&1 3>&- &
    job=$!
    for ((i = 0; i < 600; i++)); do
        if [ -s run/metrics.jsonl ]; then break; fi
        sleep 0.05
    done
    run --separate-stderr env MICS_NODE_RANKS=1 strace -f -qq -o trace-2 -e trace=flock -e inject=flock:error=EOPNOTSUPP \
        mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 -q \
        --steps=1 --out=run
    one_line_and_code 1
    [[ $stderr == *'run: another run is using this folder' ]]
    kill -KILL "$(pgrep -P "$job" mics-train)"
}

@test "checkpoint faults: a limit of the size of files is an error in one line" {
    env --default-signal=XFSZ true 2>/dev/null || skip "env cannot reset a signal here"
    run --separate-stderr bash -c 'ulimit -f 1; exec env --default-signal=XFSZ "$@"' - \
        mics-show --json "$BATS_FILE_TMPDIR/plan.mp" -o plan.json
    one_line_and_code 1
    [[ $stderr == *'File too large' ]]
    [ "$(ls plan.json* 2>/dev/null)" = "" ]
}

@test "checkpoint faults: a damaged checkpoint is neither sampled nor compared" {
    one_rank --steps=1 --out=run
    printf '\1' | dd of=run/latest/shard-00000.safetensors bs=1 seek=90001 conv=notrunc status=none
    run --separate-stderr mics-sample run --ids --prompt='1 2 3' --max-tokens=2
    one_line_and_code 3
    [[ $stderr == *'shard-00000.safetensors: is damaged: its checksum is not the manifest'* ]]
    for paths in "run run" "run/latest run"; do
        # shellcheck disable=SC2086
        run --separate-stderr mics-shard diff $paths
        one_line_and_code 3
        [[ $stderr == *'shard-00000.safetensors: is damaged: its checksum is not the manifest'* ]]
    done
}
