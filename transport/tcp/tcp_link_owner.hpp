#pragma once
// Questions of a TCP connection to its session: where a payload goes, and which bytes to send next.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/tcp/wire.hpp"

namespace mooncaf {

class tcp_link;

/// A frame on its way out. `payload` points into a region or into `own`.
struct outgoing_frame {
  frame_header header;
  const std::byte* payload = nullptr;
  std::vector<std::byte> own;
  region_id region;  ///< where `payload` lies, or none
};

/// Where the payload of an incoming frame goes.
struct frame_sink {
  enum class kind {
    memory,   ///< `at`, inside `region`
    control,  ///< a buffer of the link
    discard,  ///< nowhere
  };
  kind to = kind::control;
  std::byte* at = nullptr;
  region_id region;
  /// xxh3-64 of the bytes that arrived, where the link took it on the way to `at`. Set when the frame is
  /// complete.
  std::optional<std::uint64_t> sum = {};
};
/// Whether a data frame that is complete brought its sender's bytes, as far as that is known.
/// @param verify  false: checksums are not looked at.
bool is_intact(const frame_header& h, const frame_sink& sink, bool verify);

/// Owner of a link: an outgoing session or an incoming one.
/// The first five are called with the link's I/O lock held: they must not call another link. Work that has to
/// happen outside of it goes through `tcp_link::defer`.
class tcp_link_owner {
 public:
  virtual ~tcp_link_owner() = default;
  /// A header arrived. An error breaks the link.
  virtual result<frame_sink> on_header(tcp_link& link, const frame_header& h) = 0;
  /// Its payload is complete (in memory, in `control`, or gone). An error breaks the link.
  virtual result<void> on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                                std::span<const std::byte> control) = 0;
  /// The socket takes more: gives the next frame, or false.
  virtual bool next_frame(tcp_link& link, outgoing_frame& out) = 0;
  /// A frame has left (or never will, if the link is dead): its payload is not looked at any more.
  virtual void on_sent(tcp_link& link, const outgoing_frame& f) = 0;
  /// The target of `on_header` is not written any more although the frame is incomplete: the link died.
  virtual void on_abandoned(tcp_link& link, const frame_header& h, const frame_sink& sink) = 0;
  /// Exactly once, without the lock: the link is dead.
  virtual void on_broken(tcp_link& link, const error& why) = 0;
};

}  // namespace mooncaf
