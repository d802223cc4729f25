#pragma once
// A process with a modelled device (`--device model:PROFILE`): its profile decides in the place of a model
// file and of options.

#include <optional>

#include "config/options.hpp"
#include "runtime/loading/served_model.hpp"
#include "runtime/model/calibration.hpp"
#include "runtime/sim/modelled_pass.hpp"

namespace mooncaf {

/// The profile that `device` names; nothing if the device computes.
/// @error As of `sim::load_profile`.
result<std::optional<sim::profile>> modelled_by(const model_options& o);

/// Takes over the profile's tokens of blocks, chunks, batches and memory. Divides by the time scale the
/// options that are compared with the device's times: the SLOs, the predicted time of a decode, and how long
/// a role must be the fuller one. Every other time (leases, time limits, requests' limits, reported times) is
/// as the clock on the wall has it.
void follow_profile(options& o, const sim::profile& p);

/// Shape, fingerprint, vocabulary and chat template of a modelled model.
served_model serve_modelled(const sim::profile& p);

/// The profile as measurements of an instance, on this process's scaled clock.
/// @param stages  of a group, which takes the steps of a prompt a stage's time apart; of prefill alone.
std::vector<timing_sample> modelled_samples(const sim::profile& p, worker_role role, double time_scale,
                                            std::uint32_t stages);

}  // namespace mooncaf
