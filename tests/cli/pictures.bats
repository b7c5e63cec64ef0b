#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-show --gnuplot and --dot: pictures of every kind of document, drawn by gnuplot and Graphviz.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR"
}

# Draw in characters; gnuplot says nothing.
dumb() # mics-show's arguments...
{
    mics-show --gnuplot --terminal=dumb "$@" >script
    gnuplot script >drawn 2>said || { cat said; return 1; }
    if [ -s said ]; then cat said; return 1; fi
}

plan() # nodes options...
{
    local nodes=$1
    shift
    mics-plan --model=gpt2-xl --topology="p4d:$nodes" --global-batch=$((64 * nodes)) --seq=1024 "$@"
}

# A topology with a slow rank, a slow link, and a node to leave out.
slow_cluster() # nodes
{
    cat <<-END
	{"kind": "mics.topology", "v": 1, "name": "rented", "source": "measured", "nodes": $1, "per_node": 8,
	 "device": {"name": "NVIDIA A100 80GB", "flops_per_s": 271e12, "flops_dtype": "bf16",
	            "memory_bandwidth_bytes_per_s": 1.7e12, "memory_bytes": 84000000000},
	 "links": {"node": {"latency_s": 2e-6, "bandwidth_bytes_per_s": 225e9, "samples": 30, "spread": 0.04},
	           "net": {"latency_s": 5e-5, "bandwidth_bytes_per_s": 30e9, "samples": 20, "spread": 0.1}},
	 "collectives": [{"collective": "all_gather", "nodes": 1, "per_node": 8, "latency_s": 2e-5,
	                  "bandwidth_bytes_per_s": 2e11, "samples": 3,
	                  "points": [[1024, 2e-5], [1048576, 3e-5], [67108864, 4e-4]]},
	                 {"collective": "all_gather", "nodes": 2, "per_node": 8, "latency_s": 1e-4,
	                  "bandwidth_bytes_per_s": 3e10, "samples": 3}],
	 "hosts": [$(seq -f '"gpu-%.0f"' -s, 0 $(($1 - 1)))],
	 "outliers": [{"what": "flops", "where": "rank 29", "host": "gpu-3", "value": 9e13, "median": 2.7e14,
	               "times_slower": 3},
	              {"what": "net_link", "where": "ranks 48 and 8", "host": "gpu-6 gpu-1", "value": 0.1,
	               "median": 0.02, "times_slower": 5}],
	 "bad_nodes": [3]}
	END
}

@test "pictures: a plan is memory and throughput by shards" {
    requires gnuplot
    plan 4 >plan.mp
    dumb plan.mp
    grep -q 'Memory of a rank: gpt2-xl on p4d.24xlarge, 4 nodes x 8' drawn
    grep -q 'Predicted throughput: gpt2-xl on p4d.24xlarge, 4 nodes x 8' drawn
    grep -q 'chosen' drawn
    grep -q 'limit' drawn
    # The bars are what the table says: of each, the parts are the whole.
    mics-show --tsv plan.mp | sed -n '/^strategy	p_param/,$p' >table
    sed -n '/^\$strategy/,/^END/p' script | sed '1d; $d' | cmp - table
    awk -F '\t' 'NR > 1 { rows++; parts = $21 + $22 + $23 + $24 + $25 + $26 + $27
        if (parts < .999 * $13 || parts > 1.001 * $13) exit 1 } END { exit rows < 3 }' table
}

@test "pictures: each terminal is drawn, to standard output" {
    requires gnuplot
    plan 1 >plan.mp
    for terminal in png svg pdf; do
        mics-show --gnuplot --terminal=$terminal plan.mp | gnuplot >picture 2>said
        [ ! -s said ] || skip "gnuplot without terminal $terminal: $(head -1 said)"
        case $terminal in
        png) [ "$(head -c4 picture | tail -c3)" = PNG ] ;;
        svg) grep -q '</svg>' picture ;;
        pdf) [ "$(head -c4 picture)" = %PDF ] ;;
        esac
    done
    mics-show --gnuplot plan.mp >script
    gnuplot -e "set terminal dumb 200, 60; set output 'own'" script
    grep -q 'Memory of a rank' own
}

@test "pictures: several plans are throughput by nodes" {
    requires gnuplot
    for nodes in 1 2 4; do
        plan $nodes --strategy=mics:8 -o "mics$nodes.mp"
        plan $nodes --strategy=zero3 -o "zero$nodes.mp"
    done
    dumb --plot=rank_throughput zero1.mp mics4.mp mics1.mp zero4.mp mics2.mp zero2.mp
    grep -q 'gpt2-xl on p4d.24xlarge' drawn
    grep -q 'mics' drawn
    grep -q 'zero3' drawn
    [ "$(grep -cE '^(1|2|4)	8	[0-9]' script)" = 6 ]
    mics-probe --topology=p4d:2 >topo.mp
    run --separate-stderr mics-show --gnuplot mics1.mp topo.mp
    one_line_and_code 2
    [ "$stderr" = "mics-show: topo.mp: a picture of several files needs plans, not mics.topology" ]
}

@test "pictures: collectives of four ranks are curves by algorithm with the fit" {
    requires gnuplot mpi:4
    MICS_NODE_RANKS=2 mpi 4 mics-bench -b 4K -e 64K --iters=3 --op=all_gather --group=world -o bench.mp
    dumb bench.mp
    grep -q 'all_gather, group world: 2 nodes x 2' drawn
    grep -q 'hierarchical' drawn
    grep -q 'fit' drawn
}

@test "pictures: a topology is its links and its measured collectives" {
    requires gnuplot
    slow_cluster 8 >topo.json
    dumb topo.json
    grep -q 'Links: rented, 8 nodes x 8' drawn
    grep -q 'all_gather: rented' drawn
    dumb --plot=links topo.json
    [ "$(wc -l <drawn)" -le 26 ]
    mics-probe --topology=gpu:1 >one.mp
    run --separate-stderr mics-show --gnuplot one.mp
    one_line_and_code 4
    [ "$stderr" = "mics-show: one.mp: one rank has no links to draw" ]
}

metrics() # steps
{
    echo '{"event":"run","model":"gpt2-nano","strategy":"mics","world_size":4}'
    awk -v steps="$1" 'BEGIN { for (i = 1; i <= steps; i++) {
        printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"tokens_per_s\":%d}\n", i, 2 + 3 * exp(-i / 50), 42000
        if (i % 100 == 0) printf "{\"event\":\"val\",\"step\":%d,\"loss\":%g}\n", i, 2.2 + 3 * exp(-i / 50) } }'
}

@test "pictures: metrics are losses and throughput; many steps become means" {
    requires gnuplot
    metrics 300 >run.jsonl
    dumb run.jsonl
    grep -q 'Loss: gpt2-nano, mics, 4 ranks' drawn
    grep -q 'validation' drawn
    mics-show --gnuplot --terminal=svg run.jsonl | gnuplot | grep -q 'thousand tokens/s'
    sed '/"step"/s/}$/,"sync_bytes":250000,"exact_sync_bytes":1000000}/' run.jsonl >sync.jsonl
    dumb --plot=second_hops sync.jsonl
    grep -q 'Second hops: gpt2-nano, mics, 4 ranks' drawn
    grep -q 'exact, in every step' drawn
    sed '/"step"/s/}$/,"expert_load":2.5,"router_entropy":1.25}/' run.jsonl >experts.jsonl
    dumb --plot=experts experts.jsonl
    grep -q 'Load of experts: gpt2-nano, mics, 4 ranks' drawn
    run --separate-stderr mics-show --gnuplot --plot=second_hops experts.jsonl
    [ "$status" -ne 0 ]
    run --separate-stderr mics-show --gnuplot --plot=second_hops run.jsonl
    [ "$status" -ne 0 ]
    metrics 5000 >run.jsonl
    dumb --plot=loss run.jsonl
    grep -q 'training, mean of 2.5 steps' drawn
    [ "$(sed -n '/^\$first/,/^END/p' script | wc -l)" = 2003 ]
    echo '{"event":"run","model":"x"}' >run.jsonl
    run --separate-stderr mics-show --gnuplot run.jsonl
    one_line_and_code 4
}

@test "pictures: hostile names are drawn, not executed" {
    requires gnuplot dot
    cat >topo.json <<'END'
{"kind": "mics.topology", "v": 1, "name": "a''b\"`touch H1`%s@y\\\n^{q};!touch H2", "source": "measured",
 "nodes": 2, "per_node": 2,
 "device": {"name": "<b>&amp;\\N\"];}", "flops_per_s": 1e12, "flops_dtype": "bf16",
            "memory_bandwidth_bytes_per_s": 1e12, "memory_bytes": 84000000000},
 "links": {"node": {"latency_s": 2e-6, "bandwidth_bytes_per_s": 2e11},
           "net": {"latency_s": 5e-5, "bandwidth_bytes_per_s": 3e10}},
 "hosts": ["n\"];}digraph{", "';`touch`"]}
END
    dumb topo.json
    grep -qF "a''b\"\`touch H1\`%s@y\\?^{q};!touch H2" drawn
    mics-show --dot topo.json | dot -Tsvg >picture
    grep -q '</svg>' picture
    grep -qF 'digraph{' picture
    mics-plan --model=gpt2-nano --global-batch=4 --seq=64 topo.json >plan.mp
    dumb plan.mp
    mics-show --json plan.mp | jq '.model.name = "END`touch H3`" | .choice.strategy = "END`touch H3`"
        | .alternatives[].choice.strategy = "END;!touch H4"' >hostile.json
    dumb hostile.json
    mics-show --gnuplot --terminal=dumb plan.mp hostile.json | gnuplot >drawn 2>said # one number of nodes
    grep -qF 'END`touch H3`' drawn
    metrics 3 | sed "s/gpt2-nano/'\`touch H5\`\\\\n%d/" | mics-show --gnuplot --terminal=dumb | gnuplot >drawn
    [ -z "$(ls H* 2>/dev/null)" ]
}

@test "pictures: a cluster is a graph; links have the colour of what they reach" {
    requires dot
    slow_cluster 8 >topo.json
    mics-show --dot --expect=p4de topo.json >graph
    dot -Tsvg graph >picture
    grep -q 'gpu.*3: to leave out' picture
    grep -q '3.0 x slower' picture
    # 225 of 240 GB/s, 30 of what four cards of 12.5 GB/s reach, and a fifth of that
    grep -qE 'r0 -- l0 \[color="#1a8f4a".*' graph
    share=$(mics-probe --list=p4de --tsv | awk -F '\t' '$1 == "net_reached" { printf "%.0f", 100 * 30 / (50 * $2) }')
    grep -qE "c2 -- network \[color=\"#f08c00\", label=\" 30 GB/s, $share % \"\]" graph
    grep -qE "c6 -- network \[color=\"#d02020\", penwidth=4, label=\" 6 GB/s, $((share / 5)) % \"\]" graph
    [ "$(grep -c 'subgraph cluster_n' graph)" = 8 ]
    mics-show --dot topo.json >graph
    grep -q 'of the median link' graph
    mics-probe --topology=p4d:2 | mics-show --dot >graph
    grep -q 'declared, not measured' graph
    [ "$(grep -c '4 cards, 100 Gbit/s each' graph)" = 2 ]
}

@test "pictures: alike nodes of a large cluster become one" {
    requires dot
    slow_cluster 1024 >topo.json
    mics-show --dot topo.json >graph
    dot -Tsvg graph >picture
    grep -q 'gpu.*0 and 1020 alike (x 1021)' picture
    [ "$(grep -c 'subgraph cluster_n' graph)" = 4 ]
}

@test "pictures: the groups of a plan are clusters, replication groups edges" {
    requires dot
    plan 4 --strategy=mics:16 | mics-show --dot >graph
    dot -Tsvg graph >picture
    [ "$(grep -c 'subgraph cluster_group' graph)" = 2 ]
    [ "$(grep -c 'subgraph cluster_node' graph)" = 4 ]
    [ "$(grep -cE '^ +r[0-9]+ -- r[0-9]+' graph)" = 16 ]
    grep -q 'rank 8.*shard 1"' graph
    plan 32 --strategy=mics:8 | mics-show --dot >graph
    dot -Tsvg graph >picture
    grep -q '29 more groups' picture
    run ! grep -q 'r0 --' graph
    plan 1 --strategy=zero3 | mics-show --dot | dot -Tsvg >picture
    grep -q 'each rank holds another shard' picture
}

@test "pictures: what cannot be drawn is one line" {
    echo '{"kind": "mics.future", "v": 1}' >doc.json
    for option in --gnuplot --dot; do
        run --separate-stderr mics-show $option doc.json
        one_line_and_code 4
        [[ $stderr == "mics-show: doc.json: $option draws "*", not a document of kind mics.future" ]]
    done
    plan 1 >plan.mp
    run --separate-stderr mics-show --gnuplot --plot=cost plan.mp
    one_line_and_code 2
    [ "$stderr" = "mics-show: --plot: 'cost': no such picture; there is memory, throughput" ]
    mics-probe --topology=p4d:2 >topo.mp
    run --separate-stderr mics-show --dot --expect=p4x topo.mp
    one_line_and_code 2
    for options in '--gnuplot --dot' '--gnuplot --json' '--dot --tsv' '--plot=memory' '--terminal=png' \
        '--gnuplot --terminal=x11' '--expect=p4d'; do
        # shellcheck disable=SC2086 # words are wanted
        run --separate-stderr mics-show $options plan.mp
        usage_mistake mics-show
    done
    run --separate-stderr mics-show --gnuplot -o "$BATS_TEST_TMPDIR/none/script" plan.mp
    one_line_and_code 1
}
