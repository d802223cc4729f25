#include <doctest/doctest.h>

#include <set>
#include <unordered_set>

#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"

using namespace mooncaf;

TEST_CASE("a KV block of SmolLM2-135M takes 23,040 bytes per token") {
  const kv_layout layout{30, 3, 64, 64, kv_dtype::f16};
  CHECK(layout.bytes_per_token() == 23'040);
  CHECK(layout.block_bytes() == 64 * 23'040);
}

TEST_CASE("every row of a block has its own place and the places fill the block") {
  const kv_layout layout{3, 2, 8, 4, kv_dtype::f16};
  std::set<std::size_t> offsets;
  for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
    for (std::uint32_t head = 0; head < layout.n_kv_heads; ++head)
      for (const bool value : {false, true})
        for (std::uint32_t token = 0; token < layout.block_tokens; ++token)
          offsets.insert(layout.offset(layer, head, value, token));
  CHECK(offsets.size() * layout.row_bytes() == layout.block_bytes());
  CHECK(*offsets.begin() == 0);
  CHECK(*offsets.rbegin() == layout.block_bytes() - layout.row_bytes());
  CHECK(layout.offset(1, 0, false, 0) == layout.layer_bytes());
  // Values that are read out of their keys take no room.
  const kv_layout shared{3, 2, 8, 4, kv_dtype::f16, true};
  CHECK(2 * shared.block_bytes() == layout.block_bytes());
  CHECK(shared.offset(1, 1, true, 3) == shared.offset(1, 1, false, 3));
  CHECK(shared.offset(2, 1, true, 3) + shared.row_bytes() == shared.block_bytes());
  CHECK(to_string(shared) != to_string(layout));
}

TEST_CASE("a hash prints high word first and ids of different kinds do not compare") {
  CHECK(to_string(hash128{0x0123456789abcdefull, 0xfedcba9876543210ull}) ==
        "0123456789abcdeffedcba9876543210");
  CHECK_FALSE(std::is_convertible_v<request_id, pin_id>);
  CHECK(std::unordered_set<request_id>{request_id{1}, request_id{1}}.size() == 1);
}

TEST_CASE("an error carries its code and a detail to act on") {
  const result<int> r = fail(ec::corrupt, "model.gguf, offset 24");
  REQUIRE_FALSE(r);
  CHECK(r.error() == ec::corrupt);
  CHECK(to_string(r.error()) == "corrupt: model.gguf, offset 24");
}
