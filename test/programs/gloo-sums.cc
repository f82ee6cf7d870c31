// SPDX-License-Identifier: BSD-2-Clause
// usage: gloo-sums RANK DIRECTORY
// One of two ranks, which meet in that directory: sums of vectors that are allocated anew in
// every round, over verbs. Prints "wrong N", of sums that are.
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

static const int n_ranks = 2, rounds = 20;

static int wrong_in_round(const std::shared_ptr<gloo::Context> &context, int round,
			  gloo::BarrierAllToAll &barrier)
{
	std::vector<float> values(static_cast<size_t>(round) * 10000,
				  static_cast<float>(context->rank + round));
	gloo::AllreduceRingChunked<float> sum(context, {values.data()},
					      static_cast<int>(values.size()));
	int wrong = 0;

	sum.run();
	for (float value : values)
		wrong += value != static_cast<float>(n_ranks * round + 1);
	// The other one may still be reading.
	barrier.run();
	return wrong;
}

int main(int argc, char **argv)
{
	gloo::transport::ibverbs::attr where;
	int wrong = 0;

	if (argc != 3)
		return 2;
	where.name = "rxe0";
	where.port = 1;
	where.index = 1;
	auto device = gloo::transport::ibverbs::CreateDevice(where);
	gloo::rendezvous::FileStore directory(argv[2]);
	auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), n_ranks);
	context->connectFullMesh(directory, device);
	gloo::BarrierAllToAll barrier(context);
	for (int round = 1; round <= rounds; round++)
		wrong += wrong_in_round(context, round, barrier);
	printf("wrong %d\n", wrong);
	return wrong != 0;
}
