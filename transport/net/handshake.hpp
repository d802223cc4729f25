#pragma once
// Two nodes prove to each other that they know the cluster secret, before either says anything else.
//
//   initiator                                     acceptor
//     nonce_i (32 random bytes)            ──►
//                                          ◄──    nonce_a (32 random bytes)
//     HMAC(secret, "initiator", nonces)    ──►    wrong: closes without a word
//                                          ◄──    HMAC(secret, "acceptor", nonces)
//     identity, HMAC(secret, it, nonces)   ──►    admits or refuses
//                                          ◄──    identity with status, HMAC
//
// A peer that does not know the secret learns neither version nor node id, in either role: up to the proofs
// only random bytes travel. HMAC is SHA-256; the labels keep one side's proof from being played back as the
// other's. Later bytes on the link are neither encrypted nor authenticated: a data network that strangers can
// alter in flight needs a tunnel.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// The purpose of a link.
enum class link_kind : std::uint8_t { tcp = 1, shm = 2, rdma = 3, store = 4, engine = 5 };

/// Newest protocol of links, and the oldest that is spoken still. The side with the newer one goes by the other's.
inline constexpr std::uint32_t data_plane_protocol = 1, data_plane_protocol_oldest = 1;

struct link_identity {
  link_kind kind = link_kind::tcp;
  node_id node;
  std::uint64_t incarnation = 0;
  std::uint64_t session = 0;  ///< links of one initiator that live and die together
  node_id wanted_node;        ///< the initiator's intended peer
  std::uint64_t wanted_incarnation = 0;
  std::uint32_t version = data_plane_protocol;  ///< newest that the side speaks
};

/// One side of the exchange, without I/O: `want` bytes go in, an answer comes out.
/// @thread  not synchronised
class handshake {
 public:
  static constexpr std::size_t nonce_bytes = 32;
  static constexpr std::size_t proof_bytes = 32;
  static constexpr std::size_t identity_bytes = 64 + proof_bytes;
  using nonce = std::array<std::byte, nonce_bytes>;

  enum class progress {
    more,        ///< send the answer, then feed the next message
    identified,  ///< acceptor only: `peer` is known; call `admit` or `refuse`
    done,        ///< send the answer; the link is authenticated
  };
  struct step {
    progress at = progress::more;
    std::vector<std::byte> answer;
  };

  static handshake initiator(std::string secret, const nonce& mine, const link_identity& self);
  /// @param secrets  one at least; the initiator must know one of them, and this side proves that it knows the same.
  static handshake acceptor(std::vector<std::string> secrets, const nonce& mine, const link_identity& self);

  /// The initiator's first message; empty for the acceptor.
  std::vector<std::byte> opening() const;
  /// Size of the message that `feed` expects next.
  std::size_t want() const noexcept;
  /// @error `ec::unauthenticated` for a wrong proof; `ec::incompatible` for a protocol that is too old; what
  /// the acceptor refused with; `ec::corrupt` for a message that fits nothing. The link is then to be
  ///        dropped.
  result<step> feed(std::span<const std::byte> message);

  /// Acceptor, after `identified`.
  step admit();
  step refuse(ec why);

  /// The other side, once identified or done.
  const link_identity& peer() const noexcept { return peer_; }
  /// Acceptor: which of its secrets the other side knows, once it has proved that.
  std::size_t known() const noexcept { return known_; }
  /// True from the moment this side has sent its proof: an end of the link now means that it was not
  /// believed.
  bool proof_sent() const noexcept { return stage_ >= (initiator_ ? 1 : 2); }

 private:
  handshake(bool initiator, std::vector<std::string> secrets, const nonce& mine, const link_identity& self);
  result<step> feed_initiator(std::span<const std::byte> message);
  result<step> feed_acceptor(std::span<const std::byte> message);
  std::vector<std::byte> sign(std::string_view label, std::span<const std::byte> text) const;
  std::vector<std::byte> signed_identity(std::string_view label, ec status) const;
  result<ec> read_identity(std::string_view label, std::span<const std::byte> message);
  bool believes(std::span<const std::byte> proof);
  bool proves(std::string_view label, std::span<const std::byte> text,
              std::span<const std::byte> proof) const;

  bool initiator_;
  std::vector<std::string> secrets_;
  std::size_t known_ = 0;
  nonce mine_;
  nonce theirs_{};
  link_identity self_;
  link_identity peer_;
  int stage_ = 0;
};

/// @returns cryptographically random bytes. @error `ec::io_error` if the system has none.
result<handshake::nonce> make_nonce();
/// A random non-zero number that cannot be guessed.
result<std::uint64_t> make_random_u64();

}  // namespace mooncaf
