#include "storage/objects/wire/shard_links.hpp"

#include <algorithm>
#include <thread>

namespace mooncaf {

void shard_links::ask(store_wire::op what, std::span<const shard_part> parts,
                      const std::function<void(const shard_part&, byte_writer&)>& payload,
                      const std::function<void(const shard_part&, const answer&)>& heard) const {
  if (parts.size() == 1)
    return heard(parts[0],
                 all[parts[0].shard]->ask_and_wait(what, [&](byte_writer& out) { payload(parts[0], out); }));
  std::vector<result<std::uint64_t>> asked;
  for (const auto& p : parts)
    asked.push_back(all[p.shard]->ask(what, [&](byte_writer& out) { payload(p, out); }));
  for (std::size_t i = 0; i < parts.size(); ++i)
    heard(parts[i],
          asked[i].and_then([&](std::uint64_t number) { return all[parts[i].shard]->wait(number); }));
}

result<std::vector<directory_link::answer>> shard_links::ask_everyone(
    store_wire::op what, const std::function<void(byte_writer&)>& payload) const {
  std::vector<shard_part> parts;
  for (std::uint32_t i = 0; i < all.size(); ++i) parts.push_back({i, 0});
  std::vector<directory_link::answer> answers;
  error problem;
  ask(
      what, parts, [&](const shard_part&, byte_writer& out) { payload(out); },
      [&](const shard_part&, const answer& a) {
        if (a) answers.push_back(*a);
        else problem = a.error();
      });
  if (answers.size() < all.size()) return fail(problem);
  return answers;
}

result<shard_dialer::links> shard_dialer::get() {
  constexpr duration pause = std::chrono::milliseconds(10);
  for (const auto since = clock_type::now();; std::this_thread::sleep_for(pause)) {
    auto made = get_now();
    const bool refused = !made && (made.error() == ec::unauthenticated || made.error() == ec::incompatible);
    if (made || refused || clock_type::now() - since >= patience()) return made;
  }
}

result<shard_dialer::links> shard_dialer::get_now() {
  std::lock_guard lock{mutex_};
  const auto whole = [](const shard_links& l) {
    return std::none_of(l.all.begin(), l.all.end(), [](const auto& link) { return !link->usable(); });
  };
  if (links_ && whole(*links_)) return links_;
  constexpr duration shortest = std::chrono::milliseconds(20), longest = std::chrono::milliseconds(500);
  if (clock_type::now() < dial_again_) return fail(not_reached_);
  auto made = dial();
  if (!made) {
    pause_ = std::clamp(2 * pause_, shortest, longest);
    dial_again_ = clock_type::now() + pause_;
    not_reached_ = made.error();
    return made;
  }
  pause_ = {};
  links_ = std::move(*made);
  return links_;
}

/// Makes all links anew: where one broke because the directory was killed, the others may not have noticed
/// yet. A call that is under way keeps the link that it uses.
result<shard_dialer::links> shard_dialer::dial() {
  auto made = std::make_shared<shard_links>();
  for (std::uint32_t i = 0, count = 1; i < count; ++i) {
    auto to = to_;
    to.shard = i;
    auto link = directory_link::connect(to);
    if (link && i == 0) count = (*link)->welcome().shard.count;
    if (!link) return fail(link.error());
    const bool same = i == 0 || (*link)->speaks() == made->speaks();
    if (!same ||
        !((*link)->welcome().shard == shard_place{i, count}))  // it was started again while this asked
      return fail(ec::peer_lost, "the directory has another number of shards, or another version, by now");
    made->all.push_back(std::move(*link));
  }
  const auto& tenant = made->all.front()->welcome().tenant;
  made->scope = {tenant, to_.everyone && tenant.empty()};
  return links{std::move(made)};
}

void shard_dialer::close() {
  closed_ = true;
  std::lock_guard lock{mutex_};
  if (!links_) return;
  for (const auto& link : links_->all) link->close();
}

}  // namespace mooncaf
