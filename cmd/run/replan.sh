# SPDX-License-Identifier: Apache-2.0
# replan.sh - a plan of the same training for fewer nodes. Part of mics-run.

# Another program of the toolkit: that beside the job's program, in PATH, or beside this one.
tool() # name
{
    local folder=${job[0]:-}
    folder=${folder%/*}
    if [ -n "$folder" ] && [ -x "$folder/$1" ]; then
        echo "$folder/$1"
    elif ! type -P -- "$1"; then
        folder=$(dirname -- "$(readlink -f -- "$0")")
        [ -x "$folder/$1" ] && echo "$folder/$1"
    fi
}

# Plan for as many of chosen= as the global batch can be divided over. Sets plan_nodes and the plan
# of the next start, and shortens chosen=.
replan()
{
    local nodes why='' planner
    planner=$(tool mics-plan)
    for ((nodes = ${#chosen[@]}; nodes > 0; nodes--)); do
        if why=$("$planner" -q --like="$plan" --nodes=$nodes -o "$state/plan.mp" 2>&1); then
            chosen=("${chosen[@]:0:nodes}") plan_nodes=$nodes
            say "planned again for $nodes nodes instead of $needed"
            return 0
        fi
    done
    say "no plan for the hosts that are left: ${why##*$'\n'}"
    return 1
}
