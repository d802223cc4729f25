#include "runtime/sched/block_hash.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <set>

using namespace mooncaf;

namespace {

std::vector<std::int32_t> numbers(std::size_t n, std::int32_t first = 0) {
  std::vector<std::int32_t> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

const kv_layout layout{30, 3, 64, 64, kv_dtype::f16};

}  // namespace

TEST_CASE("only full blocks have keys") {
  const auto root = root_key(hash_text128("model"), layout);
  CHECK(block_keys({}, 4, root).empty());
  CHECK(block_keys(numbers(3), 4, root).empty());
  CHECK(block_keys(numbers(4), 4, root).size() == 1);
  CHECK(block_keys(numbers(11), 4, root).size() == 2);
}

TEST_CASE("equal keys mean equal prefixes: a changed token changes its block and all behind it") {
  const auto root = root_key(hash_text128("model"), layout);
  const auto one = numbers(64);
  auto other = one;
  other[17] = -1;
  const auto a = block_keys(one, 8, root);
  const auto b = block_keys(other, 8, root);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK((a[i] == b[i]) == (i < 2));
  // The same tokens elsewhere in a prompt are another block.
  auto twice = numbers(8);
  twice.insert(twice.end(), twice.begin(), twice.begin() + 8);
  const auto c = block_keys(twice, 8, root);
  CHECK(c[0] != c[1]);
}

TEST_CASE("models, layouts and tenants never share a key") {
  auto wide = layout;
  wide.n_kv_heads = 4;
  auto coarse = layout;
  coarse.block_tokens = 128;
  const auto model = hash_text128("model");
  const std::set<hash128> roots{root_key(model, layout),
                                root_key(hash_text128("other"), layout),
                                root_key(model, wide),
                                root_key(model, coarse),
                                root_key(model, layout, "alice"),
                                root_key(model, layout, "bob"),
                                root_key(model, layout, "alice|"),
                                root_key(model, layout, std::string_view{"\0", 1})};
  CHECK(roots.size() == 8);
  CHECK(root_key(model, layout, "alice") == root_key(model, layout, "alice"));
}
