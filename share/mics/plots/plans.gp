# SPDX-License-Identifier: Apache-2.0
# Several plans, in $nodes by model, cluster, strategy and nodes: predicted tokens/s of the job and
# of one rank by the number of nodes, a line for each model, cluster and strategy.
n = |$nodes| - 1
field(i, key) = cell($nodes[i + 1], named($nodes[1], key))
value_of(i, key) = to_real(field(i, key))
same(i, k) = field(i, 'model') eq field(k, 'model') && field(i, 'cluster') eq field(k, 'cluster')
common = 1
do for [i=2:n] { common = common && same(1, i) }
series = ''
array member[n]
do for [i=1:n] {
    if (i == 1) { series = '1' } else {
        if (!same(i - 1, i) || field(i - 1, 'strategy') ne field(i, 'strategy')) {
            series = series . sprintf(' %d', i) } }
    member[i] = words(series)
}
title_of(i) = common ? field(i, 'strategy') : \
    field(i, 'model')[1:24] . ', ' . field(i, 'cluster')[1:24] . ', ' . field(i, 'strategy')
on(s) = member[int(column(0)) + 1] == s

eval begin(79)
do for [shown in pictures] {
    eval picture(GPVAL_TERM)
    per_rank = shown eq 'rank_throughput'
    per(nodes, per_node) = per_rank ? nodes * per_node : 1
    largest = 0
    do for [i=1:n] {
        rate = value_of(i, 'tokens_per_s') / per(value_of(i, 'nodes'), value_of(i, 'per_node'))
        largest = rate > largest ? rate : largest
    }
    scale = unit(largest)
    set title (per_rank ? 'Predicted, per rank' : 'Predicted') . \
        (common ? ': ' . field(1, 'model')[1:40] . ' on ' . field(1, 'cluster')[1:40] : '')
    eval vertical(unit_word(scale) . 'tokens/s' . (per_rank ? ' per rank' : ''), GPVAL_TERM)
    set xlabel 'nodes'
    set logscale x 2
    set offsets graph 0.05, graph 0.05, 0, 0
    if (per_rank) { set yrange [0:1.15 * largest / scale] } else { set logscale y 10 }
    # Linear: each node does what one of the smallest plan does.
    linear(i, nodes) = value_of(i, 'tokens_per_s') / value_of(i, 'nodes') * nodes / scale
    command = ''
    do for [s=1:words(series)] {
        command = more(command, sprintf("$nodes using (on(%d) ? column('nodes') : NaN):" . \
            "(column('tokens_per_s') / per(column('nodes'), column('per_node')) / scale) " . \
            "with linespoints lt %d title title_of(%s)", s, type(s), word(series, s)))
        if (!per_rank) {
            command = more(command, sprintf("$nodes using (on(%d) ? column('nodes') : NaN):" . \
                "(linear(%s, column('nodes'))) with lines lt %d dt 3 lw 1 title '%s'", \
                s, word(series, s), type(s), s == 1 ? 'linear' : ''))
        }
    }
    eval command
}
if (count > 1) { unset multiplot }
