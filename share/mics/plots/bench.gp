# SPDX-License-Identifier: Apache-2.0
# Measured collectives, for each operation and group: bus bandwidth by size, a curve for each
# algorithm, with the line fitted to its times.
field(i, key) = cell($op[i + 1], named($op[1], key))
value_of(i, key) = to_real(field(i, key))
picture_of(i) = field(i, 'op') . '_' . field(i, 'group')
curve(i) = field(i, 'algo') . (field(i, 'in_place') eq '1' ? ',_in_place' : '')
n = |$op| - 1
array series[n]

eval begin(79)
do for [shown in pictures] {
    eval picture(GPVAL_TERM)
    # The curves of this picture, and of each the first and the last row.
    curves = ''
    array from[n]
    array to[n]
    do for [i=1:n] {
        series[i] = 0
        if (picture_of(i) eq shown) {
            c = curve(i)
            if (!(sum [k=1:words(curves)] (word(curves, k) eq c))) {
                curves = curves . ' ' . c
                from[words(curves)] = i
            }
            series[i] = sum [k=1:words(curves)] (word(curves, k) eq c ? k : 0)
            to[series[i]] = i
        }
    }
    f = from[1]
    title_of(k) = field(from[k], 'algo') . (field(from[k], 'in_place') eq '1' ? ', in place' : '')
    bus(i) = value_of(i, 'busbw_bytes_per_s') / (value_of(i, 'bytes') / value_of(i, 'time_s'))
    fit(k, x) = line(bus(from[k]), value_of(from[k], 'fit_latency_s'), \
        value_of(from[k], 'fit_bandwidth_bytes_per_s'), value_of(from[k], 'bytes'), \
        value_of(to[k], 'bytes'), x)
    set title sprintf('%s, group %s: %d node%s x %d', field(f, 'op'), field(f, 'group'), \
        int(field(f, 'nodes')), plural(int(field(f, 'nodes'))), int(field(f, 'per_node')))
    eval vertical('bus bandwidth', GPVAL_TERM)
    set xlabel 'bytes of the whole array'
    eval by_size
    command = ''
    do for [k=1:words(curves)] {
        command = more(command, \
            sprintf("$op using (series[int($0) + 1] == %d ? column('bytes') : NaN):" . \
            "(column('busbw_bytes_per_s')) with linespoints lt %d lw 1 title title_of(%d)", k, \
            type(k), k))
        if (field(from[k], 'fit_latency_s') ne '-') {
            command = more(command, sprintf("fit(%d, x) with lines lt %d dt 2 lw 1 title '%s'", \
                k, type(k), k == 1 ? 'fit' : ''))
        }
    }
    eval command
}
if (count > 1) { unset multiplot }
