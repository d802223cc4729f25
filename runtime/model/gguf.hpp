#pragma once
// GGUF, the file format of llama.cpp: metadata, then a directory of tensors, then their bytes.
//
// The parser trusts nothing. Every count, length, offset, alignment and product is checked against the bytes
// that are there before anything is allocated for it, so a hostile file costs at most a small multiple of its
// own size. It copies no tensor: `gguf_file` is a set of views, usually into a memory-mapped file, and lives
// only as long as that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpu/ggml_type.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// Type tags of metadata values; numbers are the file format's own.
enum class gguf_type : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string_view to_string(gguf_type t) noexcept;

/// One metadata value, undecoded: `gguf_file`'s accessors turn it into C++ types.
struct gguf_value {
  gguf_type type = gguf_type::u8;
  gguf_type element = gguf_type::u8;  ///< of an array; otherwise equal to `type`
  std::uint64_t count = 1;            ///< elements of an array; otherwise 1
  std::span<const std::byte> data;    ///< numbers and booleans: little-endian, unaligned, count · size bytes
  std::vector<std::string_view> strings;  ///< a string, or the elements of an array of strings
};

/// One tensor of the directory.
struct gguf_tensor {
  std::string_view name;
  ggml_type type = ggml_type::f32;
  std::uint32_t n_dims = 1;
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  ///< dims[0] varies fastest: it is the row length
  std::span<const std::byte> data;

  std::size_t cols() const noexcept { return static_cast<std::size_t>(dims[0]); }
  /// All rows of all outer dimensions.
  std::size_t rows() const noexcept { return static_cast<std::size_t>(dims[1] * dims[2] * dims[3]); }
};

/// A parsed file. Views point into the bytes given to `parse_gguf`. Immutable, so any thread may read it.
class gguf_file {
 public:
  const std::string& name() const noexcept {
    return name_;
  }  ///< as given to `parse_gguf`; used in error texts
  std::uint32_t version() const noexcept { return version_; }
  std::span<const gguf_tensor> tensors() const noexcept { return tensors_; }
  const gguf_tensor* tensor(std::string_view name) const noexcept;  ///< null if absent

  bool has(std::string_view key) const noexcept { return find(key) != nullptr; }
  const gguf_value* find(std::string_view key) const noexcept;  ///< null if absent

  // Accessors. @error `ec::not_found` if the key is absent, `ec::corrupt` if its type or range does not fit;
  // the detail names file and key. The forms with `fallback` return it for an absent key, and still fail on a
  // wrong type.
  result<std::string_view> text(std::string_view key) const;
  result<std::uint64_t> unsigned_integer(std::string_view key) const;  ///< any integer type, not negative
  result<double> number(std::string_view key) const;                   ///< any integer or float type, finite
  result<bool> boolean(std::string_view key) const;
  result<std::span<const std::string_view>> strings(std::string_view key) const;  ///< array of strings
  result<std::vector<float>> floats(std::string_view key) const;                  ///< array of numbers
  result<std::vector<std::int64_t>> integers(std::string_view key) const;         ///< array of integers

  result<std::string_view> text(std::string_view key, std::string_view fallback) const;
  result<std::uint64_t> unsigned_integer(std::string_view key, std::uint64_t fallback) const;
  result<double> number(std::string_view key, double fallback) const;
  result<bool> boolean(std::string_view key, bool fallback) const;

 private:
  friend class gguf_parser;
  std::string name_;
  std::uint32_t version_ = 0;
  std::vector<gguf_tensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
  std::unordered_map<std::string_view, gguf_value> metadata_;
};

/// Parses versions 2 and 3, little-endian.
/// @param bytes  the whole file; must outlive the result and everything that keeps views of it.
/// @param name   path or label for error texts.
/// @param readable  only so many of them are there; what lies behind is not touched, and not missed where it is tensors.
/// @error `ec::corrupt` naming file, offset and what is wrong there; `ec::unsupported` for versions and
/// tensor types
///        that mooncaf does not read.
/// @cost O(metadata + directory); tensor bytes are not touched.
/// @source GGUF specification in the ggml project (docs/gguf.md).
result<gguf_file> parse_gguf(std::span<const std::byte> bytes, std::string_view name,
                             std::size_t readable = std::numeric_limits<std::size_t>::max());

}  // namespace mooncaf
