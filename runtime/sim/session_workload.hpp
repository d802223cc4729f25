#pragma once
// Workloads as people describe them: conversations that go on when the last turn has been answered and
// thought about.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// TOML, every key with its default:
///
///   [workload]
///   requests = 3000           # in all
///   requests_per_s = 1        # turns a second on the whole: conversations begin at random (open loop)
///   users = 0                 # above 0: so many conversations at any time, a new one when one ends (closed)
///   turns = 1                 # of a conversation, on average
///   think_s = 30              # from an answer to the next turn, on average
///   system_prompts = 1        # to choose from
///   system_tokens = 0         # of each
///   input_tokens = 1000       # that a turn adds to the conversation: mean and standard deviation
///   input_spread = 0
///   output_tokens = 300       # of an answer, likewise
///   output_spread = 0
///   input_max = 131072        # tokens of a prompt; a conversation that would grow longer ends
///   daily = "0.3 0.2 1 0.8"   # requests_per_s times these, at even distances through a day, straight
///                             # between; only without users; empty: always the same
///   day_s = 86400             # how long a day is
struct workload_description {
  std::uint64_t requests = 3000;
  double requests_per_s = 1;
  std::uint32_t users = 0;
  double turns = 1, think_s = 30;
  std::uint32_t system_prompts = 1, system_tokens = 0;
  double input_tokens = 1000, input_spread = 0;
  double output_tokens = 300, output_spread = 0;
  std::uint32_t input_max = 131'072;
  std::vector<double> daily;
  double day_s = 86'400;
};

/// @error `ec::invalid_argument`, "FILE:LINE: …".
result<workload_description> parse_workload(std::string_view text, std::string_view file);
/// @error As above; `ec::io_error` if the file cannot be read.
result<workload_description> load_workload(const std::string& path);
/// TOML that `parse_workload` reads back.
std::string to_toml(const workload_description& d);

struct session_options {
  std::uint32_t block_tokens = 512;
  double load = 1;  ///< times the conversations a second, or the users; thinking takes its time
  std::uint64_t seed = 1;
  /// 0: turns follow answers, as `answered` tells them. Else `answered` is not called: an answer takes so
  /// many seconds per token, which makes a trace of it.
  double token_s = 0;
};

/// Gives the requests in order of time. Lengths are lognormal, pauses exponential, the number of turns
/// geometric; system prompts are chosen alike. The same options and answers give the same requests.
std::unique_ptr<trace_source> play_sessions(const workload_description& d, const session_options& options);

/// A trace as a description.
struct workload_fit {
  workload_description description;
  std::uint64_t conversations = 0;
};
/// A turn goes on from the request whose full blocks it begins with; text that the first turns of several
/// conversations begin with is a system prompt. The trace does not say when answers ended.
/// @param token_s  that an answer is taken to have needed per token. @param records  not empty.
workload_fit fit_workload(const std::vector<workload_record>& records, std::uint32_t block_tokens,
                          double token_s);

}  // namespace mooncaf::sim
