#pragma once
// A client's connection to the directory: questions of many threads on one connection, none waits for
// another's answer.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/wire/directory_seats.hpp"
#include "storage/objects/wire/store_wire.hpp"
#include "transport/net/link_stream.hpp"
#include "transport/net/secret_file.hpp"
#include "transport/net/short_wait.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

struct directory_address {
  std::shared_ptr<const directory_seats> at = std::make_shared<const directory_seats>();
  key_ring secret;
  std::uint32_t shard = 0;  ///< the shard of the directory that is asked
  bool everyone = false;    ///< names objects as the store does, of all tenants; see `key_scope`
  std::string own_host;     ///< name of this machine, and where it stands: `host_at`
  std::uint32_t newest =
      store_wire::newest;  ///< version of the protocol that this client knows; see store_version.hpp
  duration time_limit = std::chrono::seconds(30);  ///< for each answer; then the connection is given up
  duration connect_limit = std::chrono::seconds(5);
  duration spin = short_wait::usual;  ///< a thread that waits looks for so long before it sleeps; see
                                      ///< `short_wait`
};

/// Has no thread of its own: of the threads that wait for answers one reads for all of them.
/// @thread  All functions may be called from any thread.
class directory_link {
 public:
  using answer = std::vector<std::byte>;

  /// To the seat at which a directory answers.
  /// @error `ec::peer_lost`, `ec::timed_out`, `ec::unauthenticated`, `ec::incompatible`, with the address;
  /// `ec::unavailable` where no seat is known.
  static result<std::shared_ptr<directory_link>> connect(const directory_address& to);

  /// Sends a question. @returns its number, or an error where the connection has ended.
  result<std::uint64_t> ask(store_wire::op what, const std::function<void(byte_writer&)>& payload);
  /// The same for many of one kind, sent at once; their numbers follow on each other. @returns the first.
  result<std::uint64_t> ask_all(store_wire::op what, std::size_t count,
                                const std::function<void(std::size_t, byte_writer&)>& payload);
  /// Waits for the answer to one's own question; each is to be waited for once.
  result<answer> wait(std::uint64_t number);
  result<answer> ask_and_wait(store_wire::op what, const std::function<void(byte_writer&)>& payload);

  /// From now on no thread here waits for an answer, but for the directory's own messages: entries that are
  /// not urgent are taken together, some milliseconds late, so that the directory need not wake this process
  /// for each.
  /// @thread  the one that waits from now on
  void only_listens() { listens_ = true; }

  /// Whether it can be asked. A connection that was silent for a while is looked at: the directory may have
  /// closed it while no thread was listening, and a question would be lost.
  bool usable();
  /// The directory's incarnation: another number is another directory, though it has the same address.
  std::uint64_t incarnation() const noexcept { return incarnation_; }
  /// The directory's view of this client.
  const store_wire::welcome& welcome() const noexcept { return welcome_; }
  /// The version of the protocol that is spoken.
  std::uint32_t speaks() const noexcept { return speaks_; }
  /// Ends it; threads that wait get an error. The descriptor stays open until the object goes.
  void close();

 private:
  static result<std::shared_ptr<directory_link>> connect_to(const host_port& seat,
                                                            const directory_address& to, time_point until);
  static result<std::shared_ptr<directory_link>> over(std::unique_ptr<link_stream> stream,
                                                      const directory_address& to, time_point until);
  static result<std::shared_ptr<directory_link>> from_near(const directory_address& to, std::uint16_t port,
                                                           const socket_address& at, time_point until);
  directory_link(std::unique_ptr<link_stream> stream, const directory_address& to)
      : to_(to), stream_(std::move(stream)), limit_(to.time_limit), looking_(to.spin) {}
  result<void> greet(const directory_address& to, time_point until);
  result<void> agree(const directory_address& to);
  result<void> send_all(std::span<const std::byte> bytes, time_point until);
  result<void> receive(std::span<std::byte> into, time_point until);
  result<void> read_some(std::unique_lock<std::mutex>& lock, time_point until);
  result<void> read_patiently(std::unique_lock<std::mutex>& lock, time_point until);
  bool superseded() const;
  error lost(link_stream::state at) const;
  result<void> open_ring(time_point until);
  bool wait_for(short wanted, time_point until);
  result<void> await_room(time_point until);
  bool await_bytes(time_point until);
  void await_more(time_point until);
  void wake_from(std::size_t bytes);
  void give_up(const error& why);

  const directory_address to_;
  std::unique_ptr<link_stream> stream_;
  duration limit_;
  std::uint64_t incarnation_ = 0;
  std::uint32_t speaks_ = 0;
  std::atomic<bool> listens_{false};
  short_wait looking_;        // of the thread that reads
  std::size_t wakes_us_ = 1;  // likewise: bytes that must have come
  bool ring_ = false;         // `stream_` is one
  store_wire::welcome welcome_;
  std::mutex sending_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::uint64_t next_ = 1;
  bool reading_ = false;
  std::vector<std::byte> in_;
  std::unordered_map<std::uint64_t, answer> answers_;
  error ended_;  // code none while it lives
  time_point heard_{};
};

}  // namespace mooncaf
