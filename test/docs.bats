#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# What the documents say of the options is what the library says.

setup() {
	load helper
	help=$(PINALLOC_HELP=1 preloaded /bin/true)
}

@test "README holds the table that PINALLOC_HELP prints, word for word" {
	table=$(sed -n '/^    PINALLOC_LOG/,/^$/s/^    //p' "$top_srcdir/README")
	diff <(echo "$table") <(sed 's/ *$//' <<< "$help")
}

@test "pinalloc(7) holds every option with its values, default and sentence" {
	page=$(sed 's/^\.It Ev //' "$top_srcdir/preload/pinalloc.7" | tr '\n' ' ')
	while read -r name values && read -r sentence; do
		echo "looking for: $name $values. $sentence"
		[[ $page == *"$name $values. $sentence"* ]]
	done <<< "$help"
}

@test "every row of options.def is in the table, every public function in pinalloc(3)" {
	local names
	names=$(sed -n 's/^OPTION(.*"\([A-Z_]*\)", .*/\1/p' "$top_srcdir/allocator/options.def")
	[ "$(wc -w <<< "$names")" -eq "$(grep -c '^OPTION(' "$top_srcdir/allocator/options.def")" ]
	for name in $names; do
		grep -q "^$name " <<< "$help"
	done
	names=$(grep -o 'pinalloc_[a-z]*(' "$top_srcdir/preload/pinalloc.h" | sort -u)
	[ "$(wc -w <<< "$names")" -ge 6 ]
	for name in $names; do
		grep -q "${name%(}" "$top_srcdir/preload/pinalloc.3"
	done
}

@test "pinalloc(1) holds every option of the command's help, and every key of its JSON" {
	local options keys page=$top_srcdir/preload/pinalloc.1
	# Those of run that are variables have theirs in pinalloc(7).
	options=$({
		"$top_builddir/pinalloc" report --help
		"$top_builddir/pinalloc" check --help
		"$top_builddir/pinalloc" run --help | sed '/--log=/,$d'
	} | tr ' ' '\n' | grep '^--[a-z]')
	[ "$(wc -w <<< "$options")" -ge 8 ]
	for option in $options; do
		option=${option%%=*}
		echo "looking for: $option"
		grep -qE "Fl Fl ${option#--}( |\$)" "$page"
	done
	keys=$(sed -n 's/.*set([a-z]*, "\([a-z_]*\)",.*/\1/p' "$top_srcdir/preload/command/json.c"
		sed -n 's/^\t\[PIN_.*{"[a-z]*", "\([a-z_]*\)".*/\1/p' "$top_srcdir/preload/command/load.c")
	[ "$(wc -w <<< "$keys")" -ge 40 ]
	for key in $keys; do
		echo "looking for: $key"
		grep -qE "^\.Li (.* )?$key( |\$)|^\.It Li (.* )?$key( |\$)" "$page"
	done
}

@test "the pages are sound" {
	run mandoc -T lint -W warning "$top_srcdir"/preload/pinalloc.[137]
	echo "$output"
	[ "$status" -eq 0 ]
}
