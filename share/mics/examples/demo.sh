#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - the whole workflow on one machine: text, tokens, plan, training, text; and what MiCS is
# for, on an emulated cluster.
#
# usage: demo.sh [FOLDER-OF-PROGRAMS]
#
# The text is that of Debian's package bible-kjv-text, the King James Version, which is in the
# public domain outside of the United Kingdom; DEMO_TEXT names other files of text, as patterns of
# the shell. Four ranks emulate two nodes of two,
# each with 1 to 2 MiB less memory than training with a full copy of the state needs. So the planner
# must shard the state over a partition group. Groups of one node are requested with
# "--strategy=mics:2", because on one machine the network is as fast as the links inside a node, and
# the planner would see no advantage in them. Where the machine allows namespaces, a cluster of four
# nodes with slow links then trains some steps with ZeRO-3 and with MiCS. DEMO_STEPS (500) sets the
# number of steps, DEMO_MEMORY the memory of each rank; the run is kept in DEMO_FOLDER, or in a new
# folder of TMPDIR.
set -euo pipefail

programs=
if [ -n "${1:-}" ]; then
    programs=$(cd "$1" && pwd)/
    PATH=$programs:$PATH
fi
steps=${DEMO_STEPS:-500}
work=${DEMO_FOLDER:-$(mktemp -d "${TMPDIR:-/tmp}/mics-demo.XXXXXX")}
start=$PWD
vocab=2048
compared=5 # steps of each strategy on the emulated cluster

# The emulated topology, and settings for Open MPI: allow more ranks than cores, and root.
export MICS_NODE_RANKS=2
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
    OMPI_MCA_mpi_yield_when_idle=1
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

title() # heading [sentence...]
{
    printf '\n== %s\n' "$1"
    shift
    if [ $# -gt 0 ]; then printf '%s\n' "$@"; fi
}

fail() # message
{
    echo "demo: $*" >&2
    exit 1
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

# Paths of files that match DEMO_TEXT, one pattern or several with blanks between.
named_files()
{
    local pattern patterns
    read -r -a patterns <<<"$DEMO_TEXT"
    cd "$start"
    { compgen -G "$DEMO_TEXT" || for pattern in "${patterns[@]}"; do
        compgen -G "$pattern"
    done; } | tr '\n' '\0' | xargs -0 -r realpath --
}

# The text as corpus/*.
find_text()
{
    local file files i=0
    if [ -n "${DEMO_TEXT:-}" ]; then
        mapfile -t files < <(named_files)
        if [ ${#files[@]} = 0 ]; then fail "DEMO_TEXT: '$DEMO_TEXT' matches no file"; fi
        mkdir corpus
        for file in "${files[@]}"; do
            ln -s "$file" "$(printf 'corpus/%04d-%s' $((++i)) "${file##*/}")"
        done
    elif command -v bible >/dev/null; then
        echo "The text is the King James Bible, from Debian's package bible-kjv-text;" \
            'its copyright has expired.'
        write_books
    else
        fail "no text: install the Debian package bible-kjv, or name files of text of your own," \
            "as in DEMO_TEXT='texts/*.txt' make demo"
    fi
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
metrics() # file program
{
    awk '
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

# The median step in ms, and the bytes that a node sent in each.
step_and_bytes() # strategy
{
    metrics "lab-$1.jsonl" '
        /"event": *"step"/ { ms[++n] = number("step_ms") }
        /"event": *"end"/ { sent = number("net_bytes") }
        END {
            for (i = 2; i <= n; i++) # by insertion
                for (j = i; j > 1 && ms[j] < ms[j - 1]; j--) {
                    swap = ms[j]; ms[j] = ms[j - 1]; ms[j - 1] = swap
                }
            print ms[int((n + 1) / 2)], sent / n / 4
        }'
}

# ZeRO-3, MiCS, and MiCS with gradients between nodes in int8, on four nodes of two ranks with links
# of 50 Mbit/s, eight micro-steps a step.
compare_strategies()
{
    local name options cluster='mics-lab run -q --nodes=4 --slots=2 --net=50mbit --'
    unset MICS_NODE_RANKS
    while read -r name options <&3; do
        show "mics-plan $model --global-batch=64 --seq=64 --micro-batch=1 $options" \
            "-o lab-$name.mp"
        show "$cluster mics-train -q -p lab-$name.mp --data=data/corpus --steps=$compared" \
            "--sample=0 --val-every=0 --out=lab-$name --metrics=lab-$name.jsonl"
    done 3<<END
zero3 --strategy=zero3 --topology='node:4 gpu:2'
mics:2 --strategy=mics:2 --topology='node:4 gpu:2'
mics:2-int8 --strategy=mics:2 --topology='node:4 gpu:2 net:50mbit' --sync-dtype=int8
END
    for name in zero3 mics:2 mics:2-int8; do
        echo "$name $(step_and_bytes $name)"
    done | awk '
        BEGIN { printf "\n  strategy      step (median)   sent by a node per step\n" }
        { printf "  %-11s %12.0f ms %22.1f MB\n", $1, $2, $3 / 1e6; ms[NR] = $2; sent[NR] = $3 }
        END {
            printf "\n  The step of MiCS took %.2f times that of ZeRO-3, ", ms[2] / ms[1]
            printf "and sent %.2f times the bytes over the network.\n", sent[2] / sent[1]
            printf "  With gradients between nodes in int8 it took %.2f times, ", ms[3] / ms[1]
            printf "and sent %.2f times the bytes.\n", sent[3] / sent[1]
        }'
}

[[ $steps =~ ^[1-9][0-9]{0,8}$ ]] || fail "DEMO_STEPS: '$steps': must be a number"
[[ ${DEMO_MEMORY:-1M} =~ ^[0-9.]+[A-Za-z]{0,3}$ ]] ||
    fail "DEMO_MEMORY: '$DEMO_MEMORY': must be a size, such as 45M"
mkdir -p -- "$work"
cd -- "$work"
work=$PWD
if [ -e corpus ] || [ -e run ]; then
    fail "$work has a demonstration already: remove it, or choose another DEMO_FOLDER"
fi
# If it does not come to its end, say where its files are.
trap '[ $? = 0 ] || echo "demo: not finished; its files are in $work" >&2' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
title 'Text and tokens'
find_text
show "mics-data train --vocab=$vocab 'corpus/*' -o tokenizer"
show "mics-data encode -t tokenizer 'corpus/*' -o data/corpus | mics-show"
echo
echo 'The first tokens, as text again:'
show "mics-data show data/corpus --sample=32 | sed '1,/^$/d'"

title 'A plan' \
    'Measure this machine, whose four processes stand for two nodes of two GPUs, and choose the' \
    'partition group: the ranks that hold one copy of the parameters and the optimizer together.'
show "mpirun -n 4 mics-probe >topology.mp"
model="--model=gpt2-nano --vocab=$vocab"
read -r -a options <<<"$model --global-batch=8 --seq=256 --micro-batch=1 --recompute=none"
memory=${DEMO_MEMORY:-$(too_little)}
printf '\nA rank gets %s, which is too little for a whole copy in each, as the planner says:\n' \
    "$memory"
ask="mics-plan ${options[*]} --memory=$memory"
if show "$ask --strategy=ddp topology.mp >plan.mp"; then
    fail "one copy of the state fits into a rank: nothing would have to be cut"
fi
printf '\nSharded over the two ranks of a node it fits:\n'
show "$ask --strategy=mics:2 topology.mp >plan.mp"
show "mics-show plan.mp"
groups >/dev/null

title 'Training, and text again' \
    'About a minute on two cores. The loss is that of the next token, in nats: at first it is' \
    "that of chance, which is ln($vocab)."
show "mpirun -n 4 mics-train -p plan.mp --data=data/corpus --steps=$steps --log-every=20 --out=run"
show "mics-sample run/latest --prompt='And the king said' --echo --top-p=0.9 --max-tokens=60"
show "mics-shard merge run/latest -o hf"

if mics-lab run -q --nodes=1 --slots=1 -- true 2>/dev/null; then
    title 'Four nodes with links of 50 Mbit/s: ZeRO-3 and MiCS' \
        'ZeRO-3 shards over all 8 ranks, MiCS over the 2 of a node: less crosses the network;' \
        'still less with gradients between nodes in int8.'
    compare_strategies
else
    title 'Four nodes with slow links: left out' \
        'ZeRO-3 and MiCS are not compared: mics-lab needs iproute2 and the right to make network' \
        'namespaces, as root has it outside of most containers.'
fi

title 'What this showed'
groups
summary
echo "* All files are in $work."
echo "  Show the plan again:  $(printf '%q %q' "${programs}mics-show" "$work/plan.mp")"
echo "* hf/ is a model of Hugging Face with its tokenizer. If you have Python's transformers:

cd $(printf %q "$work")
python3 -c '
from transformers import pipeline
write = pipeline(\"text-generation\", model=\"hf\")
print(write(\"And the king said\", max_new_tokens=60)[0][\"generated_text\"])'"
