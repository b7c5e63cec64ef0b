#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# One reader of host files: mics-probe --hosts, mics-run --hostfile and mics-plan --hosts. Its
# grammar is tested in tests/unit/topology/test_hostfile.c.

load helpers

setup()
{
    cd "$BATS_TEST_TMPDIR" || return
}

# mpirun and mics-run call it in place of ssh; all hosts are this machine. It notes its host.
make_agent()
{
    cat >agent <<END
#!/bin/sh
host=\$1
shift
if [ "\$1" = -p ]; then host="\$host \$1 \$2"; shift 2; fi
echo "\$host" >>"$PWD/asked"
exec sh -c "\$*"
END
    chmod +x agent
    export OMPI_MCA_plm_rsh_agent=$PWD/agent
}

@test "probe: --hosts prints the hosts of a file, or of a list, and measures nothing" {
    printf '\xef\xbb\xbfme@a slots = 2 # c\r\nb:4\n[fe80::1] max-slots=3\nc\n' >hosts
    run -0 --separate-stderr mics-probe --hosts=hosts
    [ "$output" = $'me@a slots=2\nb slots=4\nfe80::1 slots=3\nc' ]
    run -0 mics-probe --hosts='n[1-2]:8' -o out
    [ "$(cat out)" = $'n1 slots=8\nn2 slots=8' ]
    printf 'a slots=2\nb lots=2\n' >bad
    run --separate-stderr mics-probe --hosts=bad
    one_line_and_code 3
    [ "$stderr" = "mics-probe: bad: line 2: expected slots=N, not 'lots'" ]
    run --separate-stderr mics-probe --hosts=./none
    one_line_and_code 1
    run --separate-stderr mics-probe --hosts=hosts --json
    usage_mistake mics-probe
}

# What mics-run passes on of so many hosts, which are called this before a number, and call
# themselves so unless bash code says otherwise.
name_hosts_of() # count name code
{
    # shellcheck disable=SC2016 # expanded there
    bash -c '. "$1/cmd/shell/messages.sh" && . "$1/cmd/run/hosts.sh" || exit
        program=mics-run alive=() lock=""
        declare -A name_of=() port_of=()
        for ((i = 1; i <= $2; i++)); do
            alive+=("$3$i") name_of[$3$i]=$3$i port_of[$3$i]=""
        done
        eval "$4"
        name_hosts
        env true && printf "MICS_HOSTS=%s" "${MICS_HOSTS-unset}"' - "${root:?}" "$@"
}

@test "run: hosts that call themselves otherwise are named to the ranks, unless it is too much" {
    run -0 name_hosts_of 3 gpu ''
    [ "$output" = 'MICS_HOSTS=' ]
    run -0 name_hosts_of 5 gpu 'name_of[gpu1]=x name_of[gpu3]=gpu2 port_of[gpu4]=22'
    [ "$output" = $'MICS_HOSTS=x gpu1\ngpu2 gpu2\ngpu2 gpu3\ngpu4 gpu4 22' ]
    long=$(printf 'x%.0s' {1..62})
    run -0 name_hosts_of 2200 "${long:0:50}" ''
    [ "$output" = 'MICS_HOSTS=' ]
    run -0 name_hosts_of 10 "$long" ''
    [ "$output" = "MICS_HOSTS=${long}10 ${long}10" ] # ranks know 63 characters of it
    run -0 --separate-stderr name_hosts_of 2200 "${long}-" ''
    [ "$output" = 'MICS_HOSTS=unset' ]
    [[ ${stderr:?} == 'mics-run: the names of 2200 hosts are too long to pass on; those that they'* ]]
    [ "$(wc -l <<<"$stderr")" = 1 ]
}

@test "run: hosts are tried by few processes at the same time" {
    # shellcheck disable=SC2016 # expanded there
    run -0 --separate-stderr bash -c '. "$1/cmd/shell/messages.sh" && . "$1/cmd/run/hosts.sh" || exit
        program=mics-run available=0 state=$0 slots=1 alive=(h{1..30})
        declare -A asked=() port_of=()
        nproc() { echo 2; }
        pause() { sleep "$1"; }
        exec_try() # in place of mpirun
        {
            exec >>"$state/tried" 2>&1
            echo 1
            sleep 0.2
            echo -1
            [[ $1 != */alive && $1 != */try.h[37] ]]
        }
        drop_unstartable
        echo "${alive[*]}"' "$BATS_TEST_TMPDIR" "${root:?}"
    echo "$stderr"
    [ "$output" = "$(echo h1 h2 h{4..6} h{8..30})" ]
    [ "$(grep -c 'left out: h[37]: mpirun starts nothing there within' <<<"${stderr:?}")" = 2 ]
    awk '{ now += $1; most = now > most ? now : most } END { exit NR != 62 || most < 2 || most > 8 }' tried
}

@test "run: many hosts are asked by few processes at the same time" {
    # shellcheck disable=SC2016 # expanded there
    run -0 --separate-stderr bash -c '. "$1/cmd/shell/messages.sh" && . "$1/cmd/run/hosts.sh" || exit
        program=mics-run quiet=1 available=1 state=$0 hosts=(h{1..60}) left_out=() ask_width=8
        declare -A asked=() port_of=()
        on_host() # in place of ssh
        {
            echo 1 >>"$state/asked"
            sleep 0.1
            echo -1 >>"$state/asked"
            case $1 in
            h7) printf "no\\0pe\r\n\n" ;;
            h8) ;;
            *) printf "welcome\nup $1.x 4\r\nbye\n" ;;
            esac
        }
        host_test=x
        find_alive
        echo "${alive[*]}" "${name_of[h60]}" "$least_cores"
        printf "%s\n" "${left_out[@]}"' "$BATS_TEST_TMPDIR" "${root:?}"
    echo "$stderr"
    [ "${lines[0]}" = "$(echo h{1..6} h{9..60}) h60.x 4" ]
    [ "${lines[1]}" = 'h7: nope' ]
    [ "${lines[2]}" = 'h8: it does not answer within 5 s' ]
    awk '{ now += $1; most = now > most ? now : most }
        END { exit NR != 120 || most < 2 || most > 8 }' asked
}

@test "run: a host that hangs does not answer in time, whatever it has printed, for a job and for --clean" {
    make_agent
    sed -i "2i case \$1 in slow) echo Welcome to slow; exec sleep 30 ;; none) echo no route >\&2; exit 255 ;; esac" agent
    printf 'slow slots=1\nh1 slots=1\nnone slots=1\n' >hosts
    mics-run --clean --hostfile=hosts >clean 2>&1 &
    local cleaning=$! code=0
    run -0 --separate-stderr mics-run --available --hostfile=hosts -- true
    [ "${stderr_lines[0]}" = 'mics-run: left out: slow: it does not answer within 5 s' ]
    [ "${stderr_lines[1]}" = 'mics-run: left out: none: no route' ]
    wait $cleaning || code=$?
    cat clean
    [ $code = 1 ]
    [ "$(sed -n 1p clean)" = 'mics-run: slow: not cleaned: it does not answer within 5 s' ]
    [[ $(sed -n 2p clean) =~ ^mics-run:\ h1:\ removed\ [0-9]+\ states$ ]]
    [ "$(sed -n 3p clean)" = 'mics-run: none: not cleaned: no route' ]
}

@test "run: all hosts that take no part are named to the ranks, unless they are too many" {
    # shellcheck disable=SC2016 # expanded there
    some='. "$1/cmd/shell/messages.sh" && . "$1/cmd/run/hosts.sh" || exit
        program=mics-run quiet=1 hostfile=many available=1 listed=9000 left_out=()
        for ((i = 0; i < $0; i++)); do leave_out "fe80::$i" "it has slots=2: too few on this host"; done
        tell_left_out
        env'
    run -0 --separate-stderr bash -c "$some" 10 "${root:?}"
    [ "$(grep -c '^\(MICS_LEFT_OUT=\)\?fe80::[0-9]: it has slots=2: too few on this host$' <<<"$output")" = 10 ]
    run -0 --separate-stderr bash -c "$some" 4000 "$root"
    [ "$(grep -c '^\(MICS_LEFT_OUT=\)\?fe80::[0-9]*: it has slots=' <<<"$output")" = 4000 ]
    run -1 --separate-stderr bash -c "$some" 9000 "$root"
    [[ $stderr == "mics-run: 'many': 9000 of 9000 hosts take no part, more than one check can name; "* ]]
    [ "${#stderr_lines[@]}" = 1 ]
}

@test "run: starts as many ranks as mpirun does with the same file" {
    requires mpi
    make_agent
    while IFS= read -r -u 9 file; do
        # shellcheck disable=SC2059 # with its newlines
        printf "$file" >hosts
        mpirun -q --hostfile hosts sh -c 'echo rank' >by_mpirun </dev/null
        run -0 --separate-stderr mics-run -q --no-probe --hostfile=hosts -- echo rank
        [ -s by_mpirun ]
        [ "$output" = "$(cat by_mpirun)" ] || { echo "$file: $output"; return 1; }
    done 9<<'END'
localhost slots = 2\n
elsewhere max-slots=3 # comment\n
localhost\n
elsewhere\nelsewhere\nelsewhere\n
me@elsewhere slots=2 port=2222\n
END
    grep -qx 'me@elsewhere -p 2222' asked
    printf 'localhost:2\r\n' >hosts
    run -0 --separate-stderr mics-run -q --no-probe --hostfile=hosts -- echo rank
    [ "$output" = $'rank\nrank' ]
}

@test "run: what mpirun refuses is refused, with file and line" {
    requires mpi
    for line in 'a ppn=2' 'a slots=-1' 'a slots=2 slots=2' 'a slots=4 max_slots=2' '^a' '+n1' \
        'a "b"'; do
        printf '# hosts\n%s\n' "$line" >hosts
        run --separate-stderr mics-run --hostfile=hosts -- true
        one_line_and_code 3 || { echo "$line"; return 1; }
        [[ $stderr == 'mics-run: hosts: line 2: '* ]]
    done
    run --separate-stderr mics-run --clean --hostfile=hosts
    one_line_and_code 3
    run --separate-stderr mics-plan --topology=node:1 --model=gpt2-nano --global-batch=8 \
        --hosts=hosts
    one_line_and_code 3
    [[ $stderr == *'hosts: line 2: '* ]]
}

@test "plan: --hosts takes the names of the same file" {
    printf '\xef\xbb\xbfme@a slots = 2\r\n[fe80::1]:2\r\nb.example.org max_slots=2 # c\r\n' >hosts
    mics-plan --topology='node:3 gpu:2' --model=gpt2-nano --global-batch=24 --hosts=hosts \
        --hostfile=out -o plan.mp
    [ "$(cat out)" = $'a slots=2\nfe80::1 slots=2\nb.example.org slots=2' ]
}
