# SPDX-License-Identifier: Apache-2.0
# build.sh - creates a lab, measures its links, and destroys it. Part of mics-lab.

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
    # mpirun calls this instead of ssh, with a host and the words of a shell command. Like ssh it
    # does not reach a node that was disconnected.
    echo '#!/bin/sh' >"$lab/agent"
    cat >>"$lab/agent" <<END
read -r pid <"$lab/\$1" || exit 255
case \$pid in '' | *[!0-9]*) exit 255 ;; esac
case \$(ip -o link show "port\${1#node}" 2>&1) in
*,UP,* | *,UP\>*) ;;
*) echo "\$1: no route to host" >&2; exit 255 ;;
esac
shift
exec nsenter -t "\$pid" -n -u -m -p -- sh -c "\$*"
END
    chmod +x "$lab/agent"
}

# What Open MPI needs in a lab: parameters and values.
mpi_parameters()
{
    cat <<END
plm_rsh_agent $lab/agent
orte_tmpdir_base $lab/tmp
oob_tcp_if_include $subnet.0/24
btl_tcp_if_include $subnet.0/24
pml ob1
btl self,vader,tcp
oob_tcp_keepalive_time 10
oob_tcp_keepalive_intvl 2
oob_tcp_keepalive_probes 5
rmaps_base_oversubscribe 1
mpi_yield_when_idle 1
END
}

mpirun_options()
{
    local parameter
    printf '%s' "--hostfile $lab/hostfile --bind-to none --allow-run-as-root"
    while read -r parameter; do printf ' --mca %s' "$parameter"; done < <(mpi_parameters)
    echo
}

# The same as variables, for programs on the hub that start mpirun.
mpi_environment()
{
    mpi_parameters | sed 's/ /=/; s/^/OMPI_MCA_/'
    printf 'OMPI_MCA_%s\n' orte_default_hostfile="$lab/hostfile" hwloc_base_binding_policy=none
    printf 'OMPI_%s=1\n' ALLOW_RUN_AS_ROOT ALLOW_RUN_AS_ROOT_CONFIRM
}

# Kill the hub: the kernel then kills the other processes and removes the links.
destroy() # folder
{
    local pid tries=0
    if is_alive "$1/hub"; then
        read_pid "$1/hub"
        kill -KILL "$pid"
        # The kernel waits for the parents of processes inside, which may be stopped outside.
        while is_alive "$1/hub"; do
            sleep 0.02
            [ $((tries += 1)) -le 1000 ] ||
                fail 1 "lab '${1##*/}' does not end: continue or kill what is stopped in it"
        done
    fi
    remove_lab "${1##*/}"
}

can_isolate()
{
    local how=(unshare --net --uts --mount --pid --fork) tool why=''
    for tool in ip tc unshare nsenter mpirun; do
        command -v "$tool" >/dev/null ||
            fail 1 "$tool is not installed (Debian: iproute2, util-linux, openmpi-bin)"
    done
    if [ "$(id -u)" != 0 ]; then
        how+=(--user --map-root-user)
        why=': not root, and the system allows users none'
    fi
    "${how[@]}" mount -t proc proc /proc 2>/dev/null & # see build()
    wait $! || fail 1 "no network namespaces here$why"
    isolate=("${how[@]}")
}

# Measure a transfer from the first node to the last: datagrams to an unused IP address that
# resolves to the last node's hardware address, where they are counted and dropped.
# measured= bits per second.
measure()
{
    local size=8900 urgent=()
    if [ "$rate_bits" -lt 100000000 ]; then size=1400; fi
    # Do not measure the load of the machine.
    if chrt -f 1 true 2>/dev/null; then urgent=(chrt -f 1); fi
    in_node 1 "${urgent[@]}" bash -c \
        "dd if=/dev/zero bs=$size status=none >/dev/udp/$subnet.253/9 & read -r; kill \$!" \
        2>/dev/null < <(
            in_node "$nodes" "${urgent[@]}" "$self" _count "$lab" >"$lab/measured"
            echo
        )
    read_measured "$lab"
}

# Set measured= to the bits per second that a link carried, or nothing.
read_measured() # folder
{
    measured=''
    { read -r measured <"$1/measured"; } 2>/dev/null
    [[ $measured =~ ^[0-9]{1,15}$ ]] || measured=''
}

# Microseconds, and the bytes that have arrived. It needs a finer clock than that of read_clock; a
# step of the time of day spoils one measurement.
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
    awk -v a="$from" -v b="$to" 'BEGIN {
        split(a, x); split(b, y)
        printf "%.0f", (y[2] - x[2]) * 8e6 / (y[1] - x[1]) }'
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
        fail 1 "$net cannot be shaped here: a link carries $(format_rate "${measured:-0}")"
    fi
}

# What takes long of build(), in a process of its own.
finish_building() # run|up
{
    local measured='' carries='no link to measure'
    wait_until_built "$starter"
    check_measured
    count_traffic >"$lab/traffic"
    if [ -n "$measured" ]; then carries=$(format_rate "$measured"); fi
    if [ "$1" = run ]; then remember_process $$ "$lab/owner"; fi
    say "lab '$name': $nodes nodes of $slots slots, $(format_rate "$rate_bits")" \
        "links${delay:+, delay $delay} (measured: $carries)"
}

stop_building() # code
{
    stopping=$1
    if [ -n "$building" ]; then kill "$building" 2>/dev/null; fi
}

# Create the lab $name as $lab. It is destroyed again if this program exits before keep=1. Bash
# drops a SIGINT that comes while it waits for a process in the foreground, unless it is trapped;
# what may not be expanded then, see wait_for_job(), is left to a process in the background.
build() # run|up
{
    local building='' stopping=0 code
    find_labs
    can_isolate
    take_rate --net "$net"
    lab=$labs/$name
    trap 'stop_building 130' INT
    trap 'stop_building 143' TERM
    trap 'stop_building 129' HUP
    mkdir -m 700 -- "$lab" 2>/dev/null ||
        fail 1 "lab '$name' exists already; '$program down $name' ends it"
    keep=0
    trap 'end_lab' EXIT
    write_files || fail 1 "'$lab': cannot be written"
    "${isolate[@]}" --kill-child=KILL "$self" _hub "$lab" "$name" "$rate_bits" \
        </dev/null >/dev/null 2>&1 &
    starter=$!
    disown
    finish_building "$1" &
    building=$!
    if [ $stopping != 0 ]; then kill "$building" 2>/dev/null; fi # it was not known yet
    while kill -0 "$building" 2>/dev/null; do wait "$building"; done # a signal ends a wait
    wait "$building"
    code=$?
    trap - INT TERM HUP
    if [ $stopping != 0 ]; then exit $stopping; fi
    if [ $code != 0 ]; then exit $code; fi
}

# The hub that build() has started can be found from when it has written its process.
wait_for_hub()
{
    local tries=0
    until [ -s "$lab/hub" ] || ! kill -0 "$starter" 2>/dev/null || [ $((tries += 1)) -gt 1000 ]; do
        sleep 0.02
    done
}

end_lab()
{
    trap '' INT TERM HUP
    if [ "${keep:-1}" != 0 ]; then return; fi
    if [ -n "${runner:-}" ]; then # disowned: without the shell's own message that it was killed
        { disown "$runner"; kill -KILL "$runner"; } 2>/dev/null
    fi
    if [ -n "${starter:-}" ]; then wait_for_hub; fi
    destroy "$lab"
}
