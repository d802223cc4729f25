// What a node decides about the cluster: whom it calls and joins, and when its actors hear of a peer.

#include "runtime/request/membership_core.hpp"

#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

const host_port seed{"first", 7400};

introduction_ptr node(std::uint64_t id, const block_key& fingerprint = {}, std::uint32_t wire = 13) {
  introduction out;
  out.id = node_id{id};
  out.name = "node-" + std::to_string(id);
  out.host = "host";
  out.control_port = static_cast<std::uint16_t>(id);
  out.fingerprint = fingerprint;
  out.wire = wire;
  out.model = fingerprint == block_key{} ? "the model" : "another model";
  return std::make_shared<const introduction>(out);
}

struct membership_world {
  /// What the core wants now, a word each: "dial host:2", "meet 2".
  std::vector<std::string> wanted() {
    std::vector<std::string> out;
    for (const auto& action : core.take_actions())
      std::visit([&](const auto& a) { out.push_back(say(a)); }, action);
    return out;
  }
  std::string say(const membership_action::dial& a) {
    greeting = a.greeting;
    return "dial " + to_string(a.where);
  }
  std::string say(const membership_action::found& a) { return "found " + to_string(a.conductor->id); }
  std::string say(const membership_action::join& a) { return "join " + to_string(a.conductor->id); }
  std::string say(const membership_action::follow& a) {
    return a.conductor ? "follow " + to_string(a.conductor->id) : "follow none";
  }
  std::string say(const membership_action::meet& a) { return "meet " + to_string(a.peer->id); }
  std::string say(const membership_action::part& a) { return "part " + to_string(a.peer->id) + ": " + a.why; }
  std::string say(const membership_action::speak& a) { return "speak " + std::to_string(a.version); }
  std::string say(const membership_action::complain& a) { return a.about + ": " + a.problem; }
  std::string say(const membership_action::give_up& a) {
    reason = a.why;
    return "give up";
  }
  /// The member at the other end of the latest dial answers.
  void answers(const introduction_ptr& who, bool conducts = false, std::uint64_t number = 1) {
    core.reached(greeting);
    core.answered(greeting, who, number, conducts, now);
  }
  /// Brings this node to where it has joined the conductor of node 1, whose other members are these.
  void join(std::initializer_list<std::uint64_t> others = {}) {
    core.tick(now);
    REQUIRE(wanted() == words{"dial first:7400"});
    answers(node(1), true);
    REQUIRE(wanted() == words{"meet 1", "found 1", "join 1"});
    std::vector<introduction> members{*node(1), *node(5)};
    for (const auto id : others) members.push_back(*node(id));
    core.joined(node_id{1}, members, now);
    REQUIRE(core.report().node == node_id{5});
  }

  using words = std::vector<std::string>;
  time_point now{1000s};
  membership_core core{node(5), {{seed}, {}}, {0s, {}}};
  greeting_ticket greeting = 0;
  error reason;
};

}  // namespace

TEST_CASE_FIXTURE(membership_world, "a node finds the conductor, joins it and calls its members, each once") {
  join({7, 9});
  CHECK(wanted() == words{"follow 1", "dial host:7", "dial host:9"});
  CHECK(core.report().unreachable == std::vector{node_id{7}, node_id{9}});
  answers(node(9));
  CHECK(wanted() == words{"meet 9"});
  core.tick(now += 1h);
  CHECK(wanted().empty());  // the call of 7 is under way
  CHECK(core.report().unreachable == std::vector{node_id{7}});
}

TEST_CASE_FIXTURE(membership_world,
                  "a conductor that is not there is looked for with back-off, and one complaint") {
  std::string expected;
  bool reached = false;
  SUBCASE("nobody is there") { expected = "join first:7400: " + to_string(error{ec::peer_lost, "nobody"}); }
  SUBCASE("another node is there") {
    reached = true;
    expected = "join first:7400: " + to_string(error{ec::not_found, "no conductor runs there"});
  }
  int dials = 0, complaints = 0;
  for (const auto end = now + 60s; now < end; now += 50ms) {
    core.tick(now);
    for (const auto& word : wanted()) {
      if (word == expected) ++complaints;
      if (word != "dial first:7400") continue;
      ++dials;
      if (reached) answers(node(2));
      else core.missed(greeting, {ec::peer_lost, "nobody"}, now);
    }
  }
  CHECK(dials >= 25);
  CHECK(dials <= 70);
  CHECK(complaints == 1);
  // It comes after all.
  now += 10s;
  core.tick(now);
  REQUIRE(wanted().back() == "dial first:7400");
  answers(node(1), true);
  core.joined(node_id{1}, {}, now);
  CHECK(wanted().back() == "follow 1");
  // What is wrong anew is news.
  core.lost(node_id{1}, "the link broke", now);
  now += 10s;
  core.tick(now);
  CHECK(wanted() == words{"part 1: the link broke", "follow none", "dial first:7400"});
  core.missed(greeting, {ec::peer_lost, "nobody"}, now);
  CHECK(wanted() == words{"join first:7400: " + to_string(error{ec::peer_lost, "nobody"})});
}

TEST_CASE_FIXTURE(membership_world,
                  "a conductor that does not let a node join is asked again, unless it never will") {
  core.tick(now);
  REQUIRE(wanted() == words{"dial first:7400"});
  answers(node(1), true);
  wanted();
  core.not_joined(node_id{1}, {ec::timed_out, "no answer"}, now);
  CHECK(wanted() == words{"join first:7400: " + to_string(error{ec::timed_out, "no answer"})});
  core.tick(now);
  CHECK(wanted().empty());
  core.tick(now += 1s);
  REQUIRE(wanted() == words{"dial first:7400"});
  SUBCASE("by the conductor's own node") { core.refused(greeting, {ec::incompatible, "another model"}, now); }
  SUBCASE("by the conductor") {
    answers(node(1), true, 2);
    wanted();
    core.not_joined(node_id{1}, {ec::incompatible, "another model"}, now);
  }
  CHECK(wanted() == words{"give up"});
  CHECK(reason.detail == "another model");
}

TEST_CASE("the conductor's own process joins it without a call, until it is let in") {
  membership_core core{node(5), {{}, 0}, {0s, {}}};
  time_point now{1000s};
  core.tick(now);
  auto actions = core.take_actions();
  REQUIRE(actions.size() == 1);
  CHECK(std::get<membership_action::join>(actions[0]).conductor->id == node_id{5});
  core.not_joined(node_id{5}, {ec::timed_out, "no answer"}, now);
  core.take_actions();
  core.tick(now += 10s);
  actions = core.take_actions();
  REQUIRE(actions.size() == 1);
  CHECK(std::holds_alternative<membership_action::join>(actions[0]));
}

TEST_CASE("a node that shall have no conductor looks for none") {
  membership_core core{node(5), {}, {0s, {}}};
  core.tick(time_point{1000s});
  CHECK(core.take_actions().empty());
}

TEST_CASE_FIXTURE(membership_world, "a node that the conductor dropped joins again, once; news are learned") {
  join();
  wanted();
  core.stands(node_id{1}, {false, 3, false}, {}, now);
  core.stands(node_id{1}, {false, 3, false}, {}, now);  // of a report that was under way
  CHECK(wanted() == words{"join 1"});
  core.joined(node_id{1}, {*node(1)}, now);
  CHECK(core.report().roster == 0);
  wanted();
  core.stands(node_id{1}, {true, 4, true}, {*node(1), *node(7)}, now);
  CHECK(core.report().roster == 4);
  CHECK(core.report().unreachable == std::vector{node_id{7}});
  CHECK(wanted().empty());  // a member that is new calls
  core.stands(node_id{1}, {true, 5, false}, {}, now);
  CHECK(core.report().roster == 5);
  CHECK(core.report().unreachable == std::vector{node_id{7}});  // no news of others
}

TEST_CASE_FIXTURE(membership_world,
                  "the conductor's node is called to join it, and as a member no more often") {
  join({1, 7});
  wanted();
  core.lost(node_id{1}, "the link broke", now);
  CHECK(wanted() == words{"part 1: the link broke", "follow none"});
  core.tick(now += 10s);
  CHECK(wanted() == words{"dial first:7400"});
}

TEST_CASE_FIXTURE(membership_world, "actors hear of a peer that had lost this node as if both had noticed") {
  join();
  wanted();
  const auto first = core.greeted(node(7), 3, now).value();
  CHECK(wanted() == words{"meet 7"});
  CHECK(core.greeted(node(7), 2, now).value() == first);  // a greeting that was overtaken
  CHECK(core.greeted(node(7), 3, now).value() == first);
  CHECK(wanted().empty());
  // It counts this meeting anew here, too: what it had at this node is gone.
  CHECK(core.greeted(node(7), 4, now).value() != first);
  CHECK(wanted() == words{"part 7: it had lost this node", "meet 7"});
}

TEST_CASE_FIXTURE(membership_world, "a loss while a link is opened makes another meeting of it") {
  join({9});
  wanted();
  const auto of_the_call = greeting;
  const auto before = core.greeted(node(9), 1, now).value();
  core.lost(node_id{9}, "the link broke", now);
  CHECK(core.reached(of_the_call) != before);
}

TEST_CASE_FIXTURE(membership_world, "a peer that was fenced before it was greeted last is not lost again") {
  join();
  REQUIRE(core.greeted(node(7), 1, now));
  wanted();
  const auto asked = now;
  core.fenced(std::vector{node_id{7}, node_id{8}}, asked, now);
  CHECK(wanted().empty());
  core.fenced(std::vector{node_id{7}, node_id{8}}, asked + 1ms, now + 1ms);
  CHECK(wanted() == words{"part 7: it was fenced"});
  core.lost(node_id{7}, "the link broke", now);  // known already
  CHECK(wanted().empty());
}

TEST_CASE_FIXTURE(membership_world, "a peer with another model is refused, and told whose model is which") {
  join();
  wanted();
  const auto answer = core.greeted(node(7, hash_text128("another model")), 1, now);
  REQUIRE(!answer);
  CHECK(answer.error().code == ec::incompatible);
  CHECK(answer.error().detail ==
        "node node-5 at host:5 serves the model (), node node-7 has another model ()");
  CHECK(wanted().empty());
}

TEST_CASE_FIXTURE(membership_world,
                  "a node says what its oldest peer reads, before its actors meet it and until it is gone") {
  join();
  CHECK(wanted() == words{"follow 1"});
  CHECK(core.report().speaks == 13);
  REQUIRE(core.greeted(node(7, {}, 12), 1, now));
  CHECK(wanted() == words{"speak 12", "meet 7"});
  CHECK(core.report().speaks == 12);
  REQUIRE(core.greeted(node(8, {}, 14), 1, now));  // it will say what this node reads
  REQUIRE(core.greeted(node(9, {}, 12), 1, now));
  CHECK(wanted() == words{"meet 8", "meet 9"});
  REQUIRE(core.greeted(node(7, {}, 13), 2, now));  // restarted as the new release, before its old link broke
  CHECK(wanted() == words{"part 7: it had lost this node", "meet 7"});
  core.lost(node_id{9}, "gone", now);
  CHECK(wanted() == words{"part 9: gone", "speak 13"});
  CHECK(core.report().speaks == 13);
}

TEST_CASE_FIXTURE(membership_world, "a node that drains says so until the conductor that it follows knows") {
  join();
  core.drain();
  CHECK(core.report().draining);
  CHECK_FALSE(core.report().announced);
  core.stands(node_id{1}, {true, 1, false, true, true}, {}, now);
  CHECK(core.report().announced);
  CHECK(core.report().last);
  core.lost(node_id{1}, "the link broke", now);  // another conductor will not know
  CHECK_FALSE(core.report().announced);
  CHECK_FALSE(core.report().last);
  CHECK(core.report().draining);
}

// ---- several conductors ----

namespace {

introduction_ptr conductor(std::uint64_t id, std::uint32_t seat) {
  auto out = *node(id);
  out.seat = seat;
  return std::make_shared<const introduction>(out);
}

lead_claim claim_of(std::uint64_t id, std::uint64_t term, bool leads) {
  return {term, node_id{id}, leads, {}};
}

/// Node 5 with the conductors of nodes 1 and 2, at "one" and "two".
struct standby_world : membership_world {
  standby_world() { core = membership_core{node(5), {{{"one", 1}, {"two", 2}}, {}}, {600ms, {}}}; }

  /// It is a member at both, and node 1 leads.
  void join_both() {
    core.tick(now);
    REQUIRE(wanted() == words{"dial one:1", "dial two:2"});
    const auto second = greeting;
    core.reached(second - 1);
    core.answered(second - 1, conductor(1, 1), 1, true, now);
    core.reached(second);
    core.answered(second, conductor(2, 2), 1, true, now);
    REQUIRE(wanted() == words{"meet 1", "found 1", "join 1", "meet 2", "found 2", "join 2"});
    core.joined(node_id{1}, {*conductor(1, 1), *conductor(2, 2)}, now);
    core.joined(node_id{2}, {*conductor(1, 1), *conductor(2, 2)}, now);
    REQUIRE(wanted() == words{"follow 1"});
    REQUIRE(core.claimed(claim_of(1, 2, false), now).granted);
    REQUIRE(core.claimed(claim_of(1, 2, true), now).granted);
    REQUIRE(wanted() == words{"follow 1"});  // of its term now
  }
};

}  // namespace

TEST_CASE_FIXTURE(standby_world, "a node is a member at every conductor, and asks the one that leads") {
  join_both();
  CHECK(core.conductors().size() == 2);
  CHECK(core.report().term == 2);
  CHECK_FALSE(core.claimed(claim_of(2, 3, false), now).granted);
  now += 700ms;
  CHECK(core.claimed(claim_of(2, 3, false), now).granted);
  CHECK(wanted().empty());  // it may not get through
  CHECK(core.claimed(claim_of(2, 3, true), now).granted);
  CHECK(wanted() == words{"follow 2"});
  CHECK_FALSE(core.claimed(claim_of(1, 2, true), now).granted);
  CHECK(wanted().empty());
}

TEST_CASE_FIXTURE(standby_world,
                  "when the leader's link breaks another conductor is asked, and it is looked for") {
  join_both();
  core.lost(node_id{1}, "the link broke", now);
  CHECK(wanted() == words{"part 1: the link broke", "follow 2"});
  core.tick(now += 1s);
  CHECK(wanted() == words{"dial one:1"});
  CHECK(core.conductors().size() == 1);
  core.stands(node_id{1}, {true, 4, true}, {*node(9)}, now);  // of a report that was under way
  CHECK(wanted().empty());
}

TEST_CASE_FIXTURE(membership_world,
                  "of two conductors the later of the list opens the link, and each joins the other") {
  core = membership_core{conductor(5, 1), {{{"one", 1}, {"two", 2}}, 0}, {600ms, {}}};
  core.tick(now);
  CHECK(wanted() == words{"join 5"});
  core.joined(node_id{5}, {}, now);
  CHECK(wanted() == words{"follow 5"});
  REQUIRE(core.greeted(conductor(2, 2), 1, now));
  CHECK(wanted() == words{"meet 2", "join 2"});
  core.joined(node_id{2}, {*node(7)}, now);
  core.tick(now += 1h);
  CHECK(wanted().empty());  // members call conductors
}
