// How a client reads objects: the part of `store_client` that finds them, waits for reads from SSD, and
// copies.

#include <algorithm>
#include <random>
#include <thread>

#include "runtime/base/hash.hpp"
#include "storage/objects/client/store_client.hpp"
#include "storage/objects/wire/store_batches.hpp"

namespace mooncaf {

using store_wire::op;

namespace {

/// Well inside a lease: bytes that are copied so soon after the question cannot have been written over.
constexpr auto surely_leased = std::chrono::seconds(5);

std::uint64_t checksum_of(target_pieces pieces) {
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto& p : pieces) XXH3_64bits_update(&hash, p.data(), p.size());
  return XXH3_64bits_digest(&hash);
}

}  // namespace

std::vector<object_view> store_client::ask_views(op what, std::span<const std::string_view> keys) {
  auto asked = clock_type::now();
  const auto refused = [](store_code why) {
    object_view none;
    none.code = why;
    return none;
  };
  auto views = patiently(
      [&] {
        asked = clock_type::now();
        return ask_about<object_view>([this] { return links(); }, {what, {}}, keys, store_wire::get_view,
                                      refused);
      },
      [](const auto& all) {
        return std::ranges::any_of(all,
                                   [](const auto& v) { return v.code == store_code::directory_unreachable; });
      });
  if (what != op::look)  // a mere look protects nothing
    for (auto& v : views) v.asked = asked;
  return views;
}

std::vector<std::span<const replica_place>> store_client::nearest_first(const object_view& object) const {
  auto order = replicas_of(object.places, object.size);
  if (order.size() < 2) return order;
  const auto elsewhere =
      std::stable_partition(order.begin(), order.end(), [&](const auto& r) { return reach_.is_local(r); });
  thread_local std::minstd_rand chance{std::random_device{}()};
  std::shuffle(elsewhere, order.end(), chance);
  std::stable_sort(elsewhere, order.end(), [&](const auto& a, const auto& b) {
    return reach_.closeness_of(a) > reach_.closeness_of(b);
  });
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

/// Asks for objects on SSD alone, one question for each, so far ahead of the copying that the disk has enough
/// to do, and not so far that they push each other out of memory.
class store_client::loads_ahead {
 public:
  loads_ahead(std::span<const std::string_view> keys, std::span<const object_view> views) {
    for (std::size_t i = 0; i < views.size(); ++i)
      if (views[i].code == store_code::ok && views[i].places.empty())
        all_.push_back({i, keys[i], views[i].size, 0});
  }

  void ask(const shard_links& to) {
    constexpr std::uint64_t bytes_max = 64 * MiB;
    constexpr std::size_t objects_max = 64;
    if (bytes_ > bytes_max / 2 || asked_ - next_ > objects_max / 2) return;
    const auto first = asked_;
    for (; asked_ < all_.size() && bytes_ < bytes_max && asked_ - next_ < objects_max; ++asked_)
      bytes_ += all_[asked_].size;
    if (asked_ == first) return;
    const auto now = clock_type::now();
    for (const auto& part : to.parts(asked_ - first, [&](std::size_t i) { return all_[first + i].key; })) {
      auto& link = *to.all[part.shard];
      const auto number = link.ask_all(op::load, part.size, [&](std::size_t i, byte_writer& out) {
        put_keys(out, {&all_[first + part.at(i)].key, 1});
      });
      for (std::size_t i = 0; i < part.size; ++i) {
        auto& one = all_[first + part.at(i)];
        one.of = &link;
        one.number = number ? *number + i : 0;
        one.asked = now;
        if (!number) one.problem = store_wire::code_of(number.error());
      }
    }
  }

  bool done() const { return next_ == all_.size(); }

  /// Waits for the next one. @returns which it is. @param view  the directory's answer.
  std::size_t wait(object_view& view) {
    const auto& one = all_[next_++];
    bytes_ -= one.size;
    const auto answer = one.number != 0 ? one.of->wait(one.number) : result<directory_link::answer>{};
    byte_reader in{answer ? std::span<const std::byte>{*answer} : std::span<const std::byte>{}};
    in.get<std::uint32_t>();
    view = store_wire::get_view(in);
    if (one.number == 0) view.code = one.problem;
    else if (!answer || !in.ok())
      view.code = answer ? store_code::internal : store_wire::code_of(answer.error());
    view.asked = one.asked;
    view.loaded = one.key;
    return one.item;
  }

 private:
  struct load {
    std::size_t item;
    std::string_view key;
    std::uint64_t size, number;
    directory_link* of = nullptr;
    time_point asked{};
    store_code problem = store_code::ok;
  };
  std::vector<load> all_;
  std::size_t next_ = 0, asked_ = 0;
  std::uint64_t bytes_ = 0;  ///< of the objects between the two
};

/// An object that finds no room in memory because all is leased is asked for again, for as long as others
/// find some, and a second more.
std::vector<store_code> store_client::get(std::span<const std::string_view> keys, const target_of& into) {
  constexpr duration patience = std::chrono::seconds(1), longest = std::chrono::milliseconds(32);
  auto codes = get_once(keys, into);
  duration pause = std::chrono::milliseconds(2);
  std::size_t last = keys.size() + 1;
  for (auto until = clock_type::now();;) {
    std::vector<std::string_view> rest;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const bool lost = codes[i] == store_code::directory_unreachable && dialer_.patience() > duration{};
      if (codes[i] != store_code::no_space && !lost) continue;
      rest.push_back(keys[i]);
      which.push_back(i);
    }
    if (rest.size() < last) until = clock_type::now() + patience;
    last = rest.size();
    if (rest.empty() || clock_type::now() >= until) return codes;
    std::this_thread::sleep_for(pause);
    pause = std::min<duration>(2 * pause, longest);
    const auto again =
        get_once(rest, [&](std::size_t i, std::uint64_t size) { return into(which[i], size); });
    for (std::size_t i = 0; i < rest.size(); ++i) codes[which[i]] = again[i];
  }
}

std::vector<store_code> store_client::get_once(std::span<const std::string_view> keys,
                                               const target_of& into) {
  auto views = ask_views(op::find, keys);
  std::vector<store_code> codes(keys.size());
  const auto copy = [&](std::size_t i) {
    codes[i] = views[i].code;
    if (codes[i] != store_code::ok) return;
    const auto pieces = into(i, views[i].size);
    codes[i] = pieces.empty() ? store_code::invalid_parameters : read(views[i], pieces);
  };
  loads_ahead on_disk{keys, views};
  const auto to = on_disk.done() ? result<shard_dialer::links>{} : links();
  if (!to) return std::vector<store_code>(keys.size(), store_wire::code_of(to.error()));
  if (!on_disk.done()) on_disk.ask(**to);
  for (std::size_t i = 0; i < views.size(); ++i)
    if (views[i].code != store_code::ok || !views[i].places.empty()) copy(i);
  while (!on_disk.done()) {
    on_disk.ask(**to);
    object_view view;
    const auto i = on_disk.wait(view);
    views[i] = std::move(view);
    copy(i);
  }
  return codes;
}

store_code store_client::read(const object_view& object, target_pieces pieces) {
  auto code = read_once(object, pieces);
  // An object from SSD may have had to make room for another before it was read, or found no room itself.
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
  const auto leased = [&] {
    return object.loaded.empty() && clock_type::now() - object.asked < surely_leased;
  };
  for (const auto replica : nearest_first(object)) {
    // The fastest copy loads a line twice, to hash it and to copy it: without a lease that proves nothing.
    const bool looked_at = !leased();
    const auto sum = reach_.read(replica, pieces, looked_at);
    if (sum && *sum == object.checksum && (looked_at || leased() || checksum_of(pieces) == object.checksum))
      return store_code::ok;
    if (sum || sum.error() == ec::corrupt) outcome = store_code::checksum_mismatch;
  }
  return outcome;
}

}  // namespace mooncaf
