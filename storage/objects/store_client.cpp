#include "storage/objects/store_client.hpp"

#include <algorithm>
#include <thread>

#include "runtime/base/hash.hpp"
#include "storage/objects/waiting_for_room.hpp"

namespace mooncaf {

using store_wire::op;

namespace {

/// Well inside a lease: what is copied so soon after the question, nobody has written over meanwhile.
constexpr auto surely_leased = std::chrono::seconds(5);

std::uint64_t checksum_of(target_pieces pieces) {
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto& p : pieces) XXH3_64bits_update(&hash, p.data(), p.size());
  return XXH3_64bits_digest(&hash);
}

void put_keys(byte_writer& out, std::span<const std::string_view> keys) {
  out.put(static_cast<std::uint32_t>(keys.size()));
  for (const auto key : keys) out.put_text(key);
}

/// Splits what does not fit one question. @param one  answers for a part of the items
template <class Result, class Item, class Ask>
std::vector<Result> in_batches(std::span<const Item> items, const Ask& one) {
  if (items.size() <= store_wire::batch_max) return one(items);
  std::vector<Result> all;
  for (std::size_t at = 0; at < items.size(); at += store_wire::batch_max) {
    const auto part = one(items.subspan(at, std::min<std::size_t>(store_wire::batch_max, items.size() - at)));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

store_client::store_client(store_client_options options)
    : options_(std::move(options)),
      reach_(options_.directory.secret, options_.directory.own_host, options_.staging_bytes) {}

store_client::~store_client() {
  std::lock_guard lock{mutex_};
  if (link_) link_->close();
}

result<std::unique_ptr<store_client>> store_client::connect(store_client_options options) {
  if (options.directory.own_host.empty()) options.directory.own_host = this_host();
  std::unique_ptr<store_client> made{new store_client(std::move(options))};
  if (const auto first = made->link(); !first) return fail(first.error());
  return made;
}

result<std::shared_ptr<directory_link>> store_client::link() {
  std::lock_guard lock{mutex_};
  if (link_ && !link_->broken()) return link_;
  constexpr duration shortest = std::chrono::milliseconds(20), longest = std::chrono::milliseconds(500);
  if (clock_type::now() < dial_again_) return fail(not_reached_);
  auto made = directory_link::connect(options_.directory);
  if (!made) {
    pause_ = std::clamp(2 * pause_, shortest, longest);
    dial_again_ = clock_type::now() + pause_;
    not_reached_ = made.error();
    return fail(not_reached_);
  }
  pause_ = {};
  link_ = std::move(*made);
  if (const auto& w = link_->welcome(); !w.tenant.empty())
    reach_.authorize({{link_->incarnation(), w.tenant}, w.gate_key});
  return link_;
}

result<directory_link::answer> store_client::ask(op what, const std::function<void(byte_writer&)>& payload) {
  const auto to = link();
  if (!to) return fail(to.error());
  return (*to)->ask_and_wait(what, payload);
}

void store_client::reach_all(const std::vector<replica_place>& places) {
  const bool known =
      std::all_of(places.begin(), places.end(), [&](const auto& p) { return reach_.knows(p.segment); });
  if (known) return;
  if (auto now = segments()) reach_.learn(std::move(*now));
}

// ---- put
// -------------------------------------------------------------------------------------------------------

store_client::written store_client::write(const outgoing_object& item,
                                          const std::vector<replica_place>& places) {
  written w;
  reach_all(places);
  for (const auto replica : replicas_of(places, size_of(item))) {
    const auto sum = reach_.write(replica, item.pieces, w.settled);
    if (!sum) {
      w.code = store_code::transfer_failed;
      return w;
    }
    w.checksum = *sum;
  }
  return w;
}

std::vector<store_code> store_client::put(std::span<const outgoing_object> items, const put_policy& policy) {
  if (items.size() == 1)
    if (const auto done = put_ahead(items.front(), policy)) return {*done};
  auto codes = in_batches<store_code>(items, [&](auto part) { return put_once(part, policy); });
  auto patient = policy;
  for (waiting_for_room wait; wait.again(codes, patient);) {
    std::vector<outgoing_object> rest;
    for (const auto i : wait.busy()) rest.push_back(items[i]);
    wait.take(in_batches<store_code>(std::span<const outgoing_object>{rest},
                                     [&](auto part) { return put_once(part, patient); }),
              codes);
  }
  return codes;
}

std::vector<store_code> store_client::put_once(std::span<const outgoing_object> items,
                                               const put_policy& policy) {
  const auto to = link();  // one connection for all: a ticket belongs to it
  if (!to) return std::vector<store_code>(items.size(), store_wire::code_of(to.error()));
  const auto answer = (*to)->ask_and_wait(op::reserve, [&](byte_writer& out) {
    store_wire::put_policy_to(out, policy);
    out.put(static_cast<std::uint32_t>(items.size()));
    for (const auto& item : items) {
      out.put_text(item.key);
      out.put(size_of(item));
      store_wire::put_ties(out, item.ties);
    }
  });
  if (!answer) return std::vector<store_code>(items.size(), store_wire::code_of(answer.error()));
  byte_reader in{*answer};
  in.get<std::uint32_t>();
  std::vector<store_code> codes;
  std::vector<ending> good, bad;
  for (std::size_t i = 0; i < items.size(); ++i) {
    codes.push_back(as_store_code(in.get<std::int32_t>()));
    const auto ticket = in.get<std::uint64_t>();
    const auto places = store_wire::get_places(in);
    if (codes[i] != store_code::ok) continue;
    const auto done = write(items[i], places);
    codes[i] = done.code;
    if (done.code == store_code::ok) good.push_back({i, ticket, done.checksum});
    else if (done.settled)  // else its place stays taken until this connection ends
      bad.push_back({i, ticket, 0});
  }
  if (!in.ok()) return std::vector<store_code>(items.size(), store_code::internal);
  if (!bad.empty()) revoke(**to, bad);
  if (good.size() == 1 && put_alike(items, policy))
    codes[0] = put_next({*to, policy, size_of(items[0]), good[0].ticket, {}, {}}, good[0].checksum, {});
  else if (!good.empty()) publish(**to, good, codes);
  return codes;
}

void store_client::publish(directory_link& to, std::span<const ending> all, std::vector<store_code>& codes) {
  const auto answer = to.ask_and_wait(op::publish, [&](byte_writer& out) {
    out.put(static_cast<std::uint32_t>(all.size()));
    for (const auto& e : all) {
      out.put(e.ticket);
      out.put(e.checksum);
    }
  });
  byte_reader in{answer ? std::span<const std::byte>{*answer} : std::span<const std::byte>{}};
  in.get<std::uint32_t>();
  for (const auto& e : all)
    codes[e.item] = answer ? as_store_code(in.get<std::int32_t>()) : store_wire::code_of(answer.error());
}

void store_client::revoke(directory_link& to, std::span<const ending> all) {
  to.ask(op::revoke, [&](byte_writer& out) {
      out.put(static_cast<std::uint32_t>(all.size()));
      for (const auto& e : all) out.put(e.ticket);
    }).and_then([&](std::uint64_t number) { return to.wait(number); });
}

// ---- get
// -------------------------------------------------------------------------------------------------------

std::vector<object_view> store_client::ask_views(op what, std::span<const std::string_view> all) {
  return in_batches<object_view>(all, [&](std::span<const std::string_view> keys) {
    std::vector<object_view> views(keys.size());
    const auto asked = clock_type::now();
    const auto answer = ask(what, [&](byte_writer& out) { put_keys(out, keys); });
    byte_reader in{answer ? std::span<const std::byte>{*answer} : std::span<const std::byte>{}};
    in.get<std::uint32_t>();
    for (auto& v : views) {
      if (answer) v = store_wire::get_view(in);
      if (what != op::look) v.asked = asked;  // a mere look protects nothing
      if (!answer || !in.ok()) v.code = answer ? store_code::internal : store_wire::code_of(answer.error());
    }
    return views;
  });
}

std::vector<std::span<const replica_place>> store_client::nearest_first(const object_view& object) const {
  auto order = replicas_of(object.places, object.size);
  std::stable_partition(order.begin(), order.end(), [&](const auto& r) { return reach_.is_local(r); });
  return order;
}

std::vector<object_view> store_client::find(std::span<const std::string_view> keys) {
  auto views = ask_views(op::find, keys);
  std::vector<std::size_t> on_disk;
  for (std::size_t i = 0; i < views.size(); ++i)
    if (views[i].code == store_code::ok && views[i].places.empty()) on_disk.push_back(i);
  if (on_disk.empty()) return views;
  std::vector<std::string_view> wanted;
  for (const auto i : on_disk) wanted.push_back(keys[i]);
  auto loaded = ask_views(op::load, wanted);
  for (std::size_t i = 0; i < on_disk.size(); ++i) {
    loaded[i].loaded = wanted[i];
    views[on_disk[i]] = std::move(loaded[i]);
  }
  return views;
}

store_code store_client::read(const object_view& object, target_pieces pieces) {
  auto code = read_once(object, pieces);
  // What came from SSD may have had to make room for another before it was read, or found none itself.
  constexpr int attempts = 8;
  for (int i = 1; i < attempts && code != store_code::ok && !object.loaded.empty(); ++i) {
    const std::string_view key = object.loaded;
    const auto again = find({&key, 1}).front();
    if (again.code == store_code::not_found) return again.code;
    const bool other = again.code == store_code::ok && again.checksum != object.checksum;
    if (other) return store_code::lease_ended;
    code = read_once(again, pieces);
    if (code == store_code::no_space) std::this_thread::sleep_for(std::chrono::milliseconds(1 << i));
  }
  return code;
}

store_code store_client::read_once(const object_view& object, target_pieces pieces) {
  if (object.code != store_code::ok) return object.code;
  reach_all(object.places);
  auto outcome = store_code::transfer_failed;
  for (const auto replica : nearest_first(object)) {
    const auto sum = reach_.read(replica, pieces);
    // The copying pass loads a line twice, to hash it and to copy it: past the lease that proves nothing, and
    // what arrived is looked at itself.
    if (sum && *sum == object.checksum &&
        ((object.loaded.empty() && clock_type::now() - object.asked < surely_leased) ||
         checksum_of(pieces) == object.checksum))
      return store_code::ok;
    if (sum) outcome = store_code::checksum_mismatch;
  }
  return outcome;
}

// ---- the rest
// --------------------------------------------------------------------------------------------------

std::vector<std::int32_t> store_client::exists(std::span<const std::string_view> all) {
  return in_batches<std::int32_t>(all, [&](std::span<const std::string_view> keys) {
    const auto answer = ask(op::exists, [&](byte_writer& out) { put_keys(out, keys); });
    if (!answer)
      return std::vector<std::int32_t>(keys.size(),
                                       static_cast<std::int32_t>(store_wire::code_of(answer.error())));
    byte_reader in{*answer};
    in.get<std::uint32_t>();
    std::vector<std::int32_t> yes(keys.size());
    for (auto& y : yes) y = in.get<std::uint8_t>();
    return yes;
  });
}

std::vector<store_code> store_client::remove(std::span<const std::string_view> all, bool force) {
  return in_batches<store_code>(all, [&](std::span<const std::string_view> keys) {
    const auto answer = ask(op::remove, [&](byte_writer& out) {
      out.put(static_cast<std::uint8_t>(force));
      put_keys(out, keys);
    });
    if (!answer) return std::vector<store_code>(keys.size(), store_wire::code_of(answer.error()));
    byte_reader in{*answer};
    in.get<std::uint32_t>();
    std::vector<store_code> codes;
    for (std::size_t i = 0; i < keys.size(); ++i) codes.push_back(as_store_code(in.get<std::int32_t>()));
    return codes;
  });
}

std::int64_t store_client::remove_all(std::string_view pattern, bool force) {
  const auto answer = ask(op::remove_all, [&](byte_writer& out) {
    out.put(static_cast<std::uint8_t>(force));
    out.put_text(pattern);
  });
  if (!answer) return static_cast<std::int64_t>(store_wire::code_of(answer.error()));
  byte_reader in{*answer};
  const auto code = as_store_code(in.get<std::int32_t>());
  return code == store_code::ok ? in.get<std::int64_t>() : static_cast<std::int64_t>(code);
}

store_client::listing store_client::list(std::string_view pattern, std::uint32_t limit,
                                         std::string_view segment) {
  const auto answer = ask(op::list, [&](byte_writer& out) {
    out.put_text(pattern);
    out.put(std::min(limit, store_wire::batch_max));
    out.put_text(segment);
  });
  if (!answer) return {store_wire::code_of(answer.error()), {}};
  byte_reader in{*answer};
  listing all{as_store_code(in.get<std::int32_t>()), {}};
  while (in.get<std::uint8_t>() != 0) {
    auto key = in.get_text();
    const auto size = in.get<std::uint64_t>();
    const auto replicas = in.get<std::uint8_t>();
    all.objects.push_back({std::move(key), size, replicas, in.get<std::uint8_t>()});
  }
  return all;
}

store_code store_client::drain(std::string_view segment, bool on) {
  const auto answer = ask(op::drain, [&](byte_writer& out) {
    out.put_text(segment);
    out.put(static_cast<std::uint8_t>(on));
  });
  if (!answer) return store_wire::code_of(answer.error());
  byte_reader in{*answer};
  return as_store_code(in.get<std::int32_t>());
}

result<std::vector<store_wire::mounted_segment>> store_client::segments() {
  const auto answer = ask(op::segments, [](byte_writer&) {});
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  std::vector<store_wire::mounted_segment> all;
  for (auto n = in.get<std::uint32_t>(); n > 0 && in.ok(); --n) all.push_back(store_wire::get_segment(in));
  if (!in.ok()) return fail(ec::corrupt, "the directory's list of segments is cut short");
  return all;
}

result<object_counts> store_client::counts() {
  const auto all = figures();
  if (!all) return fail(all.error());
  return all->counts;
}

result<std::vector<tenant_view>> store_client::tenants() {
  const auto answer = ask(op::tenants, [](byte_writer&) {});
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  std::vector<tenant_view> all;
  for (auto n = in.get<std::uint32_t>(); n > 0 && in.ok(); --n) all.push_back(store_wire::get_tenant(in));
  if (!in.ok()) return fail(ec::corrupt, "the directory's list of tenants is cut short");
  return all;
}

result<std::vector<store_wire::named_hot_object>> store_client::hottest() {
  const auto answer = ask(op::hottest, [](byte_writer&) {});
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  std::vector<store_wire::named_hot_object> all;
  for (auto n = in.get<std::uint32_t>(); n > 0 && in.ok(); --n) all.push_back(store_wire::get_hottest(in));
  if (!in.ok()) return fail(ec::corrupt, "the directory's list of what is read most is cut short");
  return all;
}

result<std::string> store_client::tenant() {
  const auto to = link();
  if (!to) return fail(to.error());
  return (*to)->welcome().tenant;
}

result<directory_figures> store_client::figures() {
  const auto answer = ask(op::counts, [](byte_writer&) {});
  if (!answer) return fail(answer.error());
  byte_reader in{*answer};
  directory_figures all{store_wire::get_counts(in), {}};
  all.times = store_wire::get_times(in);
  return all;
}

}  // namespace mooncaf
