# SPDX-License-Identifier: Apache-2.0
# Metrics of a run, as means over the steps `first` to `last` of each row of $first: the loss of
# training and validation, tokens/s, bytes of second hops where they are not exact ones in every
# step, and the load of experts, by step.
n = |$first| - 1
field(i, key) = cell($first[i + 1], named($first[1], key))
value_of(i, key) = to_real(field(i, key))
per_point = (value_of(n, 'last') - value_of(1, 'first') + 1) / n
mean = per_point > 1 ? sprintf(', mean of %.2g steps', per_point) : ''
subject = (exists('run_model') ? ': ' . run_model[1:40] : '') . \
    (exists('run_model') && exists('run_strategy') && exists('run_world_size') ? \
    sprintf(', %s, %d rank%s', run_strategy[1:16], int(run_world_size), \
    plural(int(run_world_size))) : '')
middle(first, last) = (first + last) / 2
has(key) = (sum [i=1:n] (field(i, key) ne '-')) > 0

eval begin(79)
do for [shown in pictures] {
    eval picture(GPVAL_TERM)
    set xlabel 'step'
    if (shown eq 'loss') {
        set title 'Loss' . subject
        eval vertical('cross-entropy, nats per token', GPVAL_TERM)
        set key inside top right vertical
        curve = "$first using (middle(column('first'), column('last'))):"
        command = ''
        if (has('loss')) {
            command = more(command, curve . "'loss' with lines lt 1 lw 1.5 title 'training' . mean")
        }
        if (has('val_loss')) {
            command = more(command, curve . "'val_loss' with linespoints lt 2 title 'validation'")
        }
        eval command
    }
    if (shown eq 'second_hops') {
        largest = 0
        do for [i=1:n] {
            bytes = field(i, 'exact_sync_bytes') eq '-' ? 0 : value_of(i, 'exact_sync_bytes')
            largest = bytes > largest ? bytes : largest
        }
        scale = unit(largest)
        set title 'Second hops' . subject
        set ylabel unit_word(scale) . 'bytes per step'
        set yrange [0:*]
        set key inside center right vertical
        plot $first using (middle(column('first'), column('last'))): \
            (column('sync_bytes') / scale) with lines lt 1 lw 1.5 title 'sent' . mean, \
            $first using (middle(column('first'), column('last'))): \
            (column('exact_sync_bytes') / scale) with lines lt 2 title 'exact, in every step'
    }
    if (shown eq 'experts') {
        set title 'Load of experts' . subject
        set ylabel 'rows of the busiest expert / mean'
        set yrange [1:*]
        set y2label 'entropy of routers, nats'
        set y2range [0:*]
        set ytics nomirror
        set y2tics
        set key inside top right vertical
        plot $first using (middle(column('first'), column('last'))):'expert_load' \
            with lines lt 1 lw 1.5 title 'load in the worst layer' . mean, \
            $first using (middle(column('first'), column('last'))):'router_entropy' axes x1y2 \
            with lines lt 2 title 'entropy, right'
        unset y2label
        unset y2tics
        set ytics mirror
    }
    if (shown eq 'throughput') {
        largest = 0
        do for [i=1:n] {
            rate = field(i, 'tokens_per_s') eq '-' ? 0 : value_of(i, 'tokens_per_s')
            largest = rate > largest ? rate : largest
        }
        scale = unit(largest)
        set title 'Measured throughput' . subject
        set ylabel unit_word(scale) . 'tokens/s'
        set yrange [0:*]
        set key inside bottom right vertical
        plot $first using (middle(column('first'), column('last'))): \
            (column('tokens_per_s') / scale) with lines lt 3 lw 1.5 \
            title 'all ranks' . mean
    }
}
if (count > 1) { unset multiplot }
