// Each key stands for a tenant: with limits that hold, and a cache that is shared only if it says so.

#include "runtime/api/api_keys.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

std::string keys_complaint(const std::string& text) {
  const auto parsed = api_keys::parse(text, "keys");
  return parsed ? "" : parsed.error().detail;
}

std::shared_ptr<tenant> make(tenant_settings s) { return std::make_shared<tenant>(std::move(s)); }

const time_point start = time_point{} + 1000s;

}  // namespace

TEST_CASE("a file names tenants with their keys and limits") {
  const auto parsed = api_keys::parse(R"(
[a]
key = "ka"
[b]
key = "kb"
own_cache = true
operates = true
priority = "low"
requests_per_minute = 60
max_concurrent = 3
share = 4
)",
                                      "keys");
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->size() == 2);
  const auto &a = (*parsed)[0], &b = (*parsed)[1];
  CHECK(a.name == "a");
  CHECK(a.key == "ka");
  CHECK_FALSE(a.own_cache);
  CHECK_FALSE(a.operates);
  CHECK(a.priority == 1);
  CHECK(a.per_minute == 0);
  CHECK(b.own_cache);
  CHECK(b.operates);
  CHECK(b.priority == 2);
  CHECK(b.per_minute == 60);
  CHECK(b.concurrent == 3);
  CHECK(b.share == 4);
}

TEST_CASE("a file that is wrong is refused with the line") {
  CHECK(keys_complaint("").find("no tenant") != std::string::npos);
  CHECK(keys_complaint("[a]\npriority = \"low\"\n").find("tenant a has no key") != std::string::npos);
  CHECK(keys_complaint("key = \"x\"\n").starts_with("keys:1: "));
  CHECK(keys_complaint("[a]\nkey = 7\n").starts_with("keys:2: a.key must be a string"));
  CHECK(keys_complaint("[a]\nkey = \"\"\n").starts_with("keys:2: a.key must be a string"));
  CHECK(keys_complaint("[a]\nkey = \"x\"\npriority = \"best\"\n")
            .starts_with("keys:3: a.priority must be high"));
  CHECK(keys_complaint("[a]\nkey = \"x\"\nmax_concurrent = 0\n")
            .starts_with("keys:3: a.max_concurrent must be"));
  CHECK(keys_complaint("[a]\nkey = \"x\"\nshare = 0\n").starts_with("keys:3: a.share must be a whole"));
  CHECK(keys_complaint("[a]\nkey = \"x\"\nown_cache = 1\n")
            .starts_with("keys:3: a.own_cache must be true or false"));
  CHECK(keys_complaint("[a]\nkey = \"x\"\nnonsense = 1\n").starts_with("keys:3: a.nonsense is unknown"));
  CHECK(keys_complaint("[a]\nkey = \"x\"\n[b]\nkey = \"x\"\n")
            .starts_with("keys:4: b.key is another tenant's"));
  CHECK(keys_complaint("[a\n").starts_with("keys:1: "));
}

TEST_CASE("a key finds its tenant, and nothing else does") {
  api_keys keys{{{.name = "a", .key = "ka"}, {.name = "b", .key = "kb"}}};
  CHECK(keys.needed());
  CHECK(keys.find("Bearer ka")->settings().name == "a");
  CHECK(keys.find("Bearer kb")->settings().name == "b");
  for (const auto* header : {"", "ka", "Bearer ", "Bearer k", "Bearer kaa", "bearer ka", "Basic ka"})
    CHECK_MESSAGE(!keys.find(header), header);
  CHECK(!api_keys{{}}.needed());
  CHECK(api_keys{{}}.find("")->settings().operates);
}

TEST_CASE("answers under way are limited, and count until they are over") {
  const auto t = make({.name = "a", .concurrent = 3});
  auto two = t->enter(start, 2);
  REQUIRE(two.has_value());
  const auto third = t->enter(start, 1);
  REQUIRE(third.has_value());
  const auto fourth = t->enter(start, 1);
  REQUIRE(!fourth.has_value());
  CHECK(fourth.error().cause.code == ec::overloaded);
  CHECK(fourth.error().retry_after > 0s);
  two->reset();
  CHECK(t->enter(start, 2).has_value());
  const auto never = t->enter(start, 4);
  REQUIRE(!never.has_value());
  CHECK(never.error().cause.code == ec::invalid_argument);
}

TEST_CASE("answers a minute are limited, and the refusal says when there is room") {
  const auto t = make({.name = "a", .per_minute = 60});
  CHECK(t->enter(start, 60).has_value());
  const auto refused = t->enter(start, 2);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().cause.code == ec::overloaded);
  CHECK(refused.error().retry_after == 2s);
  CHECK(!t->enter(start + 1s, 2).has_value());
  CHECK(t->enter(start + 2s, 2).has_value());
  CHECK(!t->enter(start + 2s, 1).has_value());
  CHECK(t->enter(start + 1h, 60).has_value());
  CHECK(!t->enter(start + 1h, 1).has_value());
}

TEST_CASE("a tenant asks for no better priority than it has") {
  const auto low = make({.name = "a", .priority = 2}), high = make({.name = "b", .priority = 0}),
             one = make({});
  CHECK(low->priority(0) == 2);
  CHECK(low->priority(std::nullopt) == 2);
  CHECK(high->priority(std::nullopt) == 0);
  CHECK(high->priority(2) == 2);
  CHECK(one->priority(std::nullopt) == 1);
  CHECK(one->priority(0) == 0);
}

TEST_CASE("requests of one tenant, or of one user of it, are known for each other's") {
  const auto a = make({.name = "a"}), b = make({.name = "b"}), open = make({});
  CHECK(open->number("") == 0);
  CHECK(a->number("") == a->number(""));
  const std::set<std::uint64_t> all{0,
                                    a->number(""),
                                    b->number(""),
                                    a->number("x"),
                                    b->number("x"),
                                    a->number("y"),
                                    open->number("x"),
                                    open->number("ax")};
  CHECK(all.size() == 8);
}

TEST_CASE("a cache of one's own has a salt that nobody else can send") {
  const auto own = make({.name = "a", .own_cache = true}), other = make({.name = "b", .own_cache = true}),
             shares = make({.name = "c"}), one = make({});
  CHECK(shares->salt("") == one->salt(""));
  CHECK(shares->salt("s") == one->salt("s"));
  CHECK(own->salt("") != other->salt(""));
  CHECK(own->salt("s") != own->salt(""));
  for (const auto& asked :
       {std::string{}, own->salt(""), own->salt("s"), "a" + std::string(1, '\0'), std::string{"ta"}}) {
    CHECK(shares->salt(asked) != own->salt(""));
    CHECK(other->salt(asked) != own->salt(""));
  }
}

TEST_CASE("requests take turns by tenant: its users share one turn, and those without a name are together") {
  api_keys keys{{{.name = "a", .key = "ka", .share = 3}, {.name = "b", .key = "kb"}, {.key = "kc"}}};
  const auto a = keys.find("Bearer ka")->share(), b = keys.find("Bearer kb")->share();
  CHECK(a.weight == 3);
  CHECK(b.weight == 1);
  CHECK(a.owner != b.owner);
  CHECK(a.owner != 0);
  CHECK(keys.find("Bearer kc")->share() == service_share{});
}
