#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of runs through mics-shard and back into mics-train.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    export MICS_NODE_RANKS=2
}

@test "a checkpoint of a run moves to another plan, is trained on there, and comes back the same" {
    requires mpi:4 jq
    for strategy in mics:2 zero3 ddp; do
        mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=4 --seq=32 --strategy=$strategy -o $strategy.mp
    done
    mpi 4 mics-train -q -p mics:2.mp --data="$root/man/*.1" --steps=2 --val-every=0 --sample=0 --out=run
    mics-shard reshard run -p zero3.mp -o z
    mics-shard reshard z -p ddp.mp -o d
    mics-shard reshard d -p mics:2.mp -o back
    mics-shard reshard run -p mics:2.mp -o same
    for file in same/shard-*; do cmp "$file" "back/${file#same/}"; done
    mics-shard diff run z
    mics-shard list --json z | grep -q '"v"'
    mpi 4 mics-train -q -p zero3.mp --data="$root/man/*.1" --steps=3 --val-every=0 --sample=0 --resume=z --out=on
    mics-shard merge on -o hf
    mpi 4 mics-train -q -p zero3.mp --data="$root/man/*.1" --steps=1 --lr=1e-9 --min-lr=0 --weight-decay=0 \
        --val-every=0 --sample=0 --init=hf --out=begun
    mics-shard diff -q begun hf
    mpi 4 mics-train -q -p zero3.mp --data="$root/man/*.1" --steps=1 --lr=1e-9 --min-lr=0 --weight-decay=0 \
        --val-every=0 --sample=0 --init=run --out=begun2
    mics-shard merge begun2 -o hf2
    mics-shard diff -q run hf2
    mics-show --json z/manifest.mp | jq '.plan.memory.arena_bytes += 256' | sealed >old
    mv old z/manifest.mp
    mpi 4 mics-train -q -p zero3.mp --data="$root/man/*.1" --steps=1 --lr=1e-9 --min-lr=0 --weight-decay=0 \
        --val-every=0 --sample=0 --init=z --out=begun3
    mics-shard diff -q begun3 begun2
}
