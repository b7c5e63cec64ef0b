#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# State in the memory of nodes, on one machine: declared nodes, whose folders are removed to lose
# them.

load helpers
: "${root:?}" "${stderr:=}" # by the helpers and bats

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    command -v mpirun >/dev/null || return 0
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=8 --seq=32 \
        --strategy=zero3 --memory-every=5 -o plan.mp
    export MICS_NODE_RANKS=2
    train whole 4 --memory-every=0 >/dev/null
}

setup()
{
    requires mpi
    cd "$BATS_FILE_TMPDIR" || return
    rm -rf run out err
    export MICS_NODE_RANKS=2
}

teardown()
{
    if [ -n "${state:-}" ]; then rm -rf "$state".*; fi
}

train() # folder ranks options...
{
    local out=$1 ranks=$2
    shift 2
    mpirun --oversubscribe -q -n "$ranks" mics-train -p plan.mp "--data=$root/man/*.1" \
        --out="$out" --steps=20 --val-every=0 --sample=0 --log-every=1 --timeout=20 "$@" </dev/null
}

losses() # folder
{
    jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' "$1/metrics.jsonl" |
        awk '{ last[$1] = $0 } END { for (step in last) print last[step] }' | sort -n
}

# Train until a rank dies in step 13 or so; state= the folders of the nodes, without their number;
# kept= the steps of the states in them that are complete, newest= the last of these.
die()
{
    run ! env MICS_FAULT=2:forward:78 mpirun --oversubscribe -q -n 4 mics-train -p plan.mp \
        "--data=$root/man/*.1" --out=run --steps=20 --val-every=0 --sample=0 --memory-every=10 \
        --timeout=20 "$@"
    state=/dev/shm/mics-$(id -u)-$(sed -n 's/^id //p' run/.mics-memory/record)
    [ -d "$state.0" ] && [ -d "$state.1" ]
    [ "$(stat -c %a "$state.0")" = 700 ]
    [ "$(find "$state".? -type f ! -perm 600)" = '' ]
    mapfile -t kept < <(find "$state.0" -name 'manifest-*' | sed 's/.*-0*//; s/\.mp//' | sort -n)
    newest=${kept[-1]}
}

@test "memory: a state that is kept changes no result, and none is left" {
    train run 4 >/dev/null
    [ "$(losses run)" = "$(losses whole)" ]
    [ "$(jq 'select(.event == "kept").step' run/metrics.jsonl | head -n 1)" = 3 ]
    [ "$(jq 'select(.event == "kept").step' run/metrics.jsonl | wc -l)" -ge 3 ]
    [ ! -e run/.mics-memory ]
    mics-shard diff run whole
}

@test "memory: a lost node's part comes from its copy, bit for bit, and mics-show tells" {
    die
    [ ! -e run/latest ]
    rm -rf "$state.1"
    train run 4 --resume=auto >out
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(losses run)" = "$(losses whole)" ]
    mics-shard diff run whole
    [ ! -e "$state.0" ]
    mics-show run | grep -qE "^[-0-9]+ [0-9:]+ +$newest  memory  killed or failed after step 1[0-9]$"
}

@test "memory: the same with optimizer states in host memory" {
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=8 --seq=32 \
        --strategy=zero3 --memory-every=5 --offload=optimizer -o offload.mp
    die -p offload.mp
    rm -rf "$state.1"
    train run 4 -p offload.mp --resume=auto >out
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(losses run)" = "$(losses whole)" ]
    mics-shard diff run whole
}

@test "memory: where a node cannot keep state, that which the run continued from stays" {
    die
    rm -f "$state.1/lock.0"
    ln -s nowhere "$state.1/lock.0"
    for every in 10 0; do
        run ! env MICS_FAULT=2:forward:8 mpirun --oversubscribe -q -n 4 mics-train -p plan.mp \
            "--data=$root/man/*.1" --out=run --steps=20 --val-every=0 --sample=0 \
            --memory-every=$every --timeout=20 --resume=auto
        if [ $every = 10 ]; then
            [[ $output == *"no state is kept in memory: rank 2: $state.1/lock.0: "*"; that of step $newest stays"* ]]
        fi
        [ -d "$state.0" ] && [ ! -e run/latest ]
    done
    rm "$state.1/lock.0"
    train run 4 --resume=auto >out
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(losses run)" = "$(losses whole)" ]
    [ ! -e "$state.0" ] && [ ! -e run/.mics-memory ]
}

# Write the names of the files of a folder that are opened, one a line, until its end: counter= the
# process.
count_opened() # folder
{
    python3 - "$1" >opened 3>&- <<'END' &
import ctypes, os, struct, sys
IN_OPEN, IN_ISDIR = 0x20, 0x40000000
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
assert libc.inotify_add_watch(fd, sys.argv[1].encode(), IN_OPEN) >= 0
print("ready", flush=True)
while True:
    events, at = os.read(fd, 65536), 0
    while at < len(events):
        _, mask, _, length = struct.unpack_from("iIII", events, at)
        if not mask & IN_ISDIR:
            print(events[at + 16:at + 16 + length].rstrip(b"\0").decode(), flush=True)
        at += 16 + length
END
    counter=$!
    until grep -q ready opened; do sleep 0.1; done
}

@test "memory: a start that continues from memory opens no file of a checkpoint" {
    requires python3
    die --save-every=7
    [ "$(readlink run/latest)" = step-000007 ]
    for file in run/step-000007/*; do echo garbage >"$file"; done
    count_opened run/step-000007
    train run 4 --resume=auto >out
    cat run/step-000007/manifest.mp # which is counted
    timeout 20 sh -c 'until grep -q manifest opened; do sleep 0.1; done'
    kill "$counter"
    cat opened
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(losses run)" = "$(losses whole)" ]
    [ "$(cat opened)" = $'ready\nmanifest.mp' ]
}

# Flip a bit in each file of the state of this step.
flip() # step file...
{
    python3 - "$@" <<'END'
import struct, sys
for path in sys.argv[2:]:
    with open(path, "r+b") as file:
        if struct.unpack_from("Q", file.read(40), 32)[0] != int(sys.argv[1]):
            continue
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 4]))
END
}

@test "memory: a flipped bit is told, and the other copy taken" {
    requires python3
    die
    flip "$newest" "$state".0/shard-00002-of-00004.?
    train run 4 --resume=auto >out 2>err
    grep -qx "mics-train: state in memory: 1 file is damaged; continuing from step $newest in memory" err
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(losses run)" = "$(losses whole)" ]
}

# Train until a rank dies and two states are complete: none may be under way at that moment.
die_with_two() # options...
{
    local i
    for ((i = 0; i < 5; i++)); do
        rm -rf run
        die --memory-every=6 "$@"
        if [ ${#kept[@]} = 2 ]; then return; fi
        rm -rf "$state".?
    done
    false
}

@test "memory: flipped bits of both copies cost a generation, or the state in memory" {
    requires python3
    die_with_two
    flip "$newest" "$state".?/shard-00002-of-00004.?
    train run 4 --resume=auto >out 2>err
    grep -qx "mics-train: state in memory: shard 2 of step $newest is damaged in memory; 2 files are damaged; continuing from step ${kept[0]} in memory" err
    grep -qx "resumed   the memory of the nodes, after step ${kept[0]}" out
    [ "$(losses run)" = "$(losses whole)" ]
    die_with_two --save-every=4
    for step in "${kept[@]}"; do flip "$step" "$state".?/shard-00002-of-00004.?; done
    train run 4 --resume=auto >out 2>err
    cat err
        grep -qx "mics-train: not continued from memory (shard 2 of step $newest is damaged in memory; 4 files are damaged), but from run/latest" err
    grep -qE '^resumed   run/latest, after step (8|12)$' out
    [ "$(losses run)" = "$(losses whole)" ]
}

@test "memory: other ranks and groups continue" {
    die
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --global-batch=8 --seq=32 -o two.mp
    rm -rf "$state.1"
    train run 2 -p two.mp --resume=auto >out
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(readlink run/latest)" = step-000020 ]
}

@test "memory: what is left on no node is told, and the checkpoint is taken" {
    die --save-every=4
    rm -rf "$state".?
    train run 4 --resume=auto >out 2>err
    grep -qx 'mics-train: not continued from memory (the nodes of this job have no state in memory), but from run/latest' err
    grep -qE '^resumed   run/latest, after step (8|12)$' out
    [ "$(losses run)" = "$(losses whole)" ]
}

# A state that is kept changes what follows where units or replicas have gradients or steps of their
# own; so the resumed run is compared with the run itself before it died, up to the next such state
# of either.
@test "memory: second hops in blocks, with an interval, and outer steps go on as the run itself did" {
    requires mpi:4
    local options next try
    for options in --sync-dtype=int8 '--sync-interval=3 --sync-warmup=2 --sync-dtype=int8' \
        '--outer-steps=3 --sync-warmup=2' '--outer-steps=4 --sync-warmup=2 --outer-overlap --sync-dtype=int4'; do
        # shellcheck disable=SC2086 # several words
        mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=8 --micro-batch=2 --seq=32 \
            --strategy=mics:2 --memory-every=5 $options -o hops.mp
        for ((try = 0; try < 5; try++)); do
            rm -rf run
            die -p hops.mp --memory-every=5
            jq -r 'select(.event == "step") | "\(.step) \(.loss) \(.grad_norm)"' run/metrics.jsonl >died
            if [ "$(tail -n 1 died | cut -d' ' -f1)" -gt "$newest" ]; then break; fi
            rm -rf "$state".?
        done
        rm -rf "$state.1"
        train run 4 -p hops.mp --resume=auto >out
        grep -qx "resumed   the memory of the nodes, after step $newest" out
        losses run >all
        [ "$(tail -n 1 all | cut -d' ' -f1)" = 20 ]
        next=$(jq -s --arg after "$newest" \
            'map(select(.event == "kept" and .step > ($after | tonumber)).step) | min // 20' run/metrics.jsonl)
        awk -v after="$newest" -v upto="$next" '$1 > after && $1 <= upto' died >lost
        [ -s lost ]
        [ "$(grep -cxFf lost all)" = "$(wc -l <lost)" ]
        mics-shard verify run/latest
        rm -rf "$state".?
    done
}

@test "memory: the tokenizer travels with the state" {
    mics-data train -q --vocab=300 -o tok "$root/man/mics.7"
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --vocab=300 --global-batch=8 --seq=32 \
        --memory-every=5 -o vocab.mp
    die --tokenizer=tok -p vocab.mp
    train run 4 --resume=auto -p vocab.mp >out
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ -s run/latest/tokenizer.json ]
}

@test "memory: a damaged record, a newer checkpoint and a copied folder do not mislead" {
    die
    cp -r run copy
    train copy 4 --resume=auto >out 2>err
    grep -qx 'mics-train: copy: not continued from memory, where the state is of another folder' err
    run ! grep -q '^resumed' out
    echo nonsense >run/.mics-memory/record
    train run 4 --resume=auto >out 2>err
    run ! grep -q '^resumed' out
    grep -q 'is not a record of state in memory' err
    rm -rf copy
}

@test "memory: a new run in the folder removes the state of the one before" {
    die
    train run 4 --overwrite >out
    run ! grep -q '^resumed' out
    [ ! -e "$state.0" ] && [ ! -e "$state.1" ]
    [ "$(losses run)" = "$(losses whole)" ]
}

@test "memory: a new run by mistake says what it removes" {
    die
    train run 4 >out 2>err
    grep -qE '^mics-train: run: a new run: removed the state of step [0-9]+ in memory, which --resume=auto continues$' err
    [ "$(losses run)" = "$(losses whole)" ]
}

@test "memory: another user cannot read a state, and one of another user is not taken" {
    requires root setpriv
    die
    run -0 find "$state.0" -name 'shard*'
    file=${lines[0]}
    as_other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    run -0 "${as_other[@]}" stat "$state.0"
    run ! "${as_other[@]}" head -c 1 "$file"
    run ! "${as_other[@]}" ls "$state.0"
    chown -R 65534 "$state.0" "$state.1"
    sum=$(cksum "$file")
    train run 4 --resume=auto >out 2>err
    cat err
    run ! grep '^resumed' out
    grep -q '^mics-train: not continued from memory (.*), but from the beginning$' err
    grep -q 'no state is kept in memory: .*: is not a folder of this user alone' err
    [ "$(cksum "$file")" = "$sum" ]
    [ "$(losses run)" = "$(losses whole)" ]
}

@test "memory: the files of another process are not touched, and a line says so" {
    die
    flock -x "$state.0/lock.1" sleep 30 3>&- &
    train run 4 --resume=auto >out 2>err
    kill $!
    grep -q 'no state is kept in memory: rank 1: .*/lock.1: a process of another start uses it' err
    grep -qx "resumed   the memory of the nodes, after step $newest" out
    [ "$(losses run)" = "$(losses whole)" ]
}

@test "memory: the plan says what it needs, and how many nodes may be lost" {
    run -0 --separate-stderr mics-show plan.mp
    grep -qE '^state in memory, at most 5 steps old +any 1 node may be lost at once$' <<<"$output"
    [ "$(mics-show --json plan.mp | jq -c '[.kept.every, .kept.copies, .kept.nodes_to_lose]')" = '[5,2,1]' ]
    sent=$(mics-show --json plan.mp | jq .kept.net_bytes)
    train run 4 >/dev/null
    # All nodes send as much; each shard has a header of 64 bytes.
    [ "$(jq -s '[.[] | select(.event == "kept").sent_bytes][0]' run/metrics.jsonl)" = $((2 * sent + 4 * 64)) ]
    run -2 --separate-stderr mics-plan --model=gpt2-nano --topology='node:2 gpu:2' --memory-copies=3
    [[ $stderr == 'mics-plan: --memory-copies goes with --memory-every'* ]]
    run -2 --separate-stderr mics-train --data=x --memory-copies=0
    [[ $stderr == 'mics-train: --memory-copies: '* ]]
}

# The folder of shared memory is a small one. The other process takes what is left of it.
@test "memory: shared memory that others fill up later is no loss" {
    requires tmpfs unshare
    cat >fill <<'END'
mount -t tmpfs -o size=48M none /dev/shm || exit
"$@" --steps=150 >out 2>err &
until grep -q '"kept"' run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
cat /dev/zero >/dev/shm/other 2>/dev/null
tail -n 1 run/metrics.jsonl >when_full
wait $!
END
    unshare --mount bash fill mpirun --oversubscribe -q -n 4 --mca btl self,tcp mics-train \
        -p plan.mp "--data=$root/man/*.1" --out=run --val-every=0 --sample=0 </dev/null
    cat err
    run ! grep mics-train: err
    [ "$(jq -s '[.[] | select(.event == "keep_failed")] | length' run/metrics.jsonl)" = 0 ]
    [ "$(jq .step when_full)" -lt 100 ]
    [ "$(jq -s '[.[] | select(.event == "kept").step] | max' run/metrics.jsonl)" -gt \
        "$(jq .step when_full)" ]
}
