#include "runtime/model/gguf.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

#include "tests/runtime/model/gguf_builder.hpp"

using namespace mooncaf;
using testing::as_bytes_of;
using testing::f32_bytes;
using testing::gguf_builder;
using testing::sample_file;

namespace {

/// Parses a copy of exactly the right size on the heap, so that the address sanitizer sees a read past the
/// end.
result<gguf_file> parse(const std::string& text, std::vector<std::byte>& memory) {
  const auto bytes = as_bytes_of(text);
  memory.assign(bytes.begin(), bytes.end());
  return parse_gguf(memory, "file.gguf");
}

/// Touches everything a reader could reach.
std::size_t read_everything(const gguf_file& file) {
  std::size_t sum = 0;
  for (const auto& t : file.tensors()) {
    sum += t.name.size() + t.rows() + t.cols();
    for (const auto b : t.data) sum += static_cast<std::size_t>(b);
  }
  for (const auto* key : {"general.architecture", "llama.block_count", "eps", "tokens", "types", "flag"}) {
    sum += file.text(key).value_or("").size() + file.unsigned_integer(key).value_or(0);
    sum += file.number(key).has_value() ? 1 : 0;
    sum += file.boolean(key).value_or(false) ? 1 : 0;
    sum += file.floats(key).value_or(std::vector<float>{}).size();
    sum += file.integers(key).value_or(std::vector<std::int64_t>{}).size();
    if (const auto strings = file.strings(key))
      for (const auto s : *strings) sum += s.size();
  }
  return sum;
}

/// Expects a refusal that names the file and contains `part`.
void refused(const gguf_builder& b, ec code, std::string_view part) {
  std::vector<std::byte> memory;
  const auto file = parse(b.bytes(), memory);
  REQUIRE_FALSE(file.has_value());
  INFO(to_string(file.error()));
  CHECK(file.error() == code);
  CHECK(file.error().detail.starts_with("file.gguf: "));
  CHECK(file.error().detail.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a well-formed file gives back its metadata and tensors") {
  for (const auto version : {2u, 3u}) {
    auto b = sample_file();
    b.version = version;
    const auto text = b.bytes();
    const auto file = parse_gguf(as_bytes_of(text), "file.gguf");
    REQUIRE(file.has_value());
    CHECK(file->version() == version);
    CHECK(file->text("general.architecture").value() == "llama");
    CHECK(file->unsigned_integer("llama.block_count").value() == 2);
    CHECK(file->number("eps").value() == doctest::Approx(1e-5));
    CHECK(file->boolean("flag").value());
    REQUIRE(file->strings("tokens").value().size() == 3);
    CHECK(file->strings("tokens").value()[1].empty());
    CHECK(file->strings("tokens").value()[2] == "\xC4\xA0t");
    CHECK(file->integers("types").value() == std::vector<std::int64_t>{3, -1, 1});
    CHECK(file->floats("types").value() == std::vector<float>{3, -1, 1});
    REQUIRE(file->tensors().size() == 2);
    const auto* matrix = file->tensor("matrix");
    REQUIRE(matrix != nullptr);
    CHECK(matrix->rows() == 2);
    CHECK(matrix->cols() == 32);
    CHECK(matrix->type == ggml_type::q8_0);
    CHECK(matrix->data.size() == 68);
    CHECK(static_cast<char>(matrix->data.front()) == 'x');
    CHECK(file->tensor("vector")->data.size() == 12);
    CHECK(file->tensor("absent") == nullptr);
  }
}

TEST_CASE("accessors refuse a wrong type, and fall back only for an absent key") {
  const auto text = sample_file().scalar("minus", gguf_type::i32, std::int32_t{-5}).bytes();
  const auto file = parse_gguf(as_bytes_of(text), "file.gguf");
  REQUIRE(file.has_value());
  CHECK(file->text("absent").error() == ec::not_found);
  CHECK(file->unsigned_integer("absent", 7).value() == 7);
  CHECK(file->text("absent", "x").value() == "x");
  CHECK(file->number("absent", 0.5).value() == 0.5);
  CHECK(file->boolean("absent", true).value());
  CHECK(file->unsigned_integer("general.architecture", 7).error() == ec::corrupt);
  CHECK(file->text("eps").error() == ec::corrupt);
  CHECK(file->strings("types").error() == ec::corrupt);
  CHECK(file->integers("tokens").error() == ec::corrupt);
  CHECK(file->floats("eps").error() == ec::corrupt);
  CHECK(file->boolean("eps").error() == ec::corrupt);
  CHECK(file->unsigned_integer("minus").error() == ec::corrupt);
  CHECK(file->number("minus").value() == -5);
  CHECK(file->unsigned_integer("minus").error().detail.find("minus") != std::string::npos);
}

TEST_CASE("a file that lies about itself is refused with the place and the reason") {
  SUBCASE("magic") {
    auto b = sample_file();
    b.magic = 0x12345678;
    refused(b, ec::corrupt, "at byte 0: not a GGUF file");
  }
  SUBCASE("version") {
    auto b = sample_file();
    for (const auto v : {0u, 1u, 4u, 0xFFFFFFFFu}) {
      b.version = v;
      refused(b, ec::unsupported, "at byte 4: GGUF version " + std::to_string(v));
    }
    b.version = 0x03000000;
    refused(b, ec::unsupported, "big-endian");
  }
  SUBCASE("counts") {
    for (const auto n : {std::uint64_t{100}, std::uint64_t{1} << 32, (std::uint64_t{1} << 63) + 5}) {
      auto b = sample_file();
      b.claimed_tensors = n;
      refused(b, ec::corrupt, n > 100 ? "tensor count" : "");
      b = sample_file();
      b.claimed_keys = n;
      refused(b, ec::corrupt, n > 100 ? "metadata count" : "");
    }
  }
  SUBCASE("duplicates") {
    refused(sample_file().f32("eps", 1), ec::corrupt, "metadata 'eps' appears twice");
    refused(sample_file().tensor("vector", {1}, ggml_type::f32, f32_bytes({1})), ec::corrupt,
            "tensor 'vector' appears twice");
  }
  SUBCASE("value types") {
    refused(sample_file().raw("k", gguf_type{13}, ""), ec::corrupt, "metadata 'k' has unknown value type 13");
  }
  SUBCASE("array lengths") {
    for (const auto n : {std::uint64_t{1} << 20, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
      for (const auto element : {gguf_type::u8, gguf_type::f64, gguf_type::string, gguf_type::array}) {
        std::string value;
        gguf_builder::put(value, element);
        gguf_builder::put(value, n);
        refused(sample_file().raw("k", gguf_type::array, value), ec::corrupt, "metadata 'k' claims");
      }
    }
  }
  SUBCASE("string lengths") {
    std::string value;
    gguf_builder::put(value, ~std::uint64_t{0});
    refused(sample_file().raw("k", gguf_type::string, value), ec::corrupt,
            "claims 18446744073709551615 bytes");
  }
  SUBCASE("nesting") {
    std::string value;
    for (int i = 0; i < 100000; ++i) {
      gguf_builder::put(value, gguf_type::array);
      gguf_builder::put(value, std::uint64_t{1});
    }
    refused(sample_file().raw("k", gguf_type::array, value), ec::corrupt, "nests arrays deeper than 4");
  }
  SUBCASE("tensor shapes") {
    refused(sample_file().entry("t", {}, 0, 0), ec::corrupt, "has 0 dimensions");
    refused(sample_file().entry("t", {1, 1, 1, 1, 1}, 0, 0), ec::corrupt, "has 5 dimensions");
    refused(sample_file().entry("t", {4, 0}, 0, 0), ec::corrupt, "dimension 1 = 0");
    refused(sample_file().entry("t", {1ull << 32, 1ull << 32}, 0, 0), ec::corrupt, "overflows");
    refused(sample_file().entry("t", {1ull << 62, 1}, 0, 0), ec::corrupt, "the data section has only");
    refused(sample_file().entry("t", {33}, 8, 0), ec::corrupt, "not a multiple of 32");
    refused(sample_file().entry("t", {32}, 11, 0), ec::unsupported, "element type 11");
  }
  SUBCASE("tensor places") {
    refused(sample_file().entry("t", {1}, 0, 33), ec::corrupt, "offset 33, not a multiple of 32");
    refused(sample_file().entry("t", {1}, 0, 1ull << 40), ec::corrupt, "the data section has only");
    refused(sample_file().entry("t", {1}, 0, ~std::uint64_t{31}), ec::corrupt, "the data section has only");
    refused(sample_file().entry("t", {1}, 0, 0), ec::corrupt, "overlap");
  }
  SUBCASE("alignment") {
    refused(sample_file().u32("general.alignment", 0), ec::corrupt, "general.alignment is 0");
    refused(sample_file().u32("general.alignment", 48), ec::corrupt, "general.alignment is 48");
    refused(sample_file().scalar("general.alignment", gguf_type::u64, ~std::uint64_t{0}), ec::corrupt,
            "alignment");
    refused(sample_file().text("general.alignment", "32"), ec::corrupt, "general.alignment");
  }
}

TEST_CASE("names from the file cannot break an error text") {
  std::vector<std::byte> memory;
  const auto file = parse(sample_file().entry("bad\nname\x1b[31m", {0}, 0, 0).bytes(), memory);
  REQUIRE_FALSE(file.has_value());
  CHECK(file.error().detail.find('\n') == std::string::npos);
  CHECK(file.error().detail.find('\x1b') == std::string::npos);
}

TEST_CASE("a file cut off anywhere is refused") {
  const auto whole = sample_file().bytes();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::vector<std::byte> memory;
    const auto file = parse(whole.substr(0, n), memory);
    CAPTURE(n);
    REQUIRE_FALSE(file.has_value());
  }
}

TEST_CASE("a flipped bit anywhere gives an error or a file that can be read in full") {
  const auto whole = sample_file().bytes();
  std::size_t accepted = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    std::vector<std::byte> memory;
    if (const auto file = parse(text, memory)) accepted += read_everything(*file) > 0 ? 1 : 0;
  }
  CHECK(accepted > 0);
}

TEST_CASE("random damage gives an error or a file that can be read in full") {
  const std::uint32_t seed = 20240611;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto whole = sample_file().bytes();
  constexpr std::uint64_t nasty[] = {0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1ull << 31, 1ull << 62, 1ull << 63, ~0ull};
  for (int round = 0; round < 20000; ++round) {
    auto text = whole;
    for (auto damage = 1 + random() % 4; damage > 0; --damage) {
      const auto at = random() % text.size();
      const auto value = random() % 2 == 0 ? nasty[random() % std::size(nasty)] : random();
      const auto size = std::min<std::size_t>(std::size_t{1} << random() % 4, text.size() - at);
      std::memcpy(text.data() + at, &value, size);
    }
    std::vector<std::byte> memory;
    if (const auto file = parse(text, memory)) (void)read_everything(*file);
  }
}
