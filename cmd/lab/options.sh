# SPDX-License-Identifier: Apache-2.0
# options.sh - parses the command line: options, operands, rates. Part of mics-lab.

take_count() # option value most
{
    [[ $2 =~ ^[1-9][0-9]{0,3}$ && $2 -le $3 ]] || usage "--$1: '$2': must be a number from 1 to $3"
}

take_name() # option value
{
    [[ $2 =~ ^[a-z0-9][a-z0-9-]{0,31}$ ]] ||
        usage "--$1: '$2': must be at most 32 lower-case letters, digits and '-'"
}

take_option() # name value
{
    case $1 in
    nodes) take_count nodes "$2" 128 && nodes=$2 ;;
    slots) take_count slots "$2" 128 && slots=$2 ;;
    net) take_rate --net "$2" && net=$2 ;;
    delay)
        [[ $2 =~ ^[0-9]+(\.[0-9]+)?(us|ms)$ ]] ||
            usage "--delay: '$2': must be a time, as 500us or 1ms"
        delay=$2
        ;;
    name) take_name name "$2" && name=$2 ;;
    traffic) traffic=1 ;;
    quiet) quiet=1 ;;
    help) print_help | publish; exit ;;
    version) echo "$program (mics) $version" | publish; exit ;;
    esac
}

unknown_option() # --name
{
    local names
    names=$(sed -n 's/^\([a-z-]*\)|.*/--\1/p' <<<"$options")
    usage "unknown option '$1'$(did_you_mean "$1" <<<"$names")"
}

# Handle one option. consumed=2 if its value was the next word.
take_long() # --name[=value] next...
{
    local given=${1#--} line option arg letter text
    line=$(grep -E "^$(printf '%s' "${given%%=*}" | tr -cd 'a-z-')\|" <<<"$options") ||
        unknown_option "${1%%=*}"
    IFS='|' read -r option arg letter text <<<"$line"
    [ "$option" = "${given%%=*}" ] || unknown_option "${1%%=*}"
    consumed=1
    if [ -z "$arg" ]; then
        [ "$given" = "$option" ] || usage "--$option: takes no value"
        take_option "$option" ''
    elif [[ $given == *=* ]]; then
        take_option "$option" "${given#*=}"
    else
        [ $# -ge 2 ] || usage "--$option: needs a value, $arg"
        consumed=2
        take_option "$option" "$2"
    fi
}

# Set the variables of options, operands=, and job= (the words after "--").
parse()
{
    operands=() job=()
    while [ $# -gt 0 ]; do
        consumed=1
        case $1 in
        --) shift; job=("$@"); return ;;
        --complete) print_completion | publish; exit ;;
        --*) take_long "$@" ;;
        -h) take_option help ;;
        -V) take_option version ;;
        -q) take_option quiet ;;
        -?*) usage "unknown option '$1'" ;;
        *) operands+=("$1") ;;
        esac
        shift $consumed
    done
}

unexpected() # operand
{
    if [ "${operands[0]}" = run ]; then
        echo "put '--' before the program: $program run -- $1"
    else
        echo "${operands[0]}: unexpected argument '$1'"
    fi
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

expect() # least most: operands of the command
{
    local count=$((${#operands[@]} - 1))
    [ $count -ge "$1" ] || usage "${operands[0]}: an operand is missing"
    [ $count -le "$2" ] || usage "$(unexpected "${operands[$2 + 1]}")"
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
