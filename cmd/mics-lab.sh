#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mics-lab - a cluster in one machine: nodes with shaped links, in which real Open MPI runs.
#
# A lab is a tree of processes. Its root, the hub, has namespaces of its own for network, mounts, host name and
# processes; in it are a bridge and, as children with again their own, the nodes. A veth pair joins each
# node's eth0 to the bridge, with a token bucket at both ends. Nothing of it is seen outside, all labs use the
# same addresses, and when the hub is killed the kernel takes away everything. What must be known from
# outside is in a folder for each lab: its numbers, the hub's process, mpirun's files.
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
name|NAME||of the lab (default: "lab"; of run: one of its own)
traffic|||of run: say in the end what each node has sent and received
quiet||q|print errors only
help||h|print this help and exit
version||V|print the version and exit'

nodes=4 slots=2 net=200mbit delay='' name='' quiet=0 traffic=0

say() { [ $quiet = 1 ] || printf '%s: %s\n' "$program" "$*" >&2; }

fail() # code text
{
    printf '%s: %s\n' "$program" "${2//[[:cntrl:]]/?}" >&2
    exit "$1"
}

usage()
{
    printf "%s: %s\nTry '%s --help'.\n" "$program" "${1//[[:cntrl:]]/?}" "$program" >&2
    exit 2
}

# Print what is read; a failure to (a full disk) is an error, a reader that left (SIGPIPE) is none.
publish()
{
    local code=0
    cat 2>/dev/null || code=$?
    [ $code = 0 ] || [ $code = 141 ] || fail 1 'standard output: cannot be written'
    return $code
}

print_help()
{
    local option arg letter text left
    cat <<END
Usage: $program run [options] -- PROGRAM [ARGUMENT...]
       $program up [options]  |  down [NAME...]  |  list  |  traffic
       $program slow NODE RATE  |  cut NODE  |  heal NODE
       $program exec [NODE] -- COMMAND [ARGUMENT...]
Emulate a cluster on this machine: nodes with shaped links, under real Open MPI.

Options:
END
    while IFS='|' read -r option arg letter text; do
        left="    "
        if [ -n "$letter" ]; then left="-$letter, "; fi
        printf '  %s--%-12s  %s\n' "$left" "$option${arg:+=$arg}" "$text"
    done <<<"$options"
    printf '\nSee %s(1) for details, mics(7) for an introduction.\n' "$program"
}

print_completion()
{
    local option arg letter text
    while IFS='|' read -r option arg letter text; do
        printf -- '--%s\t%s\t%s\n' "$option" "$arg" "$text"
        if [ -n "$letter" ]; then printf -- '-%s\t%s\t%s\n' "$letter" "$arg" "$text"; fi
    done <<<"$options"
    printf '%s\t\t\n' "${commands[@]}"
}

# The build puts these files in here.
. cmd/lab/options.sh
. cmd/lab/folder.sh
. cmd/lab/places.sh
. cmd/lab/build.sh
. cmd/lab/commands.sh

# What this program calls inside: the folder of the lab first.
inside_main() # what folder arguments...
{
    local what=$1
    lab=${2:-}
    shift 2
    if [ -s "$lab/shape" ]; then read -r nodes slots net delay <"$lab/shape"; fi
    case $what in
    _hub) name=$1 rate_bits=$2 && hub_main ;;
    _node) node_main "$1" "$2" ;;
    _count) count_main ;;
    esac
}

case ${1:-} in
_*) inside_main "$@"; exit ;;
esac
parse "$@"
[ ${#operands[@]} -gt 0 ] || usage "which command? One of ${commands[*]}"
[[ " ${commands[*]} " == *" ${operands[0]} "* ]] || usage "'${operands[0]}': must be one of: ${commands[*]}"
"${operands[0]}_main"
