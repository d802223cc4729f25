#pragma once
// What the options call the choices of the rooms below, which do not know the options.

#include "config/options.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/model/device_kv.hpp"
#include "runtime/sched/admission.hpp"
#include "runtime/sched/policy.hpp"
#include "runtime/sched/prefetch_policy.hpp"
#include "storage/eviction.hpp"
#include "storage/write_policy.hpp"

namespace mooncaf {

kv_dtype as_dtype(kv_dtype_choice c) noexcept;
page_order as_order(l2_layout_choice c) noexcept;
/// @param hits  of `write_through_selective`.
device_write_rule as_rule(write_policy_choice c, std::uint32_t hits) noexcept;
placement_policy as_policy(placement_choice c) noexcept;
admission_policy as_policy(admission_choice c) noexcept;
eviction_policy as_policy(eviction_choice c) noexcept;
write_policy as_policy(write_policy_choice c) noexcept;
prefetch_options as_policy(const prefill_options& o) noexcept;

}  // namespace mooncaf
