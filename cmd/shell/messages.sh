# SPDX-License-Identifier: Apache-2.0
# messages.sh - messages, help and completion of the programs that are shell scripts, from their
# table `options`: lines of name|metavariable|letter|help.

quiet=0

# Set now= to the milliseconds since this machine started, by the kernel's monotonic clock: that of
# bash (SECONDS, EPOCHREALTIME) is set with the time of day. It needs no process, and no "read": a
# trap calls it, and a read in a trap takes the time-out from the one that the signal interrupted.
read_clock()
{
    mapfile -n 1 -t now </proc/uptime
    now=${now%% *}
    now=$((10#${now/./} * 10))
}

# Print a text as one line with '?' for what a terminal would obey, in any locale: control
# characters of 7 and 8 bits, marks of the direction of writing, separators of lines.
printable() # text
{
    local LC_ALL=C text=${1//[[:cntrl:]]/?}
    text=${text//$'\xc2'[$'\x80'-$'\x9f']/??}
    text=${text//$'\xd8\x9c'/??}
    text=${text//$'\xe2\x80'[$'\x8e'$'\x8f'$'\xa8'-$'\xae']/???}
    text=${text//$'\xe2\x81'[$'\xa6'-$'\xa9']/???}
    printf '%s\n' "$text"
}

say() { [ $quiet = 1 ] || printable "$program: $*" >&2; }

fail() # code text
{
    printable "$program: $2" >&2
    exit "$1"
}

usage()
{
    printable "$program: $1" >&2
    printf "Try '%s --help'.\n" "$program" >&2
    exit 2
}

# Copy standard input to standard output. A write error such as a full disk is fatal, SIGPIPE is
# not.
publish()
{
    local code=0
    cat 2>/dev/null || code=$?
    [ $code = 0 ] || [ $code = 141 ] || fail 1 'standard output: cannot be written'
    return $code
}

# Launchers drop what they cannot write to a full disk, and succeed. So a file is not written by
# them, but by a process that copies what they print, says why it cannot, and lets the job go on.
# Open relay= for the output of a launcher, which is started with >&"$relay" {relay}>&-.
output_lost=0
open_relay()
{
    relaying=''
    if [ ! -e /dev/stdout ]; then exec 1</dev/null; fi # closed: what is written fails all the same
    if [ -t 1 ] || [ -p /dev/stdout ]; then
        exec {relay}>&1
    else
        exec {relay}> >(relay_output)
        relaying=$!
    fi
}

relay_output()
{
    local why
    trap '' INT TERM HUP USR1 USR2 # it ends after the launcher
    { why=$(LC_ALL=C cat 2>&1 >&"$to"); } {to}>&1 && exit
    why=${why##*: }
    printable "$program: standard output: ${why:-cannot be written}" >&2
    cat >/dev/null
    exit 1
}

# After the launcher has been started.
close_relay()
{
    exec {relay}>&-
}

# After its end. Sets output_lost=1 if it could not be written.
wait_for_relay()
{
    local tries
    [ -n "$relaying" ] || return 0
    for ((tries = 0; tries < 100; tries++)); do # longer only if a process of the job is left
        kill -0 "$relaying" 2>/dev/null || break
        sleep 0.1
    done
    if [ $tries = 100 ]; then return; fi
    wait "$relaying"
    if [ $? = 1 ]; then output_lost=1; fi # more than that is a signal to this script
}

# Exit with the status of a job, which has failed if its output is lost.
exit_as_job() # code
{
    if [ "$1" = 0 ] && [ $output_lost = 1 ]; then exit 1; fi
    exit "$1"
}

# The part of --help below the synopsis.
print_options()
{
    local option arg letter text left
    printf '\nOptions:\n'
    while IFS='|' read -r option arg letter text; do
        left="    "
        if [ -n "$letter" ]; then left="-$letter, "; fi
        printf '  %s--%-19s  %s\n' "$left" "$option${arg:+=$arg}" "$text"
    done <<<"$options"
    printf '\nSee %s(1) for details, mics(7) for an introduction.\n' "$program"
}

print_option_completion()
{
    local option arg letter text
    while IFS='|' read -r option arg letter text; do
        printf -- '--%s\t%s\t%s\n' "$option" "$arg" "$text"
        if [ -n "$letter" ]; then printf -- '-%s\t%s\t%s\n' "$letter" "$arg" "$text"; fi
    done <<<"$options"
}

# The name among those on standard input that is most like the given one, as a question.
did_you_mean() # name
{
    awk -v a="$1" '
        function least(x, y, z) { x = x < y ? x : y; return x < z ? x : z }
        function edits(a, b,   i, j, d) {
            for (i = 0; i <= length(a); i++) d[i, 0] = i
            for (j = 0; j <= length(b); j++) d[0, j] = j
            for (i = 1; i <= length(a); i++)
                for (j = 1; j <= length(b); j++)
                    d[i, j] = least(d[i - 1, j] + 1, d[i, j - 1] + 1,
                        d[i - 1, j - 1] + (substr(a, i, 1) != substr(b, j, 1)))
            return d[length(a), length(b)]
        }
        { n = edits(a, $1); if (3 * n <= length($1) && (best == "" || n < fewest)) {
            best = $1; fewest = n } }
        END { if (best != "") printf "; did you mean %s?", best }'
}
