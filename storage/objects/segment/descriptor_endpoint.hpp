#pragma once
// How the memory of a segment gets into another process of the host: a Unix socket that hands out its
// descriptor.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/segment/page_filler.hpp"
#include "transport/net/event_loop.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

/// Hands the descriptor to processes of the same user (or root) that know the secret.
class descriptor_endpoint {
 public:
  /// @param fd  of a sealed memfd; stays the caller's, and open as long as the name.
  static result<std::unique_ptr<descriptor_endpoint>> open(key_ring secret, int fd);
  ~descriptor_endpoint();
  /// The address for `mapped_segment::map`: a name in the abstract namespace.
  const std::string& name() const noexcept { return name_; }

 private:
  struct connection {
    unique_fd fd;
    handshake shake;
  };
  descriptor_endpoint(key_ring secret, int fd) : secret_(std::move(secret)), fd_(fd) {}
  void accept_all();
  /// @returns false when the connection is to go.
  bool serve(connection& v);

  const key_ring secret_;
  std::string name_;
  int fd_;
  unique_fd listener_;
  std::unordered_map<std::uint64_t, std::unique_ptr<connection>> connections_;
  std::unique_ptr<event_loop> loop_;
};

/// Memory of another process, mapped here for reading and writing until the object goes.
class mapped_segment {
 public:
  /// @param until  gives up then. @error `ec::peer_lost`, `ec::timed_out`, `ec::unauthenticated`,
  /// `ec::io_error`
  static result<std::unique_ptr<mapped_segment>> map(const std::string& name, const std::string& secret,
                                                     time_point until);
  ~mapped_segment();
  mapped_segment(const mapped_segment&) = delete;
  mapped_segment& operator=(const mapped_segment&) = delete;
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// Touches all of it, in the background: not where the owner has given pages back that this would bring
  /// again.
  void touch_ahead() { filler_ = std::make_unique<page_filler>(bytes_); }

 private:
  explicit mapped_segment(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
  std::unique_ptr<page_filler> filler_;  // null: nothing is touched ahead
};

}  // namespace mooncaf
