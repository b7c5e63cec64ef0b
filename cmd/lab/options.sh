# SPDX-License-Identifier: Apache-2.0
# options.sh - options, operands and rates. Part of mics-lab.

take_name() # option value
{
    [[ $2 =~ ^[a-z0-9][a-z0-9-]{0,31}$ ]] ||
        usage "--$1: '$2': must be at most 32 lower-case letters, digits and '-'"
}

take_option() # name value
{
    case $1 in
    nodes) take_count nodes "$2" 1 128 && nodes=$2 ;;
    slots) take_count slots "$2" 1 128 && slots=$2 ;;
    net) take_rate --net "$2" && net=$2 ;;
    delay)
        [[ $2 =~ ^[0-9]+(\.[0-9]+)?(us|ms)$ ]] ||
            usage "--delay: '$2': must be a time, as 500us or 1ms"
        delay=$2
        ;;
    name) take_name name "$2" && name=$2 ;;
    env)
        [[ $2 =~ ^(mpi|torch|none)$ ]] || usage "--env: '$2': must be mpi, torch or none"
        environment=$2
        ;;
    traffic) traffic=1 ;;
    expect-traffic) take_expectation "$2" ;;
    quiet) quiet=1 ;;
    help) print_help | publish; exit ;;
    version) echo "$program (mics) $version" | publish; exit ;;
    esac
}

unexpected() # operand
{
    if [ "${operands[0]}" = run ]; then
        echo "put '--' before the program: $program run -- $1"
    else
        echo "${operands[0]}: unexpected argument '$1'"
    fi
}

expect() # least most: operands of the command
{
    local count=$((${#operands[@]} - 1))
    [ $count -ge "$1" ] || usage "${operands[0]}: an operand is missing"
    [ $count -le "$2" ] || usage "$(unexpected "${operands[$2 + 1]}")"
}

# Options that only `run` has.
no_run_options()
{
    [ "$environment" = mpi ] && [ $traffic = 0 ] && [ ${#expected[@]} = 0 ] ||
        usage "${operands[0]}: --env, --traffic and --expect-traffic go with run"
}

no_job() { [ ${#job[@]} = 0 ] || usage "${operands[0]} takes no command to run"; }

# Parse a rate: rate_bits= in bits per second.
take_rate() # what text
{
    local text=${2,,} factor
    [[ $text =~ ^([0-9]{1,12}(\.[0-9]{1,6})?)(kbit|mbit|gbit|kb/s|mb/s|gb/s)$ ]] ||
        usage "$1: '$2': must be a rate, as 200mbit, 1.5gbit or 25MB/s"
    case ${BASH_REMATCH[3]} in
    kbit) factor=1e3 ;; mbit) factor=1e6 ;; gbit) factor=1e9 ;;
    kb/s) factor=8e3 ;; mb/s) factor=8e6 ;; gb/s) factor=8e9 ;;
    esac
    rate_bits=$(awk -v n="${BASH_REMATCH[1]}" -v f=$factor 'BEGIN { printf "%.0f", n * f }')
    if [ "$rate_bits" -lt 1000000 ] || [ "$rate_bits" -gt 20000000000 ]; then
        usage "$1: '$2': rates from 1mbit to 20gbit can be shaped"
    fi
}

format_rate() # bits per second
{
    awk -v n="$1" 'BEGIN {
        if (n >= 1e9) printf "%.3g Gbit/s", n / 1e9; else printf "%.4g Mbit/s", n / 1e6 }'
}
