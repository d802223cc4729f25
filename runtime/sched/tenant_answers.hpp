#pragma once
// How long the answers of a tenant are as a rule: a tenant that asks often asks alike.
//
//   gateway   hash of the API key's tenant and the request's `user` ─► schedule_job ─► schedule_request
//   conductor `typical(tenant)` ─► answer_class, where no earlier answer of the session is known
//             an answer ends ─► `remember(tenant, tokens)`

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncaf {

/// The geometric mean of a tenant's answers, recent ones counting more. A table of fixed size: of tenants
/// that collide, the one that asks less is forgotten first.
/// @thread  Owned by the conductor; not synchronised.
class tenant_answers {
 public:
  /// Tokens of an ordinary answer to this tenant; 0 if too few are known, or the tenant is 0.
  std::uint32_t typical(std::uint64_t tenant) const noexcept {
    if (tenant == 0 || table_.empty()) return 0;
    const auto& e = table_[place_of(tenant)];
    return e.tenant == tenant && e.answers >= enough ? static_cast<std::uint32_t>(std::exp2(e.mean)) : 0;
  }
  /// @param tenant  0 is unknown and not remembered. @param tokens  0 is not remembered.
  void remember(std::uint64_t tenant, std::uint32_t tokens) {
    if (tenant == 0 || tokens == 0) return;
    if (table_.empty()) table_.resize(places);
    auto& e = table_[place_of(tenant)];
    if (e.tenant != tenant) {
      // Another's place is taken once it was asked for as often as the other had answers of late.
      if (e.answers > 0) {
        --e.answers;
        return;
      }
      e = {tenant, 0, 0};
    }
    if (e.answers < most) ++e.answers;
    e.mean += (std::log2(static_cast<double>(tokens)) - e.mean) / e.answers;
  }

 private:
  static constexpr std::size_t places = std::size_t{1} << 12;
  static constexpr std::uint32_t enough = 4;  // answers, before they say anything
  static constexpr std::uint32_t most = 16;   // answers that the mean remembers
  static std::size_t place_of(std::uint64_t tenant) noexcept { return tenant & (places - 1); }
  struct entry {
    std::uint64_t tenant = 0;
    double mean = 0;  // of the logarithm to base 2
    std::uint32_t answers = 0;
  };
  std::vector<entry> table_;
};

}  // namespace mooncaf
