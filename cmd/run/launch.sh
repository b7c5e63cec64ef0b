# SPDX-License-Identifier: Apache-2.0
# launch.sh - the command that starts the ranks: by mpirun on this machine or on hosts, by srun in
# Slurm. Part of mics-run.

# How long srun waits for the nodes of its job, which a step before may still hold.
nodes_limit_s=120

# --spares and --elastic choose among hosts.
check_host_option() # name
{
    if [ -n "$hostfile" ]; then return; fi
    if [ $in_slurm = 1 ]; then
        usage "$1 goes with --hostfile; when a node fails, Slurm itself requeues the job on others"
    fi
    usage "$1 goes with --hostfile"
}

check_options()
{
    in_slurm=0
    if [ -n "${SLURM_JOB_ID:-}" ] && [ -z "$hostfile" ]; then in_slurm=1; fi
    if [ "$spares" -gt 0 ]; then check_host_option --spares; fi
    if [ $elastic = 1 ]; then check_host_option --elastic; fi
    if [ -n "$limit" ] && [ "$restarts" -gt 0 ]; then
        usage '--limit ends the job, and does not go with --restarts'
    fi
    if [ -n "$limit" ] && [ "$limit" -lt $start_limit_s ]; then start_limit_s=$limit; fi
    if [ $available = 1 ]; then
        check_host_option --available
        if [ $elastic = 1 ] || [ "$spares$restarts" != 00 ] || [ -n "$ranks" ]; then
            usage '--available goes with neither --elastic, --spares, --restarts nor --ranks'
        fi
    fi
    if [ $elastic = 1 ] && [ -z "${plan#-}" ]; then
        usage '--elastic plans again as in the plan of mics-train -p FILE, which is missing'
    fi
    if [ $in_slurm = 1 ]; then
        ranks=${ranks:-${SLURM_NTASKS:-}}
        [ -n "$ranks" ] || usage "how many ranks? -n N, or '#SBATCH --ntasks=N'"
        is_number "$ranks" || usage "SLURM_NTASKS: '$ranks': must be a number of ranks"
        command -v srun >/dev/null || fail 1 'srun is not installed'
        srun --mpi=list 2>&1 | grep -qw pmix ||
            fail 1 "this Slurm has no PMIx ('srun --mpi=list'), by which the ranks find each other"
    else
        [ -n "$ranks$hostfile" ] || usage 'how many ranks? -n N, or --hostfile=FILE'
        command -v mpirun >/dev/null || fail 1 'mpirun is not installed (Debian: openmpi-bin)'
    fi
}

# Open MPI's connections find a lost host in about ten seconds, not in a quarter of an hour.
prepare_hosts()
{
    set_default OMPI_MCA_oob_tcp_keepalive_time 5
    set_default OMPI_MCA_oob_tcp_keepalive_intvl 1
    set_default OMPI_MCA_oob_tcp_keepalive_probes 5
}

# Set a variable of the environment unless the user has.
set_default() # name value
{
    [ -n "${!1:-}" ] || export "$1=$2"
}

# What Open MPI needs for so many ranks on a machine of so many cores: the ranks of mics choose
# their cores themselves.
prepare_mpirun() # ranks physical_cores cores
{
    set_default OMPI_MCA_hwloc_base_binding_policy none
    if [ "$1" -gt "$2" ]; then set_default OMPI_MCA_rmaps_base_oversubscribe 1; fi
    if [ "$1" -gt "$3" ]; then set_default OMPI_MCA_mpi_yield_when_idle 1; fi
    if [ "$(id -u)" = 0 ]; then
        set_default OMPI_ALLOW_RUN_AS_ROOT 1
        set_default OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
    fi
}

# End what is left of the step of this program's srun.
cancel_step()
{
    local step name
    timeout 10 squeue -h -s -j "$SLURM_JOB_ID" -o '%i %j' >"$state/steps" 2>/dev/null
    while read -r step name; do
        if [ "$name" = "$program-$$" ] && [[ $step =~ ^[0-9][0-9A-Za-z_.+]*$ ]]; then
            timeout 10 scancel --signal=KILL "$step" </dev/null >/dev/null 2>&1
        fi
    done <"$state/steps"
}

# A command that prints the number of cores; mpirun does not count hardware threads.
# shellcheck disable=SC2016 # expanded by awk
count_cores='lscpu -p=core,socket 2>/dev/null |
    awk '\''!/^#/ && !seen[$0]++ { n++ } END { print n + 0 }'\'

# Variables that ranks on other hosts need: those of mics and of the libraries that it calls.
exported_variables()
{
    compgen -e | grep -E '^(MICS|NCCL|CUDA|OPENBLAS|OMP|XDG|UCX)_|^LD_LIBRARY_PATH$' |
        sed 's/^/-x\n/'
}

# Set command= from words=.
make_command()
{
    local exports=() quietly=(-q) # without its paragraphs on how a rank has ended
    if [ $verbose = 1 ]; then quietly=(); fi
    if [ $in_slurm = 1 ]; then
        command=(srun --mpi=pmix --ntasks="$ranks" --kill-on-bad-exit=1 --input=0
            --immediate=$nodes_limit_s --job-name="$program-$$")
    elif [ -n "$hostfile" ]; then
        mapfile -t exports < <(exported_variables)
        command=(mpirun "${quietly[@]}" -n "$start_ranks" --hostfile "$state/hosts" "${exports[@]}")
    else
        prepare_mpirun "$ranks" "$(sh -c "$count_cores")" "$(nproc)"
        command=(mpirun "${quietly[@]}" -n "$ranks")
    fi
    command+=("${words[@]}")
}
