#pragma once
// A directory, holders and clients in one process, over real sockets and real memory.

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "storage/objects/client/store_client.hpp"
#include "storage/objects/directory/directory_server.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "tests/storage/objects/secrets.hpp"

namespace mooncaf::test {

using namespace std::chrono_literals;

struct cluster {
  std::unique_ptr<directory_server> directory;
  std::vector<std::unique_ptr<segment_mount>> holders;

  /// @param rows  each holder's host stands in a row of its own.
  explicit cluster(int segments = 1, std::uint64_t bytes = 32 * MiB, bool rows = false) {
    directory_server_options o;
    o.secret = secret;
    o.recovery = {};  // nobody is waited for
    auto d = directory_server::start(std::move(o));
    REQUIRE(d);
    directory = std::move(*d);
    for (int i = 0; i < segments; ++i) {
      segment_mount_options segment;
      const auto number = std::to_string(i);
      segment.directory = address((rows ? "row" + number + "/host-" : "host-") + number);
      segment.name = "s" + std::to_string(i);
      segment.bytes = bytes;
      auto l = segment_mount::start(std::move(segment));
      REQUIRE(l);
      holders.push_back(std::move(*l));
    }
  }

  directory_address address(const std::string& host) const {
    directory_address a;
    a.at = one_seat("127.0.0.1", directory->port());
    a.secret = secret;
    a.own_host = host;
    return a;
  }
  /// A client on the host of the first segment maps it; one of another host must use the data plane.
  std::unique_ptr<store_client> client(const std::string& host = "host-0") const {
    auto c = store_client::connect({address(host), 1 * MiB});
    REQUIRE(c);
    return std::move(*c);
  }
};

inline store_code put(store_client& c, std::string_view key, std::span<const std::byte> bytes,
                      const put_policy& policy = {}) {
  const outgoing_object item{key, {bytes}};
  return c.put({&item, 1}, policy).at(0);
}

inline std::vector<std::byte> get(store_client& c, std::string_view key, store_code& code) {
  const auto found = c.find({&key, 1}).at(0);
  std::vector<std::byte> bytes(found.size);
  const std::span<std::byte> whole{bytes};
  code = c.read(found, {&whole, 1});
  return bytes;
}

inline std::uint32_t segment_named(store_client& c, std::string_view name) {
  const auto all = c.segments();
  REQUIRE(all);
  const auto found =
      std::find_if(all->begin(), all->end(), [&](const auto& s) { return s.view.name == name; });
  REQUIRE(found != all->end());
  return found->view.id;
}

/// A bit of what lies in a place, whoever mounts it: a second time, and it is as before.
inline void flip(store_client& c, const replica_place& place, std::uint64_t at) {
  const auto all = c.segments();
  REQUIRE(all);
  for (const auto& s : *all) {
    if (s.view.id != place.segment) continue;
    auto mapped = mapped_segment::map(s.address.unix_name, secret, clock_type::now() + 5s);
    REQUIRE(mapped);
    (*mapped)->bytes()[place.offset + at] ^= std::byte{1};
  }
}

inline bool soon(const std::function<bool()>& holds) {
  for (const auto until = clock_type::now() + 60s; clock_type::now() < until; std::this_thread::yield())
    if (holds()) return true;
  return false;
}

}  // namespace mooncaf::test
