#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - the whole workflow on one machine: text, tokens, plan, training, text; and what MiCS is
# for, on an emulated cluster.
#
# usage: demo.sh [FOLDER-OF-PROGRAMS]
#
# The text is that of Debian's package bible-kjv-text, the King James Version, which is in the
# public domain; DEMO_TEXT are patterns of other text files. Four ranks emulate two nodes of two,
# each with 1 to 2 MiB less memory than training with a full copy of the state needs. So the planner
# must shard the state over a partition group. Groups of one node are requested with
# "--strategy=mics:2", because on one machine the network is as fast as the links inside a node, and
# the planner would see no advantage in them. Where the machine allows namespaces, a cluster of four
# nodes with slow links then trains some steps with ZeRO-3 and with MiCS. DEMO_STEPS (600) sets the
# number of steps, DEMO_MEMORY the memory of each rank; the run is kept in DEMO_FOLDER, or in a new
# folder of TMPDIR.
set -euo pipefail

if [ -n "${1:-}" ]; then PATH=$(cd "$1" && pwd):$PATH; fi
steps=${DEMO_STEPS:-600}
work=${DEMO_FOLDER:-$(mktemp -d "${TMPDIR:-/tmp}/mics-demo.XXXXXX")}
vocab=2048
compared=5 # steps of each strategy on the emulated cluster

# The emulated topology, and settings for Open MPI: allow more ranks than cores, and root.
export MICS_NODE_RANKS=2
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
    OMPI_MCA_mpi_yield_when_idle=1
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

title()
{
    printf '\n== %s\n' "$*"
}

# Show a command, then run it.
show()
{
    printf '\n$ %s\n' "$*"
    bash -o pipefail -c "$*"
}

# A file for each book, without the numbers of chapters and verses.
write_books()
{
    mkdir -p corpus
    # "Ge1:1 In the beginning ..." becomes a line of the file of Genesis.
    bible -f 'Gen1:1-Rev22:21' </dev/null | awk '
        match($0, /^[0-9]*[A-Za-z]+[0-9]+:[0-9]+ /) {
            name = substr($0, 1, RLENGTH)
            sub(/[0-9]+:[0-9]+ $/, "", name)
            if (name != book) {
                close(file)
                book = name
                file = sprintf("corpus/%02d-%s.txt", ++books, name)
            }
            print substr($0, RLENGTH + 1) >file
        }'
}

# How the plan shards the state.
groups()
{
    mics-show --tsv plan.mp | awk -F '\t' '
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
    mics-plan "${options[@]}" --strategy=ddp --tsv topology.mp |
        awk -F '\t' '$1 == "total" { print int($2 / 1048576) - 1 "M" }'
}

# Run a program of awk, which has number(MEMBER), on metrics.
metrics() # file program [strategy]
{
    awk -v strategy="${3:-}" '
        function number(key,   rest) {
            if (!match($0, "\"" key "\": *[-+0-9.e]+"))
                return 0
            rest = substr($0, RSTART, RLENGTH)
            sub(/.*: */, "", rest)
            return rest + 0
        }'"$2" "$1"
}

# First and last losses, and how much communication was hidden.
summary()
{
    metrics run/metrics.jsonl '
        /"event": *"step"/ {
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
            printf "* The loss of a token fell from %.2f at the first step to %.2f, " \
                "the mean of the last %d of %d steps.\n", loss[1], sum / last, last, n
            printf "* A step took %.0f ms: %.0f tokens per second.\n", ms / n, 1000 * tokens / ms
            printf "* Communication took %.1f ms of it, of which %.1f ms were hidden " \
                "behind computation and %.1f ms were not.\n",
                comm / n, (comm - exposed) / n, exposed / n
        }'
}

# A row of the table: the median step, and what a node sent in each.
compared_row() # strategy
{
    metrics "lab-$1.jsonl" '
        /"event": *"step"/ { ms[++n] = number("step_ms") }
        /"event": *"end"/ { sent = number("net_bytes") }
        END {
            for (i = 2; i <= n; i++) # by insertion
                for (j = i; j > 1 && ms[j] < ms[j - 1]; j--) {
                    swap = ms[j]; ms[j] = ms[j - 1]; ms[j - 1] = swap
                }
            printf "  %-8s %12.0f ms %20.1f MB\n", strategy, ms[int((n + 1) / 2)],
                sent / n / 4 / 1e6
        }' "$1"
}

# ZeRO-3 and MiCS on four nodes of two ranks with links of 50 Mbit/s, eight micro-steps a step.
compare_strategies()
{
    local strategy cluster='mics-lab run -q --nodes=4 --slots=2 --net=50mbit --'
    unset MICS_NODE_RANKS
    for strategy in zero3 mics:2; do
        show "mics-plan $model --global-batch=64 --seq=64 --micro-batch=1 --strategy=$strategy" \
            "--topology='node:4 gpu:2' -o lab-$strategy.mp"
        show "$cluster mics-train -q -p lab-$strategy.mp --data=data/corpus --steps=$compared" \
            "--sample=0 --val-every=0 --out=lab-$strategy --metrics=lab-$strategy.jsonl"
    done
    printf '\n  %-8s %15s %23s\n' strategy 'step (median)' 'sent by a node per step'
    for strategy in zero3 mics:2; do compared_row "$strategy"; done
}

mkdir -p "$work"
cd "$work"
title 'Text, tokens'
if [ -n "${DEMO_TEXT:-}" ]; then
    text=$DEMO_TEXT
elif command -v bible >/dev/null; then
    write_books
    text='corpus/*.txt'
else
    echo "demo: no text: install the Debian package bible-kjv, or set DEMO_TEXT" >&2
    exit 1
fi
show "mics-data train --vocab=$vocab '$text' -o tokenizer"
show "mics-data encode -t tokenizer '$text' -o data/corpus | mics-show"
show "mics-data show data/corpus --sample=32 | tail -n 4"

title 'A plan'
show "mpirun -n 4 mics-probe >topology.mp"
model="--model=gpt2-nano --vocab=$vocab"
read -r -a options <<<"$model --global-batch=8 --seq=256 --micro-batch=1 --recompute=none"
memory=${DEMO_MEMORY:-$(too_little)}
printf '\nThe partition group is chosen for two nodes of two ranks, %s each.\n' "$memory"
ask="mics-plan ${options[*]} --memory=$memory"
if show "$ask --strategy=ddp topology.mp >plan.mp"; then
    echo "demo: one copy of the state fits into a rank: nothing would have to be cut" >&2
    exit 1
fi
show "$ask --strategy=mics:2 topology.mp >plan.mp"
show "mics-show plan.mp"
groups >/dev/null

title 'Training, and text again'
show "mpirun -n 4 mics-train -p plan.mp --data=data/corpus --steps=$steps --out=run"
show "mics-sample run/latest --prompt='And the king said' --echo --max-tokens=60"
show "mics-shard merge run/latest -o hf"

if mics-lab run -q --nodes=1 --slots=1 -- true 2>/dev/null; then
    title 'Four nodes with links of 50 Mbit/s: ZeRO-3 and MiCS'
    compare_strategies
else
    title 'ZeRO-3 and MiCS are not compared: mics-lab needs namespaces, which are not allowed here'
fi

title 'What this showed'
groups
summary
echo "* All files are in $work; 'mics-show $work/plan.mp' shows the plan again."
echo "* hf/ is a Hugging Face model with its tokenizer. With Python's transformers:
    python3 -c 'from transformers import pipeline
print(pipeline(\"text-generation\", model=\"$work/hf\")(\"And the king said\"))'"
