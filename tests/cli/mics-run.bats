#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-run on one machine: exit codes, signals, restarts from the newest checkpoint.

load helpers
: "${root:?}" # by the helpers

setup()
{
    requires mpi
    cd "$BATS_TEST_TMPDIR" || return
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_mpi_yield_when_idle
    unset OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy
}

teardown()
{
    if [ -n "${job:-}" ]; then kill -KILL "$job" 2>/dev/null || true; fi
}

# Steps of tens of milliseconds, so that ranks can be killed while 30 of them are left.
make_plan()
{
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --global-batch=16 --seq=64 -o plan.mp
}

# Start a training of two ranks in the background; returns when a checkpoint is there.
start() # options of mics-run -- more words
{
    make_plan
    mics-run -n 2 "$@" >out 2>err 3>&- </dev/null &
    job=$!
    eventually 60 grep -q 'saved run/step-000010' out
}

train()
{
    echo mics-train -p plan.mp "--data=$root/man/*.1" --out=run --save-every=10 --keep=3 \
        --log-every=1 --val-every=0 --sample=0
}

eventually() # seconds command...
{
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || { echo "in vain: $*"; cat out err; return 1; }
        sleep 0.1
    done
}

# A rank of this test's job.
a_rank()
{
    pgrep -P "$(pgrep -P "$job" -x mpirun)" -x mics-train | tail -n 1
}

ended() # code
{
    local code=0
    wait "$job" || code=$?
    job=''
    [ "$code" = "$1" ] || { echo "exit $code"; cat err; return 1; }
}

@test "run: mistakes in the command line are one line and a hint" {
    for words in '' '--' 'true' '-n 2' '-n 0 -- true' '-n two -- true' '-- true' '-n' \
        '--spares=1 -n 2 -- true' '--elastic -n 2 -- true' '--nope -- true' '-x -- true' \
        '--restarts=1 -n 2 -- mics-train --data=x' '--hostfile= -- true'; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr mics-run $words
        usage_mistake mics-run || { echo "mics-run $words"; return 1; }
        [ "$output" = "" ]
    done
    run --separate-stderr mics-run -n 2 -- no-such-program
    one_line_and_code 1
}

@test "a job of more ranks than cores starts without any variable, and its exit status is passed on" {
    ranks=$(($(nproc) + 1))
    run -0 --separate-stderr mics-run -n "$ranks" -- sh -c 'echo rank'
    [ "$output" = "$(yes rank | head -n "$ranks")" ]
    [ -z "$stderr" ]
    for code in 2 3 4 7 75; do
        run "-$code" --separate-stderr mics-run -n 2 --restarts=0 -- sh -c "exit $code"
    done
    run -0 mics-run -n 2 -- sh -c 'if [ $OMPI_COMM_WORLD_RANK = 0 ]; then cat; fi' <<<data
    [ "$output" = data ]
}

@test "an error of mics-train is passed on, and nothing is left behind" {
    make_plan
    # shellcheck disable=SC2046 # words
    run -2 --separate-stderr mics-run -n 2 --restarts=5 -- $(train) --lr=fast
    [[ $stderr == *'--lr'* && $stderr != *restart* ]]
    [ ! -e run ]
}

@test "a request to stop saves and exits 75, without a restart" {
    # shellcheck disable=SC2046
    start --restarts=5 -- $(train) --steps=100000
    kill -TERM "$job"
    ended 75
    grep -q 'mics-train: stopped after step' err
    run ! grep -q restart err
    mics-show run/latest >/dev/null
}

@test "killed ranks: the job continues from its newest checkpoint, and its losses are those of no fault" {
    # shellcheck disable=SC2046
    start --restarts=5 -- $(train) --steps=40
    kill -KILL "$(a_rank)"
    eventually 60 grep -q 'saved run/step-000030' out
    kill -KILL "$(a_rank)" || true # it may have ended
    ended 0
    grep -qE '^mics-run: mics-train failed \(.*\); restart 1 of 5 from run/step-0000[1-3]0$' err
    mics-show run >shown
    cat shown
    grep -qE '^restarts +[12], [12] of them after a failure$' shown
    grep -qE '^20..-..-.. ..:..:.. +[123]0  disk  exit status 1: rank [01] \(.*\) died in step [0-9]+: ' shown
    # shellcheck disable=SC2046
    mics-run -n 2 -- $(train) --steps=40 --out=whole >whole.out
    for folder in run whole; do
        for file in "$folder"/latest/*.safetensors; do cksum <"$file"; done >"$folder.sums"
    done
    [ -s run.sums ]
    diff run.sums whole.sums
}

@test "the reason of a restart is recorded before the launcher kills the rank, however slow the disk" {
    # shellcheck disable=SC2046
    LD_PRELOAD=$MICS_BUILD/tests/fake/slow_fsync.so SLOW_FSYNC=/.mics-run/ \
        start --restarts=5 -- $(train) --steps=40
    kill -KILL "$(a_rank)"
    ended 0
    cat err
    mics-show run >shown
    cat shown
    grep -q ' exit status 1: rank 1 (.*) died in step ' shown
}

@test "three restarts without a new checkpoint are enough" {
    make_plan
    # shellcheck disable=SC2046
    MICS_FAULT=1:update:1 run --separate-stderr mics-run -n 2 --restarts=9 -- $(train) --steps=40
    echo "$stderr"
    [ "$status" = 1 ]
    [ "$(grep -cE '^mics-run: .* restart . of 9( in [12] s)? from the beginning$' <<<"$stderr")" = 3 ]
    [[ $stderr == *'mics-run: 3 restarts without a new checkpoint: giving up (exit status 1)' ]]
}

@test "a second job in the same folder is refused, also where flock does not work" {
    mkdir bin
    printf '#!/bin/sh\nexit 65\n' >bin/flock
    chmod +x bin/flock
    for path in "$PATH" "$PWD/bin:$PATH"; do
        rm -rf run
        # shellcheck disable=SC2046
        PATH=$path start -- $(train) --steps=100000
        # shellcheck disable=SC2046
        PATH=$path run -1 --separate-stderr mics-run -n 2 -- $(train) --steps=100000
        one_line_and_code 1
        [[ $stderr == "mics-run: 'run': another mics-run trains in this folder" ]]
        kill -TERM "$job"
        ended 75
    done
}

@test "a request to stop during the start, and repeated by the launcher, ends the job" {
    make_plan
    # shellcheck disable=SC2046
    mics-run -n 2 --restarts=5 -- $(train) --steps=1000000 >out 2>err 3>&- </dev/null &
    job=$!
    eventually 20 [ -e run/.mics-run/lock ]
    kill -TERM "$job"
    local code=0
    wait "$job" || code=$?
    job=''
    cat err
    [ "$code" = 143 ] || [ "$code" = 75 ]
    run ! grep -q restart err
}

@test "a launcher whose ranks have ended is not told again to end" {
    make_plan
    mkdir bin
    cat >bin/mpirun <<'END'
#!/bin/bash
case $* in *mics-train*) ;; *) exit 0 ;; esac
trap 'echo 75 >"$MICS_EXIT_FILE"; echo asked >asked' USR2
trap 'echo TERM >>told' TERM
echo started >started
for ((i = 0; i < 40; i++)); do sleep 0.05; if [ -e again ]; then sleep 0.3; exit 75; fi; done
END
    chmod +x bin/mpirun
    # shellcheck disable=SC2046
    PATH=$PWD/bin:$PATH mics-run -n 2 -- $(train) >out 2>err 3>&- </dev/null &
    job=$!
    eventually 20 [ -e started ]
    kill -TERM "$job"
    eventually 20 [ -e asked ]
    kill -TERM "$job"
    touch again
    ended 75
    cat err
    [ ! -e told ]
}

@test "a signal while mpirun tries whether hosts can start ends the job at once" {
    cat >agent <<END
#!/bin/sh
case \$* in *orted*) echo \$\$ >"$PWD/tried"; exec sleep 300 ;; esac
shift
exec sh -c "\$*"
END
    chmod +x agent
    OMPI_MCA_plm_rsh_agent=$PWD/agent mics-run --available --hostfile=hang -- true \
        >out 2>err 3>&- </dev/null &
    job=$!
    eventually 60 test -s tried
    mpirun=$(pgrep -P "$(pgrep -P "$job" -x timeout)" -x mpirun)
    kill -TERM "$job"
    ended 143
    eventually 30 sh -c "! kill -0 $mpirun"
    kill "$(cat tried)"
}

@test "--limit is of one start" {
    run --separate-stderr mics-run --limit=5 --restarts=1 -n 1 -- true
    usage_mistake mics-run
    [ "${stderr_lines[0]}" = 'mics-run: --limit ends the job, and does not go with --restarts' ]
    mics-run --limit=60 -n 1 -- true
}

@test "in Slurm hosts are not chosen, and a Slurm without PMIx is refused, in one line" {
    SLURM_JOB_ID=7 run -2 --separate-stderr mics-run --spares=1 -- true
    usage_mistake mics-run
    [[ $stderr == "mics-run: --spares goes with --hostfile; when a node fails, Slurm itself requeues"* ]]
    mkdir bin
    printf '#!/bin/sh\necho "MPI plugin types are..."; echo none; echo pmi2\n' >bin/srun
    chmod +x bin/srun
    PATH=$PWD/bin:$PATH SLURM_JOB_ID=7 SLURM_NTASKS=2 run -1 --separate-stderr mics-run -- true
    one_line_and_code 1
    [[ $stderr == "mics-run: this Slurm has no PMIx ('srun --mpi=list')"* ]]
}

@test "signals while this program decides what to start do not disturb it" {
    mkdir bin
    printf '#!/bin/sh\nsleep 0.2\nexit 1\n' >bin/mpirun
    chmod +x bin/mpirun
    TMPDIR=$PWD PATH=$PWD/bin:$PATH mics-run -n 2 --restarts=1 -- true 2>err 3>&- </dev/null &
    job=$!
    eventually 20 compgen -G 'mics-run.*/lock'
    while kill -USR1 "$job" 2>/dev/null; do sleep 0.002; done
    local code=0
    wait "$job" || code=$?
    job=''
    cat err
    [ "$code" != 0 ]
    run -0 cat err
    [[ ${lines[0]} == 'mics-run: true failed ('*'); restart 1 of 1' ]]
    [ "${#lines[@]}" = 1 ] || [ "${lines[1]}" = 'mics-run: true failed: killed by SIGUSR1' ]
    [ "${#lines[@]}" -le 2 ]
}

# A program named mics-train with the options of the real one. It notes its words; the first time it
# leaves a checkpoint in $saves and fails.
make_trainer()
{
    mkdir bin
    cat >bin/mics-train <<END
#!/bin/bash
if [ "\$*" = --complete ]; then exec "$MICS_BUILD/mics-train" --complete; fi
printf '%s\n' "\$@" >>"$PWD/words"
echo >>"$PWD/words"
if [ -e "$PWD/failed" ]; then exit 0; fi
: >"$PWD/failed"
mkdir -p "\$saves/step-000010"
ln -s step-000010 "\$saves/latest"
: >"\$saves/latest/manifest.mp"
exit 1
END
    chmod +x bin/mics-train
    PATH=$PWD/bin:$PATH
}

@test "restarts know the options of mics-train however they are spelled" {
    make_trainer
    export saves
    while IFS='|' read -r -u 9 saves given later; do
        rm -rf words failed a run ./-x
        # shellcheck disable=SC2086 # words
        run -0 --separate-stderr mics-run -n 1 --restarts=1 -- mics-train $given
        # shellcheck disable=SC2086
        printf '%s\n' $given '' --resume=auto $later '' >expected
        diff expected words
        [[ $stderr == *'restart 1 of 1 from '*/step-000010 ]]
    done 9<<'END'
./a|--plan=p --out=a|--plan=p --out=a
./a|-p p --ou=a --overw|--plan=p --out=a
./a|-pp --out a --res=none -q|--plan=p --out=a --quiet
./a|-qp p --save-e 3 --ou a --steps=4|--quiet --plan=p --save-every=3 --out=a --steps=4
./-x|-p p --out=-x|--plan=p --out=-x
./run|-p p --over --save-every=--out=no|--plan=p --save-every=--out=no
END
}

@test "a failure that no rank could report is reported" {
    run -137 --separate-stderr mics-run -n 2 --no-probe -- sh -c 'kill -KILL $$'
    [ "$stderr" = 'mics-run: sh failed: killed by SIGKILL' ]
    run -7 --separate-stderr mics-run -n 2 -- sh -c 'exit 7'
    [ "$stderr" = '' ]
    make_plan
    # shellcheck disable=SC2046
    MICS_FAULT=1:forward:5 run --separate-stderr mics-run -n 2 -- $(train) --steps=40
    echo "$stderr"
    [ "$status" != 0 ]
    [[ $stderr == *'rank 1 ('*') died in step '* ]]
}

# mpirun succeeds whatever it cannot write.
@test "run: a file that cannot be written fails the job, which ends by itself" {
    job='echo first; sleep 0.5; seq 100000; touch ended'
    run --separate-stderr bash -c 'mics-run -n 1 --restarts=3 -- sh -c "$1" >/dev/full' - "$job"
    [ "$status" = 1 ]
    [ "$stderr" = 'mics-run: standard output: No space left on device' ]
    rm ended
    run --separate-stderr bash -c 'mics-run -n 1 -- sh -c "$1; exit 7" >/dev/full' - "$job"
    [ "$status" = 7 ]
    rm ended
    run --separate-stderr bash -c 'mics-run -n 1 -- echo first >&-'
    [ "$status" = 1 ]
    [ "$stderr" = 'mics-run: standard output: Bad file descriptor' ]
    bash -c 'mics-run -n 1 -- true >&-'
    mics-run -n 1 -- sh -c "$job" >all
    { echo first; seq 100000; } | cmp - all
    mics-run -n 1 -- sh -c 'echo more' >>all
    [ "$(tail -n 1 all)" = more ]
    [ "$(mics-run -n 1 -- sh -c "$job" | tail -n 1)" = 100000 ]
}
