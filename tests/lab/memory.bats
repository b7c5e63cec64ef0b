#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# State in the memory of nodes: a node is lost with its memory, and the job continues without disk.

load helpers
: "${lab:?}" "${root:?}" "${stderr:=}" # by the helpers and bats

setup_file()
{
    export OPENBLAS_NUM_THREADS=1
    cd "$BATS_FILE_TMPDIR" || return
    netns_works && command -v mpirun >/dev/null || return 0
    for strategy in mics:2 zero3; do
        mics-plan --topology='node:3 gpu:2' --model=gpt2-nano --global-batch=12 --seq=32 \
            --strategy=$strategy -o "$strategy.mp"
    done
    mics-lab up -q --name="m$$" --nodes=4 --slots=2 >line
    echo "m$$" >name
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
    hostfile=$PWD/hosts # which a test may change
    cp "$(sed 's/.*--hostfile \([^ ]*\).*/\1/' line)" "$hostfile"
}

train() # plan folder options...
{
    local plan=$1 out=$2
    shift 2
    mics-lab exec --name="$lab" -- mics-run --no-probe --restarts=5 --hostfile="$hostfile" \
        --spares=1 -- mics-train -p "$plan" "--data=$root/man/*.1" --out="$out" --steps=40 \
        --memory-every=5 --timeout=10 --val-every=0 --sample=0 --log-every=1 "$@" </dev/null
}

losses() # folder
{
    jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' "$1/metrics.jsonl" |
        awk '{ last[$1] = $0 } END { for (step in last) print last[step] }' | sort -n
}

states() # node...
{
    local node
    for node in "$@"; do
        mics-lab exec --name="$lab" "$node" -- sh -c 'ls -d /dev/shm/mics-*' 2>/dev/null || true
    done
}

# Nothing runs on a node any more, and its memory is empty.
lose_node() # node
{
    mics-lab cut -q --name="$lab" "$1"
    kill_ranks "$1"
    mics-lab exec --name="$lab" "$1" -- sh -c 'rm -rf /dev/shm/*'
}

# Train, and lose nodes when step 12 is done. code= the exit status.
train_and_lose() # plan nodes...
{
    local plan=$1 node
    shift
    rm -f out err # of another run, whose step 12 is no sign that this one has come so far
    train "$plan" run >out 2>err 3>&- &
    job=$!
    eventually 120 grep -qE '^ +12 ' out
    for node in "$@"; do lose_node "$node"; done
    code=0
    wait "$job" || code=$?
    for node in "$@"; do mics-lab heal -q --name="$lab" "$node"; done
    cat err
    [ "$code" = 0 ]
}

@test "a lost node costs steps, not a checkpoint: the losses are those of an uninterrupted run" {
    for strategy in mics:2 zero3; do
        rm -rf run whole
        train "$strategy.mp" whole >/dev/null
        train_and_lose "$strategy.mp" node2
        grep -qE 'restart [0-9] of 5( in [0-9]+ s)? from step [0-9]+ in memory' err
        grep -qE '^resumed   the memory of the nodes, after step ([89]|[12][0-9])$' out
        [ "$(losses run)" = "$(losses whole)" ]
        [ -z "$(states node1 node3 node4)" ]
        [ ! -e run/.mics-memory ]
    done
}

@test "a spare with more slots and too little shared memory continues, and keeps no state" {
    rm -rf run whole
    train zero3.mp whole >/dev/null
    mics-lab exec --name="$lab" node4 -- mount -o remount,size=2M /dev/shm
    sed -i 's/^\(node4 slots\)=2/\1=4/' "$hostfile"
    train_and_lose zero3.mp node2
    mics-lab exec --name="$lab" node4 -- mount -o remount,size=50% /dev/shm
    grep -qx "mics-run: node4: 2 of its 4 slots are used, as of 'node1'" err
    grep -qE '^resumed   the memory of the nodes, after step ([89]|[12][0-9])$' out
    grep -qE '^mics-train: no state is kept in memory: rank [45]: .*: the shared memory is too small' err
    [ "$(losses run)" = "$(losses whole)" ]
    [ -z "$(states node1 node2 node3 node4)" ]
}

@test "two lost nodes: the job continues from disk, and a line says why" {
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=12 --seq=32 \
        --strategy=zero3 -o two.mp
    mics-lab exec --name="$lab" -- mics-run --no-probe --restarts=5 --hostfile="$hostfile" \
        --spares=2 -- mics-train -p two.mp "--data=$root/man/*.1" --out=run --steps=40 \
        --memory-every=5 --timeout=10 --val-every=0 --sample=0 --log-every=1 --save-every=7 \
        >out 2>err 3>&- </dev/null &
    job=$!
    eventually 120 grep -qE '^ +13 ' out
    lose_node node1
    lose_node node2
    code=0
    wait "$job" || code=$?
    mics-lab heal -q --name="$lab" node1
    mics-lab heal -q --name="$lab" node2
    cat err
    [ "$code" = 0 ]
    grep -qE '^mics-train: not continued from memory \(.*\), but from run/latest$' err
    grep -qE '^resumed   run/latest, after step' out
}

@test "too little shared memory is found at the start, and training goes on without" {
    mics-lab exec --name="$lab" node3 -- mount -o remount,size=2M /dev/shm
    train zero3.mp run --steps=6 >out 2>err
    mics-lab exec --name="$lab" node3 -- mount -o remount,size=50% /dev/shm
    cat err
    grep -qE '^mics-train: no state is kept in memory: rank [45]: .*: the shared memory is too small: no room for' err
    [ "$(readlink run/latest)" = step-000006 ]
    [ -z "$(states node1 node2 node3 node4)" ]
}

@test "--clean removes what a killed job has left on the hosts" {
    train zero3.mp run >out 2>err 3>&- &
    job=$!
    eventually 120 grep -qE '^ +12 ' out
    kill -KILL "$(pgrep -f "^bash .*mics-run .*--hostfile=$hostfile" | head -n 1)"
    mics-lab exec --name="$lab" -- pkill -KILL -x mpirun || true
    wait "$job" || true
    for node in node1 node2 node3; do
        kill_ranks "$node"
    done
    [ "$(states node1 node2 node3 | wc -l)" = 3 ]
    eventually 10 mics-lab exec --name="$lab" -- mics-run --clean --hostfile="$hostfile"
    [ -z "$(states node1 node2 node3)" ]
}
