#include "storage/objects/directory/directory_desk.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;
using namespace std::chrono_literals;
using store_wire::op;

namespace {

const time_point now{1h};

/// Asks as a client would; nothing if the connection would be closed for it.
std::optional<std::vector<std::byte>> ask(directory_desk& desk, std::uint64_t session, op what,
                                          const std::function<void(byte_writer&)>& payload) {
  std::vector<std::byte> question, answer;
  {
    store_wire::frame f{question, 77, what};
    payload(*f);
  }
  const auto header = store_wire::parse_header(std::span{question}.first<store_wire::header_bytes>());
  REQUIRE(header);
  if (!desk.answer(session, *header, std::span{question}.subspan(store_wire::header_bytes), now, answer))
    return {};
  const auto back = store_wire::parse_header(std::span{answer}.first<store_wire::header_bytes>());
  REQUIRE(back);
  CHECK(back->number == 77);
  CHECK(back->what == what);
  CHECK(back->payload_bytes + store_wire::header_bytes == answer.size());
  return std::vector<std::byte>{answer.begin() + store_wire::header_bytes, answer.end()};
}

std::uint64_t greeted(directory_desk& desk, std::string tenant = {}) {
  const auto session = desk.open(std::move(tenant));
  REQUIRE(ask(desk, session, op::hello, [](byte_writer& out) {
    out.put(store_wire::version);
    out.put_text("host");
    out.put(std::uint8_t{0});
  }));
  return session;
}

void lend(directory_desk& desk, std::uint64_t session) {
  REQUIRE(ask(desk, session, op::mount, [](byte_writer& out) {
    out.put_text("segment");
    out.put(std::uint64_t{1} << 20);
    store_wire::put_address(out, {"@door", 3, {std::byte{1}}});
    store_wire::put_former(out, {});
  }));
}

}  // namespace

TEST_CASE("nothing is answered before a greeting, nor what has another length than its kind") {
  directory_desk desk{{}};
  const auto session = desk.open();
  CHECK_FALSE(ask(desk, session, op::counts, [](byte_writer&) {}));
  const auto other = greeted(desk);
  CHECK(ask(desk, other, op::counts, [](byte_writer&) {}));
  CHECK_FALSE(ask(desk, other, op::counts, [](byte_writer& out) { out.put(std::uint8_t{0}); }));
  CHECK_FALSE(ask(desk, other, op::exists, [](byte_writer& out) { out.put(store_wire::batch_max + 1); }));
  CHECK_FALSE(ask(desk, other, op::exists, [](byte_writer& out) { out.put(std::uint32_t{1}); }));
  CHECK_FALSE(ask(desk, other, op::ring, [](byte_writer&) {}));  // that is between the server and its socket
}

TEST_CASE("a holder that is woken on purpose is for what somebody waits for alone; no filler wakes it") {
  directory_desk desk{{}};
  const auto lender = greeted(desk), client = greeted(desk);
  lend(desk, lender);
  std::vector<std::byte> question, none;
  desk.wakes_on_purpose(lender);
  const auto told = [&] {
    std::vector<std::pair<bool, std::size_t>> all;
    desk.deliver([&](const directory_desk::outgoing& what) {
      CHECK(what.session == lender);
      all.emplace_back(what.urgent, what.bytes.size());
    });
    return all;
  };
  told();
  const auto put = ask(desk, client, op::reserve, [](byte_writer& out) {
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
  ask(desk, client, op::publish, [&](byte_writer& out) {
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
  CHECK(desk.answer(client, *removal, std::span{question}.subspan(store_wire::header_bytes), now, none));
  CHECK(none.empty());
  const auto removed = told();
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].first);
  CHECK(removed[0].second < store_wire::urgent_bytes);
}

TEST_CASE(
    "a holder hears at once of room that it is to let a tenant write to, and takes its time for others'") {
  object_table_options options;
  options.tenants.emplace_back("red", tenant_limit{});
  directory_desk desk{options};
  const auto lender = greeted(desk);
  lend(desk, lender);
  for (const std::string tenant : {"", "red"}) {
    const auto client = greeted(desk, tenant);
    desk.deliver([](const directory_desk::outgoing&) {});
    REQUIRE(ask(desk, client, op::reserve, [](byte_writer& out) {
      store_wire::put_policy_to(out, {});
      out.put(std::uint32_t{1});
      out.put_text("key");
      out.put(std::uint64_t{100});
      store_wire::put_ties(out, {});
    }));
    desk.deliver([&](const directory_desk::outgoing& what) {
      CHECK(what.session == lender);
      CHECK(what.urgent == !tenant.empty());
    });
  }
}

TEST_CASE("the segments of a connection that ends are gone, and so is what lay there alone") {
  directory_desk desk{{}};
  const auto lender = greeted(desk), client = greeted(desk);
  lend(desk, lender);
  const auto reserved = ask(desk, client, op::reserve, [](byte_writer& out) {
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
  REQUIRE(ask(desk, client, op::publish, [&](byte_writer& out) {
    out.put(std::uint32_t{1});
    out.put(ticket);
    out.put(std::uint64_t{5});
  }));
  CHECK(desk.counts().objects == 1);
  desk.close(lender, now);
  CHECK(desk.counts().objects == 0);
  CHECK(desk.counts().total_bytes == 0);
  CHECK(desk.consistent());
}

TEST_CASE(
    "an expression that cannot be understood, or would take for ever, is answered and nothing is removed") {
  directory_desk desk{{}};
  const auto client = greeted(desk);
  for (const auto& pattern : {std::string{"("}, std::string{"(a)\\1"}, std::string(2000, 'a')}) {
    const auto answer = ask(desk, client, op::remove_all, [&](byte_writer& out) {
      out.put(std::uint8_t{1});
      out.put_text(pattern);
    });
    REQUIRE(answer);
    CHECK(byte_reader{*answer}.get<std::int32_t>() ==
          static_cast<std::int32_t>(store_code::invalid_parameters));
  }
}

TEST_CASE("an expression is searched in long keys in time that grows with their length") {
  directory_desk desk{{}};
  const auto client = greeted(desk);
  lend(desk, client);
  const std::string long_key(60'000, 'a');
  const auto reserved = ask(desk, client, op::reserve, [&](byte_writer& out) {
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
  REQUIRE(ask(desk, client, op::publish, [&](byte_writer& out) {
    out.put(std::uint32_t{1});
    out.put(ticket);
    out.put(std::uint64_t{5});
  }));
  const auto answer = ask(desk, client, op::remove_all, [&](byte_writer& out) {
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
    directory_desk desk{{}};
    const auto client = greeted(desk);
    lend(desk, client);
    for (int i = 0; i < 40; ++i) {
      std::vector<std::byte> payload(random() % 80), out;
      // Small numbers make counts, lengths and keys that fit.
      for (auto& b : payload) b = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 2);
      const store_wire::header h{static_cast<std::uint32_t>(payload.size()), random(),
                                 static_cast<op>(1 + random() % store_wire::op_last)};
      desk.answer(client, h, payload, now, out);
    }
    REQUIRE(desk.consistent());
    desk.close(client, now);
    desk.tick(now + 1h);
    CHECK(desk.counts().free_bytes == desk.counts().total_bytes);
  }
}
