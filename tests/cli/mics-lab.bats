#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-lab's command line, and labs without a job. Each test names its labs after its own process.

load helpers

setup()
{
    a=t$$-a b=t$$-b
}

teardown()
{
    mics-lab list | awk -v own="^t$$-" '$1 ~ own { print $1 }' | while read -r lab; do mics-lab down -q "$lab"; done
}


# Does a node answer? A connection to a port without a listener is refused at once.
reaches() # lab from address
{
    mics-lab exec --name="$1" "$2" -- timeout 3 bash -c "</dev/tcp/$3/9" 2>&1 | grep -q refused
}

state_folder()
{
    if [ "$(id -u)" = 0 ]; then echo /run/mics-lab; else echo "${XDG_RUNTIME_DIR:-/tmp}/mics-lab-$(id -u)"; fi
}

@test "mistakes in the command line are one line and a hint" {
    for words in '' 'fly' 'run' 'run --' 'up --nodes=0' 'up --nodes=129' 'up --nodes=two' 'up --slots=-1' 'up --net' \
        'up --no-such' 'up --node=2' 'up --quiet=1' 'up extra' 'up -- job' 'cut' 'cut node1 node2' 'slow node1' 'list now' \
        'up --name=Big' 'up --name=../x' 'up --delay=5' 'exec' 'run -- no-such-program' 'up -x' 'up --nodes=2;ls'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-lab $words
        usage_mistake mics-lab || { echo "mics-lab $words"; return 1; }
        [ "$output" = "" ]
    done
}

@test "rates that cannot be shaped are refused" {
    for rate in fast 200 200m -5mbit 0mbit 999kbit 21gbit 1e3mbit 200mbit/s ' ' 99999999999999gbit 1.2.3mbit; do
        run --separate-stderr mics-lab up --name="$a" --net="$rate"
        usage_mistake mics-lab || { echo "$rate"; return 1; }
        [[ ${stderr_lines[0]} == "mics-lab: --net: '$rate': "* ]]
    done
    run mics-lab list
    [[ $output != *"$a"* ]]
}

@test "a folder of labs that another user has planted is not used, and nothing is removed" {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p bin precious/work runtime
    printf '#!/bin/sh\necho 4711\n' >bin/id # not that of root, whose labs are in /run
    chmod +x bin/id
    chmod 700 precious
    labs=$PWD/runtime/mics-lab-4711
    for planted in link dangling open file; do
        rm -rf "$labs"
        case $planted in
        link) ln -s "$PWD/precious" "$labs" ;;
        dangling) ln -s "$PWD/precious/none" "$labs" ;;
        open) mkdir -m 777 "$labs" "$labs/work" ;;
        file) : >"$labs" ;;
        esac
        for words in down 'down work' list 'up --name=work'; do
            # shellcheck disable=SC2086
            XDG_RUNTIME_DIR=$PWD/runtime PATH=$PWD/bin:$PATH run --separate-stderr mics-lab $words
            one_line_and_code 1 || { echo "$planted: $words"; return 1; }
            [[ $stderr == "mics-lab: '$labs': not a folder of this user with mode 700"* ]]
            [ -d precious/work ] && [ ! -e precious/none ]
            [[ $planted != open || -d $labs/work ]]
        done
    done
    rm -rf "$labs"
    mkdir -m 700 "$labs"
    ln -s "$PWD/precious" "$labs/work"
    XDG_RUNTIME_DIR=$PWD/runtime PATH=$PWD/bin:$PATH run --separate-stderr mics-lab down work
    one_line_and_code 1
    [ -d precious/work ]
}

@test "missing namespaces are reported in one line" {
    requires tc mpirun
    mkdir "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\necho "unshare failed: Operation not permitted" >&2\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/unshare"
    chmod +x "$BATS_TEST_TMPDIR/bin/unshare"
    PATH=$BATS_TEST_TMPDIR/bin:$PATH run --separate-stderr mics-lab run --name="$a" -- true
    one_line_and_code 1
    [[ $stderr == "mics-lab: no network namespaces here"* ]]
}

@test "a missing tool is named, with its package" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    for tool in bash readlink id mkdir stat awk cat basename tr grep; do
        ln -s "$(command -v $tool)" "$BATS_TEST_TMPDIR/bin/"
    done
    run --separate-stderr env PATH="$BATS_TEST_TMPDIR/bin" "$MICS_BUILD/mics-lab" up --name="$a"
    one_line_and_code 1
    [[ $stderr == "mics-lab: ip is not installed (Debian: iproute2"* ]]
}

@test "a missing lab is reported in one line" {
    for words in "cut --name=$a node1" "slow --name=$a node1 1mbit" "heal --name=$a 1" "exec --name=$a -- true" "down $a"; do
        # shellcheck disable=SC2086
        run --separate-stderr mics-lab $words
        one_line_and_code 1
        [[ $stderr == "mics-lab: there is no lab '$a'"* ]]
    done
}

@test "a lab has nodes with names, addresses and a rate; two labs are independent; down removes everything" {
    requires netns mpirun
    run --separate-stderr mics-lab up --name="$a" --nodes=2 --net=100mbit
    [ "$status" = 0 ]
    [[ $output == "mics-lab exec --name=$a -- mpirun -n 4 --hostfile "* ]]
    [[ $stderr == *"lab '$a': 2 nodes of 2 slots, 100 Mbit/s links (measured: "*" Mbit/s)" ]]
    run --separate-stderr mics-lab up -q --name="$b" --nodes=1
    [ "$status" = 0 ] && [ "$stderr" = "" ]
    [ "$(mics-lab exec --name="$a" node2 -- hostname)" = node2 ]
    [ "$(mics-lab exec --name="$b" 1 -- hostname)" = node1 ]
    [[ $(mics-lab exec --name="$a" node2 -- ip -o -4 address) == *"10.77.0.2/24"* ]]
    reaches "$a" node1 10.77.0.2
    run ! reaches "$b" node1 10.77.0.2 # it is in the other lab
    mics-lab list | grep -E "^$a +2 +2 +100mbit .* up$"
    run --separate-stderr mics-lab up --name="$a"
    one_line_and_code 1
    [[ $stderr == *"'$a' exists already"* ]]
    pid=$(cut -d ' ' -f 1 <"$(state_folder)/$a/hub")
    mics-lab down "$a"
    run ! kill -0 "$pid"
    [ ! -e "$(state_folder)/$a" ]
    [[ $(mics-lab list) != *"$a"* ]]
    [[ $(mics-lab list) == *"$b"* ]]
}

@test "a node can be slowed down, disconnected and restored" {
    requires netns mpirun
    mics-lab up -q --name="$a" --nodes=2 --net=50mbit
    mics-lab slow --name="$a" node2 5mbit
    [[ $(mics-lab exec --name="$a" node2 -- tc qdisc show dev eth0) == *"rate 5Mbit"* ]]
    [[ $(mics-lab exec --name="$a" -- tc qdisc show dev port2) == *"rate 5Mbit"* ]]
    [[ $(mics-lab exec --name="$a" -- tc qdisc show dev port1) == *"rate 50Mbit"* ]]
    reaches "$a" node1 node2
    mics-lab cut --name="$a" node2
    run ! reaches "$a" node1 node2
    mics-lab heal --name="$a" node2
    [[ $(mics-lab exec --name="$a" node2 -- tc qdisc show dev eth0) == *"rate 50Mbit"* ]]
    reaches "$a" node1 node2
    run --separate-stderr mics-lab cut --name="$a" node3
    usage_mistake mics-lab
}

@test "a delay is refused without netem in the kernel, and applied with it" {
    requires netns mpirun
    run --separate-stderr mics-lab up --name="$a" --nodes=2 --delay=2ms
    if [ "$status" = 0 ]; then
        [[ $(mics-lab exec --name="$a" node2 -- tc qdisc show dev eth0) == *"delay 2ms"* ]]
    else
        one_line_and_code 1
        [[ $stderr == "mics-lab: --delay: this kernel has no netem"* ]]
        [[ $(mics-lab list) != *"$a"* ]]
    fi
}
