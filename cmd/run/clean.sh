# SPDX-License-Identifier: Apache-2.0
# clean.sh - removes state that ended jobs have left in the memory of hosts. Part of mics-run.

# Remove this user's folders of state of which no process holds a lock, and print how many.
# shellcheck disable=SC2016 # expanded on the host
clean_command='removed=0
for folder in /dev/shm/mics-$(id -u)-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]*; do
    [ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ] || continue
    used=0
    for lock in "$folder"/lock.*; do
        [ ! -e "$lock" ] || flock -n "$lock" true || used=1
    done
    [ $used = 0 ] && rm -rf -- "$folder" && removed=$((removed + 1))
done
echo removed $removed'

# The hosts of the host file, or this one. A job that is between two starts has no process, so its
# state goes too.
clean_main()
{
    local i found why code=0
    trains=0 out='' # as of a program that does not train
    [ ${#job[@]} = 0 ] || usage '--clean takes no program'
    hosts=("$(hostname)")
    if [ -n "$hostfile" ]; then list_hosts; fi
    open_state
    ask cleaned "$clean_command" "${hosts[@]}"
    take_answers
    for i in "${!hosts[@]}"; do
        find_line cleaned "$i" 'removed [0-9]+'
        if [ -n "$found" ]; then
            say "${hosts[i]}: removed ${found#removed } states"
            continue
        fi
        code=1
        find_reason cleaned "$i"
        say "${hosts[i]}: not cleaned: $why"
    done
    exit $code
}
