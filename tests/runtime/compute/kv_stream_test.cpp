// KV on its way between two real data planes: whatever the order in which layers, target and end become
// known, the decode side holds the same bytes.

#include <algorithm>
#include <thread>

#include "tests/runtime/compute/kv_stream_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

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
        CHECK(w.bytes_sent() == tokens * layout.bytes_per_token());
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
      CHECK(w.bytes_sent() == 13 * shape.bytes_per_token());
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
  CHECK(w.bytes_sent() == 13 * wide.bytes_per_token());
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
    CHECK(w.bytes_sent() == (14 - 4 * have) * layout.bytes_per_token());
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
  CHECK(w.bytes_sent() == 0);
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
      const auto sent = w.bytes_sent();
      s->set_target(w.target(12));
      compute(*s, 0, 12);
      bool counted = false;
      s->finish([&](std::uint32_t) { counted = true; });
      s->stop();
      CHECK(!counted);
      CHECK(w.bytes_sent() == sent);
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
      CHECK(w.bytes_sent() == 13 * layout.bytes_per_token());
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
    CHECK(w.bytes_sent() == 13 * layout.bytes_per_token());
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
