#pragma once
// A small SSD tier, its blocks, and damage to its files.

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/rocksdb_tier.hpp"
#include "tests/storage/block_maker.hpp"

namespace mooncaf::test {

inline constexpr std::size_t block_bytes = 20000;  // no multiple of a page
inline constexpr hash128 ours{1, 2};

inline rocksdb_tier_options options_for(const std::string& path) {
  rocksdb_tier_options o;
  o.path = path;
  o.block_bytes = block_bytes;
  o.fingerprint = ours;
  o.capacity_blocks = 10000;
  o.flush_bytes = 256 * 1024;
  return o;
}

using index_t = std::map<block_key, ssd_block>;

inline std::unique_ptr<rocksdb_tier> open(const rocksdb_tier_options& o, index_t* index = nullptr) {
  auto tier = rocksdb_tier::open(o, [&](const ssd_block& b) {
    if (index) (*index)[b.name.key] = b;
  });
  REQUIRE_MESSAGE(tier, to_string(tier.error()));
  return std::move(*tier);
}

inline result<void> put(rocksdb_tier& tier, const std::vector<block_name>& names) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<put_item> items;
  for (const auto& n : names) bytes.push_back(bytes_of(n.key, block_bytes));
  for (std::size_t i = 0; i < names.size(); ++i)
    items.push_back({{names[i], checksum64(bytes[i])}, bytes[i]});
  return tier.put(items);
}

inline bool serves(rocksdb_tier& tier, const block_key& key) {
  std::vector<std::byte> into(block_bytes);
  if (!tier.get({key, into})) return false;
  CHECK(into == bytes_of(key, block_bytes));  // whatever is served must be right
  return true;
}

inline std::vector<block_name> chains(int count, int length) {
  std::vector<block_name> all;
  for (int c = 0; c < count; ++c)
    for (const auto& n : prompt(std::vector<int>(static_cast<std::size_t>(length), c + 1))) all.push_back(n);
  return all;
}

inline std::vector<std::string> files(const std::string& dir, const std::string& extension) {
  std::vector<std::string> found;
  for (const auto& f : std::filesystem::directory_iterator(dir))
    if (f.path().extension() == extension) found.push_back(f.path().string());
  return found;
}

inline void flip_bit(const std::string& file, std::size_t at) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(static_cast<std::streamoff>(at));
  char c = 0;
  f.get(c);
  f.seekp(static_cast<std::streamoff>(at));
  f.put(static_cast<char>(c ^ 4));
}

}  // namespace mooncaf::test
