#pragma once
// Carries out the options' disturbances: machines that are slow, behind a bad link, restarted, or die.

#include <cstdint>
#include <map>
#include <utility>

#include "runtime/sim/attempts.hpp"
#include "runtime/sim/cluster.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Machines die as in the live cluster:
///
///   dies ──► noticed ──► returns       its work and KV are gone at once; until its death is noticed,
///    │         │            │          requests still go there and wait
///    │         │            └ joins like a new machine, empty
///    │         └ the conductor forgets it; its requests ask for a place again, prompt and tokens so far
///    └ KV from there never arrives; a prefix that was to come from there is computed
class disturber {
 public:
  /// All of these outlive the disturber.
  disturber(world& w, cluster& c, attempts& requests) : w_(w), c_(c), requests_(requests) {}

  /// Every line of the options happens at its time.
  void begin();
  /// Line `number` begins (stamp 0), ends (1), or the restart of instance stamp - 2 goes on.
  void happen(std::uint32_t number, std::uint32_t stamp);
  /// By line `number`, and at random.
  void die(std::uint32_t number, std::uint32_t machine);
  /// The conductor hears that a machine is dead, unless it knows, and the machine's requests try again.
  void noticed(std::uint32_t machine);
  void returns(std::uint32_t number, std::uint32_t machine);

 private:
  std::uint32_t last_of(const disturbance& d) const noexcept;
  void change_speed(const disturbance& d, double factor);
  void begin_restart(std::uint32_t number, std::uint32_t instance);
  void go_on_restarting(std::uint32_t number, std::uint32_t instance);
  void begin_failures(std::uint32_t number);
  void expect_failure(std::uint32_t number, std::uint32_t machine);
  random_source& draws(std::uint32_t number, std::uint32_t machine);
  void cut_off(std::uint32_t machine);
  bool is_lost_with(const request_state_record& r, std::uint32_t machine) const noexcept;
  void lose(std::uint32_t slot);

  world& w_;
  cluster& c_;
  attempts& requests_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, random_source> draws_;  // by line and machine
};

}  // namespace mooncaf::sim
