#include "storage/block_record.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace mooncaf {
namespace {

static_assert(std::endian::native == std::endian::little, "block records are written as they lie in memory");
constexpr char magic[8] = {'m', 'o', 'o', 'n', 'c', 'a', 'f', 'B'};

template <class T>
void store(std::byte* at, const T& value) noexcept {
  std::memcpy(at, &value, sizeof value);
}
template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
void store_key(std::byte* at, const hash128& key) noexcept {
  store(at, key.high);
  store(at + 8, key.low);
}
hash128 load_key(const std::byte* at) noexcept {
  return {load<std::uint64_t>(at), load<std::uint64_t>(at + 8)};
}

}  // namespace

std::array<std::byte, block_record::size_bytes> block_record::encode() const noexcept {
  std::array<std::byte, size_bytes> bytes{};
  std::byte* at = bytes.data();
  std::memcpy(at, magic, sizeof magic);
  store(at + 8, packed ? version_packed : version);
  store(at + 12, name.depth);
  store_key(at + 16, fingerprint);
  store_key(at + 32, name.key);
  store_key(at + 48, name.parent);
  store(at + 64, length_bytes);
  store(at + 72, checksum);
  store(at + 80, written);
  store(at + 88, part);
  store(at + 92, parts);
  store(at + 96, checksum64({at, 96}));
  return bytes;
}

result<block_record> block_record::decode(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  if (bytes.size() >= 12 && std::memcmp(at, magic, sizeof magic) != 0)
    return fail(ec::corrupt, "block header has a wrong magic number");
  // Before its length and checksum, which other versions have elsewhere.
  const auto found = bytes.size() < 12 ? version : load<std::uint32_t>(at + 8);
  if (found != version && found != version_packed) {
    return fail(ec::incompatible, "block header has version " + std::to_string(found) +
                                      ", this build reads " + std::to_string(version) + " and " +
                                      std::to_string(version_packed));
  }
  if (bytes.size() < size_bytes) {
    return fail(ec::corrupt, "block header has " + std::to_string(bytes.size()) + " of " +
                                 std::to_string(size_bytes) + " bytes");
  }
  if (load<std::uint64_t>(at + 96) != checksum64({at, 96})) {
    return fail(ec::corrupt, "block header fails its checksum");
  }
  block_record record;
  record.name.depth = load<std::uint32_t>(at + 12);
  record.fingerprint = load_key(at + 16);
  record.name.key = load_key(at + 32);
  record.name.parent = load_key(at + 48);
  record.length_bytes = load<std::uint64_t>(at + 64);
  record.checksum = load<std::uint64_t>(at + 72);
  record.written = load<std::uint64_t>(at + 80);
  record.part = load<std::uint32_t>(at + 88);
  record.parts = load<std::uint32_t>(at + 92);
  record.packed = found == version_packed;
  return record;
}

std::array<char, 16> encode_key(const block_key& key) noexcept {
  std::array<char, 16> bytes;
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(key.high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<char>(key.low >> (56 - 8 * i));
  }
  return bytes;
}

std::array<char, 18> encode_key(const block_key& key, std::uint32_t part) noexcept {
  std::array<char, 18> bytes;
  std::ranges::copy(encode_key(key), bytes.begin());
  bytes[16] = static_cast<char>(part >> 8);
  bytes[17] = static_cast<char>(part);
  return bytes;
}

}  // namespace mooncaf
