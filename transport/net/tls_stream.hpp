#pragma once
// TLS 1.3 with a pre-shared key (`tls_psk.hpp`) over any stream: both ends prove that they know a secret,
// bytes are encrypted and cannot be altered unnoticed, and a thief of the secret cannot read earlier bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/net/link_stream.hpp"
#include "transport/net/tls_key.hpp"

struct ssl_st;  // SSL

namespace mooncaf {

/// Says `closed` only if the other end said that it closes: a connection that merely ends is `broken`, since
/// bytes may have been cut off. A caller that `send` told `again` gives the same bytes next; more may follow
/// them. Bytes are `ok` when their record has gone whole into the stream below.
/// @thread  as for `link_stream`, once `greet` has said true; one thread until then
class tls_stream final : public link_stream {
 public:
  using keyring = std::shared_ptr<const std::vector<tls_key>>;
  /// So many records, of up to 16 KiB, are sent under one key; then comes the next one. AES-GCM bears 24
  /// million of that length (RFC 8446, section 5.5).
  static constexpr std::uint64_t records_per_key = std::uint64_t{1} << 23;

  /// @param below  taken over unless there is an error. @error `ec::io_error`
  static result<std::unique_ptr<tls_stream>> client(std::unique_ptr<link_stream>& below, const tls_key& key,
                                                    std::uint64_t renew_after = records_per_key);
  /// @param keys  each is tried that the client's offer names. @error as above
  static result<std::unique_ptr<tls_stream>> server(std::unique_ptr<link_stream>& below, keyring keys,
                                                    std::uint64_t renew_after = records_per_key);
  ~tls_stream() override;

  /// @returns whether the first bytes of a connection, one at least, may be TLS.
  static bool begins(std::span<const std::byte> first) noexcept;

  /// Goes on with the handshake, as `send` and `receive` do. @returns true when it is done; else to be called
  /// again when `fd()` tells of `events(POLLIN)`.
  /// @error `ec::unauthenticated`: the other end does not know the key; `ec::incompatible`: it speaks no TLS;
  /// `ec::peer_lost`
  result<bool> greet();
  /// The other end has said something.
  bool heard() const;
  /// Server: which of the keys the client knows. To be asked once `greet` says true.
  std::size_t known_key() const noexcept { return known_; }

  passed send(std::span<const std::byte> bytes) override;
  passed receive(std::span<std::byte> into) override;
  std::string why() const override;
  int fd() const noexcept override { return below_->fd(); }
  short events(short wanted) const override { return done_ ? below_->events(wanted) : waits_for_; }
  bool pending() const override { return pending_ || below_->pending(); }
  void wake_from(std::size_t bytes) override { below_->wake_from(bytes); }
  void shutdown() noexcept override;

 private:
  struct calls;  // OpenSSL's call-backs

  tls_stream(std::unique_ptr<link_stream>& below, std::optional<tls_key> own, keyring keys,
             std::uint64_t renew_after);
  result<void> open(bool client);
  result<bool> shake();
  state failed();
  bool renew();
  state send_rest();
  error read_problem() const;
  bool ended() const noexcept { return below_at_ != state::ok; }
  void say_closed() noexcept;

  std::unique_ptr<link_stream> below_;
  keyring keys_;
  std::optional<tls_key> own_;  // the client's
  tls_key::offer offer_{};
  ssl_st* ssl_ = nullptr;
  bool done_ = false;  // the handshake
  short waits_for_ = POLLIN;
  std::size_t known_ = 0;
  bool pending_ = false;  // the receiving thread's

  mutable std::mutex mutex_;  // guards `ssl_`, and the members below, between the two threads
  const std::uint64_t renew_after_;
  std::uint64_t records_ = 0;    // sent under the present key
  bool renewing_ = false;        // the record being sent announces a new key
  std::vector<std::byte> rest_;  // of that record: bytes that the stream below has not taken yet
  std::size_t owed_ = 0;         // bytes that `send` has begun with
  bool heard_ = false;           // the other end has sent bytes
  bool foreign_ = false;         // its first bytes were no TLS
  state below_at_ = state::ok;   // closed or broken: the stream below has ended
  bool shut_ = false;            // by this end
  error problem_;                // code none while there is none
};

}  // namespace mooncaf
