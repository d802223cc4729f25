#include "runtime/launch/launch_core.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf::launch {

launch_core::launch_core(const launch_plan& plan, std::string version, bool keep_going)
    : plan_(plan), version_(std::move(version)), keep_going_(keep_going), hosts_(plan.hosts.size()) {}

std::vector<launch_action> launch_core::begin() {
  std::vector<launch_action> all;
  for (std::size_t i = 0; i < hosts_.size(); ++i) all.push_back({launch_step::examine, i, {}, false, {}});
  open_ = all.size();
  return all;
}

void launch_core::note(std::size_t host, std::string what) {
  hosts_[host].lost = true;
  problems_.push_back({host, std::move(what)});
}

std::vector<launch_action> launch_core::examined(std::size_t host, const result<host_facts>& facts) {
  if (!facts) {
    note(host, facts.error().detail);
    return answered();
  }
  hosts_[host].before = facts->nodes;
  hosts_[host].lacks_model = !facts->model;
  hosts_[host].has_whole = facts->whole_model;
  for (auto& lack : judge_host(plan_.hosts[host], *facts, version_)) note(host, std::move(lack));
  return answered();
}

std::vector<launch_action> launch_core::fetched(std::size_t host, const result<void>& outcome) {
  if (!outcome) note(host, outcome.error().detail);
  return answered();
}

std::vector<launch_action> launch_core::carried(std::size_t host, const result<void>& outcome) {
  if (!outcome) note(host, outcome.error().detail);
  return answered();
}

std::vector<launch_action> launch_core::restored(std::size_t host, const result<void>& outcome) {
  if (!outcome) {
    problems_.push_back({host, "could not be put back: " + outcome.error().detail});
    ++stuck_;
  }
  --open_;
  return {};
}

std::vector<launch_action> launch_core::answered() {
  if (--open_ > 0) return {};
  if (cancelled_) return give_up();
  if (!std::exchange(examined_, true))
    if (auto batch = fetches(); !batch.empty()) return batch;
  // Nothing goes without the conductor; once its stage is over it runs, whatever its host lacks then.
  const auto vital = [&](std::size_t i) {
    return stage_ <= 1 && plan_.hosts[i].entry.count("conductor") > 0;
  };
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i].lost && (!keep_going_ || vital(i))) return give_up();
  return next_stage();
}

/// Hosts without their model get it from those that have a file or folder of that name. Nothing is fetched where the
/// cluster will not start anyway.
std::vector<launch_action> launch_core::fetches() {
  const auto name = [&](std::size_t i) {
    const auto& path = plan_.hosts[i].model;
    return path.substr(path.rfind('/') + 1);
  };
  std::vector<launch_action> batch;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].lost || !hosts_[i].lacks_model) continue;
    launch_action fetch{launch_step::fetch, i, {}, false, {}};
    for (std::size_t j = 0; j < hosts_.size(); ++j)
      if (!hosts_[j].lost && hosts_[j].has_whole && !name(i).empty() && name(j) == name(i))
        fetch.sources.push_back(j);
    if (fetch.sources.empty())
      note(i, "has no model " + plan_.hosts[i].model + ", and no other host has one of that name");
    else batch.push_back(std::move(fetch));
  }
  const bool stays = !keep_going_ && std::ranges::any_of(hosts_, [](const auto& h) { return h.lost; });
  if (stays) batch.clear();
  open_ = batch.size();
  return batch;
}

/// Processes of this stage and the earlier ones as planned; others as they were, until the host's last stage.
node_texts launch_core::wish(std::size_t host, std::uint32_t stage) const {
  const auto& nodes = plan_.hosts[host].nodes;
  node_texts wanted;
  if (nodes.back().stage > stage) wanted = hosts_[host].before;
  for (const auto& node : nodes)
    if (node.stage <= stage) wanted[node.name] = node.text;
  return wanted;
}

std::vector<launch_action> launch_core::next_stage() {
  std::vector<launch_action> batch;
  // A stage that no host takes part in is passed over; the one past the last waits for the gateways' answers.
  while (batch.empty() && stage_ <= stages) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const auto& nodes = plan_.hosts[i].nodes;
      const bool last = stage_ == stages;
      const bool concerned = last ? !plan_.hosts[i].gateways.empty()
                                  : std::ranges::any_of(nodes, [&](auto& n) { return n.stage == stage_; });
      if (hosts_[i].lost || !concerned) continue;
      hosts_[i].touched = true;
      batch.push_back({launch_step::carry, i, wish(i, stage_), last, {}});
    }
    ++stage_;
  }
  open_ = batch.size();
  return batch;
}

std::vector<launch_action> launch_core::give_up() {
  gave_up_ = true;
  std::vector<launch_action> batch;
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i].touched) batch.push_back({launch_step::restore, i, hosts_[i].before, false, {}});
  open_ = batch.size();
  return batch;
}

}  // namespace mooncaf::launch
