#pragma once
// A prefill and a decode node over real data planes, between which KV streams: of a host, or of a device that
// NICs read.

#include <algorithm>
#include <thread>

#include "runtime/compute/kv_stream.hpp"
#include "runtime/compute/landing_board.hpp"
#include "runtime/sched/link_book.hpp"
#include "tests/conformance/transport_world.hpp"

namespace mooncaf::test {

constexpr kv_layout layout{
    .n_layers = 3, .n_kv_heads = 2, .head_dim = 8, .block_tokens = 4, .dtype = kv_dtype::f16};
constexpr std::size_t stride = 4096;
/// … with 24 KiB of a token, so that not all of its layers leave together where they lie side by side.
constexpr kv_layout wide{
    .n_layers = 3, .n_kv_heads = 2, .head_dim = 1024, .block_tokens = 4, .dtype = kv_dtype::f16};
constexpr attempt_id attempt{request_id{77}, 1};

/// A prefill and a decode node with a link of one kind between them, and a board where landings count.
struct stream_world {
  explicit stream_world(transfer_path path, std::uint64_t seed = 1, const kv_layout& of_blocks = layout)
      : blocks(of_blocks) {
    auto from_options = plain_options(1), to_options = plain_options(2);
    from_options.faults = &faults;
    for (auto* o : {&from_options, &to_options}) {
      if (path == transfer_path::tcp) o->shm = false;
      if (path == transfer_path::shm) o->tcp = false;
    }
    from = open(from_options, from_memory, [](const landing&) {});
    to = open(to_options, to_memory, [this](const landing& l) {
      landings.fetch_add(1);
      board.landed(l.tag.request.value, l.verified, piece_of(l.tag));
    });
    const auto there = to->local_announcement();
    const auto here = from->local_announcement();
    REQUIRE(from->add_peer(there.address, there.regions));
    REQUIRE(to->add_peer(here.address, here.regions));
    REQUIRE(from->preferred_path(node_id{2}) == path);
    from_memory.fill(seed);
    slots = region_of(*from);
  }
  ~stream_world() {
    from.reset();
    to.reset();
  }

  static std::shared_ptr<data_plane> open(const data_plane_options& options, const shared_memory& memory,
                                          landing_handler on_landing) {
    auto started = data_plane::start(options, std::move(on_landing));
    REQUIRE_MESSAGE(started, to_string(started.error()));
    REQUIRE((*started)->register_region(memory.bytes(), memory.fd()));
    return std::move(*started);
  }
  static region_id region_of(const data_plane& plane) {
    return plane.local_announcement().regions.front().id;
  }

  kv_layout shape() const {
    auto l = blocks;
    l.pages = pages;
    return l;
  }
  /// A device whose KV lies where `memory` does, in other blocks than the host's. Memory of the host is
  /// reached over every path, as a device's is by NICs.
  kv_stream::device_source device(const shared_memory& memory) {
    const auto region = from->register_region(memory.bytes(), memory.fd());
    REQUIRE(region);
    return reached(region->id, memory.bytes().data());
  }
  /// … that nothing reaches.
  kv_stream::device_source refused_device(const shared_memory& memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.bytes().data());
    const auto region = from->register_device_region({.address = address, .length = memory.bytes().size()});
    REQUIRE(region);
    return reached(region->id, memory.bytes().data());
  }
  kv_stream::device_source reached(region_id region, std::byte* base) {
    return {region,
            {base},
            [](node_id peer) { return peer == node_id{2}; },
            [this](std::uint64_t bytes) { sent_directly += bytes; }};
  }
  /// A stream of `tokens` positions from slots in descending order, so that a mistaken slot shows.
  std::shared_ptr<kv_stream> stream(std::uint32_t tokens,
                                    std::optional<kv_stream::device_source> on_device = std::nullopt) {
    kv_stream::source source;
    source.device = std::move(on_device);
    source.region = slots;
    source.prompt_tokens = tokens;
    for (std::uint32_t b = 0; b < layout.blocks_for(tokens); ++b) source.offsets.push_back(from_offset(b));
    return std::make_shared<kv_stream>(attempt, shape(), from, ids, std::make_shared<link_book>(),
                                       std::move(source), [this](bool delivered) { ended.put(delivered); });
  }
  kv_target target(std::uint32_t tokens, std::uint32_t have_blocks = 0) const {
    kv_target t;
    t.id = attempt;
    t.node = node_id{2};
    t.region = region_of(*to);
    t.have_blocks = have_blocks;
    for (auto b = have_blocks; b < layout.blocks_for(tokens); ++b) t.offsets.push_back(to_offset(b));
    return t;
  }
  void open_board() {
    board.open(
        attempt.owner(), [this](bool complete) { landed.put(complete); },
        [this](const kv_piece& what) {
          const std::lock_guard lock{pieces_mutex};
          pieces.push_back(what);
        });
  }
  /// Acknowledged by the decode node.
  std::uint64_t bytes_sent() const {
    std::uint64_t sum = 0;
    for (const auto& path : from->stats()) sum += path.bytes_written;
    return sum;
  }
  /// Ends the stream as a worker does, and lets the board know the count.
  void finish(kv_stream& s) {
    s.finish([this](std::uint32_t transfers) {
      count = transfers;
      board.expect(attempt.owner(), transfers);
    });
  }

  /// The board was told of each of positions [first, tokens) in each layer once.
  void check_pieces(std::uint32_t first, std::uint32_t tokens) {
    const std::lock_guard lock{pieces_mutex};
    std::vector<int> told(layout.n_layers * tokens), wanted(told.size());
    for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) {
      for (auto at = first; at < tokens; ++at) wanted[layer * tokens + at] = 1;
      for (const auto& p : pieces) {
        if (layer < p.layer || layer >= p.layer + p.layers) continue;
        for (auto at = p.first; at < p.last; ++at) ++told.at(layer * tokens + at);
      }
    }
    CHECK(told == wanted);
  }

  std::uint64_t from_offset(std::uint32_t b) const { return shape().pieces().offset(60 - b); }
  std::uint64_t to_offset(std::uint32_t b) const { return shape().pieces().offset(3 + 2 * b); }

  /// Every row of positions [first, tokens) is there; every other byte of the region is still zero.
  void check_rows(std::uint32_t first, std::uint32_t tokens) const {
    std::vector<std::byte> wanted(to_memory.bytes().size());
    const auto order = shape().page();
    for (auto p = first; p < tokens; ++p) {
      const auto block = p / layout.block_tokens;
      for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) {
        for (std::uint32_t head = 0; head < layout.n_kv_heads; ++head) {
          for (const bool value : {false, true}) {
            const auto at = order.offset(layer, 2 * head + (value ? 1 : 0), p % layout.block_tokens);
            std::memcpy(wanted.data() + to_offset(block) + at,
                        from_memory.bytes().data() + from_offset(block) + at, blocks.row_bytes());
          }
        }
      }
    }
    const auto got = to_memory.bytes();
    const auto differs = std::mismatch(wanted.begin(), wanted.end(), got.begin()).first - wanted.begin();
    CHECK_MESSAGE(static_cast<std::size_t>(differs) == wanted.size(), "first difference at byte " << differs);
  }

  page_order pages = page_order::page_first_direct;
  const kv_layout blocks;
  shared_memory from_memory{64 * std::max(stride, blocks.block_bytes())};
  shared_memory to_memory{64 * std::max(stride, blocks.block_bytes())};
  scripted_faults faults;
  landing_board board;
  mailbox<bool> landed;
  mailbox<bool> ended;
  std::mutex pieces_mutex;
  std::vector<kv_piece> pieces;  ///< that landed, as the board told
  std::atomic<std::uint64_t> sent_directly{0};
  region_id slots;  ///< here
  std::atomic<std::uint32_t> landings{0};
  std::atomic<std::uint32_t> count{0};
  std::shared_ptr<std::atomic<std::uint64_t>> ids = std::make_shared<std::atomic<std::uint64_t>>(1);
  std::shared_ptr<data_plane> from, to;
};

inline void compute(kv_stream& s, std::uint32_t start, std::uint32_t tokens) {
  for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) s.layer_ready(layer, start, tokens);
}

/// A pass on a device whose block b holds what `w` has in its slot of block b, until the pass ends. Then they
/// are somebody else's.
class device_pass {
 public:
  device_pass(const stream_world& w, const shared_memory& device, std::uint32_t tokens) : device_(device) {
    for (std::uint32_t b = 0; b < layout.blocks_for(tokens); ++b) {
      blocks_.push_back({device.bytes().data() + (b + 1) * layout.block_bytes()});
      const auto* page = w.from_memory.bytes().data() + w.from_offset(b);
      for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
        std::memcpy(blocks_[b].at + layout.offset(layer, 0, false, 0),
                    page + w.shape().page().offset(layer, 0, 0), layout.layer_bytes());
    }
  }
  void layer(kv_stream& s, std::uint32_t layer, std::uint32_t start, std::uint32_t tokens) const {
    s.on_device(layer, start, tokens, blocks_);
  }
  void end(kv_stream& s) const {
    s.let_go();
    std::ranges::fill(device_.bytes(), std::byte{0xEE});
  }

 private:
  const shared_memory& device_;
  std::vector<device_bytes> blocks_;
};

/// Every layer on the device first and in memory behind it.
inline void compute(kv_stream& s, const device_pass& pass, std::uint32_t start, std::uint32_t tokens) {
  for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) {
    pass.layer(s, layer, start, tokens);
    if (layer > 0) s.layer_ready(layer - 1, start, tokens);
  }
  s.layer_ready(layout.n_layers - 1, start, tokens);
  pass.end(s);
}

constexpr transfer_path paths[] = {transfer_path::shm, transfer_path::tcp};

}  // namespace mooncaf::test
