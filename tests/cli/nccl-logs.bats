#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-bench --import and --expect: output of nccl-tests as people keep it. Numbers of the tables are
# published: coreweave/nccl-tests pull request 43, NVIDIA/nccl issues 258 and 644, NVIDIA/nccl-tests
# issues 107 and 128, aws-ia/terraform-aws-eks-blueprints (nvidia-gpu-efa), microsoft/superbenchmark.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return 1
}

# The list of devices of NODES hosts with GPUS each.
devices() # nodes gpus name
{
    local rank
    echo "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0"
    echo "#"
    echo "# Using devices"
    for ((rank = 0; rank < $1 * $2; rank++)); do
        printf '#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00] %s\n' \
            $rank $((800 + rank)) "worker-$((rank / $2))" $((rank % $2)) $((16 + rank % $2)) "$3"
    done
    echo "#"
}

header()
{
    cat <<'END'
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
END
}

rows_of() # file: op nodes per_node in_place bytes count microseconds wrong
{
    mics-show --json "$1" | jq -r '.rows[] | [.op, .nodes, .per_node, .in_place, .bytes, .count,
        (.time_s * 1e8 | round / 100), .wrong] | map(tostring) | join(" ")'
}

gb200()
{
    echo '+ srun --nodes=18 --ntasks-per-node=4 all_reduce_perf_mpi -b 512M -e 8G -f 2'
    devices 18 4 "NVIDIA Graphics Device"
    header
    cat <<'END'
   536870912     134217728     float     sum      -1   1806.7  297.16  586.06      0   1835.9  292.43  576.74      0
  1073741824     268435456     float     sum      -1   3108.8  345.38  681.17      0   2924.7  367.13  724.06      0
  2147483648     536870912     float     sum      -1   5589.1  384.22  757.78      0   5474.6  392.26  773.62      0
  4294967296    1073741824     float     sum      -1    10094  425.49  839.16      0    10141  423.54  835.32      0
  8589934592    2147483648     float     sum      -1    20299  423.16  834.57      0    20006  429.37  846.82      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 745.53
END
}

@test "import: a table of nccl-tests, each number" {
    requires jq
    gb200 >run.log
    mics-bench --import=run.log -o bench.mp
    diff - <(rows_of bench.mp) <<'END'
all_reduce 18 4 false 536870912 134217728 1806.7 0
all_reduce 18 4 true 536870912 134217728 1835.9 0
all_reduce 18 4 false 1073741824 268435456 3108.8 0
all_reduce 18 4 true 1073741824 268435456 2924.7 0
all_reduce 18 4 false 2147483648 536870912 5589.1 0
all_reduce 18 4 true 2147483648 536870912 5474.6 0
all_reduce 18 4 false 4294967296 1073741824 10094 0
all_reduce 18 4 true 4294967296 1073741824 10141 0
all_reduce 18 4 false 8589934592 2147483648 20299 0
all_reduce 18 4 true 8589934592 2147483648 20006 0
END
    run --separate-stderr mics-show bench.mp
    [ "$status" = 0 ]
    [[ ${lines[-1]} == "# Avg bus bandwidth    : 745.5"* ]]
    [ "$(mics-show --json bench.mp | jq -c '[.device, .iters, .warmup, .hosts[17], .imported[0].program]')" = \
        '["NVIDIA Graphics Device",20,5,"worker-17","all_reduce"]' ]
}

@test "import: prefixes of launchers, lines of NCCL_DEBUG, and several runs and files" {
    requires jq
    gb200 | sed 's/^/[1,0]<stdout>:/' >tagged.log
    { gb200 | sed 's/^/0: /'; } >srun.log
    gb200 | awk '{ print; print "worker-0:97095:97196 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC" }' |
        sed 's/^\(  *[0-9][0-9]* \)/[0]\1/' >noise.log
    gb200 >plain.log
    mics-bench --import=plain.log -o plain.mp
    for file in tagged srun noise; do
        mics-bench --import=$file.log -o $file.mp
        diff <(rows_of plain.mp) <(rows_of $file.mp)
    done
    {
        echo "all_gather_perf -b 1G"
        devices 2 8 "NVIDIA A100-SXM4-40GB"
        echo "  1000000000      15625000     float    none      -1   5293.6  188.91  177.10      0   5293.6  188.91  177.10      0"
        echo "reduce_scatter_perf"
        devices 1 8 "NVIDIA A100-SXM4-40GB"
        header
        echo "           0             0     float     sum      -1     5.70    0.00    0.00      0     5.54    0.00    0.00      0"
        echo "     1048576         32768     float     sum      -1     72.4   14.48   12.67      0     72.4   14.48   12.67    N/A"
    } >two.log
    run --separate-stderr mics-bench --import=two.log,plain.log -o both.mp
    [ "$status" = 0 ]
    [ "$stderr" = "mics-bench: two.log: left out 1 rows of reduce_scatter" ]
    [ "$(mics-show --json both.mp | jq -c '[.nodes, .per_node, (.rows | length)]')" = "[18,4,14]" ]
    diff - <(rows_of both.mp | grep -v all_reduce) <<'END'
reduce_scatter 1 8 false 1048576 32768 72.4 0
reduce_scatter 1 8 true 1048576 32768 72.4 null
all_gather 2 8 false 1000000000 15625000 5293.6 0
all_gather 2 8 true 1000000000 15625000 5293.6 0
END
}

@test "import: the columns of 2019 without root, and of gathers without redop" {
    requires jq
    cat >v100.log <<'END'
mpirun -np 1 ./build/all_reduce_perf -b 8 -e 128M -f 2 -g 4
# Using devices
#   Rank  0 Pid  71327 on 51e6e7896958 device  0 [0x1a] Tesla V100-SXM3-32GB
#   Rank  1 Pid  71327 on 51e6e7896958 device  1 [0x1b] Tesla V100-SXM3-32GB
#   Rank  2 Pid  71327 on 51e6e7896958 device  2 [0x1c] Tesla V100-SXM3-32GB
#   Rank  3 Pid  71327 on 51e6e7896958 device  3 [0x1e] Tesla V100-SXM3-32GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2   float     sum    158.3    0.00    0.00  1e-07    158.4    0.00    0.00  0e+00
          16             4   float     sum    160.4    0.00    0.00  3e-08    160.7    0.00    0.00  3e-08
END
    mics-bench --import=v100.log -o old.mp
    diff - <(rows_of old.mp) <<'END'
all_reduce 1 4 false 8 2 158.3 null
all_reduce 1 4 true 8 2 158.4 null
all_reduce 1 4 false 16 4 160.4 null
all_reduce 1 4 true 16 4 160.7 null
END
    cat >rows.txt <<'END'
       65536          2048     float    52.01    1.26    1.10  0e+00    50.09    1.31    1.14  0e+00
   134217728       4194304     float    16059    8.36    7.31  0e+00    16111    8.33    7.29  0e+00
END
    run --separate-stderr mics-bench --import=rows.txt
    [ "$status" = 2 ]
    [ "$stderr" = "mics-bench: rows.txt:1: the log does not name its program; say --op=all_gather if it is that" ]
    run --separate-stderr mics-bench --import=rows.txt --op=all_gather
    [ "$status" = 2 ]
    [ "$stderr" = "mics-bench: rows.txt: the log does not list its ranks; --topology tells them" ]
    mics-bench --import=rows.txt --op=all_gather --topology=p4d:1 -o rows.mp
    cp rows.txt all-gather.txt # the name is enough
    mics-bench --import=all-gather.txt --topology=p4d:1 -o named.mp
    diff <(rows_of rows.mp) <(rows_of named.mp)
    [ "$(rows_of rows.mp | tail -n 1)" = "all_gather 1 8 true 134217728 4194304 16111 null" ]
}

@test "import: the JSON of nccl-tests" {
    requires jq
    cat >run.json <<'END'
{"version":1,"start_time":"2026-11-20 10:00:00","args":["/opt/reduce_scatter_perf","-g","4","-J","run.json"],
"env":["HOME=/root"],"nccl_version":22807,"config":{"nthreads":1,"ngpus":4,"minimum_bytes":1048576,
"maximum_bytes":4194304,"step_factor":4,"warmup_iters":1,"iterations":20,"aggregated_iterations":1,"validation":1,
"graph":0,"blocking_collectives":"false","parallel_init":"false","devices":[{"rank":0,"group":0,"pid":1,
"hostname":"a","device":0,"device_hex":"0000:53:00","device_info":"NVIDIA H100 80GB HBM3"},{"rank":4,"group":0,
"pid":2,"hostname":"b","device":0,"device_hex":"0000:53:00","device_info":"NVIDIA H100 80GB HBM3"}]},"results":[
{"size":1048576,"count":32768,"type":"float","redop":"sum","root":"    -1",
"out_of_place":{"time":72.400000,"alg_bw":14.483094,"bus_bw":12.672707,"nwrong":0.000000},
"in_place":{"time":71.000000,"alg_bw":14.768676,"bus_bw":12.922592,"nwrong":null},
"in_place_per_iter":{"skipped_iterations":0,"min_us":70.1,"max_us":99.0,"avg_us":71.0,"p50_us":70.9,"p95_us":80,
"p99_us":98.5,"stdev_us":1,"cv_pct":1,"times_us":[70.1]},"actual_iterations":20,"experiment_name":"x"},
{"size":4194304,"count":131072,"type":"float","redop":"sum","root":"    -1","out_of_place":null,
"in_place":{"time":108.900000,"alg_bw":38.515188,"bus_bw":33.700790,"nwrong":3.000000},"actual_iterations":20,
"experiment_name":"x"}],"out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidth":{"bandwidth":19.7,
"okay":"unchecked"},"errors":[]}
END
    mics-bench --import=run.json -o json.mp
    diff - <(rows_of json.mp) <<'END'
reduce_scatter 2 4 false 1048576 32768 72.4 0
reduce_scatter 2 4 true 1048576 32768 71 null
reduce_scatter 2 4 true 4194304 131072 108.9 3
END
    [ "$(mics-show --json json.mp | jq -c '.rows[1] | [.min_s, .median_s, .p99_s]')" = "[7.01e-05,7.09e-05,9.85e-05]" ]
    head -c 700 run.json >cut.json
    run --separate-stderr mics-bench --import=cut.json
    [ "$status" = 3 ]
    [[ $stderr == "mics-bench: cut.json: line "* ]]
}

@test "import: a log that is cut, contradicts itself or holds no results is refused by its line" {
    gb200 >good.log
    rows=$(wc -l <good.log)
    try() # expected message
    {
        run --separate-stderr mics-bench --import=bad.log -o bad.mp
        [ "$status" = 3 ]
        [ "$stderr" = "mics-bench: $1" ]
        [ ! -e bad.mp ]
    }
    head -n $((rows - 3)) good.log | head -c -30 >bad.log
    try "bad.log:$((rows - 3)): the log ends in the middle of a line"
    head -n $((rows - 3)) good.log | head -c -30 >bad.log
    echo >>bad.log
    try "bad.log:$((rows - 3)): a row of results is cut after 9 columns"
    { sed -n "$((rows - 6))p" good.log | tail -c 60; cat good.log; } >bad.log
    try "bad.log:1: a line begins in the middle of a row of results"
    sed 's/  2924.7 /  2324.7 /' good.log >bad.log
    try "bad.log:$((rows - 5)): time, algbw and busbw of 1073741824 bytes are not those of all_reduce with 72 ranks"
    sed '/Rank 71/d' good.log >bad.log
    try "bad.log:$((rows - 7)): the hosts have different numbers of ranks"
    sed 's/Rank 71 /Rank  0 /' good.log >bad.log
    try "bad.log:76: a rank is listed twice: nccl-tests was built without MPI=1, and each process measured alone"
    sed 's/all_reduce/alltoallv/' good.log >bad.log
    try "bad.log: none of its 5 rows is of a collective that was asked for, of more than 0 bytes"
    echo "mpirun: command not found" >bad.log
    try "bad.log: no row of results of nccl-tests"
    run --separate-stderr mics-bench --import=good.log --topology=p5:2
    [ "$status" = 4 ]
    [ "$stderr" = "mics-bench: good.log: ran on 18 x 4 ranks, but the topology has 2 x 8" ]
}

@test "import: all-to-alls become costs of all_to_all, those of alltoallv do not" {
    requires jq
    {
        echo '+ mpirun alltoall_perf -b 64M -e 256M -f 4'
        devices 1 8 "NVIDIA H100 80GB HBM3"
        header
        echo '    67108864       2097152     float    none      -1    250.0  268.44  234.88      0    252.0  266.30  233.02    N/A'
        echo '   268435456       8388608     float    none      -1    900.0  298.26  260.98      0    905.0  296.61  259.54    N/A'
    } >pairs.log
    mics-bench --import=pairs.log --topology=dgx-h100:1 >imported.mp
    rows_of imported.mp >rows
    [ "$(head -1 rows)" = "all_to_all 1 8 false 67108864 2097152 250 0" ]
    [ "$(wc -l <rows)" = 4 ]
    [ "$(mics-show --json imported.mp | jq -r '.topology.collectives[] | [.collective, .nodes, .per_node] | join(" ")')" = \
        "all_to_all 1 8" ]
    sed -e 1d pairs.log >alltoallv.log
    run --separate-stderr mics-bench --import=alltoallv.log --topology=dgx-h100:1
    [ "$status" = 3 ]
    [ "$stderr" = "mics-bench: alltoallv.log: none of its 2 rows is of a collective that was asked for, of more than 0 bytes" ]
    mv alltoallv.log alltoall.log
    mics-bench --import=alltoall.log --topology=dgx-h100:1 >named.mp
    rows_of named.mp | cmp - rows
}

# All-reduces on 2 x 8 H100 of AWS, and with times longer by a factor.
p5_log() # factor
{
    echo "all_reduce_perf"
    devices 2 8 "NVIDIA H100 80GB HBM3"
    header
    awk -v f="$1" '{ b = $1; t = $2 * f; a = b / t / 1e3
        printf "%12.0f %12.0f float sum -1 %8.1f %8.2f %8.2f 0 %8.1f %8.2f %8.2f 0\n",
            b, b / 4, t, a, a * 30 / 16, t, a, a * 30 / 16 }' <<'END'
8 64.9
1048576 119.7
4194304 163.7
16777216 278.6
67108864 587.2
268435456 1497.8
1073741824 4553.6
2147483648 9062.5
END
}

@test "expect: published bandwidths are normal, and one card's rate is low with its cause and code 4" {
    requires jq
    p5_log 1 >good.log
    run --separate-stderr mics-bench --import=good.log --topology=p5:2 --expect -o good.mp
    [ "$status" = 0 ]
    [ -z "$stderr" ]
    [ "$(mics-show --json good.mp | jq -c '[.expected.rows[].verdict] | group_by(.) | map([.[0], length])')" = \
        '[["normal",14],["not comparable",2]]' ]
    p5_log 60 >tcp.log
    run --separate-stderr mics-bench --import=tcp.log --topology=p5:2 --expect -o tcp.mp
    [ "$status" = 4 ]
    [[ $stderr == "mics-bench: all_reduce of "*" on 2 x 8 ranks: "*" low by 9"*": less than one of "*" network cards: TCP instead of RDMA?" ]]
    mics-show tcp.mp | grep -q '^all_reduce  *flat .*2x8 .*low by 9'
    mics-show --tsv tcp.mp | awk -F'\t' 'NR > 1 && $25 == "low" { n++ } END { exit n != 14 }'
    p5_log 4 >cards.log
    run --separate-stderr mics-bench --import=cards.log --topology=p5:2 --expect -o cards.mp
    [ "$status" = 4 ]
    [[ $stderr == *": about the rate of 2 of 8 network cards" ]]
    # What NCCL says of itself is certain.
    sed '3a worker-0:1:1 [0] NCCL INFO Using network Socket' tcp.log >socket.log
    run --separate-stderr mics-bench --import=socket.log --topology=p5:2 --expect
    [ "$status" = 4 ]
    [[ $stderr == *": NCCL used sockets (TCP), not RDMA" ]]
    # A larger tolerance, and another machine.
    run mics-bench --import=tcp.log --topology=p5:2 --expect --tolerance=99.9 -o ok.mp
    [ "$status" = 0 ]
    run --separate-stderr mics-bench --import=good.log --topology=p4d:2 --expect -o other.mp
    [ "$status" = 0 ]
    [ "$stderr" = "mics-bench: --expect: no case can be compared; the table says why" ]
    # A node by PCI Express.
    { echo all_reduce_perf; devices 1 8 "NVIDIA H100 80GB HBM3"
        echo "  1073741824 268435456 float sum -1 75000 14.32 25.05 0 75000 14.32 25.05 0"; } >pcie.log
    run --separate-stderr mics-bench --import=pcie.log --topology=p5:2 --expect -o pcie.mp
    [ "$status" = 4 ]
    [[ $stderr == *": a rate of PCIe, not of NVLink" ]]
}

@test "expect: a plan takes imported times as measured costs" {
    requires jq
    p5_log 1 >log
    p5_log 60 >slow.log
    mics-bench --import=log --topology=p5:2 -o fast.mp
    mics-bench --import=slow.log --topology=p5:2 -o slow.mp
    [ "$(mics-show --json slow.mp | jq -c '.topology.collectives | map([.collective, .nodes, .per_node, (.points | length)])')" = \
        '[["all_reduce",2,8,8]]' ]
    step() { mics-plan --model=gpt2-xl --strategy=ddp "$1" | mics-show --json - | jq .predicted.step_time_s; }
    awk -v a="$(step fast.mp)" -v b="$(step slow.mp)" 'BEGIN { exit !(a > 0 && b > 3 * a) }'
    run --separate-stderr mics-plan --model=gpt2-xl <(mics-bench --import=log)
    [ "$status" = 3 ]
    [[ $stderr == *": measurements without a topology; mics-bench --import --topology=... adds it" ]]
}

# Runs of an all_reduce on 2 x 8 ranks at 300 GB/s on the bus: sizes from 1 MiB on.
many_sizes() # runs sizes
{
    local run
    for ((run = 0; run < $1; run++)); do
        echo "all_reduce_perf -b 1M"
        devices 2 8 "NVIDIA H100 80GB HBM3"
        header
        awk -v sizes="$2" 'BEGIN { for (i = 1; i <= sizes; i++) { bytes = i * 1048576; us = bytes * 1.875 / 3e5
            printf "%d %d float sum -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f 0\n", bytes, bytes / 4, us, bytes / us / 1e3,
                300, us, bytes / us / 1e3, 300 } }'
    done
}

@test "import: of many runs and of many sizes the largest ones are among the costs, too" {
    requires jq
    many_sizes 10 40 >runs.log
    many_sizes 1 400 >sizes.log
    for log in runs:40 sizes:400; do
        mics-bench --import=${log%:*}.log --topology=p5:2 -o out.mp
        mics-show --json out.mp | jq -e --argjson most "${log#*:}" '.topology.collectives[0].points |
            (length == 40 or length == 48) and .[0][0] == 1048576 and .[-1][0] == $most * 1048576'
    done
}

@test "expect: groups of a split job on other nodes do not share the network cards" {
    requires jq
    # NCCL_TESTS_SPLIT="DIV 16" on 8 nodes: 4 groups of 2 x 8 ranks, at less than half of the rate.
    split() # GB/s
    {
        echo "all_reduce_perf -b 1G"
        devices 8 8 "NVIDIA H100 80GB HBM3" |
            awk '/Rank/ { sub(/Group  0/, sprintf("Group %2d", int($3 / 16))) } { print }'
        header
        awk -v rate="$1" 'BEGIN { bytes = 2 ^ 30; us = bytes * 1.875 / rate / 1e3
            printf "%d %d float sum -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f 0\n", bytes, bytes / 4, us, bytes / us / 1e3,
                rate, us, bytes / us / 1e3, rate }'
    }
    split 150 >slow.log
    run --separate-stderr mics-bench --import=slow.log --topology=p5:8 --expect -o slow.mp
    [ "$status" = 4 ]
    [[ $stderr == "mics-bench: all_reduce of 1073741824 bytes on 2 x 8 ranks: 150 GB/s on the bus, low by "* ]]
    [ "$(mics-show --json slow.mp | jq -c '[.nodes, .per_node, (.hosts | length)]')" = '[8,8,8]' ]
    [ "$(mics-show --json slow.mp | jq -c '.imported[0] | [.nodes, .per_node, .groups]')" = '[2,8,4]' ]
    [ "$(mics-show --json slow.mp | jq -c '.rows[0] | [.group, .nodes, .per_node, .groups]')" = '["partition",2,8,4]' ]
    split 350 >good.log
    mics-bench --import=good.log --topology=p5:8 --expect -o good.mp
}

@test "expect: measurements of one's own, by the links that were probed" {
    requires mpi:4 jq
    export MICS_NODE_RANKS=2
    mpi 4 mics-probe --seconds=0.5 -o topo.mp
    # A link without limits: everything is low.
    mics-show --json topo.mp | jq '.collectives = [] | .links[] |= (.latency_s = 1e-9 | .bandwidth_bytes_per_s = 1e14)' >ideal.json
    run --separate-stderr mpi 4 mics-bench -n 3 -w 1 --outliers=0 --op=all_gather --algo=flat -b 4M -e 4M --expect -o low.mp ideal.json
    [ "$status" = 4 ]
    [[ $stderr == *"all_gather of 4194304 bytes on "*" low by "* ]]
    run --separate-stderr mpi 4 mics-bench -n 3 -w 1 --outliers=0 --op=all_gather -b 4M -e 4M --expect --tolerance=100 -o out.mp topo.mp
    [ "$status" = 0 ]
    [ "$(mics-show --json out.mp | jq -c '[.expected.rows[] | select(.algo == "flat") | .source] | unique')" = '["measured"]' ]
    [ "$(mics-show --json out.mp | jq -c '[.expected.rows[] | select(.algo == "mpi") | .why] | unique')" = \
        '["the model is of flat collectives"]' ]
}

@test "import: what excludes or needs other options" {
    usage() # message option...
    {
        run --separate-stderr mics-bench "${@:2}"
        [ "$status" = 2 ]
        [ "${stderr_lines[0]}" = "mics-bench: $1" ]
    }
    usage "--import excludes --calibrate and --baseline" --import=x --baseline=y
    usage "--topology goes with --import or --expect" --topology=p5:2
    usage "--expect needs a topology: --topology or an operand" --expect
    usage "--tolerance goes with --expect" --import=x --topology=p5:2 --tolerance=10
    for option in minbytes=4M iters=20 device=cuda group=node seconds=9; do
        usage "--import measures nothing: --${option%%=*} goes without it" --import=x --topology=p5:2 "--$option"
    done
    usage "a topology in --topology and one as an operand" --import=x --topology=p5:2 topo.mp
    usage "--topology: 'p55': unknown instance; similar: p5e, p5; 'mics-probe --list' lists them" \
        --import=x --topology=p55:2
}
