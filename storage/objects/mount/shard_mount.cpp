#include "storage/objects/mount/shard_mount.hpp"

#include <algorithm>

#include "storage/arena.hpp"
#include "storage/objects/segment/descriptor_endpoint.hpp"
#include "storage/objects/segment/segment_endpoint.hpp"
#include "storage/objects/segment/shared_ledger.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {

/// One life of the segment. Members die in reverse order, so the memory outlives everything that leads to it.
struct shard_mount::life {
  explicit life(arena m) : memory(std::move(m)), ledger(memory.bytes()) {}
  std::size_t objects() {
    return ledger.with([](segment_ledger& l) { return l.objects(); });
  }

  arena memory;
  shared_ledger ledger;
  std::unique_ptr<page_filler> filler;
  std::unique_ptr<descriptor_endpoint> descriptors;
  std::unique_ptr<data_plane> plane;
  store_wire::segment_address address;
  std::unique_ptr<segment_endpoint> endpoint;
  std::uint64_t incarnation = 0;  ///< of the directory that knows it
};

shard_mount::shard_mount(segment_mount_options options, std::uint32_t shards, std::function<void()> wrong)
    : options_(std::move(options)), shards_(shards), wrong_(std::move(wrong)), worker_(options_.directory) {
  // A directory that only stands still is waited for: others hold the same memory, and nothing is lost yet.
  options_.directory.time_limit = std::chrono::minutes(10);
  options_.directory.spin = {};  // clients wait for this process only when they remove something
}

result<std::unique_ptr<shard_mount>> shard_mount::start(segment_mount_options options, std::uint32_t shards,
                                                        std::function<void()> wrong) {
  std::unique_ptr<shard_mount> made{new shard_mount(std::move(options), shards, std::move(wrong))};
  if (const auto first = made->mount(); !first) return fail(first.error());
  made->keeper_ = std::thread{[self = made.get()] { self->keep(); }};
  return made;
}

void shard_mount::stop() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    if (link_) link_->close();
  }
  stopped_.notify_all();
}

shard_mount::~shard_mount() {
  stop();
  if (keeper_.joinable()) keeper_.join();
}

// Each life has fresh memory and a data plane of its own: a client that knows places of a former one cannot
// reach it.
result<std::unique_ptr<shard_mount::life>> shard_mount::begin_life() const {
  auto memory = arena::create("mooncaf-segment", options_.bytes);
  if (!memory) return fail(memory.error());
  auto made = std::make_unique<life>(std::move(*memory));
  made->ledger.with([this](segment_ledger& l) { l.begin_draining(draining_); });
  // Shared memory belongs to the other user at first, so its pages come when they are touched.
  if (options_.shared_bytes == 0) made->filler = std::make_unique<page_filler>(made->memory.bytes());
  auto descriptors = descriptor_endpoint::open(options_.directory.secret, made->memory.fd());
  if (!descriptors) return fail(descriptors.error());
  made->descriptors = std::move(*descriptors);
  made->address.unix_name = made->descriptors->name();
  if (!options_.tcp) return made;
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
  made->address.region = region->id.value;
  made->address.announcement = encode(made->plane->local_announcement());
  return made;
}

// The directory may refuse the contents, or know another life of this segment: then it begins again, empty,
// and is offered once more.
result<void> shard_mount::mount() {
  forget_mounted();
  if (options_.disk) options_.disk->end_work();
  disk_ = 0;
  auto link = directory_link::connect(options_.directory);  // first: without it there is nothing to do
  const bool fits = link && (*link)->welcome().shard == shard_place{options_.directory.shard, shards_};
  if (link ? !fits : shards_ > 1 && link.error() == ec::incompatible) {
    if (wrong_) wrong_();
    return fail(ec::peer_lost, "the directory has another number of shards by now");
  }
  if (!link) return fail(link.error());
  {
    std::lock_guard lock{mutex_};
    if (stopping_) return fail(ec::cancelled, "the segment is being taken back");
    link_ = *link;
  }
  if (life_ && life_->incarnation == (*link)->incarnation()) {
    say("the directory had given this segment up: it begins again, empty");
    begin_again();
  }
  for (;;) {
    if (!life_) {
      auto made = begin_life();
      if (!made) return fail(made.error());
      life_ = std::move(*made);
    }
    if (((*link)->welcome().tenants || options_.tcp) && !life_->endpoint)
      if (auto opened = open_endpoint(); !opened) return opened;
    const auto code = offer(**link);
    if (!code) return fail(code.error());
    if (*code == store_code::ok) break;
    if (*code == store_code::not_supported)
      return fail(ec::unauthenticated, "a tenant mounts no memory: others' objects would lie in it");
    if (*code != store_code::segment_not_found)
      return fail(ec::already_exists,
                  "a segment named " + options_.name + " is mounted; give this process another --name");
    say("the directory does not take the contents: the segment begins again, empty");
    begin_again();
  }
  const bool known = life_->incarnation != 0;
  life_->incarnation = (*link)->incarnation();
  if (known)
    if (const auto told = announce(**link); !told) return told;
  {
    std::lock_guard lock{punching_};
    mounted_ = {life_, *link};
  }
  return options_.disk ? mount_disk(*link) : result<void>{};
}

std::optional<boundary_report> shard_mount::withhold(std::uint64_t bytes) {
  const auto now = [&] {
    std::lock_guard lock{punching_};
    return mounted_;
  }();
  if (!now.of) return std::nullopt;
  const auto segment = now.of->ledger.with([](segment_ledger& l) { return l.former().segment; });
  const auto answer = now.link->ask_and_wait(store_wire::op::withhold, [&](byte_writer& out) {
    out.put(segment);
    out.put(bytes);
  });
  if (!answer) return std::nullopt;
  byte_reader in{*answer};
  if (as_store_code(in.get<std::int32_t>()) != store_code::ok) return std::nullopt;
  const auto stands = store_wire::get_withheld(in);
  std::lock_guard lock{punching_};
  if (!in.ok() || mounted_.link != now.link)
    return std::nullopt;  // another directory may place something there
  for (const auto& run : stands.fresh)
    if (!give_pages_back(now.of->memory, run.offset, run.bytes)) return std::nullopt;
  return stands.report;
}

/// The segment's objects are gone; its own state, such as draining, stays.
void shard_mount::begin_again() {
  forget_mounted();
  draining_ = life_->ledger.with([](segment_ledger& l) { return l.former().draining; });
  life_.reset();
}

result<void> shard_mount::open_endpoint() {
  const std::string host = options_.tcp ? options_.listen_host : "127.0.0.1";
  auto opened =
      segment_endpoint::open(options_.directory.secret, host, options_.endpoint_port, life_->ledger);
  if (!opened) return fail(opened.error());
  life_->endpoint = std::move(*opened);
  const bool elsewhere = options_.tcp && !options_.advertised_host.empty();
  life_->address.endpoint_host = elsewhere ? options_.advertised_host : host;
  life_->address.endpoint_port = life_->endpoint->port();
  return {};
}

result<store_code> shard_mount::offer(directory_link& link) {
  const auto former = life_->ledger.with([](segment_ledger& l) { return l.former(); });
  const auto answer = link.ask_and_wait(store_wire::op::mount, [&](byte_writer& out) {
    out.put_text(options_.name);
    out.put(static_cast<std::uint64_t>(life_->memory.size_bytes()));
    store_wire::put_address(out, life_->address);
    store_wire::put_former(out, former);
  });
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  const auto code = as_store_code(in.get<std::int32_t>());
  const auto segment = in.get<std::uint32_t>();
  if (code == store_code::ok) life_->ledger.with([&](segment_ledger& l) { l.begin(segment); });
  return code;
}

result<void> shard_mount::announce(directory_link& link) {
  const auto all = life_->ledger.with([](segment_ledger& l) { return l.announcement(clock_type::now()); });
  for (const auto& part : all) {
    const auto answer =
        link.ask_and_wait(store_wire::op::announce, [&](byte_writer& out) { out.put_bytes(part); });
    if (!answer) return fail(answer.error());
  }
  say("announced " + std::to_string(life_->objects()) + " objects to a new directory");
  return {};
}

// The SSD's work begins before the announcement, because the directory answers that with orders to erase.
result<void> shard_mount::mount_disk(const std::shared_ptr<directory_link>& link) {
  auto& disk = *options_.disk;
  const auto segment = life_->ledger.with([](segment_ledger& l) { return l.former().segment; });
  const store_wire::disk_offer offer{options_.name + "/ssd", disk.bytes(), segment,
                                     disk.number(),          disk.store(), disk.policy()};
  const auto answer = link->ask_and_wait(store_wire::op::mount_disk,
                                         [&](byte_writer& out) { store_wire::put_disk(out, offer); });
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  const auto disk_mounted = store_wire::get_mounted_disk(in);
  if (disk_mounted.code == store_code::segment_not_found)
    return fail(ec::unavailable, "the memory beside the SSD was given up");
  if (disk_mounted.code != store_code::ok)
    return fail(ec::already_exists, "the SSD of segment " + options_.name + " is mounted already");
  const auto held = disk.contents();
  if (!disk_mounted.known) {
    if (!held.empty())
      say("the directory does not know what became of the " + std::to_string(held.size()) +
          " objects on SSD while they were away: they count no more");
    disk.start_over(disk_mounted.store);
  } else {
    disk.renumber(disk_mounted.store);
  }
  disk.begin_work([&disk, link, segment = disk_mounted.segment](std::span<const object_disk::outcome> all) {
    static_cast<void>(link->ask(store_wire::op::disk_done, [&](byte_writer& out) {
      out.put(static_cast<std::uint32_t>(all.size()));
      for (const auto& one : all) {
        out.put(segment);
        out.put(one.ticket);
        out.put(static_cast<std::uint8_t>(one.good));
      }
      if (link->speaks() >= store_wire::tells_disk_room) out.put(disk.bytes());
    }));
  });
  disk_ = disk_mounted.segment;
  life_->ledger.with([this](segment_ledger& l) { l.begin_disk(disk_); });
  const auto told = disk_mounted.known ? announcement_of(disk_, held) : std::vector<std::vector<std::byte>>{};
  for (const auto& part : told) {
    const auto taken =
        link->ask_and_wait(store_wire::op::announce, [&](byte_writer& out) { out.put_bytes(part); });
    if (!taken) return fail(taken.error());
  }
  life_->ledger.with([&](segment_ledger& l) { l.disk_announced(disk.number()); });
  if (disk_mounted.known) say("announced " + std::to_string(held.size()) + " objects on SSD");
  return {};
}

void shard_mount::order(const disk_order& o) {
  auto& disk = *options_.disk;
  const auto memory = life_->memory.bytes();
  const auto& object = o.object;
  if (o.what == disk_order::kind::erase) return disk.erase(object.ticket);
  std::vector<std::span<std::byte>> pieces;
  for (const auto& p : o.places)
    if (p.bytes <= memory.size() && p.offset <= memory.size() - p.bytes)
      pieces.push_back(memory.subspan(p.offset, p.bytes));
  if (pieces.empty() || pieces.size() != o.places.size())
    say("the directory wants bytes on SSD that lie outside of the segment");
  else if (o.what == disk_order::kind::save) disk.save(object, {pieces.begin(), pieces.end()});
  else disk.load(object.ticket, std::move(pieces));
}

/// Acknowledges a frame once its erasures are done.
void shard_mount::acknowledge(std::uint64_t number) {
  const auto tell = [link = link_, number] {
    static_cast<void>(link->ask(store_wire::op::acked, [&](byte_writer& out) { out.put(number); }));
  };
  disk_ != 0 ? options_.disk->after_erasures(tell) : tell();
}

/// Takes down the directory's frames, until the connection ends.
void shard_mount::listen() {
  link_->only_listens();
  for (auto number = store_wire::journal_base + 1;; ++number) {
    const auto told = link_->wait(number);
    if (!told) {
      if (told.error() != ec::cancelled)
        say("the directory is lost, " + std::to_string(life_->objects()) +
            " objects are kept for the next: " + to_string(told.error()));
      return;
    }
    const auto outcome =
        life_->ledger.with([&](segment_ledger& l) { return l.apply(*told, clock_type::now()); });
    if (!outcome.understood || outcome.fenced) {
      say(outcome.fenced ? "the contents count no more: the segment begins again, empty"
                         : "the directory says what fits nothing: the segment begins again, empty");
      link_->close();
      if (options_.disk) options_.disk->end_work();
      begin_again();
      return;
    }
    for (const auto& order : outcome.orders) worker_.take(order);
    for (const auto& o : outcome.disk_orders) order(o);
    if (outcome.acknowledge) acknowledge(number - store_wire::journal_base);
  }
}

void shard_mount::keep() {
  constexpr duration shortest = std::chrono::milliseconds(20), longest = std::chrono::milliseconds(250);
  for (bool stop = false; !stop;) {
    listen();
    auto pause = shortest;
    while (!(stop = wait(pause)) && !mount()) pause = std::min(2 * pause, longest);
  }
  if (options_.disk) options_.disk->end_work();
  forget_mounted();
  life_.reset();
}

void shard_mount::forget_mounted() {
  std::lock_guard lock{punching_};
  mounted_ = {};
}

void shard_mount::say(const std::string& line) const {
  if (options_.log) options_.log(line);
}

/// @returns whether it is time to stop.
bool shard_mount::wait(duration d) {
  std::unique_lock lock{mutex_};
  return stopped_.wait_for(lock, d, [&] { return stopping_; });
}

}  // namespace mooncaf
