#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The GPU plug-in: how it is built, found and refused; and training on the emulated plug-in, which
# is compiled from the same sources.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    # What a build without an emulator lacks is a failure, not a reason to skip.
    [ -f "$MICS_BUILD/emulated/libmics-cuda.so" ]
    export MICS_PLUGIN_PATH=$MICS_BUILD/emulated MICS_CUDA_MEASURE=0
}

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cp "$BATS_TEST_DIRNAME"/../../LICENSE text # its losses do not change with the documentation
    mics-plan --topology='node:1 gpu:1 dtype:f32' --model=gpt2-nano --global-batch=4 --seq=16 >one.mp
    mics-plan --topology='node:2 gpu:2 dtype:f32' --model=gpt2-nano --global-batch=4 --seq=16 --strategy=mics:2 >mics.mp
    mics-plan --topology='node:1 gpu:2 dtype:f32' --model=gpt2-nano --global-batch=4 --seq=16 --strategy=zero3 >zero3.mp
}

train() # plan options...
{
    local plan=$1
    shift
    mics-train -p "$BATS_FILE_TMPDIR/$plan" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --steps=3 \
        --overwrite "$@"
}

# "step loss" of each step, from the metrics m.jsonl, which is then removed.
losses()
{
    jq -r 'select(.event == "step") | "\(.step) \(.loss)"' m.jsonl
    rm m.jsonl
}

# Equal line by line, but for a relative `limit`.
within_limit() # a b limit
{
    paste "$1" "$2" | awk -v limit="$3" '{ d = ($2 - $4) / $4; if ($1 != $3 || d > limit || -d > limit) { print; bad = 1 } }
        END { exit bad || NR == 0 }'
}

@test "no program needs CUDA or NCCL" {
    for program in "$MICS_BUILD"/mics-*; do
        run ldd "$program"
        [[ $output != *libcu* && $output != *nccl* && $output != *nvidia* ]]
    done
}

@test "make reports whether the GPU plug-in is built or left out" {
    cd "$root"
    run make BUILD="$BATS_TEST_TMPDIR/build" CUDA=0 -n all
    [[ $output == *"the GPU's plug-in (as asked): no device cuda"* ]]
    run make BUILD="$BATS_TEST_TMPDIR/build" NVCC="$BATS_TEST_TMPDIR/none/nvcc" -n all
    [[ $output == *"the GPU's plug-in (no nvcc): no device cuda"* ]]
    run make BUILD="$BATS_TEST_TMPDIR/build" CUDA=1 NVCC="$BATS_TEST_TMPDIR/none/nvcc" -n all
    [ "$status" = 2 ]
    [[ $output == *"CUDA=1, but there is no nvcc; CUDA_HOME= or NVCC= say where"* ]]
}

@test "CUDA libraries are found in pip packages, and a missing NCCL is left out" {
    requires python3
    mkdir -p cuda/{bin,include,lib64} site/nvidia/{cublas,nccl}/{include,lib}
    touch cuda/include/cuda_runtime.h cuda/lib64/libcudart_static.a site/nvidia/cublas/{include/cublasLt.h,lib/libcublasLt.so.12}
    printf '#!/bin/sh\n' >cuda/bin/nvcc
    chmod +x cuda/bin/nvcc
    here=$PWD
    cd "$root"
    PYTHONPATH=$here/site run make BUILD="$BATS_TEST_TMPDIR/build" CUDA_HOME="$here/cuda" CUDA_SYSTEM= CUDA_ARCH='80 90a' -n all plugin
    [ "$status" = 0 ]
    [[ $output == *"$here/site/nvidia/cublas/lib/libcublasLt.so.12"*"-Wl,-rpath,$here/site/nvidia/cublas/lib"* ]]
    [[ $output == *"arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a "* ]]
    [[ $output != *code=compute_* ]]
    [[ $output == *"NCCL (no nccl.h with its library): GPUs talk over MPI"* ]]
    touch "$here"/site/nvidia/nccl/{include/nccl.h,lib/libnccl.so.2}
    PYTHONPATH=$here/site run make BUILD="$BATS_TEST_TMPDIR/build" CUDA_HOME="$here/cuda" CUDA_SYSTEM= -n all plugin
    [[ $output == *"$here/site/nvidia/nccl/lib/libnccl.so.2"* && $output != *"GPUs talk over MPI"* ]]
    [[ $output == *"arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90"* ]]
}

@test "with nvcc, the plug-in for real GPUs is built and exports one symbol" {
    requires nvcc nm
    [ -f "$MICS_BUILD/libmics-cuda.so" ] || skip "this build is without it"
    [ "$(nm -D --defined-only "$MICS_BUILD/libmics-cuda.so" | awk '{ print $3 }')" = mics_plugin_entry ]
}

@test "without a GPU, --device=cuda reports what is missing, and auto uses the host and logs that at -v" {
    unset MICS_PLUGIN_PATH
    [ ! -e /dev/nvidiactl ] || skip "there is a GPU"
    run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"--device=cuda: no "* ]]
    run --separate-stderr train one.mp --device=auto -v
    [ "$status" = 0 ]
    [[ $stderr == *"mics-train: computing on the host: no "* ]]
    [[ $output != *device* ]]
}

@test "the plug-in is found beside the program and in the installation folder" {
    unset MICS_PLUGIN_PATH
    mkdir -p beside prefix/bin prefix/lib/mics
    cp "$MICS_BUILD/mics-train" beside
    cp "$MICS_BUILD/mics-train" prefix/bin
    cp "$MICS_BUILD/emulated/libmics-cuda.so" beside
    cp "$MICS_BUILD/emulated/libmics-cuda.so" prefix/lib/mics
    for program in beside/mics-train prefix/bin/mics-train; do
        run --separate-stderr "$program" -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 \
            --steps=1 --overwrite --device=cuda
        [ "$status" = 0 ]
        [[ $output == *"device    emulated: emulated (GPU 0)"* ]]
    done
}

@test "every reason for which no GPU is usable is reported in one line" {
    MICS_EMULATED_GPUS=0 run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"--device=cuda: no GPU: the driver sees none" ]]
    MICS_EMULATED_GPUS=0 CUDA_VISIBLE_DEVICES='' run --separate-stderr train one.mp --device=cuda
    [[ $stderr == *"the driver sees none; CUDA_VISIBLE_DEVICES=" ]]
    MICS_EMULATED_DRIVER=0 run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"no GPU driver is installed (libcuda.so.1 is not there)" ]]
    MICS_EMULATED_DRIVER=12080 run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"the GPU driver is for CUDA 12.8, this build needs 13.0: install a newer driver" ]]
    MICS_EMULATED_ARCH=70 run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"GPU 0 (emulated) is sm_70: this build has code for sm_75, sm_80, sm_90 and what comes later; build with CUDA_ARCH=70" ]]
    MICS_PLUGIN_PATH=$BATS_TEST_TMPDIR/none:$BATS_TEST_TMPDIR run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"no plug-in libmics-cuda.so in MICS_PLUGIN_PATH=$BATS_TEST_TMPDIR/none:$BATS_TEST_TMPDIR" ]]
    MICS_PLUGIN_PATH=$MICS_BUILD/tests/plugins/wrong_size.so run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"wrong_size.so: its table has 8 bytes"* ]]
}

@test "a plan too large for the GPU is refused with the requested and the free memory" {
    MICS_EMULATED_MEMORY=$((45 << 20)) run --separate-stderr train one.mp --device=cuda
    one_line_and_code 1
    [[ $stderr =~ "the plan's arena of "[0-9.]+" MiB: emulated (GPU 0): no memory for "[0-9]+" MiB: "[0-9]+" of 45 MiB are free" ]]
}

@test "ranks that would share a GPU are refused in one line" {
    requires mpi:2
    MICS_EMULATED_GPUS=1 run --separate-stderr mpi 2 mics-train -p "$BATS_FILE_TMPDIR/zero3.mp" --data="$BATS_FILE_TMPDIR/text" --device=cuda
    [ "$status" = 1 ]
    [ "$(grep -c ^mics-train <<<"$stderr")" = 1 ]
    [[ $stderr == *": 2 ranks, but GPUs for 1: ranks 0 and 1 would share emulated (GPU 0)"* ]]
}

@test "training on the emulated GPU gives the losses of the host and reports its device" {
    train one.mp --device=host -q --metrics=m.jsonl
    losses >host
    run train one.mp --device=cuda --metrics=m.jsonl
    [ "$status" = 0 ]
    [[ $output == *"device    emulated: emulated (GPU 0)"* ]]
    [ "$(jq -r 'select(.event == "run") | .device' m.jsonl)" = "emulated (GPU 0)" ]
    losses >gpu
    within_limit gpu host 1e-5
    train one.mp --device=auto -q --metrics=m.jsonl # the emulated GPU is usable
    losses | cmp - gpu
}

@test "bf16 on the emulated GPU gives the losses of bf16 on the host" {
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --seq=16 --dtype=bf16 >"$BATS_FILE_TMPDIR/bf16.mp"
    train bf16.mp --device=host -q --metrics=m.jsonl
    losses >host
    train bf16.mp --device=cuda -q --metrics=m.jsonl
    losses >gpu
    within_limit gpu host 1e-2
}

@test "fp16 on the emulated GPU gives the losses and the loss scale of fp16 on the host, through overflows and a resume" {
    requires jq mpi:4
    local scale=(--initial-loss-scale=268435456 --min-loss-scale=0.5 --steps=24)
    scales() # of each step and overflow, from m.jsonl
    {
        jq -c 'select(.event == "step" or .event == "overflow") | [.event, .step, .loss_scale, .next_loss_scale]' m.jsonl
    }
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --seq=16 --dtype=fp16 >"$BATS_FILE_TMPDIR/fp16.mp"
    mics-plan --topology='node:2 gpu:2' --model=gpt2-nano --global-batch=4 --seq=16 --dtype=fp16 --strategy=mics:2 >fp16-4.mp
    train fp16.mp --device=host -q --metrics=m.jsonl "${scale[@]}"
    scales >host-scales
    losses >host
    [ "$(grep -c overflow host-scales)" -ge 4 ] && [ "$(grep -c overflow host-scales)" -lt 20 ]
    train fp16.mp --device=cuda -q --metrics=m.jsonl "${scale[@]}" --save-every=10 --keep=0 --out="$PWD/gpu"
    scales | diff host-scales -
    losses >gpu-losses
    within_limit gpu-losses host 2e-3
    mics-train -p "$BATS_FILE_TMPDIR/fp16.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --device=cuda -q \
        --metrics=m.jsonl --resume="$PWD/gpu/step-000010" --out="$PWD/again"
    losses | diff <(tail -n 14 gpu-losses) -
    MICS_NODE_RANKS=2 mpi 4 mics-train -p fp16-4.mp --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --overwrite \
        --device=cuda -q --metrics=m.jsonl "${scale[@]}"
    scales >many-scales
    losses >many
    [ "$(grep -c overflow many-scales)" -ge 4 ]
    MICS_NODE_RANKS=2 mpi 4 mics-train -p fp16-4.mp --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --overwrite \
        --device=host -q --metrics=m.jsonl "${scale[@]}"
    scales | diff many-scales -
    losses >many-host
    within_limit many many-host 2e-3
}

@test "a GPU without bf16 trains in fp16 and refuses a plan in bf16" {
    for dtype in bf16 fp16; do
        mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --seq=16 --dtype=$dtype >"$BATS_FILE_TMPDIR/$dtype.mp"
    done
    MICS_EMULATED_ARCH=75 train fp16.mp --device=cuda -q
    MICS_EMULATED_ARCH=75 run --separate-stderr train bf16.mp --device=cuda -q
    one_line_and_code 1
    [[ $stderr == *"the plan is in bf16, which this GPU (emulated (GPU 0)) does not multiply: plan with --dtype=fp16 or f32" ]]
}

@test "a probe measures fp16 on a GPU without bf16, and the plan is in it" {
    requires jq
    for arch in 75 80; do
        MICS_EMULATED_ARCH=$arch mics-probe --device=cuda --seconds=0.1 --json >topo.json
        jq -r .device.flops_dtype topo.json
        mics-plan --model=gpt2-nano --global-batch=4 --seq=16 --json topo.json | jq -r .choice.dtype
    done | diff - <(printf '%s\n' f16 f16 bf16 bf16)
}

@test "a mixture of experts on the emulated GPU gives the losses of the host" {
    for dtype in f32 bf16 fp16; do
        mics-plan --topology='node:1 gpu:1' --model=moe-nano --balance-loss=sequence:0.01 --router-z-loss=0.001 --global-batch=2 --seq=16 \
            --dtype=$dtype >"$BATS_FILE_TMPDIR/moe.mp"
        for device in host cuda; do
            train moe.mp --device=$device -q --metrics=m.jsonl
            losses >$device
        done
        within_limit cuda host "$([ $dtype = f32 ] && echo 1e-5 || echo 1e-2)"
    done
}

@test "an encoder on the emulated GPU gives the losses of the host, with documents and padding" {
    for i in {1..60}; do printf '{"text": "%.*s"}\n' $((i * 11 % 30 + 1)) 'the quick brown fox jumps over'; done >lines.jsonl
    for dtype in f32 bf16; do
        mics-plan --topology='node:1 gpu:1' --model=bert-nano --global-batch=2 --seq=24 --dtype=$dtype >"$BATS_FILE_TMPDIR/bert.mp"
        for device in host cuda; do
            mics-train -q -p "$BATS_FILE_TMPDIR/bert.mp" --device=$device --data=lines.jsonl --pack=document --mask-token=257 \
                --val-every=0 --sample=0 --steps=3 --overwrite --metrics=m.jsonl
            losses >$device
        done
        within_limit cuda host "$([ $dtype = f32 ] && echo 1e-5 || echo 1e-2)"
    done
}

@test "measurements of matrix products are logged at -vv" {
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --seq=16 --dtype=bf16 >"$BATS_FILE_TMPDIR/bf16.mp"
    XDG_CACHE_HOME=$PWD/cache MICS_CUDA_MEASURE=1 run --separate-stderr train bf16.mp --device=cuda -vv
    [ "$status" = 0 ]
    [[ $stderr == *"product ["*", bf16 to bf16, "*": proposal "*" of 5"*" ms"* ]]
}

@test "the attention kernel can be selected, and an unavailable one is refused in one line" {
    mics-plan --topology='node:1 gpu:1' --model=gpt2-nano --global-batch=4 --seq=16 --dtype=bf16 >"$BATS_FILE_TMPDIR/bf16.mp"
    train bf16.mp --device=cuda -q --metrics=m.jsonl
    losses >default
    for kernel in mma plain; do
        MICS_CUDA_ATTENTION=$kernel train bf16.mp --device=cuda -q --metrics=m.jsonl
        losses >$kernel
    done
    cmp default mma
    run ! cmp default plain
    within_limit plain default 1e-2
    MICS_CUDA_ATTENTION=none run --separate-stderr train bf16.mp --device=cuda
    one_line_and_code 2
    [[ $stderr == *"MICS_CUDA_ATTENTION=none: no such kernel; there are mma, plain and hopper" ]]
    MICS_CUDA_ATTENTION=hopper run --separate-stderr train bf16.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"MICS_CUDA_ATTENTION=hopper: not in this build; it needs HOPPER=1" ]]
    MICS_EMULATED_ARCH=80 MICS_CUDA_ATTENTION=hopper run --separate-stderr train bf16.mp --device=cuda
    one_line_and_code 1
    [[ $stderr == *"MICS_CUDA_ATTENTION=hopper: for compute capability 9.0 only, this GPU has 8.0" ]]
    MICS_CUDA_ATTENTION=mma run --separate-stderr train one.mp --device=cuda
    [ "$status" = 1 ]
    [[ $stderr == *"MICS_CUDA_ATTENTION=mma: takes bf16 and fp16 heads of 8, 16, ... 128 in tensors aligned to 16 bytes; these are fp32 heads of "* ]]
    MICS_TF32=yes run --separate-stderr train one.mp --device=cuda
    one_line_and_code 2
    [[ $stderr == *"MICS_TF32=yes: expected 0 or 1" ]]
}

@test "algorithms of matrix products are timed once, and the next run reuses them with the same losses" {
    unset MICS_CUDA_MEASURE
    export XDG_CACHE_HOME=$PWD/cache
    first=cache/mics/products-emulated-compute-capability-9.0-cuBLASLt-130000
    run_steps() # fastest proposal, stderr's file
    {
        MICS_EMULATED_FAST_PROPOSAL=$1 train one.mp --device=cuda -v --metrics=m.jsonl 2>"$2" >/dev/null
        losses
    }
    run_steps 1 timed >once
    grep -qE "^mics-train: matrix products: [1-9][0-9]* shapes measured, 0 known from $PWD/$first$" timed
    run_steps 0 known >again
    grep -qE "^mics-train: matrix products: 0 shapes measured, [1-9][0-9]* known from $PWD/$first$" known
    cmp once again
    # another choice would show in the losses; it is the one of MICS_CUDA_MEASURE=0, which neither reads nor writes a cache
    XDG_CACHE_HOME=$PWD/other run_steps 0 timed >different
    run ! cmp -s once different
    XDG_CACHE_HOME=$PWD/none MICS_CUDA_MEASURE=0 run_steps 1 first >unmeasured
    cmp different unmeasured
    [ ! -e none ]
    # a damaged cache is measured again, with one warning
    printf x | dd of=$first bs=1 seek=100 conv=notrunc status=none
    run_steps 1 warned >repaired
    cmp once repaired
    [ "$(grep -c damaged warned)" = 1 ]
    grep -qxF "mics-train: $PWD/$first: the file is damaged; algorithms of matrix products are measured again" warned
    run_steps 0 known >again
    run ! grep damaged known
    cmp once again
}

@test "ranks with the same GPU use the same algorithms of matrix products, whichever is fastest on each" {
    requires mpi:2
    unset MICS_CUDA_MEASURE
    # a machine on which proposals $1 and $2 are the fastest on the two ranks, each with its own
    # cache
    cat >by-rank <<'END'
#!/bin/sh
fast=$1 name=$3
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then fast=$2 name=$4; fi
shift 4
export MICS_EMULATED_FAST_PROPOSAL=$fast MICS_EMULATED_NAME=$name XDG_CACHE_HOME=$PWD/cache-$OMPI_COMM_WORLD_RANK
exec "$@"
END
    chmod +x by-rank
    run_ranks() # fastest, fastest, GPU, GPU
    {
        rm -rf cache-0 cache-1
        mpi 2 ./by-rank "$@" mics-train -p "$BATS_FILE_TMPDIR/zero3.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=2 --sample=0 \
            --steps=3 --overwrite --device=cuda -q --metrics=m.jsonl
        losses
    }
    run_ranks 1 1 H100 H100 >alike
    run_ranks 1 3 H100 H100 >first
    [ -d cache-0/mics ] && [ ! -e cache-1 ]
    cmp alike first
    run_ranks 3 3 H100 H100 >other
    run ! cmp -s alike other
    # another GPU chooses for itself
    run_ranks 1 3 H100 H200 >two
    [ "$(ls cache-0/mics)" = products-H100-compute-capability-9.0-cuBLASLt-130000 ]
    [ "$(ls cache-1/mics)" = products-H200-compute-capability-9.0-cuBLASLt-130000 ]
    run ! cmp -s two alike
    run ! cmp -s two other
}

@test "a checkpoint of the GPU is resumed on the host, and vice versa" {
    train one.mp --steps=4 --device=host -q --metrics=m.jsonl --out=whole
    losses >whole-losses
    for first in host cuda; do
        second=$([ $first = host ] && echo cuda || echo host)
        mics-train -p "$BATS_FILE_TMPDIR/one.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --steps=4 \
            --save-every=2 --device=$first --out=$first -q
        rm -r $first/step-000004
        mics-train --resume=$first --data="$BATS_FILE_TMPDIR/text" --val-every=0 --sample=0 --device="$second" --out="$first" \
            -q --metrics=m.jsonl
        losses >resumed
        within_limit resumed <(tail -2 whole-losses) 1e-5
    done
}

@test "ranks on emulated GPUs give the losses of one rank, over NCCL and with host staging" {
    requires mpi:4
    train one.mp --device=cuda -q --metrics=m.jsonl
    losses >one
    for plan in zero3 mics; do
        ranks=$([ $plan = zero3 ] && echo 2 || echo 4)
        for way in '' staged; do
            MICS_COMM=$way MICS_NODE_RANKS=2 mpi "$ranks" mics-train -p "$BATS_FILE_TMPDIR/$plan.mp" --data="$BATS_FILE_TMPDIR/text" \
                --val-every=0 --sample=0 --steps=3 --overwrite --device=cuda -q --metrics=m.jsonl
            losses >many
            within_limit many one 1e-5
        done
    done
}

@test "the execution order of a GPU's streams changes no bit of losses, evaluations and checkpoints" {
    requires mpi:4
    for plan in zero3 mics; do
        ranks=$([ $plan = zero3 ] && echo 2 || echo 4)
        for order in early $([ $plan = zero3 ] && echo others || echo 2); do
            MICS_EMULATED_ORDER=$order MICS_NODE_RANKS=2 mpi "$ranks" mics-train \
                -p "$BATS_FILE_TMPDIR/$plan.mp" --data="$BATS_FILE_TMPDIR/text" --val-every=2 --sample=0 --steps=3 \
                --save-every=2 --out="$plan-$order" --device=cuda -q --metrics=m.jsonl
            jq -r 'select(.event == "step" or .event == "val") | "\(.step) \(.loss) \(.grad_norm)"' m.jsonl >"$plan-$order.losses"
            rm m.jsonl
            [ "$(wc -l <"$plan-$order.losses")" -ge 4 ]
            cmp "$plan-early.losses" "$plan-$order.losses"
            (cd "$plan-$order"/step-000003 && find . -name 'shard*' -o -name '*.bin' | sort | xargs sha256sum) >"$plan-$order.sums"
            [ -s "$plan-$order.sums" ]
            cmp "$plan-early.sums" "$plan-$order.sums"
        done
    done
}

@test "a trace of the GPU's streams has every operation of a step" {
    train one.mp --device=cuda -q --trace=trace.json --trace-steps=2
    [ "$(jq '[.traceEvents[] | select(.ph == "X" and .dur < 0)] | length' trace.json)" = 0 ]
    [ "$(jq '[.traceEvents[] | select(.ph == "X") | .name] | map(select(startswith("forward"))) | length' trace.json)" -ge 4 ]
}

@test "the benchmark of a model on a GPU reports where time and memory go" {
    "$root/bench/gpu" "$MICS_BUILD" gpt2-nano 1 4 4 >table
    [ "$(tail -1 table)" = '0 missed, 0 failed' ]
    grep -q '^gpt2-nano, tokens/s  *[0-9]' table
    grep -q '^  arena and workspaces, bytes .* reached' table
    # the host enqueues a step long before it ends
    awk '/the host is ahead/ { ahead = $9 } END { exit !(ahead > 0.5) }' table
    # the phases of the start add up to the whole
    awk '/start to first step/ { sum = -$6 } /GPU and lib/ { sum += $4 } /its memory/ { sum += $3 } /algorithms of/ { sum += $4 } /initial par/ { sum += $3 }
        /^ *the step/ { sum += $3; n++ } END { exit !(n == 1 && sum > -0.05 && sum < 0.05) }' table
    run -1 "$root/bench/gpu" "$MICS_BUILD" no-such-model 1 4 4
    [[ $output == *"'no-such-model'"*"0 missed, 1 failed" ]]
}
