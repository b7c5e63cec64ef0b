#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Faults during training in the lab: the job ends in time, one line names the failed rank and the
# operation, no process is left on any node, and the last checkpoint is intact. Without a fault, the
# lab trains as one host does.

load helpers
: "${lab:?}" "${root:?}" # by the helpers

setup_file()
{
    export OPENBLAS_NUM_THREADS=1
    cd "$BATS_FILE_TMPDIR" || return
    netns_works && command -v mpirun >/dev/null || return 0
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=8 --seq=32 --micro-batch=1 --strategy=mics:2 \
        -o plan.mp
    mics-lab up -q --name="f$$" --nodes=2 --slots=2 >line
    echo "f$$" >name
}

teardown_file()
{
    if [ -s "$BATS_FILE_TMPDIR/name" ]; then mics-lab down -q "$(cat "$BATS_FILE_TMPDIR/name")"; fi
}

setup()
{
    requires netns mpirun
    cd "$BATS_FILE_TMPDIR" || return
    lab=$(cat name)
    rm -rf run out err
}

# Train in the background with a time-out of 5 s or $timeout_s; returns when the first checkpoint is
# there.
start_training()
{
    # shellcheck disable=SC2046 # words
    timeout -s KILL 120 $(cat line) mics-train -p plan.mp --data="$root/man/*.1" --out=run --steps=100000 --timeout="${timeout_s:-5}" \
        --save-every="${save_every:-20}" --keep=2 --val-every=0 --sample=0 >out 2>err 3>&- &
    job=$!
    eventually 60 grep -q 'saved run/step-000020' out
    began=$SECONDS
}

on_node() # node command...
{
    local node=$1
    shift
    mics-lab exec --name="$lab" "$node" -- "$@"
}

no_process_on() # node
{
    [ "$(on_node "$1" ps -eo comm= | grep -cE 'mics-train|orted')" = 0 ]
}

# The job failed within some seconds and printed one line that matches; no process is left, and the
# checkpoint is intact.
ended_well() # seconds pattern
{
    local code=0
    wait "$job" || code=$?
    echo "code $code after $((SECONDS - began)) s"
    cat err
    [ "$code" != 0 ] && [ "$code" != 75 ]
    [ $((SECONDS - began)) -le "$1" ]
    [ "$(grep -c '^mics-train: ' err)" = 1 ]
    grep -E "^mics-train: $2" err
    for node in 1 2; do eventually 60 no_process_on "$node"; done
    mics-show run/latest >/dev/null
}

# Kill rank 3 when it reaches an operation. Small numbers of operations: the first steps. The other
# node would time out, too, if a busy machine took longer to end the job.
killed_in() # operation
{
    rm -rf run out err
    MICS_FAULT=3:$1:400 timeout_s=20 start_training
    ended_well 60 "rank 3 \(node2\) died in step [0-9]+: "
}

@test "a rank killed in a gather, a backward pass, the second hop or an update is named, and the job ends" {
    for operation in gather backward sync update; do killed_in "$operation"; done
}

@test "a rank killed from outside is named within 10 seconds" {
    start_training
    # shellcheck disable=SC2016
    on_node node2 sh -c 'kill -KILL $(pgrep -x mics-train | head -n 1)'
    ended_well 10 "rank [23] \(node2\) died in step [0-9]+: "
}

unfinished() { compgen -G 'run/step-*.tmp.*'; }

@test "a rank killed while a checkpoint is written keeps the previous one" {
    save_every=1 start_training
    eventually 20 unfinished
    on_node node2 pkill -KILL -x mics-train -n
    ended_well 10 "rank [23] \(node2\) died in step [0-9]+: "
}

@test "a node whose ranks are stopped is named" {
    start_training
    on_node node2 pkill -STOP -x mics-train
    ended_well 25 "no progress for 5 s: node node2 \(ranks 2 to 3\) does not answer; last seen in step [0-9]+: "
}

@test "the first node is named by another rank" {
    start_training
    on_node node1 pkill -STOP -x mics-train
    ended_well 30 "no progress for 5 s: node node1 \(ranks 0 to 1\) does not answer; last seen in step [0-9]+: "
}

@test "one rank that is stopped is named" {
    start_training
    # shellcheck disable=SC2016
    on_node node2 sh -c 'kill -STOP $(pgrep -x mics-train | tail -n 1)'
    ended_well 25 "no progress for 5 s: rank [23] \(node2\) does not answer; last seen in step [0-9]+: "
}

@test "training continues from the checkpoint before a fault" {
    start_training
    on_node node2 pkill -KILL -x mics-train
    wait "$job" || true
    step=$(basename "$(readlink run/latest)")
    run -0 timeout 60 sh -c "$(cat line) mics-train --resume=run --out=run --data='$root/man/*.1' \
        --steps=$((10#${step#step-} + 3)) --val-every=0 --sample=0"
    [[ $output == *"saved run/step-"* ]]
}

@test "a malformed fault is reported in one line" {
    run env MICS_FAULT=3:sleep:1 sh -c "$(cat line) mics-train -p plan.mp --data='$root/man/*.1' --steps=1"
    [ "$status" = 2 ]
    [[ $output == *"mics-train: MICS_FAULT: expected RANK:OPERATION:N, RANK:OPERATION:N:hang or RANK:OPERATION:N:SECONDS, found \"3:sleep:1\""* ]]
}

@test "the lab trains as one host does, bit for bit" {
    train="mics-train -p plan.mp --data='$root/man/*.1' --steps=6 --val-every=3 --sample=0"
    timeout 60 sh -c "$(cat line) $train --out=in-lab --metrics=in-lab.jsonl"
    MICS_NODE_RANKS=2 timeout 60 sh -c "mpirun -n 4 $train --out=on-host --metrics=on-host.jsonl"
    for file in in-lab on-host; do
        grep -E '"event": ?"(step|val)"' "$file.jsonl" | grep -oE '"(step|loss|grad_norm|lr)": ?[^,}]*' >"$file.numbers"
    done
    [ "$(wc -l <in-lab.numbers)" -ge 20 ]
    diff in-lab.numbers on-host.numbers
    tensors=$(cd in-lab/step-000006 && find . -name '*.safetensors')
    [ -n "$tensors" ]
    for file in $tensors; do cmp "in-lab/step-000006/$file" "on-host/step-000006/$file"; done
}

@test "a disconnected node is named, the job ends on both sides, and a reconnected node works again" {
    start_training
    mics-lab cut -q --name="$lab" node2
    ended_well 60 "no progress for 5 s: node node2 \(ranks 2 to 3\) does not answer; last seen in step [0-9]+: "
    mics-lab heal -q --name="$lab" node2
    timeout 60 sh -c "$(cat line) mics-train -q -p plan.mp --out=healed --data='$root/man/*.1' --steps=5 --timeout=10 \
        --val-every=0 --sample=0"
    mics-show healed/latest >/dev/null
}
