// Any bytes are a journal to somebody: reading ends in an error with file, offset and reason, or in records;
// and what it reads stays within memory that the bytes account for.

#include <cstdlib>

#include "runtime/sched/journal/reader.hpp"
#include "runtime/sched/journal/requests.hpp"

using namespace mooncaf;

namespace {

void read_all(std::string_view bytes) {
  journal::reader from{bytes, "j"};
  const auto options = from.begin();
  if (!options) {
    if (!options.error().detail.starts_with("j: offset ")) std::abort();
    return;
  }
  for (std::uint64_t last = 0;;) {
    const auto more = from.next([](auto& in, const auto&...) { static_cast<void>(in); });
    if (!more && !more.error().detail.starts_with("j: offset ")) std::abort();
    if (!more || !*more) break;
    if (from.offset() < last || from.offset() >= bytes.size()) std::abort();
    last = from.offset();
  }
  if (from.torn_bytes() > bytes.size()) std::abort();
  if (const auto trace = journal::requests_of(bytes, "j")) {
    for (const auto& r : trace->records) {
      if (r.timestamp_ms < 0 || r.hash_ids.size() > bytes.size() + 1) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  read_all(bytes);
  // As the records of a sound frame, which no mutation would find by itself.
  static const std::string begin = [] {
    std::string frames;
    journal::encoder{conductor_options{}, [&](std::string_view piece) {
                       frames += piece;
                       return true;
                     }};
    return frames;
  }();
  constexpr auto head = journal::magic.size() + 4;
  const auto payload = begin.substr(head + journal::frame_header_bytes) + std::string{bytes};
  auto file = begin.substr(0, head);
  const auto raw = [&](std::uint64_t v, int n) {
    for (int i = 0; i < n; ++i) file += static_cast<char>(v >> 8 * i & 0xFF);
  };
  raw(payload.size(), 4);
  raw(checksum64(std::as_bytes(std::span{payload})), 8);
  read_all(file += payload);
  return 0;
}
