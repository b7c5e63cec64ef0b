#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-check: facts of nodes and GPUs, hosts that do not answer, the page, documents, host files.

load helpers
: "${root:?}" "${stderr:=}" # by the helpers and bats

setup()
{
    cd "$BATS_TEST_TMPDIR" || return 1
    export MICS_SYSTEM_ROOT=$PWD/system # no log and no cards of this machine
    mkdir -p system/dev system/sys/class/net system/proc
    : >system/dev/kmsg
    export MICS_NODE_RANKS=1
}

# Nodes with eight emulated GPUs each.
gpus()
{
    requires mpi:3
    export MICS_NVML_PATH=$MICS_BUILD/tests/fake/nvml.so MICS_FAKE_NVML=eight
    [ -e "$MICS_NVML_PATH" ] || skip "the fake NVML is not built"
}

# mics-check on three nodes, of which the second has these variables.
check_with() # assignments command...
{
    # shellcheck disable=SC2016 # the rank expands it
    mpi 3 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then eval "$0"; fi; exec "$@"' "$@"
}

@test "one good machine exits 0, with a page" {
    run -0 --separate-stderr mics-check --quick
    [ "$stderr" = '' ]
    [ "${lines[-1]}" = 'good: 1 node' ]
    version=$(sed -n 's/^#define MICS_VERSION "\(.*\)"/\1/p' "$root/lib/base/version.h")
    [[ $output == *'programs '*"mics $version"* ]]
}

@test "each fault of an emulated GPU is found, named and excludes its node" {
    gpus
    while read -r what fault; do
        code=0
        check_with "export MICS_FAKE_GPU='$fault'" mics-check --facts --tsv >found 2>err || code=$?
        echo "$fault: exit $code"
        cat found
        [ "$(tail -n +2 found | wc -l)" = 1 ]
        [ "$(awk -F '\t' 'NR == 2 { print $3 }' found)" = "$what" ]
        [[ $(awk -F '\t' 'NR == 2 { print $2 }' found) == *'#1' ]]
        if [ "$(awk -F '\t' 'NR == 2 { print $1 }' found)" = fault ]; then want=4; else want=0; fi
        [ "$code" = "$want" ]
    done <<'END'
gpu_count 0 count 7
gpu_model 2 model 1
gpu_in_use 3 processes 2
gpu_in_use 3 used_gib 20
gpu_ecc_errors 4 ecc_errors 1
gpu_ecc_off 4 ecc 0
gpu_remap_pending 5 remap_pending 1
gpu_remap_failed 5 remap_failed 1
gpu_throttled 6 throttle 64
gpu_hot 6 celsius 86
gpu_power_limit 7 power_mw 400000
gpu_pcie_width 0 width 8
gpu_pcie_generation 0 generation 3
gpu_nvlinks 1 links 17
gpu_nvlink_errors 1 recoveries 9
gpu_peer_access 2 peer 4
gpu_peer_access 0 peers 1
gpu_peer_access 0 no_nvlink 1
gpu_persistence 1 persistence 0
gpu_mig 1 mig 1
END
}

@test "another driver, a driver that fails and its messages in the log are found" {
    gpus
    run -4 --separate-stderr check_with 'export MICS_FAKE_DRIVER=1.0' mics-check --facts
    grep -qE '^fault +[^ ]+#1 +driver +- +1.0 +550.90.07' <<<"$output"
    run -4 --separate-stderr check_with 'export MICS_FAKE_NVML=mismatch' mics-check --facts
    grep -qE '^fault +[^ ]+#1 +gpu_driver +- +NVML: nvmlInit: Driver/library version' <<<"$output"
    mkdir -p other/dev
    echo '4,1234,5678,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off.' >other/dev/kmsg
    run -4 --separate-stderr check_with "export MICS_SYSTEM_ROOT=$PWD/other" mics-check --facts
    grep -qE '^fault +[^ ]+#1 +gpu_xid +0000:1b:00 +79: fell off the bus' <<<"$output"
}

@test "repeated messages of the log displace no others, and are found once" {
    for i in {1..300}; do echo "4,$i,1,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=$i"; done >messages
    for i in {1..5}; do echo "4,$i,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=$i"; done >>messages
    echo '4,1,1,-;NVRM: Xid (PCI:0000:2b:00): 79, pid=1' >>messages
    cp messages system/dev/kmsg
    run -4 --separate-stderr mics-check --facts --tsv
    [ "$(grep -c gpu_xid <<<"$output")" = 2 ]
    [[ $output == *'0000:1b:00'*'79: fell off the bus'*'0000:2b:00'*'79: fell off'* ]]
}

# A card in a folder of the system.
card() # folder name speed mtu state
{
    mkdir -p "$1/sys/class/net/$2/device"
    echo "$3" >"$1/sys/class/net/$2/speed"
    echo "$4" >"$1/sys/class/net/$2/mtu"
    echo "$5" >"$1/sys/class/net/$2/operstate"
}

@test "network cards, clocks and limits of a node that differ are found" {
    requires mpi:3
    card system eth0 100000 9000 up
    card slow eth0 10000 1500 up
    mkdir -p system/sys/class/net/br0 slow/dev # no card
    run -4 --separate-stderr check_with "export MICS_SYSTEM_ROOT=$PWD/slow" mics-check --facts
    grep -qE '^fault +[^ ]+#1 +interface_rate +eth0 +1.25 GB/s +12.5 GB/s' <<<"$output"
    grep -qE '^fault +[^ ]+#1 +mtu +eth0 +1500 +9000' <<<"$output"
    run -4 --separate-stderr check_with "export MICS_SYSTEM_ROOT=$PWD" mics-check --facts
    grep -qE '^fault +[^ ]+#1 +interface_missing +eth0 +missing +present' <<<"$output"
    [[ $output != *br0* ]]
    for folder in system slow; do
        port=$folder/sys/class/infiniband/mlx5_0/ports/1
        mkdir -p $port/counters
        echo '4: ACTIVE' >$port/state
        echo '400 Gb/sec (4X NDR)' >$port/rate
        echo 3 >$port/counters/link_downed
    done
    echo 4000 >slow/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error
    run -4 --separate-stderr check_with "export MICS_SYSTEM_ROOT=$PWD/slow" mics-check --facts
    grep -qE '^notice +[^ ]+#1 +rdma_errors +mlx5_0 port 1 +4003 +3$' <<<"$output"
    rm -r {system,slow}/sys/class/infiniband
    if [ "$(ulimit -l)" = unlimited ] && (ulimit -l 64); then
        run -4 --separate-stderr check_with 'ulimit -l 64' mics-check --facts
        grep -qE '^fault +[^ ]+#1 +memlock +- +64.0 KiB +unlimited' <<<"$output"
    fi
    not_sanitized mics-check "the sanitizer must be loaded first"
    ahead=$MICS_BUILD/tests/fake/clock_ahead.so
    run -4 --separate-stderr check_with "export LD_PRELOAD=$ahead" mics-check --facts
    grep -qE '^fault +[^ ]+#1 +clock +- +\+3600.0 s' <<<"$output"
}

@test "a host that does not answer is left out, and the others are checked" {
    requires mpirun
    unset MICS_NODE_RANKS
    # shellcheck disable=SC2030,SC2031 # of this test alone
    export OMPI_MCA_plm_rsh_agent="$PWD/agent"
    printf '#!/bin/sh\necho "no route to host" >&2\nexit 255\n' >agent
    chmod +x agent
    run -4 --separate-stderr mics-check --facts localhost,away
    grep -qE '^fault +away +unreachable +- +no route to host +an answer' <<<"$output"
    [ "${lines[-1]}" = 'bad: 1 of 2 nodes; leave out away' ]
    run -4 --separate-stderr mics-check -q --facts --exclude --hosts=localhost,away
    [ "$output" = away ]
    [ "$stderr" = '' ]
    run -1 --separate-stderr mics-check --facts away
    [[ $stderr == "mics-run: 'away': no host answers: away: no route to host" ]]
    [ "$output" = '' ]
    run -0 --separate-stderr mics-check --facts localhost
    [ "${lines[-1]}" = 'good: 1 node' ]
}

@test "hosts keep the user's names, and one on which the start hangs is left out after --timeout" {
    requires mpirun
    unset MICS_NODE_RANKS
    # shellcheck disable=SC2030,SC2031 # of this test alone
    export OMPI_MCA_plm_rsh_agent="$PWD/agent"
    cat >agent <<'END'
#!/bin/sh
case $* in hang*orted*)
    echo '[vm:7] plm:rsh: Warning: setpgid(9,9) failed in parent with errno=Permission denied(13)'
    exec sleep 60
    ;;
esac
shift
exec sh -c "$*"
END
    chmod +x agent
    run -0 --separate-stderr mics-check --facts --hostfile=good --json localhost,me@away
    [ "$(cat good)" = $'localhost slots=1\nme@away slots=1' ]
    [[ $output == *'"host": "me@away"'* ]]
    run -4 --separate-stderr mics-check --facts --hostfile=good --timeout=5 localhost,hang
    echo "$stderr $output"
    grep -qE '^fault +hang +unreachable +- +mpirun starts nothing there within 5 s +an' <<<"$output"
    [ "${lines[-1]}" = 'bad: 1 of 2 nodes; leave out hang' ]
    [ "$(cat good)" = 'localhost slots=1' ]
    unset OMPI_MCA_plm_rsh_agent
    # nodes that call themselves alike, and a node of Slurm
    MICS_HOSTS="$(uname -n) first 2222" mics-check --facts --hostfile=good --json >page
    grep -q '"host": "first"' page
    [ "$(cat good)" = 'first slots=1 port=2222' ]
    SLURMD_NODENAME=rack-3 mics-check --facts --hostfile=good >page
    [ "$(cat good)" = 'rack-3 slots=1' ]
}

@test "a host needs not see the temporary files of the machine that starts the check" {
    requires mpirun unshare
    unset MICS_NODE_RANKS
    mkdir tmp
    # shellcheck disable=SC2030,SC2031 # of this test alone
    export TMPDIR=$PWD/tmp OMPI_MCA_plm_rsh_agent=$PWD/agent
    cat >agent <<'END'
#!/bin/sh
shift
exec unshare -m sh -c 'mount -t tmpfs none "$TMPDIR" || exit; exec sh -c "$0"' "$*"
END
    chmod +x agent
    ./agent away true || skip 'no tmpfs can be mounted in a mount namespace here'
    run -0 --separate-stderr mics-check --facts away
    [ "${lines[-1]}" = 'good: 1 node' ]
    echo '4,1,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1' >system/dev/kmsg
    run -4 --separate-stderr mics-check --facts away
    [[ $output == *'fault '*gpu_xid* ]]
    [ "$(grep -v ' plm:rsh: Warning: ' <<<"$stderr")" = '' ] # mpirun's, when this machine is busy
}

@test "hosts that were left out are named as the host file has them, with the reason" {
    long=$(printf 'x%.0s' {1..450})
    export MICS_LEFT_OUT=$'fe80::1: r\xe9seau \xff inaccessible\nb: it has slots=2, \'a\' slots=4\n'
    MICS_LEFT_OUT+="c: $long"
    run -4 --separate-stderr mics-check --facts
    [ "$stderr" = '' ]
    grep -qE '^fault +fe80::1 +unreachable +- +r\?seau \? inaccessible +an answer' <<<"$output"
    grep -qE "^fault +b +fewer_slots +- +it has slots=2, 'a' slots=4 +the same" <<<"$output"
    grep -qE '^fewer_slots +give it as many slots=N' <<<"$output"
    grep -qE "^fault +c +unreachable +- +$long +an answer" <<<"$output"
    [ "${lines[-1]}" = 'bad: 3 of 4 nodes; leave out fe80::1,b,c' ]
}

@test "a host file without a good host is not written" {
    echo '4,1,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1' >system/dev/kmsg
    run -4 --separate-stderr mics-check --facts --hostfile=good
    [ "$stderr" = 'mics-check: good: no host is without a fault' ]
    [ ! -e good ]
}

@test "the document goes to a file, mics-show prints the same page, and the good hosts are listed" {
    gpus
    code=0
    check_with 'export MICS_FAKE_GPU="0 mig 1"' \
        mics-check --facts -o check.mp --hostfile=good >page || code=$?
    [ "$code" = 4 ]
    mics-show check.mp | diff page -
    mics-show --json check.mp >check.json
    grep -q '"kind": "mics.check"' check.json
    grep -q '"verdict": "bad"' check.json
    [ "$(wc -l <good)" = 2 ]
    [ "$(sort -u good)" = "$(uname -n) slots=1" ]
    code=0
    check_with 'export MICS_FAKE_GPU="0 mig 1"' mics-check --facts --exclude >list 2>err || code=$?
    [ "$code" = 4 ]
    [ "$(cat list)" = "$(uname -n)" ]
    grep -qE "^mics-check: $(uname -n)#1: gpu_mig of GPU 0 00000000:10:00.0: on" err
    run -0 --separate-stderr mics-check --facts --json
    [[ $output == '{'*'"verdict": "good"'* ]]
}

@test "what has become worse since a baseline is found, although all nodes have it" {
    requires mpi:2 jq
    card system eth0 100000 9000 up
    mpi 2 mics-check --facts --no-history --json -o before.json >page
    mpi 2 mics-check --facts --baseline=before.json >again
    diff page again
    echo 25000 >system/sys/class/net/eth0/speed
    jq '.nodes[0].facts.cores += 2 | .nodes[1].facts.versions.mpi = "Open MPI v1"' \
        before.json >old.json
    run -4 --separate-stderr mpi 2 mics-check --facts --baseline=old.json
    [ "$(grep -cE '^fault +[^ ]+#[01] +less +eth0 +3.12 GB/s +12.5 GB/s' <<<"$output")" = 2 ]
    grep -qE '^fault +[^ ]+#0 +less +cores ' <<<"$output"
    grep -qE '^notice +[^ ]+#1 +changed +mpi .*Open MPI v1$' <<<"$output"
    jq '.nodes[].rates = [{"flops_per_s": 1e18, "memory_bytes_per_s": 1}] |
        .device = "host" | .links = {"send": [1e18, 1e18], "receive": [1, 1]}' before.json >fast.json
    run -4 --separate-stderr mpi 2 mics-check --quick --baseline=fast.json
    [ "$(grep -cE '^fault +[^ ]+#[01] +slower +products of local rank 0 ' <<<"$output")" = 2 ]
    [ "$(grep -cE '^fault +[^ ]+#[01] +slower +what it sends ' <<<"$output")" = 2 ]
    [[ $output != *'memory of local rank'* && $output != *'what it receives'* ]]
    echo '{"kind": "mics.plan", "v": 1}' >plan.json
    run --separate-stderr mics-check --baseline=plan.json
    one_line_and_code 3
    run --separate-stderr mics-check --baseline=missing.mp
    one_line_and_code 1
}

@test "a baseline of other devices, ranks or hosts is not compared in its rates" {
    requires mpi:2 jq
    port=system/sys/class/infiniband/mlx5_0/ports/1
    mkdir -p $port
    echo '4: ACTIVE' >$port/state
    echo '400 Gb/sec (4X NDR)' >$port/rate
    mpi 2 mics-check --facts --no-history --json -o facts.json >page || true # memlock
    jq '.device = "cuda" | .links = {"send": [null, 1e18]} | .nodes[1].ranks = 8 |
        .nodes[].rates = [{"flops_per_s": 1e18, "memory_bytes_per_s": 1e18}]' \
        facts.json >others.json
    mpi 2 mics-check --quick --baseline=others.json >page || true # this machine's rates may differ
    cat page
    grep -qE '^notice +cluster +changed +device +host +cuda' page
    [ "$(grep -cE '^notice +[^ ]+#1 +changed +ranks +1 +8' page)" = 1 ]
    run ! grep -qE '^(fault|notice) .* slower ' page
    echo '200 Gb/sec (4X HDR)' >$port/rate
    run -4 --separate-stderr mpi 2 mics-check --facts --baseline=facts.json
    [ "$(grep -cE '^fault .* less +mlx5_0 port 1 +25 GB/s +50 GB/s' <<<"$output")" = 2 ]
    mv $port "${port%1}2"
    run -4 --separate-stderr mpi 2 mics-check --facts --baseline=facts.json
    [ "$(grep -cE '^fault .* less +mlx5_0 port 1 +missing +present' <<<"$output")" = 2 ]
    jq '.nodes[].host = "other"' facts.json >others.json
    run --separate-stderr mics-check --facts --baseline=others.json
    one_line_and_code 3
    [ "$stderr" = 'mics-check: --baseline: it has none of these hosts' ]
    jq '.nodes[1].facts = 3' facts.json >changed.json
    run --separate-stderr mics-check --facts --baseline=changed.json
    one_line_and_code 3
    [[ $stderr == 'mics-check: changed.json: nodes[1].facts: '* ]]
}

@test "a document of which nothing could be compared is refused, as a baseline and by mics-show" {
    requires jq
    mics-check --facts --no-history --json -o facts.json >page || true # memlock
    while IFS='|' read -r change place; do
        jq "$change" facts.json >changed.json
        run --separate-stderr mics-check --facts --baseline=changed.json
        one_line_and_code 3
        [[ $stderr == "mics-check: changed.json: $place: "* ]] || { echo "$stderr"; return 1; }
        run --separate-stderr mics-show changed.json facts.json
        one_line_and_code 3
    done <<'END'
.nodes[0].ranks = ""|nodes[0].ranks
del(.nodes[0].host)|nodes[0].host
.nodes[0].rates = "fast"|nodes[0].rates
.nodes[0].rates = [{"flops_per_s": "1e12"}]|nodes[0].rates[0].flops_per_s
.nodes[0].facts.memory_bytes = "24G"|nodes[0].facts.memory_bytes
.nodes[0].facts.interfaces = {}|nodes[0].facts.interfaces
.nodes[0].facts.versions = "0.1"|nodes[0].facts.versions
.collectives = {"rows": 3}|collectives.rows
.links = {"send": 1}|links.send
.device = 1|device
.verdict = "\u202e\u009b31m"|verdict
END
}

@test "slow transfers beside a fast port of RDMA are a notice" {
    requires mpi:2 jq
    port=system/sys/class/infiniband/mlx5_0/ports/1
    mkdir -p $port
    echo '4: ACTIVE' >$port/state
    echo '4000000 Gb/sec (4X NDR)' >$port/rate
    mpi 2 mics-check --quick --json >check.json || true # rates of this machine may differ
    jq -e '.findings[] | select(.what == "rdma_unused")' check.json >finding.json
    jq -e '.level == "notice" and .node == null' finding.json
    jq -e '.links.pairs | length == 2' check.json
    jq -e '.nodes[0].rates[0].flops_per_s > 0' check.json
}

@test "a node that does not communicate ends the check after --timeout, which rank 0 says" {
    requires mpi:3
    # shellcheck disable=SC2016 # the rank expands it
    run --separate-stderr mpi 3 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then exec sleep 100; fi
        if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then sleep 3; fi # rank 1 begins first
        exec mics-check --facts --timeout=1'
    [ "$status" = 1 ]
    [[ $stderr == *'mics-check: no result within --timeout; a node does not communicate'* ]]
}

@test "each rate is judged: by others, by what a topology should reach, and by a baseline" {
    requires mpi:4 jq
    export MICS_NODE_RANKS=2
    code=0
    mpi 4 mics-check --quick --no-history --json -o before.json >page || code=$?
    cat page
    [ $code = 0 ] || [ $code = 4 ] # this machine's rates may differ
    for rate in products memory 'between nodes'; do grep -qE "^$rate +[0-9].* (normal|low)$" page; done
    for op in all_gather reduce_scatter all_reduce; do
        grep -qE "^$op of [0-9.]+ .iB over all ranks +[0-9].* links +(normal|low)$" page
        grep -qE "^$op of [0-9.]+ .iB in nodes +[0-9].*#[01] .* other nodes +(normal|low)$" page
    done
    jq -e '[.collectives.rows[].group] | unique == ["node", "world"]' before.json
    jq -e '[.nodes[].collectives | length > 14] == [true, true]' before.json
    # a topology that promises too much, and one of other devices
    mics-plan -q --model=gpt2-nano --global-batch=4 -o plan.mp \
        --topology='node:2 gpu:2 flops:50G mem:4G membw:10GB/s net:1gbit,50us link:5GB/s'
    run -4 --separate-stderr mpi 4 mics-check --quick --tsv -p plan.mp \
        --expect='node:2 gpu:2 flops:1000T mem:4G membw:900TB/s net:900tbit,1us link:900TB/s'
    echo "$stderr $output"
    for rate in memory 'between nodes' 'all_gather of .* over all ranks' 'all_reduce of .* in nodes'; do
        [ "$(grep -cP "^fault\tcluster\tbelow_expected\t$rate\t.*\(node:2 .*\)\t[0-9]" <<<"$output")" = 1 ]
    done
    run --separate-stderr mpi 4 mics-check --quick --expect=p4d
    [ "$status" = 3 ]
    [[ $stderr == *'mics-check: --expect: it says nothing of what was measured here'* ]]
    # what was faster before, with its price
    jq '.collectives.rows[].busbw_bytes_per_s = 1e18 | .nodes[0].collectives[].bytes_per_s = 1e18 |
        .nodes[].rates[].flops_per_s = 1e18' before.json >fast.json
    run -4 --separate-stderr mpi 4 mics-check --quick --tsv -p plan.mp --baseline=fast.json
    echo "$stderr $output"
    [ "$(grep -cP '^fault\tcluster\tslower\tall_reduce of .* over all ranks\t.*\t[0-9.e+]+\tfalse$' <<<"$output")" = 1 ]
    [ "$(grep -cP '^fault\t[^\t]+#0\tslower\tall_gather of .* in nodes\t.*\t[0-9.e+]+\tfalse$' <<<"$output")" = 1 ]
    [ "$(grep -cP '^fault\t[^\t]+#1\tslower\tproducts of local rank 0\t.*\t[0-9.e+]+\tfalse$' <<<"$output")" = 1 ]
}

@test "a changed document of a check is refused with its path" {
    mics-check --facts --json -o good.json >/dev/null
    sed 's/"findings": \[\]/"findings": [{"what": 3}]/' good.json >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
    [[ $stderr == 'mics-show: bad.json: findings[0].what: expected a string'* ]]
    sed 's/"v": 1/"v": 9/' good.json >bad.json
    run --separate-stderr mics-show bad.json
    one_line_and_code 3
}

# A check of three nodes, of which n1 sends at this rate, with these findings.
checked() # bytes_per_s findings version
{
    jq -n --argjson rate "$1" --argjson findings "$2" --arg version "$3" '{kind: "mics.check", v: 1,
        verdict: (if $findings == [] then "good" else "bad" end), hosts: ["n0", "n1", "n2"], per_node: 1,
        device: "host", bad_nodes: [], findings: $findings,
        nodes: [range(3) | {host: "n\(.)", ranks: 1, facts: {versions: {mics: $version}, cores: 8},
            rates: [{flops_per_s: 1e9, memory_bytes_per_s: 1e9}]}],
        links: {bytes: 1, rounds: 1, repeats: 1, reference_bytes_per_s: 1e9, send: [1e9, $rate, 1e9],
            receive: [1e9, 1e9, 1e9], pairs: [[0, 1, 1e9], [1, 2, $rate]]}}'
}

@test "two checks are compared: what is new, gone, worse, better or other" {
    disk='[{"what": "disk", "level": "fault", "node": 2, "host": "n2", "found": "1 GiB"}]'
    pair='[{"what": "slow_pair", "level": "fault", "where": "from n1 to n2", "found": "800 Mbit/s", "expected": "8"}]'
    checked 1e9 "$disk" 0.1.0 >old.json
    checked 1e8 "$pair" 0.2.0 >new.json
    mics-show old.json new.json >changes
    cat changes
    [ "$(wc -l <changes)" = 9 ]
    grep -qE '^new +cluster +slow_pair +from n1 to n2 +- +800 Mbit/s$' changes
    grep -qE '^gone +n2 +disk +- +1 GiB +-$' changes
    grep -qE '^worse +n1 +slower +what it sends +1 GB/s +800 Mbit/s$' changes
    [ "$(grep -cE '^other +n[0-2] +changed +mics +0.1.0 +0.2.0$' changes)" = 3 ]
    [ "$(tail -n 1 changes)" = 'bad before, bad now' ]
    mics-show new.json old.json | grep -E '^better +n1 +slower +what it sends +800 Mbit/s +1 GB/s$'
    mics-show old.json old.json >same
    [ "$(cat same)" = $'change  host  what  where  before  now\n\nbad before, bad now' ]
    # what was not looked at again is not gone
    jq 'del(.nodes[2], .hosts[2], .links.send[2], .links.receive[2], .links.pairs[1])
        | .verdict = "good" | .findings = []' new.json >fewer.json
    mics-show old.json fewer.json >changes
    grep -qE '^unchecked +n2 +- +- +- +-$' changes
    run -1 grep -q '^gone' changes
    mics-show fewer.json old.json | grep -E '^added +n2 '
    run -0 mics-show new.json fewer.json # a pair with n2
    [[ $output != *slow_pair* ]]
    jq 'del(.links)' old.json >unlinked.json
    run -0 mics-show new.json unlinked.json
    [[ $output != *slow_pair* ]]
    for what in host_copies node_links; do
        finding='[{"what": "'$what'", "level": "fault", "node": 0, "host": "n0", "found": "1 GB/s"}]'
        checked 1e9 "$finding" 0.1.0 >old.json
        checked 1e9 '[]' 0.1.0 >host.json # it has the ranks' rates, as of every check
        jq '.collectives = {}' host.json >other.json
        run -0 mics-show old.json other.json
        [[ $output != *$what* ]]
        jq '.nodes[0].rates[0].from_host_bytes_per_s = 1e9 | .nodes[0].collectives = [{"op":
            "all_gather", "bytes": 1, "bytes_per_s": 1e9}]' host.json >looked.json
        run -0 mics-show old.json looked.json
        [[ $output == *$what* ]]
    done
    checked 1e9 "$disk" 0.1.0 >old.json
    # others are shown one after another, and so is what comes through pipes
    [ "$(mics-show <(cat old.json) new.json | grep -c '^==> ')" = 2 ]
    [ "$(mics-show old.json new.json old.json | grep -c '^==> ')" = 3 ]
    jq '.nodes[].host |= "x" + .' old.json >other.json
    run -3 --separate-stderr mics-show other.json new.json
    [ "$stderr" = 'mics-show: other.json and new.json: it has none of these hosts' ]
}

@test "a check is drawn: nodes by their findings, and slow pairs" {
    disk='{"what": "disk", "level": "fault", "node": 2, "host": "n2", "found": "1 GiB"}'
    kernel='{"what": "kernel", "level": "notice", "node": 0, "host": "n0", "found": "6 \"x\""}'
    pair='{"what": "slow_pair", "level": "fault", "where": "from n1 to n2", "found": "800 Mbit/s"}'
    checked 1e8 "[$disk, $kernel, $pair]" 0.1.0 >check.json
    mics-show --dot check.json >check.dot
    grep -q 'label="bad: 3 nodes, usual between them 1 GB/s' check.dot
    grep -q 'n0 \[fillcolor="#fdf3c7", ' check.dot
    grep -q 'n1 \[fillcolor="#d8f0dd", label="n1"\]' check.dot
    grep -q 'n2 \[fillcolor="#f6c4c4", ' check.dot
    grep -q 'n0 -- n1 \[dir=forward, color="#bbbbbb", penwidth=0.7\]' check.dot
    grep -q 'n1 -- n2 \[dir=forward, color="#d02020", penwidth=2, label="800 Mbit/s"\]' check.dot
    if command -v dot >/dev/null; then dot -Tsvg check.dot | grep -q '</svg>'; fi
    run -2 --separate-stderr mics-show --dot --expect=p4d check.json
    [ "$stderr" = 'mics-show: --expect goes with a topology' ]
    jq 'del(.nodes)' check.json >damaged.json
    run -3 --separate-stderr mics-show --dot damaged.json
    one_line_and_code 3
}

@test "a check is drawn: the matrix of pairs" {
    requires gnuplot
    checked 1e8 '[]' 0.1.0 | jq '.bad_nodes = [1]' >check.json
    mics-show --gnuplot --terminal=dumb check.json >script
    gnuplot script >drawn 2>said
    cat drawn said
    [ ! -s said ]
    grep -q 'Pairs of 3 nodes: good, usual rate 1.*GB/s' drawn
    for words in 'below 50 %' '80 % or more' n0 'n1\*' n2 sender receiver; do grep -q "$words" drawn; done
    jq 'del(.links)' check.json >facts.json
    run -4 --separate-stderr mics-show --gnuplot facts.json
    [ "$stderr" = 'mics-show: facts.json: no pair of nodes was measured' ]
}

@test "the price of faults needs a plan, which is read before anything is measured" {
    mics-plan -q --model=gpt2-nano --topology='node:2 gpu:1 net:1gbit,10us' --global-batch=4 -o plan.mp
    run -0 --separate-stderr mics-check --quick -p plan.mp
    [[ ${lines[-2]} == 'planned step: '*s ]]
    [ "${lines[-1]}" = 'good: 1 node' ]
    mics-check --quick --plan=plan.mp --json -o - | jq -e '.plan.step_s == .plan.step_with_faults_s and .plan.step_s > 0'
    run -1 --separate-stderr mics-check --quick -p none.mp
    [[ $stderr == 'mics-check: none.mp: '* ]]
    echo '{"kind": "mics.plan", "v": 2}' >bad.mp
    run -3 --separate-stderr mics-check --quick -p bad.mp
    [[ $stderr == 'mics-check: bad.mp: '* ]]
    run -2 --separate-stderr mics-check --facts -p plan.mp
    [ "${stderr_lines[0]}" = 'mics-check: --facts measures nothing, and --plan needs what was measured' ]
    run -2 --separate-stderr mics-check --facts --expect=p4d
    [ "${stderr_lines[0]}" = 'mics-check: --facts measures nothing, and --expect needs what was measured' ]
    run --separate-stderr mics-check --quick --expect=nothing-known
    one_line_and_code 2
    [[ $stderr == 'mics-check: --expect: '* ]]
}

@test "mistakes on the command line of a check exit 2" {
    for words in 'a b' '--hosts=a b' '--exclude --json' '--exclude -o -' '--facts --quick' \
        --device=tpu; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-check $words
        usage_mistake mics-check
    done
    run --separate-stderr mics-run --available -- true
    usage_mistake mics-run
    run --separate-stderr mics-run --available --spares=1 --hostfile=x -- true
    usage_mistake mics-run
    SLURM_JOB_ID=1 SLURM_STEP_NUM_TASKS=2 run --separate-stderr mics-check
    one_line_and_code 2
    [[ $stderr == *"srun --mpi=pmix"* ]]
    run --separate-stderr mics-check -o missing/x.mp
    one_line_and_code 1
    run --separate-stderr mics-check ./missing
    one_line_and_code 1
}
