#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-probe: descriptions, measurements, slow nodes, invalid input.

load helpers

# A JSON document has this line; members of the document are indented by two blanks, members of an
# object in it by four, and so on.
has() # file line
{
    if grep -qxE -- "$2,?" "$1"; then return 0; fi
    echo "no '$2' in:"
    cat "$1"
    return 1
}

setup()
{
    cd "$BATS_TEST_TMPDIR" || return 1
}

@test "a name of the catalogue becomes a topology of so many nodes" {
    mics-probe --topology=p4d.24xlarge:16 --json -o topo.json
    has topo.json '  "kind": "mics.topology"'
    has topo.json '  "nodes": 16'
    has topo.json '  "per_node": 8'
    has topo.json '  "source": "catalogue"'
    has topo.json '    "peak_flops_per_s": 312000000000000.0'
}

@test "a description in words becomes a topology" {
    mics-probe --topology='node:4 gpu:8 flops:312T net:400gbit,20us' --json >topo.json
    has topo.json '  "nodes": 4'
    has topo.json '    "flops_per_s": 312000000000000.0'
    has topo.json '      "bandwidth_bytes_per_s": 50000000000.0'
}

@test "without --json and a terminal the document is msgpack with the same content" {
    mics-probe --topology=dgx-h100:2 --no-history >topo.mp
    mics-probe --topology=dgx-h100:2 --no-history --json >topo.json
    [ "$(head -c1 topo.mp)" != "{" ]
    diff <(mics-show --json topo.mp) <(mics-show --json topo.json)
}

@test "mics-show reads the document" {
    mics-probe --topology='node:2 gpu:2' --json >topo.json
    run --separate-stderr mics-show --tsv topo.json
    [ "$status" = 0 ]
    [[ $output == *"nodes	2"* ]]
}

@test "history records the command unless disabled" {
    mics-probe --topology=p5 --json >topo.json
    has topo.json '      "program": "mics-probe"'
    has topo.json '        "--topology=p5"'
    mics-probe --topology=p5 --json --no-history >topo.json
    run ! grep -q history topo.json
}

@test "--list names every instance, and each name is accepted" {
    run --separate-stderr mics-probe --list --tsv
    [ "$status" = 0 ]
    [ "${#lines[@]}" -ge 24 ]
    for name in $(tail -n +2 <<<"$output" | cut -f1,2 | tr '\t' '\n' | grep -v '^-$'); do
        mics-probe --topology="$name:3" --json >topo.json
        has topo.json '  "nodes": 3'
    done
}

@test "an unknown instance is refused with similar names" {
    run --separate-stderr mics-probe --topology=p4d.24xlage:2
    usage_mistake mics-probe
    [[ ${stderr_lines[0]} == *"'p4d.24xlage': unknown instance; similar: p4d.24xlarge"*"--list"* ]]
}

# A catalogue with one machine.
my_machine() # name card_gbit
{
    echo '{"instances": [{"name": "'"$1"'", "gpu": "H100-80", "gpus": 4, "cards": 2, "card_gbit": '"$2"',
        "net_latency": {"us": 4}, "price": {"usd_per_hour": 7.5, "source": "our rack", "date": "2026-11"}}]}'
}

@test "--list shows prices and numbered sources with their dates" {
    run --separate-stderr mics-probe --list
    [ "$status" = 0 ]
    grep -qE '^p4d.24xlarge +p4d +8 x A100-40 +4 x 100 +75 +[0-9]+\.[0-9]{2} +[0-9]+ [0-9]+ [0-9]+$' <<<"$output"
    grep -qE '^H100-80 +NVIDIA H100 80GB +989 bf16 ' <<<"$output"
    grep -qE '^ +1  20[0-9]{2}-[0-9]{2}-[0-9]{2}  docs.aws.amazon.com' <<<"$output"
    [ "$(awk 'length > longest { longest = length } END { print longest }' <<<"$output")" -le 132 ]
}

@test "--list=NAME shows every figure of an instance with its source" {
    run --separate-stderr mics-probe --list=P5
    [ "$status" = 0 ]
    grep -qE '^instance +p5.48xlarge ' <<<"$output"
    grep -qE '^price of an hour +55.04 USD +2026-07-28  AWS price list' <<<"$output"
    run ! grep -qE -- '- +-$' <(mics-probe --list=p5 | tail -n +4)
    [ "$(mics-probe --list=p5 --tsv | awk -F '\t' '$1 == "cards" { print $2 }')" = 32 ]
    mics-probe --list=h100-80 | grep -qE '^sustained in large products +745 TFLOP/s +2026-11-22 +wave model'
    run --separate-stderr mics-probe --list=p55
    usage_mistake mics-probe
    [[ ${stderr_lines[0]} == "mics-probe: --list: 'p55': unknown instance; similar: "* ]]
}

@test "users add machines by --catalogue and in their configuration folder" {
    cd "$BATS_TEST_TMPDIR"
    # shellcheck disable=SC2030,SC2031 # of this test alone
    export XDG_CONFIG_HOME=$PWD/config
    mkdir -p config/mics
    my_machine lab 400 >config/mics/a.json
    my_machine p5.48xlarge 100 >config/mics/b.json
    my_machine LAB 200 >mine.json
    echo 'not read' >config/mics/notes.txt
    net() { awk -F '\t' '$1 == "net" { print $3 }' "$1"; }
    mics-probe --topology=lab:2 --tsv >fast
    mics-probe --topology=p5:2 --tsv >tables # the alias stays
    [ "$(awk -F '\t' '$1 == "per_node" { print $2 }' tables)" = 4 ]
    mics-probe --topology=lab:2 --catalogue=mine.json --tsv >tables
    [ "$(net fast)" = "$((2 * $(net tables)))" ]
    mics-probe --list | grep -qE 'config/mics/a.json'
    mics-plan --model=gpt2 --global-batch=8 --topology=lab:2 --catalogue=mine.json --json | grep -q '"card_bytes_per_s": 25000000000'
    run --separate-stderr mics-plan --model=gpt2 --catalogue=mine.json mine.json
    usage_mistake mics-plan
    run --separate-stderr mics-probe --catalogue=mine.json
    usage_mistake mics-probe
}

@test "a damaged catalogue is one line with the file and the path" {
    cd "$BATS_TEST_TMPDIR"
    my_machine lab -1 >bad.json
    for program in 'mics-probe' 'mics-plan --model=gpt2'; do
        # shellcheck disable=SC2086 # words are wanted
        run --separate-stderr $program --topology=p4d:2 --catalogue=bad.json
        one_line_and_code 3
        [[ $stderr == *": bad.json: instances[0].card_gbit: expected "*", found -1" ]]
        # shellcheck disable=SC2086 # words are wanted
        run --separate-stderr $program --topology=p4d:2 --catalogue=missing.json
        one_line_and_code 1
    done
    # shellcheck disable=SC2030,SC2031 # of this test alone
    export XDG_CONFIG_HOME=$PWD/config
    mkdir -p config/mics
    head -c 60 bad.json >config/mics/cut.json
    run --separate-stderr mics-probe --list
    one_line_and_code 3
    [[ $stderr == "mics-probe: $PWD/config/mics/cut.json: line "*", column "* ]]
    mics-show --help >/dev/null
}

@test "a bad word is quoted" {
    for text in 'node:4 gpus:8' 'gpu:0' 'node:4 link:fast' 'flops:1Q' 'node:1 node:2' p4d:0 :3 '' ' '; do
        run --separate-stderr mics-probe --topology="$text"
        usage_mistake mics-probe
        [[ ${stderr_lines[0]} == *"'"* ]]
    done
}

@test "options that contradict each other are refused" {
    for options in '--list --json' '--list --topology=p4d' '--topology=p4d --hostfile=x' '--seconds=0' operand; do
        # shellcheck disable=SC2086 # words are wanted
        run --separate-stderr mics-probe $options
        usage_mistake mics-probe
    done
}

@test "probe: a full disk is one line and exit 1" {
    run --separate-stderr bash -c 'mics-probe --topology=p4d >/dev/full'
    one_line_and_code 1
    run --separate-stderr bash -c 'mics-probe --list >/dev/full'
    one_line_and_code 1
    run --separate-stderr mics-probe --topology=p4d -o "$BATS_TEST_TMPDIR/none/topo.mp"
    one_line_and_code 1
}

@test "without a launcher it describes this machine as one rank" {
    mics-probe --seconds=0.5 --json >topo.json
    has topo.json '  "nodes": 1'
    has topo.json '  "per_node": 1'
    has topo.json '    "cores": [1-9][0-9]*'
    has topo.json '    "processor": ".*"'
    has topo.json '  "outliers": \[\]'
}

@test "mpirun measures links and collectives of one node" {
    requires mpi:4
    mpi 4 mics-probe --seconds=0.5 --json --hostfile=hosts >topo.json
    has topo.json '  "nodes": 1'
    has topo.json '  "per_node": 4'
    has topo.json '    "node": \{'
    run ! grep -q '"net": {' topo.json
    # all_gather, reduce_scatter, all_reduce, all_to_all on 2 and on 4 ranks
    [ "$(grep -c '"collective":' topo.json)" = 8 ]
    # Brief measurements have none beside computation.
    run ! grep -q '"beside_compute":' topo.json
    [ "$(cat hosts)" = "$(hostname) slots=4" ]
    mics-show --tsv topo.json
}

@test "probe: MICS_NODE_RANKS declares nodes" {
    requires mpi:4 jq
    MICS_NODE_RANKS=2 mpi 4 mics-probe --seconds=1 >topo.mp
    mics-show --json topo.mp >topo.json
    has topo.json '  "nodes": 2'
    has topo.json '  "per_node": 2'
    has topo.json '  "declared_nodes": true'
    has topo.json '    "node": \{'
    has topo.json '    "net": \{'
    # On groups in a node, across nodes and of all ranks: [bytes, alone, beside, part lost].
    jq -e '[.collectives[] | select(has("beside_compute")) | .beside_compute[0] |
        .[1] > 0 and .[2] > 0 and .[3] >= 0] == [range(12) | true]' topo.json
}

@test "under mpirun a description is written once" {
    requires mpi:3
    mpi 3 mics-probe --topology=p4d:2 --json --no-history >many.json
    mics-probe --topology=p4d:2 --json --no-history >one.json
    cmp many.json one.json
}

@test "declared nodes that do not divide the ranks are refused in one line" {
    requires mpi:3
    run --separate-stderr env MICS_NODE_RANKS=2 mpirun -n 3 mics-probe --seconds=1
    [ "$status" = 2 ]
    [ "$output" = "" ]
    echo "$stderr"
    [ "$(grep -c '^mics-probe: .*MICS_NODE_RANKS' <<<"$stderr")" = 1 ]
}

@test "a slow rank is detected, reported and left out of the host file, and exits 4" {
    requires mpi:4 gcc pkg-config
    make_brake mics-probe
    # shellcheck disable=SC2016 # expanded on each rank
    MICS_NODE_RANKS=1 run --separate-stderr mpirun -n 4 bash -c '
        if [ "$OMPI_COMM_WORLD_RANK" = 3 ]; then export LD_PRELOAD=$PWD/brake.so; fi
        exec mics-probe --seconds=0.5 --json -o topo.json --hostfile=hosts'
    [ "$status" = 4 ]
    has topo.json '      "what": "flops"'
    has topo.json '      "where": "rank 3"'
    [ "$(grep -c '"what"' topo.json)" = 1 ]
    [ "$(wc -l <hosts)" = 3 ]
    [[ $stderr == *"mics-probe: "*"flops of rank 3 is "*" times slower than the median"* ]]
}

@test "no host file is written if no host is left out" {
    requires mpi:4 gcc pkg-config
    make_brake mics-probe
    # shellcheck disable=SC2016
    run --separate-stderr mpirun -n 4 bash -c '
        if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export LD_PRELOAD=$PWD/brake.so; fi
        exec mics-probe --check --seconds=0.5 --hostfile=hosts'
    [ "$status" = 4 ]
    [ ! -e hosts ]
    [[ $stderr == *"mics-probe: hosts: no host is without a fault"* ]]
}

@test "probe: a rank that fails by itself reports it in one line, and the job ends" {
    requires mpi:3
    # shellcheck disable=SC2016
    run --separate-stderr timeout 60 mpirun -n 3 bash -c '
        if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then export MICS_THREADS=none; fi
        exec mics-probe --seconds=1'
    [ "$status" != 0 ]
    [ "$status" != 124 ]
    [ "$(grep -c '^mics-probe: ' <<<"$stderr")" = 1 ]
    [[ $stderr == *"MICS_THREADS: "* ]]
}

@test "probe: a file of NCCL's topology becomes a topology that mics-plan plans for" {
    if mics-probe --nccl-topo=/dev/null 2>&1 | grep -q 'without expat'; then skip "this build is without expat"; fi
    mics-probe --nccl-topo="$root/tests/fake/nccl.xml" --nodes=4 -o topo.mp
    [ "$(mics-show --json topo.mp | jq -r '[.source, .nodes, .per_node, .device.name] | join(" ")')" = \
        "nccl 4 8 NVIDIA H200 141GB" ]
    mics-plan --model=gpt2-xl --global-batch=512 --seq=1024 topo.mp -o plan.mp
    run -3 mics-probe --nccl-topo="$root/tests/fake/v100.xml"
    [[ $output == *"v100.xml: the model of the GPUs, of compute capability 7.0, is not stated: name it with --gpu=NAME" ]]
    run -2 mics-probe --nccl-topo="$root/tests/fake/v100.xml" --gpu=V1000
    [[ $output == *'GPU "V1000" is not in the catalogue, which has V100-32, '* ]]
    run -1 mics-probe --nccl-topo=missing.xml
    run -2 mics-probe --nodes=4
    [[ $output == *"--nodes goes with --nccl-topo"* ]]
}

@test "probe: a file of NCCL's topology says how GPUs meet, and what it does not have" {
    if mics-probe --nccl-topo=/dev/null 2>&1 | grep -q 'without expat'; then skip "this build is without expat"; fi
    gpu() { # index partner
        echo "<pci busid='0000:0$1:00.0' class='0x030200' device='0x20b2' link_speed='16.0 GT/s PCIe' link_width='16'>"
        echo "<gpu sm='80'><nvlink target='0000:0$2:00.0' count='12' tclass='0x030200'/></gpu></pci>"
    }
    { # the partners of 1 2 3 4 are the words
        echo "<system version='1'><cpu numaid='0' arch='x86_64' vendor='AuthenticAMD' familyid='25' modelid='1'>"
        for i in 1 2 3 4; do gpu $i @$i; done
        echo "<nic><net name='eth0' speed='100000'/></nic></cpu></system>"
    } >template
    while IFS='|' read -r partners rate words; do
        read -r -a to <<<"$partners"
        sed "s/@1/${to[0]}/;s/@2/${to[1]}/;s/@3/${to[2]}/;s/@4/${to[3]}/" template >x.xml
        run -0 --separate-stderr mics-probe --nccl-topo=x.xml --nodes=2 --json
        [ "$(jq .links.node.bandwidth_bytes_per_s <<<"$output")" = "$rate" ]
        [ "$stderr" = "mics-probe: x.xml: $words" ]
    done <<'END'
2 1 4 3|24000000000|NVLink joins pairs only; 4 GPUs meet over PCIe, 24 GB/s; groups of 2 neighbours would reach 240 GB/s, which a topology cannot say
3 4 1 2|24000000000|NVLink joins pairs only; 4 GPUs meet over PCIe, 24 GB/s
1 2 3 4|24000000000|no NVLinks between GPUs; 4 GPUs meet over PCIe, 24 GB/s; 48 NVLinks of GPUs to themselves do not count
9 9 9 9|24000000000|no NVLinks between GPUs; 4 GPUs meet over PCIe, 24 GB/s; 48 NVLinks to devices that are not in the file do not count
2 3 4 1|24000000000|no NVLinks between GPUs; 4 GPUs meet over PCIe, 24 GB/s; NVLinks that only one of two GPUs states do not count
END
    input=$root/tests/fake/nccl-input.xml
    run -0 --separate-stderr mics-probe --nccl-topo="$input" --gpu=H100-80 --card=100gbit --nodes=2 --json
    [ "$(jq -c '[.links[].bandwidth_bytes_per_s, .per_node]' <<<"$output")" = '[360000000000,96000000000,8]' ]
    [ "$stderr" = "mics-probe: $input: the file does not have the NVLinks, which NCCL finds on the machine: those of NVIDIA H100 80GB in the catalogue, 360 GB/s" ]
    run -0 --separate-stderr mics-probe -q --nccl-topo="$input" --gpu=A100-40 --json
    [ -z "$stderr" ]
    run -3 --separate-stderr mics-probe --nccl-topo="$input"
    [ "$stderr" = "mics-probe: $input: the model of the GPUs is not stated: name it with --gpu=NAME" ]
    run -2 mics-probe --card=100gbit
    [[ $output == *"--card goes with --nccl-topo"* ]]
}

# Set group= to a new control group with this quota, in microseconds of 100000, or skip.
make_group()
{
    local top=/sys/fs/cgroup
    if [ "$(id -u)" != 0 ]; then skip "control groups need root"; fi
    if [ -e $top/cpu/cpu.cfs_quota_us ] || [ -d $top/cpu ]; then
        group=$top/cpu/mics-test-$BASHPID
        mkdir "$group" 2>/dev/null || skip "no control group can be made"
        { echo 100000 >"$group/cpu.cfs_period_us" && echo "$1" >"$group/cpu.cfs_quota_us"; } 2>/dev/null ||
            { rmdir "$group"; skip "the kernel has no quotas"; }
    else
        group=$top/mics-test-$BASHPID
        mkdir "$group" 2>/dev/null || skip "no control group can be made"
        echo "$1 100000" 2>/dev/null >"$group/cpu.max" || { rmdir "$group"; skip "the kernel has no quotas"; }
    fi
}

@test "probe: a quota of processor time bounds the cores of a rank" {
    cores() { ( if [ $# -gt 0 ]; then echo $BASHPID >"$1/cgroup.procs" || exit; fi
        env -u MICS_THREADS mics-probe --device=host --seconds=0.1 --json) | jq .device.cores; }
    make_group 50000
    all=$(cores)
    bounded=$(cores "$group") || bounded=
    rmdir "$group"
    [ "$bounded" = 1 ]
    [ "$all" = "$(nproc)" ] || [ "$all" -lt "$(nproc)" ]
}

@test "probe: the GPUs that the driver reports are in the machine of the document" {
    MICS_NVML_PATH=$MICS_BUILD/tests/fake/nvml.so HWLOC_XMLFILE=$root/tests/fake/hwloc.xml \
        run -0 --separate-stderr mics-probe --device=host --seconds=0.1 --json
    [ "$(jq -c '[.machine.gpus[] | .network.distance]' <<<"$output")" = '["switch","numa node","host bridge"]' ]
    mics-show - <<<"$output" >table
    grep -q '^NVIDIA H200  *00000000:18:00.0 .* 5 *16 *18 *18  *mlx5_0  *switch' table
}

@test "--check writes the hosts that are not slow, and no topology" {
    requires mpi:2
    run --separate-stderr mpirun -n 2 mics-probe --check --seconds=0.1 --hostfile=good
    [ "$status" = 0 ] || [ "$status" = 4 ] # a busy machine has slow ranks
    [ -z "$output" ]
    [ "$status" = 4 ] || [ "$(cat good)" = "$(uname -n) slots=2" ]
    for words in '--check --json' '--check -o x' '--check --topology=p4d' '--check --list'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-probe $words
        usage_mistake mics-probe
    done
}
