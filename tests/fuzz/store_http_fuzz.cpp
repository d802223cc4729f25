// What a client of the store's HTTP endpoint may write where keys, numbers and ranges stand: a range that is followed
// lies inside the value and is not empty.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "actors/store/object_request.hpp"

using namespace mooncaf::store;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (const auto key = percent_decoded(text); key && key->size() > size) std::abort();
  query_number(text, "replicas");
  query_text(text, "group");
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{100}, ~std::uint64_t{0}}) {
    const auto range = parse_range(text, bytes);
    if (range && (range->begin >= range->end || range->end > bytes)) std::abort();
  }
  return 0;
}
