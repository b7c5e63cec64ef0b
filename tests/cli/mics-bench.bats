#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-bench: measurements, output, comparison with an earlier run, invalid input.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return 1
    export MICS_NODE_RANKS=2
}

# Short: few iterations, no search for outliers. Four ranks on two nodes.
bench() # option...
{
    mpi 4 mics-bench -n 3 -w 1 --outliers=0 "$@"
}

@test "the table has the columns of nccl-tests, and nothing is wrong" {
    requires mpi:4
    run --separate-stderr bench -b 4K -e 1M -f 256 --op=all_gather,reduce_scatter --group=world
    [ "$status" = 0 ]
    [[ ${lines[0]} == "# all_gather, world: 4 ranks (2 nodes x 2), 1 group side by side" ]]
    [ "$(awk 'NR == 2 { $1 = $1; print }' <<<"$output")" = "# out of place in place" ]
    [ "$(awk 'NR == 3 { $1 = $1; print }' <<<"$output")" = \
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong algo" ]
    [ "$(awk 'NR == 4 { $1 = $1; print }' <<<"$output")" = "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)" ]
    # size count type redop root time algbw busbw wrong, in place, algorithm: of 2 sizes, 2 operations, 3 algorithms
    rows=$(grep -cE '^ *[0-9]+ +[0-9]+ +float +(none|sum) +-1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +(flat|hierarchical|mpi)$' <<<"$output")
    [ "$rows" = 12 ]
}

# Lines of standard input that are longer than 120 columns.
too_long()
{
    awk 'length > 120'
}

@test "no line of the table is longer than 120 columns" {
    requires mpi:4 jq
    bench -b 4K -e 1M -f 256 --partition=4 --group=world,node,partition,network -o bench.mp
    mics-show bench.mp >table
    grep -q hierarchical table
    grep -q '^# sync, world' table
    [ -z "$(too_long <table)" ]
    # Every name in every column, the largest sizes, long times, and more wrong elements than fit
    # their column.
    mics-show --json bench.mp | jq '.rows |= map(
        .group = "replication" | .op = "reduce_scatter" | .algo = "hierarchical" |
        .bytes = 399999999996 | .count = 99999999999 | .nodes = 1000 | .per_node = 100 | .groups = 10000 |
        .time_s = 99.4 | .min_s = 12.34 | .median_s = 99.4 | .p99_s = 99.4 | .wrong = 987654321987 |
        .slowest_rank = 99999)' >long.json
    mics-show long.json >table
    [ "$(grep -c hierarchical table)" -gt 20 ]
    [ -z "$(too_long <table)" ]
    jq '.rows |= map(.time_s = 1e-6 | .bytes = 12345)' long.json >fast.json # more than 10 GB/s, less than 0.1 ms
    mics-show fast.json | too_long >table
    [ ! -s table ]
}

@test "the table ends with the average bus bandwidth of all rows, out of place and in place" {
    requires mpi:4
    bench -b 4K -e 1M -f 256 --op=all_reduce,sync --partition=2 -o bench.mp
    average=$(mics-show bench.mp | tail -n 1)
    [[ $average =~ ^'# Avg bus bandwidth    : '[0-9.e-]+$ ]]
    [ "$(mics-show bench.mp | grep -c '^# Avg bus bandwidth')" = 1 ]
    mics-show --tsv bench.mp | awk -F'\t' -v average="${average##* }" '
        NR > 1 { sum += $17 / 1e9; places[$4] = 1; ops[$1] = 1 }
        END {
            off = average / (sum / (NR - 1)) - 1
            exit off > 1e-5 || off < -1e-5 || length(places) != 2 || length(ops) != 2 }'
}

@test "every operation, algorithm and group gives exact results" {
    requires mpi:4
    bench -b 1K -e 2M -f 64 --partition=2 --group=world,node,partition,replication,network --tsv >all.tsv
    [ "$(head -1 all.tsv | cut -f18)" = wrong ]
    [ "$(tail -n +2 all.tsv | cut -f18 | sort -u)" = 0 ]
    for word in all_gather reduce_scatter all_reduce all_to_all sync hierarchical mpi 2-hop 1-hop world node partition replication network; do
        grep -q "$word" all.tsv
    done
}

@test "a partition that spans nodes is gathered by stages and synchronised" {
    requires mpi:4
    bench -b 300K -e 300K --partition=4 --group=world,partition,network --tsv >all.tsv
    [ "$(tail -n +2 all.tsv | cut -f18 | sort -u)" = 0 ]
    [ "$(awk -F'\t' '$2 == "partition" && $3 == "hierarchical"' all.tsv | wc -l)" = 4 ]
    [ "$(awk -F'\t' '$1 == "sync"' all.tsv | wc -l)" = 2 ]
}

@test "an all-to-all is measured out of place, by our messages and by MPI's" {
    requires mpi:4
    bench -b 1K -e 1M -f 32 --op=all_to_all --group=world,node,network -o bench.mp
    mics-show --tsv bench.mp >all.tsv
    [ "$(tail -n +2 all.tsv | cut -f1 | sort -u)" = all_to_all ]
    [ "$(tail -n +2 all.tsv | cut -f18 | sort -u)" = 0 ]
    # 2 algorithms of 3 groups in 3 sizes; nothing in place
    [ "$(tail -n +2 all.tsv | cut -f2,3 | sort -u | wc -l)" = 6 ]
    mics-show bench.mp | awk '$1 ~ /^[0-9]+$/ {
        rows++
        if ($4 != "none" || $10 != "-" || $13 != "-") bad = 1 }
        END { exit bad || rows != 18 }'
}

@test "bus bandwidth follows from size and time" {
    requires mpi:4
    bench -b 64K -e 64K --group=world --algo=flat --tsv >all.tsv
    tail -n +2 all.tsv | awk -F'\t' '
        { factor = $1 == "all_reduce" ? 1.5 : 0.75; want = $9 / $11; off = $16 / want - 1; bus = $17 / (want * factor) - 1 }
        off > 1e-6 || off < -1e-6 || bus > 1e-6 || bus < -1e-6 { bad = 1 }
        END { exit bad || NR != 7 }'
}

@test "a plan gives the size of the partition groups" {
    requires mpi:4
    mics-probe --topology='node:2 gpu:2 flops:100G mem:4G' |
        mics-plan --model=gpt2-nano --global-batch=8 --seq=64 --strategy=mics:2 >plan.mp
    bench -b 8K -e 8K --op=all_gather --tsv plan.mp >all.tsv
    grep -q '^all_gather	partition	flat' all.tsv
    bench -b 8K -e 8K --op=all_gather --tsv - <plan.mp | grep -q '^all_gather	replication	flat'
}

@test "a document for another cluster is refused in one line" {
    requires mpi:4
    mics-probe --topology='node:3 gpu:2' >topo.mp
    run --separate-stderr bench topo.mp
    [ "$status" = 3 ]
    [ "$(grep -c '^mics-bench: topo.mp: is for 3 x 2 ranks, but these are 2 x 2$' <<<"$stderr")" = 1 ]
    echo '{"kind": "mics.topology", "v": 1}' >topo.json
    run --separate-stderr bench topo.json
    [ "$status" = 3 ]
    [ "$(grep -c '^mics-bench: topo.json: ' <<<"$stderr")" = 1 ]
}

@test "mics-show prints the document" {
    requires mpi:4
    bench -b 4K -e 4K --op=all_reduce --group=node -o bench.mp
    mics-show bench.mp >table
    grep -q '^# all_reduce, node: 2 ranks (1 node x 2), 2 groups side by side' table
    mics-show --json bench.mp >bench.json
    grep -q '"kind": "mics.bench"' bench.json
    grep -q '"program": "mics-bench"' bench.json
    [ "$(mics-show --tsv bench.json | wc -l)" = 5 ]
}

@test "a regression is reported and exits 4" {
    requires mpi:4
    bench -b 64K -e 64K --op=all_gather --group=world --algo=flat --json >now.json
    # An earlier run that took a thousandth of the time, and one that took a thousand times as long.
    sed -E 's/("(time|min|median|p99|spread|slowest)_s": )[-0-9.e]+/\11e-9/' now.json >fast.json
    sed -E 's/("(time|min|median|p99|spread|slowest)_s": )[-0-9.e]+/\1100.0/' now.json >slow.json
    run --separate-stderr bench -b 64K -e 64K --op=all_gather --group=world --algo=flat --baseline=fast.json --json
    [ "$status" = 4 ]
    [ "$(grep -c '^mics-bench: all_gather world flat of 65536 bytes.* times slower than before$' <<<"$stderr")" = 2 ]
    grep -q '"regressions"' <<<"$output"
    bench -b 64K -e 64K --op=all_gather --group=world --algo=flat --baseline=slow.json -o after.mp
}

@test "an earlier run with nothing in common is refused" {
    requires mpi:4
    bench -b 64K -e 64K --op=all_gather --group=world --algo=flat -o old.mp
    run --separate-stderr bench -b 4K -e 4K --op=all_gather --group=world --algo=flat --baseline=old.mp
    [ "$status" = 4 ]
    grep -qx 'mics-bench: old.mp: has no case in common with this run' <<<"$stderr"
}

@test "outliers are searched for and listed in the document" {
    requires mpi:4
    run --separate-stderr mpi 4 mics-bench -b 4K -e 4K -n 2 -w 1 --op=all_gather --outliers=0.4 --json
    [ "$status" = 0 ] || [ "$status" = 4 ] # a loaded machine may have some
    grep -q '"outliers": \[' <<<"$output"
    if [ "$status" = 4 ]; then grep -q 'times slower than the median' <<<"$stderr"; fi
}

@test "mistakes on the command line are reported" {
    for options in -n0 -c2 -b0 '-b 2M -e 1M' --op=gather --group=all --algo=ring --segments=65 '-f 1' 'a b' '-e 1G -i 1K'; do
        # shellcheck disable=SC2086 # words are wanted
        run --separate-stderr mics-bench $options
        usage_mistake mics-bench
    done
    run --separate-stderr mics-bench --op=gather
    [[ ${stderr_lines[0]} == *"'gather': expected some of all_gather, reduce_scatter, all_reduce, all_to_all, sync" ]]
}

@test "a single rank is refused with a hint at mpirun" {
    unset MICS_NODE_RANKS
    run --separate-stderr mics-bench
    one_line_and_code 2
    [[ $stderr == *mpirun* ]]
}

@test "a partition that no plan could have is refused" {
    requires mpi:4
    run --separate-stderr bench --partition=3
    [ "$status" = 2 ]
    grep -qx 'mics-bench: --partition: parameter group 3: does not divide the 4 ranks' <<<"$stderr"
    run --separate-stderr bench --group=partition
    [ "$status" = 2 ]
    grep -qx 'mics-bench: --group: no partition without a plan or --partition' <<<"$stderr"
}

@test "arrays that do not fit into memory are refused" {
    requires mpi:4
    run --separate-stderr bench -b 64T -e 64T
    [ "$status" = 4 ]
    [ "$(grep -c '^mics-bench: .* more than half' <<<"$stderr")" = 1 ]
}

@test "a full disk is one line and exit 1" {
    requires mpi:4
    run --separate-stderr bench -b 4K -e 4K --op=all_gather --group=world -o "$BATS_TEST_TMPDIR/none/x.mp"
    [ "$status" = 1 ]
    [ "$(grep -c '^mics-bench: ' <<<"$stderr")" = 1 ]
}

@test "probe, calibrate and plan are a pipeline: costs and algorithm timings are filled in" {
    requires mpi:4
    mpi 4 mics-probe --seconds=0.5 |
        bench --calibrate --seconds=0.5 -b 16K -e 256K -f 16 |
        tee calibrated.mp | mics-plan --model=gpt2-nano --global-batch=8 --seq=64 --strategy=mics:4 >plan.mp
    mics-show --json calibrated.mp >topo.json
    # All-gather and reduce-scatter of two nodes of two by 1, 2 and 4 segments, two sizes each.
    [ "$(grep -c '"hierarchical_from_bytes":' topo.json)" = 6 ]
    [ "$(grep -c '"segments": 4' topo.json)" = 2 ]
    [ "$(grep -c '"program": "mics-bench"' topo.json)" = 1 ]
    [ "$(mics-show --tsv calibrated.mp | grep -c '^\(all_gather\|reduce_scatter\)	2	2	[124]	.*	262144	')" = 6 ]
    mics-show --json plan.mp | grep -q '"exchanges": \['
    # Four collectives on 1 x 2, 2 x 1 and 2 x 2 ranks, also while all ranks compute.
    [ "$(grep -c '"beside_compute":' topo.json)" = 12 ]
    [ "$(grep -c '"points":' topo.json)" = $((12 + 6 + $(grep -c '"kernel":' topo.json))) ]
    [ "$(mics-show --tsv calibrated.mp | grep -c '^all_to_all	2	2	')" -ge 1 ]
    mics-show calibrated.mp | grep -q '^all_reduce .* times .* %$'
    # How far ranks get apart that compute for 0.05 to 0.4 s.
    [ "$(mics-show --tsv calibrated.mp | grep -A4 '^computing_s	' | wc -l)" = 5 ]
    mics-show --json plan.mp | grep -q '"stragglers": \['
}

@test "a plan follows the calibration" {
    mics-probe --topology='node:2 gpu:4 flops:1T mem:16G membw:100GB/s link:20GB/s,3us net:8gbit,30us' --json --no-history |
        sed '$d' | sed '$s/$/,/' >head.json
    # $1: seconds of a hierarchy where a flat exchange takes one
    calibrated()
    {
        cat head.json
        echo '"exchanges": ['
        for collective in all_gather reduce_scatter; do
            for segments in 1 2 4; do
                [ "$collective$segments" = all_gather1 ] || echo ,
                echo "{\"collective\": \"$collective\", \"nodes\": 2, \"per_node\": 4, \"segments\": $segments,"
                echo "\"points\": [[1, 1e-6, ${1}e-6], [1000000, 1, $1]]}"
            done
        done
        echo ']}'
    }
    calibrated 0.5 | mics-plan --model=gpt2 --global-batch=8 --seq=64 --strategy=mics:8 --json >staged.json
    calibrated 2.0 | mics-plan --model=gpt2 --global-batch=8 --seq=64 --strategy=mics:8 --json >flat.json
    grep -m1 '"hierarchical_gather"' staged.json | grep -q true
    grep -m1 '"hierarchical_gather"' flat.json | grep -q false
}

@test "only a topology is calibrated" {
    requires mpi:4
    mics-probe --topology='node:2 gpu:2 flops:100G mem:4G' |
        mics-plan --model=gpt2-nano --global-batch=8 --seq=64 >plan.mp
    run --separate-stderr bench --calibrate plan.mp
    [ "$status" = 3 ]
    [ "$(grep -c '^mics-bench: plan.mp: ' <<<"$stderr")" = 1 ]
    run --separate-stderr mics-bench --calibrate --baseline=plan.mp plan.mp
    usage_mistake mics-bench
}

@test "a slow rank is reported and exits 4" {
    requires mpi:4 gcc pkg-config
    make_brake mics-bench
    # shellcheck disable=SC2016 # expanded on each rank
    run --separate-stderr env MICS_NODE_RANKS=1 mpirun -n 4 bash -c '
        if [ "$OMPI_COMM_WORLD_RANK" = 3 ]; then export LD_PRELOAD=$PWD/brake.so; fi
        exec mics-bench -b 4K -e 4K -n 2 -w 1 --op=all_gather --group=world --outliers=0.5 --json -o bench.json'
    [ "$status" = 4 ]
    [[ $stderr == *"mics-bench: "*"flops of rank 3 is "*" times slower than the median"* ]]
    grep -q '"where": "rank 3"' bench.json
    mics-show bench.json | grep -q '^# outlier'
}

@test "a request that these ranks cannot run is refused once" {
    requires mpi:4
    run --separate-stderr bench --op=all_gather --algo=2-hop
    [ "$status" = 4 ]
    [ "$(grep -c '^mics-bench: 2-hop belongs to --op=sync, not to all_gather$' <<<"$stderr")" = 1 ]
    run --separate-stderr mics-bench --calibrate -b 4K -e 1M -i 4K
    usage_mistake mics-bench
}

@test "a rank that fails by itself reports it in one line, and the job ends" {
    requires mpi:4
    # shellcheck disable=SC2016 # expanded on each rank
    run --separate-stderr timeout 60 mpirun -n 4 bash -c '
        if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then export MICS_THREADS=none; fi
        exec mics-bench -b 4K -e 4K'
    [ "$status" != 0 ]
    [ "$status" != 124 ]
    [ "$(grep -c '^mics-bench: ' <<<"$stderr")" = 1 ]
    [[ $stderr == *"MICS_THREADS: "* ]]
}
