# SPDX-License-Identifier: BSD-2-Clause
# Draws the table that `pinalloc report --plot=FILE.dat` writes. By hand, with a copy of this:
#     gnuplot -c plot.gp FILE.dat svg > FILE.svg        (or txt, for a plot made of characters)
#
# The table has data sets, with two empty lines between them and tabs between columns; memory in bytes:
#   0  one line: number of lines drawn (those of ranks), number of ranks in the bands (0: none), name
#      of the time axis, title
#   1  of each line drawn: time and amount of its peak, number of the line
#   2  of each rank that was killed: time and amount when it was last seen, and the name of the first
#   3  of each time: least, median and most in use, median and largest heap of the ranks that run then
#   4  limit of the node with the most in memory (-1: none), title and name of the limit; then, if it has several
#      processes, time since the job began and sums of what they have: in use, heap in memory, all in memory
#   5… of each line drawn: its name in the second column; then time, in use, heap

table = ARG1
is_text = ARG2 eq "txt"
set encoding utf8
set datafile separator "\t"
stats table index 0 using (lines = column(1), ranks = column(2), axis = strcol(3), title = strcol(4), 1) \
	nooutput
stats table index 2 using 1 nooutput name "killed"
# The largest heap, and the largest peak.
most = 0
stats table index 1 using 2 nooutput name "peak"
if (peak_max > most) { most = peak_max }
stats table index 3 using 6 nooutput name "bands"
if (bands_max > most) { most = bands_max }
do for [i = 0:lines - 1] {
	stats table index 5 + i using 3 every ::1 nooutput name "heap"
	if (heap_max > most) { most = heap_max }
}
stats table index 4 every ::::0 using (limit = column(1), sum_title = strcol(2), limit_name = strcol(3), 1) nooutput
stats table index 4 using 1 nooutput name "total"
is_sum = total_records > 1
if (is_sum) { stats table index 4 using 4 every ::1 nooutput name "total" }
names = "KiB MiB GiB TiB"
power(bytes) = bytes < 1024**2 ? 1 : bytes < 1024**3 ? 2 : bytes < 1024**4 ? 3 : 4
unit = 1024.0**power(most)

if (is_text) {
	set terminal dumb mono size 100,26 * (1 + is_sum) noenhanced
	set border 3
	set tics nomirror
	set key outside right top Left reverse samplen 2
} else {
	set terminal svg size 1280,520 * (1 + is_sum) noenhanced font 'Helvetica,15' background '#ffffff'
	set border 3 lc rgb '#555555'
	set tics nomirror out textcolor rgb '#222222'
	set grid ytics lt 1 lw 0.6 lc rgb '#dddddd'
	set lmargin at screen 0.08
	set rmargin at screen 0.64
	set key at screen 0.655, graph 1 left top Left reverse spacing 1.25 samplen 2
	# Names of ranks that were killed can be read on top of lines.
	set style textbox opaque noborder fillcolor rgb '#ffffff' margins 0.5,0.5
}
if (is_sum) { set multiplot layout 2, 1 }
set title title offset 0,0.3 font ',17'
set xlabel axis
set ylabel 'memory, '.word(names, power(most))
if (is_text) { set format y '%g '.word(names, power(most)) }
set xrange [0:*] noextend
set yrange [0:most > 0 ? most / unit * 1.05 : 1]

# Colour-blind people can tell these apart (after Okabe and Ito). The bands have the first.
array colours[9] = [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x882255, 0x333333, 0]
colour(i) = colours[i + 1 + (ranks > 0)]
light(colour) = colour + 0x8c000000

# An empty data set would be an error in some releases of gnuplot.
dead = killed_records > 1 ? 'killed or _exit, when last seen' : ''
if (ranks > 0) { set key title 'of the ranks that run at the time:' left }

if (is_text && ranks > 0) {
	plot table index 3 using 1:($6 / unit) with steps lt 0 title 'largest heap', \
		'' index 3 using 1:($4 / unit) with steps lt 2 title 'in use: most', \
		'' index 3 using 1:($3 / unit) with steps lt 3 title 'in use: median', \
		'' index 3 using 1:($2 / unit) with steps lt 4 title 'in use: least', \
		for [i = 0:lines - 1] '' index 5 + i using 1:($2 / unit) with steps lt i + 1 title columnheader(2), \
		'' index 1 using 1:($2 / unit) with points pt 'O' title 'peak in use', \
		'' index 2 using 1:($2 / unit) with points pt 'X' title dead
}
if (is_text && ranks == 0) {
	plot for [i = 0:lines - 1] table index 5 + i using 1:($3 / unit) with steps lt 0 notitle, \
		for [i = 0:lines - 1] '' index 5 + i using 1:($2 / unit) with steps lt i + 1 title columnheader(2), \
		'' index 1 using 1:($2 / unit) with points pt 'O' title 'peak in use', \
		'' index 2 using 1:($2 / unit) with points pt 'X' title dead, \
		keyentry with lines lt 0 title 'heap, never returned'
}
if (!is_text && ranks > 0) {
	plot table index 3 using 1:($2 / unit):($4 / unit) with filledcurves fc rgb 0x0072b2 + 0xcc000000 \
			title 'in use, least to most', \
		'' index 3 using 1:($6 / unit) with steps lw 1.4 lc rgb '#777777' title 'heap, largest', \
		'' index 3 using 1:($5 / unit) with steps lw 1.4 lc rgb '#bbbbbb' title 'heap, median', \
		'' index 3 using 1:($3 / unit) with steps lw 2 lc rgb 0x0072b2 title 'in use, median', \
		for [i = 0:lines - 1] '' index 5 + i using 1:($2 / unit) with steps lw 2 lc rgb colour(i) \
			title columnheader(2), \
		'' index 1 using 1:($2 / unit):(colour($3)) with points pt 7 ps 0.7 lc rgb variable notitle, \
		keyentry with points pt 7 ps 0.7 lc rgb '#555555' title 'peak in use (as above)', \
		'' index 2 using 1:($2 / unit) with points pt 2 ps 1.1 lw 2.5 lc rgb '#000000' title dead, \
		'' index 2 using 1:($2 / unit):(strcol(3)) with labels boxed offset 0,1 font ',11' notitle
}
if (!is_text && ranks == 0) {
	plot for [i = 0:lines - 1] table index 5 + i using 1:($3 / unit) with steps lw 1.4 lc rgb light(colour(i)) notitle, \
		for [i = 0:lines - 1] '' index 5 + i using 1:($2 / unit) with steps lw 2 lc rgb colour(i) \
			title columnheader(2), \
		'' index 1 using 1:($2 / unit):(colour($3)) with points pt 7 ps 0.7 lc rgb variable notitle, \
		keyentry with points pt 7 ps 0.7 lc rgb '#555555' title 'peak in use (as above)', \
		keyentry with lines lw 1.4 lc rgb '#bbbbbb' title 'heap, never returned', \
		'' index 2 using 1:($2 / unit) with points pt 2 ps 1.1 lw 2.5 lc rgb '#000000' title dead, \
		'' index 2 using 1:($2 / unit):(strcol(3)) with labels boxed offset 0,1 font ',11' notitle
}

# A limit that is far away would make the sum flat.
if (is_sum) {
	unit = 1024.0**power(total_max)
	set title sum_title
	set key notitle
	set xlabel 'seconds since the start of the job'
	set ylabel 'memory, '.word(names, power(total_max))
	if (is_text) { set format y '%g '.word(names, power(total_max)) }
	is_near = limit > 0 && limit < 3 * total_max
	set yrange [0:(is_near && limit > total_max ? limit : total_max) / unit * 1.05]
	limit_title = limit > 0 ? (is_near ? '' : 'above: ').limit_name : ''
	if (is_text) {
		plot table index 4 using 1:($4 / unit) every ::1 with steps lt 0 title 'in memory, at most', \
			'' index 4 using 1:($3 / unit) every ::1 with steps lt 2 title 'heap in memory', \
			'' index 4 using 1:($2 / unit) every ::1 with steps lt 1 title 'in use', \
			is_near ? limit / unit : NaN with lines lt 3 title limit_title
	} else {
		plot table index 4 using 1:($4 / unit) every ::1 with steps lw 1.4 lc rgb '#bbbbbb' title 'in memory, at most', \
			'' index 4 using 1:($3 / unit) every ::1 with steps lw 1.4 lc rgb '#777777' title 'heap in memory', \
			'' index 4 using 1:($2 / unit) every ::1 with steps lw 2 lc rgb colours[1] title 'in use', \
			is_near ? limit / unit : NaN with lines lw 1.4 dt 2 lc rgb '#d55e00' title limit_title
	}
	unset multiplot
}
