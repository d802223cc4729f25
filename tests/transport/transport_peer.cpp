// A node in a process of its own, for tests and benchmarks that kill it or must not share its caches. Speaks
// a small binary protocol on descriptor 3: it announces itself, is told of the parent, then follows orders.
//
//   transport_peer NODE BYTES PATH [SECRET]      PATH: shm | tcp | rdma

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/hash.hpp"
#include "tests/transport/peer_channel.hpp"
#include "transport/data_plane.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

// Taken by landings and by whoever looks at what landed. The parent orders the two, but through another
// process, where ThreadSanitizer does not look.
std::mutex memory_mutex;

int serve(data_plane& plane, const region_desc& mine, std::byte* base, const peer_channel& channel) {
  node_id parent;
  region_id theirs;
  std::atomic<std::uint64_t> next_id{1};
  for (;;) {
    const auto order = channel.receive();
    if (order.empty()) return 0;
    switch (static_cast<char>(order[0])) {
      case 'A': {  // the parent's announcement
        const auto a = decode_announcement(std::span{order}.subspan(1));
        if (!a || !plane.add_peer(a->address, a->regions)) return 2;
        parent = a->address.node;
        theirs = a->regions.at(0).id;
        channel.send("ok");
        break;
      }
      case 'C': {  // checksum of a part of our memory
        std::uint64_t at[2];
        std::memcpy(at, order.data() + 1, sizeof(at));
        std::lock_guard lock{memory_mutex};
        channel.send(std::to_string(checksum64({base + at[0], at[1]})));
        break;
      }
      case 'W': {  // write to the parent without end
        std::uint64_t length = 0;
        std::memcpy(&length, order.data() + 1, sizeof(length));
        for (int i = 0; i < 8; ++i) {
          auto again = std::make_shared<std::function<void()>>();
          *again = [&, length, again] {
            transfer t{transfer_id{next_id++}, parent, transfer_op::write, {}, {}, time_point::max()};
            t.slices = {{{mine.id, 0, length}, {theirs, 0, length}, {}}};
            plane.submit(t, [again](const completion& c) {
              if (c.outcome) (*again)();
            });
          };
          (*again)();
        }
        channel.send("ok");
        break;
      }
      default:
        return 3;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  const peer_channel channel{3};
  const auto bytes = static_cast<std::size_t>(std::strtoull(argv[2], nullptr, 10));
  data_plane_options o;
  o.node.value = std::strtoull(argv[1], nullptr, 10);
  o.cluster_secret = argc > 4 ? argv[4] : "the secret of the tests";
  const std::string path = argv[3];
  o.shm = path == "shm";
  o.tcp = path == "tcp";
  o.rdma.enabled = path == "rdma";
  const int fd = ::memfd_create("mooncaf-peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ::ftruncate(fd, static_cast<::off_t>(bytes)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return 1;
  auto* base = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  std::memset(base, 7, bytes);
  auto plane = data_plane::start(o, [](const landing&) { std::lock_guard lock{memory_mutex}; });
  if (!plane) return 1;
  const auto mine = (*plane)->register_region({base, bytes}, fd);
  if (!mine) return 1;
  const auto hello = encode((*plane)->local_announcement());
  channel.send(hello);
  return serve(**plane, *mine, base, channel);
}
