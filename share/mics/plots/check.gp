# SPDX-License-Identifier: Apache-2.0
# A check of a cluster. "pairs": the matrix of pairs of nodes that were measured, senders down and
# receivers across, by the part of the usual rate that they reach; a star marks bad nodes.
n = int(nodes)
usual = to_real(reference_bytes_per_s)
share(rate) = rate / usual
names = n <= 32
# Grades of a pair: from which share, to which, and how it is drawn. Grades without a pair are left
# out, because gnuplot would warn of them.
is_of(k, rate) = share(rate) >= real(word('0.8 0.5 0', k)) && \
    share(rate) < real(word('1000000 0.8 0.5', k))
grade_words(k) = k == 1 ? '80 % or more' : k == 2 ? '50 to 80 %' : 'below 50 %'

eval begin(79)
do for [shown in pictures] {
    eval picture(GPVAL_TERM)
    set title sprintf('Pairs of %d nodes: %s, usual rate %s', n, verdict[1:8], \
        gprintf('%.3s %cB/s', usual))
    eval vertical('sender', GPVAL_TERM)
    set xlabel 'receiver'
    set xrange [-0.5:n - 0.5]
    set yrange [n - 0.5:-0.5]
    if (names) {
        set xtics ('' -1) rotate by -35
        set ytics ('' -1)
        do for [i=2:|$host|] {
            label = cell($host[i], 1)[1:16] . (cell($host[i], 3) eq 'bad' ? '*' : '')
            set xtics add (label i - 2)
            set ytics add (label i - 2)
        }
    }
    command = ''
    do for [k=1:3] {
        pairs = 0
        do for [i=2:|$sender|] { pairs = pairs + is_of(k, number($sender[i], 3)) }
        if (pairs > 0) {
            command = more(command, sprintf("$sender using (is_of(%d, column('bytes_per_s')) ? " . \
                "column('receiver') : NaN):(column('sender')) with points pt %s lc rgb '%s' " . \
                "title grade_words(%d)", k, word('5 9 7', k), \
                word('#009E73 #E69F00 #D55E00', k), k))
        }
    }
    eval command
}
if (count > 1) { unset multiplot }
