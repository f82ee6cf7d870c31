#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc report --plot` draws the memory of a job's ranks over time, or says why it
# cannot and leaves existing files as they were.
load helper
load job

# drawn FILE.svg: counts its curves (a heap and live memory for each rank), how many of their
# segments are neither horizontal nor vertical, its peak marks and its texts, but for those of the axes, sorted.
drawn() {
	python3 - "$1" <<- 'END'
		import re, sys, xml.etree.ElementTree as tree
		svg = "{http://www.w3.org/2000/svg}"
		root = tree.parse(sys.argv[1]).getroot()
		assert root.tag == svg + "svg"
		plots = [g for g in root.iter(svg + "g") if g.get("id", "").startswith("gnuplot_plot_")]
		paths = [p for g in plots for p in g.iter(svg + "path")]
		print("curves", sum(p.get("d").count(",") > 2 and "Z" not in p.get("d") for p in paths))
		lines = [line for p in paths if "Z" not in p.get("d") for line in p.get("d").split("M")]
		points = [re.findall(r"([\d.]+),([\d.]+)", line) for line in lines]
		print("slanted", sum(a[0] != b[0] and a[1] != b[1] for c in points for a, b in zip(c, c[1:])))
		print("areas", "yes" if any(True for g in plots for p in g.iter(svg + "polygon")) else "none")
		print("peaks", sum(1 for g in plots for p in g.iter(svg + "use")) - 1)
		texts = ["".join(t.itertext()).strip() for t in root.iter(svg + "text")]
		print(*["text " + text for text in sorted(texts) if not re.fullmatch(r"[\d.]*", text)], sep="\n")
	END
}

# plotted KIND: what is drawn of job/ is in plot.KIND; fails as `pinalloc report` does.
plotted() {
	"$pinalloc" report --json --plot "plot.$1" job > /dev/null
}

@test "--plot draws what ranks have over time, or says why it cannot" {
	transcript plot
}
