# SPDX-License-Identifier: Apache-2.0
# Common to all pictures. Set before: `pictures`, their names separated by blanks, and `terminal`,
# '' if the user of gnuplot chooses it. Strings that `eval` executes have no text of a document.
set encoding utf8
set datafile separator tab
set datafile missing NaN
set datafile commentschars ''

# Colours that people with a deficiency of colour vision distinguish (Okabe and Ito, 2008).
colours = '#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #8C6D1F #444444'
symbols = '7 5 9 11 13 4 6 8'
do for [i=1:8] { set linetype i lc rgb word(colours, i) lw 2 pt int(word(symbols, i)) ps 1 }
type(i) = (i - 1) % 8 + 1

# Begin a page. `width`: of the widest picture, in characters, on a terminal of characters.
count = words(pictures)
across = terminal eq 'dumb' ? 1 : int(ceil(sqrt(count)))
down = (count + across - 1) / across
font = "font 'DejaVu Sans,%d'"
size(unit) = sprintf('size %.5g, %.5g', 860.0 * across / unit, 520.0 * down / unit)
characters(width) = sprintf('size %d, %d', width > 79 ? width : 79, 24 * down)
use(width) = terminal eq '' ? '' : \
    terminal eq 'dumb' ? 'set terminal dumb ' . characters(width) : \
    terminal eq 'pdf' ? 'set terminal pdfcairo ' . sprintf(font, 11) . size(96) : \
    terminal eq 'png' ? 'set terminal pngcairo ' . sprintf(font, 11) . size(1) : \
    'set terminal svg ' . sprintf(font, 13) . size(1) . " background 'white'"
begin(width) = use(width) . '; set termoption noenhanced; ' . \
    (count > 1 ? sprintf('set multiplot layout %d, %d', down, across) : '')

# Begin a picture: reset what another may have set.
clear_picture = \
    "unset label; unset arrow; unset logscale; unset grid; unset title; unset tmargin; " . \
    "unset xlabel; unset ylabel; unset xtics; unset ytics; set xtics autofreq norotate; " . \
    "set ytics autofreq; set format; set autoscale; set key default; set style data points; " . \
    "set style fill empty; set boxwidth; set offsets 0, 0, 0, 0; set border 3; " . \
    "set tics nomirror out; "
style_picture(term) = term eq 'dumb' ? \
    "set key outside bottom center horizontal maxcols 2 width 2" : \
    "set grid lc rgb '#d8d8d8' lt 1 lw 1; set key outside right center reverse Left"
picture(term) = clear_picture . style_picture(term)

# Name the vertical axis: beside it, or on a terminal of characters above it.
vertical(text, term) = term ne 'dumb' ? sprintf("set ylabel '%s'", text) : sprintf( \
    "set tmargin 4; set title offset 0, 1; set label '%s' at graph 0, graph 1.08 left", text)

# The unit in which numbers up to `largest` are short, and its word before what is counted.
unit(largest) = largest >= 1e9 ? 1e9 : largest >= 1e6 ? 1e6 : largest >= 1e3 ? 1e3 : 1.0
unit_word(unit) = unit == 1e9 ? 'billion ' : unit == 1e6 ? 'million ' : \
    unit == 1e3 ? 'thousand ' : ''

# The cell of a line of a table as text and as a number, and the number of a column by its name in
# the line of names. gnuplot 5.4 converts "2.e-06", but not "2e-06".
cell(line, column) = column == 1 ? line[1:strstrt(line . "\t", "\t") - 1] : \
    cell(line[strstrt(line, "\t") + 1:*], column - 1)
to_real(text) = real(strstrt(text, '.') || !strstrt(text, 'e') ? text : \
    text[1:strstrt(text, 'e') - 1] . '.' . text[strstrt(text, 'e'):*])
number(line, column) = to_real(cell(line, column))
named(names, name) = sum [k=1:words(names)] (word(names, k) eq name ? k : 0)
plural(n) = n == 1 ? '' : 's'

# A command of several plots grows by one.
more(command, what) = (command eq '' ? 'plot ' : command . ', ') . what

# Bandwidth by size, and bytes over seconds by latency + bytes / bandwidth, times `factor`.
by_size = "set format x '%.0b %BB'; set logscale x 2; set xtics rotate by -35; " . \
    "set format y '%.0s %cB/s'; set logscale y 10; set samples 200"
line(factor, latency, bandwidth, from, to, x) = \
    x >= from && x <= to ? factor * x / (latency + x / bandwidth) : NaN
