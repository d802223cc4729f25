#include "runtime/request/drain_core.hpp"

#include <utility>

namespace mooncaf {

namespace {

using namespace std::chrono_literals;

/// A client with an open connection may just be sending its next request: closing would lose it.
constexpr duration idle_grace = 1s;
/// A placement that was made before the conductor knew reaches its worker within this.
constexpr duration quiet = 200ms;
/// A conductor that is away for longer does not keep the process: it has no placements to make either.
constexpr duration announce_limit = 2s;
/// While the last instance of a role ends its work, new requests wait for its successor, 15 s at most
/// (`retry_rules::placing_limit`): what takes longer goes on with the successor, too.
constexpr duration last_limit = 5s;
/// For workers to give their requests back.
constexpr duration hand_over_limit = 2s;

}  // namespace

void drain_core::begin(time_point now) {
  if (stage_ != stage::serving) return;
  began_ = now;
  if (limit_ <= duration::zero()) return enter(stage::over, now);
  enter(parts_.front ? stage::front : stage::work, now);
}

void drain_core::look(const drain_facts& facts, time_point now) {
  switch (stage_) {
    case stage::front:
      return end_front(facts, now);
    case stage::work:
      return end_work(facts, now);
    case stage::handing_over:
      if (facts.held == 0 || now - entered_ >= hand_over_limit) enter(stage::over, now);
      return;
    case stage::serving:
    case stage::over:
      return;
  }
}

void drain_core::end_front(const drain_facts& facts, time_point now) {
  if (facts.at_front > 0) busy_ = now;
  const bool done = facts.at_front == 0 && (facts.connections == 0 || now - busy_ >= idle_grace);
  if (done || late(now)) enter(stage::work, now);
}

void drain_core::end_work(const drain_facts& facts, time_point now) {
  // A client whose connection stayed open may still have sent a request.
  const bool holds = facts.held > 0 || facts.at_front > 0;
  if (!facts.announced || holds) busy_ = now;
  if (late(now) || (facts.last && now - entered_ >= last_limit))
    return enter(facts.held > 0 ? stage::handing_over : stage::over, now);
  const bool alone = !facts.announced && !holds && now - entered_ >= announce_limit;
  if (alone || now - busy_ >= quiet) enter(stage::over, now);
}

void drain_core::enter(stage next, time_point now) {
  if (next == stage::work && !parts_.works) next = stage::over;
  stage_ = next;
  entered_ = busy_ = now;
  switch (next) {
    case stage::front:
      orders_.push_back(drain_order::close_front);
      if (parts_.works) return;  // others still send it work
      return orders_.push_back(drain_order::announce);
    case stage::work:
      return orders_.push_back(drain_order::announce);
    case stage::handing_over:
      return orders_.push_back(drain_order::hand_over);
    case stage::over:
      return orders_.push_back(drain_order::leave);
    case stage::serving:
      return;
  }
}

std::vector<drain_order> drain_core::take_orders() { return std::exchange(orders_, {}); }

std::string drain_core::waits_for(const drain_facts& facts) const {
  switch (stage_) {
    case stage::front:
      return std::to_string(facts.at_front) + " requests of clients, " + std::to_string(facts.connections) +
             " connections";
    case stage::work:
      return std::to_string(facts.held) + " requests of workers" +
             (facts.announced ? "" : ", the conductor's word");
    case stage::handing_over:
      return std::to_string(facts.held) + " requests to be handed over";
    case stage::serving:
    case stage::over:
      return "nothing";
  }
  return {};
}

}  // namespace mooncaf
