#pragma once
// Reads traces in Mooncake's format: one JSON object per line.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/service_share.hpp"

namespace mooncaf {

/// One request of a trace.
struct trace_record {
  std::int64_t timestamp_ms = 0;   ///< since the trace began
  std::uint32_t input_tokens = 0;  ///< at least 1
  std::uint32_t output_tokens = 0;
  std::vector<std::uint64_t>
      hash_ids;           ///< one per block of the prompt, the last may be partial; equal ids, equal prefix
  service_share share{};  ///< of its tenant: `"tenant": 7, "share": 2`, both optional
  // What a file does not say:
  std::uint32_t max_tokens = 0;  ///< that it asks for; 0: not known
  std::optional<std::uint8_t> priority{};
};

struct trace_options {
  std::string name = "trace";  ///< in messages: `name:line: reason`
  /// A prompt has ceil(input_length / block_tokens) hash ids; 0: any one size that fits every line.
  std::uint32_t block_tokens = 512;
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

/// Sizes in tokens that the blocks of a trace may have, by its prompts' lengths and how many ids they have.
struct block_range {
  std::uint64_t least = 1, most = ~std::uint64_t{0};
  bool holds(std::uint64_t size) const noexcept { return size >= least && size <= most; }
};

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

  /// Sizes of a block that the lines so far leave open, whatever `block_tokens` was asked for.
  const block_range& possible_blocks() const noexcept { return possible_; }
  /// From the next line on, prompts must have blocks of this size.
  void expect_blocks(std::uint32_t tokens) noexcept { options_.block_tokens = tokens; }

 private:
  result<void> line(std::string_view text);
  std::string narrow(const trace_record& r);

  trace_options options_;
  std::function<void(trace_record&&)> sink_;
  std::string pending_;  // begin of a line that has not ended yet
  std::size_t line_number_ = 0;
  std::size_t records_ = 0;
  std::int64_t latest_ms_ = 0;
  block_range possible_;
};

}  // namespace mooncaf
