# SPDX-License-Identifier: Apache-2.0
# namespaces.sh - the namespaces of a lab: runs commands in them, and sets up the hub and the nodes.
# Part of mics-lab.

become='' # or exec, for the last command of this program

# Run a command in the namespaces that are the files in a folder.
in_namespaces() # folder command...
{
    local at=$1 pid user=()
    shift
    read_pid "$lab/hub"
    if [ "$(id -u)" != 0 ]; then user=("--user=/proc/$pid/ns/user" --preserve-credentials); fi
    # shellcheck disable=SC2016 # expanded by the inner shell
    $become nsenter "${user[@]}" "--net=$at/net" "--uts=$at/uts" "--mount=$at/mnt" \
        "--pid=$at/pid" -- \
        sh -c 'cd "$1" || exit; shift; exec "$@"' sh "$PWD" "$@"
}

in_hub() # command...
{
    local pid
    read_pid "$lab/hub"
    in_namespaces "/proc/$pid/ns" "$@"
}

in_node() # node command...
{
    local hub pid
    read_pid "$lab/hub"
    hub=$pid
    read_pid "$lab/node$1"
    shift
    in_namespaces "/proc/$hub/root/proc/$pid/ns" "$@"
}

# The commands for tc. The bucket holds the bytes of 5 ms, but at least two packets.
shape() # device rate_bits
{
    local burst
    burst=$(awk -v n="$2" 'BEGIN { b = n / 8 * 0.005; printf "%.0f", b < 20000 ? 20000 : b }')
    echo "qdisc replace dev $1 root handle 1: tbf rate $2bit burst $burst latency 50ms"
    if [ -n "$delay" ]; then
        echo "qdisc replace dev $1 parent 1:1 handle 10: netem delay $delay limit 100000"
    fi
}

shape_link() # node rate_bits
{
    shape "port$1" "$2" | in_hub tc -batch - && shape eth0 "$2" | in_node "$1" tc -batch -
}

hardware_address() { printf '02:00:00:00:00:%02x' "$1"; } # node

# Keep the namespaces, and reap child processes as init does.
stay() { sleep infinity & wait; }

init_namespaces() # host name
{
    mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && hostname "$1" &&
        ip link set lo up &&
        # A connection to a node that was cut off fails in 15 s, not 15 minutes.
        echo 5 >/proc/sys/net/ipv4/tcp_retries2 &&
        # Not what the machine has, which may learn the rate of a link for seconds (bbr).
        echo reno >/proc/sys/net/ipv4/tcp_congestion_control
}

# On the first node an unused IP address resolves to the last node, for measure().
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
    init_namespaces "node$1" || exit 1
    echo "$pid" >"$lab/node$1.new" && mv "$lab/node$1.new" "$lab/node$1"
    until [[ $(</proc/net/dev) == *eth0:* ]]; do sleep 0.02; done
    node_addresses "$1" | ip -batch - && shape eth0 "$2" | tc -batch - && : >"$lab/node$1.up"
    stay
}

start_nodes()
{
    local i
    for ((i = 1; i <= nodes; i++)); do
        unshare --net --uts --mount --pid --fork --kill-child=KILL \
            "$self" _node "$lab" "$i" "$rate_bits" &
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
    read_pid "$lab/node$1"
    echo "link add port$1 mtu 9000 type veth peer name eth0 mtu 9000 netns $pid"
    echo "link set port$1 master br0 up"
}

hub_build()
{
    local i
    init_namespaces "$name" && mount --bind "$lab/hosts" /etc/hosts || return
    start_nodes
    printf '%s\n' 'link add br0 mtu 9000 type bridge' "address add $subnet.254/24 dev br0" \
        'link set br0 up' | ip -batch - || return
    if [ -n "$delay" ] && ! tc qdisc add dev br0 root netem delay "$delay" 2>/dev/null; then
        echo '--delay: this kernel has no netem, so links cannot be delayed'
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
