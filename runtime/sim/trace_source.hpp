#pragma once
// Where the requests of a simulation come from: a file, standard input, or memory, one at a time.

#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/trace_reader.hpp"

namespace mooncaf::sim {

/// A request of the workload. Hash ids name blocks of the trace.
using workload_record = trace_record;

class trace_source {
 public:
  virtual ~trace_source() = default;
  /// Puts the next request into `out`, whose memory is reused. @returns false at the end.
  /// @error  the reader's: `name:line: reason`.
  virtual result<bool> next(workload_record& out) = 0;
  /// How much of it has been given, 0 to 1; below 0 if its end is not known.
  virtual double share_given() const { return -1; }
  /// Tokens of a block of the requests so far; 0: not known (yet).
  virtual std::uint32_t block_tokens() const { return 0; }

  // ---- where requests follow from answers: times are the replay's, seconds ----
  /// Whether it must be told of every end; else the three below have no meaning.
  virtual bool follows_answers() const { return false; }
  /// When the next request comes, by the answers told so far; infinity while all wait for answers, and at the
  /// end.
  virtual double due_s() const { return std::numeric_limits<double>::infinity(); }
  /// The session of the turn that `next` gave last.
  virtual std::uint64_t session_given() const { return 0; }
  /// Its turn has been answered or refused. @param at_s  now.
  virtual void answered(std::uint64_t /*session*/, double /*at_s*/) {}
};

/// Replays records that the caller holds, `copies` times one after the other, with fresh block ids per copy.
/// @param records  outlives the source.
std::unique_ptr<trace_source> replay_of(const std::vector<workload_record>& records,
                                        std::uint32_t copies = 1);

/// The same prompt in blocks of `to` tokens. A block's id follows from its number and the id of the block of
/// `from` tokens that holds its last token, so that equal ids still mean equal prefixes; two prompts share
/// only blocks that they are known to share.
void reblock(workload_record& record, std::uint32_t from, std::uint32_t to);

/// Of the sizes that a trace may have, the one to take: `wanted` if it fits, Mooncake's 512, the least power
/// of two that fits. 0: none fits.
std::uint32_t likely_block_tokens(const block_range& possible, std::uint32_t wanted);

/// How a trace is read.
struct trace_format {
  std::uint32_t trace_block_tokens = 0;  ///< of a block in the file; 0: found out from its lengths
  std::uint32_t block_tokens = 0;        ///< of the blocks that are given out; 0: as in the file
};

/// Reads as it goes: memory holds the requests of one piece of the file.
/// @param path  "-" is standard input.
/// @error `ec::io_error` if it cannot be opened; while reading `ec::corrupt` with file and line.
result<std::unique_ptr<trace_source>> open_trace(const std::string& path, const trace_format& format = {});

/// All of it. @error as above.
result<std::vector<workload_record>> load_trace(const std::string& path, const trace_format& format = {});

}  // namespace mooncaf::sim
