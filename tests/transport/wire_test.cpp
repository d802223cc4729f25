#include "transport/tcp/wire.hpp"

#include <doctest/doctest.h>

#include <random>

#include "transport/shm/shm_wire.hpp"

using namespace mooncaf;

TEST_CASE("a frame header survives the wire") {
  frame_header h;
  h.type = frame_type::write_data;
  h.has_checksum = true;
  h.more = true;
  h.payload_bytes = 4096;
  h.index = 3;
  h.count = 9;
  h.id.value = 77;
  h.total_bytes = 1 << 20;
  h.target = {region_id{5}, 12345, 4096};
  h.access_key = 0xABCDEF;
  h.checksum = 42;
  h.tag = {request_id{1}, 2, 3, 4};
  const auto back = parse_frame(encode_frame(h));
  REQUIRE(back);
  CHECK(back->type == h.type);
  CHECK(back->has_checksum);
  CHECK(back->more);
  CHECK(back->target == h.target);
  CHECK(back->access_key == h.access_key);
  CHECK(back->checksum == h.checksum);
  CHECK(back->tag == h.tag);
  CHECK(back->index == 3);
  CHECK(back->count == 9);
  CHECK(back->total_bytes == h.total_bytes);
}

TEST_CASE("frames that break a limit are refused") {
  frame_header h;
  h.id.value = 1;
  h.count = 1;
  const auto refused = [](frame_header x) {
    const auto r = parse_frame(encode_frame(x));
    return !r && r.error() == ec::corrupt;
  };
  CHECK(!refused(h));
  auto bad = h;
  bad.payload_bytes = data_payload_max + 1;
  bad.total_bytes = bad.payload_bytes;
  CHECK(refused(bad));
  bad = h;
  bad.index = 1;
  CHECK(refused(bad));
  bad = h;
  bad.count = transfer_pieces_max + 1;
  CHECK(refused(bad));
  bad = h;
  bad.id = {};
  CHECK(refused(bad));
  bad = h;
  bad.type = frame_type::cancel;
  bad.payload_bytes = control_payload_max + 1;
  CHECK(refused(bad));
  bad = h;
  bad.type = frame_type::read_request;
  bad.count = 2;
  bad.payload_bytes = read_entry_bytes;
  CHECK(refused(bad));
}

TEST_CASE("random bytes never parse into something out of bounds") {
  std::mt19937_64 random{17};
  for (int i = 0; i < 20000; ++i) {
    frame_header_buffer bytes;
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    if (i % 2 == 0) {
      const auto valid = encode_frame({.id = transfer_id{1}});
      std::copy(valid.begin(), valid.begin() + 4, bytes.begin());
      bytes[4] = static_cast<std::byte>(1 + random() % 7);
      bytes[5] = bytes[6] = bytes[7] = std::byte{0};
    }
    if (const auto h = parse_frame(bytes)) CHECK(h->payload_bytes <= data_payload_max);
    parse_notice(bytes);
    parse_ack(bytes);
    parse_packet(bytes);
  }
}

TEST_CASE("read entries, notices, acknowledgements and packets survive the wire") {
  const read_entry entries[] = {{1, {region_id{2}, 3, 4}, 5}, {6, {region_id{7}, 8, 9}, 10}};
  const auto parsed = parse_read_entries(encode_read_entries(entries), 2);
  REQUIRE(parsed);
  CHECK((*parsed)[1].source == entries[1].source);
  CHECK((*parsed)[1].access_key == 10);
  CHECK(!parse_read_entries(encode_read_entries(entries), 3));

  std::vector<std::byte> bytes;
  shm_notice n;
  n.id.value = 5;
  n.tag = {request_id{1}, 2, 3, 4};
  n.total_bytes = 99;
  n.last = n.has_checksums = true;
  n.pieces = {{{region_id{1}, 2, 3}, region_id{5}, 6}};
  n.sums = {7, 8};
  encode_notice(n, bytes);
  const auto notice = parse_notice(bytes);
  REQUIRE(notice);
  CHECK(notice->tag == n.tag);
  CHECK(notice->last);
  CHECK(!notice->abandoned);
  CHECK(notice->pieces.at(0).at == n.pieces[0].at);
  CHECK(notice->pieces[0].source_offset == 6);
  CHECK(notice->sums == n.sums);
  bytes.pop_back();
  CHECK(!parse_notice(bytes));

  encode_ack({transfer_id{9}, {ec::corrupt, std::string(1000, 'x')}}, bytes);
  const auto ack = parse_ack(bytes);
  REQUIRE(ack);
  CHECK(ack->outcome == ec::corrupt);
  CHECK(ack->outcome.detail.size() == shm_ack::detail_max);

  shm_packet p{
      .type = shm_packet_type::map_reply, .region = region_id{3}, .status = ec::not_found, .detail = "gone"};
  const auto packet = parse_packet(encode_packet(p));
  REQUIRE(packet);
  CHECK(packet->status == ec::not_found);
  CHECK(packet->detail == "gone");
}
