# SPDX-License-Identifier: Apache-2.0
# hosts.sh - the hosts of a host file: which of them answer, which are slow, and which take part in
# the next start. Part of mics-run.

answer_limit_s=5  # of a host, to say that it can run the job
too_late="it does not answer within $answer_limit_s s"
answer_valid_ms=10000 # since it was asked
start_limit_s=120 # of a host, to start a process by mpirun; --limit may lower it
measure_limit_s=120 # of the measurement of all hosts; a slow link is measured three times
measure_s=0.5
ask_width=128 # hosts that are asked at the same time, as many as mpirun starts at a time
names_most=120000 # characters of MICS_HOSTS or MICS_LEFT_OUT: Linux allows 128 KiB for a variable
why_least=13 # characters of a reason in MICS_LEFT_OUT: they tell few slots from no answer
rank_name_most=63 # of a host's name, in what ranks know of it

# A line of mics-probe --hosts: host, slots, port.
host_line='^([A-Za-z0-9_-]+@)?[A-Za-z0-9_.:][A-Za-z0-9_.:-]*'
host_line+='( slots=([1-9][0-9]{0,4}))?( port=([0-9]{1,5}))?$'

# Set hosts=, and for each, if it is given, slots_of[host] and port_of[host].
list_hosts()
{
    local lines line reader code=0
    declare -gA slots_of=() port_of=()
    hosts=()
    if [ $available = 0 ] || [[ $hostfile == */* ]]; then # else it may be a list of hosts
        [ -r "$hostfile" ] || fail 1 "'$hostfile': cannot be read"
    fi
    reader=$(tool mics-probe) || fail 1 'mics-probe is not installed; it reads host files'
    lines=$("$reader" --hosts="$hostfile" 2>&1) || code=$?
    [ $code = 0 ] || fail $code "${lines#mics-probe: }"
    while read -r line; do
        [[ $line =~ $host_line && $line != *@-* && $line != -* ]] ||
            fail 3 "'$hostfile': '$line': not a host and its slots"
        hosts+=("${line%% *}")
        slots_of[${line%% *}]=${BASH_REMATCH[3]} port_of[${line%% *}]=${BASH_REMATCH[5]}
    done <<<"$lines"
}

# Set slots_of[host] to the number of cores where the file gives none, as mpirun does, with
# --available to 1.
ask_slots()
{
    local i host count unknown=()
    if [ $available = 1 ]; then
        for host in "${hosts[@]}"; do slots_of[$host]=${slots_of[$host]:-1}; done
        return
    fi
    for host in "${hosts[@]}"; do
        if [ -z "${slots_of[$host]}" ]; then unknown+=("$host"); fi
    done
    ask cores "$count_cores" "${unknown[@]}"
    take_answers
    for i in "${!unknown[@]}"; do
        host=${unknown[i]}
        find_line cores "$i" '[1-9][0-9]{0,4}'
        count=$found
        [ -n "$count" ] ||
            fail 1 "'$hostfile': host '$host' has no slots=N, and does not tell its number of cores"
        slots_of[$host]=$count
    done
}

# A host that takes no part. With --available the ranks are told.
leave_out() # host why
{
    say "left out: $1: $2"
    if [ $available = 1 ]; then left_out+=("$1: $2"); fi
}

# Tell the ranks which hosts take no part, as lines of MICS_LEFT_OUT; many reasons are cut, so that
# all hosts are named.
tell_left_out()
{
    local line host text most=$names_most
    printf -v text '%s\n' "${left_out[@]}"
    if [ ${#text} -gt $names_most ]; then
        for line in "${left_out[@]}"; do host=${line%%: *} most=$((most - ${#host} - 3)); done
        most=$((most / ${#left_out[@]})) text=''
        [ $most -ge $why_least ] ||
            fail 1 "$(printf "'%s': %s of %s hosts take no part, more than one check can name; %s" \
                "$hostfile" ${#left_out[@]} "$listed" "the first is ${left_out[0]}")"
        for line in "${left_out[@]}"; do
            host=${line%%: *} line=${line#*: }
            text+="$host: ${line:0:most}"$'\n'
        done
    fi
    export MICS_LEFT_OUT=${text%$'\n'}
}

# Set hosts=, listed= (their number, with those of too few slots), slots= (ranks of each node, those
# of the first host), and needed= (nodes).
read_hostfile()
{
    local host all
    list_hosts
    ask_slots
    all=("${hosts[@]}") hosts=() slots='' listed=${#all[@]} left_out=()
    for host in "${all[@]}"; do
        has_slots "$host" "${slots_of[$host]}" || continue
        hosts+=("$host")
    done
    count_needed
}

# Has a host as many slots as the first? With spares the job can do without one that has fewer.
has_slots() # host count
{
    if [ "$2" = "${slots:=$2}" ]; then return 0; fi
    [ "$spares" -gt 0 ] || [ $available = 1 ] ||
        fail 3 "'$hostfile': host '$1' has $2 slots, '${hosts[0]}' $slots: all need the same"
    if [ "$2" -lt "$slots" ]; then
        leave_out "$1" "it has slots=$2, '${hosts[0]}' slots=$slots"
        return 1
    fi
    say "$1: $slots of its $2 slots are used, as of '${hosts[0]}'"
}

count_needed()
{
    needed=$((listed - spares))
    if [ -n "$ranks" ]; then
        [ $((ranks % slots)) = 0 ] || usage "--ranks: $ranks is not a multiple of the $slots slots"
        needed=$((ranks / slots))
    fi
    if [ $needed -lt 1 ] || [ $((needed + spares)) -gt $listed ]; then
        usage "'$hostfile' has $listed hosts of $slots slots; $((ranks + 0)) ranks and" \
            "$spares spares need more"
    fi
}

# Set own_names= to those by which a host file may name this machine.
find_own_names()
{
    if [ ${#own_names[@]} = 0 ]; then
        own_names=("$(hostname)" "$(hostname -s 2>/dev/null)")
    fi
}

is_local() # host
{
    find_own_names
    case $1 in
    localhost | 127.* | ::1 | "${own_names[0]}" | "${own_names[1]}") return 0 ;;
    *) return 1 ;;
    esac
}

# Print what a shell command on a host prints, run as mpirun starts its daemons there. Returns 137
# if it takes longer than $answer_limit_s.
on_host() # host command
{
    local agent port=()
    read -r -a agent <<<"${OMPI_MCA_plm_rsh_agent:-ssh}"
    if [ -n "${port_of[$1]:-}" ]; then port=(-p "${port_of[$1]}"); fi
    if [ "${agent[*]}" = ssh ]; then
        agent=(ssh -x -o BatchMode=yes -o ConnectTimeout=$((answer_limit_s - 1)) "${port[@]}" --)
        port=()
    fi
    agent+=("$1" "${port[@]}")
    if is_local "$1"; then agent=(sh -c); fi
    { timeout -s KILL $answer_limit_s "${agent[@]}" "$2" </dev/null 2>&1; } 2>/dev/null
}

# What a host that can run the job prints, as an extended regular expression: its name and cores.
host_answer='up [A-Za-z0-9._-]{1,255} [1-9][0-9]{0,5}'

# Set host_test= to what a host must have: the program, this folder, and that of a training run,
# where mics-train's ranks share files. It prints its name and its number of cores.
make_host_test()
{
    local folder program shared
    printf -v folder %q "$PWD"
    printf -v program %q "${job[0]}"
    printf -v shared %q "$state"
    # shellcheck disable=SC2016 # expanded on the host
    printf -v host_test '%s; ' "cd $folder || exit" \
        "[ -x $program ] || { echo it has no $program; exit 1; }" \
        "[ $trains = 0 ] || [ -d $shared ] || { echo it does not see $shared; exit 1; }" \
        'echo up $(uname -n) $(nproc)'
}

# Run a shell command on hosts in the background, on $ask_width at the same time; each of the
# processes asked[] takes its share, host by host. What host i prints goes to the file WHAT.i.
ask() # what command host...
{
    local what=$1 command=$2 i k
    shift 2
    if [ ${#asked[@]} -gt 0 ]; then kill "${asked[@]}" 2>/dev/null; fi
    declare -gA asked=()
    find_own_names
    rm -f "$state/$what".*
    for ((i = 0; i < $# && i < ask_width; i++)); do
        {
            exec {lock}>&-
            for ((k = i + 1; k <= $#; k += ask_width)); do
                on_host "${!k}" "$command" >"$state/$what.$((k - 1))"
                [ $? != 137 ] || echo "$too_late" >>"$state/$what.$((k - 1))"
            done
        } &
        asked[$i]=$!
    done
}

take_answers()
{
    if [ ${#asked[@]} -gt 0 ]; then wait "${asked[@]}"; fi
    asked=()
}

# Set text= to what host i has printed, without the characters NUL and CR. It needs no process:
# there may be thousands of hosts.
read_answer() # what i
{
    local parts=()
    { mapfile -d '' -t parts <"$state/$1.$2"; } 2>/dev/null
    printf -v text %s "${parts[@]}"
    text=${text//$'\r'}
}

# Set found= to the last line that host i has printed and that is an extended regular expression.
find_line() # what i expression
{
    local LC_ALL=C text lines k
    read_answer "$1" "$2"
    mapfile -t lines <<<"$text"
    found=''
    for ((k = ${#lines[@]} - 1; k >= 0; k--)); do
        if [[ ${lines[k]} =~ ^($3)$ ]]; then
            found=${lines[k]}
            return
        fi
    done
}

ask_hosts()
{
    read_clock
    asked_at=$now
    ask answer "$host_test" "${hosts[@]}"
}

# Ask for the next start while this one ends, if there is one.
ask_early() # code
{
    if [ -n "$hostfile" ] && [ "$restarts" -gt 0 ] && [ $stopped = 0 ] && ! is_final "$1"; then
        ask_hosts
    fi
}

# Take the answers. Set alive= to the hosts that can run the job, host_of[name of the system],
# name_of[host], and least_cores.
find_alive()
{
    local i host found name cores now
    read_clock
    alive=() least_cores=1000000
    declare -gA host_of=() name_of=()
    if [ ${#asked[@]} = 0 ] || [ $((now - asked_at)) -gt $answer_valid_ms ]; then ask_hosts; fi
    take_answers
    for i in "${!hosts[@]}"; do
        host=${hosts[i]}
        find_line answer "$i" "$host_answer"
        if [ -z "$found" ]; then
            explain_dead "$i"
            continue
        fi
        read -r _ name cores <<<"$found"
        alive+=("$host") host_of[$name]=$host name_of[$host]=$name
        least_cores=$((cores < least_cores ? cores : least_cores))
    done
}

# Set why= to the last line that host i has printed, or to the reason why there is none.
find_reason() # what i
{
    local text
    read_answer "$1" "$2"
    while [[ $text == *$'\n' ]]; do text=${text%$'\n'}; done
    why=${text##*$'\n'}
    why=${why:0:500}
    why=${why:-$too_late}
}

explain_dead() # i
{
    local why
    find_reason answer "$1"
    if [[ $why == 'up '* ]]; then why="its answer '$why' is not a name and a number of cores"; fi
    leave_out "${hosts[$1]}" "$why"
}

write_hosts() # file host...
{
    local file=$1 host
    shift
    for host in "$@"; do
        echo "$host slots=$slots${port_of[$host]:+ port=${port_of[$host]}}"
    done >"$file"
}

# Become a process that succeeds if mpirun can start one on each host of a host file within
# $start_limit_s.
exec_try() # file
{
    local agent=${OMPI_MCA_plm_rsh_agent:-ssh}
    exec {lock}>&-
    export OMPI_MCA_plm_rsh_agent="timeout -s KILL $start_limit_s $agent"
    exec timeout -k 2 $((start_limit_s + 2)) mpirun -q -N 1 --hostfile "$1" true </dev/null 2>&1
}

# Leave hosts out on which mpirun starts nothing although they answer: ssh hangs there, or they
# cannot connect to this machine. If not all together can start, each is tried by itself, but not
# so many at once that good ones are late because this machine is busy. All of it runs in the
# background, so that a signal ends the wait for it.
drop_unstartable()
{
    local host why most=$((2 * $(nproc))) code started=()
    if [ ${#alive[@]} = 0 ]; then return; fi
    write_hosts "$state/alive" "${alive[@]}"
    exec_try "$state/alive" >/dev/null &
    measuring=$!
    { wait $measuring; } 2>/dev/null # of the shell's own message if it was killed
    code=$?
    measuring=''
    if [ $code = 0 ]; then return; fi
    for host in "${alive[@]}"; do
        while [ "$(jobs -pr | wc -l)" -ge $((most > 8 ? most : 8)) ]; do pause 0.1; done
        write_hosts "$state/try.$host" "$host"
        exec_try "$state/try.$host" >"$state/answer.$host" &
        asked[$host]=$!
    done
    for host in "${alive[@]}"; do
        if wait "${asked[$host]}"; then
            started+=("$host")
        else
            # what comes before mpirun's own paragraph, but not what it warns of by the way, as that
            # it could not put a process into a group of its own since it runs already
            why=$(tr -d '\r\0' <"$state/answer.$host" | sed '/^--*$/,$d' |
                LC_ALL=C grep -avE '^$|^\[[^]]+:[0-9]+\] [a-z:]+ Warning: ' | tail -n 1)
            why=${why:+: ${why:0:300}}
            leave_out "$host" "mpirun starts nothing there within $start_limit_s s$why"
        fi
    done
    asked=() alive=("${started[@]}")
}

# Tell the ranks how the hosts of alive= call themselves and how the user does: each has a line of
# MICS_HOSTS, unless both are the same and no other host calls itself so.
name_hosts()
{
    local host own why
    local -A count=()
    MICS_HOSTS=''
    for host in "${alive[@]}"; do
        own=${name_of[$host]} count[$own]=$((${count[$own]:-0} + 1))
    done
    for host in "${alive[@]}"; do
        own=${name_of[$host]}
        if [ "$own" = "$host" ] && [ ${#own} -le $rank_name_most ] &&
            [ -z "${port_of[$host]}" ] && [ "${count[$own]}" = 1 ]; then
            continue
        fi
        MICS_HOSTS+="$own $host${port_of[$host]:+ ${port_of[$host]}}"$'\n'
    done
    export MICS_HOSTS
    if [ ${#MICS_HOSTS} -gt $names_most ]; then
        unset MICS_HOSTS
        why="the names of ${#alive[@]} hosts are too long to pass on; those that they give"
        printable "$program: $why themselves are used, without ports" >&2 # also with --quiet
    fi
}

# Set good= to the hosts of alive= without slow ranks or links, by a measurement on all of them.
find_good()
{
    local code line name
    good=("${alive[@]}")
    if [ $probe = 0 ] || [ ${#alive[@]} -lt 2 ]; then return; fi
    write_hosts "$state/alive" "${alive[@]}"
    rm -f "$state/good"
    timeout -k 2 $measure_limit_s mpirun -q -n $((${#alive[@]} * slots)) \
        --hostfile "$state/alive" "$(tool mics-probe)" --check --seconds=$measure_s \
        --hostfile="$state/good" </dev/null >"$state/probe" 2>&1 &
    measuring=$!
    { wait $measuring; } 2>/dev/null # of the shell's own message if it was killed
    code=$?
    measuring=''
    if [ $code != 0 ] && [ -s "$state/good" ]; then # also if it failed later
        good=()
        while read -r name _; do
            name=${host_of[$name]:-$name}
            if [ -n "${name_of[$name]:-}" ]; then good+=("$name"); fi
        done <"$state/good"
        while read -r line; do say "slow: ${line#mics-probe: }"; done \
            < <(grep '^mics-probe: ' "$state/probe")
    elif [ $code != 0 ] && [ $code != 4 ]; then
        line=$(grep -vE '^(-*| *)$' "$state/probe" | head -n 1)
        say "the hosts could not be measured: ${line:-no result within $measure_limit_s s}"
    fi
}

# Set chosen= to the first hosts of good=, then of alive=, in the order of the host file.
take_hosts() # count
{
    local host
    local -A taken=()
    chosen=()
    for host in "${good[@]}" "${alive[@]}"; do
        if [ ${#chosen[@]} = "$1" ]; then break; fi
        if [ -z "${taken[$host]:-}" ]; then chosen+=("$host") taken[$host]=1; fi
    done
}

# Say which hosts are slow: they are left out, unless there is no other.
report_slow()
{
    local host
    local -A is_good=() is_chosen=()
    for host in "${good[@]}"; do is_good[$host]=1; done
    for host in "${chosen[@]}"; do is_chosen[$host]=1; done
    for host in "${alive[@]}"; do
        if [ -n "${is_good[$host]:-}" ]; then continue; fi
        if [ -n "${is_chosen[$host]:-}" ]; then
            say "no spare for $host, which is slow"
        else
            say "left out: $host: it is slow"
        fi
    done
}

# Choose the hosts of the next start, and write them for mpirun. Fails if there are too few.
choose_hosts()
{
    local all
    find_alive
    prepare_mpirun "$slots" "$slots" "$least_cores" # the slots are declared
    prepare_hosts
    if [ $available = 1 ]; then drop_unstartable; fi
    find_good
    if [ $available = 1 ]; then
        if [ ${#alive[@]} = 0 ]; then
            all=''
            if [ "$listed" -gt 1 ]; then all=" of $listed"; fi
            fail 1 "'$hostfile': no host$all answers: ${left_out[0]}"
        fi
        needed=${#alive[@]}
        name_hosts
        if [ ${#left_out[@]} -gt 0 ]; then tell_left_out; fi
    fi
    if [ ${#good[@]} -ge "$needed" ] || [ $elastic = 0 ]; then
        take_hosts "$needed"
        plan_nodes=$needed
    else
        take_hosts ${#good[@]}
        replan || return
    fi
    if [ ${#chosen[@]} -lt "$needed" ] && [ $elastic = 0 ]; then
        say "${#chosen[@]} of the $needed hosts that the job needs can be used" \
            "(--elastic continues on fewer)"
        return 1
    fi
    report_slow
    start_ranks=$((${#chosen[@]} * slots))
    write_hosts "$state/hosts" "${chosen[@]}"
    if [ "${used[*]-}" != "${chosen[*]}" ]; then say "hosts: ${chosen[*]}"; fi
    used=("${chosen[@]}")
}
