#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Training in fp16: the loss scale, overflows, and what is refused.

load helpers

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    cp "$BATS_TEST_DIRNAME"/../../LICENSE text # its losses do not change with the documentation
    for dtype in f32 fp16; do
        plan 1-$dtype.mp 'node:1 gpu:1' ddp --dtype=$dtype
    done
    plan 2.mp 'node:1 gpu:2' zero3 --dtype=fp16
    plan 4.mp 'node:2 gpu:2' mics:2 --dtype=fp16
    plan 4-f32.mp 'node:2 gpu:2' mics:4 --dtype=fp16 --grad-dtype=f32
}

plan() # file topology strategy ...
{
    local file=$1 topology=$2 strategy=$3
    shift 3
    mics-plan --topology="$topology" --model=gpt2-nano --global-batch=8 --seq=32 \
        --strategy="$strategy" --no-history -o "$file" "$@"
}

train() # plan ranks ...
{
    local plan=$1 ranks=$2
    shift 2
    MICS_THREADS=1 MICS_NODE_RANKS=$((ranks > 1 ? 2 : 1)) mpirun -n "$ranks" mics-train -p "$plan" \
        --data=text --tokenizer=bytes --val-every=0 --sample=0 --no-history --log-every=1 "$@" >/dev/null
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    out=$BATS_TEST_TMPDIR/out
}

# The steps of a metrics file, without times.
steps() # metrics
{
    jq -c 'select(.event == "step") | [.step, .loss, .grad_norm, .loss_scale]' "$1"
}

@test "fp16 trains as fp32 does but for rounding, on 1, 2 and 4 ranks" {
    requires jq mpi:4
    train 1-f32.mp 1 --steps=12 --out="$out-0" --metrics="$out-0.jsonl"
    train 1-fp16.mp 1 --steps=12 --out="$out-1" --metrics="$out-1.jsonl"
    train 2.mp 2 --steps=12 --out="$out-2" --metrics="$out-2.jsonl"
    train 4.mp 4 --steps=12 --out="$out-3" --metrics="$out-3.jsonl"
    train 4-f32.mp 4 --steps=12 --out="$out-4" --metrics="$out-4.jsonl"
    for i in 1 2 3 4; do
        steps "$out-$i.jsonl" >"$out-got"
        [ "$(wc -l <"$out-got")" = 12 ]
        paste <(steps "$out-0.jsonl" | jq '.[1]') <(jq '.[1]' "$out-got") |
            awk '{ d = $1 / $2 - 1; if (d * d > 4e-6) exit 1 }'
        jq -se 'all(.[]; .[3] == 65536)' "$out-got"
    done
    jq -se 'all(.[]; has("loss_scale") | not)' "$out-0.jsonl"
}

@test "a scale that is too large falls at each overflow, whose steps are skipped and reported" {
    requires jq mpi:4
    train 4.mp 4 --steps=40 --out="$out-run" --initial-loss-scale=274877906944 --metrics="$out.jsonl" 2>"$out-err"
    jq -c 'select(.event == "overflow") | [.step, .loss_scale, .next_loss_scale]' "$out.jsonl" >"$out-overflows"
    n=$(wc -l <"$out-overflows")
    [ "$n" -ge 4 ] && [ "$n" -lt 30 ]
    # By hand: the first is forgiven, each after it halves; then nothing overflows.
    for ((i = 1; i <= n; i++)); do
        scale=$((274877906944 >> (i > 2 ? i - 2 : 0)))
        echo "[$i,$scale,$((i > 1 ? scale / 2 : scale))]"
    done >"$out-want"
    diff "$out-want" "$out-overflows"
    [ "$(grep -c 'overflow in fp16 with a loss scale of .*: skipped, the next one is' "$out-err")" = "$n" ]
    jq -se --argjson n "$n" '[.[] | select(.event == "step")] |
        all(.[]; (.grad_norm == null) == (.step <= $n)) and .[-1].loss < .[0].loss' "$out.jsonl"
    # Nothing was changed: the losses of skipped steps are those of the first parameters.
    mics-show --json "$out-run/latest" | jq -e --argjson n "$n" '.training.loss_scale |
        .overflows == $n and .clean_steps == 40 - $n and .hysteresis == 1'
}

@test "a run in fp16 that is interrupted and resumed repeats the other bit for bit" {
    requires jq mpi:4
    local scale=(--initial-loss-scale=4294967296 --loss-scale-window=4 --hysteresis=1)
    train 4.mp 4 --steps=30 --out="$out-a" --metrics="$out-a.jsonl" --warmup=3 "${scale[@]}"
    train 4.mp 4 --steps=30 --out="$out-b" --metrics="$out-b.jsonl" --warmup=3 "${scale[@]}" --save-every=13 --keep=0
    train 4.mp 4 --resume="$out-b/step-000013" --out="$out-c" --metrics="$out-c.jsonl"
    diff <(steps "$out-a.jsonl") <(steps "$out-b.jsonl")
    diff <(steps "$out-a.jsonl" | tail -n 17) <(steps "$out-c.jsonl")
    mics-shard diff "$out-a/latest" "$out-c/latest"
    # It rises and falls in these steps.
    [ "$(steps "$out-a.jsonl" | jq '.[3]' | sort -u | wc -l)" -ge 3 ]
    # Another plan, another way to divide: the same scale.
    train 1-fp16.mp 1 --steps=14 --resume="$out-b/step-000013" --out="$out-d" --metrics="$out-d.jsonl"
    diff <(steps "$out-a.jsonl" | jq 'select(.[0] == 14)[3]') <(steps "$out-d.jsonl" | jq '.[3]')
    # A static one from here on; and a run in fp32, which has none.
    train 1-fp16.mp 1 --steps=15 --resume="$out-b/step-000013" --out="$out-e" --metrics="$out-e.jsonl" --loss-scale=512
    steps "$out-e.jsonl" | jq -se 'length == 2 and all(.[]; .[3] == 512)'
    train 1-f32.mp 1 --steps=14 --resume="$out-b/step-000013" --out="$out-f" --metrics="$out-f.jsonl"
    jq -se 'all(.[]; has("loss_scale") | not)' "$out-f.jsonl"
}

@test "an overflow at the least loss scale ends the run and says what may help" {
    run -1 --separate-stderr train 1-fp16.mp 1 --steps=40 --out="$out-run" --initial-loss-scale=274877906944 \
        --min-loss-scale=274877906944
    [[ $stderr == *"step 2: overflow in fp16 with the least loss scale, 2.74878e+11: "*bf16* ]]
}

@test "what fp16 and the loss scale cannot do is refused in one line" {
    while IFS='|' read -r code words command; do
        run --separate-stderr eval "$command"
        echo "$command: $status, ${stderr_lines[*]}"
        [ "$status" = "$code" ]
        [[ $stderr == *"$words"* ]]
        [ "${#stderr_lines[@]}" -le 2 ]
    done <<'END'
2|--no-clip: --dtype=fp16 needs the norm|mics-plan --topology="node:1 gpu:2" --model=gpt2-nano --dtype=fp16 --no-clip
2|--grad-dtype=bf16: with --dtype=fp16|mics-plan --topology="node:1 gpu:2" --model=gpt2-nano --dtype=fp16 --grad-dtype=bf16
2|--grad-dtype=fp16 goes with --dtype=fp16|mics-plan --topology="node:1 gpu:2" --model=gpt2-nano --dtype=bf16 --grad-dtype=fp16
2|--dtype=fp16: torchtitan has no loss scale|mics-plan --topology="node:2 gpu:2" --model=gpt2-nano --dtype=fp16 --for=torchtitan
2|--loss-scale=1000: expected a power of two|mics-train -q -p 1-fp16.mp --data=text --loss-scale=1000
2|below --min-loss-scale=8|mics-train -q -p 1-fp16.mp --data=text --initial-loss-scale=4 --min-loss-scale=8
2|--hysteresis: the plan is in f32|mics-train -q -p 1-f32.mp --data=text --hysteresis=3
2|'1': must be from 2 to 65536|mics-train -q -p 1-fp16.mp --data=text --loss-scale-factor=1
END
}

@test "fp16 goes on from a checkpoint in fp32 with the first loss scale" {
    requires jq mpi:1
    train 1-f32.mp 1 --steps=2 --out="$out"
    train 1-fp16.mp 1 --resume="$out/latest" --steps=4 --out="$out-16" --metrics="$out-16.jsonl"
    steps "$out-16.jsonl" | jq -se 'length == 2 and all(.[]; .[3] == 65536 and .[1] > 1)'
    jq -e '.training.loss_scale.scale == 65536' "$out-16/latest/manifest.json" ||
        mics-show --json "$out-16/latest" | jq -e '.training.loss_scale.scale == 65536'
}

@test "fp16 runs on the paced device" {
    requires mpi:1
    train 1-fp16.mp 1 --device=paced --steps=3 --out="$out"
}

@test "options that fp16's loss scale has no use for are refused" {
    requires mpi:1
    run -2 --separate-stderr train 1-fp16.mp 1 --steps=2 --on-nonfinite=skip:3 --out="$out"
    [[ $stderr == *"--on-nonfinite=skip: in fp16 every step that overflows is skipped"* ]]
    run -2 --separate-stderr train 1-fp16.mp 1 --steps=2 --loss-scale=512 --hysteresis=7 --out="$out"
    [[ $stderr == *"--hysteresis goes with a dynamic loss scale"* ]]
}

@test "a mixture of experts trains in fp16 as in fp32 but for rounding, its losses of balance too" {
    requires jq mpi:4
    local balance=(--model=moe-nano --balance-loss=sequence:0.01 --router-z-loss=0.001)
    plan moe-f32.mp 'node:1 gpu:1' ddp "${balance[@]}" --dtype=f32
    plan moe-1.mp 'node:1 gpu:1' ddp "${balance[@]}" --dtype=fp16
    plan moe-2.mp 'node:2 gpu:2' mics:2 "${balance[@]}" --dtype=fp16 --expert-group=4
    plan moe-3.mp 'node:1 gpu:2' zero3 "${balance[@]}" --dtype=fp16 --grad-dtype=f32 --experts=resident
    train moe-f32.mp 1 --steps=8 --out="$out-0" --metrics="$out-0.jsonl"
    train moe-1.mp 1 --steps=8 --out="$out-1" --metrics="$out-1.jsonl"
    train moe-2.mp 4 --steps=8 --out="$out-2" --metrics="$out-2.jsonl"
    train moe-3.mp 2 --steps=8 --out="$out-3" --metrics="$out-3.jsonl"
    for i in 1 2 3; do
        steps "$out-$i.jsonl" >"$out-got"
        [ "$(wc -l <"$out-got")" = 8 ]
        paste <(steps "$out-0.jsonl" | jq '.[1]') <(jq '.[1]' "$out-got") |
            awk '{ d = $1 / $2 - 1; if (d * d > 4e-6) exit 1 }'
        jq -se 'all(.[]; .[3] == 65536)' "$out-got"
    done
}

# Interrupted in the middle and resumed: the same to the bit, through overflows and a scale that rises.
repeats() # plan ranks options...
{
    local plan=$1 ranks=$2
    local scale=(--initial-loss-scale=4294967296 --loss-scale-window=4 --hysteresis=1)
    train "$plan" "$ranks" --steps=20 --out="$out-a" --metrics="$out-a.jsonl" "${scale[@]}" --save-every=11 --keep=0 2>"$out-err"
    train "$plan" "$ranks" --resume="$out-a/step-000011" --out="$out-b" --metrics="$out-b.jsonl"
    diff <(steps "$out-a.jsonl" | tail -n 9) <(steps "$out-b.jsonl")
    mics-shard diff "$out-a/latest" "$out-b/latest"
    [ "$(jq -s '[.[] | select(.event == "overflow")] | length' "$out-a.jsonl")" -ge 4 ]
    jq -se '.[-1] | .event != "overflow"' "$out-a.jsonl"
    [ "$(steps "$out-b.jsonl" | jq '.[3]' | sort -u | wc -l)" -ge 2 ]
}

@test "units that take turns in fp16 lose what they carry at an overflow, and a resumed run repeats the other" {
    requires jq mpi:4
    plan turns.mp 'node:2 gpu:2' mics:2 --dtype=fp16 --sync-interval=3 --sync-warmup=2
    repeats turns.mp 4
    grep -q 'skipped, the next one is .*; so are gradients that units have carried' "$out-err"
    steps "$out-a.jsonl" | jq -se '.[-1][1] < .[0][1] - 0.3'
}

@test "replicas with outer steps in fp16 skip steps of their own, and a resumed run repeats the other" {
    requires jq mpi:4
    plan outer.mp 'node:2 gpu:2' mics:2 --dtype=fp16 --outer-steps=3 --sync-warmup=0
    repeats outer.mp 4
    grep -q 'overflow in fp16 on [12] of 2 replicas, which skip the step' "$out-err"
    jq -se 'all(.[] | select(.event == "overflow"); .replicas >= 1 and .replicas <= 2)' "$out-a.jsonl"
    steps "$out-a.jsonl" | jq -se '.[-1][1] < .[0][1] - 0.1'
    # All replicas: it ends, on every rank.
    run -1 --separate-stderr train outer.mp 4 --steps=24 --out="$out-c" --initial-loss-scale=274877906944 --min-loss-scale=274877906944
    [[ $stderr == *"overflow in fp16 with the least loss scale, 2.74878e+11: "* ]]
}

@test "plans in fp16 for other trainers have a loss scale in their syntax" {
    requires jq
    for_trainer() { mics-plan --topology=p4d.24xlarge --model=gpt2 --global-batch=64 --dtype=fp16 --for="$1" 2>"$out-err"; }
    for_trainer deepspeed | jq -e '.fp16.enabled and .fp16.loss_scale == 0 and .communication_data_type == "fp16" and (has("bf16") | not)'
    [[ $(for_trainer megatron) == *"--fp16 --accumulate-allreduce-grads-in-fp32 --initial-loss-scale 65536"*"--hysteresis 2"* ]]
    [[ $(for_trainer accelerate) == *"mixed_precision: 'fp16'"* ]]
    [[ $(for_trainer fsdp2) == *"torch.amp.GradScaler"*"param_dtype=torch.float16, reduce_dtype=torch.float32"* ]]
    [[ $(for_trainer transformers) == *"fsdp_mixed_precision=False"*"fp16=True"* ]]
    grep -q 'transformers: its fp16 is autocast' "$out-err"
}

@test "fp16 of DeepSpeed and accelerate is planned as such, with its loss scale, unless the command line has another type" {
    requires jq
    cat >ds.json <<'END'
{"train_batch_size": 8, "gradient_clipping": 0, "fp16": {"enabled": true, "initial_scale_power": 12, "loss_scale_window": 500,
 "hysteresis": 3, "min_loss_scale": 0.3, "consecutive_hysteresis": true}, "zero_optimization": {"stage": 1}}
END
    run -0 --separate-stderr mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --seq=32 --from=ds.json --settings=ds.settings --json
    jq -e '.choice.dtype == "f16" and .choice.grad_dtype == "f16"' <<<"$output"
    jq -e '[.configured.keys[] | select(.key == "fp16.min_loss_scale").verdict] == ["taken differently"]' <<<"$output"
    jq -e '.["initial-loss-scale"] == 4096 and .["loss-scale-window"] == 500 and .hysteresis == 3 and .["min-loss-scale"] == 0.25
        and .clip == 1e9' ds.settings
    run -0 --separate-stderr mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --seq=32 --from=ds.json --dtype=bf16 --settings=ds.settings --json
    jq -e '.choice.dtype == "bf16"' <<<"$output"
    jq -e '[keys[] | select(test("scale|hysteresis|clip"))] == []' ds.settings
    jq -e '.choice.clip == false and ([.configured.keys[] | select(.key == "fp16.hysteresis").verdict] == ["ignored"])' <<<"$output"
    sed 's/"initial_scale_power": 12/"loss_scale": 1000/' ds.json >static.json
    run -0 --separate-stderr mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --seq=32 --from=static.json --settings=ds.settings -o static.mp
    jq -e '.["loss-scale"] == 512 and (has("hysteresis") | not)' ds.settings
    # Where the type is open, the settings count once it is fp16: by the option, or by the GPU.
    sed 's/"enabled": true/"enabled": "auto"/' ds.json >auto.json
    jq '.fp16 = {"enabled": false} | .bf16 = {"enabled": true} | .communication_data_type = "bf16"' ds.json >bf16.json
    for words in 'node:1 gpu:2|auto|--dtype=fp16' 'p3dn:1|auto|-q' 'node:1 gpu:2|bf16|--dtype=fp16' 'node:1 gpu:2|auto|--dtype=bf16'; do
        IFS='|' read -r topology file option <<<"$words"
        mics-plan --topology="$topology" --model=gpt2-nano --seq=32 --from="$file.json" "$option" --settings=ds.settings --json --no-history >out.json
        case $file$option in
        auto*bf16) jq -e 'has("initial-loss-scale") or has("clip") | not' ds.settings ;;
        auto*) jq -e '.["initial-loss-scale"] == 4096 and .hysteresis == 3 and .clip == 1e9' ds.settings
            jq -e '.choice.dtype == "f16" and .choice.grad_dtype == "f16"' out.json ;;
        bf16*) jq -e '. == {"clip": 1e9}' ds.settings
            jq -e '.choice.dtype == "f16" and .choice.grad_dtype == "f16"' out.json
            jq -e '[.configured.keys[] | select(.key == "communication_data_type") | .verdict, .why] == ["ignored", "the command line has --dtype"]' out.json ;;
        esac
    done
    # Gradients in f32 suit any type.
    jq '.communication_data_type = "fp32"' ds.json >f32.json
    for dtype in fp16 bf16; do
        mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --seq=32 --from=f32.json --dtype=$dtype --json --no-history |
            jq -e '.choice.grad_dtype == "f32" and ([.configured.keys[] | select(.key == "communication_data_type").verdict] == ["taken"])'
    done
    while IFS='|' read -r edit why; do
        jq "$edit" ds.json >bad.json
        run -3 --separate-stderr mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --seq=32 --from=bad.json
        [[ $stderr == *"bad.json: fp16.$why"* ]]
    done <<'END'
.fp16.initial_scale_power = 1024|initial_scale_power: the scale is too large
.fp16.min_loss_scale = 5000|min_loss_scale: 5000 is more than the first scale, 4096
END
}
