/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The setup of a kernel on an adaptive mesh: triangles near a circle that grows are divided
 * into four, level by level. A std::map finds the middle of an edge that a neighbour has
 * made; each vertex has a std::vector of the triangles around it, which grows. Then values
 * are smoothed over the neighbours for some steps, and the next circle begins with the coarse
 * mesh.
 *   usage: refinement SCALE    SCALE is of the number of circles
 */
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace
{

constexpr int coarse = 16, levels = 8, smoothings = 5;
constexpr double circles_at_scale_1 = 60;

using point = std::array<double, 2>;
using triangle = std::array<int, 3>;

struct mesh {
	std::vector<point> points;
	std::vector<triangle> triangles;
	std::map<std::pair<int, int>, int> middles;
};

mesh begin()
{
	mesh all;

	for (int y = 0; y <= coarse; y++)
		for (int x = 0; x <= coarse; x++)
			all.points.push_back({x / double(coarse), y / double(coarse)});
	for (int y = 0; y < coarse; y++)
		for (int x = 0; x < coarse; x++) {
			int a = y * (coarse + 1) + x, b = a + coarse + 1;

			all.triangles.push_back({a, a + 1, b});
			all.triangles.push_back({b, a + 1, b + 1});
		}
	return all;
}

int middle(mesh &all, int a, int b)
{
	auto [at, is_new] = all.middles.try_emplace(std::minmax(a, b), int(all.points.size()));

	if (is_new) {
		point p = all.points[a], q = all.points[b];

		all.points.push_back({(p[0] + q[0]) / 2, (p[1] + q[1]) / 2});
	}
	return at->second;
}

bool is_cut(const mesh &all, const triangle &one, double radius)
{
	int inside = 0;

	for (int corner : one)
		inside += std::hypot(all.points[corner][0] - 0.5, all.points[corner][1] - 0.5) <
			  radius;
	return inside % 3;
}

void divide(mesh &all, const triangle &one, std::vector<triangle> &into)
{
	auto [a, b, c] = one;
	int ab = middle(all, a, b), bc = middle(all, b, c), ca = middle(all, c, a);

	for (triangle part : {triangle{a, ab, ca}, triangle{ab, b, bc}, triangle{ca, bc, c},
			      triangle{ab, bc, ca}})
		into.push_back(part);
}

void refine(mesh &all, double radius)
{
	std::vector<triangle> finer;

	for (size_t i = 0; i < all.triangles.size(); i++) {
		triangle one = all.triangles[i];

		if (is_cut(all, one, radius))
			divide(all, one, finer);
		else
			finer.push_back(one);
	}
	all.triangles = std::move(finer);
}

double smooth(const mesh &all)
{
	std::vector<std::vector<int>> around(all.points.size());
	std::vector<double> values(all.points.size()), next;

	for (size_t i = 0; i < all.triangles.size(); i++)
		for (int corner : all.triangles[i])
			around[corner].push_back(int(i));
	for (size_t i = 0; i < values.size(); i++)
		values[i] = all.points[i][0];
	for (int step = 0; step < smoothings; step++) {
		next.assign(values.size(), 0);
		for (size_t i = 0; i < values.size(); i++)
			for (int one : around[i])
				for (int corner : all.triangles[one])
					next[i] += values[corner] / (3.0 * around[i].size());
		values.swap(next);
	}
	return values[values.size() / 2];
}

} // namespace

int main(int argc, char **argv)
{
	double scale = argc == 2 ? std::atof(argv[1]) : 0, total = 0;

	if (!(scale > 0)) {
		std::fputs("usage: refinement SCALE\n", stderr);
		return 2;
	}
	for (int n = std::max(1, int(scale * circles_at_scale_1)), i = 0; i < n; i++) {
		double radius = 0.2 + 0.25 * i / n;
		mesh all = begin();

		for (int level = 0; level < levels; level++) {
			refine(all, radius);
			total += smooth(all);
		}
	}
	std::printf("sum %.6g\n", total);
	return std::fflush(stdout) ? 1 : 0;
}
