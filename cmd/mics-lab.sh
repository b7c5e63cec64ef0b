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
commands=(run up down list slow cut heal exec)

# name, metavariable, letter, help
options='nodes|N||nodes of the lab (default: 4)
slots|N||ranks of a node (default: 2)
net|RATE||rate of each link, as 200mbit or 25MB/s (default: 200mbit)
delay|TIME||delay of each link, as 1ms; needs netem in the kernel
name|NAME||of the lab (default: "lab"; of run: one of its own)
quiet||q|say nothing but errors
help||h|print this help and exit
version||V|print the version and exit'

nodes=4 slots=2 net=200mbit delay='' name='' quiet=0

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

# Print what is read; a failure to (a full disk) is an error.
publish() { cat 2>/dev/null || fail 1 'standard output: cannot be written'; }

print_help()
{
    local option arg letter text left
    cat <<END
Usage: $program run [options] -- PROGRAM [ARGUMENT...]
       $program up [options]  |  down [NAME...]  |  list
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
    printf '\nSee %s(1) for the whole story, mics(7) for the ideas.\n' "$program"
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

# --- command line

take_count() # option value most
{
    [[ $2 =~ ^[1-9][0-9]{0,3}$ && $2 -le $3 ]] || usage "--$1: '$2': must be a number from 1 to $3"
}

take_name() # option value
{
    [[ $2 =~ ^[a-z0-9][a-z0-9-]{0,31}$ ]] || usage "--$1: '$2': must be small letters, digits and '-', at most 32"
}

take_option() # name value
{
    case $1 in
    nodes) take_count nodes "$2" 128 && nodes=$2 ;;
    slots) take_count slots "$2" 128 && slots=$2 ;;
    net) take_rate --net "$2" && net=$2 ;;
    delay) [[ $2 =~ ^[0-9]+(\.[0-9]+)?(us|ms)$ ]] || usage "--delay: '$2': must be a time, as 500us or 1ms" && delay=$2 ;;
    name) take_name name "$2" && name=$2 ;;
    quiet) quiet=1 ;;
    help) print_help | publish; exit ;;
    version) echo "$program (mics) $version" | publish; exit ;;
    esac
}

# One option; consumed=2 when its value was the next word.
take_long() # --name[=value] next...
{
    local given=${1#--} line option arg letter text
    line=$(grep -E "^$(printf '%s' "${given%%=*}" | tr -cd 'a-z-')\|" <<<"$options") || usage "unknown option '${1%%=*}'"
    IFS='|' read -r option arg letter text <<<"$line"
    [ "$option" = "${given%%=*}" ] || usage "unknown option '${1%%=*}'"
    consumed=1
    if [ -z "$arg" ]; then
        [ "$given" = "$option" ] || usage "--$option takes no value"
        take_option "$option" ''
    elif [[ $given == *=* ]]; then
        take_option "$option" "${given#*=}"
    else
        [ $# -ge 2 ] || usage "--$option needs a value"
        consumed=2
        take_option "$option" "$2"
    fi
}

# Options into variables, what is before "--" into operands, what is after it into job.
parse()
{
    operands=() job=()
    while [ $# -gt 0 ]; do
        consumed=1
        case $1 in
        --) shift; job=("$@"); return ;;
        --complete) print_completion | publish; exit ;;
        --*) take_long "$@" ;;
        -h) take_option help ;;
        -V) take_option version ;;
        -q) take_option quiet ;;
        -?*) usage "unknown option '$1'" ;;
        *) operands+=("$1") ;;
        esac
        shift $consumed
    done
}

expect() # least most: operands of the command
{
    local count=$((${#operands[@]} - 1))
    [ $count -ge "$1" ] || usage "${operands[0]}: an operand is missing"
    [ $count -le "$2" ] || usage "${operands[0]}: '${operands[$2 + 1]}': no such operand is expected"
}

no_job() { [ ${#job[@]} = 0 ] || usage "${operands[0]} takes no command to run"; }

# Bits per second of a rate as people write it: rate_bits=
take_rate() # what text
{
    local text=${2,,} factor
    [[ $text =~ ^([0-9]{1,12}(\.[0-9]{1,6})?)(kbit|mbit|gbit|kb/s|mb/s|gb/s)$ ]] ||
        usage "$1: '$2': must be a rate, as 200mbit, 1.5gbit or 25MB/s"
    case ${BASH_REMATCH[3]} in
    kbit) factor=1e3 ;; mbit) factor=1e6 ;; gbit) factor=1e9 ;;
    kb/s) factor=8e3 ;; mb/s) factor=8e6 ;; gb/s) factor=8e9 ;;
    esac
    rate_bits=$(awk -v n="${BASH_REMATCH[1]}" -v f=$factor 'BEGIN { printf "%.0f", n * f }')
    if [ "$rate_bits" -lt 1000000 ] || [ "$rate_bits" -gt 20000000000 ]; then
        usage "$1: '$2': rates from 1mbit to 20gbit can be shaped"
    fi
}

as_people() # bits per second
{
    awk -v n="$1" 'BEGIN { if (n >= 1e9) printf "%.3g Gbit/s", n / 1e9; else printf "%.4g Mbit/s", n / 1e6 }'
}

# --- the folder of labs

find_labs()
{
    if [ "$(id -u)" = 0 ]; then
        labs=/run/mics-lab
    else
        labs=${XDG_RUNTIME_DIR:-/tmp}/mics-lab-$(id -u)
    fi
    (umask 077 && mkdir -p "$labs") 2>/dev/null || fail 1 "'$labs': cannot be made"
    [ -O "$labs" ] || fail 1 "'$labs' belongs to somebody else"
}

# When a process began, in the kernel's ticks: with the number, it names a process for good.
began() # pid
{
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    stat=${stat##*) }
    cut -d ' ' -f 20 <<<"$stat"
}

lives() # file with "pid began"
{
    local pid ticks
    { read -r pid ticks <"$1"; } 2>/dev/null && [ "$(began "$pid")" = "$ticks" ]
}

remember_process() # pid file
{
    echo "$1 $(began "$1")" >"$2.new" && mv "$2.new" "$2"
}

# up; running: under run; left: its run is gone; dead: only the folder is there
state_of() # folder
{
    if ! lives "$1/hub"; then
        echo dead
    elif [ ! -e "$1/owner" ]; then
        echo up
    elif lives "$1/owner"; then
        echo running
    else
        echo left
    fi
}

# The lab that is meant: --name, or the only one.
choose_lab()
{
    local all
    find_labs
    if [ -z "$name" ]; then
        all=("$labs"/*/)
        [ -d "${all[0]}" ] || fail 1 "there is no lab; '$program up' makes one"
        [ ${#all[@]} = 1 ] || usage "there are several labs: which --name?"
        name=$(basename "${all[0]}")
    fi
    lab=$labs/$name
    [ -d "$lab" ] || fail 1 "there is no lab '$name'"
    lives "$lab/hub" || fail 1 "lab '$name' is dead; '$program down $name' clears it away"
    read -r nodes slots net delay <"$lab/shape"
}

take_node() # text: node=
{
    node=${1#node}
    [[ $node =~ ^[1-9][0-9]{0,2}$ && $node -le $nodes ]] || usage "'$1': no node of lab '$name', which has node1 to node$nodes"
}

# --- inside

# Run a command in the places of a process, whose namespaces are the files in a folder.
in_places() # folder command...
{
    local at=$1 pid user=()
    shift
    read -r pid _ <"$lab/hub"
    if [ "$(id -u)" != 0 ]; then user=("--user=/proc/$pid/ns/user" --preserve-credentials); fi
    # shellcheck disable=SC2016 # expanded inside
    nsenter "${user[@]}" "--net=$at/net" "--uts=$at/uts" "--mount=$at/mnt" "--pid=$at/pid" -- \
        sh -c 'cd "$1" || exit; shift; exec "$@"' sh "$PWD" "$@"
}

in_hub() # command...
{
    local pid _
    read -r pid _ <"$lab/hub"
    in_places "/proc/$pid/ns" "$@"
}

in_node() # node command...
{
    local hub pid _
    read -r hub _ <"$lab/hub"
    read -r pid <"$lab/node$1"
    shift
    in_places "/proc/$hub/root/proc/$pid/ns" "$@"
}

# What tc has to be told. A bucket holds what flows in 5 ms, but at least two packets.
shape() # device rate_bits
{
    local burst
    burst=$(awk -v n="$2" 'BEGIN { b = n / 8 * 0.005; printf "%.0f", b < 20000 ? 20000 : b }')
    echo "qdisc replace dev $1 root handle 1: tbf rate $2bit burst $burst latency 50ms"
    if [ -n "$delay" ]; then echo "qdisc replace dev $1 parent 1:1 handle 10: netem delay $delay limit 100000"; fi
}

shape_link() # node rate_bits
{
    shape "port$1" "$2" | in_hub tc -batch - && shape eth0 "$2" | in_node "$1" tc -batch -
}

hardware_address() { printf '02:00:00:00:00:%02x' "$1"; } # node

# An init: keeps its namespaces, and reaps.
stay() { sleep infinity & wait; }

own_places() # host name
{
    mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && hostname "$1" && ip link set lo up &&
        echo 5 >/proc/sys/net/ipv4/tcp_retries2 # a connection to a node that was cut off fails in 15 s, not 15 minutes
}

# The first node also knows an address that is nobody's, and sends it to the last node.
node_addresses() # node
{
    echo "link set eth0 address $(hardware_address "$1") up"
    echo "address add $subnet.$1/24 dev eth0"
    if [ "$1" = 1 ] && [ "$nodes" -gt 1 ]; then
        echo "neighbour add $subnet.253 lladdr $(hardware_address "$nodes") dev eth0 nud permanent"
    fi
}

node_main() # node rate_bits
{
    local pid
    read -r pid _ </proc/self/stat # as the hub sees it
    own_places "node$1" || exit 1
    echo "$pid" >"$lab/node$1.new" && mv "$lab/node$1.new" "$lab/node$1"
    until [[ $(</proc/net/dev) == *eth0:* ]]; do sleep 0.02; done
    node_addresses "$1" | ip -batch - && shape eth0 "$2" | tc -batch - && : >"$lab/node$1.up"
    stay
}

start_nodes()
{
    local i
    for ((i = 1; i <= nodes; i++)); do
        unshare --net --uts --mount --pid --fork --kill-child=KILL "$self" _node "$lab" "$i" "$rate_bits" &
        disown
    done
}

wait_for_files() # suffix
{
    local i
    for ((i = 1; i <= nodes; i++)); do
        until [ -e "$lab/node$i$1" ]; do sleep 0.02; done
    done
}

plug_in() # node
{
    local pid
    read -r pid <"$lab/node$1"
    echo "link add port$1 mtu 9000 type veth peer name eth0 mtu 9000 netns $pid"
    echo "link set port$1 master br0 up"
}

hub_build()
{
    local i
    own_places "$name" && mount --bind "$lab/hosts" /etc/hosts || return
    start_nodes
    printf '%s\n' 'link add br0 mtu 9000 type bridge' "address add $subnet.254/24 dev br0" 'link set br0 up' |
        ip -batch - || return
    if [ -n "$delay" ] && ! tc qdisc add dev br0 root netem delay "$delay" 2>/dev/null; then
        echo '--delay: this kernel has no netem, so nothing can be delayed'
        return 1
    elif [ -n "$delay" ]; then
        tc qdisc del dev br0 root
    fi
    wait_for_files ''
    for ((i = 1; i <= nodes; i++)); do plug_in "$i"; done | ip -batch - || return
    for ((i = 1; i <= nodes; i++)); do shape "port$i" "$rate_bits"; done | tc -batch - || return
    wait_for_files .up
}

hub_main()
{
    local pid
    read -r pid _ </proc/self/stat # as seen from outside
    remember_process "$pid" "$lab/hub"
    trap '' INT HUP
    if hub_build >"$lab/log" 2>&1; then : >"$lab/ready"; else : >"$lab/failed"; fi
    stay
}

# --- making and ending

write_files()
{
    local i
    mkdir "$lab/tmp"
    echo "$nodes $slots $net $delay" >"$lab/shape"
    {
        printf '127.0.0.1 localhost\n%s.254 %s\n' "$subnet" "$name"
        for ((i = 1; i <= nodes; i++)); do echo "$subnet.$i node$i"; done
    } >"$lab/hosts"
    for ((i = 1; i <= nodes; i++)); do echo "node$i slots=$slots"; done >"$lab/hostfile"
    # What mpirun calls in place of ssh: a host, then words that a shell on it has to read.
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nread -r pid <"%s/$1" || exit 1\nshift\nexec nsenter -t "$pid" -n -u -m -p -- sh -c "$*"\n' \
        "$lab" >"$lab/agent"
    chmod +x "$lab/agent"
}

mpirun_options()
{
    echo "--hostfile $lab/hostfile --bind-to none --allow-run-as-root" \
        "--mca plm_rsh_agent $lab/agent --mca orte_tmpdir_base $lab/tmp" \
        "--mca oob_tcp_if_include $subnet.0/24 --mca btl_tcp_if_include $subnet.0/24" \
        "--mca pml ob1 --mca btl self,vader,tcp" \
        "--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 5" \
        "--mca rmaps_base_oversubscribe 1 --mca mpi_yield_when_idle 1"
}

# Kill the hub: the kernel kills the rest, and takes the links away.
destroy() # folder
{
    local pid
    if lives "$1/hub"; then
        read -r pid _ <"$1/hub"
        kill -KILL "$pid"
        while lives "$1/hub"; do sleep 0.02; done
    fi
    rm -rf "$1"
}

can_isolate()
{
    local how=(unshare --net --uts --mount --pid --fork) tool
    for tool in ip tc unshare nsenter mpirun; do
        command -v "$tool" >/dev/null || fail 1 "$tool is not installed (Debian: iproute2, util-linux, openmpi-bin)"
    done
    if [ "$(id -u)" != 0 ]; then how+=(--user --map-root-user); fi
    "${how[@]}" mount -t proc proc /proc 2>/dev/null ||
        fail 1 "no network namespaces here$([ "$(id -u)" = 0 ] || echo ': not root, and the system allows users none')"
    isolate=("${how[@]}")
}

# A transfer from the first node to the last: datagrams to an address that is nobody's but has the last one's hardware
# address; there they are counted, and dropped. measured= bits per second.
measure()
{
    local size=8900 urgent=()
    if [ "$rate_bits" -lt 100000000 ]; then size=1400; fi
    if chrt -f 1 true 2>/dev/null; then urgent=(chrt -f 1); fi # a busy machine is no slow link
    in_node 1 "${urgent[@]}" bash -c \
        "dd if=/dev/zero bs=$size status=none >/dev/udp/$subnet.253/9 & read -r; kill \$!" 2>/dev/null < <(
            in_node "$nodes" "${urgent[@]}" "$self" _count "$lab" >"$lab/measured"
            echo
        )
    measured=$(cat "$lab/measured")
}

received()
{
    local device bytes rest
    while read -r device bytes rest; do
        if [ "$device" = eth0: ]; then echo "${EPOCHREALTIME/[.,]/} $bytes"; fi
    done </proc/net/dev
}

# Bits per second that arrive at eth0 now.
count_main()
{
    local from to
    sleep 0.4
    from=$(received)
    sleep 0.5
    to=$(received)
    awk -v a="$from" -v b="$to" 'BEGIN { split(a, x); split(b, y); printf "%.0f", (y[2] - x[2]) * 8e6 / (y[1] - x[1]) }'
}

wait_until_built() # pid of the starter
{
    local tries=0 text
    until [ -e "$lab/ready" ]; do
        if [ -e "$lab/failed" ] || ! kill -0 "$1" 2>/dev/null || [ $((tries += 1)) -gt 3000 ]; then
            text=$(tail -n 1 "$lab/log" 2>/dev/null)
            fail 1 "${text:-the lab did not come up}"
        fi
        sleep 0.02
    done
}

check_measured()
{
    local ratio tries=0
    [ "$nodes" -ge 2 ] || return 0
    until [ $((tries += 1)) -gt 3 ]; do
        measure
        ratio=$((${measured:-0} * 100 / rate_bits))
        if [ $ratio -ge 80 ] && [ $ratio -le 120 ]; then break; fi
    done
    if [ $ratio -lt 50 ] || [ $ratio -gt 150 ]; then
        fail 1 "$net cannot be shaped here: a link carries $(as_people "${measured:-0}")"
    fi
}

# The lab $name, of the options' shape. It is gone again if this program ends before keep=1.
build()
{
    local starter measured=''
    find_labs
    can_isolate
    take_rate --net "$net"
    lab=$labs/$name
    mkdir "$lab" 2>/dev/null || fail 1 "lab '$name' is there already; '$program down $name' ends it"
    keep=0
    trap 'end_lab' EXIT
    write_files || fail 1 "'$lab': cannot be written"
    "${isolate[@]}" --kill-child=KILL "$self" _hub "$lab" "$name" "$rate_bits" </dev/null >/dev/null 2>&1 &
    starter=$!
    disown
    wait_until_built "$starter"
    check_measured
    say "lab '$name': $nodes nodes of $slots slots, $(as_people "$rate_bits") links${delay:+, delay $delay}" \
        "(measured: $(if [ -n "$measured" ]; then as_people "$measured"; else echo 'no link to measure'; fi))"
}

end_lab()
{
    trap '' INT TERM HUP
    if [ "${keep:-1}" = 0 ]; then destroy "$lab"; fi
}

# --- commands

# Pass a signal to mpirun; at the second one, or when it does not end in time, all is killed.
forward() # signal code
{
    local child
    if [ "$1" != USR1 ]; then
        [ "$stopping" = 0 ] || exit "$2"
        stopping=$2 deadline=$((SECONDS + 10))
    fi
    read -r child _ <"/proc/$runner/task/$runner/children" && kill -s "$1" "$child"
} 2>/dev/null

wait_for_job()
{
    stopping=0 deadline=0
    trap 'forward INT 130' INT
    trap 'forward TERM 143' TERM
    trap 'forward TERM 129' HUP
    trap 'forward USR1 0' USR1
    wait "$runner"
    code=$?
    while kill -0 "$runner" 2>/dev/null; do # a signal ended the wait
        if [ "$stopping" != 0 ] && [ $SECONDS -ge $deadline ]; then break; fi
        sleep 0.1 &
        wait $!
        kill -0 "$runner" 2>/dev/null || { wait "$runner"; code=$?; }
    done
    if [ "$stopping" != 0 ]; then code=$stopping; fi
}

run_main()
{
    local arguments
    expect 0 0
    [ ${#job[@]} -gt 0 ] || usage "run: no program; put it after '--'"
    name=${name:-run-$$}
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    build
    remember_process $$ "$lab/owner"
    read -r -a arguments < <(mpirun_options)
    in_hub mpirun "${arguments[@]}" -n $((nodes * slots)) -- "${job[@]}" <&0 &
    runner=$!
    wait_for_job
    exit "$code"
}

up_main()
{
    expect 0 0
    no_job
    name=${name:-lab}
    trap 'exit 130' INT
    trap 'exit 143' TERM
    build
    echo "$program exec --name=$name -- mpirun -n $((nodes * slots)) $(mpirun_options)" | publish || exit
    keep=1
}

down_main()
{
    local which=("${operands[@]:1}")
    no_job
    find_labs
    if [ ${#which[@]} = 0 ] && [ -n "$name" ]; then which=("$name"); fi
    if [ ${#which[@]} = 0 ]; then mapfile -t which < <(list_names); fi
    for name in "${which[@]}"; do
        take_name name "$name"
        [ -d "$labs/$name" ] || fail 1 "there is no lab '$name'"
        destroy "$labs/$name"
        say "lab '$name' is gone"
    done
}

list_names()
{
    local folder
    for folder in "$labs"/*/; do
        if [ -d "$folder" ]; then basename "$folder"; fi
    done
}

list_lab() # folder
{
    local n=- s=- rate=- rest carries=-
    { read -r n s rate rest <"$1/shape"; } 2>/dev/null
    if [ -s "$1/measured" ]; then carries=$(as_people "$(cat "$1/measured")"); fi
    printf '%-20s %5s %5s %10s %14s %s\n' "$(basename "$1")" "$n" "$s" "$rate" "$carries" "$(state_of "$1")"
}

list_main()
{
    local each
    expect 0 0
    no_job
    find_labs
    {
        printf '%-20s %5s %5s %10s %14s %s\n' name nodes slots net measured state
        while read -r each; do list_lab "$labs/$each"; done < <(list_names)
    } | publish
}

slow_main()
{
    expect 2 2
    no_job
    choose_lab
    take_node "${operands[1]}"
    take_rate slow "${operands[2]}"
    shape_link "$node" "$rate_bits" || exit 1
    say "node$node of lab '$name' has a link of $(as_people "$rate_bits")"
}

cut_main()
{
    expect 1 1
    no_job
    choose_lab
    take_node "${operands[1]}"
    in_hub ip link set "port$node" down || exit 1
    say "node$node of lab '$name' is cut off"
}

heal_main()
{
    expect 1 1
    no_job
    choose_lab
    take_node "${operands[1]}"
    take_rate --net "$net"
    shape_link "$node" "$rate_bits" && in_hub ip link set "port$node" up || exit 1
    say "node$node of lab '$name' is as at first"
}

exec_main()
{
    expect 0 1
    [ ${#job[@]} -gt 0 ] || usage "exec: no command; put it after '--'"
    choose_lab
    if [ ${#operands[@]} = 1 ]; then
        in_hub "${job[@]}"
    else
        take_node "${operands[1]}"
        in_node "$node" "${job[@]}"
    fi
}

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
