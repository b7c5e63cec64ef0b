# SPDX-License-Identifier: Apache-2.0
# wait.sh - runs the command of one start, passes on signals, and waits for its end. Part of
# mics-run.

# How long mpirun and srun may go on after the ranks have reported the end of the job.
mpirun_limit_s=2
srun_limit_s=10
# How long a job that was asked twice to stop may go on.
kill_limit_s=10
# When a request to stop is repeated: launchers lose signals that come before they have started the
# ranks.
repeat_stop_s=5

# The first request to stop goes to the ranks: they save and exit with status 75. It is SIGUSR2,
# because mpirun kills its ranks on SIGTERM, and Slurm may have sent them SIGTERM already.
request_stop() # status
{
    stopped=$((stopped + 1))
    stop_status=$1 repeat_at=$((SECONDS + repeat_stop_s))
    if [ $stopped -gt 1 ] || [ $trains = 0 ]; then
        signal_launcher TERM
        kill_at=${kill_at:-$((SECONDS + kill_limit_s))}
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

# The launcher is killed if it does not end although the job has ended: mpirun waits for its
# connection to a lost node, and its processes on other hosts end with their connection to it. Ranks
# that srun has left would keep the next step waiting for their nodes.
watch_launcher()
{
    local reported=''
    if [ -z "$kill_at" ] && [ -s "$MICS_EXIT_FILE" ]; then
        kill_at=$((SECONDS + (in_slurm ? srun_limit_s : mpirun_limit_s)))
        read -r reported <"$MICS_EXIT_FILE"
        ask_early "${reported:-1}"
    fi
    if [ -n "$kill_at" ] && [ $SECONDS -ge "$kill_at" ]; then
        if [ $in_slurm = 1 ]; then cancel_step; fi
        kill -KILL "$launcher" 2>/dev/null
    elif [ $stopped = 1 ] && [ $trains = 1 ] && [ $SECONDS -ge $repeat_at ]; then
        repeat_at=$((SECONDS + repeat_stop_s))
        signal_launcher USR2
    fi
}

# Run command=; code= its exit status, and why= what is known of it. In a session of its own, so
# that a terminal sends Ctrl-C to this program only.
run_command()
{
    local reported='' error=''
    rm -f "$MICS_EXIT_FILE"
    kill_at=''
    if [ $verbose = 1 ]; then say "start: ${command[*]}"; fi
    if [ -t 0 ]; then exec </dev/null; fi
    take_signals
    setsid "${command[@]}" <&0 &
    launcher=$!
    if [ $stopped = 1 ]; then repeat_at=0; fi # it came before $launcher was known
    while kill -0 "$launcher" 2>/dev/null; do
        pause 0.1
        watch_launcher
    done
    { wait "$launcher"; } 2>/dev/null # of the shell's own message if it was killed
    code=$?
    leave_signals
    launcher=''
    { { read -r reported; read -r error; } <"$MICS_EXIT_FILE"; } 2>/dev/null
    if [ $code != 0 ] && [ "${reported:-0}" != 0 ]; then code=$reported; fi
    why="$(describe $code)${error:+: $error}"
}
