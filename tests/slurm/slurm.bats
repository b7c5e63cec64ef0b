#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics in a real Slurm: srun with PMIx, jobs that requeue themselves, lost nodes, switches.

load helpers
: "${root:?}" # by the helpers

setup_file()
{
    export OPENBLAS_NUM_THREADS=1 MICS_SLOW_RANKS=0
    cd "$BATS_FILE_TMPDIR" || return
    slurm_missing >missing
    [ ! -s missing ] || return 0
    mics-plan --topology='node:3 gpu:2' --model=gpt2-nano --global-batch=6 --seq=32 -o plan.mp
    slurm_folder=$(mktemp -d /run/mics-slurm.XXXXXX)
    echo "$slurm_folder" >folder
    echo "u$$" >name
    slurm_up "$slurm_folder" "u$$" >said 2>&1 3>&- || cp said failed
}

teardown_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    if [ -s name ]; then mics-lab down -q "$(cat name)"; fi
    if [ -s folder ]; then rm -rf "$(cat folder)"; fi
}

setup()
{
    cd "$BATS_FILE_TMPDIR" || return
    if [ -s missing ]; then skip "$(cat missing)"; fi
    if [ -e failed ]; then cat failed "$(cat folder)"/*.log; return 1; fi
    lab=$(cat name)
    SLURM_CONF=$(cat folder)/slurm.conf
    PATH=$PATH:/usr/sbin:$root/share/mics/slurm
    export SLURM_CONF
    rm -rf run log
}

teardown()
{
    if [ ! -s name ]; then return; fi
    on_hub scancel --user=root 2>/dev/null || true
    mics-lab heal -q --name="$lab" node2 || true
}

on_hub() # command...
{
    timeout 30 mics-lab exec --name="$lab" -- env -u OMPI_MCA_plm_rsh_agent "$@"
}

# Submit the script on three nodes; prints the job's number.
submit() # options of mics-train
{
    on_hub sbatch --parsable --nodes=3 --ntasks-per-node=2 --output="$PWD/log" \
        "$root/share/mics/slurm/train.sbatch" -p plan.mp "--data=$root/man/*.1" --out=run \
        --save-every=10 --keep=2 --val-every=0 --sample=0 --timeout=5 "$@"
}

state_is() # job state
{
    [ "$(on_hub squeue -h -o %T -j "$1")" = "$2" ] ||
        on_hub scontrol show job "$1" | grep -q "JobState=$2"
}

# Wait until a command succeeds; if it does not, show what there is of a job.
wait_for() # seconds job command...
{
    local job=$2
    if eventually "$1" "${@:3}"; then return; fi
    cat log 2>/dev/null
    on_hub sinfo -N -o '%N %T %E'
    on_hub scontrol show job "$job"
    tail -n 5 "${SLURM_CONF%/*}"/slurmctld.log
    return 1
}

@test "srun starts the ranks by PMIx, and a plan's switches order the hosts" {
    mics-plan --topology='node:4 gpu:2' --model=gpt2-nano --global-batch=8 --seq=32 \
        --strategy=mics:4 --hosts='node[1-4]' --switches="${SLURM_CONF%/*}/topology.conf" \
        --hostfile=tasks --launch=srun -o four.mp >launch
    [ "$(uniq tasks | xargs)" = 'node1 node3 node2 node4' ]
    command=$(sed "s|--data=FILES|--data='$root/man/*.1' --steps=3 --sample=0 --out=run|" launch)
    run timeout 60 mics-lab exec --name="$lab" -- env -u OMPI_MCA_plm_rsh_agent sh -c "$command"
    echo "$output"
    [ "$status" = 0 ]
    echo "$output"
    [[ $output == *'ranks     4 nodes of 2 ranks, '* ]]
}

@test "a rank that srun starts late is not sent anything before it can receive" {
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -shared -fPIC \
        -o late_fence.so "$root/tests/slurm/late_fence.c"
    run timeout 60 mics-lab exec --name="$lab" -- env -u OMPI_MCA_plm_rsh_agent \
        LD_PRELOAD="$PWD/late_fence.so" srun --nodes=3 --ntasks-per-node=2 --mpi=pmix \
        mics-train -p plan.mp "--data=$root/man/*.1" --steps=2 --sample=0 --out=run
    echo "$output"
    [ "$status" = 0 ]
}

@test "a job that is asked to stop saves, requeues itself and continues" {
    job=$(submit --steps=60)
    wait_for 60 "$job" grep -q 'saved run/step-000010' log
    on_hub scancel --batch --signal=TERM "$job"
    eventually 60 grep -q 'goes back into the queue' log
    wait_for 90 "$job" state_is "$job" COMPLETED
    grep -q 'mics-train: stopped after step' log
    [ "$(readlink run/latest)" = step-000060 ]
    on_hub scontrol show job "$job" | grep -q 'Restarts=1'
}

@test "a job whose rank is killed is restarted inside its allocation" {
    job=$(submit --steps=150)
    wait_for 60 "$job" grep -q 'saved run/step-000010' log
    mics-lab exec --name="$lab" node2 -- pkill -KILL -n -x mics-train
    wait_for 90 "$job" state_is "$job" COMPLETED
    cat log
    grep -q 'mics-run: mics-train failed (.*); restart 1 of 3 from run/step-' log
    on_hub scontrol show job "$job" | grep -q 'Restarts=0'
}

@test "a job whose node fails continues on another" {
    job=$(submit --steps=60)
    wait_for 60 "$job" grep -q 'saved run/step-000010' log
    mics-lab cut -q --name="$lab" node2
    wait_for 90 "$job" state_is "$job" COMPLETED
    mics-lab heal -q --name="$lab" node2
    on_hub scontrol show job "$job" | grep -q 'NodeList=node\[1,3-4\]'
    [ "$(readlink run/latest)" = step-000060 ]
}
