// Room that a writer has before it knows for which object: the part of `object_table` that saves a put one of
// its two questions.

#include <algorithm>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// Of all bytes, at most, for one such room: small stores and large objects are better asked for.
constexpr double largest_share = 1.0 / 256;
}  // namespace

reservation object_table::reserve_ahead(session_id writer, std::uint64_t size, const put_policy& policy,
                                        std::string_view host, time_point now) {
  const auto wanted = static_cast<double>(size) * std::max(policy.replicas, 1u);
  const auto all = static_cast<double>(total_bytes_);
  const bool fits = static_cast<double>(used_bytes_) + wanted <= all * options_.high_watermark;
  if (!policy.may_be_ahead() || wanted > all * largest_share || !fits) return {store_code::no_space, 0, {}};
  // Nobody can say such a name: what begins with a zero byte has another one behind it (`key_scope`).
  auto unsaid = std::to_string(next_ticket_);
  unsaid.insert(unsaid.begin(), '\0');
  const auto made = reserve(writer, unsaid, size, policy, host, now);
  if (made.code != store_code::ok) return made;
  tickets_.at(made.ticket)->second.ahead = true;
  ahead_.emplace_back(now + options_.ahead_for, made.ticket);
  return made;
}

store_code object_table::name(session_id writer, std::uint64_t ticket, std::string_view key, time_point now) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end() || found->second->second.writer != writer || !found->second->second.ahead)
    return store_code::not_found;
  if (!is_key(key)) return store_code::invalid_key;
  visible(key, now);  // an object past its time makes way
  if (objects_.find(key) != objects_.end() || replacing_.find(key) != replacing_.end())
    return store_code::already_exists;
  auto& e = *found->second;
  auto& o = e.second;
  const auto drained = [&](const held& part) { return segments_.at(part.segment).draining; };
  if (std::any_of(o.memory.begin(), o.memory.end(), drained)) return store_code::not_found;
  auto node = objects_.extract(objects_.find(e.first));
  node.key() = key;
  objects_.insert(std::move(node));  // the entry itself stays where it is
  o.ahead = false;
  o.version = next_ticket_++;  // others may have written this key since there was room for it
  order_.erase(o.place, false);
  place_in_chain(e, {});
  return store_code::ok;
}

void object_table::end_ahead(time_point now) {
  for (; !ahead_.empty() && ahead_.front().first <= now; ahead_.pop_front()) {
    const auto found = tickets_.find(ahead_.front().second);
    if (found == tickets_.end() || !found->second->second.ahead) continue;
    erase(*found->second, now + options_.quarantine, now);  // its writer may be late, and writing
  }
}

}  // namespace mooncaf
