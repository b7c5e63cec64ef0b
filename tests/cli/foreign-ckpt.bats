#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-shard split of what other trainers wrote. The files of tests/cli/foreign are of
# tests/reference/make_foreign.py.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return 1
    files=$BATS_TEST_DIRNAME/foreign
    mics-probe --topology='node:1 gpu:2 flops:1T mem:8G membw:100GB/s link:10GB/s,3us' -o topo.mp
    mics-plan --model="$files/hf" --strategy=zero3 --dtype=f32 --global-batch=4 --seq=8 topo.mp -o plan.mp
}

# Split refuses a source in one line that ends with a text, and leaves nothing.
refused() # source text
{
    run --separate-stderr mics-shard split "$1" -p plan.mp -o out
    [ "$status" = 3 ]
    [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == "mics-shard: "*"$2" ]] || { echo "$stderr"; false; }
    [ ! -e out ]
}

@test "split: files of torch.save, with the names of DDP and torch.compile, in fp32 and bf16" {
    requires jq
    mics-shard split "$files/hf" -p plan.mp -o hf
    mics-shard split "$files/weights.pt" -p plan.mp -o weights
    mics-shard diff hf weights
    mkdir folder
    cp "$files/hf/config.json" folder/
    cp "$files/weights.pt" folder/pytorch_model.bin
    mics-shard split folder -p plan.mp -o from-folder
    mics-shard diff hf from-folder
    # bf16, as parameters inside of a trainer's dict.
    mics-shard split "$files/trainer.pt" -p plan.mp -o trainer
    mics-shard cast "$files/hf" --dtype=bf16 -o bf16
    mics-shard split bf16 -p plan.mp -o hf-bf16
    mics-shard diff hf-bf16 trainer
    mics-shard verify trainer
}

@test "split: a distributed checkpoint of FSDP2 with the states of AdamW, each number, by any plan" {
    requires jq perl
    mics-shard split "$files/hf" -p plan.mp -o hf
    mics-shard split "$files/dcp" -p plan.mp -o dcp
    run --separate-stderr mics-shard diff hf dcp
    [ "$status" = 0 ]
    [ "$stderr" = "mics-shard: 'hf' lacks optimizer state that 'dcp' has: it is not compared" ]
    [ "$(mics-show --json dcp | jq -c '[.step, .states]')" = '[2,["param","m","v"]]' ]
    mics-plan --model="$files/hf" --strategy=ddp --dtype=f32 --global-batch=4 --seq=8 topo.mp -o ddp.mp
    mics-shard split "$files/dcp" -p ddp.mp -o whole
    mics-shard reshard whole -p plan.mp -o again
    mics-shard diff dcp again
    # DDP has one shard: its sections are the units' states, in the order of the manifest.
    perl -MJSON::PP -e '
        sub file { open my $f, "<:raw", $_[0] or die; read $f, my $n, 8; read $f, my $h, unpack "Q<", $n;
            local $/; return (decode_json($h), scalar <$f>) }
        my ($want, $numbers) = file($ARGV[0]); my ($have, $shard) = file($ARGV[1]);
        my $table = decode_json(do { local $/; open my $t, "<", $ARGV[2] or die; <$t> }); my $count = 0;
        for my $unit (@{$table->{units}}) { for my $t (@{$unit->{tensors}}) { for my $s (["m", "exp_avg"], ["v", "exp_avg_sq"]) {
            my ($key) = grep { /^$s->[1]\.(model\.)?\Q$t->{name}\E$/ } keys %$want or die $t->{name};
            my $o = $want->{$key}{data_offsets}; my $w = substr $numbers, $o->[0], $o->[1] - $o->[0];
            my ($section) = grep { /^\Q$unit->{name}\E[.:\/]$s->[0]$/ } keys %$have or die join " ", keys %$have;
            my $at = $have->{$section}{data_offsets}[0] + 4 * $t->{offset};
            substr($shard, $at, length $w) eq $w or die "$key differs"; $count++;
        } } } print "$count\n"' "$files/states.safetensors" whole/shard-00000.safetensors <(mics-show --json whole) >compared
    [ "$(cat compared)" = 24 ]
}

@test "split: a distributed checkpoint in shards of safetensors, cut by rows and by columns" {
    mics-shard split "$files/hf" -p plan.mp -o hf
    mics-shard split "$files/dcp-safetensors" -p plan.mp -o shards
    mics-shard diff hf shards
    # A shard is missing; a chunk is there twice.
    mkdir few twice
    cp "$files"/dcp-safetensors/shard-00002-* few/
    refused few "few: numbers of tensor 'lm_head.weight' are missing from 0 on of 128"
    cp "$files"/dcp-safetensors/* twice/
    cp "$files"/dcp-safetensors/shard-00002-* twice/shard-00003-model-00001-of-00001.safetensors
    refused twice "twice: pieces of tensor 'lm_head.weight' overlap at number 64"
}

@test "split: names that mean one parameter must have equal numbers, also in files of torch.save" {
    requires jq perl
    mics-shard split "$files/hf" -p plan.mp -o hf
    mics-shard split "$files/weights.pt" "$files/weights.pt" -p plan.mp -o twice
    mics-shard diff hf twice
    # trainer.pt has them in bf16.
    run --separate-stderr mics-shard split "$files/weights.pt" "$files/trainer.pt" -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == *"trainer.pt: tensor 'lm_head.weight' occurs twice: 'module._orig_mod.lm_head.weight' is another one"* ]]
    # A head that the model ties to the embedding, and its files do not.
    mkdir tied
    jq '.tie_word_embeddings = true' "$files/hf/config.json" >tied/config.json
    mics-plan --model=tied --strategy=zero3 --dtype=f32 --global-batch=4 --seq=8 topo.mp -o tied.mp
    for source in weights.pt dcp dcp-safetensors; do
        run --separate-stderr mics-shard split "$files/$source" -p tied.mp -o out
        [ "$status" = 3 ]
        [[ $stderr == *"lm_head.weight' is not the embedding, but the head is tied to it"* ]]
        [ ! -e out ]
    done
}

@test "split: a safetensors file whose header is as long as a pickle begins is no pickle" {
    requires perl
    mkdir padded
    cp "$files/hf/config.json" padded/
    perl -e 'open my $f, "<:raw", $ARGV[0] or die; local $/; my $all = <$f>; my $n = unpack "Q<", $all;
        open my $o, ">:raw", $ARGV[1] or die; my $header = substr $all, 8, $n;
        print $o pack("Q<", 1152), $header, " " x (1152 - $n), substr $all, 8 + $n' \
        "$files/hf/model.safetensors" padded/model.safetensors
    [ "$(head -c 2 padded/model.safetensors | od -An -tx1)" = ' 80 04' ]
    mics-shard split "$files/hf" -p plan.mp -o hf
    mics-shard split padded/model.safetensors -p plan.mp -o file
    mics-shard diff hf file
}

@test "split: states of AdamW without their step, or with one moment of two, are refused" {
    requires perl
    cp -r "$files/dcp" dcp
    perl -0pi -e 's/\.step/.stop/g' dcp/.metadata
    refused dcp "dcp: has states of AdamW, but no step of 1 or more"
    cp -r "$files/dcp/." dcp
    perl -0pi -e 's/\.exp_avg_sq/.exp_avg_xx/g' dcp/.metadata
    refused dcp "dcp: has exp_avg, but not exp_avg_sq: only optimizer states of AdamW are read"
}

@test "split: numbers of a machine with another byte order are refused" {
    requires perl
    cp "$files/weights.pt" big.pt
    perl -0pi -e 's/little/bigend/' big.pt
    refused big.pt "big.pt: numbers that are not little-endian"
}

@test "train: goes on from a distributed checkpoint of PyTorch with other data only" {
    requires mpi:2 perl
    export MICS_NODE_RANKS=2
    perl -e 'srand 1; print pack "S<*", map { int rand 16 } 1 .. 4000' >ids.bin
    mics-shard split "$files/dcp" -p plan.mp -o dcp
    run --separate-stderr mpi 2 mics-train -p plan.mp --data=ids.bin --resume=dcp --steps=4
    [ "$status" = 3 ]
    [[ $stderr == *"mics-train: dcp: does not say on which data it was trained: --other-data goes on with the data that is there now"* ]]
    mpi 2 mics-train -p plan.mp --data=ids.bin --resume=dcp --other-data --steps=4 --metrics=m.jsonl
    [ "$(grep -c '"step"' m.jsonl)" -ge 2 ]
}

@test "split: what is missing, cut, of another type or class is refused in one line, and nothing is written" {
    requires perl
    cp -r "$files/dcp" dcp
    rm dcp/__1_0.distcp
    refused dcp "dcp/__1_0.distcp: No such file or directory"
    cp -r "$files/dcp/." dcp
    truncate -s 30000 dcp/__0_0.distcp
    run --separate-stderr mics-shard split dcp -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == "mics-shard: dcp/__0_0.distcp: ends before its chunk of tensor '"*"'" ]]
    cp -r "$files/dcp/." dcp
    perl -0pi -e 's/relative_path\x94\x8c\x0c__0_0/relative_path\x94\x8c\x0c..\/_0/' dcp/.metadata
    run --separate-stderr mics-shard split dcp -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == "mics-shard: dcp/.metadata: '"*"': its file's name leads out of the folder" ]]
    cp -r "$files/dcp/." dcp
    perl -0pi -e 's/TensorStorageMetadata/TensorStorageMetadat_/' dcp/.metadata
    perl -0pi -e 's/filesystem\x94\x8c\x0c_StorageInfo/filesystem\x94\x8c\x0cStorageInfo_/; s/torch.distributed.checkpoint.filesystem/torch.distributed.checkpoint.filesyste_/' dcp/.metadata
    refused dcp "' is not a class that is read (nothing was executed)"
    # Chunks that overlap, another type than .metadata says, and a tensor that the model does not have.
    cp -r "$files/dcp/." dcp
    perl -0777 -pi -e 's/K\x08K\x00\x86/K\x07K\x00\x86/g' dcp/.metadata
    refused dcp "dcp: pieces of tensor 'model.model.embed_tokens.weight' overlap at number 56"
    cp -r "$files/dcp/." dcp
    perl -0pi -e 's/float32/float16/' dcp/.metadata
    refused dcp "tensor 'model.model.embed_tokens.weight': is of F32, but .metadata says F16"
    cp -r "$files/dcp/." dcp
    perl -0pi -e 's/model.norm.weight/model.nurm.weight/' dcp/.metadata
    run --separate-stderr mics-shard split dcp -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'model.model.nurm.weight' does not belong to the model"* ]]
    [ ! -e out ]
    # A pickle that would run a program, in the archive of a file.
    cp "$files/weights.pt" bad.pt
    perl -0pi -e 's/ctorch._utils\n_rebuild_tensor_v2\n/"cposix\nsystem\n" . "N" x 19/e' bad.pt
    run --separate-stderr mics-shard split bad.pt -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == "mics-shard: bad.pt: data.pkl: byte "*": 'posix.system' is not a class that is read (nothing was executed)" ]]
    [ ! -e executed ]
    # Averages of the parameters are not the parameters.
    cp "$files/trainer.pt" ema.pt
    perl -0777 -pi -e 's/X\x05\0\0\0model/X\x05\0\0\0ema_1/' ema.pt
    refused ema.pt "ema.pt: holds no state dict of a model: none of its values, and of those of model, module, state_dict and model_state_dict, is a tensor"
    printf '\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.' >old.pt
    refused old.pt "old.pt: a file of torch.save before PyTorch 1.6, or a bare pickle: load it and save it with a new version"
    # Another model, another optimizer.
    mics-plan --model=gpt2-nano --dtype=f32 --global-batch=4 topo.mp -o other.mp
    run --separate-stderr mics-shard split "$files/dcp" -p other.mp -o out
    [ "$status" = 3 ]
    mics-plan --model="$files/hf" --optimizer=lion --dtype=f32 --global-batch=4 --seq=8 topo.mp -o lion.mp
    run --separate-stderr mics-shard split "$files/dcp" -p lion.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == "mics-shard: $files/dcp: is of AdamW, the plan of Lion" ]]
    [ ! -e out ]
    # DeepSpeed: a rank's file is missing; the model is another one.
    cp -r "$files/ds0198-zero1-bf16-2" ds
    rm ds/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
    run --separate-stderr mics-shard split ds -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == "mics-shard: ds/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt: the file is missing" ]]
    run --separate-stderr mics-shard split "$files/ds0198-zero1-bf16-2" -p plan.mp -o out
    [ "$status" = 3 ]
    [[ $stderr == *"tensor 'wte.weight' does not belong to the model"* ]]
    [ ! -e out ]
}

# Merge to PyTorch's distributed checkpoints (--to=dcp). torch itself reads them in
# tests/reference/check_dcp.py.

@test "merge --to=dcp: split reads the same numbers, states and step, from one process and two" {
    requires jq
    mics-shard split "$files/dcp" -p plan.mp -o first
    mics-shard merge first --to=dcp -o out
    [ "$(ls -A out)" = $'.metadata\n__0_0.distcp' ]
    mics-shard split out -p plan.mp -o second
    mics-shard diff first second
    mics-shard verify second
    [ "$(mics-show --json second | jq -c '[.step, .states]')" = '[2,["param","m","v"]]' ]
    cmp first/shard-00000.safetensors second/shard-00000.safetensors
    cmp first/shard-00001.safetensors second/shard-00001.safetensors
    # The same file again, and from a checkpoint that is cut in another way.
    mics-plan --model="$files/hf" --strategy=ddp --dtype=f32 --global-batch=4 --seq=8 topo.mp -o ddp.mp
    mics-shard reshard first -p ddp.mp -o whole
    mics-shard merge whole --to=dcp -o again
    cmp out/__0_0.distcp again/__0_0.distcp
    cmp out/.metadata again/.metadata
    # Parameters only, and in another type.
    mics-shard split "$files/hf" -p plan.mp -o hf
    mics-shard merge hf --to=dcp --dtype=bf16 -o bf16
    mics-shard split bf16 -p plan.mp -o rounded
    mics-shard cast "$files/hf" --dtype=bf16 -o cast
    mics-shard split cast -p plan.mp -o wanted
    mics-shard diff wanted rounded
    [ "$(mics-show --json rounded | jq -c .states)" = '["param"]' ]
}

@test "merge --to=dcp: ranks write the same files as one process" {
    requires mpi:3
    mics-shard split "$files/dcp" -p plan.mp -o first
    mics-shard merge first --to=dcp -o one
    mpi 3 mics-shard merge first --to=dcp -o three
    diff -r one three
}

@test "merge --to=dcp: names are those of modules in transformers, tied heads are left out" {
    for model in gpt2 mixtral qwen3; do
        mics-plan --model="$BATS_TEST_DIRNAME/../reference/$model-tiny" --strategy=zero3 --global-batch=4 --seq=8 topo.mp -o $model.mp
        mics-shard split "$BATS_TEST_DIRNAME/../reference/$model-tiny" -p $model.mp -o $model
        mics-shard merge $model --to=dcp -o $model-dcp
        mics-shard split $model-dcp -p $model.mp -o $model-again
        mics-shard diff $model $model-again
    done
    grep -qa 'model\.transformer\.h\.0\.attn\.c_attn\.weight' gpt2-dcp/.metadata
    run grep -a 'lm_head' gpt2-dcp/.metadata
    [ "$status" = 1 ]
    grep -qa 'model\.model\.layers\.0\.block_sparse_moe\.experts\.1\.w2\.weight' mixtral-dcp/.metadata
    grep -qa 'model\.model\.layers\.0\.self_attn\.q_norm\.weight' qwen3-dcp/.metadata
}

@test "merge --to=dcp: what is not written is said, what cannot be is refused, and nothing is left" {
    requires mpi:2 perl
    mics-shard split "$files/dcp" -p plan.mp -o first
    refuses() # code text options...
    {
        run --separate-stderr mics-shard merge "${@:3}"
        [ "$status" = "$1" ]
        [[ ${stderr_lines[0]} == "mics-shard: $2"* ]] || { echo "$stderr"; false; }
    }
    mkdir taken
    touch taken/file
    refuses 2 "'taken' exists and is not an empty folder" first --to=dcp -o taken
    [ "$(ls -A taken)" = file ]
    refuses 2 "--to: 'pt': expected hf, gguf or dcp" first --to=pt -o out
    refuses 2 "--dtype=q8_0: only merge --to=gguf writes it" first --to=dcp --dtype=q8_0 -o out
    refuses 2 "--max-file: only of Hugging Face files" first --to=dcp --max-file=1M -o out
    refuses 2 "--base: merge --to=dcp writes no tokenizer's files" first --to=dcp --base=first -o out
    # A damaged shard.
    cp -r first damaged
    perl -e 'open my $f, "+<:raw", $ARGV[0] or die; seek $f, -3, 2; print $f "\x01"' damaged/shard-00001.safetensors
    refuses 3 "damaged" damaged --to=dcp -o out
    [ "$(find . -maxdepth 1 -name 'out*')" = "" ]
    # States of another optimizer are not written.
    perl -e 'srand 1; print pack "S<*", map { int rand 16 } 1 .. 4000' >ids.bin
    mics-plan --model="$files/hf" --optimizer=lion --strategy=zero3 --dtype=f32 --global-batch=4 --seq=8 topo.mp -o lion.mp
    MICS_NODE_RANKS=2 mpi 2 mics-train -p lion.mp --data=ids.bin --steps=2 --out=run --val-every=0 --sample=0
    run --separate-stderr mics-shard merge run --to=dcp -o lion
    [ "$status" = 0 ]
    [[ $stderr == "mics-shard: 'run/"*"': the states of Lion are not written: only those of AdamW" ]] || { echo "$stderr"; false; }
    mics-shard split lion -p lion.mp -o lion-again
    run --separate-stderr mics-shard diff run lion-again
    [ "$status" = 0 ]
    # Those of a run with AdamW are, and training goes on with them.
    MICS_NODE_RANKS=2 mpi 2 mics-train -p plan.mp --data=ids.bin --steps=2 --out=adamw --val-every=0 --sample=0
    mics-shard merge adamw --to=dcp -o adamw-dcp
    mics-shard split adamw-dcp -p plan.mp -o adamw-again
    mics-shard diff adamw adamw-again
}
