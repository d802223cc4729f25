#include "storage/objects/segment_lender.hpp"

#include "storage/arena.hpp"
#include "storage/objects/segment_door.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {

/// One life of the segment. Members die in reverse order: the memory outlives those who lead to it.
struct segment_lender::mounted {
  arena memory;
  std::unique_ptr<page_filler> filler;
  std::unique_ptr<segment_door> door;
  std::unique_ptr<data_plane> plane;
  std::shared_ptr<directory_link> link;
};

segment_lender::segment_lender(segment_lender_options options) : options_(std::move(options)) {}

result<std::unique_ptr<segment_lender>> segment_lender::start(segment_lender_options options) {
  std::unique_ptr<segment_lender> made{new segment_lender(std::move(options))};
  auto first = made->mount();
  if (!first) return fail(first.error());
  made->mounted_ = std::move(*first);
  made->keeper_ = std::thread{[self = made.get()] { self->keep(); }};
  return made;
}

segment_lender::~segment_lender() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  stopped_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

result<std::unique_ptr<segment_lender::mounted>> segment_lender::mount() const {
  auto link = directory_link::connect(options_.directory);  // first: without it there is nothing to do
  if (!link) return fail(link.error());
  auto memory = arena::create("mooncaf-segment", options_.bytes);
  if (!memory) return fail(memory.error());
  auto made =
      std::make_unique<mounted>(mounted{std::move(*memory), nullptr, nullptr, nullptr, std::move(*link)});
  made->filler = std::make_unique<page_filler>(made->memory.bytes());
  auto door = segment_door::open(options_.directory.secret, made->memory.fd());
  if (!door) return fail(door.error());
  made->door = std::move(*door);
  store_wire::segment_address address{made->door->name(), 0, {}};
  if (options_.tcp) {
    const auto number = make_random_u64();
    if (!number) return fail(number.error());
    data_plane_options plane;
    plane.node = node_id{*number};
    plane.cluster_secret = options_.directory.secret;
    plane.shm = false;  // processes of this host map the memory
    plane.listen_host = options_.listen_host;
    plane.data_port = options_.data_port;
    plane.advertised_host = options_.advertised_host;
    auto started = data_plane::start(std::move(plane), [](const landing&) {});
    if (!started) return fail(started.error());
    made->plane = std::move(*started);
    const auto region = made->plane->register_region(made->memory.bytes(), made->memory.fd());
    if (!region) return fail(region.error());
    address.region = region->id.value;
    address.announcement = encode(made->plane->local_announcement());
  }
  const auto answer = made->link->ask_and_wait(store_wire::op::mount, [&](byte_writer& out) {
    out.put_text(options_.name);
    out.put(static_cast<std::uint64_t>(made->memory.size_bytes()));
    store_wire::put_address(out, address);
  });
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  if (as_store_code(in.get<std::int32_t>()) != store_code::ok)
    return fail(ec::already_exists,
                "a segment named " + options_.name + " is mounted; give this process another --name");
  return made;
}

/// Asks now and then, because a directory that is only unreachable says nothing.
void segment_lender::keep() {
  const auto say = [&](const std::string& line) {
    if (options_.log) options_.log(line);
  };
  while (!wait(std::chrono::seconds(1))) {
    if (mounted_) {
      const auto heard = mounted_->link->ask_and_wait(store_wire::op::counts, [](byte_writer&) {});
      if (heard) continue;
      say("the directory is lost, and the contents with it: " + to_string(heard.error()));
      mounted_.reset();
    }
    auto again = mount();
    if (!again) continue;
    mounted_ = std::move(*again);
    say("mounted again, empty");
  }
  mounted_.reset();
}

/// @returns whether it is time to stop.
bool segment_lender::wait(duration d) {
  std::unique_lock lock{mutex_};
  return stopped_.wait_for(lock, d, [&] { return stopping_; });
}

}  // namespace mooncaf
