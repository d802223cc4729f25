// Two journals of the same requests: what is told of them, and which request is the first that differs.

#include <doctest/doctest.h>

#include "runtime/sched/journal/against.hpp"
#include "runtime/sched/journal/recorded_core.hpp"
#include "tests/runtime/sched/world.hpp"
#include "tests/support/kept_journal.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

struct sent {
  std::uint64_t number;  ///< of the request, and of its prompt
  std::uint32_t blocks;
  bool computed = true;  ///< otherwise its prefill goes on for ever
};

/// Two prefill and two decode nodes, whose ids are `ids` apart from other clusters'. Each request comes
/// `apart` after the one before, and is computed at 0.1 ms a token; the third loses its worker and asks
/// again.
std::string journal_of(std::span<const sent> requests, std::uint64_t ids, duration apart = 1s,
                       conductor_options options = small_options()) {
  std::string bytes;
  journal::recorder to;
  recorded_core core{to, options};
  recorded_queue queue{to, core, {}};
  to.begin(core.options(), queue.options(), kept_in(bytes));
  for (const std::uint64_t i : {3, 1, 2, 4}) {  // joined in another order than their ids
    const node_id node{ids + i};
    REQUIRE(core.add_node(node, start));
    REQUIRE(core.add_instance(i <= 2 ? prefill_instance(ids + i, node) : decode_instance(ids + i, node)));
  }
  auto now = start;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    now += apart;
    schedule_request request;
    request.arrival = now - 1ms;
    request.prompt_tokens = requests[i].blocks * 100 + 7;
    request.keys = chain(requests[i].number, requests[i].blocks);
    const auto took = request.prompt_tokens * 100us;
    std::vector<decision> decided;
    for (std::uint64_t attempt = 0; attempt < (i == 2 ? 2 : 1); ++attempt) {
      request.id = request_id{(ids + requests[i].number) << 7 | attempt};
      queue.submit(request, now, decided);
      if (!requests[i].computed) continue;
      if (attempt > 0 || i != 2)
        core.first_token(request.id, request.prompt_tokens - 100, 100, took, now + took);
      else core.failed(request.id, now);
    }
  }
  to.flush();
  return bytes;
}

journal::decided_requests read(const std::string& bytes) {
  auto decided = journal::decisions_of(bytes, "j");
  REQUIRE(decided);
  return std::move(*decided);
}

}  // namespace

TEST_CASE("clusters whose nodes have other ids decide alike, each about its own instances") {
  const std::vector<sent> requests{{1, 4}, {2, 9}, {3, 2}, {4, 7}, {5, 7}, {6, 3}};
  const auto a = read(journal_of(requests, 100)), b = read(journal_of(requests, 9000));
  const auto c = journal::compare(a, b);
  CHECK(c.same());
  CHECK(c.in_both == 6);
  CHECK(c.alike == 6);
  CHECK(a.all[3].number == 5);  // a second try before it asked, too
  CHECK(c.first.mean_wait == 1ms);
  CHECK(c.first.mean_ttft < c.first.p90_ttft);
  CHECK(c.first.mean_ttft == c.second.mean_ttft);
  const auto text = to_text(c, {"a", "b"});
  CHECK(text.find("\n6 requests are in both, 6 decided alike\n") != std::string::npos);
  CHECK(text.find("differs") == std::string::npos);
}

TEST_CASE("what one cluster refuses, or places elsewhere, is counted, and the first of it is shown") {
  const std::vector<sent> requests{{1, 4}, {2, 9}, {3, 2}, {6, 9, false}, {7, 9, false}, {4, 80}, {5, 7}};
  auto strict = small_options();
  strict.admission = admission_policy::early;
  strict.ttft_slo = 3s;
  const auto a = read(journal_of(requests, 100)), b = read(journal_of(requests, 9000, 1s, strict));
  const auto c = journal::compare(a, b);
  CHECK(c.refused_in_one == 1);
  CHECK(c.second.refused == 1);
  REQUIRE(c.differs);
  CHECK(c.differs->first->prompt_tokens == 8007);
  const auto text = to_text(c, {"a", "b"});
  CHECK(text.find("  A: #7 (") < text.find("8007 tokens: prefill "));
  CHECK(text.find("  B: #7 (") < text.find("8007 tokens: refused at prefill"));
  // All at once: others wait for an instance that was free before.
  const auto burst = read(journal_of(requests, 500, 0s));
  const auto other = journal::compare(a, burst);
  CHECK(other.other_prefill + other.other_decode + other.other_prefix + other.undecided_in_one > 0);
  CHECK(other.in_both == 7);
}

TEST_CASE("requests that one journal alone has are left out, and those after them compared") {
  const std::vector<sent> some{{1, 4}, {2, 9}, {4, 7}, {5, 1}},
      more{{1, 4}, {2, 9}, {3, 2}, {4, 7}, {5, 1}, {6, 30}};
  const auto a = read(journal_of(some, 100)), b = read(journal_of(more, 100));
  const auto c = journal::compare(a, b);
  CHECK(c.in_both == 4);
  REQUIRE(c.differs);
  CHECK(c.differs->first == nullptr);
  CHECK(c.differs->second->prompt_tokens == 207);
  CHECK(to_text(c, {"a", "b"}).find("  A: not there\n  B: #3 (") != std::string::npos);
  const auto back = journal::compare(b, a);
  CHECK(back.in_both == 4);
  CHECK(back.differs->second == nullptr);
  CHECK(journal::compare(read(journal_of({}, 1)), a).in_both == 0);
  CHECK(!journal::compare(read(journal_of({}, 1)), a).same());
  CHECK(journal::compare(read(journal_of({}, 1)), read(journal_of({}, 2))).same());
}
