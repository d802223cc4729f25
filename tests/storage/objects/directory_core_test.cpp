#include "storage/objects/directory/directory_core.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;
using namespace std::chrono_literals;
using store_wire::op;

namespace {

const time_point now{1h};

/// Asks as a client would; nothing if the connection would be closed for it.
std::optional<std::vector<std::byte>> ask(directory_core& core, std::uint64_t session, op what,
                                          const std::function<void(byte_writer&)>& payload) {
  std::vector<std::byte> question, answer;
  {
    store_wire::frame f{question, 77, what};
    payload(*f);
  }
  const auto header = store_wire::parse_header(std::span{question}.first<store_wire::header_bytes>());
  REQUIRE(header);
  if (!core.answer(session, *header, std::span{question}.subspan(store_wire::header_bytes), now, answer))
    return {};
  const auto back = store_wire::parse_header(std::span{answer}.first<store_wire::header_bytes>());
  REQUIRE(back);
  CHECK(back->number == 77);
  CHECK(back->what == what);
  CHECK(back->payload_bytes + store_wire::header_bytes == answer.size());
  return std::vector<std::byte>{answer.begin() + store_wire::header_bytes, answer.end()};
}

std::uint64_t greeted(directory_core& core, std::string tenant = {}) {
  const auto session = core.open(std::move(tenant));
  REQUIRE(ask(core, session, op::hello, [](byte_writer& out) {
    out.put(store_wire::oldest);
    out.put_text("host");
    out.put(std::uint8_t{0});
  }));
  return session;
}

void mount(directory_core& core, std::uint64_t session) {
  REQUIRE(ask(core, session, op::mount, [](byte_writer& out) {
    out.put_text("segment");
    out.put(std::uint64_t{1} << 20);
    store_wire::put_address(out, {"@name", 3, {std::byte{1}}});
    store_wire::put_former(out, {});
  }));
}

}  // namespace

TEST_CASE("nothing is answered before a greeting, nor what has another length than its kind") {
  directory_core core{{}};
  const auto session = core.open();
  CHECK_FALSE(ask(core, session, op::counts, [](byte_writer&) {}));
  const auto other = greeted(core);
  CHECK(ask(core, other, op::counts, [](byte_writer&) {}));
  CHECK_FALSE(ask(core, other, op::counts, [](byte_writer& out) { out.put(std::uint8_t{0}); }));
  CHECK_FALSE(ask(core, other, op::exists, [](byte_writer& out) { out.put(store_wire::batch_max + 1); }));
  CHECK_FALSE(ask(core, other, op::exists, [](byte_writer& out) { out.put(std::uint32_t{1}); }));
  CHECK_FALSE(ask(core, other, op::ring, [](byte_writer&) {}));  // that is between the server and its socket
}

TEST_CASE("a holder that is woken on purpose is for what somebody waits for alone; no filler wakes it") {
  directory_core core{{}};
  const auto holder = greeted(core), client = greeted(core);
  mount(core, holder);
  std::vector<std::byte> question, none;
  core.wakes_on_purpose(holder);
  const auto told = [&] {
    std::vector<std::pair<bool, std::size_t>> all;
    core.deliver([&](const directory_core::outgoing& what) {
      CHECK(what.session == holder);
      all.emplace_back(what.urgent, what.bytes.size());
    });
    return all;
  };
  told();
  const auto put = ask(core, client, op::reserve, [](byte_writer& out) {
    store_wire::put_policy_to(out, {});
    out.put(std::uint32_t{1});
    out.put_text("key");
    out.put(std::uint64_t{100});
    store_wire::put_ties(out, {});
  });
  REQUIRE(put);
  byte_reader in{*put};
  in.get<std::uint32_t>();
  in.get<std::int32_t>();
  const auto ticket = in.get<std::uint64_t>();
  ask(core, client, op::publish, [&](byte_writer& out) {
    out.put(std::uint32_t{1});
    out.put(ticket);
    out.put(std::uint64_t{0});
  });
  const auto written = told();
  REQUIRE(written.size() == 1);
  CHECK_FALSE(written[0].first);
  // Its removal counts when the holder has heard of it: until then there is no answer.
  {
    store_wire::frame f{question, 6, op::remove};
    f->put(std::uint8_t{1});
    f->put(std::uint32_t{1});
    f->put_text("key");
  }
  const auto removal = store_wire::parse_header(std::span{question}.first<store_wire::header_bytes>());
  CHECK(core.answer(client, *removal, std::span{question}.subspan(store_wire::header_bytes), now, none));
  CHECK(none.empty());
  const auto removed = told();
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].first);
  CHECK(removed[0].second < store_wire::urgent_bytes);
}

TEST_CASE(
    "a holder hears at once of room that it is to let a tenant write to, and takes its time for others'") {
  object_table_options options;
  options.lease = std::chrono::seconds(10);
  options.tenants.emplace_back("red", tenant_limit{});
  directory_core core{options};
  const auto holder = greeted(core);
  mount(core, holder);
  for (const std::string tenant : {"", "red"}) {
    const auto client = greeted(core, tenant);
    core.deliver([](const directory_core::outgoing&) {});
    REQUIRE(ask(core, client, op::reserve, [](byte_writer& out) {
      store_wire::put_policy_to(out, {});
      out.put(std::uint32_t{1});
      out.put_text("key");
      out.put(std::uint64_t{100});
      store_wire::put_ties(out, {});
    }));
    core.deliver([&](const directory_core::outgoing& what) {
      CHECK(what.session == holder);
      CHECK(what.urgent == !tenant.empty());
    });
  }
}

TEST_CASE("the segments of a connection that ends are gone, and so is what lay there alone") {
  directory_core core{{}};
  const auto holder = greeted(core), client = greeted(core);
  mount(core, holder);
  const auto reserved = ask(core, client, op::reserve, [](byte_writer& out) {
    store_wire::put_policy_to(out, {});
    out.put(std::uint32_t{1});
    out.put_text("key");
    out.put(std::uint64_t{100});
    store_wire::put_ties(out, {});
  });
  REQUIRE(reserved);
  byte_reader in{*reserved};
  CHECK(in.get<std::uint32_t>() == 1);
  CHECK(in.get<std::int32_t>() == 0);
  const auto ticket = in.get<std::uint64_t>();
  REQUIRE(ask(core, client, op::publish, [&](byte_writer& out) {
    out.put(std::uint32_t{1});
    out.put(ticket);
    out.put(std::uint64_t{5});
  }));
  CHECK(core.counts().objects == 1);
  core.close(holder, now);
  CHECK(core.counts().objects == 0);
  CHECK(core.counts().total_bytes == 0);
  CHECK(core.consistent());
}

TEST_CASE(
    "an expression that cannot be understood, or would take for ever, is answered and nothing is removed") {
  directory_core core{{}};
  const auto client = greeted(core);
  for (const auto& pattern : {std::string{"("}, std::string{"(a)\\1"}, std::string(2000, 'a')}) {
    const auto answer = ask(core, client, op::remove_all, [&](byte_writer& out) {
      out.put(std::uint8_t{1});
      out.put_text(pattern);
    });
    REQUIRE(answer);
    CHECK(byte_reader{*answer}.get<std::int32_t>() ==
          static_cast<std::int32_t>(store_code::invalid_parameters));
  }
}

TEST_CASE("an expression is searched in long keys in time that grows with their length") {
  directory_core core{{}};
  const auto client = greeted(core);
  mount(core, client);
  const std::string long_key(60'000, 'a');
  const auto reserved = ask(core, client, op::reserve, [&](byte_writer& out) {
    store_wire::put_policy_to(out, {});
    out.put(std::uint32_t{1});
    out.put_text(long_key);
    out.put(std::uint64_t{100});
    store_wire::put_ties(out, {});
  });
  byte_reader in{*reserved};
  in.get<std::uint32_t>();
  in.get<std::int32_t>();
  const auto ticket = in.get<std::uint64_t>();
  REQUIRE(ask(core, client, op::publish, [&](byte_writer& out) {
    out.put(std::uint32_t{1});
    out.put(ticket);
    out.put(std::uint64_t{5});
  }));
  const auto answer = ask(core, client, op::remove_all, [&](byte_writer& out) {
    out.put(std::uint8_t{0});
    out.put_text("^(a+)+b$");
  });
  byte_reader removed{*answer};
  CHECK(removed.get<std::int32_t>() == 0);
  CHECK(removed.get<std::uint64_t>() == 0);
}

TEST_CASE("whatever a client that knows the secret sends, the books stay right") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    directory_core core{{}};
    const auto client = greeted(core);
    mount(core, client);
    for (int i = 0; i < 40; ++i) {
      std::vector<std::byte> payload(random() % 80), out;
      // Small numbers make counts, lengths and keys that fit.
      for (auto& b : payload) b = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 2);
      const store_wire::header h{static_cast<std::uint32_t>(payload.size()), random(),
                                 static_cast<op>(1 + random() % store_wire::op_last)};
      core.answer(client, h, payload, now, out);
    }
    REQUIRE(core.consistent());
    core.close(client, now);
    core.tick(now + 1h);
    CHECK(core.counts().free_bytes == core.counts().total_bytes);
  }
}
