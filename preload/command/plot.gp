# SPDX-License-Identifier: BSD-2-Clause
# Draws the table that `pinalloc report --plot=FILE.dat` writes. By hand, with a copy of this:
#     gnuplot -c plot.gp FILE.dat svg > FILE.svg        (or txt, for a plot made of characters)
#
# The table has data sets, with two empty lines between them and tabs between columns; memory in bytes, time in
# seconds since the job began:
#   0  one line: number of lines drawn (those of ranks), how long it all took, title
#   1  of each line drawn: time and amount of its peak, number of the line
#   2  of each rank that was killed: time and amount when it was last seen, and the name of the first
#   3  of each phase: when it began first and ended last, its number, its name
#   4… of each line drawn: its name in the second column; then time, in use, heap

table = ARG1
is_text = ARG2 eq "txt"
set encoding utf8
set datafile separator "\t"
stats table index 0 using (lines = column(1), end = column(2), title = strcol(3), 1) nooutput
stats table index 2 using 1 nooutput name "killed"
stats table index 3 using 1 nooutput name "phases"
# The largest heap, and the largest peak.
most = 0
stats table index 1 using 2 nooutput name "peak"
if (peak_max > most) { most = peak_max }
do for [i = 0:lines - 1] {
	stats table index 4 + i using 3 every ::1 nooutput name "heap"
	if (heap_max > most) { most = heap_max }
}
names = "KiB MiB GiB TiB"
power(bytes) = bytes < 1024**2 ? 1 : bytes < 1024**3 ? 2 : bytes < 1024**4 ? 3 : 4
unit = 1024.0**power(most)
# The time in units of which there are two at least.
array lengths[5] = [86400, 3600, 60, 1, 0.001]
part = 1
while (part < 5 && end < 2 * lengths[part]) { part = part + 1 }
second = 1.0 / lengths[part]
axis = word('days hours minutes seconds milliseconds', part).' since the start of the job'
# Of a name what has room in its phase.
cut(name, width) = width < 5 ? '' : strlen(name) > width ? substr(name, 1, width - 2).'..' : name
label(began, ended, name) = cut(name, int((ended - began) / end * (is_text ? 55 : 90)))

if (is_text) {
	set terminal dumb mono size 100,26 noenhanced
	set border 3
	set tics nomirror
	set key outside right top Left reverse samplen 2
} else {
	set terminal svg size 1280,520 noenhanced font 'Helvetica,15' background '#ffffff'
	set border 3 lc rgb '#555555'
	set tics nomirror out textcolor rgb '#222222'
	set grid ytics lt 1 lw 0.6 lc rgb '#dddddd'
	set lmargin at screen 0.09
	set rmargin at screen 0.64
	set key at screen 0.655, graph 1 left top Left reverse spacing 1.25 samplen 2
	# Names of ranks that were killed can be read on top of lines.
	set style textbox opaque noborder fillcolor rgb '#ffffff' margins 0.5,0.5
}
set title title offset 0,0.3 font ',17'
set xlabel axis
set ylabel 'memory, '.word(names, power(most))
if (is_text) { set format y '%g '.word(names, power(most)) }
set xrange [0:end > 0 ? end * second : 1]
# Names of phases are above the lines.
top = (most > 0 ? most / unit : 1) * (phases_records > 1 ? 1.2 : 1.05)
set yrange [0:top]

# Colour-blind people can tell these apart (after Okabe and Ito).
array colours[8] = [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x882255, 0x333333]
colour(i) = colours[i + 1]
light(colour) = colour + 0x8c000000
shade(i) = colours[int(i) % 8 + 1] + 0xe4000000
row(i) = top * (0.97 - 0.05 * (int(i) % 3))
# Ranks that have the same have lines beside each other.
shift = is_text ? 0 : 0.005 * top
beside(i, n) = n / unit + shift * (i - (lines - 1) / 2.0)

# An empty data set would be an error in some releases of gnuplot.
dead = killed_records > 1 ? 'killed or _exit, when last seen' : ''
shaded = phases_records > 1 ? 'phase, first to last' : ''

if (is_text) {
	plot for [i = 0:lines - 1] table index 4 + i using ($1 * second):($3 / unit) with steps lt 0 notitle, \
		for [i = 0:lines - 1] '' index 4 + i using ($1 * second):($2 / unit) with steps lt i + 1 title columnheader(2), \
		'' index 1 using ($1 * second):($2 / unit) with points pt 'O' title 'peak in use', \
		'' index 2 using ($1 * second):($2 / unit) with points pt 'X' title dead, \
		'' index 3 using ($1 * second):(row($3)):(label($1, $2, strcol(4)) eq '' ? '' : '|'.label($1, $2, strcol(4))) with labels left notitle, \
		keyentry with lines lt 0 title 'heap, never returned'
} else {
	plot table index 3 using (($1 + $2) / 2 * second):(top / 2):($1 * second):($2 * second):(0):(top):(shade($3)) \
			with boxxyerror fs solid noborder fc rgb variable notitle, \
		for [i = 0:lines - 1] '' index 4 + i using ($1 * second):(beside(i, $3)) with steps lw 1.4 lc rgb light(colour(i)) notitle, \
		for [i = 0:lines - 1] '' index 4 + i using ($1 * second):(beside(i, $2)) with steps lw 2 lc rgb colour(i) \
			title columnheader(2), \
		'' index 1 using ($1 * second):(beside($3, $2)):(colour($3)) with points pt 7 ps 0.7 lc rgb variable notitle, \
		keyentry with points pt 7 ps 0.7 lc rgb '#555555' title 'peak in use (as above)', \
		keyentry with lines lw 1.4 lc rgb '#bbbbbb' title 'heap, never returned', \
		keyentry with boxes fs solid noborder fc rgb '#e8eef2' title shaded, \
		'' index 3 using ($1 * second):(row($3)):(label($1, $2, strcol(4))) with labels left offset 0.3,0 font ',12' notitle, \
		'' index 2 using ($1 * second):($2 / unit) with points pt 2 ps 1.1 lw 2.5 lc rgb '#000000' title dead, \
		'' index 2 using ($1 * second):($2 / unit):(strcol(3)) with labels boxed offset 0,1 font ',11' notitle
}
