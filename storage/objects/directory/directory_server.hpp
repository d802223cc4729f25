#pragma once
// The directory of objects at a TCP port: one thread that owns the core, reads all questions that came,
// answers them, writes once.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/directory/directory_core.hpp"
#include "storage/objects/directory/serving_right.hpp"
#include "storage/objects/wire/endpoint_wire.hpp"
#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/link_stream.hpp"
#include "transport/net/secret_file.hpp"
#include "transport/net/socket.hpp"
#include "transport/net/tls_stream.hpp"

namespace mooncaf {

/// A tenant that sees and takes only its part of the store.
struct store_tenant {
  std::string name;  ///< see `is_tenant_name`
  std::string key;   ///< its clients prove that they know it
  tenant_limit limit;
};

class directory_server;

struct directory_server_options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  key_ring secret;         ///< holders, and clients that are no tenant's, prove that they know it
  std::vector<store_tenant> tenants;
  object_table_options table;
  duration greeting = std::chrono::seconds(5);     ///< a client that has not proved itself by then is turned
                                                   ///< away
  duration lost_after = std::chrono::seconds(10);  ///< the kernel gives up a client that does not answer
  /// For so long it waits for the first segment that an earlier directory knew, and five times as long for
  /// the others. Questions about objects wait with it.
  duration recovery = std::chrono::seconds(1);
  duration recovery_least = {};  ///< for so long at least: where holders first have to notice that it is here
  /// Folder for the notes on SSDs that the next directory needs (`disk_notes`); empty: SSDs' contents are of
  /// no use to it.
  std::string state_folder;
  /// Null: for ever. Connections end when it is over.
  std::shared_ptr<serving_right> right = nullptr;
  /// Its numbers, of tickets and of itself, are made of the wall clock, and greater than this: µs since 1970.
  std::uint64_t numbers_from = 0;
  /// Newest version of the protocol that it knows; below `store_wire::newest` it behaves as an earlier release.
  std::uint32_t newest = store_wire::newest;
  /// The shards of a directory by their number; null for this one. The first listens for all, and hands a
  /// client over to the shard that it wants; the others end after it.
  std::vector<directory_server*> shards = {};
};

/// @thread  The core lives on the loop's thread; the functions here may be called from any.
class directory_server : private loop_poller {
 public:
  /// @error `ec::invalid_argument` for a host that has no address, `ec::io_error` if it cannot listen.
  static result<std::unique_ptr<directory_server>> start(directory_server_options options);
  ~directory_server() override;  ///< drops all connections

  std::uint16_t port() const noexcept { return port_; }

 private:
  /// How a connection comes. Over TCP its first bytes tell: all clients speak TLS but older ones, before
  /// version 17 of the protocol, which are told in their own way that they are too old.
  enum class way : std::uint8_t { near, unheard, tls, outdated };
  /// What a client may prove that it knows: the cluster's keys, then each tenant's.
  struct known_keys {
    std::size_t cluster = 0;
    std::vector<std::string> all;
    tls_stream::keyring tls;
    /// @returns null for a key of the cluster. @param key  its place in `all`
    const store_tenant* tenant(std::span<const store_tenant> tenants, std::size_t key) const {
      return key < cluster ? nullptr : &tenants[key - cluster];
    }
  };
  struct connection {
    std::unique_ptr<link_stream> stream;
    std::uint64_t token = 0;
    std::shared_ptr<const known_keys> keys;  ///< as they were when it came
    handshake shake;
    const store_tenant* tenant = nullptr;
    time_point since{};
    std::uint64_t session = 0;  ///< zero until the other side has proved itself
    std::vector<std::byte> in, out;
    std::size_t sent = 0;       ///< bytes of `out`
    std::uint32_t watched = 0;  ///< events that the loop waits for
    bool ended = false;
    bool proved = false;                 ///< outdated, and knows a secret
    way by = way::near;                  ///< near: of a process of this host
    bool ring = false;                   ///< its stream is one
    bool hot = false;                    ///< it is in `hot_`
    bool stirred = false;                ///< since the last tick
    directory_server* wanted = nullptr;  ///< another shard, for which it has proved itself
  };
  directory_server(directory_server_options options, std::unique_ptr<disk_notes> notes)
      : options_(std::move(options)),
        core_(options_.table,
              {clock_type::now() + std::max(options_.recovery, options_.recovery_least),
               clock_type::now() + std::max(5 * options_.recovery, options_.recovery_least)},
              std::move(notes),
              [secret = options_.secret, of = options_.table.first_ticket](const std::string& tenant) {
                return endpoint_wire::endpoint_key(secret.own(), {of, tenant});
              }) {}

  void open_unix_endpoint(const socket_address& at);
  void accept_all(int listener, bool near);
  void on_events(connection& c, std::uint32_t events);
  void serve(connection& c, bool came);
  void lose(const connection& c);
  bool hear(connection& c);
  bool turn_away(connection& c, std::span<const std::byte>& left) const;
  static std::size_t unsent(const connection& c) { return c.out.size() - c.sent; }
  void hear_others();
  void hand_over(std::uint64_t token);
  void adopt(std::unique_ptr<connection> one);
  bool read(connection& c);
  bool take(connection& c, std::span<const std::byte>& left);
  bool shake(connection& c, std::span<const std::byte> message);
  bool write(connection& c);
  void drop(std::uint64_t token);
  void deliver();
  void watch(connection& c);
  bool share(connection& c, std::uint64_t number);
  void heat(connection& c);
  void cool();
  bool tick();
  bool may_serve(time_point now) const { return !options_.right || options_.right->lasts(now); }
  bool poll() override;
  void arm() override;
  void disarm() override;

  const std::shared_ptr<const known_keys>& keys();
  void renew_tenants();

  directory_server_options options_;
  std::shared_ptr<const known_keys> keys_;  ///< as the last connection found them
  std::string tenants_by_;                  ///< the cluster's key that the tenants' were made of
  directory_core core_;
  unique_fd listener_, near_;
  std::uint16_t port_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<connection>> connections_;
  std::unordered_map<std::uint64_t, connection*> by_session_;
  std::vector<connection*> hot_;  ///< are looked at before they say that something has come
  std::vector<std::byte> chunk_ = std::vector<std::byte>(256 * KiB);
  std::unique_ptr<event_loop> loop_;  // last: its thread uses the others
};

}  // namespace mooncaf
