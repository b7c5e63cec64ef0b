# SPDX-License-Identifier: Apache-2.0
# restart.sh - starts the job until it is done or cannot go on. Part of mics-run.

# Failures in a row without a new state, in memory or on disk: the first, and so many restarts.
most_restarts_without_progress=3
longest_delay_s=60

# A mistake on the command line or in a file is the same after a restart, and a job that stopped on
# request has not failed.
is_final() # code
{
    case $1 in
    0 | 2 | 3 | 4 | 75) return 0 ;;
    *) return 1 ;;
    esac
}

# Seconds before restart i without progress: 0, 1, 2, 4, ...
delay_before() # i
{
    local delay=$longest_delay_s
    if [ "$1" -le 7 ]; then delay=$((1 << $1 >> 2)); fi
    echo $((delay < longest_delay_s ? delay : longest_delay_s))
}

describe() # code
{
    if [ "$1" -gt 128 ] && kill -l $(($1 - 128)) >/dev/null 2>&1; then
        echo "killed by SIG$(kill -l $(($1 - 128)))"
    else
        echo "exit status $1"
    fi
}

# Where the next start continues, for people.
describe_start()
{
    local newest
    newest=$(newest_checkpoint)
    if [ $trains = 0 ]; then
        echo ''
    elif has_memory && [ "$(memory_step)" -ge "$(checkpoint_step)" ]; then
        echo " from step $(memory_step) in memory"
    elif [ -n "$newest" ] &&
        { [ "$newest" != "$checkpoint_at_begin" ] || [ "$(job_option --resume)" = auto ]; }; then
        echo " from $(newest_name)"
    else
        echo ' from the beginning'
    fi
}

wait_before_restart() # count
{
    local delay when=''
    delay=$(delay_before "$failures")
    if [ "$delay" != 0 ]; then when=" in $delay s"; fi
    say "$name failed ($(describe "$code")); restart $1 of $restarts$when$(describe_start)"
    if [ "$delay" != 0 ]; then pause "$delay"; fi
}

# Say why the last start failed, unless a rank has: its line is lost with a launcher that was
# killed, and a signal leaves none.
explain_failure()
{
    if [ "$killed" = 1 ] || [ "$code" -gt 128 ]; then
        printable "$program: $name failed: $why" >&2
    fi
}

# One start. Sets code=, why= and killed=.
run_once()
{
    code=1 why='too few hosts' killed=0
    if [ -n "$hostfile" ]; then choose_hosts || return; fi
    make_words
    make_command
    run_command
}

# Start, and start again while that may help. Exits with the status of the job.
run_until_done()
{
    local count=0 before after most=0
    if [ -n "$hostfile" ]; then
        read_hostfile
        make_host_test
    fi
    checkpoint_at_begin=$(newest_checkpoint) stamp_at_begin=$(memory_record stamp)
    failures=0 code=1
    unset MICS_RESTART
    prepare_to_wait
    while :; do
        before=$(newest_checkpoint)
        run_once
        if [ $stopped != 0 ]; then
            if [ $code != 0 ] && [ $code != 75 ]; then code=$stop_status; fi
            exit_as_job $code
        fi
        if is_final "$code"; then exit_as_job "$code"; fi
        after=$(newest_checkpoint)
        if [ "$after" != "$before" ] || [ "$(memory_step)" -gt $most ]; then failures=0; fi
        most=$(memory_step)
        failures=$((failures + 1)) count=$((count + 1))
        if [ $count -gt "$restarts" ]; then
            explain_failure
            exit "$code"
        fi
        if [ $trains = 1 ] && [ $failures -gt $most_restarts_without_progress ]; then
            say "$most_restarts_without_progress restarts without a new checkpoint: giving up" \
                "($(describe "$code"))"
            exit "$code"
        fi
        wait_before_restart $count
        export MICS_RESTART="$count $why" # for the metrics
    done
}
