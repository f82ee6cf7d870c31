/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel of numerics with its setup, as finite elements have it: the matrix of a grid of
 * cubes is put together element by element, a std::map for each row, and turned into
 * vectors that grow; the maps are thrown away, and some steps of conjugate gradients follow.
 * Then the same on the next grid, which is larger.
 *   usage: assembly SCALE    SCALE is of the number of grids
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <vector>

namespace
{

constexpr int side_least = 10, side_most = 26, steps = 20;
constexpr double grids_at_scale_1 = 90;

using rows = std::vector<std::map<int, double>>;
using numbers = std::vector<double>;

struct matrix {
	std::vector<int> starts{0}, columns;
	numbers values;
};

int node(int side, int x, int y, int z)
{
	return (z * (side + 1) + y) * (side + 1) + x;
}

std::vector<int> corners(int side, int x, int y, int z)
{
	std::vector<int> nodes;

	for (int i = 0; i < 8; i++)
		nodes.push_back(node(side, x + (i & 1), y + (i >> 1 & 1), z + (i >> 2)));
	return nodes;
}

void add_element(rows &to, const std::vector<int> &nodes)
{
	for (int row : nodes)
		for (int column : nodes)
			to[row][column] += row == column ? 8.0 : -1.0;
}

rows assemble(int side)
{
	rows all(node(side, side, side, side) + 1);

	for (int z = 0; z < side; z++)
		for (int y = 0; y < side; y++)
			for (int x = 0; x < side; x++)
				add_element(all, corners(side, x, y, z));
	return all;
}

matrix compress(const rows &from)
{
	matrix all;

	for (const auto &row : from) {
		for (const auto &[column, value] : row) {
			all.columns.push_back(column);
			all.values.push_back(value);
		}
		all.starts.push_back(static_cast<int>(all.columns.size()));
	}
	return all;
}

numbers times(const matrix &a, const numbers &x)
{
	numbers y(x.size());

	for (size_t row = 0; row < x.size(); row++)
		for (int i = a.starts[row]; i < a.starts[row + 1]; i++)
			y[row] += a.values[i] * x[a.columns[i]];
	return y;
}

double dot(const numbers &a, const numbers &b)
{
	return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

numbers sum(const numbers &a, double factor, const numbers &b)
{
	numbers c(a);

	for (size_t i = 0; i < c.size(); i++)
		c[i] += factor * b[i];
	return c;
}

double solve(const matrix &a)
{
	numbers x(a.starts.size() - 1), rest(x.size(), 1.0), direction = rest;
	double square = dot(rest, rest);

	for (int step = 0; step < steps; step++) {
		numbers product = times(a, direction);
		double length = square / dot(direction, product), before = square;

		x = sum(x, length, direction);
		rest = sum(rest, -length, product);
		square = dot(rest, rest);
		direction = sum(rest, square / before, direction);
	}
	return std::sqrt(dot(x, x));
}

} // namespace

int main(int argc, char **argv)
{
	double scale = argc == 2 ? std::atof(argv[1]) : 0, total = 0;

	if (!(scale > 0)) {
		std::fputs("usage: assembly SCALE\n", stderr);
		return 2;
	}
	for (int n = std::max(1, static_cast<int>(scale * grids_at_scale_1)), i = 0; i < n; i++)
		total += solve(
			compress(assemble(side_least + i % (side_most - side_least + 1))));
	std::printf("norm %.6g\n", total);
	return std::fflush(stdout) ? 1 : 0;
}
