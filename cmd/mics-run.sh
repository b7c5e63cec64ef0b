#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mics-run - starts a job with the launcher that is there, and restarts it after faults.
#
# A start chooses hosts (if there is a host file), makes the command of mpirun or srun, and waits
# for it. The exit status that a rank reports is in a file, because launchers lose it, and wait
# where a node is unreachable. After a failure the command is started again, from the newest
# checkpoint that this job has written. All decisions are made here; hosts run no other process.
set -u

program=mics-run
version=@VERSION@

# name, metavariable, letter, help
options='ranks|N|n|ranks of the job (default: the slots of the hosts, or the tasks in Slurm)
hostfile|FILE||hosts and their slots, as for mpirun
spares|N||hosts of the host file that are used in place of others only (default: 0)
restarts|N||restart after a failure, at most N times (default: 0)
elastic|||with too few hosts left, plan again for fewer, and continue
available|||start on the hosts that answer, also if they are fewer than the host file has
limit|S||end the job 20 s after S seconds; with --available hosts must start within S
clean|||remove what ended jobs have left in the memory of the hosts, and start nothing
no-probe|||do not look for slow hosts before each start
verbose||v|print the command of each start, and what mpirun says
quiet||q|print errors only
help||h|print this help and exit
version||V|print the version and exit'

ranks='' hostfile='' spares=0 restarts=0 elastic=0 probe=1 available=0 limit='' clean=0 verbose=0
declare -A asked=() # processes that ask hosts
declare -A port_of=() # of a host, if it is not that of ssh's configuration
own_names=() # of this machine
measuring='' # the process that measures them

print_help()
{
    cat <<END
Usage: $program [options] -- PROGRAM [ARGUMENT...]
Start a job on this machine, on hosts or in Slurm, and restart it after faults.
END
    print_options
}

print_completion() { print_option_completion; }

take_option() # name value
{
    case $1 in
    ranks) take_count ranks "$2" 1 1000000 && ranks=$2 ;;
    hostfile) hostfile=$2 ;;
    spares) take_count spares "$2" 0 100000 && spares=$2 ;;
    restarts) take_count restarts "$2" 0 1000000 && restarts=$2 ;;
    elastic) elastic=1 ;;
    available) available=1 probe=0 ;;
    limit) take_count limit "$2" 1 1000000 && limit=$2 ;;
    clean) clean=1 ;;
    no-probe) probe=0 ;;
    verbose) verbose=1 ;;
    quiet) quiet=1 ;;
    help) print_help | publish; exit ;;
    version) echo "$program (mics) $version" | publish; exit ;;
    esac
}

# The build inserts these files here.
. cmd/shell/messages.sh
. cmd/shell/parse.sh
. cmd/run/job.sh
. cmd/run/launch.sh
. cmd/run/wait.sh
. cmd/run/hosts.sh
. cmd/run/replan.sh
. cmd/run/restart.sh
. cmd/run/clean.sh

parse "$@"
[ ${#operands[@]} = 0 ] ||
    usage "'${operands[0]}': unexpected argument; put '--' before the program to run"
if [ $clean = 1 ]; then clean_main; fi
[ ${#job[@]} -gt 0 ] || usage "no program; put it after '--'"
find_job
check_options
leave_signals
open_state
run_until_done
