# SPDX-License-Identifier: Apache-2.0
# A topology. "links": bandwidth by size of a message, by the latency and bandwidth of each class of
# links. For each measured collective a picture with the measurements and the lines fitted to them;
# where algorithms were compared, "exchange_COLLECTIVE_NODESxRANKS" with the flat and the
# hierarchical one in all numbers of segments.
subject = sprintf('%s, %d node%s x %d', name[1:40], int(nodes), plural(int(nodes)), int(per_node))
group(nodes, per_node) = sprintf('%d x %d', int(nodes), int(per_node))
link_words(link) = link eq 'node' ? 'inside a node, one rank' : 'between nodes, whole node'

eval begin(79)
do for [shown in pictures] {
    eval picture(GPVAL_TERM)
    set xlabel 'bytes'
    eval by_size
    eval vertical('bandwidth', GPVAL_TERM)
    if (shown eq 'links') {
        set title 'Links: ' . subject
        set xrange [1024:2**30]
        plot for [i=2:|$link|] line(1, number($link[i], 2), number($link[i], 3), 0, 2**30, x) \
            with lines \
            lt type(cell($link[i], 1) eq 'node' ? 1 : 2) title link_words(cell($link[i], 1)) . \
            ', ' . \
            (cell($link[i], 4) eq '0' ? 'declared' : 'fit')
    } else {
    if (shown[1:9] ne 'exchange_') {
        set title shown . ': ' . subject
        set xrange [1024:*]
        group_at(i) = group(cell($collective[i], 2), cell($collective[i], 3))
        here(i) = strcol('measured') eq shown && group(column('nodes'), column('per_node')) eq \
            group_at(i)
        fit(i, most, x) = line(1, number($collective[i], 4), number($collective[i], 5), 0, most, x)
        command = ''
        k = 0
        do for [i=2:|$collective|] {
            if (cell($collective[i], 1) ne shown) { continue }
            k = k + 1
            most = cell($collective[i], 8)
            if (most ne '-') {
                command = more(command, \
                    sprintf("$measured using (here(%d) ? column('bytes') : NaN):" . \
                    "(column('bytes') / column('seconds')) with points lt %d title group_at(%d), " . \
                    "fit(%d, %s, x) with lines lt %d lw 1 dt 2 title '%s'", \
                    i, type(k), i, i, most, type(k), k == 1 ? 'fit' : ''))
            } else {
                command = more(command, sprintf("fit(%d, 2**26, x) with lines lt %d dt 2 " . \
                    "title group_at(%d) . ', fit'", i, type(k), i))
            }
        }
        eval command
    } else {
        name_at(i) = sprintf('exchange_%s_%sx%s', cell($exchange[i], 1), cell($exchange[i], 2), \
            cell($exchange[i], 3))
        rows = ''
        do for [i=2:|$exchange|] { if (name_at(i) eq shown) { rows = rows . ' ' . i } }
        f = int(word(rows, 1))
        set title sprintf('%s on %s: ', cell($exchange[f], 1), group(cell($exchange[f], 2), \
            cell($exchange[f], 3))) . subject
        segments(k) = cell($exchange[int(word(rows, k))], 4)
        here(k) = sprintf('exchange_%s_%dx%d', strcol('compared'), column('nodes'), \
            column('per_node')) eq shown && \
            column('segments') == int(segments(k))
        plot $compared using (here(1) ? column('bytes') : NaN):(column('bytes') / \
            column('flat_s')) \
            with linespoints lt 1 title 'flat', \
            for [k=1:words(rows)] $compared using (here(k) ? column('bytes') : NaN): \
            (column('bytes') / column('hierarchical_s')) with linespoints lt type(k + 1) \
            title sprintf('hierarchical, %s segment%s', segments(k), plural(int(segments(k))))
    } }
}
if (count > 1) { unset multiplot }
