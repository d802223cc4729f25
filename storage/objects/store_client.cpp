#include "storage/objects/store_client.hpp"

#include <algorithm>

#include "storage/objects/store_batches.hpp"
#include "storage/objects/waiting_for_room.hpp"

namespace mooncaf {

using store_wire::op;

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
