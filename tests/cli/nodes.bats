#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-plan on clusters as they are: slow and unequal nodes, switches, host files, and topologies
# that contradict themselves.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR"
}

# A topology of four nodes of two ranks, changed by a jq program.
cluster() # program
{
    local text='node:4 gpu:2 flops:1T mem:8G membw:100GB/s link:50GB/s,3us net:10gbit,20us'

    mics-probe --topology="$text" --json |
        jq ". + {hosts: [\"n1\", \"n2\", \"n3\", \"n4\"]} | $1" >topo.json
}

plan() # more options
{
    mics-plan --model=gpt2-nano --seq=256 "$@"
}

@test "plan: --hostfile has the hosts of --hosts for mpirun, and --launch uses it" {
    run -0 --separate-stderr plan --topology='node:3 gpu:2' --hosts='a[08-10]' --hostfile=hosts \
        --launch=mpirun
    [[ $output == 'mpirun -n 6 --map-by ppr:2:node --hostfile hosts mics-train '* ]]
    [[ $stderr == 'mics-plan: one node alone would not be slower: '+([^$'\n']) ]] # of a small model
    [ "$(cat hosts)" = $'a08 slots=2\na09 slots=2\na10 slots=2' ]
    printf 'x slots=4\n# y\nz\n\nw # last\n' >list
    plan --topology='node:3 gpu:2' --hosts=list --hostfile=hosts -o plan.mp
    [ "$(cat hosts)" = $'x slots=2\nz slots=2\nw slots=2' ]
    mics-show --json plan.mp | jq -e '.topology.hosts == ["x", "z", "w"]'
}

@test "plan: with --launch=srun, --hostfile has a line for each task" {
    run -0 --separate-stderr plan --topology='node:2 gpu:2' --hosts=a,b --hostfile=tasks \
        --launch=srun
    [[ $output == 'SLURM_HOSTFILE=tasks srun --nodes=2 --ntasks=4 '* ]]
    [[ $output == *' --ntasks-per-node=2 --distribution=arbitrary '* ]]
    [ "$(cat tasks)" = $'a\na\nb\nb' ]
}

@test "plan: --switches keeps partition groups under one leaf switch where possible" {
    printf '%s\n' 'SwitchName=s0 Nodes=n[1,3]' 'SwitchName=s1 Nodes=n[2,4]' \
        'SwitchName=top Switches=s[0-1]' >topology.conf
    cluster .
    run -0 --separate-stderr plan --strategy=mics:4 --switches=topology.conf --hostfile=hosts \
        --json topo.json
    [ "$(cut -d' ' -f1 hosts | xargs)" = 'n1 n3 n2 n4' ]
    jq -e '.topology.switch_use ==
        {groups: 2, one_leaf: 2, most_leaves: 1, unknown_hosts: 0}' <<<"$output"
    [ -z "$stderr" ]
    run -0 --separate-stderr plan --strategy=zero3 --switches=topology.conf --json topo.json
    [[ $stderr == *': partition groups under more than one leaf switch: 1 of 1, under up to 2' ]]
}

@test "plan: --switches reads topology.yaml, which hides topology.conf as in Slurm" {
    mkdir slurm
    printf 'SwitchName=s0 Nodes=n[1,4]\nSwitchName=s1 Nodes=n[2,3]\n' >slurm/topology.conf
    cluster .
    hosts() { cut -d' ' -f1 hosts | xargs; }
    order() { run --separate-stderr plan --strategy=mics:4 --hostfile=hosts --json topo.json "$@"; }
    order --switches=slurm
    [ "$(hosts)" = 'n1 n4 n2 n3' ]
    [ -z "$stderr" ]
    cat >slurm/topology.yaml <<'END'
# the cluster
- topology: everything
  flat: true
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: s[0-1]
      - switch: s0
        nodes: n[1,3]
      - switch: s1
        nodes: n[2,4]
- topology: racks
  block:
    block_sizes: [2]
    blocks:
      - block: b0
        nodes: n[1-2]
      - block: b1
        nodes: n[3-4]
END
    order --switches=slurm/topology.yaml
    if [[ $stderr == *'without libyaml'* ]]; then skip "this build is without libyaml"; fi
    for file in slurm slurm/topology.conf slurm/topology.yaml; do
        order --switches=$file
        [ "$status" = 0 ]
        [ "$(hosts)" = 'n1 n3 n2 n4' ]
        [ "$stderr" = 'mics-plan: slurm/topology.conf: ignored for topology.yaml beside it, as by Slurm' ]
    done
    order --switches=slurm --switch-topology=racks
    [ "$(hosts)" = 'n1 n2 n3 n4' ]
    order --switches=slurm --switch-topology=everything
    [ "$status" = 3 ]
    [ "$stderr" = "mics-plan: slurm/topology.yaml: line 2: topology 'everything' is flat, without switches; choose a tree or blocks with --switch-topology=NAME" ]
    run -2 --separate-stderr plan --switch-topology=racks topo.json
    cp slurm/topology.yaml other
    order --switches=other
    [ "$(hosts)" = 'n1 n3 n2 n4' ]
    [ -z "$stderr" ]
}

@test "plan: hosts and switches that cannot be used are one line" {
    cluster .
    printf 'SwitchName=s0 Nodes=n[1-4]\n' >topology.conf
    printf 'SwitchName=s0 Nodes=m[1-4]\n' >other.conf
    printf 'SwitchName=s0 Nodes=n[1-2\n' >broken.conf
    while IFS='|' read -r code options message; do
        # shellcheck disable=SC2086
        run -"$code" --separate-stderr plan $options -o plan.mp
        echo "$stderr"
        [ "${#stderr_lines[@]}" = 1 ] || [ "$code" = 2 ]
        [[ ${stderr_lines[0]} == *"$message"* ]]
        [ ! -e plan.mp ]
        [ ! -e x ]
    done <<'END'
2|--topology=node:4 --hosts=n[1-3]|3 hosts, but the topology has 4 nodes
2|--topology=node:4 --switches=topology.conf|topology.conf: the topology names no hosts; give
2|--switches=other.conf topo.json|other.conf: 'n1' and the other hosts are under no switch
3|--switches=broken.conf topo.json|broken.conf: line 1: switch 's0': '[' without ']'
1|--switches=none.conf topo.json|none.conf
3|--topology=node:4 --hosts=n[4-1]|expected numbers and ranges in brackets
END
    run -2 --separate-stderr plan --topology=node:4 --hostfile=x
    [[ $stderr == *'x: the topology names no hosts; give them with --hosts'* ]]
    [ ! -e x ]
}

@test "plan: bad nodes are left out, with the reason, unless --all-nodes is given" {
    cluster '. + {bad_nodes: [2], outliers: [{what: "flops", where: "rank 5", host: "n3",
        value: 1e11, median: 1e12, times_slower: 10}]}'
    run -0 --separate-stderr plan --json --hostfile=hosts topo.json
    [ "$stderr" = 'mics-plan: left out: n3: flops of rank 5 is 10.0 times slower than the median' ]
    jq -e '.topology | .nodes == 3 and .hosts == ["n1", "n2", "n4"] and
        .left_out[0].node == 2' <<<"$output"
    [ "$(cut -d' ' -f1 hosts | xargs)" = 'n1 n2 n4' ]
    printf '%s' "$output" >plan.json
    mics-show plan.json >/dev/null
    run -0 --separate-stderr plan --json --all-nodes topo.json
    [ -z "$stderr" ]
    jq -e '.topology | .nodes == 4 and .device.flops_per_s == 1e11' <<<"$output"
    # The rates of a catalogue's GPU are those of the slow rank, too.
    mics-probe --topology=p4d.24xlarge:2 --json |
        jq '.device.flops_per_s as $rate | . + {bad_nodes: [1], outliers: [{what: "flops",
            where: "rank 9", host: "b", value: ($rate / 10), median: $rate,
            times_slower: 10}]}' >slow.json
    for option in '' --all-nodes; do
        # shellcheck disable=SC2086
        plan --micro-batch=8 --strategy=ddp --json -q $option slow.json | jq .predicted.compute_s
    done >seconds
    jq -se '.[1] > 1.5 * .[0]' seconds
    cluster '. + {bad_nodes: [0, 1, 2, 3]}'
    run -4 --separate-stderr plan topo.json
    [ "$stderr" = 'mics-plan: every node is slow (bad_nodes); --all-nodes leaves out none' ]
    cluster '. + {bad_nodes: [2]}'
    run -2 --separate-stderr plan --global-batch=8 topo.json
    [[ $stderr == *'not a multiple of the ranks, 6'* ]]
    [[ $stderr == *--all-nodes* ]]
}

@test "plan: a slower class of nodes is left out if the rest is faster without it" {
    class='{device: "gpu", memory_bytes: 8000000000, memory_bandwidth_bytes_per_s: 1e11}'
    most="$class + {nodes: [0, 1, 3], flops_per_s: 1e12}"
    cluster ". + {node_classes: [$most, $class + {nodes: [2], flops_per_s: 1e11}]}"
    run -0 --separate-stderr plan --json --global-batch=192 topo.json
    [[ $stderr == *': left out: n3: a plan without its class is faster: gpu with '*' per rank' ]]
    jq -e '.topology | .nodes == 3 and .device.flops_per_s == 1e12' <<<"$output"
    mics-show --tsv topo.json | grep -q "^gpu.*100000000000"
    # A little slower, it is worth having.
    cluster ". + {node_classes: [$most, $class + {nodes: [2], flops_per_s: 9.9e11}]}"
    run -0 --separate-stderr plan --json --global-batch=192 topo.json
    [ -z "$stderr" ]
    jq -e '.topology.nodes == 4' <<<"$output"
}

@test "plan: of nodes with other numbers of ranks, the faster part is used" {
    cluster '. as $all | . + {other_parts: [$all + {per_node: 1, nodes: 1, hosts: ["odd"]}]}'
    run -0 --separate-stderr plan --json topo.json
    [ "$stderr" = 'mics-plan: left out: odd: it has 1 rank, the nodes of this plan have 2' ]
    jq -e '.topology.nodes == 4' <<<"$output"
    run -4 --separate-stderr plan --all-nodes topo.json
    [ "$stderr" = 'mics-plan: a plan for all nodes needs the same number of ranks on each' ]
}

@test "plan: a topology that contradicts itself is one line and exit 3" {
    while IFS='|' read -r program message; do
        cluster "$program"
        run -3 --separate-stderr plan topo.json
        echo "$stderr"
        [ "${#stderr_lines[@]}" = 1 ]
        [[ $stderr == "mics-plan: topo.json: $message"* ]]
    done <<'END'
.hosts = ["n1"]|hosts: 1 names, but "nodes" says 4
.hosts[3] = "n1"|hosts: 'n1' is listed twice
.bad_nodes = [7]|bad_nodes[0]: expected the index of a node, 0 to 3
.links.net.bandwidth_bytes_per_s = 0|links.net.bandwidth_bytes_per_s:
.links.net.bandwidth_bytes_per_s = -5|links.net.bandwidth_bytes_per_s:
.links.node.latency_s = -1e-6|links.node.latency_s:
.device.memory_bandwidth_bytes_per_s = 0|device.memory_bandwidth_bytes_per_s:
del(.links.net)|links.net:
.outliers = [{what: "net_link", value: 1, median: 2, times_slower: 4}]|outliers[0].times_slower:
END
    run -2 --separate-stderr plan --topology='node:2 net:0gbit,1us'
    [ "${#stderr_lines[@]}" -le 2 ]
    run -2 --separate-stderr plan --topology='node:2 net:-1gbit,1us'
    [ "${#stderr_lines[@]}" -le 2 ]
}

@test "plan: one rank is planned for, without links" {
    run -0 --separate-stderr plan --topology='node:1 gpu:1' --json
    [ -z "$stderr" ]
    jq -e '.predicted.comm_s == 0 and .predicted.sent_bytes == 0' <<<"$output"
}

@test "plan: host memory is in the plan, and compared with the node's" {
    cluster '.machine = {memory_bytes: 1e12}'
    plan --json -o plan.json topo.json
    jq -e '.memory | .host_bytes_per_node ==
        2 * (.process_bytes + .snapshot_bytes + .pinned_bytes)' plan.json
    jq '.memory.process_bytes += 1' plan.json >lie.json
    run -3 --separate-stderr mics-show lie.json
    [[ $stderr == *'memory.process_bytes: says '* ]]
    cluster '.machine = {memory_bytes: 20000000}'
    run -4 --separate-stderr plan -o none.mp topo.json
    [[ $stderr == *'of host memory on each node'*'--optimizer=lion'* ]]
    [ ! -e none.mp ]
}

@test "plan: --like plans the training of a plan for another number of nodes" {
    plan --topology='node:4 gpu:2' --hosts='n[1-4]' --global-batch=24 --optimizer=lion --no-clip \
        --dtype=f32 --memory=7G -o four.mp
    mics-plan --like=four.mp --nodes=3 --json -o three.json
    jq -e '.topology.nodes == 3 and (.topology | has("hosts") | not) and
        .global_batch == 24 and .choice.optimizer == "lion"' three.json ||
        { jq 'del(.alternatives)' three.json; false; }
    mics-show --tsv three.json | grep -qxE 'seq	256|dtype	f32|clip	0'
    mics-plan --like=four.mp --json | jq -e '.topology.nodes == 4'
    run -2 --separate-stderr mics-plan --like=four.mp --nodes=5
    [[ $stderr == *'global batch 24: not a multiple of the ranks, 10'* ]]
    for words in '--nodes=3 --model=gpt2' '--like=four.mp --model=gpt2' \
        '--like=four.mp --topology=node:3' '--like=four.mp topo.mp' '--like=four.mp --memory=8G' \
        '--like=four.mp --global-batch=8' '--like=four.mp --seq=64' '--like=four.mp --dtype=f32' \
        '--like=four.mp --grad-dtype=f32' '--like=four.mp --optimizer=adamw' \
        '--like=four.mp --no-clip'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-plan $words
        usage_mistake mics-plan
    done
    # At a terminal nothing is read from it.
    if command -v script >/dev/null; then
        script -qec 'mics-plan --like=four.mp -o same.mp' /dev/null </dev/null
        [ -e same.mp ]
    fi
    cluster . # a topology is not a plan
    run -3 --separate-stderr mics-plan --like=topo.json
    one_line_and_code 3
}
