#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-plan --from: configurations of other trainers as jobs; --settings.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    cat >ds.json <<'END'
{
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": 0.5, "steps_per_print": 2,
    "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3, "mics_shard_size": 4, "overlap_comm": true},
    "optimizer": {"type": "AdamW", "params":
        {"lr": 1e-3, "betas": [0.9, 0.98], "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3, "warmup_type": "linear"}},
}
END
}

from() # file [option...]
{
    mics-plan -q --model=gpt2-nano --topology=p4d:2 --from="$1" -o plan.mp "${@:2}"
    mics-show --json plan.mp >plan.json
}

choice() # key...
{
    local key
    for key in "$@"; do jq -r ".choice.$key" plan.json; done | xargs
}

verdict() # key
{
    jq -r --arg key "$1" '.configured.keys[] | select(.key == $key) | .verdict' plan.json
}

# mics-plan ends with this code and one line that has this text, and writes nothing.
fails() # code text file [option...]
{
    run --separate-stderr mics-plan --model=gpt2-nano --topology=p4d:2 --from="$3" \
        --settings=failed.json -o failed.mp "${@:4}"
    one_line_and_code "$1" || return
    [ ! -e failed.json ] && [ ! -e failed.mp ] || return
    [[ $stderr == *"$2"* ]] || { echo "$stderr"; return 1; }
}

one_rank="node:1 gpu:1 flops:1e11 mem:4G"
same='[.strategy, .p_param, .p_grad, .p_optim, .micro_batch, .micro_steps, .seq, .dtype,
    .grad_dtype, .clip, .offload_piece]'

@test "from: a configuration of DeepSpeed becomes its job, beside the best plan" {
    from ds.json
    [ "$(choice strategy p_param p_optim micro_batch micro_steps dtype)" = "mics 4 4 2 2 bf16" ]
    [ "$(choice hierarchical_gather)" = false ]
    [ "$(jq .global_batch plan.json)" = 64 ]
    [ "$(verdict zero_optimization.mics_shard_size)" = taken ]
    [ "$(verdict zero_optimization.overlap_comm)" = ignored ]
    [ "$(verdict gradient_accumulation_steps)" = ignored ]
    [ "$(verdict optimizer.params.weight_decay)" = "taken differently" ]
    [ "$(jq -r '.configured.plans | map(.plan) | join(" ")' plan.json)" = "as configured best" ]
    [ "$(jq '.configured.plans[1].step_s <= .configured.plans[0].step_s' plan.json)" = true ]
    mics-show plan.mp >shown
    grep -q '^Configuration of DeepSpeed' shown
    grep -q '^zero_optimization.mics_shard_size *4 *taken *mics-plan --strategy=mics:4' shown
    grep -q '^best ' shown
    mics-show --tsv plan.mp | grep -q $'^bf16.enabled\ttrue\ttaken\t'
}

@test "from: the command line wins, and --strategy=auto writes the best plan" {
    from ds.json --micro-batch=1 --no-clip
    [ "$(choice p_param micro_batch micro_steps clip)" = "4 1 4 false" ]
    [ "$(verdict train_micro_batch_size_per_gpu)" = ignored ]
    from ds.json --strategy=auto
    [ "$(jq '.configured.plans[1] as $best | .choice | .p_param == $best.p_param and
        .micro_batch == $best.micro_batch' plan.json)" = true ]
    [ "$(jq '.predicted.step_s == .configured.plans[1].step_s' plan.json)" = true ]
    [ "$(verdict zero_optimization.stage)" = ignored ]
}

@test "from: what the command line replaces is in no settings" {
    sed -i 's/"betas"/"adam_w_mode": true, "bias_correction": true, "betas"/' ds.json
    from ds.json --no-clip --optimizer=sgd --settings=s.json
    jq -e 'keys == ["log-every", "lr", "lr-schedule", "warmup", "weight-decay"]' s.json
    for key in gradient_clipping optimizer.type optimizer.params.{betas,eps,adam_w_mode,bias_correction}; do
        [ "$(verdict "$key")" = ignored ] || { echo "$key"; return 1; }
    done
    [ "$(verdict optimizer.params.lr)" = taken ]
    from ds.json --optimizer=adamw --settings=s.json
    jq -e '.beta2 == 0.98 and .clip == 0.5' s.json
    [ "$(verdict optimizer.params.betas)" = taken ]
    [ "$(verdict optimizer.params.adam_w_mode)" = taken ]
}

@test "from: --strategy=auto has a plan where the configured one does not fit" {
    sed -i 's/"stage": 3, "mics_shard_size": 4/"stage": 0/' ds.json
    small=(--model=gpt2-xl --memory=16G)
    fails 4 "as configured in ds.json: " ds.json "${small[@]}" -q
    run --separate-stderr mics-plan "${small[@]}" --topology=p4d:2 --from=ds.json \
        --strategy=auto -o plan.mp
    [ "$status" = 0 ]
    [[ $stderr == *"as configured in ds.json: "*"the best plan is written"* ]]
    mics-show --json plan.mp >plan.json
    [ "$(jq -r '.configured.plans | map(.plan) | join(" ")' plan.json)" = best ]
    mics-show plan.mp | grep -q '^best '
}

@test "from: an offloaded optimizer is one here, unless the command line has --offload" {
    echo '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}' >cpu.json
    options=(--from=cpu.json --model=llama2-7b --seq=2048 --topology='node:1 gpu:4xRTX4090-24')
    mics-plan "${options[@]}" -q -o plan.mp
    mics-show --json plan.mp | jq -e '.choice.offload_piece > 0 and
        (.configured.keys[] | select(.key | endswith("device")) | .why) == "mics-plan --offload=optimizer"'
    fails 4 "it fits with --offload=optimizer" cpu.json "${options[@]:1}" --offload=none -q
}

@test "from: what --for writes for DeepSpeed is the plan that it was" {
    for strategy in zero1 zero2 zero3 hpz:8 'zero3 --offload=optimizer'; do
        # shellcheck disable=SC2086 # and its option
        mics-plan -q --model=gpt2-nano --topology=p4d:2 --global-batch=64 --seq=128 \
            --for=deepspeed --strategy=$strategy -o there.mp >there.json
        from there.json --seq=128
        mics-show --json there.mp | jq -c ".choice | $same" >there
        jq -c ".choice | $same" plan.json | diff there -
    done
}

@test "from: what --for writes for torchtitan and accelerate is the plan that it was" {
    for target in torchtitan accelerate; do
        for strategy in mics:4 zero3; do
            job=(--global-batch=64 --micro-batch=2 --seq=128)
            mics-plan -q --model=gpt2-nano --topology=p4d:2 "${job[@]}" --for=$target \
                --strategy=$strategy -o there.mp >there.txt
            # The program of accelerate has these.
            if [ $target = torchtitan ]; then job=(); fi
            from there.txt "${job[@]}"
            mics-show --json there.mp | jq -c ".choice | $same" >there
            jq -c ".choice | $same" plan.json | diff there -
            [ "$(jq -r .configured.trainer plan.json)" = $target ]
        done
    done
}

@test "from: flags of torchtitan in a file, one on each line" {
    cat >flags <<'END'
# what we run today
--parallelism.data_parallel_replicate_degree=4
--training.local_batch_size 2
--training.global_batch_size 64
--training.steps 500
--optimizer.lr 4e-4
--lr_scheduler.decay_ratio 0.1
--lr_scheduler.decay_type sqrt
--checkpoint.enable
--checkpoint.interval 100
END
    from flags --settings=s.json
    [ "$(choice strategy p_param micro_batch micro_steps)" = "mics 4 2 2" ]
    jq -e '. == {steps: 500, lr: 4e-4, "lr-schedule": "wsd", "lr-decay": 50,
        "save-every": 100}' s.json
    echo '--training.local_batchsize 2' >odd
    fails 3 "standard input: unknown key 'training.local_batchsize' of torchtitan; did you mean" - <odd
}

@test "from: the YAML of accelerate" {
    cat >fsdp.yaml <<'END'
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 1
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
END
    run --separate-stderr mics-plan -q --model=gpt2-nano --topology=p4d:2 --from=fsdp.yaml \
        --global-batch=64 -o plan.mp
    [[ $stderr != *"was built without"* ]] || skip "no libyaml"
    mics-show --json plan.mp >plan.json
    [ "$(choice strategy p_param recompute dtype)" = "mics 8 full bf16" ]
    fails 3 "mics-plan: fsdp.yaml: num_machines is 2, but the topology has 4 nodes" fsdp.yaml \
        --topology=p4d:4
    printf '%s\n' 'distributed_type: DEEPSPEED' 'deepspeed_config: {deepspeed_config_file: ds.json}' \
        >file.yaml
    fails 4 "deepspeed_config.deepspeed_config_file ds.json: give that file to --from" file.yaml
}

@test "from: contradictions, unknown and refused keys are one line, and nothing is written" {
    sed 's/"train_batch_size": 64/"train_batch_size": 65/' ds.json >odd.json
    fails 3 "mics-plan: odd.json: train_batch_size 65 is no multiple of " odd.json
    sed 's/"bf16"/"bf61"/' ds.json >unknown.json
    fails 3 "unknown key 'bf61' of DeepSpeed; did you mean bf16" unknown.json
    sed 's/AdamW/Adagrad/' ds.json >refused.json
    fails 4 "mics-plan: refused.json: refused: optimizer.type Adagrad: " refused.json
    sed 's/"mics_shard_size": 4/"mics_shard_size": 3/' ds.json >three.json
    fails 3 "as configured in three.json: " three.json
    head -c 300 ds.json >cut.json
    fails 3 "mics-plan: cut.json: line " cut.json
    sed 's/1e-3/-1e-3/' ds.json >negative.json
    fails 3 "mics-plan: negative.json: --lr of mics-train: " negative.json
    fails 1 "missing.json: " missing.json
}

@test "from: options that do not go together are usage mistakes" {
    for words in --settings=s.json '--from=ds.json --for=torchtitan' \
        '--from=ds.json --like=plan.mp' --from=- '--from=ds.json --settings=-' \
        '--from=ds.json --settings=x -o x'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-plan --model=gpt2-nano $words
        usage_mistake mics-plan || { echo "$words"; return 1; }
        [ ! -e - ] && [ ! -e x ] || return
    done
}

@test "from: settings go to mics-train, whose command line wins" {
    sed -i 's/_size": 64/_size": 2/; s/"mics_shard_size": 4, //; s/"bf16".*//' ds.json
    mics-plan -q --model=gpt2-nano --topology="$one_rank" --seq=32 --from=ds.json \
        --settings=s.json -o plan.mp
    jq -e '. == {clip: 0.5, beta1: 0.9, beta2: 0.98, eps: 1e-8, "weight-decay": 0.01, lr: 0.001,
        "lr-schedule": "constant", warmup: 3, "log-every": 2}' s.json
    head -c 20000 "$root/LICENSE" >text
    mics-train -q -p plan.mp --data=text --settings=s.json --steps=4 --lr=2e-3 --val-every=0 \
        --sample=0
    mics-show --json run/latest >run.json
    jq -e '.training.settings | .lr == 0.002 and .beta2 == 0.98 and .warmup == 3 and
        .lr_schedule == "constant" and .clip == 0.5 and .weight_decay == 0.01 and
        .steps == 4' run.json
}

@test "settings: wrong files are one line with the path" {
    mics-plan -q --model=gpt2-nano --topology="$one_rank" --seq=32 -o plan.mp
    echo text >text
    while IFS='|' read -r json message; do
        printf '%s' "$json" >s.json
        run --separate-stderr mics-train -p plan.mp --data=text --settings=s.json
        one_line_and_code 3
        [[ $stderr == "mics-train: s.json: $message"* ]] || {
            echo "$json: $stderr"
            return 1
        }
    done <<'END'
{"lr_schedule": "cosine"}|unknown setting 'lr_schedule'; did you mean lr-schedule?
{"lr": -1}|lr: '-1'
{"lr": [1]}|lr: expected a text or a number
{"lr": 1e-3|line 1, column 11, offset 11: truncated
{"mask-prompt": 1}|mask-prompt: expected true or false
{"out": "elsewhere"}|out: belongs on the command line
{"settings": "s.json"}|settings: belongs on the command line
{"data": "text"}|data: belongs on the command line
{"val-data": "text"}|val-data: belongs on the command line
{"notice-command": "touch ran"}|notice-command: belongs on the command line
{"lr": 1, "lr": 2}|line 1, column 14, offset 14: a duplicate key
[]|line 1, offset 0: expected a map
END
    run --separate-stderr mics-train -p plan.mp --data=text --settings=none.json
    one_line_and_code 1
}

@test "from: the configuration is not replaced by what is written, by whatever name" {
    cp ds.json kept.json
    ln -s ds.json link.json
    ln ds.json hard.json
    for name in ds.json ./ds.json link.json hard.json; do
        for option in --output --settings; do
            run --separate-stderr mics-plan --model=gpt2-nano --topology=p4d:2 --from=ds.json \
                $option=$name
            [ "$status" = 2 ]
            [ "${stderr_lines[0]}" = \
                "mics-plan: $option would replace 'ds.json', which --from reads" ]
            cmp ds.json kept.json
        done
    done
    from ds.json --settings=other.json
}
