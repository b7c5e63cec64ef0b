#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-show: tables for people, tables for scripts, JSON, history, metrics.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR"
    cat >topology.json <<-'END'
	{"kind": "mics.topology", "v": 1, "name": "lab", "source": "measured", "nodes": 2, "per_node": 4,
	 "device": {"name": "host", "flops_per_s": 1e11, "flops_dtype": "f32",
	            "memory_bandwidth_bytes_per_s": 1e10, "memory_bytes": 4294967296, "cores": 2},
	 "links": {"node": {"latency_s": 1e-6, "bandwidth_bytes_per_s": 5e9, "samples": 30, "spread": 0.04},
	           "net": {"latency_s": 5e-5, "bandwidth_bytes_per_s": 1e9}},
	 "collectives": [{"collective": "all_reduce", "nodes": 2, "per_node": 1, "latency_s": 1e-4,
	                  "bandwidth_bytes_per_s": 2e8, "samples": 3}],
	 "later": {"version": [1, "two"]},
	 "history": [{"program": "mics-probe", "version": "0.1.0",
	              "argv": ["mics-probe", "--topology=node:2 gpu:4", "it's"]}]}
	END
}

@test "show: a topology is printed as tables" {
    run --separate-stderr mics-show topology.json
    [ "$status" = 0 ]
    [ "$stderr" = "" ]
    grep -qE '^cluster +lab$' <<<"$output"
    grep -qE '^ranks +8 = 2 nodes x 4$' <<<"$output"
    grep -qE '^memory per rank +4 GiB$' <<<"$output"
    grep -qE '^between nodes, whole node +50 us +1 GB/s +declared +-$' <<<"$output"
    grep -qE '^all_reduce +2 +1 +100 us +' <<<"$output"
}

@test "show: --tsv prints plain numbers by name" {
    mics-show --tsv topology.json >tables
    [ "$(awk -F '\t' '$1 == "memory_bytes" { print $2 }' tables)" = 4294967296 ]
    [ "$(awk -F '\t' '$1 == "net" { print $3 }' tables)" = 1000000000 ]
    run ! grep -q 'GiB' tables
}

@test "show: --json prints the document with unknown members and history, and is read back" {
    mics-show --json topology.json >once.json
    mics-show --json <once.json >twice.json
    cmp once.json twice.json
    grep -q '"later"' once.json
    [ "$(grep -c '"program"' once.json)" = 1 ]
}

@test "show: msgpack and JSON of one document are printed alike" {
    # {"kind":"k","v":1,"a":[true,-5,"x"]}
    printf '\x83\xa4kind\xa1k\xa1v\x01\xa1a\x93\xc3\xfb\xa1x' >small.mp
    mics-show --json -o small.json small.mp
    mics-show small.mp >one
    mics-show small.json >two
    cmp one two
}

@test "show: a document of an unknown kind is printed as a tree of its members" {
    echo '{"kind": "mics.future", "v": 9, "a": {"b": [1.5, "text"], "none": null}, "empty": []}' >doc.json
    run mics-show --tsv doc.json
    [ "$status" = 0 ]
    [ "${lines[2]}" = $'a.b[0]\t1.5' ]
    [ "${lines[3]}" = $'a.b[1]\ttext' ]
    [ "${lines[4]}" = $'a.none\tnull' ]
    [ "${lines[5]}" = $'empty\t0 items' ]
    run mics-show doc.json
    [ "$status" = 0 ]
    grep -qE '^    \[1\] +text$' <<<"$output"
}

@test "show: control characters of a document do not reach the terminal" {
    printf '{"kind": "k", "v": 1, "a\\u001b[2J": "\\u001b]0;x\\u0007"}' >doc.json
    mics-show doc.json >out
    run ! grep -q $'\x1b' out
    grep -qF '?]0;x?' out
    mics-show --tsv doc.json >out
    run ! grep -q $'\x1b' out
}

@test "show: --history prints the commands, quoted for a shell" {
    run mics-show --history topology.json
    [ "$status" = 0 ]
    [[ ${lines[1]} == "mics-probe  0.1.0    mics-probe '--topology=node:2 gpu:4' 'it'\''s'" ]]
}

@test "show: several files have headings, and standard input can be one of them" {
    run --separate-stderr mics-show topology.json - <topology.json
    [ "$status" = 0 ]
    [ "$(grep -c '^==> .* <==$' <<<"$output")" = 2 ]
    [ "$(grep -c '^cluster ' <<<"$output")" = 2 ]
}

@test "show: --json and --tsv take one file" {
    for option in --json --tsv; do
        run --separate-stderr mics-show "$option" topology.json topology.json
        usage_mistake mics-show
    done
    run --separate-stderr mics-show --json --history topology.json
    usage_mistake mics-show
}

@test "show: -o writes the file completely or not at all" {
    mics-show -o table.txt topology.json
    mics-show topology.json | cmp - table.txt
    echo '{"kind": "mics.topology", "v": 1}' >bad.json
    run --separate-stderr mics-show -o table.txt bad.json
    one_line_and_code 3
    mics-show topology.json | cmp - table.txt
    [ -z "$(ls -- *.tmp.* 2>/dev/null)" ]
    run --separate-stderr mics-show -o "$BATS_TEST_TMPDIR/none/table.txt" topology.json
    one_line_and_code 1
}

@test "show: an error names the file and the path" {
    sed 's/5e9/"fast"/' topology.json >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    [ "$stderr" = "mics-show: bad.json: links.node.bandwidth_bytes_per_s: expected a number, found a string" ]
    run --separate-stderr mics-show --history <<<'{"kind": "k", "v": 1, "history": [{"program": 5}]}'
    one_line_and_code 3
    [ "$stderr" = "mics-show: standard input: history[0].program: expected a string, found a number" ]
}

# 100 steps whose loss falls from 5 to 3.02, validated twice; steps from 60 on are repeated from a checkpoint.
metrics()
{
    echo '{"event":"run","model":"gpt2-nano"}'
    awk 'BEGIN { for (i = 1; i <= 70; i++) {
        printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"lr\":0.001,\"grad_norm\":1,\"step_ms\":%d,\"tokens_per_s\":900}\n", i, 9, 10 } }'
    echo '{"event":"run","model":"gpt2-nano"}'
    awk 'BEGIN { for (i = 1; i <= 100; i++) {
        if (i == 51) print "{\"event\":\"val\",\"step\":50,\"loss\":4.5,\"tokens\":9,\"ms\":1}"
        printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"lr\":0.001,\"grad_norm\":null,\"step_ms\":%d,\"tokens_per_s\":1000}\n", i, 5.02 - i / 50, i } }'
    echo '{"event":"val","step":100,"loss":3.5,"tokens":9,"ms":1}'
    echo '{"event":"checkpoint","step":100,"path":"run/step-000100","bytes":5,"ms":1}'
    echo '{"event":"news","of":"a later version"}'
    echo '{"event":"end","step":100,"reason":"done"}'
}

@test "show: metrics are summarised, and repeated steps count once" {
    metrics >run.jsonl
    mics-show --tsv run.jsonl >tables
    value() { awk -F '\t' -v name="$1" '$1 == name { print $'"${2:-2}"' }' tables; }
    [ "$(value steps)" = 100 ]
    [ "$(value runs)" = 2 ]
    [ "$(value last_line_cut)" = false ]
    [ "$(value validation.best_loss)" = 3.5 ]
    [ "$(value validation.best_step)" = 100 ]
    [ "$(value checkpoint.path)" = run/step-000100 ]
    [ "$(value end.reason)" = "done" ]
    [ "$(value loss)" = 5 ]
    [ "$(value loss 3)" = 3.02 ]
    [ "$(value loss 7)" = 3.51 ]
    [ "$(value step_ms 5)" = 51 ]
    [ "$(value grad_norm)" = - ]
    mics-show run.jsonl | grep -qE '^ +91 +100 +3.11 +3.5 '
}

@test "show: metrics as JSON are a document" {
    metrics | mics-show --json >metrics.json
    mics-show metrics.json >one
    metrics | mics-show >two
    cmp one two
}

@test "show: an incomplete last line of metrics is ignored" {
    metrics | head -c -12 >run.jsonl
    mics-show --tsv run.jsonl | grep -q '^last_line_cut	true$'
}

@test "show: lines of metrics that cannot be read are left out and counted, also the first" {
    metrics | sed -e '5s/loss/loss"/' -e '7s/"step":6/"step":"6"/' >bad.jsonl
    run -0 --separate-stderr mics-show --tsv bad.jsonl
    [ "$stderr" = "mics-show: bad.jsonl: left out 2 lines that cannot be read, the first of them line 5" ]
    [[ $output == *$'bad_lines\t2\n'* && $output == *$'steps\t100\n'* ]]
    metrics | sed '1s/"run"/"ru/' >bad.jsonl
    run -0 --separate-stderr mics-show --tsv bad.jsonl
    [[ $stderr == *"left out 1 line that cannot be read, the first of them line 1" ]]
}

@test "show: a plan is tables of the choice, memory by region, the step, and the alternatives" {
    mics-plan --model=gpt2 --seq=512 --global-batch=64 --topology=p4d.24xlarge:2 --strategy=mics:16 >plan.mp
    run --separate-stderr mics-show plan.mp
    [ "$status" = 0 ]
    [ "$stderr" = "" ]
    grep -qE '^model +gpt2: 124 M parameters, 12 layers of 768' <<<"$output"
    grep -qE '^strategy +mics:16$' <<<"$output"
    grep -qE '^partition group +16 ranks: 2 nodes x 8$' <<<"$output"
    grep -qE '^replication group +1 copy ' <<<"$output"
    grep -qE '^batch +64 sequences of 512 = 16 ranks x [0-9]+ x [0-9]+ micro-steps?$' <<<"$output"
    grep -qE '^= arena +[0-9.]+ [KMG]iB +[0-9.]+ %$' <<<"$output"
    grep -qE '^limit +38.3 GiB +100.0 %$' <<<"$output"
    grep -qE '^predicted step +[0-9.]+ m?s, [0-9.]+ to [0-9.]+$' <<<"$output"
    grep -qE '^exposed communication +[0-9.]+ [mu]?s$' <<<"$output"
    grep -qE '^fits +batch +recompute +memory +step +tokens/s +MFU +exposed +net/node ' <<<"$output"
    grep -qE '^mics:16 .* chosen$' <<<"$output"
    grep -qE '^MFU: 6N \+ 6LCT FLOPs per token, of 312 TFLOP/s per rank,$' <<<"$output"
    grep -qE "^ +the vendor's peak in bf16$" <<<"$output"
}

@test "show: a plan's regions add up to its arena, also with --tsv" {
    mics-plan --model=gpt2 --seq=512 --global-batch=64 --topology=p4d.24xlarge:2 >plan.mp
    mics-show --tsv plan.mp >tables
    sum=$(awk -F '\t' '$1 == "region" { on = 1; next } $1 == "arena" { exit } on { sum += $2 } END { printf "%.0f", sum }' tables)
    [ "$sum" = "$(awk -F '\t' '$1 == "arena" { print $2 }' tables)" ]
    [ "$sum" -gt 1000000 ]
    [ "$(awk -F '\t' '$NF == "chosen"' tables | wc -l)" = 1 ]
}

@test "show: a plan with other than the computed memory exits 3" {
    mics-plan --model=gpt2-nano --seq=64 --json --topology='node:1 gpu:2' >plan.json
    sed -E 's/("arena_bytes": )[0-9]+/\14096/' plan.json >lie.json
    run --separate-stderr mics-show lie.json
    one_line_and_code 3
}

# A manifest as mics-train writes it, in JSON; the plan in it is not read.
manifest()
{
    sealed <<-'END'
	{"kind": "mics.checkpoint", "v": 2, "step": 400, "samples": 3200, "since": {"step": 0, "samples": 0},
	 "shape": {"nodes": 2, "per_node": 2, "p_param": 2, "p_grad": 2, "p_optim": 2},
	 "model": {"family": "gpt2", "name": "gpt2-nano"}, "states": ["param", "m", "v"],
	 "files": [{"name": "shard-00000.safetensors", "bytes": 1048576, "xxh64": "00000000000000ff"},
	           {"name": "shard-00001.safetensors", "bytes": 1048576, "xxh64": "0123456789abcdef"}],
	 "training": {"settings": {"lr": 0.001, "seed": 1}, "data": {"documents": 7}},
	 "units": [], "plan": {"kind": "mics.plan", "v": 1}, "history": []}
	END
}

@test "show: a checkpoint is found by its folder, its manifest, or the run's folder" {
    mkdir -p run/step-000400
    manifest >run/step-000400/manifest.mp
    ln -s step-000400 run/latest
    mics-show run/step-000400/manifest.mp >one
    mics-show run/step-000400 | cmp - one
    mics-show run | cmp - one
    grep -qE '^model +gpt2-nano$' one
    grep -qE '^steps done +400$' one
    grep -qE '^bytes +2 MiB$' one
    grep -qE '^ +lr +0.001$' one
    grep -qE '^shard-00001.safetensors +1 MiB +0123456789abcdef$' one
    mics-show --tsv run >tables
    [ "$(awk -F '\t' '$1 == "bytes" { print $2 }' tables)" = 2097152 ]
    [ "$(awk -F '\t' '$1 == "training.data.documents" { print $2 }' tables)" = 7 ]
}

@test "show: the folder of a run tells what happened, and without its plan only that" {
    mkdir run
    metrics >run/metrics.jsonl
    run -0 --separate-stderr mics-show run
    [[ ${stderr_lines[0]} == "mics-show: predicted times are not shown: run/plan.mp: "* ]]
    grep -qE '^model +gpt2-nano, ' <<<"$output"
    grep -qE '^state +done at step 100$' <<<"$output"
    grep -qE '^restarts +1, 1 of them after a failure$' <<<"$output"
    grep -qE '^validation +loss 3.5000 at step 100; lowest 3.5000 at step 100$' <<<"$output"
    grep -qE '^saved +1 time, last run/step-000100, 5 B$' <<<"$output"
    grep -qE '^ms per step ' <<<"$output"
    metrics | grep -v '"end"' >run/metrics.jsonl
    mics-show run 2>/dev/null >killed
    grep -qE '^state +running or killed at step 100$' killed
    [ "$(mics-show --json run 2>/dev/null | jq -c '[.runs, .ends, .check]')" = '[2,0,null]' ]
}

@test "show: each restart is told with its time, its step and its reason" {
    mkdir run
    cat >run/metrics.jsonl <<'END'
{"event":"run","time":1795408010,"after_step":0,"model":"gpt2-nano"}
{"event":"step","step":1,"loss":5}
{"event":"step","step":2,"loss":5}
{"event":"run","time":1795408013,"restart":1,"restart_reason":"exit status 1: rank 1 (n2) died\u001b","after_step":1,"model":"gpt2-nano"}
{"event":"step","step":2,"loss":5}
{"event":"end","step":2,"reason":"stopped"}
{"event":"run","time":1795408099,"after_step":2,"state_from":"memory","model":"gpt2-nano"}
{"event":"step","step":3,"loss":5}
{"event":"run","time":"soon","after_step":[],"restart":"x","model":"gpt2-nano"}
END
    run -0 --separate-stderr mics-show run
    grep -qx 'restarts  3, 2 of them after a failure' <<<"$output"
    grep -qx 'restarted (UTC)      from step  in      because' <<<"$output"
    grep -qx '2026-11-23 04:26:53          1  -       exit status 1: rank 1 (n2) died?' <<<"$output"
    grep -qx '2026-11-23 04:28:19          2  memory  stopped after step 2' <<<"$output"
    grep -qx -- '-                            -  -       killed or failed after step 3' <<<"$output"
    run -0 --separate-stderr mics-show --tsv run
    grep -qx $'1795408013\t1\t-\texit status 1: rank 1 (n2) died?' <<<"$output"
}

@test "show: ranks that were slow are told with what they were slow in and what it cost" {
    mkdir run
    cat >run/metrics.jsonl <<'END'
{"event":"run","time":1795408010,"after_step":0,"model":"gpt2-nano"}
{"event":"step","step":22,"loss":5}
{"event":"slow","step":22,"rank":5,"ranks":1,"host":"gpu03","what":"computing","ms":118.2,"others_ms":92,"cost":0.214}
{"event":"slow","step":42,"rank":8,"ranks":8,"host":"gpu\u001b04","what":"reading data","ms":1500,"others_ms":0.5,"cost":0.9}
{"event":"slow","step":62,"rank":8,"ranks":8,"host":"gpu04","what":"sending to gpu05","bytes_per_s":5e6,"others_bytes_per_s":25e6,"cost":0.18}
{"event":"slow","step":"x","rank":[],"ranks":-1,"cost":"much"}
END
    run -0 --separate-stderr mics-show run
    grep -qx 'slow rank     host    from step  in                       it      others  cost' <<<"$output"
    grep -qx '5             gpu03          22  computing            118 ms       92 ms  21 %' <<<"$output"
    grep -qx '8 and 7 more  gpu?04         42  reading data          1.5 s      500 us  90 %' <<<"$output"
    grep -qx '8 and 7 more  gpu04          62  sending to gpu05  40 Mbit/s  200 Mbit/s  18 %' <<<"$output"
    grep -qx '0 items       ?               x  ?                         -           -   0 %' <<<"$output"
    run -0 --separate-stderr mics-show --tsv run
    grep -qx $'5\t1\tgpu03\t22\tcomputing\t118.2\t92\t-\t-\t0.214' <<<"$output"
    [ "$(mics-show --json run | jq -c '.slow | length, .[0].rank')" = $'4\n5' ]
    echo '{"event":"step","step":1,"loss":5}' >run/metrics.jsonl
    mics-show run >none
    ! grep -q slow none || false
}

@test "show: a folder without a checkpoint and a malformed manifest are refused" {
    mkdir empty bad
    run --separate-stderr mics-show empty
    one_line_and_code 3
    manifest | sed 's/"00000000000000ff"/"ff"/' | sealed >bad/manifest.mp
    run --separate-stderr mics-show bad
    one_line_and_code 3
    [[ $stderr == "mics-show: bad/manifest.mp: files[0].xxh64: "* ]]
}
