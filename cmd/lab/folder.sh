# SPDX-License-Identifier: Apache-2.0
# folder.sh - what is known of labs from outside: a folder for each, with its numbers and its processes. Part of mics-lab.

find_labs()
{
    if [ "$(id -u)" = 0 ]; then
        labs=/run/mics-lab
    else
        labs=${XDG_RUNTIME_DIR:-/tmp}/mics-lab-$(id -u)
    fi
    (umask 077 && mkdir -p "$labs") 2>/dev/null || fail 1 "'$labs': cannot be made"
    [ -O "$labs" ] || fail 1 "'$labs' belongs to somebody else"
}

# When a process began, in the kernel's ticks: with the number, it names a process for good.
began() # pid
{
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    stat=${stat##*) }
    cut -d ' ' -f 20 <<<"$stat"
}

lives() # file with "pid began"
{
    local pid ticks
    { read -r pid ticks <"$1"; } 2>/dev/null && [ "$(began "$pid")" = "$ticks" ]
}

remember_process() # pid file
{
    echo "$1 $(began "$1")" >"$2.new" && mv "$2.new" "$2"
}

# up; running: under run; left: its run is gone; dead: only the folder is there
state_of() # folder
{
    if ! lives "$1/hub"; then
        echo dead
    elif [ ! -e "$1/owner" ]; then
        echo up
    elif lives "$1/owner"; then
        echo running
    else
        echo left
    fi
}

# The lab that is meant: --name, or the only one.
choose_lab()
{
    local all
    find_labs
    if [ -z "$name" ]; then
        all=("$labs"/*/)
        [ -d "${all[0]}" ] || fail 1 "there is no lab; '$program up' makes one"
        [ ${#all[@]} = 1 ] || usage "there are several labs: which --name?"
        name=$(basename "${all[0]}")
    fi
    lab=$labs/$name
    [ -d "$lab" ] || fail 1 "there is no lab '$name'"
    lives "$lab/hub" || fail 1 "lab '$name' is dead; '$program down $name' clears it away"
    read -r nodes slots net delay <"$lab/shape"
}

take_node() # text: node=
{
    node=${1#node}
    [[ $node =~ ^[1-9][0-9]{0,2}$ && $node -le $nodes ]] || usage "'$1': no node of lab '$name', which has node1 to node$nodes"
}
