// SPDX-License-Identifier: BSD-2-Clause
//
// A C++ program of size: containers, strings, regular expressions, exceptions,
// threads and static objects, whose destructors speak last. Prints what it found.
#include <algorithm>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace
{

struct Speaker {
	std::string text;
	explicit Speaker(const std::string &name) : text("goodbye from " + name)
	{
		std::cout << "hello from " << name << '\n';
	}
	~Speaker()
	{
		std::cout << text << '\n';
	}
};

Speaker first("the first static object, whose name is long enough to be allocated");
thread_local Speaker own("a thread's own object, made when it is used and not before that");

std::size_t words()
{
	std::map<std::string, std::vector<int>> index;
	std::unordered_map<int, std::unique_ptr<std::string>> names;
	std::ostringstream text;

	for (int i = 0; i < 20000; i++) {
		index["key " + std::to_string(i % 997)].push_back(i);
		names[i] = std::make_unique<std::string>(i % 50, 'n');
		text << i << ' ';
	}
	std::size_t sum = text.str().size();
	for (const auto &entry : index)
		sum += std::accumulate(entry.second.begin(), entry.second.end(),
				       entry.first.size());
	for (int i = 0; i < 20000; i += 2)
		names.erase(i);
	for (const auto &entry : names)
		sum += entry.second->size();
	return sum;
}

std::string matches()
{
	const std::regex pattern("([a-z]+)=([0-9]+)");
	std::string text = "alpha=1, beta=22; gamma=333", found;

	for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
		found += (*it)[2].str() + "/" + (*it)[1].str() + " ";
	return found;
}

std::string nested(int depth)
{
	std::list<std::string> local(depth, std::string(depth * 10, 'x'));

	try {
		if (!depth)
			throw std::out_of_range("at the bottom");
		return nested(depth - 1);
	} catch (const std::exception &e) {
		throw std::runtime_error(std::string(e.what()) + " " +
					 std::to_string(local.size()));
	}
}

} // namespace

int main()
{
	std::vector<std::future<std::size_t>> parts;

	for (int i = 0; i < 4; i++)
		parts.push_back(std::async(std::launch::async, words));
	for (auto &part : parts)
		std::cout << part.get() << '\n';
	std::cout << matches() << own.text.size() << '\n';
	auto failing = std::async(std::launch::async, nested, 20);
	try {
		failing.get();
	} catch (const std::runtime_error &e) {
		std::cout << e.what() << '\n';
	}
	return 0;
}
