#pragma once
// Writing and reading plain values in little-endian byte order, with bounds.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace mooncaf {

static_assert(std::endian::native == std::endian::little,
              "wire formats are little-endian and written as they lie");

/// Appends values to a byte vector.
class byte_writer {
 public:
  explicit byte_writer(std::vector<std::byte>& out) : out_(out) {}

  template <class T>
  requires std::is_integral_v<T>
  void put(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), p, p + sizeof(T));
  }
  void put_bytes(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  /// Length (32 bits), then the bytes.
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span{text.data(), text.size()}));
  }

 private:
  std::vector<std::byte>& out_;
};

/// Takes values from a span. After a read past the end every value is zero and `ok()` is false.
class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> in) : in_(in) {}

  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return in_.size(); }

  template <class T>
  requires std::is_integral_v<T> T get() {
    T value{};
    if (const auto bytes = take(sizeof(T)); !bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> take(std::size_t n) {
    if (n > in_.size()) {
      ok_ = false;
      in_ = {};
      return {};
    }
    const auto part = in_.first(n);
    in_ = in_.subspan(n);
    return part;
  }
  std::string get_text() {
    const auto bytes = take(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> in_;
  bool ok_ = true;
};

}  // namespace mooncaf
