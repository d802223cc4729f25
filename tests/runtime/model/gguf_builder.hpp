#pragma once
// Writes GGUF bytes for tests, well-formed or broken on purpose.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/ggml_type.hpp"
#include "runtime/model/gguf.hpp"

namespace mooncaf::testing {

class gguf_builder {
 public:
  std::uint32_t magic = 0x46554747;
  std::uint32_t version = 3;
  std::uint64_t claimed_tensors = ~std::uint64_t{0};  ///< all ones: the true count
  std::uint64_t claimed_keys = ~std::uint64_t{0};
  std::uint64_t alignment = 32;

  template <class T>
  static void put(std::string& out, T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    out.append(raw, sizeof value);
  }
  static void put_string(std::string& out, std::string_view text) {
    put(out, static_cast<std::uint64_t>(text.size()));
    out += text;
  }

  template <class T>
  gguf_builder& scalar(std::string_view key, gguf_type type, T value) {
    begin(key, type);
    put(metadata_, value);
    return *this;
  }
  gguf_builder& u32(std::string_view key, std::uint32_t v) { return scalar(key, gguf_type::u32, v); }
  gguf_builder& f32(std::string_view key, float v) { return scalar(key, gguf_type::f32, v); }
  gguf_builder& text(std::string_view key, std::string_view v) {
    begin(key, gguf_type::string);
    put_string(metadata_, v);
    return *this;
  }
  gguf_builder& strings(std::string_view key, std::initializer_list<std::string_view> v) {
    begin(key, gguf_type::array);
    put(metadata_, gguf_type::string);
    put(metadata_, static_cast<std::uint64_t>(v.size()));
    for (const auto s : v) put_string(metadata_, s);
    return *this;
  }
  template <class T>
  gguf_builder& numbers(std::string_view key, gguf_type type, std::initializer_list<T> v) {
    begin(key, gguf_type::array);
    put(metadata_, type);
    put(metadata_, static_cast<std::uint64_t>(v.size()));
    for (const auto x : v) put(metadata_, x);
    return *this;
  }
  /// A metadata entry whose value part is given byte by byte.
  gguf_builder& raw(std::string_view key, gguf_type type, std::string_view value) {
    begin(key, type);
    metadata_ += value;
    return *this;
  }

  gguf_builder& tensor(std::string_view name, std::initializer_list<std::uint64_t> dims, ggml_type type,
                       std::string_view data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    entry(name, dims, static_cast<std::uint32_t>(type), data_.size());
    data_ += data;
    return *this;
  }
  gguf_builder& entry(std::string_view name, std::initializer_list<std::uint64_t> dims, std::uint32_t type,
                      std::uint64_t offset) {
    ++n_tensors_;
    put_string(directory_, name);
    put(directory_, static_cast<std::uint32_t>(dims.size()));
    for (const auto d : dims) put(directory_, d);
    put(directory_, type);
    put(directory_, offset);
    return *this;
  }

  std::string bytes() const {
    std::string out;
    put(out, magic);
    put(out, version);
    put(out, claimed_tensors == ~std::uint64_t{0} ? n_tensors_ : claimed_tensors);
    put(out, claimed_keys == ~std::uint64_t{0} ? n_keys_ : claimed_keys);
    out += metadata_ + directory_;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  void begin(std::string_view key, gguf_type type) {
    ++n_keys_;
    put_string(metadata_, key);
    put(metadata_, type);
  }

  std::string metadata_, directory_, data_;
  std::uint64_t n_tensors_ = 0, n_keys_ = 0;
};

inline std::span<const std::byte> as_bytes_of(const std::string& text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// F32 tensor data.
inline std::string f32_bytes(std::initializer_list<float> values) {
  std::string out;
  for (const float v : values) gguf_builder::put(out, v);
  return out;
}

/// A small file with one of everything that models use.
inline gguf_builder sample_file() {
  gguf_builder b;
  b.text("general.architecture", "llama").u32("llama.block_count", 2).f32("eps", 1e-5f);
  b.strings("tokens", {"a", "", "\xC4\xA0t"}).numbers<std::int32_t>("types", gguf_type::i32, {3, -1, 1});
  b.scalar("flag", gguf_type::boolean, std::uint8_t{1});
  b.tensor("vector", {3}, ggml_type::f32, f32_bytes({1, 2, 3}));
  b.tensor("matrix", {32, 2}, ggml_type::q8_0, std::string(68, 'x'));
  return b;
}

}  // namespace mooncaf::testing
