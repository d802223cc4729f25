// Any bytes are a trace to somebody: reading ends in an error with file, line and reason, or in records that
// keep what the format promises; and it does not matter in which pieces the bytes come.

#include <cstdlib>

#include "runtime/sched/trace_reader.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  trace_options options;
  options.name = "t";
  std::int64_t latest = 0;
  std::size_t seen = 0;
  const auto whole = read_trace(text, options, [&](trace_record&& r) {
    ++seen;
    if (r.timestamp_ms < latest || r.input_tokens == 0) std::abort();
    if (r.hash_ids.size() != (std::uint64_t{r.input_tokens} + 511) / 512) std::abort();
    latest = r.timestamp_ms;
  });
  if (whole && *whole != seen) std::abort();
  if (!whole && !whole.error().detail.starts_with("t:")) std::abort();

  std::size_t again = 0;
  trace_reader pieces{options, [&](trace_record&&) { ++again; }};
  bool good = true;
  const std::size_t step = size == 0 ? 1 : 1 + data[0] % 7;
  for (std::size_t at = 0; at < size && good; at += step)
    good = pieces.feed(text.substr(at, step)).has_value();
  if (good) good = pieces.finish().has_value();
  if (good != whole.has_value() || again != seen) std::abort();
  return 0;
}
