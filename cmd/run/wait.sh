# SPDX-License-Identifier: Apache-2.0
# wait.sh - runs the command of one start, passes on signals, and waits for its end. Part of
# mics-run.

# How long a launcher may go on after the ranks have reported the end of the job.
launcher_limit_s=2
# How long a job that was asked twice to stop may go on.
kill_limit_s=10

# The first request to stop goes to the ranks: they save and exit with status 75. It is SIGUSR2,
# because mpirun kills its ranks on SIGTERM, and Slurm may have sent them SIGTERM already.
request_stop() # status
{
    stopped=$((stopped + 1))
    stop_status=$1
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

# From here on a signal does not end this program before its job.
take_signals()
{
    stopped=0 stop_status=0 launcher='' kill_at=''
    trap 'request_stop 130' INT
    trap 'request_stop 143' TERM
    trap 'request_stop 129' HUP
    trap 'signal_launcher USR1' USR1
    exec {never}<> <(:) # a pipe to read from with a time-out, which needs no process
}

pause() # seconds
{
    read -r -t "$1" -u "$never" _
}

# The launcher is killed if it does not end although the job has ended: mpirun waits for its
# connection to a lost node, and its processes on other hosts end with their connection to it.
watch_launcher()
{
    if [ -z "$kill_at" ] && [ -s "$MICS_EXIT_FILE" ]; then
        kill_at=$((SECONDS + launcher_limit_s))
    fi
    if [ -n "$kill_at" ] && [ $SECONDS -ge "$kill_at" ]; then
        kill -KILL "$launcher" 2>/dev/null
    fi
}

# Run command=; code= its exit status, and why= what is known of it. In a session of its own, so that a terminal sends Ctrl-C to
# this program only.
run_command()
{
    local reported='' error=''
    rm -f "$MICS_EXIT_FILE"
    kill_at=''
    if [ $verbose = 1 ]; then say "start: ${command[*]}"; fi
    if [ -t 0 ]; then exec </dev/null; fi
    setsid "${command[@]}" <&0 &
    launcher=$!
    while kill -0 "$launcher" 2>/dev/null; do
        pause 0.1
        watch_launcher
    done
    { wait "$launcher"; } 2>/dev/null # of the shell's own message if it was killed
    code=$?
    launcher=''
    { { read -r reported; read -r error; } <"$MICS_EXIT_FILE"; } 2>/dev/null
    if [ $code != 0 ] && [ "${reported:-0}" != 0 ]; then code=$reported; fi
    why="$(describe $code)${error:+: $error}"
}
