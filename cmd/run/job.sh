# SPDX-License-Identifier: Apache-2.0
# job.sh - the program to run: what its command line says, and what it has left on disk. Part of
# mics-run.

# Set found= to the option of takes= that a name means: itself, or the only one that begins so.
resolve_option() # name
{
    local option
    found=''
    for option in "${!takes[@]}"; do
        if [ "$option" = "$1" ]; then
            found=$option
            return 0
        fi
        if [[ $option == "$1"* ]]; then found+=${found:+ }$option; fi
    done
    [[ -n $found && $found != *' '* ]]
}

# Set spelled= to the words of the job with each option as "--name" or "--name=value", by the
# program's own table and the rules of getopt_long(). Fails where the program will report a mistake.
spell_options()
{
    local -A takes=() long_of=()
    local i name meta last='' found value rest
    while IFS=$'\x1f' read -r name meta _; do
        if [[ $name =~ ^--[a-z0-9-]+$ ]]; then
            last=${name#--} takes[${name#--}]=$meta
        elif [[ $name =~ ^-[A-Za-z0-9]$ ]]; then
            long_of[${name#-}]=$last
        fi
    done < <("${job[0]}" --complete 2>/dev/null </dev/null | tr '\t' '\037')
    spelled=("${job[0]}")
    for ((i = 1; i < ${#job[@]}; i++)); do
        case ${job[i]} in
        --) spelled+=("${job[@]:i}"); return 0 ;;
        --*)
            name=${job[i]%%=*} value=''
            resolve_option "${name#--}" || return 1
            if [[ ${job[i]} == *=* ]]; then
                value==${job[i]#*=}
            elif [[ -n ${takes[$found]} && ${takes[$found]} != '['* ]]; then
                i=$((i + 1)) value==${job[i]:-}
            fi
            spelled+=("--$found$value")
            ;;
        -?*)
            for ((rest = 1; rest < ${#job[i]}; rest++)); do
                name=${job[i]:rest:1}
                [[ $name =~ ^[A-Za-z0-9]$ && -n ${long_of[$name]:-} ]] || return 1
                found=${long_of[$name]}
                if [ -n "${takes[$found]}" ]; then break; fi
                spelled+=("--$found")
            done
            if [ $rest -lt ${#job[i]} ]; then
                value=${job[i]:rest + 1}
                if [ -z "$value" ]; then i=$((i + 1)) value=${job[i]:-}; fi
                spelled+=("--$found=$value")
            fi
            ;;
        *) spelled+=("${job[i]}") ;;
        esac
    done
}

# The value of an option in the words of the job: the last one counts.
job_option() # --name
{
    local i value='' found=1
    for ((i = 1; i < ${#spelled[@]}; i++)); do
        case ${spelled[i]} in
        "$1"=*) value=${spelled[i]#*=} found=0 ;;
        "$1") found=0 ;;
        --) break ;;
        esac
    done
    printf '%s' "$value"
    return $found
}

job_has() { job_option "$@" >/dev/null; } # --name

# Set trains=1 and out= if the job is mics-train, whose checkpoints tell how far it has come.
find_job()
{
    local found
    found=$(type -P -- "${job[0]}") || fail 1 "'${job[0]}': no such program"
    # A path, for hosts whose PATH is another.
    if [[ $found == /* ]]; then job[0]=$found; else job[0]=$PWD/${found#./}; fi
    name=${job[0]##*/} trains=0 out='' plan=''
    [ "$name" = mics-train ] || return 0
    trains=1
    spell_options || spelled=("${job[@]}")
    out=$(job_option --out) || out=run
    if [[ $out == -* ]]; then out=./$out; fi # no option of the programs that are called below
    if job_has --help || job_has --version || job_has --eval; then trains=0; fi
    plan=$(job_option --plan) || plan=''
    if [ "$restarts" -gt 0 ] && [ -z "${plan#-}" ] && ! job_has --resume; then
        usage "--restarts: a plan on standard input can be read once only; use -p FILE"
    fi
}

# Take the lock of the folder $state. On a file system without flock, a file that names this
# process, which one of another process of this host that has ended does not prevent.
lock_state()
{
    local code=0 host='' pid='' owner=$state/owner
    flock -n "$lock" 2>/dev/null || code=$?
    if [ $code -le 1 ]; then return $code; fi
    if (set -o noclobber && echo "$HOSTNAME $$" >"$owner") 2>/dev/null; then return 0; fi
    read -r host pid <"$owner" 2>/dev/null || return 1
    [[ $host == "$HOSTNAME" && $pid =~ ^[0-9]{1,9}$ ]] || return 1
    if kill -0 "$pid" 2>/dev/null; then return 1; fi
    echo "$HOSTNAME $$" >"$owner"
}

# Set state= to the folder of files that the ranks share with this program, and hold its lock. All
# hosts see the folder of a training run.
open_state()
{
    if [ $trains = 1 ]; then
        state=$out/.mics-run
        mkdir -p "$state" 2>/dev/null || fail 1 "--out: '$out': cannot be written"
    else
        state=$(mktemp -d "${TMPDIR:-/tmp}/mics-run.XXXXXX") || exit 1
    fi
    [ ! -L "$state" ] || fail 1 "'$state' is a link; remove it"
    state=$(cd -- "$state" && pwd)
    trap 'close_state' EXIT
    exec {lock}>"$state/lock" || fail 1 "'$state/lock': cannot be written"
    lock_state || { trap - EXIT; fail 1 "'$out': another $program trains in this folder"; }
    MICS_EXIT_FILE=$state/exit
    export MICS_EXIT_FILE
}

close_state()
{
    if [ ${#asked[@]} -gt 0 ]; then kill "${asked[@]}" 2>/dev/null; fi
    if [ -n "$measuring" ]; then kill "$measuring" 2>/dev/null; fi
    rm -rf "$state"
    if [ -n "$out" ]; then rmdir "$out" 2>/dev/null; fi # nothing was trained
}

# Is the newest checkpoint one of a run that this job overwrites (lib/ckpt/folder.c)?
overwrites()
{
    [ -L "$out/overwritten" ] &&
        [ "$(readlink "$out/overwritten")" = "$(readlink "$out/latest" || echo none)" ]
}

# What identifies the newest checkpoint; empty if there is none.
newest_checkpoint()
{
    if [ $trains != 1 ] || overwrites; then return 0; fi
    stat -Lc '%i %Y %n' "$out/latest/manifest.mp" 2>/dev/null && readlink "$out/latest"
}

# The record of the job's state in the memory of its nodes (lib/ckpt/memory/memory_ckpt.h): the
# value of a member, or nothing.
memory_record() # id|stamp|step
{
    [ $trains = 1 ] || return 0
    sed -n "s/^$1 //p" "$out/.mics-memory/record" 2>/dev/null
}

# The step of the newest state in memory of this job, as it is known here; 0: none.
memory_step()
{
    local step=0
    if [ "$(memory_record stamp)" != "$stamp_at_begin" ]; then step=$(memory_record step); fi
    if [[ $step =~ ^[0-9]{1,18}$ ]]; then echo $((10#$step)); else echo 0; fi
}

# The step of the newest checkpoint of this job; 0: none.
checkpoint_step()
{
    local name=
    if ! overwrites; then name=$(readlink "$out/latest" 2>/dev/null); fi
    name=${name#step-}
    if [[ $name =~ ^[0-9]{1,18}$ ]]; then echo $((10#$name)); else echo 0; fi
}

newest_name()
{
    printf '%s/%s' "$out" "$(readlink "$out/latest")"
}

# Has the job left a state in memory that the next start may continue? If it is lost, that start
# continues from the newest checkpoint of the job's folder, or begins as typed, unless it was to
# begin from another checkpoint.
has_memory()
{
    local from
    [ "$(memory_step)" -gt 0 ] || return 1
    from=$(job_option --resume) || return 0
    [ "$from" = auto ]
}

# Set words= to the command of the next start: as typed, until the job has a state of its own or is
# to run with another plan.
make_words()
{
    local word instead=() options=()
    words=("${job[@]}")
    if [ "$(newest_checkpoint)" != "$checkpoint_at_begin" ] || has_memory; then
        instead+=(--resume --overwrite) options+=(--resume=auto)
    fi
    if [ -n "$hostfile" ] && [ "$plan_nodes" != "$needed" ]; then
        instead+=(--plan) options+=("--plan=$state/plan.mp")
    fi
    if [ ${#options[@]} = 0 ]; then return; fi
    words=("${job[0]}" "${options[@]}")
    for word in "${spelled[@]:1}"; do
        [[ " ${instead[*]} " == *" ${word%%=*} "* ]] || words+=("$word")
    done
}
