# SPDX-License-Identifier: Apache-2.0
# wait.sh - runs the command of one start, passes on signals, and waits for its end. Part of
# mics-run.

# How long a launcher may go on after the ranks have reported the end of the job, and mpirun after
# they have reported a failure.
end_limit_ms=10000
mpirun_failure_limit_ms=1000
# How long a job that was asked twice to stop may go on.
kill_limit_ms=10000
# How long a job that limits itself may take to end after --limit. In Slurm, $nodes_limit_s more: it
# does not count how long srun waits for nodes.
limit_delay_s=20
# When a request to stop is repeated: launchers lose signals that come before they have started the
# ranks.
repeat_stop_ms=5000

# The first request to stop goes to the ranks: they save and exit with status 75. It is SIGUSR2,
# because mpirun kills its ranks on SIGTERM, and Slurm may have sent them SIGTERM already.
request_stop() # status
{
    read_clock
    stopped=$((stopped + 1))
    stop_status=$1 repeat_at=$((now + repeat_stop_ms))
    if [ $stopped -gt 1 ] || [ $trains = 0 ]; then
        # mpirun, which crashes when it is told to abort while it does so, ends after a report.
        if [ ! -s "$MICS_EXIT_FILE" ]; then signal_launcher TERM; fi
        kill_at=${kill_at:-$((now + kill_limit_ms))}
    else
        signal_launcher USR2
    fi
}

signal_launcher() # signal
{
    if [ -n "$launcher" ]; then kill -s "$1" "$launcher" 2>/dev/null; fi
}

prepare_to_wait()
{
    stopped=0 stop_status=0 launcher='' kill_at='' repeat_at=0
    exec {never}<> <(:) # a pipe to read from with a time-out, which needs no process
}

# From here on a signal does not end this program before its job. Until leave_signals no command
# substitution may be expanded: bash 5.2 fails to parse it, and the trap, when a signal comes then.
take_signals()
{
    trap 'request_stop 130' INT
    trap 'request_stop 143' TERM
    trap 'request_stop 129' HUP
    trap 'signal_launcher USR1' USR1
}

# While there is no job, a request to stop ends this program at once.
leave_signals()
{
    trap - INT TERM HUP
    trap '' USR1
}

pause() # seconds
{
    read -r -t "$1" -u "$never" _
}

# Set reported= and error= to the exit status and the error that a rank has written, if it has.
read_report()
{
    { { read -r reported; read -r error; } <"$MICS_EXIT_FILE"; } 2>/dev/null
    is_number "$reported" && [ "$reported" -le 255 ] || reported=''
}

# The launcher is killed if it does not end although the job has ended: mpirun waits for its
# connection to a lost node, and its processes on other hosts end with their connection to it. Ranks
# that srun has left would keep the next step waiting for their nodes.
watch_launcher()
{
    local reported='' error='' limit_ms=$end_limit_ms
    read_clock
    if [ -n "$limit" ] && [ "$now" -ge "$end_at" ]; then kill_at=${kill_at:-$now} limited=1; fi
    if [ -z "$kill_at" ] && [ -s "$MICS_EXIT_FILE" ]; then
        read_report
    fi
    if [ -n "$reported" ]; then
        if [ $in_slurm = 0 ] && [ "$reported" != 0 ]; then limit_ms=$mpirun_failure_limit_ms; fi
        kill_at=$((now + limit_ms))
        ask_early "$reported"
    fi
    if [ -n "$kill_at" ] && [ "$now" -ge "$kill_at" ]; then
        if [ $in_slurm = 1 ]; then cancel_step; fi
        kill -KILL "$launcher" 2>/dev/null
        killed=1
    elif [ $stopped = 1 ] && [ $trains = 1 ] && [ "$now" -ge $repeat_at ]; then
        repeat_at=$((now + repeat_stop_ms))
        signal_launcher USR2
    fi
}

# Run command=; code= its exit status, and why= what is known of it. In a session of its own, so
# that a terminal sends Ctrl-C to this program only.
run_command()
{
    local reported='' error='' now limit_s=$((${limit:-0} + limit_delay_s))
    if [ $in_slurm = 1 ]; then limit_s=$((limit_s + nodes_limit_s)); fi
    rm -f "$MICS_EXIT_FILE"
    read_clock
    kill_at='' killed=0 limited=0 end_at=$((now + limit_s * 1000))
    if [ $verbose = 1 ]; then say "start: ${command[*]}"; fi
    if [ -t 0 ]; then exec </dev/null; fi
    open_relay
    take_signals
    setsid "${command[@]}" <&0 >&"$relay" {relay}>&- &
    launcher=$!
    close_relay
    if [ $stopped = 1 ]; then repeat_at=0; fi # it came before $launcher was known
    while kill -0 "$launcher" 2>/dev/null; do
        pause 0.1
        watch_launcher
    done
    { wait "$launcher"; } 2>/dev/null # of the shell's own message if it was killed
    code=$?
    launcher=''
    wait_for_relay # a signal meanwhile must not end this script before it knows the code
    leave_signals
    read_report
    if [ $code != 0 ] && { [ $killed = 1 ] || [ "${reported:-0}" != 0 ]; }; then
        code=${reported:-$code} # not that of the launcher
    fi
    why="$(describe $code)${error:+: $error}"
    if [ $limited = 1 ] && [ -z "$reported" ]; then
        code=1 why="no end within $limit_s s"
    fi
}
