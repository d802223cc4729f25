#include "runtime/model/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

using namespace mooncaf;

namespace {

/// A file with this directory and so many bytes of data.
std::string file_of(const std::string& directory, std::size_t data = 32) {
  const std::uint64_t length = directory.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + directory + std::string(data, 'x');
}

result<safetensors_file> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span{bytes.data(), bytes.size()}), "m.safetensors");
}

void refused(const std::string& bytes, ec code, std::string_view part) {
  const auto file = parse(bytes);
  REQUIRE_FALSE(file.has_value());
  INFO(to_string(file.error()));
  CHECK(file.error() == code);
  CHECK(file.error().detail.starts_with("m.safetensors: "));
  CHECK(file.error().detail.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("tensors are views of the file's bytes") {
  const auto bytes = file_of(R"({"__metadata__": {"format": "pt"},
      "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
      "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})");
  const auto file = parse(bytes);
  REQUIRE(file.has_value());
  REQUIRE(file->tensors().size() == 2);
  const auto* b = file->tensor("b");
  REQUIRE(b != nullptr);
  CHECK(b->dtype == "BF16");
  CHECK(b->shape == std::vector<std::uint64_t>{2, 3});
  CHECK(reinterpret_cast<const char*>(b->data.data()) == bytes.data() + bytes.size() - 28);
  CHECK(b->data.size() == 12);
  CHECK(file->tensor("c") == nullptr);
}

TEST_CASE("a damaged file is refused with what is wrong where") {
  refused("short", ec::corrupt, "ends at byte 5");
  refused(std::string(8, '\xff'), ec::corrupt, "directory has 18446744073709551615 bytes, of a file of 8");
  refused(file_of("{\"a\": ["), ec::corrupt, "not JSON at byte 8");
  refused(file_of("[]"), ec::corrupt, "not a JSON object");
  const auto tensor = [](const std::string& fields) { return file_of("{\"a\": {" + fields + "}}"); };
  refused(tensor(R"("dtype": "F32", "shape": [1])"), ec::corrupt, "'a' lacks one of");
  refused(tensor(R"("dtype": "F4", "shape": [1], "data_offsets": [0, 1])"), ec::unsupported, "'F4'");
  refused(tensor(R"("dtype": "F32", "shape": [-1], "data_offsets": [0, 4])"), ec::corrupt, "no sane shape");
  refused(tensor(R"("dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0])"), ec::corrupt,
          "no sane shape");
  refused(tensor(R"("dtype": "F32", "shape": [9], "data_offsets": [0, 36])"), ec::corrupt,
          "lies at [0, 36) of 32 bytes");
  refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 4])"), ec::corrupt, "lies at [8, 4)");
  refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 4])"), ec::corrupt,
          "has 4 bytes, its shape asks for 8");
  refused(file_of(R"({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
                      "b": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]}})"),
          ec::corrupt, "'a' and 'b' overlap");
}

TEST_CASE("deep nesting and random damage end in an error or in a file, never worse") {
  CHECK_FALSE(parse(file_of("{\"a\": " + std::string(300'000, '['))).has_value());
  const auto good = file_of(R"({"a": {"dtype": "F16", "shape": [2, 4], "data_offsets": [0, 16]}})");
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    auto damaged = good;
    damaged[random() % (good.size() - 32)] = static_cast<char>(random());
    const auto file = parse(damaged);
    if (!file) continue;
    for (const auto& t : file->tensors()) {
      const auto* at = reinterpret_cast<const char*>(t.data.data());
      CHECK((t.data.empty() ||
             (at >= damaged.data() && at + t.data.size() <= damaged.data() + damaged.size())));
    }
  }
}
