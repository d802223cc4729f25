#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.hpp"
#include "transport/net/secret_file.hpp"

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

TEST_CASE("a secret file that others can read or change is refused with the mode and what to do") {
  const test::temp_dir folder;
  const auto file = folder / "secret";
  std::ofstream(file) << "correct horse battery staple\n";
  for (const auto mode : {0644, 0604, 0660, 0602}) {
    CAPTURE(mode);
    REQUIRE(chmod(file.c_str(), static_cast<mode_t>(mode)) == 0);
    const auto refused = secret_file::read(file);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == ec::unauthenticated);
    CHECK(refused.error().detail.find(file) != std::string::npos);
    CHECK(refused.error().detail.find("chmod 600") != std::string::npos);
  }
  for (const auto mode : {0600, 0400, 0640}) {
    CAPTURE(mode);
    REQUIRE(chmod(file.c_str(), static_cast<mode_t>(mode)) == 0);
    CHECK(secret_file::read(file));
  }
}

TEST_CASE("a secret that nobody made yet is made once, for its owner alone, whoever comes first") {
  const test::temp_dir folder;
  const auto file = folder / "config/mooncaf/cluster.secret";
  std::vector<std::string> keys(8);
  std::vector<std::thread> starters;
  for (auto& key : keys) {
    starters.emplace_back([&key, &file] {
      const auto secret = secret_file::open_or_make(file);
      key = secret ? hex((*secret)->secrets().front().derive("x")) : to_string(secret.error());
    });
  }
  for (auto& starter : starters) starter.join();
  for (const auto& key : keys) CHECK(key == keys.front());
  CHECK(keys.front().size() == 64);
  struct stat seen {};
  REQUIRE(stat(file.c_str(), &seen) == 0);
  CHECK((seen.st_mode & 07777) == 0600);
  REQUIRE(stat(std::filesystem::path(file).parent_path().c_str(), &seen) == 0);
  CHECK((seen.st_mode & 07777) == 0700);
  const auto other = secret_file::open_or_make(folder / "other/mooncaf/cluster.secret");
  REQUIRE(other);
  CHECK(hex((*other)->secrets().front().derive("x")) != keys.front());
}

TEST_CASE("a secret that cannot be made names the file and the option to give instead") {
  const test::temp_dir folder;
  std::ofstream(folder / "file") << "no folder";
  const auto refused = secret_file::open_or_make(folder / "file/mooncaf/cluster.secret");
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::io_error);
  CHECK(refused.error().detail.find(folder / "file/mooncaf") != std::string::npos);
  CHECK(refused.error().detail.find("--cluster-secret-file") != std::string::npos);
}

TEST_CASE("a secret file that is missing, a folder or empty is an error that names the file") {
  const test::temp_dir folder;
  const auto file = folder / "secret";

  auto missing = secret_file::read(file);
  REQUIRE_FALSE(missing);
  CHECK(missing.error() == ec::io_error);
  CHECK(missing.error().detail.find(file) != std::string::npos);

  REQUIRE(mkdir((folder / "folder").c_str(), 0700) == 0);
  auto directory = secret_file::read(folder / "folder");
  REQUIRE_FALSE(directory);
  CHECK(directory.error().detail.find(folder / "folder") != std::string::npos);

  std::ofstream(file) << "";
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  auto empty = secret_file::read(file);
  REQUIRE_FALSE(empty);
  CHECK(empty.error().detail.find(file) != std::string::npos);

  std::ofstream(file) << "correct horse battery staple\n";
  auto good = secret_file::read(file);
  REQUIRE(good);
  CHECK(good->front().derive("x") == cluster_secret::from_text("correct horse battery staple")->derive("x"));
}

TEST_CASE("a file of several secrets gives a key for each, and is read again when it was replaced") {
  const test::temp_dir folder;
  const auto file = folder / "secret";
  const auto put = [&](const std::string& text, mode_t mode = 0600) {
    std::ofstream(file + ".new") << text;
    REQUIRE(chmod((file + ".new").c_str(), mode) == 0);
    std::filesystem::rename(file + ".new", file);
  };
  const auto derived = [](std::string_view text) {
    const auto k = cluster_secret::from_text(text)->derive("x");
    return std::string{reinterpret_cast<const char*>(k.data()), k.size()};
  };
  const auto old = "the old secret of all", fresh = "the new secret of all";
  put(std::string{old} + "\n");
  std::vector<error> complaints;
  const auto opened = secret_file::open(file, [&](const error& why) { complaints.push_back(why); });
  REQUIRE(opened);
  const key_ring ring{*opened, "x"};
  CHECK(ring.own() == derived(old));
  CHECK(ring.accepted() == std::vector{derived(old)});

  put(std::string{"  "} + old + "  \r\n\n" + fresh);
  CHECK(ring.own() == derived(old));
  CHECK(ring.accepted() == std::vector{derived(old), derived(fresh)});

  for (const auto* bad : {"", "short\n", "the new secret of all\nshort\n"}) {
    CAPTURE(bad);
    complaints.clear();
    put(bad);
    for (int i = 0; i < 3; ++i) CHECK(ring.accepted() == std::vector{derived(old), derived(fresh)});
    REQUIRE(complaints.size() == 1);
    CHECK(complaints[0].detail.find(file) != std::string::npos);
  }
  put(std::string{fresh} + "\n", 0644);
  CHECK(ring.own() == derived(old));
  CHECK(complaints.back() == ec::unauthenticated);
  std::filesystem::remove(file);
  CHECK(ring.own() == derived(old));

  put(std::string{fresh} + "\n");
  CHECK(ring.accepted() == std::vector{derived(fresh)});
  put("a secret, the first\na secret, the second\na secret, the third\na secret, the fourth\na secret, the "
      "fifth\n");
  CHECK(ring.accepted() == std::vector{derived(fresh)});
  CHECK(key_ring{"a fixed one"}.own() == "a fixed one");
}
