// Any bytes are a journal to somebody: reading ends in an error with file, offset and reason, or in records;
// and what it reads stays within memory that the bytes account for.

#include <cstdlib>

#include "runtime/sched/journal/reader.hpp"
#include "runtime/sched/journal/requests.hpp"
#include "runtime/sched/journal/worker_replay.hpp"

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

void read_as_worker(std::string_view bytes) {
  std::vector<journal::worker_line> lines;
  const auto done = journal::replay_worker(bytes, "j", &lines);
  if (!done && !done.error().detail.starts_with("j: offset ")) std::abort();
  if (done && done->torn_bytes > bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  read_all(bytes);
  // As the records of a sound frame, which no mutation would find by itself.
  static const std::string begin = [] {
    std::string frames;
    journal::encoder{{}, {}, [&](std::string_view piece, bool last) {
                       if (!last) frames += piece;
                       return journal::written::whole;
                     }};
    return frames;
  }();
  constexpr auto head = journal::file_header_bytes;
  const auto payload = begin.substr(head + journal::frame_header_bytes) + std::string{bytes};
  journal::frame_writer frames;
  auto file = begin.substr(0, head) + frames.next(payload, 1);
  read_all(file);
  // … and with a frame that is not where it belongs.
  static_cast<void>(frames.next(payload, 1));
  read_all(file += frames.next(payload, 1));
  // … and as the records of a worker.
  read_as_worker(bytes);
  std::string worker{journal::worker_magic};
  worker += begin.substr(worker.size(), head - worker.size());
  journal::frame_writer of_worker;
  read_as_worker(worker += of_worker.next(bytes, 1));
  return 0;
}
