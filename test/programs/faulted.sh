# SPDX-License-Identifier: BSD-2-Clause
# What shells do: words, functions, subshells, pipes, here-documents and files. For test/faults.
for i in {1..800}; do words+=("word $i"); done
count() { echo "${#words[@]} ${words[*]:700:3}"; }
count
total=$(count | tr a-z A-Z)
(words=(); count)
echo "$total" | sort
cat <<< "${words[799]}"
echo "${words[@]}" > words && read -r first < words && echo "${#first}"
