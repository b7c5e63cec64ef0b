# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# mics.bash - completion for all mics programs.
#
# "PROGRAM --complete" prints the options as lines "option<TAB>metavariable<TAB>help". For a
# metavariable of fixed words, such as "mpirun|srun", the words are completed; for any other, file
# names. A line that does not begin with a dash is a command of the program.

# Print the metavariable of an option. Fails if there is no such option.
_mics_metavariable() # program option
{
    local name arg rest
    while IFS=$'\x1f' read -r name arg rest; do
        if [[ $name == "$2" ]]; then
            printf '%s' "$arg"
            return 0
        fi
    done < <("$1" --complete 2>/dev/null | tr '\t' '\037')
    return 1
}

# Complete a value: the lower-case words of the metavariable ("auto|mics:P" has one), or file names.
_mics_values() # metavariable current
{
    local word words=()
    if [[ $1 == *'|'* ]]; then
        IFS='|' read -r -a words <<<"$1"
        for word in "${words[@]}"; do
            if [[ $word != *[A-Z]* && $word == "$2"* ]]; then COMPREPLY+=("$word"); fi
        done
    fi
    if [[ $1 != *'|'* || $1 =~ FILE|PATH|DIR ]]; then
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$2")
        compopt -o filenames 2>/dev/null || true
    fi
}

_mics_options() # program current
{
    local name arg rest
    while IFS=$'\x1f' read -r name arg rest; do
        if [[ $name != "$2"* ]]; then continue; fi
        if [[ -n $arg && $arg != '['* && $name == --* ]]; then name+='='; fi
        COMPREPLY+=("$name")
    done < <("$1" --complete 2>/dev/null | tr '\t' '\037')
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null || true
    fi
}

_mics_commands() # program current
{
    local name rest
    while IFS=$'\x1f' read -r name rest; do
        if [[ $name != -* && $name == "$2"* ]]; then COMPREPLY+=("$name"); fi
    done < <("$1" --complete 2>/dev/null | tr '\t' '\037')
}

# Bash splits --name=value into three words.
_mics()
{
    local program=$1 current=${COMP_WORDS[COMP_CWORD]} option='' arg
    COMPREPLY=()
    if [[ $current == '=' ]]; then
        option=${COMP_WORDS[COMP_CWORD - 1]} current=''
    elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == '=' ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $current != -* ]]; then
        option=${COMP_WORDS[COMP_CWORD - 1]}
    fi
    if [[ $option == -* ]] && arg=$(_mics_metavariable "$program" "$option") && [[ -n $arg ]]; then
        _mics_values "$arg" "$current"
    elif [[ $current == -* ]]; then
        _mics_options "$program" "$current"
    else
        if [[ $COMP_CWORD == 1 ]]; then _mics_commands "$program" "$current"; fi
        _mics_values FILE "$current"
    fi
}

complete -F _mics mics-probe mics-plan mics-train mics-show mics-lab mics-bench mics-shard \
    mics-data mics-sample mics-run mics-check
