#include "actors/policy_choices.hpp"

namespace mooncaf {

device_write_rule as_rule(write_policy_choice c, std::uint32_t hits) noexcept {
  if (c == write_policy_choice::write_through) return {};
  return {false, c == write_policy_choice::write_through_selective ? hits : 0};
}

page_order as_order(l2_layout_choice c) noexcept {
  switch (c) {
    case l2_layout_choice::page_first_direct:
      return page_order::page_first_direct;
    case l2_layout_choice::page_first:
      return page_order::page_first;
    case l2_layout_choice::layer_first:
      return page_order::layer_first;
  }
  return page_order::page_first_direct;
}

kv_dtype as_dtype(kv_dtype_choice c) noexcept {
  return c == kv_dtype_choice::f16 ? kv_dtype::f16 : kv_dtype::f32;
}

placement_policy as_policy(placement_choice c) noexcept {
  switch (c) {
    case placement_choice::random:
      return placement_policy::random;
    case placement_choice::load_balancing:
      return placement_policy::load_balancing;
    case placement_choice::cache_aware:
      return placement_policy::cache_aware;
    case placement_choice::kvcache_centric:
      return placement_policy::kvcache_centric;
  }
  return placement_policy::kvcache_centric;
}

admission_policy as_policy(admission_choice c) noexcept {
  switch (c) {
    case admission_choice::none:
      return admission_policy::none;
    case admission_choice::baseline:
      return admission_policy::baseline;
    case admission_choice::early:
      return admission_policy::early;
    case admission_choice::predictive:
      return admission_policy::predictive;
    case admission_choice::per_request:
      return admission_policy::per_request;
    case admission_choice::priced:
      return admission_policy::priced;
    case admission_choice::queue:
      return admission_policy::queue;
  }
  return admission_policy::queue;
}

eviction_policy as_policy(eviction_choice c) noexcept {
  switch (c) {
    case eviction_choice::lru:
      return eviction_policy::lru;
    case eviction_choice::lfu:
      return eviction_policy::lfu;
    case eviction_choice::length_aware:
      return eviction_policy::length_aware;
  }
  return eviction_policy::lru;
}

write_policy as_policy(write_policy_choice c) noexcept {
  switch (c) {
    case write_policy_choice::write_back:
      return write_policy::write_back;
    case write_policy_choice::write_through:
      return write_policy::write_through;
    case write_policy_choice::write_through_selective:
      return write_policy::write_through_selective;
  }
  return write_policy::write_back;
}

prefetch_options as_policy(const prefill_options& o) noexcept {
  prefetch_options out;
  out.mode = o.prefetch == prefetch_choice::best_effort     ? prefetch_mode::best_effort
             : o.prefetch == prefetch_choice::wait_complete ? prefetch_mode::wait_complete
                                                            : prefetch_mode::timeout;
  out.base = o.prefetch_timeout_base;
  out.per_1024_tokens = o.prefetch_timeout_per_ki_token;
  out.threshold_tokens = o.prefetch_threshold;
  return out;
}

}  // namespace mooncaf
