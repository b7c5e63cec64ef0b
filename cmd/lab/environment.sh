# SPDX-License-Identifier: Apache-2.0
# environment.sh - starts a rank of a job with the variables that its software needs. Part of
# mics-lab.

# As torchrun sets them. The first node is the meeting point; a lab has a network of its own, so the
# usual port is free.
torch_environment()
{
    local host
    host=$(hostname) # HOSTNAME may come from outside of the lab
    export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
    export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE
    export GROUP_RANK=$((${host#node} - 1)) GROUP_WORLD_SIZE=$nodes
    export NODE_RANK=$GROUP_RANK
    export MASTER_ADDR=$subnet.1 MASTER_PORT=29500
    export GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
}

# Nothing of the launcher, which some programs would take for their own.
bare_environment()
{
    local variable
    while read -r variable; do
        case $variable in OMPI_* | PMIX_* | ORTE_* | PRTE_*) unset "$variable" ;; esac
    done < <(compgen -e)
}

rank_main() # torch|none program...
{
    case $1 in
    torch) torch_environment ;;
    none) bare_environment ;;
    esac
    shift
    exec "$@"
}
