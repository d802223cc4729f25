// Pages of other places get nothing, whatever name they give this server; this machine's own, and those that
// are named, may talk to it.

#include "runtime/api/web_guard.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

TEST_CASE("without names of its own a server answers to addresses and this machine's names alone") {
  const web_guard guard{"local", "local", {"Box7"}};
  for (const auto* host : {"", "127.0.0.1", "127.0.0.1:8000", "10.1.2.3:80", "[::1]:8000", "[fe80::1]",
                           "localhost", "LOCALHOST:8000", "my.localhost", "box7:8000"})
    CHECK_MESSAGE(guard.host_allowed(host), host);
  for (const auto* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
        "0x7f000001.evil", "[evil]", "box7.evil.example", ":8000", "notlocalhost"})
    CHECK_MESSAGE(!guard.host_allowed(host), host);
}

TEST_CASE("names that are listed are answered to, and a star to all") {
  const web_guard guard{"", "llm.example.com, other", {"box"}};
  CHECK(guard.host_allowed("LLM.example.com:443"));
  CHECK(guard.host_allowed("other"));
  CHECK(!guard.host_allowed("box"));
  CHECK(!guard.host_allowed("localhost"));
  CHECK(web_guard{"", "*", {}}.host_allowed("anything"));
}

TEST_CASE("pages of this machine are let in by default, at any port, and no others") {
  const web_guard guard{"local", "local", {}};
  for (const auto* origin :
       {"http://localhost:3000", "https://localhost", "http://127.0.0.1:5173", "http://[::1]:3000"}) {
    CHECK_MESSAGE(guard.origin_allowed(origin), origin);
    CHECK(guard.may_ask(origin, "127.0.0.1:8000"));
  }
  for (const auto* origin :
       {"http://evil.example", "https://localhost.evil.example", "null", "http://127.evil.example", "file://",
        "ftp://localhost", "http://127.0.0.1.evil.example:80"}) {
    CHECK_MESSAGE(!guard.origin_allowed(origin), origin);
    CHECK_MESSAGE(!guard.may_ask(origin, "127.0.0.1:8000"), origin);
  }
}

TEST_CASE("the server's own page may ask, under whatever name it was opened") {
  const web_guard guard{"", "", {}};
  CHECK(guard.may_ask("https://llm.example.com", "llm.example.com"));
  CHECK(guard.may_ask("http://10.0.0.1:8000", "10.0.0.1:8000"));
  CHECK(!guard.may_ask("http://10.0.0.1:8001", "10.0.0.1:8000"));
  CHECK(!guard.may_ask("http://localhost:3000", "localhost:8000"));
  CHECK(guard.may_ask("", "llm.example.com"));  // no browser
}

TEST_CASE("listed origins are let in as they are written, case and a last slash aside") {
  const web_guard guard{"https://Chat.example.com/ ,http://a:1", "", {}};
  CHECK(guard.origin_allowed("https://chat.example.com"));
  CHECK(guard.origin_allowed("http://a:1"));
  CHECK(!guard.origin_allowed("http://chat.example.com"));
  CHECK(!guard.origin_allowed("https://chat.example.com:8443"));
  CHECK(web_guard{"*", "", {}}.origin_allowed("null"));
}
