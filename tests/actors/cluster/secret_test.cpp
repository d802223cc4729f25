#include "actors/cluster/secret.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

using namespace mooncaf;

namespace {

std::string hex(const cluster_secret::key& key) {
  std::string text;
  for (const auto byte : key) {
    static constexpr char digits[] = "0123456789abcdef";
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("equal secrets derive equal keys, whatever white space an editor left around them") {
  const auto plain = cluster_secret::from_text("correct horse battery staple");
  const auto edited = cluster_secret::from_text("\n correct horse battery staple\r\n");
  REQUIRE(plain);
  REQUIRE(edited);
  CHECK(plain->derive("control plane v1") == edited->derive("control plane v1"));
}

TEST_CASE("the derivation is HKDF with SHA-256, so other programs can derive the same key") {
  // Made with Python: hmac/sha256 extract with the salt, then one expand step.
  const auto secret = cluster_secret::from_text("correct horse battery staple");
  REQUIRE(secret);
  CHECK(hex(secret->derive("control plane v1")) ==
        "0e9c60bdf5a8c4bcc43edb6a78c1650b7b2ba2cf79afdd4961886f9dd2551b8f");
}

TEST_CASE("each purpose and each secret has a key of its own") {
  std::set<std::string> keys;
  for (const auto* text : {"0123456789abcdef", "0123456789abcdeF", "0123456789abcdef0"}) {
    const auto secret = cluster_secret::from_text(text);
    REQUIRE(secret);
    for (const auto* purpose : {"", "control plane v1", "data plane v1"})
      keys.insert(hex(secret->derive(purpose)));
  }
  CHECK(keys.size() == 9);
}

TEST_CASE("a secret that can be guessed is refused, with a way to make a good one") {
  for (const auto* text : {"", "   \n", "hunter2", "  fifteen-bytes!!  "}) {
    const auto secret = cluster_secret::from_text(text);
    REQUIRE_FALSE(secret);
    CHECK(secret.error() == ec::invalid_argument);
    CHECK(secret.error().detail.find("openssl rand") != std::string::npos);
  }
}

TEST_CASE("a secret file that is missing, a folder or empty is an error that names the file") {
  const auto folder = std::filesystem::temp_directory_path() / ("mooncaf-secret-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto file = (folder / "secret").string();

  auto missing = cluster_secret::from_file(file);
  REQUIRE_FALSE(missing);
  CHECK(missing.error() == ec::io_error);
  CHECK(missing.error().detail.find(file) != std::string::npos);

  auto directory = cluster_secret::from_file(folder.string());
  REQUIRE_FALSE(directory);
  CHECK(directory.error().detail.find(folder.string()) != std::string::npos);

  std::ofstream(file) << "";
  auto empty = cluster_secret::from_file(file);
  REQUIRE_FALSE(empty);
  CHECK(empty.error().detail.find(file) != std::string::npos);

  std::ofstream(file) << "correct horse battery staple\n";
  auto good = cluster_secret::from_file(file);
  REQUIRE(good);
  CHECK(good->derive("x") == cluster_secret::from_text("correct horse battery staple")->derive("x"));
  std::filesystem::remove_all(folder);
}
