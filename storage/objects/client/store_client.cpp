#include "storage/objects/client/store_client.hpp"

#include <algorithm>
#include <utility>

#include "storage/objects/client/waiting_for_room.hpp"
#include "storage/objects/wire/store_batches.hpp"

namespace mooncaf {

using store_wire::op;

store_client::store_client(store_client_options options)
    : options_(std::move(options)),
      reach_(options_.directory.secret, options_.directory.own_host, options_.staging_bytes,
             options_.registered),
      dialer_(options_.directory) {}

store_client::~store_client() { dialer_.close(); }

result<std::unique_ptr<store_client>> store_client::connect(store_client_options options) {
  if (options.directory.own_host.empty()) options.directory.own_host = this_host();
  std::unique_ptr<store_client> made{new store_client(std::move(options))};
  if (const auto first = made->links(); !first) return fail(first.error());
  return made;
}

result<shard_dialer::links> store_client::links() {
  auto now = dialer_.get();
  if (!now || (*now)->scope.tenant.empty()) return now;
  const auto& first = *(*now)->all.front();
  std::lock_guard lock{mutex_};
  const auto& key = first.welcome().endpoint_key;
  if (std::exchange(authorized_by_, first.incarnation()) != first.incarnation() || authorized_with_ != key) {
    authorized_with_ = key;
    reach_.authorize({{first.incarnation(), first.welcome().tenant}, key});
  }
  return now;
}

result<std::vector<directory_link::answer>> store_client::ask_everyone(
    op what, const std::function<void(byte_writer&)>& payload, std::uint32_t* spoken) {
  return patiently(
      [&] {
        const auto to = links();
        if (to && spoken != nullptr) *spoken = (*to)->speaks();
        return to ? (*to)->ask_everyone(what, payload)
                  : result<std::vector<directory_link::answer>>{fail(to.error())};
      },
      [](const auto& got) {
        return !got && store_wire::code_of(got.error()) == store_code::directory_unreachable;
      });
}

void store_client::reach_all(const std::vector<replica_place>& places) {
  const bool known =
      std::all_of(places.begin(), places.end(), [&](const auto& p) { return reach_.knows(p.segment); });
  if (known) return;
  if (auto now = segments()) reach_.learn(std::move(*now));
}

// ---- put ----

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

/// The same of many, where small ones may travel together; nothing where `places` has null. One alone spares
/// itself the lists.
std::vector<store_client::written> store_client::write(
    std::span<const outgoing_object> items, std::span<const std::vector<replica_place>* const> places) {
  std::vector<segment_reach::order> orders;
  std::vector<std::size_t> item_of;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!places[i]) continue;
    reach_all(*places[i]);
    for (const auto replica : replicas_of(*places[i], size_of(items[i]))) {
      orders.push_back({replica, items[i].pieces});
      item_of.push_back(i);
    }
  }
  reach_.write(orders);
  std::vector<written> all(items.size());
  for (std::size_t k = 0; k < orders.size(); ++k) {
    auto& w = all[item_of[k]];
    w.settled = w.settled && orders[k].settled;
    if (orders[k].sum) w.checksum = *orders[k].sum;
    else w.code = store_code::transfer_failed;
  }
  return all;
}

std::vector<store_code> store_client::put(std::span<const outgoing_object> items, const put_policy& policy) {
  // A directory may for a while give room on a host that has died.
  const auto cut = [](store_code code) {
    return code == store_code::directory_unreachable || code == store_code::transfer_failed;
  };
  const auto any_cut = [&](const auto& of) { return std::ranges::any_of(of, cut); };
  auto codes = put_all(items, policy);
  if (!any_cut(codes) || dialer_.patience() == duration{}) return codes;
  std::vector<std::size_t> which;
  std::vector<outgoing_object> rest;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!cut(codes[i])) continue;
    which.push_back(i);
    rest.push_back(items[i]);
  }
  const auto put_again = [&] {
    auto fresh = put_all(rest, policy);
    for (std::size_t k = 0; k < rest.size(); ++k)
      if (fresh[k] == store_code::already_exists) fresh[k] = came_of(rest[k].key);
    return fresh;
  };
  const auto again = patiently(put_again, any_cut);
  for (std::size_t k = 0; k < which.size(); ++k) codes[which[k]] = again[k];
  return codes;
}

/// An answer that was lost may have been that it is there. It may also be that the directory has not noticed yet that the
/// connection is gone on which it was being written: then it is asked again.
store_code store_client::came_of(std::string_view key) {
  return exists({&key, 1}).front() == 1 ? store_code::ok : store_code::directory_unreachable;
}

std::vector<store_code> store_client::put_all(std::span<const outgoing_object> items,
                                              const put_policy& policy) {
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

// Every shard is asked about its own objects at once; the answers come back in the caller's order.
store_client::reservations store_client::reserve(std::span<const object_outline> items,
                                                 const put_policy& policy) {
  reservations all{nullptr, std::vector<reserved>(items.size())};
  const auto to = links();
  for (auto& one : all.items)
    if (!to) one.code = store_wire::code_of(to.error());
  if (!to) return all;
  all.to = *to;
  const auto parts = all.to->parts(items.size(), [&](std::size_t i) { return items[i].key; });
  const auto ask = [&](const shard_part& part, byte_writer& out) {
    store_wire::put_policy_to(out, policy);
    out.put(static_cast<std::uint32_t>(part.size));
    for (std::size_t i = 0; i < part.size; ++i) {
      const auto& item = items[part.at(i)];
      out.put_text(item.key);
      out.put(item.size);
      store_wire::put_ties(out, item.ties);
    }
  };
  const auto hear = [&](const shard_part& part, const shard_links::answer& answer) {
    byte_reader in{answer ? std::span<const std::byte>{*answer} : std::span<const std::byte>{}};
    in.get<std::uint32_t>();
    for (std::size_t i = 0; i < part.size; ++i) {
      auto& one = all.items[part.at(i)];
      one.shard = part.shard;
      one.code = answer ? as_store_code(in.get<std::int32_t>()) : store_wire::code_of(answer.error());
      if (!answer) continue;
      one.ticket = in.get<std::uint64_t>();
      one.places = store_wire::get_places(in);
      if (!in.ok()) one.code = store_code::internal;
    }
  };
  all.to->ask(op::reserve, parts, ask, hear);
  return all;
}

std::vector<store_code> store_client::put_once(std::span<const outgoing_object> items,
                                               const put_policy& policy) {
  std::vector<object_outline> outlines;
  for (const auto& item : items) outlines.push_back({item.key, size_of(item), item.ties});
  const auto made = reserve(outlines, policy);
  std::vector<store_code> codes;
  endings good, bad;
  std::vector<const std::vector<replica_place>*> places;
  for (const auto& room : made.items) places.push_back(room.code == store_code::ok ? &room.places : nullptr);
  const auto all = write(items, places);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& room = made.items[i];
    codes.push_back(room.code);
    if (room.code != store_code::ok) continue;
    const auto& done = all[i];
    codes[i] = done.code;
    auto* const of = made.to->all[room.shard].get();
    if (done.code == store_code::ok) good[of].push_back({i, room.ticket, done.checksum});
    else if (done.settled)  // else its place stays taken until this connection ends
      bad[of].push_back({i, room.ticket, 0});
    else if (dialer_.patience() > duration{}) {
      // So the connection ends, and the place rests. Calls on it, this one too, are made again on the next.
      of->close();
      codes[i] = store_code::directory_unreachable;
    }
  }
  revoke(bad);
  if (good.empty()) return codes;
  if (const auto& only = made.items.front(); put_alike(items, policy, only.shard))
    codes[0] = put_next({made.to->all[only.shard], policy, outlines[0].size, only.ticket, {}, {}}, only.shard,
                        good.begin()->second.front().checksum, {});
  else publish(good, codes);
  return codes;
}

void store_client::publish(const endings& all, std::vector<store_code>& codes) {
  std::vector<std::pair<directory_link*, result<std::uint64_t>>> asked;
  for (const auto& [to, some] : all)
    asked.emplace_back(to, to->ask(op::publish, [&mine = some](byte_writer& out) {
      out.put(static_cast<std::uint32_t>(mine.size()));
      for (const auto& e : mine) {
        out.put(e.ticket);
        out.put(e.checksum);
      }
    }));
  for (const auto& [to, number] : asked) {
    const auto answer = number ? to->wait(*number) : fail(number.error());
    byte_reader in{answer ? std::span<const std::byte>{*answer} : std::span<const std::byte>{}};
    in.get<std::uint32_t>();
    for (const auto& e : all.at(to))
      codes[e.item] = answer ? as_store_code(in.get<std::int32_t>()) : store_wire::code_of(answer.error());
  }
}

void store_client::revoke(const endings& all) {
  for (const auto& [to, some] : all)
    to->ask(op::revoke, [&mine = some](byte_writer& out) {
        out.put(static_cast<std::uint32_t>(mine.size()));
        for (const auto& e : mine) out.put(e.ticket);
      }).and_then([link = to](std::uint64_t number) { return link->wait(number); });
}

// ---- the rest ----

std::vector<std::int32_t> store_client::exists(std::span<const std::string_view> keys) {
  const auto ask = [&] {
    return ask_about<std::int32_t>([this] { return links(); }, {op::exists, {}}, keys,
                                   [](byte_reader& in) { return std::int32_t{in.get<std::uint8_t>()}; },
                                   [](store_code why) { return static_cast<std::int32_t>(why); });
  };
  return patiently(ask, [](const auto& all) {
    return std::ranges::any_of(all, [](std::int32_t code) {
      return code == static_cast<std::int32_t>(store_code::directory_unreachable);
    });
  });
}

std::vector<store_code> store_client::remove(std::span<const std::string_view> keys, bool force) {
  const auto ask = [&] {
    return ask_about<store_code>([this] { return links(); }, {op::remove, force}, keys,
                                 [](byte_reader& in) { return as_store_code(in.get<std::int32_t>()); },
                                 [](store_code why) { return why; });
  };
  return patiently(ask, has_lost);
}

std::int64_t store_client::remove_all(std::string_view pattern, bool force) {
  const auto answers = ask_everyone(op::remove_all, [&](byte_writer& out) {
    out.put(static_cast<std::uint8_t>(force));
    out.put_text(pattern);
  });
  if (!answers) return static_cast<std::int64_t>(store_wire::code_of(answers.error()));
  std::int64_t removed = 0;
  for (const auto& answer : *answers) {
    byte_reader in{answer};
    const auto code = as_store_code(in.get<std::int32_t>());
    if (code != store_code::ok) return static_cast<std::int64_t>(code);
    removed += in.get<std::int64_t>();
  }
  return removed;
}

store_client::listing store_client::list(std::string_view pattern, std::uint32_t limit,
                                         std::string_view segment) {
  limit = std::min(limit, store_wire::batch_max);
  const auto answers = ask_everyone(op::list, [&](byte_writer& out) {
    out.put_text(pattern);
    out.put(limit);
    out.put_text(segment);
  });
  if (!answers) return {store_wire::code_of(answers.error()), {}};
  listing all;
  for (const auto& answer : *answers) {
    byte_reader in{answer};
    all.code = as_store_code(in.get<std::int32_t>());
    while (in.get<std::uint8_t>() != 0 && all.objects.size() < limit) {
      auto key = in.get_text();
      const auto size = in.get<std::uint64_t>();
      const auto replicas = in.get<std::uint8_t>();
      all.objects.push_back({std::move(key), size, replicas, in.get<std::uint8_t>()});
    }
  }
  return all;
}

/// Where a holder is mounted in some shards and not in others yet, the answer of the former counts.
store_code store_client::drain(std::string_view segment, bool on) {
  const auto answers = ask_everyone(op::drain, [&](byte_writer& out) {
    out.put_text(segment);
    out.put(static_cast<std::uint8_t>(on));
  });
  if (!answers) return store_wire::code_of(answers.error());
  auto code = store_code::segment_not_found;
  for (const auto& answer : *answers) {
    byte_reader in{answer};
    const auto one = as_store_code(in.get<std::int32_t>());
    if (one != store_code::segment_not_found) code = one;
  }
  return code;
}

result<std::string> store_client::tenant() {
  const auto to = links();
  if (!to) return fail(to.error());
  return (*to)->scope.tenant;
}

}  // namespace mooncaf
