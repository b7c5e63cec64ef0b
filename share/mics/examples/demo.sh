#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - the whole workflow on one machine: probe, plan, show, train, and summarise.
#
# usage: demo.sh [FOLDER-OF-PROGRAMS]
#
# Four ranks emulate two nodes of two, each with 1 to 2 MiB less memory than training with a full
# copy of the state needs. So the planner must shard the state over a partition group. Groups of one
# node are requested with "--strategy=mics:2", because on one machine the network is as fast as the
# links inside a node, and the planner would see no advantage in them. DEMO_STEPS (600) sets the
# number of steps, DEMO_MEMORY the memory of each rank; the run is kept in DEMO_FOLDER, or in a new
# folder of TMPDIR.
set -euo pipefail

root=$(cd "$(dirname "$0")/../../.." && pwd)
if [ -n "${1:-}" ]; then PATH=$(cd "$1" && pwd):$PATH; fi
steps=${DEMO_STEPS:-600}
work=${DEMO_FOLDER:-$(mktemp -d "${TMPDIR:-/tmp}/mics-demo.XXXXXX")}
metrics=$work/metrics.jsonl

# The emulated topology, and settings for Open MPI: allow more ranks than cores, and root.
export MICS_NODE_RANKS=2
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
    OMPI_MCA_mpi_yield_when_idle=1
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

# Show a command, then run it.
show()
{
    printf '\n$ %s\n' "$*"
    bash -o pipefail -c "$*"
}

# How the plan shards the state.
groups()
{
    mics-show --tsv "$work/plan.mp" | awk -F '\t' '
        $1 == "p_param" { p = $2 } $1 == "nodes" { n = $2 } $1 == "per_node" { k = $2 }
        END {
            if (p + 0 <= 1) {
                print "demo: the plan cuts nothing: one copy of the state fits into a rank" \
                    >"/dev/stderr"
                exit 1
            }
            printf "* One copy of the training state was cut over a partition group " \
                "of %d ranks, ", p
            print p <= k ? "inside a node;" : "over " p / k " nodes."
            if (p < n * k)
                printf "  %d such groups met only once per step, " \
                    "in the second hop of the gradients.\n", n * k / p
        }'
}

# Less than one copy of the state needs in each rank: "45M".
too_little()
{
    mics-plan "${options[@]}" --strategy=ddp --tsv "$work/topology.mp" |
        awk -F '\t' '$1 == "total" { print int($2 / 1048576) - 1 "M" }'
}

# From the metrics: first and last losses, and how much communication was hidden.
summary()
{
    awk -v steps="$steps" '
        function number(key,   rest) {
            if (!match($0, "\"" key "\":[-+0-9.e]+"))
                return 0
            rest = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
            return rest + 0
        }
        /"event":"step"/ {
            loss[++n] = number("loss")
            ms += number("step_ms"); comm += number("comm_ms"); exposed += number("exposed_ms")
            tokens += number("step_ms") * number("tokens_per_s") / 1000
        }
        END {
            if (n == 0)
                exit 1
            last = n < 50 ? n : 50
            for (i = n - last + 1; i <= n; i++)
                sum += loss[i]
            printf "* The loss of a byte fell from %.2f at the first step to %.2f, " \
                "the mean of the last %d of %d steps.\n", loss[1], sum / last, last, n
            printf "* A step took %.0f ms: %.0f bytes of text per second.\n", ms / n,
                1000 * tokens / ms
            printf "* Communication took %.1f ms of it, of which %.1f ms were hidden " \
                "behind computation and %.1f ms were not.\n",
                comm / n, (comm - exposed) / n, exposed / n
        }' "$metrics"
}

cd "$root"
show "mpirun -n 4 mics-probe >$work/topology.mp"
options=(--model=gpt2-nano --global-batch=8 --seq=256 --micro-batch=1 --recompute=none)
memory=${DEMO_MEMORY:-$(too_little)}
printf '\nThe partition group is chosen for two nodes of two ranks, %s each.\n' "$memory"
ask="mics-plan ${options[*]} --memory=$memory"
if show "$ask --strategy=ddp $work/topology.mp >$work/plan.mp"; then
    echo "demo: one copy of the state fits into a rank: nothing would have to be cut" >&2
    exit 1
fi
show "$ask --strategy=mics:2 $work/topology.mp >$work/plan.mp"
show "mics-show $work/plan.mp"
groups >/dev/null
train="mpirun -n 4 mics-train -p $work/plan.mp --data='lib/*/*.c man/*' --steps=$steps"
show "$train --metrics=$metrics --out=$work/run/"

printf '\nWhat this showed\n'
groups
summary
echo "* Plan, metrics and checkpoint are in $work; 'mics-show $work/plan.mp' shows the plan again."
