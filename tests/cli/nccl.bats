#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Communicators of the GPU's plug-in, on emulated GPUs with an emulated NCCL: tests/emulator/nccl.h.

load helpers

comm=$MICS_BUILD/tests/mpi/mpi_comm
export MICS_PLUGIN_PATH=$MICS_BUILD/emulated

setup_file()
{
    requires mpi:4
    if "$comm" world 2>&1 | grep -q 'build is without MPI'; then skip "this build is without MPI"; fi
    [ -f "$MICS_BUILD/emulated/libmics-cuda.so" ] || skip "this build has no emulated plug-in"
}

# A step of gpt2-nano on two nodes of two GPUs.
prepare() # strategy dtype
{
    cd "$BATS_TEST_TMPDIR" || return
    export MICS_NODE_RANKS=2
    cat "$root"/man/*.1 >text
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=4 --seq=32 --strategy="$1" \
        --dtype="$2" -o plan.mp >/dev/null
    job=(mics-train -p plan.mp --data=text --val-every=0 --sample=0 --steps=1 -q)
}

# Rank 1 has this fault, the others have none.
faulty() # fault command...
{
    local fault=$1
    shift
    # shellcheck disable=SC2016 # the ranks' shells expand it
    mpirun -n "${ranks:-3}" sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export MICS_EMULATED_NCCL_FAULT='"$fault"'; exec "$0" "$@"' "$@"
}

@test "nccl: collectives, splits, counts and bits are right on 1 to 4 ranks" {
    for ranks in 1 2 3 4; do
        run -0 mpi "$ranks" "$comm" gpu nccl
        [ "$output" = "all well on $ranks ranks" ]
    done
}

@test "nccl: MICS_COMM=staged uses host memory, with correct results" {
    MICS_COMM=staged run -0 mpi 3 "$comm" gpu staged
    [ "$output" = "all well on 3 ranks" ]
}

@test "nccl: two ranks on one GPU are refused by number" {
    MICS_EMULATED_GPUS=2 run ! mpi 3 "$comm" gpu nccl
    [[ $output == *"ranks 0 and 2 are on the same GPU, but NCCL needs one GPU per rank"* ]]
}

@test "nccl: ranks on one GPU are accepted if each is a machine of its own to NCCL" {
    # shellcheck disable=SC2016 # the ranks' shells expand it
    MICS_EMULATED_GPUS=1 run -0 mpi 2 sh -c 'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec "$0" gpu nccl' "$comm"
    [ "$output" = "all well on 2 ranks" ]
}

@test "nccl: a rank that cannot join fails all ranks at once" {
    run ! timeout 20 "$(command -v bash)" -c "$(declare -f faulty); faulty join $comm gpu-join"
    [[ $output == *"rank 0: NCCL: rank 1 of 3 failed to join"* ]]
    [[ $output == *"rank 1: NCCL: unhandled system error: emulated: cannot join"* ]]
}

@test "nccl: the error of a collective that hangs is detected outside its stream, and the job ends within seconds" {
    began=$(date +%s)
    run -9 timeout 60 "$(command -v bash)" -c "$(declare -f faulty); faulty 3 $comm gpu-fault"
    [[ $output == *"rank 1: among 3 ranks: NCCL: unhandled system error: emulated: the network is down"* ]]
    [ $(($(date +%s) - began)) -lt 30 ]
}

@test "nccl: mics-bench exchanges GPUs' memory, finds nothing wrong, and names device and transport" {
    run -0 mpi 4 mics-bench --device=cuda -b 4K -e 64K -n 2 -w 1 --outliers=0 --partition=2 \
        --op=all_gather,reduce_scatter,all_reduce,all_to_all
    [ "${lines[0]}" = "# device: emulated, by nccl" ]
    MICS_NODE_RANKS=2 run -0 mpi 4 mics-bench --device=cuda -b 4K -e 64K -n 2 -w 1 --outliers=0 --partition=4 \
        --op=all_gather --algo=flat,hierarchical --json
    [ "$(jq -r '[.device, .transport] | join(" ")' <<<"$output")" = "emulated nccl" ]
    [ "$(jq '[.rows[].algo] | unique | length' <<<"$output")" = 2 ]
    [ "$(jq '[.rows[].wrong] | add' <<<"$output")" = 0 ]
    MICS_COMM=staged run -0 mpi 2 mics-bench --device=cuda -b 4K -e 64K -n 2 -w 1 --outliers=0 --op=all_reduce
    [ "${lines[0]}" = "# device: emulated, by staged" ]
}

@test "nccl: an error of NCCL on one rank ends mics-bench within seconds, with one line" {
    began=$(date +%s)
    run ! timeout 60 "$(command -v bash)" -c "$(declare -f faulty); faulty 9 mics-bench --device=cuda -b 4K -e 64K --outliers=0 --op=all_reduce"
    [ "$(grep -c '^mics-bench: ' <<<"$output")" = 1 ]
    [[ $output == *"mics-bench: "*"among 3 ranks: NCCL: unhandled system error: emulated: the network is down"* ]]
    [ $(($(date +%s) - began)) -lt 30 ]
}

@test "nccl: a missing device is an error of mics-bench and mics-probe" {
    MICS_EMULATED_GPUS=0 run ! mpi 2 mics-bench --device=cuda
    [[ $output == *"--device=cuda: no GPU"* ]]
    MICS_EMULATED_GPUS=0 run ! mics-probe --device=cuda
    [[ $output == *"--device=cuda: no GPU"* ]]
    run -2 mics-probe --device=gpu
    [[ $output == *"'gpu': expected auto, host or cuda"* ]]
}

@test "nccl: mics-probe measures emulated GPUs and marks them as emulated" {
    MICS_NODE_RANKS=1 run -0 --separate-stderr mpi 2 mics-probe --device=cuda --seconds=0.3 --json
    [ "$(jq -r '[.device.name, .device.flops_dtype] | join(" ")' <<<"$output")" = "emulated bf16" ]
    jq -e '.device.from_host_bytes_per_s > 0 and .links.net.bandwidth_bytes_per_s > 0' <<<"$output"
    mics-show - <<<"$output" >"$BATS_TEST_TMPDIR/table"
    grep -q '^copies from the host .*[0-9] .*/s' "$BATS_TEST_TMPDIR/table"
}

# The limit that a probe found, and the free memory that it is made of, in MiB.
probed()
{
    MICS_NODE_RANKS=1 mpi 2 mics-probe --device=cuda --seconds=0.3 --json 2>/dev/null |
        jq -r '[.device.memory_bytes, .device.free_bytes | . / 1048576 | floor] | join(" ")'
}

@test "nccl: a probed GPU's limit is its free memory less 512 MiB, the least of all ranks" {
    # NVML's figure, before there is a context: another program has 8 of 16 GiB, and 9 on the second
    # GPU
    run -0 env MICS_NVML_PATH="$MICS_BUILD/tests/fake/nvml.so" MICS_FAKE_NVML=emulated "$(command -v bash)" -c \
        "$(declare -f mpi probed); probed"
    [ "$output" = "$((7 * 1024 - 512)) $((7 * 1024))" ]
    # without NVML, CUDA's figure, which includes this process's own context and buffers
    MICS_NVML_PATH=$BATS_TEST_TMPDIR/none MICS_EMULATED_TAKEN=$((3 << 30)) run -0 probed
    read -r limit free <<<"$output"
    [ "$limit" = $((free - 512)) ]
    [ "$free" -le $((5 * 1024)) ]
    [ "$free" -gt $((5 * 1024 - 64)) ]
    # a GPU that another program fills
    MICS_NODE_RANKS=1 MICS_NVML_PATH=$BATS_TEST_TMPDIR/none MICS_EMULATED_TAKEN=$((8000 << 20)) run -1 --separate-stderr mpirun -n 2 mics-probe --device=cuda --seconds=0.3
    [[ $stderr == *"a GPU has 19"?" MiB of free memory, of which 512 are kept in reserve: too little to measure"* ]]
}

# One step on the host and on emulated GPUs agree within `tolerance`.
agree() # dtype tolerance
{
    prepare mics:4 "$1"
    mpi 4 "${job[@]}" --device=host --out="host-$1" --metrics=host.jsonl
    mpi 4 "${job[@]}" --device=cuda --out="cuda-$1" --metrics=cuda.jsonl
    jq -se --argjson most "$2" '[.[] | select(.loss)] | length == 2 and (.[0].loss - .[1].loss | fabs) < $most
        and (.[0].grad_norm - .[1].grad_norm | fabs) < 10 * $most' host.jsonl cuda.jsonl
}

@test "nccl: a step of training on hierarchical groups of emulated GPUs gives the host's loss, in fp32 and bf16" {
    agree f32 1e-4
    agree bf16 5e-3
}

@test "nccl: resident experts of emulated GPUs, also with a capacity, have the host's losses, over NCCL and staged" {
    prepare zero3 f32
    while read -r strategy dtype most comm options; do
        # shellcheck disable=SC2086 # several options
        mics-plan --topology='node:2 gpu:2' --model=moe-nano --global-batch=4 --seq=16 --strategy="$strategy" --dtype="$dtype" \
            --experts=resident $options -o plan.mp >/dev/null
        rm -f ./*.jsonl
        for device in host cuda; do
            MICS_COMM=${comm#nccl} mpi 4 "${job[@]}" --steps=2 --device=$device --out=$device --overwrite --metrics=$device.jsonl
        done
        jq -se --argjson most "$most" '[.[] | select(.event == "step")] | length == 4 and (.[0].rank_load == .[2].rank_load) and
            all(range(2) as $i | (.[$i].loss - .[$i + 2].loss, (.[$i].grad_norm - .[$i + 2].grad_norm) / 10); fabs < $most) and
            (.[0].dropped_share // 0) == (.[2].dropped_share // 0)' host.jsonl cuda.jsonl
    done <<'END'
zero3 f32 1e-4 nccl
mics:2 bf16 5e-3 staged
mics:2 f32 1e-4 nccl --capacity=1 --micro-batch=1
END
}

# Each communicator of the emulated NCCL takes 1 MiB when it joins, and 1 MiB when it is used.
@test "nccl: the communicators' GPU memory is measured before the first step and reported" {
    prepare mics:4 f32
    run -0 mpi 4 "${job[@]:0:${#job[@]}-1}" --device=cuda --out=run --metrics=run.jsonl
    [[ $output == *"communication by nccl (2.28.9)"* ]]
    [[ $output == *"communicators (measured)"* ]]
    jq -se '.[0] | .transport == "nccl" and .comm_bytes >= 10485760 and .comm_bytes < 10600000' run.jsonl
}

@test "nccl: each line of a plan's memory covers what emulated GPUs report, as tests/gpu/run checks on real ones" {
    check=$MICS_BUILD/tests/gpu/check_memory
    MICS_NVML_PATH=$MICS_BUILD/tests/fake/nvml.so MICS_FAKE_NVML=emulated run -0 "$check"
    [ "$(grep -c '^ok ' <<<"$output")" = 5 ]
    [[ $output == *"ok 1 - workspace of a stream of computation: 32.0 MiB taken, 32.0 planned"* ]]
    [[ $output == *"ok 4 - CUDA context and modules: 0.0 MiB taken, 640.0 planned"* ]]
    MICS_NVML_PATH=$BATS_TEST_TMPDIR/none run -0 mpi 4 "$check"
    [[ $output == *"ok 3 - NCCL's communicators: 6.0 MiB taken, "* ]]
    MICS_NODE_RANKS=2 MICS_COMM=staged run -0 mpi 4 "$check"
    [[ $output == *"ok 3 - NCCL's communicators # SKIP ranks do not talk by NCCL"* ]]
}

@test "nccl: memory is registered when MICS_NCCL_REGISTER=1 asks for it, with the same losses" {
    prepare mics:4 f32
    mpi 4 "${job[@]}" --device=cuda --out=plain --metrics=plain.jsonl
    MICS_NCCL_REGISTER=1 run -0 mpi 4 "${job[@]:0:${#job[@]}-1}" --device=cuda --out=registered --metrics=registered.jsonl
    [[ $output == *"communication by nccl (2.28.9, registered memory)"* ]]
    jq -se '[.[] | select(.loss) | .loss] | length == 2 and .[0] == .[1]' plain.jsonl registered.jsonl
    MICS_NCCL_REGISTER=2 run -2 --separate-stderr mpirun -n 4 "${job[@]}" --device=cuda --out=refused
    [[ $stderr == *"MICS_NCCL_REGISTER: expected 0 or 1"* ]]
}

@test "nccl: a GPU without memory for the arena or the communicators is reported in one line with all three sizes" {
    prepare mics:4 f32
    MICS_EMULATED_MEMORY=42000000 run -1 mpirun -n 4 "${job[@]}" --device=cuda --out=run
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"the plan's arena of "*", with "*" in communicators: "*"no memory for "*" are free"* ]]
    MICS_EMULATED_MEMORY=52000000 run ! mpirun -n 4 "${job[@]}" --device=cuda --out=run
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"the plan's arena of "*" leaves "*" to the communicators: "*" ranks: NCCL: unhandled cuda error: emulated: out of memory"* ]]
}

@test "nccl: a rank that does not join NCCL is detected before the first step" {
    prepare mics:4 f32
    run ! timeout 60 "$(command -v bash)" -c "$(declare -f faulty); ranks=4; faulty absent ${job[*]} --device=cuda --timeout=2 --out=run"
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"mics-train: no progress for 4 s before the first step: still creating communicators and allocating memory"* ]]
}

@test "nccl: an error of NCCL on one rank ends training within seconds, with one line" {
    prepare mics:4 f32
    began=$(date +%s)
    run ! timeout 60 "$(command -v bash)" -c "$(declare -f faulty); ranks=4; faulty 30 ${job[*]} --device=cuda --out=run"
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"mics-train: rank 1 "*" among "*" ranks: NCCL: unhandled system error: emulated: the network is down"* ]]
    [ $(($(date +%s) - began)) -lt 30 ]
}

@test "nccl: an error of NCCL while communicators connect ends the job within seconds, with one line" {
    prepare mics:4 f32
    began=$(date +%s)
    run ! timeout 60 "$(command -v bash)" -c "$(declare -f faulty); ranks=4; faulty 9 ${job[*]} --device=cuda --out=run"
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"mics-train: "*" among "*" ranks: NCCL: unhandled system error: emulated: the network is down"* ]]
    [ $(($(date +%s) - began)) -lt 30 ]
}

@test "nccl: a rank that is killed ends training on GPUs with one line" {
    prepare mics:4 f32
    MICS_FAULT=1:backward:3 run ! timeout 60 mpirun -n 4 "${job[@]}" --device=cuda --out=run
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"mics-train: rank 1 "*" died in step 1: "* ]]
}

@test "nccl: a rank that is killed while a checkpoint is written on GPUs ends the job and keeps the previous checkpoint" {
    prepare mics:2 f32
    mpi 4 "${job[@]}" --device=cuda --out=run
    MICS_FAULT=1:reduce:8 run ! timeout 60 mpirun -n 4 "${job[@]}" --device=cuda --out=run --resume=auto --steps=9 --save-every=1
    [ "$(grep -c '^mics-train: ' <<<"$output")" = 1 ]
    [[ $output == *"mics-train: rank 1 "*" died in step "* ]]
    mics-shard verify run/step-000001
}
