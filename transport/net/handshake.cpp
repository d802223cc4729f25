#include "transport/net/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "transport/net/bytes.hpp"

namespace mooncaf {
namespace {

constexpr std::string_view initiator_proof = "mooncaf data plane: initiator knows";
constexpr std::string_view acceptor_proof = "mooncaf data plane: acceptor knows";
constexpr std::string_view initiator_identity = "mooncaf data plane: initiator is";
constexpr std::string_view acceptor_identity = "mooncaf data plane: acceptor is";

handshake::step answer(handshake::progress at, std::vector<std::byte> bytes) {
  return {at, std::move(bytes)};
}

}  // namespace

handshake::handshake(bool initiator, std::vector<std::string> secrets, const nonce& mine,
                     const link_identity& self)
    : initiator_(initiator), secrets_(std::move(secrets)), mine_(mine), self_(self) {}

handshake handshake::initiator(std::string secret, const nonce& mine, const link_identity& self) {
  return {true, {std::move(secret)}, mine, self};
}
handshake handshake::acceptor(std::vector<std::string> secrets, const nonce& mine,
                              const link_identity& self) {
  return {false, std::move(secrets), mine, self};
}

std::vector<std::byte> handshake::opening() const {
  return initiator_ ? std::vector<std::byte>{mine_.begin(), mine_.end()} : std::vector<std::byte>{};
}

std::size_t handshake::want() const noexcept {
  static_assert(nonce_bytes == proof_bytes);
  return stage_ < 2 ? nonce_bytes : identity_bytes;
}

result<handshake::step> handshake::feed(std::span<const std::byte> message) {
  if (message.size() != want() || stage_ > 2) return fail(ec::corrupt, "unexpected handshake message");
  return initiator_ ? feed_initiator(message) : feed_acceptor(message);
}

result<handshake::step> handshake::feed_initiator(std::span<const std::byte> message) {
  switch (stage_++) {
    case 0:
      std::copy(message.begin(), message.end(), theirs_.begin());
      return answer(progress::more, sign(initiator_proof, {}));
    case 1:
      if (!proves(acceptor_proof, {}, message))
        return fail(ec::unauthenticated, "the peer does not know the cluster secret");
      return answer(progress::more, signed_identity(initiator_identity, ec::none));
    default: {
      const auto status = read_identity(acceptor_identity, message);
      if (!status) return fail(status.error());
      if (*status != ec::none) return fail(*status, "the peer refused the link");
      if (peer_.node != self_.wanted_node) return fail(ec::peer_lost, "another node answers at this address");
      return answer(progress::done, {});
    }
  }
}

result<handshake::step> handshake::feed_acceptor(std::span<const std::byte> message) {
  switch (stage_++) {
    case 0:
      std::copy(message.begin(), message.end(), theirs_.begin());
      return answer(progress::more, {mine_.begin(), mine_.end()});
    case 1:
      if (!believes(message)) return fail(ec::unauthenticated, "a peer does not know the cluster secret");
      return answer(progress::more, sign(acceptor_proof, {}));
    default: {
      const auto status = read_identity(initiator_identity, message);
      if (!status) return fail(status.error());
      return answer(progress::identified, {});
    }
  }
}

handshake::step handshake::admit() { return {progress::done, signed_identity(acceptor_identity, ec::none)}; }
handshake::step handshake::refuse(ec why) {
  return {progress::done, signed_identity(acceptor_identity, why)};
}

// HMAC(secret, label | nonce of the initiator | nonce of the acceptor | text).
std::vector<std::byte> handshake::sign(std::string_view label, std::span<const std::byte> text) const {
  std::vector<std::byte> input;
  byte_writer out{input};
  out.put_text(label);
  out.put_bytes(initiator_ ? mine_ : theirs_);
  out.put_bytes(initiator_ ? theirs_ : mine_);
  out.put_bytes(text);
  std::vector<std::byte> mac(proof_bytes);
  unsigned size = 0;
  const auto& secret = secrets_[known_];
  ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(input.data()), input.size(),
         reinterpret_cast<unsigned char*>(mac.data()), &size);
  return mac;
}

/// The initiator says nothing of which secret it knows, so each is tried.
bool handshake::believes(std::span<const std::byte> proof) {
  for (known_ = 0; known_ < secrets_.size(); ++known_)
    if (proves(initiator_proof, {}, proof)) return true;
  known_ = 0;
  return false;
}

bool handshake::proves(std::string_view label, std::span<const std::byte> text,
                       std::span<const std::byte> proof) const {
  const auto expected = sign(label, text);
  return proof.size() == expected.size() && ::CRYPTO_memcmp(proof.data(), expected.data(), proof.size()) == 0;
}

std::vector<std::byte> handshake::signed_identity(std::string_view label, ec status) const {
  std::vector<std::byte> text;
  byte_writer out{text};
  out.put(self_.version);
  out.put(static_cast<std::uint8_t>(status));
  out.put(static_cast<std::uint8_t>(self_.kind));
  out.put(std::uint16_t{0});
  out.put(self_.node.value);
  out.put(self_.incarnation);
  out.put(self_.session);
  out.put(self_.wanted_node.value);
  out.put(self_.wanted_incarnation);
  text.resize(identity_bytes - proof_bytes);
  const auto mac = sign(label, text);
  text.insert(text.end(), mac.begin(), mac.end());
  return text;
}

result<ec> handshake::read_identity(std::string_view label, std::span<const std::byte> message) {
  const auto text = message.first(identity_bytes - proof_bytes);
  if (!proves(label, text, message.subspan(text.size())))
    return fail(ec::unauthenticated, "the peer's identity is not signed with the cluster secret");
  byte_reader in{text};
  const auto version = in.get<std::uint32_t>();
  if (version < data_plane_protocol_oldest)
    return fail(ec::incompatible, "the peer speaks data plane protocol " + std::to_string(version) +
                                      ", this node " + std::to_string(data_plane_protocol_oldest) +
                                      " and later ones");
  peer_.version = version;
  const auto status = in.get<std::uint8_t>();
  const auto kind = in.get<std::uint8_t>();
  in.get<std::uint16_t>();
  if (status > static_cast<std::uint8_t>(ec::internal) || kind != static_cast<std::uint8_t>(self_.kind))
    return fail(ec::corrupt, "malformed identity of a peer");
  peer_.kind = self_.kind;
  peer_.node.value = in.get<std::uint64_t>();
  peer_.incarnation = in.get<std::uint64_t>();
  peer_.session = in.get<std::uint64_t>();
  peer_.wanted_node.value = in.get<std::uint64_t>();
  peer_.wanted_incarnation = in.get<std::uint64_t>();
  return static_cast<ec>(status);
}

result<handshake::nonce> make_nonce() {
  handshake::nonce n;
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(n.data()), static_cast<int>(n.size())) != 1)
    return fail(ec::io_error, "the system gives no random bytes");
  return n;
}

result<std::uint64_t> make_random_u64() {
  std::uint64_t value = 0;
  while (value == 0)
    if (::RAND_bytes(reinterpret_cast<unsigned char*>(&value), sizeof(value)) != 1)
      return fail(ec::io_error, "the system gives no random bytes");
  return value;
}

}  // namespace mooncaf
