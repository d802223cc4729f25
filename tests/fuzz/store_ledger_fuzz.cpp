// Everything that a directory may tell the holder of a segment: journal frames, each with its length before
// it. Whatever they say, what the holder then announces is taken by the next directory: in order, nothing
// over something else.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "storage/objects/segment/segment_ledger.hpp"
#include "storage/objects/table/object_table.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const time_point now{std::chrono::hours(1)};
  segment_ledger ledger;
  ledger.begin(7);
  byte_reader in{std::as_bytes(std::span{data, size})};
  while (in.ok() && in.left() > 0) ledger.apply(in.take(in.get<std::uint16_t>()), now);
  object_table table{{}};
  if (!table.remount(7, "segment", "host", ~std::uint64_t{0} >> 1)) std::abort();
  for (const auto& part : ledger.announcement(now)) {
    byte_reader from{part};
    from.get<std::uint32_t>();
    from.get<std::uint8_t>();
    for (auto n = from.get<std::uint32_t>(); n > 0; --n) {
      auto record = store_wire::get_record(from);
      if (!from.ok()) std::abort();
      static_cast<void>(table.recover(7, std::move(record), now));  // keys may be too long, places outside
    }
    if (from.left() != 0) std::abort();
  }
  if (!table.consistent()) std::abort();
  table.end_recovery(now);
  if (!table.consistent()) std::abort();
  return 0;
}
