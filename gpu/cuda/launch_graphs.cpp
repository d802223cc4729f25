#include "gpu/cuda/launch_graphs.hpp"

#include <bit>
#include <cstring>

namespace mooncaf::cuda {

namespace {

/// Fewer launches than this are not worth a graph's own cost.
constexpr std::size_t shortest = 8;

/// Batches of every size up to 64, whose contexts take some numbers of splits.
constexpr std::size_t most_graphs = 128;

}  // namespace

void launch_list::add(kernel which, grid blocks, const void* params, std::size_t bytes) {
  const auto at = (params_.size() + 15) / 16 * 16;  // drivers read them as the structs that they are
  params_.resize(at + bytes);
  std::memcpy(params_.data() + at, params, bytes);
  launches_.push_back({which, blocks, at, bytes});
  for (const auto word : {static_cast<unsigned>(which), blocks.x, blocks.y, blocks.z})
    shape_ = std::rotl((shape_ ^ word) * 0x9e3779b97f4a7c15u, 29);
}

void launch_list::clear() noexcept {
  launches_.clear();
  params_.clear();
  shape_ = 1;
}

launch_view launch_list::operator[](std::size_t i) const noexcept {
  const auto& l = launches_[i];
  return {l.which, l.blocks, params_.data() + l.params};
}

bool launch_list::same_params(const launch_list& other, std::size_t i) const noexcept {
  const auto &a = launches_[i], &b = other.launches_[i];
  return std::memcmp(params_.data() + a.params, other.params_.data() + b.params, a.bytes) == 0;
}

void launch_graphs::run_one_by_one(stream& on, const launch_list& list) {
  for (std::size_t i = 0; i < list.size(); ++i) on.launch(list[i].which, list[i].blocks, list[i].params);
}

// A list becomes a graph when its shape comes for the second time, as making one costs more than a run saves.
// From then on only launches whose parameters changed cost a call. The graph used longest ago makes room.
void launch_graphs::run(stream& on, const launch_list& list) {
  if (refused_ || list.size() < shortest) return run_one_by_one(on, list);
  const auto shape = list.shape();
  const auto known = by_shape_.find(shape);
  if (known == by_shape_.end()) {
    entries_.push_front({shape, nullptr, {}});
    by_shape_[shape] = entries_.begin();
    if (entries_.size() > most_graphs) {
      by_shape_.erase(entries_.back().shape);
      entries_.pop_back();
    }
    return run_one_by_one(on, list);
  }
  entries_.splice(entries_.begin(), entries_, known->second);
  auto& e = entries_.front();
  if (e.graph == nullptr) {
    std::vector<launch_view> launches;
    for (std::size_t i = 0; i < list.size(); ++i) launches.push_back(list[i]);
    e.graph = on.keep(launches);
    refused_ = e.graph == nullptr;
    if (refused_) return run_one_by_one(on, list);
    e.made_of = list;
  } else {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list.same_params(e.made_of, i)) e.graph->change(i, list[i]);
    }
    e.made_of = list;
  }
  on.launch(*e.graph);
}

}  // namespace mooncaf::cuda
