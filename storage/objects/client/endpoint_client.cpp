#include "storage/objects/client/endpoint_client.hpp"

#include <poll.h>

#include <algorithm>

#include "runtime/base/hash.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/patient_socket.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

constexpr auto progress_limit = std::chrono::seconds(30);
constexpr std::size_t idle_max = 16;
constexpr std::size_t chunk_bytes = 128 * KiB;  // is hashed in the cache, while the other side goes on

time_point limit() { return clock_type::now() + progress_limit; }

/// Moves the bytes in pieces, so that the limit is on progress and not on the whole.
template <class Byte, class Move>
result<void> move_all(std::span<Byte> bytes, const Move& move) {
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), chunk_bytes));
    if (auto moved = move(now); !moved) return moved;
    bytes = bytes.subspan(now.size());
  }
  return {};
}

result<endpoint_wire::answer> hear(int fd) {
  std::array<std::byte, endpoint_wire::answer_bytes> said;
  if (auto got = receive_whole(fd, said, limit()); !got) return fail(got.error());
  return endpoint_wire::parse_answer(said);
}

error refused(store_code code) {
  return {code == store_code::checksum_mismatch ? ec::corrupt : ec::not_found,
          "the endpoint: " + std::string{to_string(code)}};
}

}  // namespace

result<unique_fd> endpoint_client::dial(const endpoint_pass& pass) const {
  const auto until = clock_type::now() + dial_limit_;
  const auto at = resolve_tcp(host_, port_);
  if (!at) return fail(at.error());
  auto fd = dial_tcp(*at, until);
  if (!fd) return fail(fd.error());
  tune_tcp(fd->get(), progress_limit);
  const auto nonce = make_nonce();
  if (!nonce) return fail(nonce.error());
  const link_identity self{
      link_kind::store, endpoint_wire::client_node, 0, 0, endpoint_wire::endpoint_node, 0};
  auto shake = handshake::initiator(pass.key, *nonce, self);
  if (auto sent = send_whole(fd->get(), endpoint_wire::encode(pass.who), until); !sent)
    return fail(sent.error());
  auto next = shake.opening();
  for (;;) {
    if (auto sent = send_whole(fd->get(), next, until); !sent) return fail(sent.error());
    std::vector<std::byte> message(shake.want());
    if (auto got = receive_whole(fd->get(), message, until); !got) return fail(got.error());
    auto step = shake.feed(message);
    if (!step) return fail(step.error());
    if (step->at == handshake::progress::done) return std::move(*fd);
    next = std::move(step->answer);
  }
}

/// @param talk  the call. Whatever goes wrong with the connection ends it, and a kept one is replaced once.
template <class Talk>
result<std::uint64_t> endpoint_client::call(const endpoint_pass& pass, const Talk& talk) {
  for (;;) {
    unique_fd fd;
    {
      std::lock_guard lock{mutex_};
      std::erase_if(idle_, [&](const kept& k) { return k.incarnation != pass.who.incarnation; });
      if (!idle_.empty()) {
        fd = std::move(idle_.back().fd);
        idle_.pop_back();
      }
    }
    const bool was_kept = static_cast<bool>(fd);
    if (!was_kept) {
      auto made = dial(pass);
      if (!made)
        return fail(made.error().code,
                    "endpoint " + host_ + ":" + std::to_string(port_) + ": " + made.error().detail);
      fd = std::move(*made);
    }
    bool sound = false;
    const result<std::uint64_t> done = talk(fd.get(), sound);
    if (!done && !sound && was_kept) continue;
    std::lock_guard lock{mutex_};
    if (sound && idle_.size() < idle_max) idle_.push_back({std::move(fd), pass.who.incarnation});
    return done;
  }
}

result<std::uint64_t> endpoint_client::write(const endpoint_pass& pass, std::uint64_t offset,
                                             std::span<const std::span<const std::byte>> pieces) {
  return call(pass, [&](int fd, bool& sound) -> result<std::uint64_t> {
    endpoint_wire::request r{endpoint_wire::op::write, offset, 0};
    for (const auto& p : pieces) r.bytes += p.size();
    if (auto sent = send_whole(fd, endpoint_wire::encode(r), limit()); !sent) return fail(sent.error());
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (const auto& p : pieces) {
      const auto sent = move_all(p, [&](std::span<const std::byte> some) {
        XXH3_64bits_update(&hash, some.data(), some.size());
        return send_whole(fd, some, limit());
      });
      if (!sent) return fail(sent.error());
    }
    const auto answer = hear(fd);
    if (!answer) return fail(answer.error());
    sound = true;
    const auto sum = XXH3_64bits_digest(&hash);
    if (answer->code != store_code::ok) return fail(ec::not_found, "the endpoint knows no such reservation");
    if (answer->checksum != sum) return fail(ec::corrupt, "other bytes arrived at the endpoint");
    return sum;
  });
}

// Bytes are hashed as they come, while they are still in the cache, and the endpoint's checksum comes last.
result<std::uint64_t> endpoint_client::read(const endpoint_pass& pass, std::uint64_t offset,
                                            std::span<const std::span<std::byte>> pieces) {
  std::uint64_t total = 0;
  for (const auto& p : pieces) total += p.size();
  return call(pass, [&](int fd, bool& sound) -> result<std::uint64_t> {
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    auto piece = pieces.begin();
    std::size_t used = 0;  // bytes of that piece
    for (std::uint64_t at = 0; at < total;) {
      const endpoint_wire::request r{endpoint_wire::op::read, offset + at,
                                     std::min<std::uint64_t>(total - at, endpoint_wire::read_bytes_max)};
      if (auto sent = send_whole(fd, endpoint_wire::encode(r), limit()); !sent) return fail(sent.error());
      const auto begin = hear(fd);
      if (!begin) return fail(begin.error());
      if (begin->code != store_code::ok) {
        sound = true;
        return fail(refused(begin->code));
      }
      XXH3_state_t of_this;
      XXH3_64bits_reset(&of_this);
      for (std::uint64_t left = r.bytes; left > 0;) {
        const auto part = piece->subspan(used).first(std::min<std::uint64_t>(left, piece->size() - used));
        const auto got = move_all(part, [&](std::span<std::byte> some) {
          auto moved = receive_whole(fd, some, limit());
          XXH3_64bits_update(&of_this, some.data(), some.size());
          if (r.bytes < total) XXH3_64bits_update(&hash, some.data(), some.size());
          return moved;
        });
        if (!got) return fail(got.error());
        left -= part.size();
        used += part.size();
        if (used == piece->size()) ++piece, used = 0;
      }
      const auto sum = XXH3_64bits_digest(&of_this);
      const auto end = hear(fd);
      if (!end) return fail(end.error());
      if (end->code != store_code::ok) {
        sound = true;
        return fail(refused(end->code));
      }
      if (sum != end->checksum) {
        sound = true;
        return fail(ec::corrupt, "other bytes arrived than the endpoint sent");
      }
      if (r.bytes == total) {
        sound = true;
        return sum;
      }
      at += r.bytes;
    }
    sound = true;
    return XXH3_64bits_digest(&hash);
  });
}

result<std::uint64_t> endpoint_client::look(const endpoint_pass& pass, std::uint64_t offset,
                                            std::uint64_t bytes) {
  return call(pass, [&](int fd, bool& sound) -> result<std::uint64_t> {
    const endpoint_wire::request r{endpoint_wire::op::look, offset, bytes};
    if (auto sent = send_whole(fd, endpoint_wire::encode(r), limit()); !sent) return fail(sent.error());
    const auto answer = hear(fd);
    if (!answer) return fail(answer.error());
    sound = true;
    if (answer->code != store_code::ok) return fail(refused(answer->code));
    return answer->checksum;
  });
}

}  // namespace mooncaf
