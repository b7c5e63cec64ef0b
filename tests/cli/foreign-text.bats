#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Text of hosts, files, options and the environment is not evaluated by the programs that are shell
# scripts. Each attack would make a file.

load helpers
: "${root:?}" # by the helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
    made=$BATS_TEST_TMPDIR/made
    # shellcheck disable=SC2016 # not to be expanded
    attacks=('slots[$(touch MADE)]' 'x[`touch MADE`]' '$(touch MADE)' '1;touch MADE'
        '-oProxyCommand=touch MADE')
    attacks=("${attacks[@]//MADE/$made}" $'2\ntouch '"$made" $'a[\n$(touch '"$made"$')\n]')
}

# A program that mpirun and mics-run call in place of ssh: all hosts are this machine, and an answer
# to mics-run is what file "answer" has, if it exists.
make_agent()
{
    cat >agent <<'END_AGENT'
#!/bin/sh
case $1 in
-*) touch made; exit 1 ;; # the host was taken for an option
esac
shift
case $* in
*'echo up '*) if [ -e answer ]; then cat answer; exit; fi ;;
esac
exec sh -c "$*"
END_AGENT
    chmod +x agent
    export OMPI_MCA_plm_rsh_agent=$PWD/agent
}

not_made() # what was tried
{
    [ ! -e "$made" ] || { echo "evaluated: $*"; return 1; }
}

@test "what a host answers to mics-run" {
    requires mpi
    make_agent
    printf 'elsewhere slots=1\n' >hosts
    for attack in "${attacks[@]}"; do
        for answer in "up $attack 2" "up node $attack" "$attack"; do
            printf '%s\n' "$answer" >answer
            run --separate-stderr mics-run --no-probe --hostfile=hosts -- true
            not_made "$answer"
            if [[ $answer != *$'\n'* ]]; then
                [ "$status" = 1 ]
                [[ ${stderr_lines[0]} == 'mics-run: left out: elsewhere: '* ]]
            fi
        done
    done
    printf 'up node 2\r\n' >answer
    run -0 --separate-stderr mics-run --no-probe --hostfile=hosts -- true
}

@test "what a terminal would obey is not printed" {
    make_agent
    printf 'elsewhere slots=1\n' >hosts
    for locale in C C.UTF-8; do
        printf 'a\xc2\x9b31m\xe2\x80\xaeb\xe2\x81\xa6c\x1b[2Jd\xd8\x9ce\xc3\xa4\n' >answer
        LC_ALL=$locale run -1 --separate-stderr mics-run --no-probe --hostfile=hosts -- true
        [[ ${stderr_lines[0]//\?/} == $'mics-run: left out: elsewhere: a31mbc[2Jde\xc3\xa4' ]]
        LC_ALL=$locale run -2 --separate-stderr mics-lab $'fl\xc2\x9by'
        [ "${stderr_lines[0]//\?/}" = "mics-lab: unknown command 'fly'" ]
    done
}

@test "what a rank reports to mics-run" {
    requires mpi
    for attack in "${attacks[@]}"; do
        printf '%s\n%s\n' "$attack" "$attack" >report
        # shellcheck disable=SC2016 # by the rank
        run --separate-stderr mics-run -n 1 -- sh -c 'cat report >"$MICS_EXIT_FILE"; exit 7'
        not_made "$attack"
        [[ $status == 7 || $attack == *$'\n'* ]]
    done
}

@test "host files of mics-run" {
    requires mpi
    make_agent
    for attack in "${attacks[@]}"; do
        for line in "$attack" "elsewhere slots=$attack" "elsewhere max_slots=$attack" "me@$attack" \
            "elsewhere:$attack" "[$attack]" "elsewhere port=$attack slots=1" \
            "elsewhere username=$attack"; do
            printf '%s\n' "$line" >hosts
            run --separate-stderr timeout 60 mics-run -q --no-probe --hostfile=hosts -- true
            not_made "$line"
            [ "$status" != 0 ] || { echo "accepted: $line"; return 1; }
        done
    done
}

@test "options and the environment of mics-run" {
    requires mpi
    mkdir bin
    printf '#!/bin/sh\necho pmix\n' >bin/srun
    chmod +x bin/srun
    for attack in "${attacks[@]}"; do
        for option in --ranks --spares --restarts; do
            run --separate-stderr mics-run "$option=$attack" --hostfile=hosts -- true
            not_made "$option=$attack"
            [ "$status" = 2 ]
        done
        SLURM_JOB_ID=$attack SLURM_NTASKS=$attack PATH=$PWD/bin:$PATH run --separate-stderr \
            mics-run -- true
        not_made "SLURM_NTASKS=$attack"
        [ "$status" = 2 ]
        PATH=$PWD/bin:$PATH run -2 --separate-stderr mics-run --spares=1 "$attack" -- true
        not_made "$attack"
    done
}

@test "options of mics-lab, and the files of a lab" {
    requires netns mpirun
    labs=/run/mics-lab
    if [ "$(id -u)" != 0 ]; then labs=${XDG_RUNTIME_DIR:-/tmp}/mics-lab-$(id -u); fi
    lab=$labs/t$$-foreign
    (umask 077 && mkdir -p "$labs" && mkdir "$lab")
    read -r -a stat </proc/$$/stat
    for attack in "${attacks[@]}"; do
        for option in --nodes --slots --net --delay --name; do
            run --separate-stderr mics-lab up "$option=$attack"
            not_made "$option=$attack"
            [ "$status" = 2 ] || { echo "accepted: $option=$attack"; return 1; }
        done
        echo "$$ ${stat[21]}" >"$lab/hub"
        for shape in "$attack 2 200mbit " "2 $attack 200mbit " "2 2 $attack " "2 2 200mbit $attack"; do
            printf '%s\n' "$shape" >"$lab/shape"
            printf '%s' "$attack" >"$lab/measured"
            run mics-lab list
            run --separate-stderr mics-lab cut --name="${lab##*/}" "node$attack"
            not_made "$shape"
            [ "$status" != 0 ]
        done
        printf '2 2 200mbit \n' >"$lab/shape"
        printf '%s 5\n' "$attack" >"$lab/hub"
        run --separate-stderr mics-lab traffic --name="${lab##*/}"
        not_made "$attack"
        [ "$status" != 0 ]
    done
    rm -rf "$lab"
}

@test "the environment of the demonstration" {
    for attack in "${attacks[@]}"; do
        DEMO_STEPS=$attack DEMO_FOLDER=$PWD/demo run -1 bash "$root/share/mics/examples/demo.sh" "$MICS_BUILD"
        not_made "DEMO_STEPS=$attack"
        DEMO_MEMORY=x$attack DEMO_FOLDER=$PWD/demo run -1 bash "$root/share/mics/examples/demo.sh" "$MICS_BUILD"
        not_made "DEMO_MEMORY=$attack"
    done
}
