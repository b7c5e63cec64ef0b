#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mics-lab - an emulated cluster on one machine: nodes with shaped links, in which real Open MPI
# runs.
#
# A lab is a tree of processes. Its root, the hub, has its own network, mount, UTS and PID
# namespaces. They contain a bridge and the nodes, which are child processes with namespaces of
# their own. A veth pair connects eth0 of each node to the bridge, with a token bucket filter at
# both ends. Nothing of this is visible outside, all labs use the same addresses, and killing the
# hub makes the kernel remove everything. The state that is needed from outside is in one folder for
# each lab: its shape, the hub's process, and the files for mpirun.
set -u

program=mics-lab
version=@VERSION@
self=$(readlink -f "$0")
subnet=10.77.0
commands=(run up down list traffic slow cut heal exec)

# name, metavariable, letter, help
options='nodes|N||nodes of the lab (default: 4)
slots|N||ranks of a node (default: 2)
net|RATE||rate of each link, as 200mbit or 25MB/s (default: 200mbit)
delay|TIME||delay of each link, as 1ms; needs netem in the kernel
name|NAME||of the lab (default: "lab"; with run: a unique one)
env|NAME||with run: variables for each rank: mpi, torch or none (default: mpi)
traffic|||with run: print at the end the bytes that each node has sent and received, and when
expect-traffic|TEXT||with run: fail unless it is so, as "node: sent <= 70MB"; can be repeated
quiet||q|print errors only
help||h|print this help and exit
version||V|print the version and exit'

nodes=4 slots=2 net=200mbit delay='' name='' environment=mpi traffic=0 expected=()

print_help()
{
    cat <<END
Usage: $program run [options] -- PROGRAM [ARGUMENT...]
       $program up [options]  |  down [NAME...]  |  list  |  traffic
       $program slow NODE RATE  |  cut NODE  |  heal NODE
       $program exec [NODE] -- COMMAND [ARGUMENT...]
Emulate a cluster on this machine: nodes with shaped links, under real Open MPI.
END
    print_options
}

print_completion()
{
    print_option_completion
    printf '%s\t\t\n' "${commands[@]}"
}

# The build inserts these files here.
. cmd/shell/messages.sh
. cmd/shell/parse.sh
. cmd/lab/options.sh
. cmd/lab/folder.sh
. cmd/lab/namespaces.sh
. cmd/lab/build.sh
. cmd/lab/traffic.sh
. cmd/lab/environment.sh
. cmd/lab/commands.sh

# The commands that this program runs inside the namespaces. The first argument is the folder of the
# lab.
inside_main() # what folder arguments...
{
    local what=$1
    lab=${2:-}
    shift 2
    if [ -s "$lab/shape" ]; then read_shape "$lab"; fi
    case $what in
    _hub) name=$1 rate_bits=$2 && hub_main ;;
    _node) node_main "$1" "$2" ;;
    _count) count_main ;;
    _sample) sample_main ;;
    _rank) rank_main "$@" ;;
    esac
}

case ${1:-} in
_*) inside_main "$@"; exit ;;
esac
parse "$@"
[ ${#operands[@]} -gt 0 ] || usage "which command? One of ${commands[*]}"
[[ ${operands[0]} != *' '* && " ${commands[*]} " == *" ${operands[0]} "* ]] ||
    usage "unknown command '${operands[0]}'$(
        printf '%s\n' "${commands[@]}" | did_you_mean "${operands[0]}")"
if [ "${operands[0]}" != run ]; then no_run_options; fi
"${operands[0]}_main"
