# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# helpers.bash - a Slurm of four nodes on one machine, for tests.
#
# The nodes are those of a lab, with their own networks, host names and processes: slurmctld and
# munged run on its hub, a slurmd on each node. Everything that they write is in one folder, which
# SLURM_CONF names; no service of the machine is touched.

load ../lab/helpers

# Why no Slurm can be started here; nothing if it can.
slurm_missing()
{
    local tool
    for tool in slurmctld slurmd srun munged mpirun; do
        PATH=$PATH:/usr/sbin type -P "$tool" >/dev/null ||
            { echo "$tool is not installed (Debian: slurm-wlm, munge)"; return; }
    done
    [ "$(id -u)" = 0 ] || { echo 'not root'; return; }
    netns_works || { echo 'no network namespaces here'; return; }
    [ -d /sys/fs/cgroup ] || echo 'slurmd needs /sys/fs/cgroup'
}

write_slurm_conf() # folder lab
{
    cat >"$1/slurm.conf" <<END
ClusterName=mics
SlurmctldHost=$2(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$1/munge.socket,cred_expire=5
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool.%n
SlurmdPidFile=$1/slurmd.%n.pid
SlurmctldPidFile=$1/slurmctld.pid
SlurmdLogFile=$1/slurmd.%n.log
SlurmctldLogFile=$1/slurmctld.log
TmpFS=$1/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
TopologyPlugin=topology/tree
MpiDefault=pmix
ReturnToService=2
SlurmdTimeout=6
MessageTimeout=4
KillWait=10
JobRequeue=1
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
NodeName=node[1-4] NodeAddr=10.77.0.[1-4] CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    printf '%s\n' 'SwitchName=s0 Nodes=node[1,3]' 'SwitchName=s1 Nodes=node[2,4]' \
        'SwitchName=top Switches=s[0-1]' >"$1/topology.conf"
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        printf '%s\n' CgroupPlugin=cgroup/v2 IgnoreSystemd=yes >"$1/cgroup.conf"
    else
        echo CgroupPlugin=cgroup/v1 >"$1/cgroup.conf"
    fi
}

# Start Slurm in the folder, on a lab of its own.
slurm_up() # folder lab
{
    local i
    PATH=$PATH:/usr/sbin
    mics-lab up -q --name="$2" --nodes=4 --slots=2 >"$1/line" || return
    export SLURM_CONF=$1/slurm.conf
    write_slurm_conf "$1" "$2"
    mkdir -p "$1"/state "$1"/tmp.node{1..4} "$1"/spool.node{1..4}
    (umask 077 && head -c 128 /dev/urandom >"$1/munge.key")
    mics-lab exec --name="$2" -- munged --force --socket="$1/munge.socket" \
        --key-file="$1/munge.key" --pid-file="$1/munged.pid" --log-file="$1/munged.log" \
        --seed-file="$1/munged.seed" 2>"$1/munged.said" || return
    mics-lab exec --name="$2" -- slurmctld || return
    for i in 1 2 3 4; do mics-lab exec --name="$2" "node$i" -- slurmd -N "node$i" || return; done
    eventually 30 slurm_is_up "$2"
}

slurm_is_up() # lab
{
    [ "$(timeout 20 mics-lab exec --name="$1" -- sinfo -h -o %D -t idle)" = 4 ]
}
