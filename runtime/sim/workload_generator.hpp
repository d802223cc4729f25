#pragma once
// Workloads made up from a seed, so that a test or a plan needs no download.

#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

enum class workload_kind : std::uint8_t {
  chat,      ///< conversations: every turn repeats all before it, behind one of a few system prompts
  agent,     ///< tools and agents: long instructions that many share, a few steps each, short answers
  long_doc,  ///< questions about documents of 16k tokens and more, some asked several times
};

struct workload_options {
  workload_kind kind = workload_kind::chat;
  std::uint64_t requests = 10'000;
  double rate = 3;        ///< requests a second, on average
  double burstiness = 0;  ///< 0: Poisson; b > 0: arrivals in bursts of 1 + b requests on average
  double input_mean = 0;  ///< tokens; 0: the kind's own
  double output_mean = 0;
  std::uint32_t block_tokens = 512;
  std::uint32_t input_max = 131'072;
  std::uint64_t seed = 1;
};

/// Gives the requests one by one, sorted by time; memory follows the conversations that go on. The same
/// options give the same requests. Means are met within a few percent: a sample drawn first says how to scale
/// lengths.
/// @error `ec::invalid_argument` for a rate or a mean that makes no sense.
result<std::unique_ptr<trace_source>> generate(const workload_options& options);

/// One line of a trace file, without the line's end.
std::string to_json_line(const workload_record& r);

}  // namespace mooncaf::sim
