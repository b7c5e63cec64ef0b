#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-lab run: real Open MPI over several nodes; nothing is left after any end of the job.

load helpers
: "${lab:?}" # by the helpers

setup()
{
    requires netns mpirun
    cd "$BATS_TEST_TMPDIR" || return
}

teardown()
{
    lab_gone
}

# A job that is under way, in the background: its process is $job.
start_job() # program...
{
    # A background process of a script ignores SIGINT.
    env --default-signal=INT mics-lab run -q --name="$lab" --nodes=2 --slots=2 -- "$@" >out 2>err 3>&- &
    job=$!
    eventually 60 grep -q ready out
}

@test "ranks are on nodes with names, in order; standard input and output are rank 0's" {
    printf 'one\0two\n' >in
    # shellcheck disable=SC2016 # the ranks expand it
    mics-lab run -q --name="$lab" --nodes=3 --slots=2 -- sh -c 'hostname >"at-$OMPI_COMM_WORLD_RANK"; if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then cat; fi' \
        <in >out 2>err
    cmp in out
    [ "$(cat at-0 at-1 at-2 at-3 at-4 at-5 | tr '\n' ' ')" = 'node1 node1 node2 node2 node3 node3 ' ]
    [ ! -e at-6 ]
    [ ! -e "$(lab_folder)" ]
}

@test "congestion is controlled by reno, whatever the machine has" {
    mics-lab run -q --name="$lab" --nodes=2 --slots=1 -- cat /proc/sys/net/ipv4/tcp_congestion_control >out
    [ "$(sort -u out)" = reno ]
    [ "$(wc -l <out)" = 2 ]
}

@test "the job's exit code is the lab's" {
    # shellcheck disable=SC2016
    run mics-lab run -q --name="$lab" --nodes=2 --slots=1 -- sh -c 'exit $((OMPI_COMM_WORLD_RANK * 7))'
    [ "$status" = 7 ]
    [ ! -e "$(lab_folder)" ]
}

@test "collectives cross the shaped links as on one host" {
    [ -x "$MICS_BUILD/tests/mpi/mpi_comm" ] || skip "this build is without MPI"
    run --separate-stderr mics-lab run -q --name="$lab" --nodes=2 --slots=2 -- "$MICS_BUILD/tests/mpi/mpi_comm" check
    [ "$status" = 0 ]
    [ "$output" = "all well on 4 ranks" ]
    run --separate-stderr mics-lab run -q --name="$lab" --nodes=2 --slots=2 -- "$MICS_BUILD/tests/mpi/mpi_comm" world
    [ "$output" = $'node 0: 2 ranks alone\nnode 1: 2 ranks alone' ]
}

@test "SIGTERM and SIGINT end the job and the lab" {
    for signal in TERM INT; do
        # shellcheck disable=SC2016 # the ranks expand it
        start_job sh -c 'trap "echo >asked-$OMPI_COMM_WORLD_RANK; exit 0" TERM; echo ready
            while :; do sleep 0.1; done'
        hub=$(cut -d ' ' -f 1 <"$(lab_folder)/hub")
        began=$SECONDS code=0
        kill -s "$signal" "$job"
        wait "$job" || code=$?
        [ "$code" = "$([ $signal = INT ] && echo 130 || echo 143)" ]
        [ $((SECONDS - began)) -lt 30 ]
        [ ! -e "$(lab_folder)" ]
        run ! kill -0 "$hub"
        [ -e asked-0 ] && [ -e asked-3 ] # by mpirun
        rm out asked-*
    done
}

@test "a signal while the lab is being built ends that, and nothing is left" {
    for what in "INT 130 tmp" "INT 130 hub" "INT 130 ready" "TERM 143 tmp" "HUP 129 ready"; do
        read -r signal expected part <<<"$what"
        env --default-signal=INT mics-lab run -q --name="$lab" --nodes=2 --slots=1 -- touch ran \
            >out 2>err 3>&- &
        builder=$!
        eventually 60 [ -e "$(lab_folder)/$part" ]
        kill -s "$signal" "$builder"
        code=0
        wait "$builder" || code=$?
        echo "$what: $code $(cat err)"
        [ "$code" = "$expected" ]
        [ ! -s err ] && [ ! -e ran ]
        [ ! -e "$(lab_folder)" ]
    done
}

@test "a job that does not end at a signal is killed without a message of the shell" {
    start_job sh -c 'trap "" TERM; echo ready; while :; do sleep 1; done'
    mpirun=$(pgrep -P "$(pgrep -P "$job" -x nsenter)" -x mpirun)
    kill -s STOP "$mpirun"
    kill -s TERM "$job"
    sleep 0.2
    kill -s TERM "$job"
    code=0
    wait "$job" || code=$?
    [ "$code" = 143 ]
    run ! grep -v '^$' err
    [ ! -e "$(lab_folder)" ]
}

@test "a killed run is listed, and down removes it" {
    start_job sh -c 'echo ready; exec sleep 1000'
    hub=$(cut -d ' ' -f 1 <"$(lab_folder)/hub")
    kill -s KILL "$job"
    wait "$job" || true
    kill -0 "$hub"
    mics-lab list | grep -E "^$lab .* left$"
    run ! mics-lab run -q --name="$lab" -- true
    mics-lab down "$lab"
    run ! kill -0 "$hub"
    [ ! -e "$(lab_folder)" ]
}

@test "a lab in which everything was killed is listed as dead, and down removes it" {
    mics-lab up -q --name="$lab" --nodes=1
    kill -s KILL "$(cut -d ' ' -f 1 <"$(lab_folder)/hub")"
    eventually 10 sh -c "mics-lab list | grep -E '^$lab .* dead$'"
    run --separate-stderr mics-lab cut --name="$lab" node1
    one_line_and_code 1
    mics-lab down "$lab"
    [ ! -e "$(lab_folder)" ]
}

@test "the command that up prints runs a job, twice" {
    mics-lab up -q --name="$lab" --nodes=2 --slots=1 >line
    for _ in 1 2; do
        run --separate-stderr sh -c "$(cat line) hostname"
        [ "$status" = 0 ]
        [ "$(printf '%s\n' "${lines[@]}" | sort | tr '\n' ' ')" = 'node1 node2 ' ]
    done
}

@test "SIGTERM to exec ends what it runs" {
    mics-lab up -q --name="$lab" --nodes=1 >line
    for node in node1 ''; do
        # shellcheck disable=SC2086,SC2016
        mics-lab exec --name="$lab" $node -- sh -c 'trap "echo asked >said; exit 3" TERM; echo ready; while :; do sleep 0.1; done' >out 3>&- &
        job=$!
        eventually 20 grep -q ready out
        kill -TERM "$job"
        wait "$job" || true
        eventually 20 grep -q asked said
        rm out said
    done
}

@test "a user who is not root can have a lab where the system allows it" {
    requires root setpriv
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_RUNTIME_DIR HOME=/)
    "${as[@]}" unshare --user --map-root-user --net --mount --pid --fork mount -t proc proc /proc 2>/dev/null ||
        skip "users may not have namespaces here"
    cd /
    run --separate-stderr "${as[@]}" "$(command -v mics-lab)" run -q --name="$lab" --nodes=2 --slots=1 -- hostname
    [ "$status" = 0 ]
    [ "$(printf '%s\n' "${lines[@]}" | sort | tr '\n' ' ')" = 'node1 node2 ' ]
    [ ! -e "/tmp/mics-lab-65534/$lab" ]
}
