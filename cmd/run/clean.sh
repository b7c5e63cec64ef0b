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

clean_host() # host
{
    local answer
    answer=$(on_host "$1" "$clean_command" 2>&1)
    if [[ $answer =~ removed\ ([0-9]+)$ ]]; then
        say "$1: removed ${BASH_REMATCH[1]} states"
    else
        say "$1: not cleaned: ${answer##*$'\n'}"
        return 1
    fi
}

# The hosts of the host file, or this one. A job that is between two starts has no process, so its
# state goes too.
clean_main()
{
    local host code=0
    [ ${#job[@]} = 0 ] || usage '--clean takes no program'
    hosts=("$(hostname)")
    if [ -n "$hostfile" ]; then list_hosts; fi
    for host in "${hosts[@]}"; do clean_host "$host" || code=1; done
    exit $code
}
