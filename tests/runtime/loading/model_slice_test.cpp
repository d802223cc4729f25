// A part of a model's files: what is read of them, and what a process makes of a host that has no more.

#include "runtime/loading/model_slice.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "gpu/host/host_device.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/model/gguf_source.hpp"
#include "runtime/model/hf_source.hpp"
#include "storage/file_slice.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/unwrap.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
namespace fs = std::filesystem;

namespace {

const std::string data = std::string(MOONCAF_TEST_DATA) + "/model/";

struct loose_file {
  std::string name;
  std::vector<std::byte> bytes;
};
using loose_files = std::vector<loose_file>;

std::vector<std::byte> bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> bytes(text.size());
  std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

loose_files read_model(const std::string& path) {
  if (!fs::is_directory(path)) return {{"", bytes_of(path)}};
  loose_files files;
  for (const auto& entry : fs::directory_iterator(path))
    files.push_back({entry.path().filename().string(), bytes_of(entry.path())});
  return files;
}

std::vector<model_file> views_of(const loose_files& files) {
  std::vector<model_file> views;
  for (const auto& f : files) views.push_back({f.name, f.bytes});
  return views;
}

/// Copies what is wished for until nothing more is. @returns the files as they are then, noise where nothing came
loose_files fetched(const loose_files& whole, const model_use& use, file_slice& slice) {
  auto copy = whole;
  std::mt19937 random{7};
  for (auto& f : copy)
    for (auto& b : f.bytes) b = static_cast<std::byte>(random());
  const auto bring = [&](const file_range& r) {
    std::copy_n(whole[r.file].bytes.begin() + static_cast<std::ptrdiff_t>(r.offset), r.bytes,
                copy[r.file].bytes.begin() + static_cast<std::ptrdiff_t>(r.offset));
  };
  for (const auto& f : whole) slice.add_file(f.name, f.bytes.size());
  for (int round = 0; round < 20; ++round) {
    const auto wish = unwrap(
        wish_of(views_of(copy), "m", std::span{&use, 1}, [&](const file_range& r) { return slice.has(r); }));
    bool missing = false;
    for (const auto& r : wish.ranges) {
      missing |= !slice.has(r);
      bring(r);
      slice.add(r);
    }
    if (missing) continue;
    for (const auto& r : wish.samples) bring(r);
    return copy;
  }
  FAIL("it wants more and more");
  return copy;
}

/// Notes all bytes that it is given, and gives them to the host.
class noting_device final : public device {
 public:
  explicit noting_device(device& behind) : behind_(behind) {}
  device_info info() const override { return behind_.info(); }
  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> bytes) override {
    given_.push_back(to_string(hash_bytes128(bytes)));
    return behind_.load_weight(type, rows, cols, bytes);
  }
  result<std::unique_ptr<weight>> load_table(ggml_type type, std::size_t rows, std::size_t cols,
                                             std::span<const std::byte> bytes) override {
    given_.push_back(to_string(hash_bytes128(bytes)));
    return behind_.load_table(type, rows, cols, bytes);
  }
  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override {
    auto made = behind_.allocate(bytes);
    if (made) vectors_.emplace_back(reinterpret_cast<const std::byte*>((*made)->data()), bytes);
    return made;
  }
  std::unique_ptr<compute_queue> make_queue(int priority) override { return behind_.make_queue(priority); }
  result<void> pin(std::span<std::byte> memory, std::shared_ptr<const void> owner) override {
    return behind_.pin(memory, std::move(owner));
  }
  std::unique_ptr<copy_queue> make_copy_queue() override { return behind_.make_copy_queue(); }

  /// @pre what was loaded is still there
  std::vector<std::string> given() const {
    auto all = given_;
    for (const auto& v : vectors_) all.push_back(to_string(hash_bytes128(v)));
    return all;
  }

 private:
  device& behind_;
  std::vector<std::string> given_;
  std::vector<std::span<const std::byte>> vectors_;
};

struct loaded_t {
  std::string fingerprint;
  std::vector<std::string> given;
};

/// What a process of this use makes of the files.
loaded_t load(const loose_files& files, const model_use& use) {
  const auto host = make_host_device({.threads = 1, .exact = true});
  noting_device noted{*host};
  const auto with = [&](const model_source& source) -> loaded_t {
    if (!use.weights) return {to_string(unwrap(model::identify(source)).fingerprint), {}};
    const auto parts = unwrap(parts_of(unwrap(source.config()), use.share, use.devices));
    std::vector<std::shared_ptr<const model>> nets;
    for (const auto& [layers, share] : parts)
      nets.push_back(unwrap(model::load(noted, source, {}, layers, share)));
    return {to_string(nets.front()->fingerprint()), noted.given()};
  };
  if (files.front().name.empty()) {
    const auto parsed = unwrap(parse_gguf(files.front().bytes, "m"));
    return with(gguf_source(parsed));
  }
  const auto source = unwrap(hf_source::open("m", [&](const std::string& name) -> result<owned_bytes> {
    const auto found = std::ranges::find(files, name, &loose_file::name);
    if (found == files.end()) return fail(ec::not_found, name);
    return owned_bytes{found->bytes, {}};
  }));
  return with(*source);
}

std::vector<model_use> uses_of(const std::string& model) {
  std::vector<model_use> uses{{.whole = false}, {true, {0, 1, 1, 0}, 1, false}};
  if (model == "hf-gptq" || model == "hf-fp8") return uses;  // one layer
  for (std::uint32_t stage = 0; stage < 2; ++stage) uses.push_back({true, {stage, 2, 1, 0}, 1, false});
  for (std::uint32_t rank = 1; rank <= 2; ++rank) {
    uses.push_back({true, {0, 1, 2, rank}, 1, false});
    uses.push_back({true, {1, 2, 2, rank}, 1, false});
    if (model.find("mixtral") != std::string::npos || model.find("moe") != std::string::npos)
      uses.push_back({true, {0, 1, 2, rank, true}, 1, false});
  }
  return uses;
}

}  // namespace

TEST_CASE("each stage and rank gets from a slice, to the byte, what it gets from the whole model") {
  std::size_t slices = 0, smaller = 0;
  for (const auto* name : {"tiny-llama.gguf", "tiny-qwen2.gguf", "tiny-qwen3.gguf", "served.gguf", "hf-llama",
                           "hf-qwen2", "hf-mixtral", "hf-qwen3moe", "hf-phi3", "hf-gemma3", "hf-deepseek2",
                           "hf-deepseek3", "hf-gpt-oss", "hf-gptq", "hf-fp8"}) {
    const auto whole = read_model(data + name);
    std::size_t all = 0;
    for (const auto& f : whole) all += f.bytes.size();
    for (const auto& use : uses_of(name)) {
      CAPTURE(name);
      CAPTURE(use.share.first);
      CAPTURE(use.share.of);
      CAPTURE(use.share.rank);
      file_slice slice;
      const auto part = fetched(whole, use, slice);
      const auto want = load(whole, use), got = load(part, use);
      CHECK(got.fingerprint == want.fingerprint);
      CHECK(got.given == want.given);
      ++slices;
      smaller += slice.bytes_here() < all;
    }
  }
  CHECK(smaller > slices / 2);
}

TEST_CASE("a file that is no model is not fetched on and on to find its directory") {
  const std::vector<std::byte> noise(64 * MiB, std::byte{0x5A});
  const model_use use{.whole = false};
  const auto wish = [&](std::span<const std::byte> bytes, std::uint64_t there) {
    return wish_of({{"", bytes}}, "m", std::span{&use, 1},
                   [&](const file_range& r) { return r.offset + r.bytes <= there; });
  };
  CHECK(unwrap(wish(noise, 0)).ranges.front().bytes == 4 * MiB);
  CHECK(wish(noise, 4 * MiB).error() == ec::corrupt);
  auto begun = noise;
  std::memcpy(begun.data(), "GGUF\3\0\0\0", 8);
  CHECK(unwrap(wish(begun, 4 * MiB)).ranges.front().bytes == 8 * MiB);
  CHECK(wish(begun, begun.size()).error() == ec::corrupt);
}

TEST_CASE("a process is served by a slice that has what it reads, and refused by any other") {
  const test::temp_dir folder;
  const auto path = folder / "m";
  const auto whole = read_model(data + "hf-served");
  const model_use first{true, {0, 2, 1, 0}, 1, false};
  file_slice slice;
  fs::create_directory(file_slice::data_of(path));
  for (const auto& f : fetched(whole, first, slice))
    std::ofstream(file_slice::data_of(path) + "/" + f.name, std::ios::binary)
        .write(reinterpret_cast<const char*>(f.bytes.data()), static_cast<std::streamsize>(f.bytes.size()));
  CHECK(check_slice(path, std::span{&first, 1}).error() == ec::not_found);
  REQUIRE(slice.write(path));
  CHECK(check_slice(path, std::span{&first, 1}));
  CHECK(model_files(path) == file_slice::data_of(path));

  const auto host = make_host_device({.threads = 1, .exact = true});
  const auto serve = [&](const stage_share& share) {
    return load_served_model(std::array{static_cast<device*>(host.get())}, path, "auto", {true, true}, share);
  };
  const auto served = serve(first.share);
  REQUIRE_MESSAGE(served, (served ? "" : served.error().detail));
  CHECK(to_string(served->identity.fingerprint) == load(whole, first).fingerprint);
  CHECK(served->text != nullptr);
  const auto other = serve({1, 2, 1, 0});
  REQUIRE_FALSE(other);
  CHECK(other.error() == ec::not_found);
  CHECK(other.error().detail.find("weights fetch " + path) != std::string::npos);
  CHECK(load_served_model({}, path, "auto", {false, true}, {}));
}

TEST_CASE("a stage beyond the last one is refused by its number") {
  const auto shape = unwrap(dummy_shape("dummy:layers=4,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512"));
  CHECK(parts_of(shape, {3, 4, 1, 0}, 1));
  const auto beyond = parts_of(shape, {8, 4, 1, 0}, 1);
  REQUIRE_FALSE(beyond);
  CHECK(beyond.error().detail == "stage: 9 is not one of the 4 stages");
}

TEST_CASE("options tell what a process reads of its model") {
  const auto use = [](std::vector<std::string> words) { return use_of(unwrap(parse_options(words)).values); };
  CHECK(use({"--role", "gateway", "--join", "h:1"}) == model_use{false, {0, 1, 1, 0}, 1, true});
  CHECK(use({"--role", "prefill", "--join", "h:1", "--pipeline", "2"}) ==
        model_use{true, {0, 2, 1, 0}, 2, true});
  CHECK(use({"--role", "rank", "--pipeline", "4", "--stage", "2"}) ==
        model_use{true, {1, 4, 1, 0}, 1, false});
  CHECK(use({"--role", "rank", "--tensor", "3", "--tensor-rank", "2"}) ==
        model_use{true, {0, 1, 3, 2}, 1, false});
  CHECK(use({"--role", "decode", "--join", "h:1", "--ranks", "h:2,h:3"}) ==
        model_use{true, {2, 3, 1, 0}, 1, false});
}
