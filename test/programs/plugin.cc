// SPDX-License-Identifier: BSD-2-Clause
// A C++ library for host: asks for more than there is.
#include <cstdint>
#include <new>

static volatile std::size_t huge = SIZE_MAX / 4;

extern "C" const char *attempt()
{
	try {
		delete[] new char[huge];
	} catch (const std::bad_alloc &) {
		return "caught bad_alloc";
	}
	return "nothing thrown";
}
