// Everything that a client of the object store may send once it has proved itself: a stream of frames, to a
// directory that has a segment. Whatever it is, the books stay right, and no byte is held after the client
// has gone.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "storage/objects/directory/directory_core.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void ask(directory_core& core, std::uint64_t session, store_wire::op what,
         const std::vector<std::byte>& payload) {
  std::vector<std::byte> out;
  require(core.answer(session, {static_cast<std::uint32_t>(payload.size()), 1, what}, payload, {}, out));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  object_table_options options;
  options.eviction = static_cast<eviction_policy>(size % 4);
  directory_core core{options};
  const auto session = core.open();
  std::vector<std::byte> hello, mount;
  byte_writer greeting{hello}, mounting{mount};
  greeting.put(store_wire::oldest);
  greeting.put_text("host");
  greeting.put(std::uint8_t{0});
  ask(core, session, store_wire::op::hello, hello);
  mounting.put_text("segment");
  mounting.put(std::uint64_t{1} << 20);
  store_wire::put_address(mounting, {});
  store_wire::put_former(mounting, {});
  ask(core, session, store_wire::op::mount, mount);

  auto in = std::as_bytes(std::span{data, size});
  time_point now{std::chrono::hours(1)};
  while (in.size() >= store_wire::header_bytes) {
    const auto header = store_wire::parse_header(in.first<store_wire::header_bytes>());
    in = in.subspan(store_wire::header_bytes);
    if (!header || header->payload_bytes > in.size()) break;
    std::vector<std::byte> out;
    if (!core.answer(session, *header, in.first(header->payload_bytes), now, out)) break;
    core.deliver([](const directory_core::outgoing&) {});
    if (!out.empty())
      require(store_wire::parse_header(std::span{out}.first<store_wire::header_bytes>())->number ==
              header->number);
    in = in.subspan(header->payload_bytes);
    core.tick(now += std::chrono::milliseconds(1));
  }
  require(core.consistent());
  core.close(session, now);
  core.tick(now + std::chrono::hours(1));
  require(core.counts().free_bytes == core.counts().total_bytes);
  return 0;
}
