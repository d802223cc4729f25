#pragma once
// A request to the HTTP front while it is looked at.

#include <memory>
#include <string>
#include <utility>

#include "actors/http/http_server.hpp"
#include "runtime/api/api_keys.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/prompt_maker.hpp"

namespace mooncaf {

/// One request on its way through here.
struct api_call {
  http_request request;
  std::shared_ptr<http_responder> out;
  http_headers headers;  ///< of the answer, whatever it is
  std::shared_ptr<tenant> who;
  error_form errors = error_form::openai;

  void json(std::string body) const {
    auto all = headers;
    all.emplace_back("Content-Type", "application/json");
    out->respond(200, std::move(all), std::move(body));
  }
  /// @param status  0: the one that fits the error.
  void fail(const error& cause, std::string_view code = {}, std::int64_t retry_after = 0,
            unsigned status = 0) const {
    const auto e = format_error(cause, retry_after, code, errors);
    auto all = headers;
    all.emplace_back("Content-Type", "application/json");
    if (e.retry_after_s > 0) all.emplace_back("Retry-After", std::to_string(e.retry_after_s));
    out->respond(status ? status : e.status, std::move(all), e.body);
  }
  void fail(const api_refusal& why) const { fail(why.cause, why.code); }
};
using api_call_ptr = std::shared_ptr<api_call>;

/// "%2F" and the like as the bytes they stand for.
inline std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace mooncaf
