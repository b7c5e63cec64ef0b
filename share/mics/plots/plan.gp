# SPDX-License-Identifier: Apache-2.0
# A plan. "memory": the memory of a rank by region, against the limit, for each number of shards;
# on a terminal of characters, where stacks cannot be told apart, the total. "throughput": predicted
# tokens/s by the shards of the parameters.
n = |$strategy| - 1
field(i, key) = cell($strategy[i + 1], named($strategy[1], key))
value_of(i, key) = to_real(field(i, key))
subject = sprintf('%s on %s, %d node%s x %d', model[1:40], name[1:40], int(nodes), \
    plural(int(nodes)), int(per_node))
ranks = nodes * per_node
limit = 0
do for [i=2:|$region|] {
    if (word($region[i], 1) eq 'limit') { limit = number($region[i], 2) / 2.0**30 }
}

# Per alternative: its place among the bars, its memory in GiB, its throughput (of one that was not
# simulated what its lower bound of a step allows), and its series.
array p[n]; array order[n]; array place[n]; array total[n]; array rate[n]; array series[n]
chosen = 0
do for [i=1:n] {
    p[i] = int(value_of(i, 'p_param'))
    g = int(value_of(i, 'p_grad'))
    o = int(value_of(i, 'p_optim'))
    order[i] = (p[i] * 2**20 + g) * 2**20 + o
    total[i] = value_of(i, 'bytes') / 2.0**30
    fits = int(value_of(i, 'fits'))
    simulated = field(i, 'tokens_per_s') ne '-'
    bound = field(i, 'step_s') eq '-' ? 0 : global_batch * seq / value_of(i, 'step_s')
    rate[i] = !fits ? 0 : simulated ? value_of(i, 'tokens_per_s') : bound
    series[i] = !fits ? 5 : !simulated ? 6 : p[i] != g ? 3 : g == o ? 1 : o == ranks ? 2 : 3
    if (field(i, 'why') eq 'chosen') { chosen = i }
}
do for [i=1:n] { place[i] = sum [k=1:n] (order[k] < order[i]) }

titles = '"parameter shards" "gradient shards" "optimizer state" "gathered units" ' . \
    '"activations, batch" "context, libraries" snapshot'
first = named($strategy[1], 'param_bytes')
array bytes[7]
do for [k=1:7] { bytes[k] = sum [i=1:n] number($strategy[i + 1], first + k - 1) }
shards(i) = field(i, 'p_param') eq field(i, 'p_grad') && field(i, 'p_grad') eq field(i, \
    'p_optim') ? \
    field(i, 'p_param') : field(i, 'p_param') . '/' . field(i, 'p_grad') . '/' . field(i, 'p_optim')

eval begin(16 + 9 * n)
do for [shown in pictures] {
    eval picture(GPVAL_TERM)
    if (shown eq 'memory') {
        top = limit
        do for [i=1:n] { top = total[i] > top ? total[i] : top }
        set title 'Memory of a rank: ' . subject
        eval vertical('GiB', GPVAL_TERM)
        set xlabel 'shards of the state (parameters/gradients/optimizer where they differ)'
        set key invert
        set style fill solid 1.0 border lc rgb 'white'
        set boxwidth 0.72
        set grid noxtics
        set xrange [-0.6:n - 0.4]
        set yrange [0:1.2 * top]
        unset xtics
        if (n > 6) { set xtics nomirror out scale 0 rotate by -35 () } else { set xtics nomirror \
            out scale 0 () }
        do for [i=1:n] { set xtics add (shards(i) place[i]) }
        if (chosen) {
            set label 'chosen' at place[chosen], graph 0.97 center front
            set arrow from place[chosen], graph 0.91 to place[chosen], 1.01 * total[chosen] \
                head filled lw 1.5 front
        }
        if (GPVAL_TERM eq 'dumb') {
            plot $strategy skip 1 using (place[int($0) + 1]):(total[int($0) + 1]) with impulses \
                lt 1 \
                title 'total', limit with lines lt 2 title 'limit'
        } else {
            plot for [k=7:1:-1] $strategy skip 1 using (place[int($0) + 1]): \
                ((sum [j=1:k] column(first + j - 1)) / 2.0**30) with boxes lt k \
                title (bytes[k] > 0 ? word(titles, k) : ''), \
                limit with lines lc rgb 'black' lw 2 dt 2 title 'limit'
        }
    } else {
        largest = 0
        do for [i=1:n] { largest = rate[i] > largest ? rate[i] : largest }
        scale = unit(largest)
        set title 'Predicted throughput: ' . subject
        set xlabel 'shards of the parameters, p'
        eval vertical(unit_word(scale) . 'tokens/s', GPVAL_TERM)
        set logscale x 2
        set yrange [0:1.15 * largest / scale]
        set offsets graph 0.05, graph 0.05, 0, 0
        unset xtics
        set xtics nomirror out ()
        do for [i=1:n] { set xtics add (sprintf('%d', p[i]) p[i]) }
        array style[6] = ["linespoints lt 1 title 'all state in groups of p'", \
            "linespoints lt 2 title 'optimizer state over all ranks'", \
            "points lt 3 ps 1.3 title 'other'", \
            "points lc rgb 'black' pt 6 ps 2.6 lw 2 title 'chosen'", \
            "points lc rgb '#b00000' pt 2 ps 1.2 lw 2 title 'does not fit'", \
            "points lc rgb '#888888' pt 10 ps 1.2 lw 2 title 'at most, not simulated'"]
        member(i, s) = s == 4 ? i == chosen && series[i] < 4 : series[i] == s
        command = ''
        do for [s=1:6] {
            if (sum [i=1:n] member(i, s)) {
                command = more(command, sprintf('$strategy skip 1 using ' . \
                    '(member(int($0) + 1, %d) ? $2 : NaN):(rate[int($0) + 1] / scale) with %s', \
                    s, style[s]))
            }
        }
        eval command
    }
}
if (count > 1) { unset multiplot }
