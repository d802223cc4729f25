// Everything that a peer of the data plane may send before and after it proved itself: frames, read requests,
// notices, acknowledgements, packets, announcements, handshake messages.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "runtime/ranks/rank_order.hpp"
#include "transport/net/handshake.hpp"
#include "transport/peer_address.hpp"
#include "transport/rdma/rdma_wire.hpp"
#include "transport/shm/shm_wire.hpp"
#include "transport/tcp/wire.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// A stream of frames, as a connection would take them.
void frames(std::span<const std::byte> in) {
  while (in.size() >= frame_header_bytes) {
    const auto h = parse_frame(in.first<frame_header_bytes>());
    if (!h) return;
    in = in.subspan(frame_header_bytes);
    require(h->payload_bytes <= data_payload_max);
    require(h->type != frame_type::write_data || h->index < h->count);
    // What was understood can be said again.
    require(parse_frame(encode_frame(*h)).has_value());
    if (in.size() < h->payload_bytes) return;
    if (h->type == frame_type::read_request)
      if (const auto entries = parse_read_entries(in.first(h->payload_bytes), h->count))
        for (const auto& e : *entries) require(e.source.length <= data_payload_max);
    in = in.subspan(h->payload_bytes);
  }
}

void strangers(std::span<const std::byte> in) {
  const link_identity self{link_kind::tcp, node_id{1}, 2, 3, node_id{4}, 5};
  for (auto side :
       {handshake::initiator("secret", {}, self), handshake::acceptor({"secret", "new"}, {}, self)}) {
    auto rest = in;
    while (rest.size() >= side.want()) {
      const auto n = side.want();
      const auto step = side.feed(rest.first(n));
      if (!step) break;
      // Nobody gets through without the secret.
      require(step->at == handshake::progress::more);
      rest = rest.subspan(n);
    }
  }
}

// An order to a rank names no memory that it may not, and can be said again.
void orders(std::span<const std::byte> in) {
  const rank_limits limits{512, 1 << 20, 4096};
  const auto order = decode_rank_order(in, limits);
  if (!order) return;
  require(order->tokens() <= limits.tokens);
  for (const auto& item : order->items)
    for (const auto b : item.blocks) require(b <= limits.pages_bytes - limits.block_bytes);
  std::vector<std::byte> again;
  encode(*order, again);
  std::span<const std::byte> rest{again};
  require(decode_rank_order(rest, limits) == *order && rest.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span in{reinterpret_cast<const std::byte*>(data + 1), size - 1};
  switch (data[0] % 9) {
    case 0:
      frames(in);
      break;
    case 1:
      strangers(in);
      break;
    case 2: {
      const auto n = parse_notice(in);
      require(!n || n->pieces.size() <= shm_notice::pieces_max);
      break;
    }
    case 3:
      require(!parse_ack(in) || in.size() >= 16);
      break;
    case 4:
      require(!parse_packet(in) || in.size() >= 60);
      break;
    case 8:
      orders(in);
      break;
    case 5:
      if (const auto m = parse_message(in); m && m->is_notice)
        for (const auto& p : m->notice.pieces) require(p.index < m->notice.total_pieces);
      break;
    case 6:
      if (const auto c = parse_control(in)) require(encode_control(*c).size() == in.size());
      break;
    default:
      if (const auto a = decode_announcement(in)) {
        const auto again = decode_announcement(encode(*a));
        require(again && *again == *a);
      }
  }
  return 0;
}
