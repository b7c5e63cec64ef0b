# SPDX-License-Identifier: Apache-2.0
# parse.sh - parses the command line of a program that is a shell script by its table `options`. The
# program has take_option, which takes a name and a value, and print_completion.

# Set found_option and found_arg to the row whose name or letter is given.
find_option() # name letter
{
    local option arg letter text
    while IFS='|' read -r option arg letter text; do
        if [ "$option" = "$1" ] || { [ -n "$2" ] && [ "$letter" = "$2" ]; }; then
            found_option=$option found_arg=$arg
            return 0
        fi
    done <<<"$options"
    return 1
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
    local given=${1#--}
    find_option "${given%%=*}" '' || unknown_option "${1%%=*}"
    consumed=1
    if [ -z "$found_arg" ]; then
        [ "$given" = "$found_option" ] || usage "--$found_option: takes no value"
        take_option "$found_option" ''
    elif [[ $given == *=* ]]; then
        [ -n "${given#*=}" ] || usage "--$found_option: needs a value, $found_arg"
        take_option "$found_option" "${given#*=}"
    else
        [ -n "${2:-}" ] || usage "--$found_option: needs a value, $found_arg"
        consumed=2
        take_option "$found_option" "$2"
    fi
}

take_short() # -x[value] next...
{
    local value=${1:2}
    find_option '' "${1:1:1}" || usage "unknown option '$1'"
    consumed=1
    if [ -z "$found_arg" ]; then
        [ -z "$value" ] || usage "unknown option '$1'"
    elif [ -z "$value" ]; then
        [ -n "${2:-}" ] || usage "$1: needs a value, $found_arg"
        consumed=2 value=$2
    fi
    take_option "$found_option" "$value"
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
        -?*) take_short "$@" ;;
        *) operands+=("$1") ;;
        esac
        shift $consumed
    done
}

# Bash evaluates the text of a variable in arithmetic, commands in subscripts included. So what
# comes from a host, a file, an option or the environment is only used there if it is a number.
is_number() # text
{
    [[ $1 =~ ^(0|[1-9][0-9]{0,8})$ ]]
}

take_count() # option value least most
{
    is_number "$2" && [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] ||
        usage "--$1: '$2': must be a number from $3 to $4"
}
