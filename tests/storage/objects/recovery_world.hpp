#pragma once
// The directory, the holders of segments and clients on virtual time, with directories, holders, connections
// and clients lost at any moment, against what must be true of any store: who reads gets bytes that somebody
// published under that key and that nobody has removed since, whole; and what was published is there again
// once a new directory serves, as long as its holder lives.

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "storage/objects/directory/directory_core.hpp"
#include "storage/objects/segment/segment_ledger.hpp"
#include "tests/support/temp_dir.hpp"

namespace mooncaf::test {

using namespace std::chrono_literals;
using store_wire::op;

/// What the memory of holders is counted in here: stripes begin and end with one.
inline constexpr std::uint64_t grain = object_table::stripe_bytes_min, segment_bytes = grain * 600;

/// An SSD, which outlives its process.
struct fake_disk {
  std::uint64_t number = 0, store = 0;
  disk_policy policy;
  std::uint64_t bytes = 0;
  std::map<std::uint64_t, std::pair<segment_record, std::uint64_t>> held;  // by ticket, with its value
  struct job {
    disk_order order;
    std::uint64_t acknowledge = 0;  // frame, instead
  };
  std::deque<job> jobs;
  std::uint32_t segment = 0;  // zero: not mounted
};

/// A process that mounts memory. What `segment_mount` does, without its sockets.
struct holder {
  segment_ledger ledger;
  std::uint64_t incarnation = 0;            // of the directory that knows it
  std::uint64_t session = 0;                // zero: no connection
  std::deque<std::vector<std::byte>> wire;  // journal frames on their way
  std::deque<std::vector<std::byte>> to_announce;
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(segment_bytes / grain);  // who wrote it
  int life = 0;
  std::uint64_t heard = 0;  // journal frames of this connection
  std::unique_ptr<fake_disk> disk;
  time_point away_until{};  // its process is not started before
};

struct writing {
  std::uint64_t session, ticket, size, value;
  std::string key;
  std::vector<replica_place> places;
  bool half_done = false, done = false;
  time_point give_up{};
};

struct client {
  std::uint64_t session = 0;
  writing room;                             // that the directory gave for a put to come; ticket zero: none
  std::function<void(byte_reader&)> waits;  // for an answer
};

struct world {
  explicit world(unsigned seed, bool crowded, bool disks = false, std::size_t directory_hosts = 1)
      : random(seed),
        hosts(directory_hosts),
        sizes(crowded ? 190 : 14),
        state(disks ? std::make_unique<temp_dir>() : nullptr) {
    start_directory();
    for (int i = 0; i < 3; ++i) holders.emplace_back();
    for (int i = 0; disks && i < 2; ++i) {
      auto& d = *(holders[static_cast<std::size_t>(i)].disk = std::make_unique<fake_disk>());
      d.number = random();
      d.policy = {static_cast<write_policy>(random() % 3), 1 + static_cast<std::uint32_t>(random() % 2),
                  1 + static_cast<std::uint32_t>(random() % 3)};
      d.bytes = (crowded ? 600 : 100'000) * grain;
    }
    clients.resize(3);
  }

  std::mt19937_64 random;
  std::size_t hosts, host = 0;  ///< on which the directory may be, and is
  int moved = 0;
  std::uint64_t sizes;  ///< grains of an object
  std::unique_ptr<temp_dir> state;
  std::uint64_t served_from_disk = 0, came_back = 0;
  time_point now{1h};
  std::unique_ptr<directory_core> core;
  std::uint64_t incarnation = 0;
  std::deque<holder> holders;
  std::vector<client> clients;
  std::vector<writing> open;
  std::map<std::string, std::set<std::uint64_t>> published, dead;  // values by key
  std::map<std::string, std::uint64_t> must_be;                    // known to be there, if nothing made way
  std::map<std::string, std::uint64_t> removed_up_to;              // somebody asked for it, perhaps in vain
  std::uint64_t next_value = 1;
  int recoveries = 0, stripes = 0, in_rooms = 0;

  void start_directory() {
    object_table_options o;
    o.lease = std::chrono::seconds(10);
    o.seed = random();
    o.first_ticket = incarnation = incarnation + 1'000'000;
    std::unique_ptr<disk_notes> notes;
    if (state) notes = std::move(*disk_notes::open(notes_on(host), incarnation));
    core = std::make_unique<directory_core>(o, recovery_patience{now + 1s, now + 5s}, std::move(notes));
  }

  std::string notes_on(std::size_t h) const { return *state / ("notes-" + std::to_string(h)); }

  // ---- connections

  bool send(std::uint64_t session, op what, const std::function<void(byte_writer&)>& payload) {
    std::vector<std::byte> question, answer;
    byte_writer out{question};
    payload(out);
    REQUIRE(
        core->answer(session, {static_cast<std::uint32_t>(question.size()), 1, what}, question, now, answer));
    deliver();  // before the answer: that is the promise
    if (!answer.empty()) receive(session, answer);
    return true;
  }

  void deliver() {
    std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> got;
    core->deliver([&](const directory_core::outgoing& what) {
      got.emplace_back(what.session, std::vector<std::byte>{what.bytes.begin(), what.bytes.end()});
    });
    for (const auto& [session, bytes] : got)
      if (deliveries_left-- > 0) receive(session, bytes);
  }
  int deliveries_left = std::numeric_limits<int>::max();  ///< then the directory says no more

  void receive(std::uint64_t session, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto header = store_wire::parse_header(bytes.first<store_wire::header_bytes>());
      REQUIRE(header);
      const auto payload = bytes.subspan(store_wire::header_bytes, header->payload_bytes);
      bytes = bytes.subspan(store_wire::header_bytes + header->payload_bytes);
      for (auto& h : holders)
        if (h.session == session && header->what == op::journal)
          h.wire.push_back({payload.begin(), payload.end()});
      for (auto& c : clients) {
        if (c.session != session || !c.waits || header->what == op::hello) continue;
        byte_reader in{payload};
        const auto take = std::exchange(c.waits, {});
        take(in);
      }
      if (header->what == op::mount || header->what == op::mount_disk)
        last_mount.assign(payload.begin(), payload.end());
    }
  }
  std::vector<std::byte> last_mount;

  std::uint64_t connect() {
    const auto session = core->open();
    send(session, op::hello, [](byte_writer& out) {
      out.put(store_wire::oldest);
      out.put_text("");
      out.put(std::uint8_t{0});
    });
    return session;
  }

  // ---- holders

  void begin_again(holder& h) {
    h.ledger = {};
    h.incarnation = 0;
    h.wire.clear();
    h.to_announce.clear();
    std::fill(h.memory.begin(), h.memory.end(), 0);
    ++h.life;
  }

  void hear(holder& h) {
    if (h.wire.empty()) return;
    const auto outcome = h.ledger.apply(h.wire.front(), now);
    const auto bytes = h.wire.front().size();
    h.wire.pop_front();
    REQUIRE(outcome.understood);
    for (const auto& o : outcome.disk_orders)  // a reader waits: that wakes who takes little later
      if (o.what == disk_order::kind::load) CHECK(bytes >= store_wire::urgent_bytes);
    ++h.heard;
    if (outcome.fenced) {
      if (h.session) core->close(h.session, now);
      h.session = 0;
      forget_what_lay_in(h);
      begin_again(h);
      return deliver();
    }
    for (const auto& o : outcome.disk_orders) h.disk->jobs.push_back({o, 0});
    if (outcome.acknowledge && h.session && h.disk && h.disk->segment != 0)
      h.disk->jobs.push_back({{}, h.heard});
    else if (outcome.acknowledge && h.session)
      send(h.session, op::acked, [&](byte_writer& out) { out.put(h.heard); });
  }

  void disk_done(holder& h, std::uint64_t ticket, bool good) {
    send(h.session, op::disk_done, [&](byte_writer& out) {
      out.put(std::uint32_t{1});
      out.put(h.disk->segment);
      out.put(ticket);
      out.put(static_cast<std::uint8_t>(good));
    });
  }

  void work(holder& h) {
    auto& d = *h.disk;
    const auto job = d.jobs.front();
    d.jobs.pop_front();
    const auto& o = job.order.object;
    if (job.acknowledge != 0)
      return static_cast<void>(
          send(h.session, op::acked, [&](byte_writer& out) { out.put(job.acknowledge); }));
    if (job.order.what == disk_order::kind::erase) return static_cast<void>(d.held.erase(o.ticket));
    const auto each_grain = [&](const auto& visit) {
      for (const auto& p : job.order.places)
        for (auto at = p.offset / grain; at < (p.offset + p.bytes + grain - 1) / grain; ++at)
          visit(h.memory.at(at));
      in_pieces += job.order.places.size() > 1;
    };
    if (job.order.what == disk_order::kind::save) {
      bool whole = random() % 16 != 0;  // else the disk refuses it
      each_grain([&](std::uint64_t value) { whole = whole && value == o.checksum; });
      if (whole) d.held[o.ticket] = {o, o.checksum};
      return disk_done(h, o.ticket, whole);
    }
    const auto found = d.held.find(o.ticket);
    const bool good = found != d.held.end() && random() % 32 != 0;  // else it has rotted
    if (!good) rotted.insert(found == d.held.end() ? 0 : found->second.second);
    if (good) each_grain([&](std::uint64_t& value) { value = found->second.second; });
    served_from_disk += good;
    disk_done(h, o.ticket, good);
  }
  std::uint64_t in_pieces = 0;  ///< objects in several runs of memory that went to an SSD, or came from there
  std::set<std::uint64_t> rotted;  ///< values of which an SSD had a damaged copy

  void mount_disk(holder& h) {
    auto& d = *h.disk;
    send(h.session, op::mount_disk, [&](byte_writer& out) {
      store_wire::put_disk(out,
                           store_wire::disk_offer{"segment-" + std::to_string(name_of(h)) + "/ssd", d.bytes,
                                                  h.ledger.former().segment, d.number, d.store, d.policy});
    });
    byte_reader in{last_mount};
    const auto made = store_wire::get_mounted_disk(in);
    if (made.code == store_code::segment_not_found) return lose_connection(h);  // the memory was given up
    REQUIRE(made.code == store_code::ok);
    if (!made.known) d.held.clear();
    d.store = made.store;
    d.segment = made.segment;
    h.ledger.begin_disk(made.segment);
    if (!made.known) return h.ledger.disk_announced(d.number);
    std::vector<segment_record> records;
    for (const auto& [ticket, kept] : d.held) {
      records.push_back(kept.first);
      records.back().published = true;
    }
    came_back += records.size();
    for (const auto& part : announcement_of(made.segment, records)) h.to_announce.push_back(part);
  }

  /// What is not done yet is not done; what was to be erased is, unless the process is dead.
  void end_work(holder& h, bool killed) {
    if (!h.disk) return;
    for (const auto& job : h.disk->jobs)
      if (!killed && job.acknowledge == 0 && job.order.what == disk_order::kind::erase)
        h.disk->held.erase(job.order.object.ticket);
    h.disk->jobs.clear();
    h.disk->segment = 0;
  }

  void mount(holder& h) {
    end_work(h, false);
    while (!h.wire.empty()) {  // what came before the connection ended
      const auto outcome = h.ledger.apply(h.wire.front(), now);
      const bool fenced = outcome.fenced;
      for (const auto& o : outcome.disk_orders)
        if (o.what == disk_order::kind::erase) h.disk->held.erase(o.object.ticket);
      h.wire.pop_front();
      if (!fenced) continue;
      forget_what_lay_in(h);
      begin_again(h);
    }
    if (h.incarnation == incarnation) {
      forget_what_lay_in(h);
      begin_again(h);
    }
    h.session = connect();
    h.heard = 0;
    for (int i = 0; i < 2; ++i) {
      send(h.session, op::mount, [&](byte_writer& out) {
        out.put_text("segment-" + std::to_string(name_of(h)));
        out.put(segment_bytes);
        store_wire::put_address(out, {});
        store_wire::put_former(out, h.ledger.former());
      });
      byte_reader in{last_mount};
      const auto code = in.get<std::int32_t>();
      if (code == 0) {
        const bool known = h.incarnation != 0;
        h.ledger.begin(in.get<std::uint32_t>());
        h.incarnation = incarnation;
        if (known) {
          auto parts = h.ledger.announcement(now);
          h.to_announce.assign(parts.begin(), parts.end());
          ++recoveries;
        }
        return;
      }
      REQUIRE(code == static_cast<int>(store_code::segment_not_found));
      forget_what_lay_in(h);
      const auto session = h.session;
      begin_again(h);
      h.session = session;
    }
    FAIL("a fresh segment was refused");
  }

  std::size_t name_of(const holder& h) const {
    for (std::size_t i = 0; i < holders.size(); ++i)
      if (&holders[i] == &h) return i;
    return 99;
  }

  void step_holder(holder& h) {
    if (now < h.away_until) return;
    if (!h.session) return mount(h);
    if (!h.to_announce.empty()) {
      const auto part = h.to_announce.front();
      h.to_announce.pop_front();
      send(h.session, op::announce, [&](byte_writer& out) { out.put_bytes(part); });
      if (h.disk && h.disk->segment != 0 && h.to_announce.empty()) h.ledger.disk_announced(h.disk->number);
      return;
    }
    if (h.disk && h.disk->segment == 0) return mount_disk(h);
    if (h.disk && !h.disk->jobs.empty() && random() % 2 == 0) return work(h);
    hear(h);
  }

  /// Its contents are gone: nothing that may have lain there alone has to be found any more.
  void forget_what_lay_in(const holder& h) {
    for (auto& [value, replicas] : where)  // those, too, whose publication nobody was told of yet
      std::erase_if(replicas, [&](const auto& by) { return by.count(name_of(h)) != 0; });
    std::erase_if(must_be, [&](const auto& known) { return where[known.second].empty(); });
  }
  std::map<std::uint64_t, std::vector<std::set<std::size_t>>> where;  // of a value: holders of each replica

  // ---- what happens to them

  void lose_directory() {
    core.reset();
    for (auto& h : holders) h.session = 0, h.to_announce.clear();
    for (auto& c : clients) {
      c.session = 0;
      c.waits = {};  // what it had asked for may have happened or not
    }
    for (auto& w : open) w.session = 0;
    // The next is on the same host, or on another, where the notes of an earlier one tell nothing any more.
    if (const auto next = random() % hosts; state && next != host) {
      ++moved;
      host = next;
      REQUIRE(disk_notes::forget(notes_on(host)));
    }
    start_directory();
  }

  void lose_connection(holder& h) {
    if (!h.session) return;
    core->close(h.session, now);
    h.session = 0;
    deliver();
  }

  void lose_holder(holder& h) {
    lose_connection(h);
    end_work(h, true);
    h.wire.clear();
    forget_what_lay_in(h);
    begin_again(h);
    // Long enough for directories on other hosts to come and go meanwhile.
    if (hosts > 1) h.away_until = now + std::chrono::milliseconds(random() % 20'000);
  }

  void lose_client(client& c) {
    if (c.session) core->close(c.session, now);
    for (auto& w : open)
      if (w.session == c.session) w.session = 0;
    c = {};
    deliver();
  }

  // ---- clients

  holder* holder_of(std::uint32_t segment) {
    for (auto& h : holders)
      if (h.ledger.former().segment == segment) return &h;
    return nullptr;
  }

  std::string key() { return "key-" + std::to_string(random() % 12); }

  void reserve(client& c) {
    const auto k = key();
    const bool wide = sizes > 100 && random() % 8 == 0;  // no segment holds it
    const auto size = grain * (wide ? 601 + random() % 300 : 1 + random() % sizes);
    put_policy policy;
    policy.replicas = 1 + static_cast<std::uint32_t>(random() % 2);
    policy.replace = random() % 3 == 0;
    const auto session = c.session;
    c.waits = [=, this](byte_reader& in) {
      in.get<std::uint32_t>();
      const auto code = in.get<std::int32_t>();
      const auto ticket = in.get<std::uint64_t>();
      const auto places = store_wire::get_places(in);
      if (code == 0) open.push_back({session, ticket, size, next_value++, k, places, false, false, now + 9s});
    };
    send(session, op::reserve, [&](byte_writer& out) {
      store_wire::put_policy_to(out, policy);
      out.put(std::uint32_t{1});
      out.put_text(k);
      out.put(size);
      store_wire::put_ties(out, {});
    });
  }

  /// Writes half of it. Whoever has lost the directory goes on for a while, because he does not know.
  void write() {
    if (open.empty()) return;
    auto& w = open[random() % open.size()];
    if (w.done || now >= w.give_up) return;
    for (const auto& p : w.places) {
      auto* const h = holder_of(p.segment);
      if (!h) continue;
      const auto from = p.offset / grain, count = p.bytes / grain, half = count / 2;
      for (auto i = w.half_done ? half : 0; i < (w.half_done ? count : half); ++i)
        h->memory.at(from + i) = w.value;
    }
    (w.half_done ? w.done : w.half_done) = true;
  }

  void publish(client& c) {
    std::erase_if(open, [&](const writing& w) { return w.session == 0 && now >= w.give_up; });
    const auto ours = std::find_if(open.begin(), open.end(),
                                   [&](const writing& w) { return w.done && w.session == c.session; });
    if (ours == open.end()) return;
    const auto w = *ours;
    open.erase(ours);
    if (random() % 2 == 0) return put_next(c, w, {});
    expect(c, w, [](byte_reader& in) { in.get<std::uint32_t>(); });
    send(c.session, op::publish, [&](byte_writer& out) {
      out.put(std::uint32_t{1});
      out.put(w.ticket);
      out.put(w.value);
    });
  }

  /// Writes and publishes at once, where there is room: a value is younger than all that were published.
  void put_in_room(client& c) {
    auto w = std::exchange(c.room, {});
    if (w.ticket == 0 || w.session != c.session || now >= w.give_up) return;
    w.key = key();
    w.value = next_value++;
    for (const auto& p : w.places)
      if (auto* const h = holder_of(p.segment))
        for (auto i = p.offset / grain; i < (p.offset + p.bytes) / grain; ++i) h->memory.at(i) = w.value;
    put_next(c, w, w.key);
  }

  void put_next(client& c, const writing& w, std::string_view key) {
    expect(c, w, [](byte_reader&) {});
    send(c.session, op::put_next, [&](byte_writer& out) {
      out.put(w.ticket);
      out.put(w.value);
      out.put_text(key);
      store_wire::put_policy_to(out, {});
      out.put(w.size);
    });
  }

  /// That `w` is published, by the answer to come. @param skip  what stands before the code
  void expect(client& c, const writing& w, const std::function<void(byte_reader&)>& skip) {
    published[w.key].insert(w.value);
    must_be.erase(w.key);  // if this replaces it, perhaps without an answer
    for (const auto replica : replicas_of(w.places, w.size)) {
      std::set<std::size_t> by;
      for (const auto& p : replica)
        if (const auto* h = holder_of(p.segment)) by.insert(name_of(*h));
        else by.insert(holders.size());  // lost already
      if (by.count(holders.size()) == 0) where[w.value].push_back(by);
      stripes += replica.size() > 1;
    }
    c.waits = [=, this, &c](byte_reader& in) {
      skip(in);
      const auto code = in.get<std::int32_t>();
      if (in.left() != 0) {
        const auto ticket = in.get<std::uint64_t>();
        c.room = {w.session, ticket, w.size, 0, {}, store_wire::get_places(in), false, false, now + 1900ms};
        in_rooms += c.room.ticket != 0;
      }
      if (code == static_cast<std::int32_t>(store_code::already_exists)) published[w.key].erase(w.value);
      if (code != 0) return;
      // Nobody reserves a key before its last value is published, so values are published in their order.
      for (const auto earlier : published[w.key])
        if (earlier < w.value) dead[w.key].insert(earlier);
      const bool last = *published[w.key].rbegin() == w.value && removed_up_to[w.key] <= w.value;
      if (last && !where[w.value].empty()) must_be[w.key] = w.value;
    };
  }

  /// Whether later directories may know what this one does. Where each is on another host a holder has to live
  /// that it served: what it did is lost with all of those.
  bool remembered() const {
    return hosts == 1 || std::any_of(holders.begin(), holders.end(), [&](const holder& h) {
             return h.ledger.former().served_by == incarnation;
           });
  }

  void remove(client& c) {
    const auto k = key();
    const auto were = published[k];
    must_be.erase(k);  // whatever becomes of it
    removed_up_to[k] = next_value;
    const auto session = c.session;
    c.waits = [=, this](byte_reader& in) {
      in.get<std::uint32_t>();
      const auto code = in.get<std::int32_t>();
      if ((code == 0 || code == static_cast<int>(store_code::not_found)) && remembered())
        dead[k].insert(were.begin(), were.end());
    };
    send(session, op::remove, [&](byte_writer& out) {
      out.put(static_cast<std::uint8_t>(random() % 2));
      out.put(std::uint32_t{1});
      out.put_text(k);
    });
  }

  void find(client& c) {
    const auto k = key();
    c.waits = [=, this, &c](byte_reader& in) {
      auto first = in;
      first.get<std::uint32_t>();
      const auto seen = store_wire::get_view(first);
      if (seen.code != store_code::ok || !seen.places.empty()) return check(k, in);
      c.waits = [=, this](byte_reader& loaded) { check(k, loaded); };
      send(c.session, op::load, [&](byte_writer& out) {
        out.put(std::uint32_t{1});
        out.put_text(k);
      });
    };
    send(c.session, op::find, [&](byte_writer& out) {
      out.put(std::uint32_t{1});
      out.put_text(k);
    });
  }

  void check(const std::string& k, byte_reader& in) {
    in.get<std::uint32_t>();
    const auto seen = store_wire::get_view(in);
    const auto code = static_cast<int>(seen.code);
    const auto value = seen.checksum;
    const auto& places = seen.places;
    const auto known = must_be.find(k);
    CAPTURE(k);
    if (code != 0) {
      // Where there is room for all, nothing makes way; but a holder may have been given up, or may be away.
      if (known == must_be.end() || sizes > 100 || rotted.count(known->second) != 0) return;
      for (const auto& replica : where[known->second])
        CHECK_FALSE(std::all_of(replica.begin(), replica.end(), [&](auto i) {
          return holders[i].session && holders[i].to_announce.empty() && holders[i].wire.empty();
        }));
      return;
    }
    CHECK(published[k].count(value) == 1);
    CHECK(dead[k].count(value) == 0);
    if (known != must_be.end()) CHECK(known->second == value);
    for (const auto& p : places) {
      const auto* const h = holder_of(p.segment);
      if (!h) continue;
      for (std::uint64_t i = 0; i < p.bytes / grain; ++i)
        REQUIRE(h->memory.at(p.offset / grain + i) == value);
    }
  }

  void step_client(client& c) {
    if (!c.session) {
      c.session = connect();
      return;
    }
    if (c.waits) return;
    switch (random() % 10) {
      case 0:
        return remove(c);
      case 9:
        return put_in_room(c);
      case 1:
      case 2:
      case 3:
        return reserve(c);
      case 4:
      case 5:
      case 6:
        return publish(c);
      default:
        return find(c);
    }
  }

  void step() {
    const auto dice = random() % 1000;
    auto& h = holders[random() % holders.size()];
    auto& c = clients[random() % clients.size()];
    if (dice < 4 || (hosts > 1 && dice >= 998)) return lose_directory();
    if (dice < 6) return lose_holder(h);
    if (dice < 8) return lose_connection(h);
    if (dice < 14) return lose_client(c);
    if (dice < (hosts > 1 ? 200u : 100u)) {
      now += std::chrono::milliseconds(random() % 400);
      core->tick(now);
      return deliver();
    }
    if (dice < 400) return step_holder(h);
    if (dice < 600) return write();
    step_client(c);
  }

  /// Everybody hears everything, and time goes on until the directory serves.
  void settle() {
    for (auto& h : holders) h.away_until = {};
    for (int i = 0; i < 80; ++i) {
      for (auto& h : holders) {
        if (!h.session || !h.to_announce.empty() || (h.disk && h.disk->segment == 0)) step_holder(h);
        while (h.session && (!h.wire.empty() || (h.disk && !h.disk->jobs.empty())))
          h.wire.empty() ? work(h) : hear(h);
      }
      now += 100ms;
      core->tick(now);
      deliver();
    }
  }
};

}  // namespace mooncaf::test
