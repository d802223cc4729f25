// KV on its way between two real data planes: whatever the order in which layers, target and end become
// known, the decode side holds the same bytes.

#include "actors/kv_stream.hpp"

#include <algorithm>
#include <thread>

#include "actors/landing_board.hpp"
#include "runtime/sched/link_book.hpp"
#include "tests/conformance/transport_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

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

void compute(kv_stream& s, std::uint32_t start, std::uint32_t tokens) {
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
void compute(kv_stream& s, const device_pass& pass, std::uint32_t start, std::uint32_t tokens) {
  for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer) {
    pass.layer(s, layer, start, tokens);
    if (layer > 0) s.layer_ready(layer - 1, start, tokens);
  }
  s.layer_ready(layout.n_layers - 1, start, tokens);
  pass.end(s);
}

constexpr transfer_path paths[] = {transfer_path::shm, transfer_path::tcp};

}  // namespace

TEST_CASE("every row arrives, whether the slots are known before or after the layers are computed") {
  for (const auto path : paths) {
    for (const std::uint32_t tokens : {1u, 3u, 4u, 5u, 11u, 12u}) {
      for (int known_after = 0; known_after <= 2; ++known_after) {
        CAPTURE(to_string(path));
        CAPTURE(tokens);
        CAPTURE(known_after);
        stream_world w{path};
        w.open_board();
        const auto s = w.stream(tokens);
        if (known_after == 0) s->set_target(w.target(tokens));
        compute(*s, 0, tokens);
        if (known_after == 1) s->set_target(w.target(tokens));
        w.finish(*s);
        if (known_after == 2) s->set_target(w.target(tokens));
        CHECK(w.landed.take());
        CHECK(w.ended.take());
        CHECK(w.count == w.landings);
        CHECK(w.count == layout.n_layers);
        CHECK(s->fenced());
        CHECK(s->bytes_sent() == tokens * layout.bytes_per_token());
        w.check_rows(0, tokens);
      }
    }
  }
}

TEST_CASE("chunks may begin and end inside a block") {
  for (const auto path : paths) {
    CAPTURE(to_string(path));
    stream_world w{path};
    w.open_board();
    const auto s = w.stream(13);
    compute(*s, 0, 3);
    s->set_target(w.target(13));
    compute(*s, 3, 2);
    compute(*s, 5, 7);
    compute(*s, 12, 1);
    w.finish(*s);
    CHECK(w.landed.take());
    CHECK(w.ended.take());
    CHECK(w.count == 4 * layout.n_layers);
    CHECK(w.count == w.landings);
    w.check_rows(0, 13);
  }
}

TEST_CASE("of pages that are laid out by token layers leave together, as many as are worth a slice") {
  for (const auto path : paths) {
    for (const auto& [shape, groups] : {std::pair{layout, 1u}, {wide, 2u}}) {
      CAPTURE(to_string(path));
      CAPTURE(groups);
      stream_world w{path, 1, shape};
      w.pages = page_order::page_first;
      w.open_board();
      const auto s = w.stream(13);
      s->prefix_ready(6);
      compute(*s, 6, 3);
      s->set_target(w.target(13));
      compute(*s, 9, 4);
      w.finish(*s);
      CHECK(w.landed.take());
      CHECK(w.ended.take());
      CHECK(w.count == 1 + 2 * groups);
      CHECK(w.count == w.landings);
      CHECK(s->bytes_sent() == 13 * shape.bytes_per_token());
      w.check_rows(0, 13);
    }
  }
}

TEST_CASE("a pass that begins anew amid layers that leave together sends what it makes") {
  stream_world w{transfer_path::tcp, 1, wide};
  w.pages = page_order::page_first;
  w.open_board();
  const auto s = w.stream(13);
  s->set_target(w.target(13));
  s->layer_ready(0, 0, 13);
  s->layer_ready(0, 0, 8);  // it failed behind the first layer
  s->layer_ready(1, 0, 8);
  s->layer_ready(2, 0, 8);
  compute(*s, 8, 5);
  w.finish(*s);
  CHECK(w.landed.take());
  CHECK(w.ended.take());
  CHECK(s->bytes_sent() == 13 * wide.bytes_per_token());
  w.check_rows(0, 13);
}

TEST_CASE("layers that lie apart arrive whole and in rows, and nothing of the blocks between them does") {
  for (const auto path : paths) {
    stream_world w{path};
    w.pages = page_order::layer_first;
    w.open_board();
    const auto s = w.stream(13);
    s->prefix_ready(6);
    compute(*s, 6, 3);
    s->set_target(w.target(13));
    compute(*s, 9, 4);
    w.finish(*s);
    CHECK(w.landed.take());
    CHECK(w.ended.take());
    CHECK(w.count == 1 + 2 * layout.n_layers);
    w.check_rows(0, 13);
  }
}

TEST_CASE("blocks that the decode side has are not sent again") {
  for (const std::uint32_t have : {1u, 2u, 3u}) {
    CAPTURE(have);
    stream_world w{transfer_path::shm};
    w.open_board();
    const auto s = w.stream(14);
    s->prefix_ready(8);
    s->set_target(w.target(14, have));
    compute(*s, 8, 2);  // wholly in a block that is there already when it has three
    compute(*s, 10, 4);
    w.finish(*s);
    CHECK(w.landed.take());
    CHECK(w.ended.take());
    CHECK(w.count == w.landings);
    CHECK(s->bytes_sent() == (14 - 4 * have) * layout.bytes_per_token());
    w.check_rows(4 * have, 14);
  }
}

TEST_CASE("a stream of which the decode side has every block ends without a transfer") {
  stream_world w{transfer_path::tcp};
  w.open_board();
  const auto s = w.stream(8);
  s->set_target(w.target(8, 2));
  compute(*s, 0, 8);
  w.finish(*s);
  CHECK(w.landed.take());
  CHECK(w.ended.take());
  CHECK(w.count == 0);
  CHECK(s->bytes_sent() == 0);
  w.check_rows(8, 8);
}

TEST_CASE("a reused prefix leaves in one transfer of all layers") {
  for (const auto path : paths) {
    CAPTURE(to_string(path));
    stream_world w{path};
    w.open_board();
    const auto s = w.stream(10);
    s->prefix_ready(8);
    compute(*s, 8, 2);
    w.finish(*s);
    CHECK(w.landed.size() == 0);
    s->set_target(w.target(10));
    CHECK(w.landed.take());
    CHECK(w.ended.take());
    CHECK(w.count == 1 + layout.n_layers);
    w.check_rows(0, 10);
  }
}

TEST_CASE("only the first target counts") {
  stream_world w{transfer_path::shm};
  w.open_board();
  const auto s = w.stream(4);
  s->set_target(w.target(4));
  auto other = w.target(4);
  other.offsets = {50 * stride};
  s->set_target(other);
  compute(*s, 0, 4);
  w.finish(*s);
  CHECK(w.landed.take());
  CHECK(w.ended.take());
  w.check_rows(0, 4);
}

TEST_CASE("a stopped stream ends once, with false, at whatever moment it is stopped") {
  for (const auto path : paths) {
    for (int moment = 0; moment < 5; ++moment) {
      CAPTURE(to_string(path));
      CAPTURE(moment);
      stream_world w{path};
      const auto s = w.stream(12);
      if (moment >= 1) compute(*s, 0, 8);
      if (moment >= 2) {
        // Held back, so that the stop meets transfers under way.
        w.faults.set([](transfer_path, transfer_id, std::uint32_t) {
          return fault{fault::kind::delay, std::chrono::milliseconds(1)};
        });
        s->set_target(w.target(12));
      }
      if (moment >= 3) compute(*s, 8, 4);
      s->stop();
      if (moment >= 4) s->stop();
      CHECK(!w.ended.take());
      CHECK(s->fenced());
      const auto sent = s->bytes_sent();
      s->set_target(w.target(12));
      compute(*s, 0, 12);
      bool counted = false;
      s->finish([&](std::uint32_t) { counted = true; });
      s->stop();
      CHECK(!counted);
      CHECK(s->bytes_sent() == sent);
      CHECK(w.ended.size() == 0);
    }
  }
}

TEST_CASE("stopping a stream that was delivered changes nothing") {
  stream_world w{transfer_path::shm};
  w.open_board();
  const auto s = w.stream(5);
  s->set_target(w.target(5));
  compute(*s, 0, 5);
  w.finish(*s);
  CHECK(w.ended.take());
  s->stop();
  CHECK(w.ended.size() == 0);
  CHECK(w.landed.take());
}

TEST_CASE("bytes that are corrupted on the way end the stream and the wait for it, both with false") {
  for (const auto path : paths) {
    CAPTURE(to_string(path));
    stream_world w{path};
    w.faults.set([](transfer_path, transfer_id id, std::uint32_t) {
      return id.value == 2 ? fault{fault::kind::corrupt, {}} : fault{};
    });
    w.open_board();
    const auto s = w.stream(8);
    s->set_target(w.target(8));
    compute(*s, 0, 8);
    w.finish(*s);
    CHECK(!w.landed.take());
    CHECK(!w.ended.take());
    CHECK(s->fenced());
    CHECK(w.board.size() == 0);
  }
}

TEST_CASE("a target on a node that nobody knows ends the stream with false") {
  stream_world w{transfer_path::tcp};
  const auto s = w.stream(8);
  auto nowhere = w.target(8);
  nowhere.node = node_id{99};
  compute(*s, 0, 8);
  s->set_target(nowhere);
  CHECK(!w.ended.take());
  CHECK(s->fenced());
  CHECK(w.ended.size() == 0);
}

TEST_CASE("layers leave from the device while its pass has them, once each, and the rest from memory") {
  for (const auto path : paths) {
    for (const auto& [known_before, pages] : {std::pair{true, page_order::page_first_direct},
                                              {false, page_order::page_first_direct},
                                              {true, page_order::layer_first}}) {
      CAPTURE(to_string(path));
      CAPTURE(known_before);
      stream_world w{path};
      w.pages = pages;
      w.open_board();
      const shared_memory device{64 * stride};
      const auto s = w.stream(13, w.device(device));
      s->prefix_ready(3);
      if (known_before) s->set_target(w.target(13));
      compute(*s, device_pass{w, device, 8}, 3, 5);
      s->set_target(w.target(13));
      compute(*s, device_pass{w, device, 13}, 8, 5);
      w.finish(*s);
      CHECK(w.landed.take());
      CHECK(w.ended.take());
      CHECK(w.sent_directly == (known_before ? 10 : 5) * layout.bytes_per_token());
      CHECK(s->bytes_sent() == 13 * layout.bytes_per_token());
      CHECK(w.count == w.landings);
      w.check_rows(0, 13);
    }
  }
}

TEST_CASE("pages that are laid out by token leave from memory, since the device's blocks are not") {
  stream_world w{transfer_path::tcp};
  w.pages = page_order::page_first;
  w.open_board();
  const shared_memory device{64 * stride};
  const auto s = w.stream(13, w.device(device));
  s->set_target(w.target(13));
  compute(*s, device_pass{w, device, 13}, 0, 13);
  w.finish(*s);
  CHECK(w.ended.take());
  CHECK(w.landed.take());
  CHECK(w.sent_directly == 0);
  w.check_rows(0, 13);
}

TEST_CASE("what no NIC reads leaves from memory, and lands once") {
  for (const auto path : paths) {
    CAPTURE(to_string(path));
    stream_world w{path};
    w.open_board();
    const shared_memory device{64 * stride};
    const auto s = w.stream(13, w.refused_device(device));
    s->set_target(w.target(13));
    compute(*s, device_pass{w, device, 13}, 0, 6);
    compute(*s, device_pass{w, device, 13}, 6, 7);
    w.finish(*s);
    CHECK(w.landed.take());
    CHECK(w.ended.take());
    CHECK(w.sent_directly == 0);
    CHECK(s->bytes_sent() == 13 * layout.bytes_per_token());
    CHECK(w.count == w.landings);
    w.check_rows(0, 13);
  }
}

TEST_CASE("a pass that fails keeps its device's blocks until nothing reads them") {
  stream_world w{transfer_path::tcp};
  const shared_memory device{64 * stride};
  const auto s = w.stream(8, w.device(device));
  w.faults.set([](transfer_path, transfer_id, std::uint32_t) {
    return fault{fault::kind::delay, std::chrono::milliseconds(1)};
  });
  s->set_target(w.target(8));
  const device_pass pass{w, device, 8};
  pass.layer(*s, 0, 0, 8);
  s->stop();
  s->let_go();
  CHECK(w.from->transfers_in_flight() == 0);
  CHECK(!w.ended.take());
}

TEST_CASE("any schedule over several threads delivers the same bytes") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    stream_world w{random() % 2 ? transfer_path::shm : transfer_path::tcp, seed};
    w.open_board();
    const auto tokens = static_cast<std::uint32_t>(1 + random() % 40);
    const auto blocks = static_cast<std::uint32_t>(layout.blocks_for(tokens));
    const auto have = static_cast<std::uint32_t>(random() % (blocks + 1));
    const auto reused =
        static_cast<std::uint32_t>(random() % (tokens / layout.block_tokens + 1)) * layout.block_tokens;
    const auto stops = random() % 4 == 0;
    std::vector<std::uint32_t> chunks;
    for (auto at = reused; at < tokens;) {
      chunks.push_back(std::min<std::uint32_t>(tokens - at, static_cast<std::uint32_t>(1 + random() % 9)));
      at += chunks.back();
    }
    const shared_memory device{64 * stride};
    const auto reach = random() % 3;
    const auto s = w.stream(tokens, reach == 0   ? std::nullopt
                                    : reach == 1 ? std::optional{w.device(device)}
                                                 : std::optional{w.refused_device(device)});
    std::thread computes{[&] {
      if (reused > 0) s->prefix_ready(reused);
      auto at = reused;
      for (const auto chunk : chunks) {
        compute(*s, device_pass{w, device, at + chunk}, at, chunk);
        at += chunk;
      }
      w.finish(*s);
    }};
    std::thread decodes{[&, delay = random() % 200] {
      for (std::uint64_t i = 0; i < delay; ++i) std::this_thread::yield();
      s->set_target(w.target(tokens, have));
    }};
    std::thread cancels{[&, delay = random() % 200] {
      for (std::uint64_t i = 0; i < delay; ++i) std::this_thread::yield();
      if (stops) s->stop();
    }};
    computes.join();
    decodes.join();
    cancels.join();
    const bool delivered = w.ended.take();
    if (!stops) {
      CHECK(delivered);
    }
    if (delivered) {
      CHECK(w.landed.take());
      CHECK(w.count == w.landings);
      w.check_rows(std::min(have * layout.block_tokens, tokens), tokens);
      w.check_pieces(std::min(have * layout.block_tokens, tokens), tokens);
    }
    CHECK(w.ended.size() == 0);
  }
}

TEST_CASE("the board calls once, whichever of count and landings comes last") {
  for (int expected_after = 0; expected_after <= 3; ++expected_after) {
    CAPTURE(expected_after);
    landing_board board;
    std::vector<bool> calls;
    board.open(5, [&](bool complete) { calls.push_back(complete); });
    for (int i = 0; i <= 3; ++i) {
      if (i == expected_after) board.expect(5, 3);
      if (i < 3) board.landed(5, true);
    }
    CHECK(calls == std::vector<bool>{true});
    board.landed(5, true);
    board.landed(5, false);
    board.expect(5, 0);
    CHECK(calls.size() == 1);
    CHECK(board.size() == 0);
  }
}

TEST_CASE("the board ignores what belongs to nobody, and forgets who is closed") {
  landing_board board;
  std::vector<bool> calls;
  board.landed(1, true);
  board.expect(1, 0);
  board.open(1, [&](bool complete) { calls.push_back(complete); });
  board.landed(1, true);
  board.close(1);
  board.landed(1, false);
  board.expect(1, 1);
  CHECK(calls.empty());
  // A new life of the same owner starts from zero.
  board.open(1, [&](bool complete) { calls.push_back(complete); });
  board.expect(1, 1);
  CHECK(calls.empty());
  board.landed(1, true);
  CHECK(calls == std::vector<bool>{true});
}

TEST_CASE("who takes pieces on hears of each that is right, before it is complete, and of none after") {
  landing_board board;
  std::vector<kv_piece> pieces;
  std::size_t at_end = 0;
  board.open(
      1, [&](bool complete) { at_end = complete ? pieces.size() : 99; },
      [&](const kv_piece& p) { pieces.push_back(p); });
  const kv_piece first{0, 0, 9}, second{1, 0, 9}, all{0, 9, 12, 2};
  for (const auto& p : {first, second}) board.landed(1, true, p);
  board.expect(1, 3);
  board.landed(1, true, all);
  board.landed(1, true, first);
  CHECK(pieces == std::vector{first, second, all});
  CHECK(at_end == 3);
  // A corrupt piece is nobody's; a piece callback may close its owner.
  board.open(
      2, [](bool complete) { CHECK_FALSE(complete); }, [](const kv_piece&) { FAIL("it was corrupt"); });
  board.landed(2, false, first);
  board.open(
      3, [](bool) { FAIL("it was closed"); }, [&](const kv_piece&) { board.close(3); });
  board.expect(3, 1);
  board.landed(3, true, first);
  CHECK(board.size() == 0);
}

TEST_CASE("nothing to wait for is complete at once") {
  landing_board board;
  std::vector<bool> calls;
  board.open(1, [&](bool complete) { calls.push_back(complete); });
  board.expect(1, 0);
  CHECK(calls == std::vector<bool>{true});
}
