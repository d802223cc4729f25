#include "tests/campaign/schedule.hpp"

#include <algorithm>
#include <sstream>

namespace mooncaf::campaign {

namespace {

const char* name_of(fault_kind kind) {
  constexpr const char* names[] = {"cut",   "cut one way", "kill",       "pause",     "slow",      "join",
                                   "leave", "drain",       "disk fails", "disk slow", "disk rots", "swallow"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<roles> draw_places(dice& luck) {
  std::vector<roles> out;
  // A small arena is full most of the time.
  const auto slots = [&] { return luck.chance(30) ? 10 + luck.below(6) : 24 + luck.below(24); };
  roles front;
  front.conductor = true;
  front.gateway = luck.chance(60);
  if (luck.chance(15)) {
    front.prefill = front.decode = true;
    front.slots = slots();
  }
  out.push_back(front);
  const auto gateways = luck.below(3) + !front.gateway;
  for (std::size_t i = 0; i < gateways; ++i) out.push_back({.gateway = true});
  const auto both = luck.below(2);
  for (std::size_t i = 0; i < both; ++i) out.push_back({.prefill = true, .decode = true, .slots = slots()});
  const auto pairs = 1 + luck.below(2);
  for (std::size_t i = 0; i < pairs; ++i) out.push_back({.prefill = true, .slots = slots()});
  for (std::size_t i = 0; i < pairs; ++i) out.push_back({.decode = true, .slots = slots()});
  if (luck.chance(30)) out.push_back({.slots = slots()});  // a cache node
  const bool disks = luck.chance(50);
  for (auto& p : out) {
    if (disks && p.slots > 0 && luck.chance(70)) p.ssd_blocks = 6 + luck.below(60);
  }
  return out;
}

std::vector<request_plan> draw_requests(dice& luck) {
  std::vector<request_plan> out;
  // Sometimes all want the same, which makes it hot.
  const bool alike = luck.chance(15);
  const auto count = 2 + luck.below(14) + (alike ? 12 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    request_plan r;
    r.when = 200ms + luck.between(0ms, 3s);
    r.gateway = luck.below(4);
    const auto document = static_cast<std::int32_t>(luck.below(alike ? 1 : 3));
    const auto shared = (alike ? 3 + luck.below(2) : luck.below(5)) * block_tokens;
    for (std::size_t t = 0; t < shared; ++t)
      r.prompt.push_back(document * 100 + static_cast<std::int32_t>(t));
    const auto own = 1 + luck.below(10);
    for (std::size_t t = 0; t < own; ++t)
      r.prompt.push_back(1000 + static_cast<std::int32_t>(luck.below(luck.chance(50) ? 2 : 1000)));
    r.tokens = static_cast<std::uint32_t>(1 + luck.below(14));
    r.answers = luck.chance(15) ? 2 : 1;
    if (luck.chance(15)) r.leaves = luck.between(1ms, 2s);
    out.push_back(std::move(r));
  }
  return out;
}

std::vector<fault> draw_faults(dice& luck, std::size_t places) {
  std::vector<fault> out;
  const auto count = luck.below(6);
  for (std::size_t i = 0; i < count; ++i) {
    fault f;
    constexpr fault_kind kinds[] = {
        fault_kind::cut,       fault_kind::cut,     fault_kind::cut_one_way, fault_kind::cut_one_way,
        fault_kind::kill,      fault_kind::pause,   fault_kind::slow,        fault_kind::join,
        fault_kind::leave,     fault_kind::leave,   fault_kind::disk_fails,  fault_kind::disk_slow,
        fault_kind::disk_rots, fault_kind::swallow, fault_kind::drain,       fault_kind::drain};
    f.what = kinds[luck.below(std::size(kinds))];
    f.when = 300ms + luck.between(0ms, 4s);
    f.place = luck.below(places);
    f.other = luck.below(places - 1);
    if (f.other >= f.place) ++f.other;
    f.length = luck.chance(30) ? luck.between(10ms, 2s) : luck.between(2s, luck.chance(20) ? 18s : 6s);
    out.push_back(f);
  }
  return out;
}

}  // namespace

schedule schedule::draw(std::uint64_t seed) {
  dice luck(seed * 2 + 1);
  schedule out;
  out.seed = seed;
  out.places = draw_places(luck);
  out.queues = luck.chance(70);
  constexpr write_policy policies[] = {write_policy::write_back, write_policy::write_through,
                                       write_policy::write_through_selective};
  out.writes = policies[luck.below(std::size(policies))];
  out.requests = draw_requests(luck);
  out.faults = draw_faults(luck, out.places.size());
  return out;
}

std::string schedule::describe() const {
  std::ostringstream out;
  const auto ms = [](duration d) {
    return std::chrono::duration_cast<std::chrono::microseconds>(d).count() / 1e3;
  };
  out << "seed " << seed << (queues ? ", admission queue, " : ", admission none, ") << to_string(writes)
      << '\n';
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& p = places[i];
    out << "  place " << i << ":" << (p.conductor ? " conductor" : "") << (p.gateway ? " gateway" : "")
        << (p.prefill ? " prefill" : "") << (p.decode ? " decode" : "");
    if (p.slots > 0) out << ", " << p.slots << " slots";
    if (p.ssd_blocks > 0) out << ", " << p.ssd_blocks << " blocks on SSD";
    out << '\n';
  }
  for (const auto& r : requests) {
    out << "  at " << ms(r.when) << " ms: " << r.prompt.size() << " tokens for " << r.tokens << " to gateway "
        << r.gateway;
    if (r.answers > 1) out << ", " << r.answers << " answers";
    if (r.leaves > 0ns) out << ", leaves after " << ms(r.leaves) << " ms";
    out << '\n';
  }
  for (const auto& f : faults) {
    out << "  at " << ms(f.when) << " ms: " << name_of(f.what) << " place " << f.place;
    if (f.what == fault_kind::cut || f.what == fault_kind::cut_one_way || f.what == fault_kind::slow)
      out << " and " << f.other;
    if ((f.what == fault_kind::leave || f.what == fault_kind::drain) && f.other % 2 != 0 &&
        !places[f.place].conductor)
      out << " for ever,";
    out << " for " << ms(f.length) << " ms\n";
  }
  return out.str();
}

schedule shrink(schedule what, const std::function<bool(const schedule&)>& fails) {
  const auto without_each = [&](auto member) {
    bool smaller = false;
    for (std::size_t i = (what.*member).size(); i-- > 0;) {
      auto less = what;
      (less.*member).erase((less.*member).begin() + static_cast<std::ptrdiff_t>(i));
      if (!fails(less)) continue;
      what = std::move(less);
      smaller = true;
    }
    return smaller;
  };
  while (without_each(&schedule::faults) || without_each(&schedule::requests)) {
  }
  // Places at the end leave without renaming the others, if no fault names them.
  while (what.places.size() > 1) {
    auto less = what;
    less.places.pop_back();
    const bool named = std::ranges::any_of(
        less.faults, [&](const fault& f) { return std::max(f.place, f.other) >= less.places.size(); });
    if (named || !fails(less)) break;
    what = std::move(less);
  }
  return what;
}

}  // namespace mooncaf::campaign
