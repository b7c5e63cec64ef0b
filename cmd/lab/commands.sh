# SPDX-License-Identifier: Apache-2.0
# commands.sh - one function for each command. Part of mics-lab.

# Pass a signal to mpirun. A second signal, or a job that does not end in time, kills the lab.
forward() # signal code
{
    local child=''
    if [ "$1" != USR1 ]; then
        [ "$stopping" = 0 ] || exit "$2"
        read_clock
        stopping=$2 deadline=$((now + 10000))
    fi
    read -r child _ <"/proc/$runner/task/$runner/children" # false: a line without an end
    if [ -n "$child" ]; then kill -s "$1" "$child"; fi
} 2>/dev/null

# No command substitution may be expanded while signals are trapped: bash 5.2 fails to parse it, and
# the trap, when a signal comes then.
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
        read_clock
        if [ "$stopping" != 0 ] && [ "$now" -ge "$deadline" ]; then break; fi
        sleep 0.1 &
        wait $!
        kill -0 "$runner" 2>/dev/null || { wait "$runner"; code=$?; }
    done
    trap '' INT TERM HUP USR1
    if [ "$stopping" != 0 ]; then code=$stopping; fi
}

run_main()
{
    local arguments rank=() watch=0
    expect 0 0
    [ ${#job[@]} -gt 0 ] || usage "run: no program; put it after '--'"
    command -v -- "${job[0]}" >/dev/null || usage "run: '${job[0]}': no such program"
    check_expected
    name=${name:-run-$$}
    build run
    read -r -a arguments < <(mpirun_options)
    if [ $environment != mpi ]; then rank=("$self" _rank "$lab" $environment); fi
    if [ $traffic = 1 ] || [ ${#expected[@]} -gt 0 ]; then watch=1 && start_sampling; fi
    open_relay
    # The runner is nsenter, which passes no signals on, and its child mpirun.
    become=exec in_hub mpirun "${arguments[@]}" -n $((nodes * slots)) -- "${rank[@]}" "${job[@]}" \
        <&0 >&"$relay" {relay}>&- &
    runner=$!
    close_relay
    wait_for_job
    if ! kill -0 "$runner" 2>/dev/null; then wait_for_relay; fi
    if [ $watch = 1 ]; then report_traffic; fi
    exit_as_job "$code"
}

up_main()
{
    expect 0 0
    no_job
    name=${name:-lab}
    build up
    echo "$program exec --name=$name -- mpirun -n $((nodes * slots)) $(mpirun_options)" | publish ||
        exit
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
        say "lab '$name' is removed"
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
    local n=- s=- rate=- carries=- nodes slots net delay measured
    if (read_shape "$1") 2>/dev/null; then
        read_shape "$1"
        n=$nodes s=$slots rate=$net
    fi
    read_measured "$1"
    if [ -n "$measured" ]; then carries=$(format_rate "$measured"); fi
    printf '%-20s %5s %5s %10s %14s %s\n' \
        "$(basename "$1")" "$n" "$s" "$rate" "$carries" "$(state_of "$1")"
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

traffic_main()
{
    expect 0 0
    no_job
    choose_lab
    traffic_table | publish
}

slow_main()
{
    expect 2 2
    no_job
    choose_lab
    take_node "${operands[1]}"
    take_rate slow "${operands[2]}"
    shape_link "$node" "$rate_bits" || exit 1
    say "node$node of lab '$name' has a link of $(format_rate "$rate_bits")"
}

cut_main()
{
    expect 1 1
    no_job
    choose_lab
    take_node "${operands[1]}"
    in_hub ip link set "port$node" down || exit 1
    say "node$node of lab '$name' is disconnected"
}

# The kernel takes up to a second to notice that a link is up again, and drops packets until then.
# Failed entries of neighbour tables would delay the next resolution, so they are flushed.
revive() # node
{
    local i now until
    read_clock
    until=$((now + 10000))
    until in_node "$1" ip -o link show eth0 | grep -q 'state UP'; do
        read_clock
        [ "$now" -lt $until ] || fail 1 "node$1: its link does not come up again"
        sleep 0.05
    done
    in_hub ip neighbour flush dev br0
    for ((i = 1; i <= nodes; i++)); do in_node "$i" ip neighbour flush dev eth0; done
}

heal_main()
{
    expect 1 1
    no_job
    choose_lab
    take_node "${operands[1]}"
    take_rate --net "$net"
    shape_link "$node" "$rate_bits" && in_hub ip link set "port$node" up || exit 1
    revive "$node"
    say "node$node of lab '$name' has its initial link again"
}

exec_main()
{
    local environment
    expect 0 1
    [ ${#job[@]} -gt 0 ] || usage "exec: no command; put it after '--'"
    choose_lab
    become=exec
    job=(setpriv --pdeathsig TERM "${job[@]}") # nsenter does not pass signals on
    if [ ${#operands[@]} = 1 ]; then
        mapfile -t environment < <(mpi_environment)
        in_hub env "${environment[@]}" "${job[@]}"
    else
        take_node "${operands[1]}"
        in_node "$node" "${job[@]}"
    fi
}
