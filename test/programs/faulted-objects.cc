// SPDX-License-Identifier: BSD-2-Clause
//
// Containers, strings, exceptions and threads of C++, of which any may be without memory: what
// throws std::bad_alloc is told and done without. For test/faults.
#include "test/programs/faulted.h"

#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace
{

// Static, and of each thread that uses one. Without memory there is no text.
struct Kept {
	char *text = static_cast<char *>(given(std::malloc(1000), "malloc"));
	Kept()
	{
		if (text)
			std::memset(text, 'k', 1000);
	}
	~Kept()
	{
		if (text && text[999] != 'k')
			wrong("contents of an object that is kept to the end");
		std::free(text);
	}
} of_program;
thread_local Kept of_thread;

std::string nested(int depth)
{
	std::string local(depth * 10, 'x');

	if (!depth)
		throw std::runtime_error("a text that is long enough to be allocated as well");
	return local + nested(depth - 1);
}

void build()
{
	std::map<std::string, std::vector<int>> index;
	std::vector<std::unique_ptr<char[]>> large;

	for (int i = 0; i < 3000; i++)
		index["a key that is long enough to be allocated, " + std::to_string(i % 97)]
			.push_back(i);
	for (std::size_t size = 1000; size < (std::size_t)20 << 20; size *= 3) {
		large.push_back(std::make_unique<char[]>(size));
		large.back()[size - 1] = 'z';
	}
	std::size_t sum = 0;
	for (const auto &entry : index)
		sum += entry.second.size();
	for (const auto &block : large)
		sum += (unsigned char)block[0];
	if (sum != 3000)
		wrong("contents of containers");
}

void without_exceptions()
{
	for (std::size_t size = 10; size < (std::size_t)40 << 20; size *= 5) {
		char *block = new (std::nothrow) char[size];

		if (!block)
			refused("new (std::nothrow)", ENOMEM);
		else
			block[size - 1] = 'z';
		delete[] block;
	}
}

void work()
{
	try {
		build();
	} catch (const std::bad_alloc &) {
		refused("new", ENOMEM);
	}
	try {
		nested(20);
	} catch (const std::exception &) {
	}
	of_thread.text += 0;
	without_exceptions();
}

void work_in_threads()
{
	std::vector<std::thread> threads;

	try {
		for (int i = 0; i < 3; i++)
			threads.emplace_back(work);
	} catch (const std::bad_alloc &) {
		refused("std::thread", ENOMEM);
	} catch (const std::system_error &error) {
		refused("std::thread", error.code().value());
	}
	for (auto &thread : threads)
		thread.join();
}

} // namespace

int main()
{
	work_in_threads();
	work();
	return say_done("done");
}
