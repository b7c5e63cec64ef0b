# SPDX-License-Identifier: Apache-2.0
# folder.sh - the state of labs as seen from outside: one folder for each, with its shape and
# processes. Part of mics-lab.

find_labs()
{
    if [ "$(id -u)" = 0 ]; then
        labs=/run/mics-lab
    else
        labs=${XDG_RUNTIME_DIR:-/tmp}/mics-lab-$(id -u)
    fi
    [ -e "$labs" ] || [ -L "$labs" ] || mkdir -m 700 -- "$labs" 2>/dev/null ||
        fail 1 "'$labs': cannot be created"
    is_own "$labs" || fail 1 "'$labs': not a folder of this user with mode 700; remove it"
}

# Is it a folder, and no link, of this user, in which nobody else can make or replace files? In /tmp
# anyone could make it first, and others cannot rename it, as /tmp is sticky.
is_own() # folder
{
    [ ! -L "$1" ] && [ -d "$1" ] && [ -O "$1" ] && [ "$(stat -c %a -- "$1")" = 700 ]
}

# Remove the folder of a lab, from inside that of all labs. rm follows no links below it.
remove_lab() # name
{
    (
        cd -P -- "$labs" && is_own . && [ ! -L "./$1" ] && [ -O "./$1" ] &&
            rm -rf --one-file-system -- "./$1"
    ) || fail 1 "'$labs/$1': not a folder of this user; it is left as it is"
}

# The start time of a process in clock ticks. Together with the PID it identifies a process
# uniquely.
start_time() # pid
{
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    stat=${stat##*) }
    cut -d ' ' -f 20 <<<"$stat"
}

# Set pid= to the first word of a file, which must be the number of a process.
read_pid() # file
{
    pid=''
    { read -r pid _ <"$1"; } 2>/dev/null
    [[ $pid =~ ^[1-9][0-9]{0,8}$ ]] || fail 1 "'$1' names no process"
}

is_alive() # file with "pid start_time"
{
    local pid ticks
    { read -r pid ticks <"$1"; } 2>/dev/null && [[ $pid =~ ^[1-9][0-9]{0,8}$ ]] &&
        [ "$(start_time "$pid")" = "$ticks" ]
}

# Set nodes=, slots=, net= and delay= to the shape of a lab.
read_shape() # folder
{
    local n='' s='' rate='' time=''
    { read -r n s rate time <"$1/shape"; } 2>/dev/null
    [[ $n =~ ^[1-9][0-9]{0,2}$ && $s =~ ^[1-9][0-9]{0,2}$ && $rate =~ ^[0-9.]+[A-Za-z/]+$ &&
        $time =~ ^([0-9.]+[mu]s)?$ ]] ||
        fail 1 "'$1/shape' is not the shape of a lab"
    nodes=$n slots=$s net=$rate delay=$time
}

remember_process() # pid file
{
    echo "$1 $(start_time "$1")" >"$2.new" && mv "$2.new" "$2"
}

# up; running: by run; left: its run has ended; dead: only the folder is left
state_of() # folder
{
    if ! is_alive "$1/hub"; then
        echo dead
    elif [ ! -e "$1/owner" ]; then
        echo up
    elif is_alive "$1/owner"; then
        echo running
    else
        echo left
    fi
}

# Choose the lab: --name, or the only one.
choose_lab()
{
    local all
    find_labs
    if [ -z "$name" ]; then
        all=("$labs"/*/)
        [ -d "${all[0]}" ] || fail 1 "there is no lab; '$program up' creates one"
        [ ${#all[@]} = 1 ] || usage "there are several labs: which --name?"
        name=$(basename "${all[0]}")
    fi
    lab=$labs/$name
    [ -d "$lab" ] || fail 1 "there is no lab '$name'"
    is_alive "$lab/hub" || fail 1 "lab '$name' is dead; '$program down $name' removes its folder"
    read_shape "$lab"
}

take_node() # text: node=
{
    node=${1#node}
    [[ $node =~ ^[1-9][0-9]{0,2}$ && $node -le $nodes ]] ||
        usage "'$1': no node of lab '$name', which has node1 to node$nodes"
}
