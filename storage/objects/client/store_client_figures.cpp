// Figures of the whole store: the part of `store_client` that adds up the shards' figures.

#include <algorithm>
#include <type_traits>

#include "storage/objects/client/store_client.hpp"

namespace mooncaf {

using store_wire::op;

namespace {

/// @param one  reads an item. @param what  for the error.
template <class One>
auto read_lists(const std::vector<directory_link::answer>& answers, const One& one, const char* what)
    -> result<std::vector<std::invoke_result_t<One, byte_reader&>>> {
  std::vector<std::invoke_result_t<One, byte_reader&>> all;
  for (const auto& answer : answers) {
    byte_reader in{answer};
    for (auto n = in.get<std::uint32_t>(); n > 0 && in.ok(); --n) all.push_back(one(in));
    if (!in.ok()) return fail(ec::corrupt, std::string{"the directory's list of "} + what + " is cut short");
  }
  return all;
}

void nothing(byte_writer&) {}

/// A limit that is unlimited is so in every shard.
void add_limits(tenant_limit& to, const tenant_limit& more) {
  constexpr auto unlimited = ~std::uint64_t{0};
  for (const auto limit : {&tenant_limit::bytes, &tenant_limit::objects, &tenant_limit::disk_bytes})
    to.*limit = more.*limit == unlimited ? unlimited : to.*limit + more.*limit;
}

}  // namespace

result<std::vector<store_wire::mounted_segment>> store_client::segments() {
  auto version = store_wire::oldest;
  const auto answers = ask_everyone(op::segments, nothing, &version);
  if (!answers) return fail(answers.error());
  return read_lists(
      *answers, [&](byte_reader& in) { return store_wire::get_segment(in, version); }, "segments");
}

result<std::vector<store_wire::mounted_segment>> store_client::mounted() {
  const auto all = segments();
  if (!all) return fail(all.error());
  std::vector<store_wire::mounted_segment> merged;
  for (const auto& part : *all) {
    const auto known = std::find_if(merged.begin(), merged.end(),
                                    [&](const auto& s) { return s.view.name == part.view.name; });
    if (known == merged.end()) {
      merged.push_back(part);
      continue;
    }
    known->view.bytes += part.view.bytes;
    known->view.free_bytes += part.view.free_bytes;
    known->view.withheld_bytes += part.view.withheld_bytes;
    known->view.draining = known->view.draining || part.view.draining;
  }
  return merged;
}

result<std::vector<tenant_view>> store_client::tenants() {
  const auto answers = ask_everyone(op::tenants, nothing);
  if (!answers) return fail(answers.error());
  const auto all = read_lists(*answers, store_wire::get_tenant, "tenants");
  if (!all) return fail(all.error());
  std::vector<tenant_view> merged;
  for (const auto& part : *all) {
    const auto known =
        std::find_if(merged.begin(), merged.end(), [&](const auto& t) { return t.name == part.name; });
    if (known == merged.end()) {
      merged.push_back(part);
      continue;
    }
    add_limits(known->limit, part.limit);
    store_wire::add_counts(known->counts, part.counts);
  }
  return merged;
}

result<std::vector<store_wire::named_hot_object>> store_client::hottest() {
  const auto answers = ask_everyone(op::hottest, nothing);
  if (!answers) return fail(answers.error());
  auto all = read_lists(*answers, store_wire::get_hottest, "what is read most");
  if (!all) return all;
  std::stable_sort(all->begin(), all->end(),
                   [](const auto& a, const auto& b) { return a.object.reads_per_s > b.object.reads_per_s; });
  if (all->size() > hottest_objects_max) all->resize(hottest_objects_max);
  return all;
}

result<object_counts> store_client::counts() {
  const auto all = figures();
  if (!all) return fail(all.error());
  return all->counts;
}

result<directory_figures> store_client::figures() {
  const auto answers = ask_everyone(op::counts, nothing);
  if (!answers) return fail(answers.error());
  directory_figures all;
  for (const auto& answer : *answers) {
    byte_reader in{answer};
    store_wire::add_counts(all.counts, store_wire::get_counts(in));
    const auto times = store_wire::get_times(in);
    for (std::size_t i = 0; i < times.size(); ++i) all.times[i].add(times[i]);
  }
  return all;
}

}  // namespace mooncaf
