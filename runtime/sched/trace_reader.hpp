#pragma once
// Reads traces in Mooncake's format: one JSON object per line.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// One request of a trace.
struct trace_record {
  std::int64_t timestamp_ms = 0;   ///< since the trace began
  std::uint32_t input_tokens = 0;  ///< at least 1
  std::uint32_t output_tokens = 0;
  std::vector<std::uint64_t>
      hash_ids;  ///< one per block of the prompt, the last may be partial; equal ids, equal prefix
};

struct trace_options {
  std::string name = "trace";  ///< in messages: `name:line: reason`
  std::uint32_t block_tokens =
      512;  ///< a prompt has ceil(input_length / block_tokens) hash ids; 0: not checked
  std::uint32_t max_tokens = 1u << 30;  ///< longest input or output
  bool require_sorted = true;           ///< timestamps must not go back
};

/// Parses `text`, line by line; `sink` gets each record and may move out of it. Blank lines are skipped,
/// unknown fields ignored. Needs no more memory than one record.
/// @returns records read.
/// @error  `ec::corrupt` at the first bad line: `name:line: reason` (also for a compressed file). Records
/// before it have
///         been delivered.
result<std::size_t> read_trace(std::string_view text, const trace_options& options,
                               const std::function<void(trace_record&&)>& sink);

/// The whole trace at once. @error as above.
result<std::vector<trace_record>> read_trace(std::string_view text, const trace_options& options = {});

/// Reads from anything that comes in pieces, e.g. standard input.
class trace_reader {
 public:
  trace_reader(trace_options options, std::function<void(trace_record&&)> sink);

  /// The next piece; lines may span pieces. @error as above; nothing more is accepted after one.
  result<void> feed(std::string_view piece);
  /// No more pieces come. @returns records read.
  result<std::size_t> finish();

 private:
  result<void> line(std::string_view text);

  trace_options options_;
  std::function<void(trace_record&&)> sink_;
  std::string pending_;  // begin of a line whose end has not come
  std::size_t line_number_ = 0;
  std::size_t records_ = 0;
  std::int64_t latest_ms_ = 0;
};

}  // namespace mooncaf
