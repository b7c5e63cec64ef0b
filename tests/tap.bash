# SPDX-License-Identifier: Apache-2.0
# tap.bash - run programs that print the Test Anything Protocol, and count their results. Sourced by
# tests/run and tests/gpu/run.
#
# A program that fails is shown whole, and what follows still runs. tap_summary lists the slowest
# ten, what was skipped and why, what failed, and ends with the line "N passed, N failed". Needs
# bash 5.1.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
skips=() failures=() durations=()
limit_s=${TEST_TIMEOUT:-900} # seconds for one program
tap_dir=$(mktemp -d) || exit 1
trap 'rm -rf "$tap_dir"' EXIT
log=$tap_dir/log

# Count one program's TAP: "passed failed skipped planned", planned -1 without a plan.
count_tap() # log
{
    awk 'BEGIN { plan = -1 }
        /^1\.\.[0-9]+/ { plan = substr($1, 4) }
        /^not ok/ { bad++ }
        /^ok/ { if ($0 ~ /# [Ss][Kk][Ii][Pp]/) skip++; else good++ }
        END { print good + 0, bad + 0, skip + 0, plan }' "$1"
}

remember() # name log: the skips and failures of a program
{
    local line
    while read -r line; do skips+=("$1: $line"); done < <(
        sed -nE 's/^ok [0-9]+ (- )?(.*# [Ss][Kk][Ii][Pp].*)/\2/p' "$2")
    while read -r line; do failures+=("$1: $line"); done < <(
        sed -nE 's/^not ok [0-9]+ (- )?//p' "$2")
}

# A program's line in the report: its seconds, and the CPU's when they are known.
line() # name passed failed skipped seconds [cpu-seconds]
{
    local text="$2 passed"
    if [ "$3" != 0 ]; then text+=", $3 failed"; fi
    if [ "$4" != 0 ]; then text+=", $4 skipped"; fi
    printf '%-36s %s (%d s%s)\n' "$1" "$text" "$5" "${6:+, CPU $6 s}"
    durations+=("$5 $1")
}

# Run a program that prints TAP: its output in a file, its status, seconds and CPU seconds in
# another.
run_tap() # log command...
{
    local out=$1 started=$SECONDS code TIMEFORMAT='%U %S'
    shift
    { time timeout -k 10 "$limit_s" "$@" >"$out" 2>&1 </dev/null; } 2>"$out.cpu"
    code=$?
    echo "$code $((SECONDS - started)) $(awk 'END { printf "%.0f", $1 + $2 }' "$out.cpu")" \
        >"$out.end"
}

# Count the tests in its output. A status of 124 or 137 is a time-out.
report_tap() # name log
{
    local name=$1 good bad skip plan code seconds cpu
    read -r code seconds cpu <"$2.end"
    read -r good bad skip plan < <(count_tap "$2")
    remember "$name" "$2"
    if [ $((good + bad + skip)) != "$plan" ] || { [ "$code" != 0 ] && [ "$bad" = 0 ]; }; then
        bad=$((bad + 1))
        failures+=("$name: ended with status $code after $((good + skip)) of $plan tests")
    fi
    if [ "$bad" != 0 ]; then sed 's/^/    /' "$2"; fi
    line "$name" "$good" "$bad" "$skip" "$seconds" "$cpu"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

# Run a TAP program while nothing else runs: for programs that measure time.
tap() # name command...
{
    local name=$1
    shift
    tap_wait
    run_tap "$log" "$@"
    report_tap "$name" "$log"
}

declare -A running=() # process id -> number of a program that runs in the background
names=()

# Report the next program in the background that ends.
tap_reap()
{
    local pid number
    wait -n -p pid "${!running[@]}" || true
    number=${running[$pid]}
    unset "running[$pid]"
    report_tap "${names[$number]}" "$tap_dir/$number"
}

# Run a TAP program beside others, at most as many at once as there are cores (TEST_JOBS).
tap_beside() # name command...
{
    local number=${#names[@]}
    names+=("$1")
    shift
    while [ ${#running[@]} -ge "${TEST_JOBS:-$(nproc)}" ]; do tap_reap; done
    run_tap "$tap_dir/$number" "$@" &
    running[$!]=$number
}

# Wait for every program in the background.
tap_wait()
{
    while [ ${#running[@]} -gt 0 ]; do tap_reap; done
}

# Run a command that must succeed within limit_s, as one test.
must() # name command...
{
    local name=$1 started=$SECONDS code
    shift
    timeout -k 10 "$limit_s" "$@" >"$log" 2>&1 </dev/null
    code=$?
    if [ $code = 0 ]; then
        passed=$((passed + 1))
        line "$name" 1 0 0 $((SECONDS - started))
        return 0
    fi
    failed=$((failed + 1))
    case $code in
    124 | 137) failures+=("$name: over its time of $limit_s s") ;;
    *) failures+=("$name") ;;
    esac
    sed 's/^/    /' "$log"
    line "$name" 0 1 0 $((SECONDS - started))
    return 1
}

skip() # name reason
{
    skipped=$((skipped + 1))
    skips+=("$1: $2")
}

# The slowest ten, what was skipped and what failed; the last line counts. Fails when something
# failed.
tap_summary()
{
    tap_wait
    echo "slowest, in seconds:"
    printf '  %s\n' "${durations[@]}" | sort -k1,1 -rn | sed -n 1,10p
    [ ${#skips[@]} = 0 ] || printf 'skipped: %s\n' "${skips[@]}"
    [ ${#failures[@]} = 0 ] || printf 'FAILED: %s\n' "${failures[@]}"
    [ $skipped = 0 ] || echo "$skipped skipped"
    echo "$passed passed, $failed failed"
    [ $failed = 0 ]
}
