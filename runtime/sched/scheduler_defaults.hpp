#pragma once
// Values of scheduling when none are given, with unit and reason: the one place for the server, which counts
// them among its options (config/defaults.hpp), for the conductor's core and for the simulator.

#include <chrono>
#include <cstdint>

#include "runtime/sched/admission_policy.hpp"
#include "runtime/sched/placement_policy.hpp"

namespace mooncaf::defaults::scheduler {

using namespace std::chrono_literals;

inline constexpr auto policy = placement_policy::kvcache_centric;
inline constexpr auto admission = admission_policy::queue;  // as users of other servers expect
inline constexpr std::uint32_t max_queued =
    2048;  // requests; as many as a gateway holds: minutes of work, beyond which clients give up
// Admission adaptive plays the last minutes again: longer ones than a burst lasts, and shorter than a day's turns.
inline constexpr auto shadow_every = 5s;
inline constexpr auto shadow_memory = 4min;
inline constexpr auto ttft_slo = 30s;   // the Mooncake paper's
inline constexpr auto tbt_slo = 300ms;  // the most generous of the paper's 100, 200 and 300 ms: CPUs decode
inline constexpr double balancing_threshold =
    2.0;  // a remote prefix must be this much longer to be worth fetching
inline constexpr auto predicted_decode = 10s;  // t_d: how long a decode is taken to last
inline constexpr std::uint64_t seed = 1;       // of the random policy and of ties; fixed, so runs repeat
// Few blocks are used by almost every request: there is no need for more, and conversations keep the rest.
inline constexpr double hot_copy_share = 0.1;
// Of 2, 5, 10, 20 and 30 s the shorter the better where load turns within minutes, as a change moves nothing
// (tests/bench/elastic_live.py); a step, and the reports of it, must be shorter.
inline constexpr auto elastic_hold = 5s;
// Scaling: room for a burst while a machine starts; fewer only after as long as Kubernetes waits; and machines that
// take minutes to come should not come for one.
inline constexpr double target_load = 0.7;
inline constexpr auto down_after = 5min;
inline constexpr auto scale_every = 15s;
inline constexpr int calm_looks = 4;  // over which loads are means

}  // namespace mooncaf::defaults::scheduler
