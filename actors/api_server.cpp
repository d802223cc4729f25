#include "actors/api_server.hpp"

#include <atomic>
#include <caf/send.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "actors/answer.hpp"
#include "actors/http/openai.hpp"
#include "actors/http/page.hpp"
#include "actors/metrics/metrics_endpoint.hpp"

namespace mooncaf {

namespace {

using responder_ptr = std::shared_ptr<http_responder>;

void respond_json(http_responder& out, std::string body, http_headers headers = {}) {
  headers.emplace_back("Content-Type", "application/json");
  out.respond(200, std::move(headers), std::move(body));
}

void respond_error(http_responder& out, const error& cause, http_headers headers = {},
                   std::int64_t retry_after = 0) {
  const auto e = format_error(cause, retry_after);
  headers.emplace_back("Content-Type", "application/json");
  if (e.retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(e.retry_after_s));
  out.respond(e.status, std::move(headers), e.body);
}

/// Compares without telling by its time how much was right.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(b[i] ^ (a.empty() ? 0 : a[i % a.size()]));
  }
  return difference == 0;
}

result<std::string> api_key_of(const gateway_options& options) {
  if (options.api_key_file.empty()) return options.api_key;
  std::ifstream in{options.api_key_file};
  if (!in) return fail(ec::io_error, "gateway.api_key_file: cannot open " + options.api_key_file);
  std::string key;
  if (!std::getline(in, key) || key.empty()) {
    return fail(ec::io_error, "gateway.api_key_file: no key on the first line of " + options.api_key_file);
  }
  return key;
}

}  // namespace

class api_server::impl {
 public:
  impl(context_ptr context, gateway_actor gateway, api_backends backends, std::string key)
      : context_(std::move(context)),
        gateway_(std::move(gateway)),
        backends_(std::move(backends)),
        key_(std::move(key)) {
    std::random_device seed;
    next_id_ = std::uint64_t{seed()} << 32 | seed();
    for (std::int32_t id = 0; id < context_->text->vocab_size(); ++id) {
      longest_piece_ = std::max(longest_piece_, context_->text->piece(id).size());
    }
    created_ =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
  }

  result<void> listen() {
    const auto& o = context_->opts.gateway;
    http_options options;
    options.host = o.http.host;
    options.port = o.http.port;
    options.max_connections = o.max_connections;
    options.max_body_bytes = o.max_body_bytes;
    options.threads = 2;  // so that one long prompt, which is tokenized here, does not hold up every stream
    auto started = http_server::start(options, [this](http_request request, responder_ptr responder) {
      handle(std::move(request), std::move(responder));
    });
    if (!started) return fail(started.error());
    server_ = std::move(*started);
    return {};
  }

  std::uint16_t port() const noexcept { return server_->port(); }

 private:
  void handle(http_request request, responder_ptr out);
  void completion(const http_request& request, const responder_ptr& out, const http_headers& headers);
  void chat(const http_request& request, const responder_ptr& out, const http_headers& headers);
  void tokenize(const http_request& request, http_responder& out, const http_headers& headers);
  void detokenize(const http_request& request, http_responder& out, const http_headers& headers);
  void health(const responder_ptr& out, const http_headers& headers);
  void integrity(const responder_ptr& out, const http_headers& headers);
  bool allowed(const http_request& request) const;

  /// Fills in what the client left open and checks what only the model can tell.
  result<sampling_params> complete(const api_request& api, std::size_t prompt_tokens);
  /// Refuses text that cannot fit the context, before time is spent on its tokens.
  result<void> may_fit(std::size_t text_bytes, std::string_view field) const;
  result<void> check_vocabulary(const std::vector<std::int32_t>& ids, std::string_view field) const;
  result<std::vector<std::int32_t>> tokens_of(const std::vector<chat_message>& messages) const;
  result<std::vector<std::int32_t>> tokens_of(const prompt_input& prompt) const;
  void submit(const api_request& api, std::vector<std::vector<std::int32_t>> prompts,
              std::vector<std::string> echoes, api_kind kind, const responder_ptr& out,
              const http_headers& headers);
  std::uint64_t fresh_id() { return next_id_.fetch_add(0x9E3779B97F4A7C15ull); }
  std::uint32_t context_length() const {
    const auto& o = context_->opts.model;
    return o.context_length > 0 ? std::min(o.context_length, context_->shape.context_length)
                                : context_->shape.context_length;
  }

  context_ptr context_;
  gateway_actor gateway_;
  api_backends backends_;
  std::string key_;
  std::size_t longest_piece_ = 1;  ///< bytes that one token stands for at most
  std::atomic<std::uint64_t> next_id_;
  std::int64_t created_ = 0;
  std::unique_ptr<http_server> server_;
};

bool api_server::impl::allowed(const http_request& request) const {
  if (key_.empty()) return true;
  constexpr std::string_view scheme = "Bearer ";
  const auto given = request.header("Authorization");
  return given.starts_with(scheme) && same_secret(given.substr(scheme.size()), key_);
}

void api_server::impl::handle(http_request request, responder_ptr out) {
  const auto given = request.header("x-request-id");
  const http_headers headers{{"x-request-id", given.empty() || given.size() > 256
                                                  ? "req-" + std::to_string(fresh_id())
                                                  : std::string{given}}};
  const bool get = request.method == "GET" || request.method == "HEAD";
  const bool post = request.method == "POST";
  const auto& path = request.path;
  if (request.method == "OPTIONS") {
    return out->respond(204,
                        {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                         {"Access-Control-Allow-Headers", "Authorization, Content-Type, x-request-id"}},
                        "");
  }
  if (get && path == "/health") return health(out, headers);
  // The page itself tells nothing; it asks its reader for the key, and with that for the rest.
  if (get && path == "/" && context_->opts.gateway.page) {
    return out->respond(200, {{"Content-Type", "text/html; charset=utf-8"}}, std::string{live_page()});
  }
  if (!allowed(request)) {
    return respond_error(*out, {ec::unauthenticated, "a valid API key is needed: Authorization: Bearer KEY"},
                         headers);
  }
  if (post && path == "/v1/completions") return completion(request, out, headers);
  if (post && path == "/v1/chat/completions") return chat(request, out, headers);
  if (post && path == "/tokenize") return tokenize(request, *out, headers);
  if (post && path == "/detokenize") return detokenize(request, *out, headers);
  if (get && path == "/v1/models") {
    return respond_json(
        *out, format_models(context_->opts.model.served_model_name, created_, context_length()), headers);
  }
  if (get && path == "/version")
    return respond_json(*out, R"({"version":")" MOONCAF_VERSION R"("})", headers);
  if (get && path == "/metrics")
    return out->respond(200, {{"Content-Type", metrics_content_type}}, backends_.metrics());
  if (get && path == "/integrity") return integrity(out, headers);
  if (get && path == "/cluster") {
    return backends_.cluster([out, headers](std::string body) {
      if (body.empty()) return respond_error(*out, {ec::unavailable, "no conductor answers"}, headers, 1);
      respond_json(*out, std::move(body), headers);
    });
  }
  static constexpr std::string_view known[] = {"/v1/completions", "/v1/chat/completions",
                                               "/tokenize",       "/detokenize",
                                               "/v1/models",      "/version",
                                               "/metrics",        "/cluster",
                                               "/integrity",      "/health"};
  if (std::ranges::find(known, path) != std::end(known)) {
    const auto e = format_error({ec::invalid_argument, request.method + " is not offered at " + path});
    const bool posted = path.ends_with("completions") || path.ends_with("tokenize");
    return out->respond(405, {{"Allow", posted ? "POST" : "GET, HEAD"}, {"Content-Type", "application/json"}},
                        e.body);
  }
  respond_error(*out, {ec::not_found, "no such path: " + path}, headers);
}

result<void> api_server::impl::may_fit(std::size_t text_bytes, std::string_view field) const {
  const auto limit = context_length() * longest_piece_;
  if (text_bytes <= limit) return {};
  return fail(ec::invalid_argument, std::string{field} + ": " + std::to_string(text_bytes) +
                                        " bytes are more than the " + std::to_string(context_length()) +
                                        " tokens of the context can hold (" + std::to_string(limit) +
                                        " bytes)");
}

result<void> api_server::impl::check_vocabulary(const std::vector<std::int32_t>& ids,
                                                std::string_view field) const {
  const auto outside = std::ranges::find_if(ids, [&](auto id) { return id >= context_->text->vocab_size(); });
  if (outside == ids.end()) return {};
  return fail(ec::invalid_argument, std::string{field} + ": token id " + std::to_string(*outside) +
                                        " is outside the vocabulary of " +
                                        std::to_string(context_->text->vocab_size()));
}

result<std::vector<std::int32_t>> api_server::impl::tokens_of(const prompt_input& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (const auto fits = may_fit(text->size(), "prompt"); !fits) return fail(fits.error());
    return context_->text->encode_prompt(*text);
  }
  const auto& ids = std::get<std::vector<std::int32_t>>(prompt);
  if (const auto known = check_vocabulary(ids, "prompt"); !known) return fail(known.error());
  return ids;
}

result<std::vector<std::int32_t>> api_server::impl::tokens_of(
    const std::vector<chat_message>& messages) const {
  if (!context_->chat) {
    return fail(ec::unsupported, "this model has no chat template that is known here; set --chat-template");
  }
  std::size_t bytes = 0;
  for (const auto& m : messages) bytes += m.content.size();
  if (const auto fits = may_fit(bytes, "messages"); !fits) return fail(fits.error());
  return context_->chat->render(messages);
}

result<sampling_params> api_server::impl::complete(const api_request& api, std::size_t prompt_tokens) {
  auto s = api.sampling;
  const auto limit = context_length();
  if (prompt_tokens == 0) return fail(ec::invalid_argument, "prompt: is empty");
  if (prompt_tokens + 1 > limit) {
    return fail(ec::invalid_argument, "prompt: has " + std::to_string(prompt_tokens) +
                                          " tokens, the context holds " + std::to_string(limit));
  }
  const auto room = limit - static_cast<std::uint32_t>(prompt_tokens);
  s.max_tokens = s.max_tokens == 0 ? room : std::min(s.max_tokens, room);
  if (s.min_tokens > s.max_tokens) {
    return fail(ec::invalid_argument, "min_tokens: is larger than the " + std::to_string(s.max_tokens) +
                                          " tokens that the answer may have");
  }
  for (const auto& [id, bias] : s.logit_bias) {
    if (const auto known = check_vocabulary({id}, "logit_bias"); !known) return fail(known.error());
  }
  if (!api.seed_given) s.seed = fresh_id();
  return s;
}

void api_server::impl::completion(const http_request& request, const responder_ptr& out,
                                  const http_headers& headers) {
  const auto parsed = parse_completion(request.body);
  if (!parsed) return respond_error(*out, parsed.error(), headers);
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::string> echoes;
  for (const auto& prompt : parsed->prompts) {
    const auto tokens = tokens_of(prompt);
    if (!tokens) return respond_error(*out, tokens.error(), headers);
    echoes.push_back(parsed->echo ? context_->text->decode(*tokens) : std::string{});
    prompts.push_back(*tokens);
  }
  submit(*parsed, std::move(prompts), std::move(echoes), api_kind::completion, out, headers);
}

void api_server::impl::chat(const http_request& request, const responder_ptr& out,
                            const http_headers& headers) {
  const auto parsed = parse_chat(request.body);
  if (!parsed) return respond_error(*out, parsed.error(), headers);
  auto tokens = tokens_of(parsed->messages);
  if (!tokens) return respond_error(*out, tokens.error(), headers);
  submit(*parsed, {std::move(*tokens)}, {std::string{}}, api_kind::chat, out, headers);
}

void api_server::impl::submit(const api_request& api, std::vector<std::vector<std::int32_t>> prompts,
                              std::vector<std::string> echoes, api_kind kind, const responder_ptr& out,
                              const http_headers& headers) {
  const auto answers = prompts.size() * api.n;
  if (const auto limit = context_->opts.gateway.max_requests; answers > limit) {
    return respond_error(
        *out,
        {ec::invalid_argument, "n: " + std::to_string(prompts.size()) + " prompts make " +
                                   std::to_string(answers) + " answers, more than the gateway's " +
                                   std::to_string(limit)},
        headers);
  }
  answer_setup setup;
  setup.head.kind = kind;
  setup.head.id = (kind == api_kind::chat ? "chatcmpl-" : "cmpl-") + std::to_string(fresh_id());
  setup.head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  setup.head.model = context_->opts.model.served_model_name;
  setup.responder = out;
  setup.text = context_->text;
  setup.headers = headers;
  setup.stream = api.stream;
  setup.include_usage = api.include_usage;
  const auto made = std::make_shared<answer>(std::move(setup));
  auto client = std::make_shared<client_request>();
  client->trace_id = headers.front().second;
  client->arrived = clock_type::now();
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    auto sampling = complete(api, prompts[p].size());
    if (!sampling) return respond_error(*out, sampling.error(), headers);
    for (std::uint32_t i = 0; i < api.n; ++i) {
      generation g;
      g.prompt = prompts[p];
      g.sampling = *sampling;
      g.sampling.seed += i;  // several answers to one prompt differ
      g.cache_salt = api.cache_salt;
      g.priority = api.priority;
      g.ttft_slo = std::chrono::milliseconds(api.ttft_slo_ms);
      g.tbt_slo = std::chrono::milliseconds(api.tbt_slo_ms);
      g.sink =
          made->add_choice(g.sampling, i == 0 ? static_cast<std::uint32_t>(prompts[p].size()) : 0, echoes[p]);
      client->generations.push_back(std::move(g));
    }
  }
  out->on_close([gateway = gateway_, weak = std::weak_ptr<client_request>(client)] {
    if (auto gone = weak.lock()) caf::anon_send(gateway, cancel_atom_v, gone);
  });
  caf::anon_send(gateway_, submit_atom_v, client);
}

void api_server::impl::tokenize(const http_request& request, http_responder& out,
                                const http_headers& headers) {
  const auto parsed = parse_tokenize(request.body);
  if (!parsed) return respond_error(out, parsed.error(), headers);
  result<std::vector<std::int32_t>> tokens;
  if (const auto* messages = std::get_if<std::vector<chat_message>>(&parsed->input)) {
    tokens = tokens_of(*messages);
  } else if (const auto& text = std::get<std::string>(parsed->input); parsed->add_special_tokens) {
    tokens = tokens_of(prompt_input{text});
  } else if (const auto fits = may_fit(text.size(), "prompt"); !fits) {
    tokens = fail(fits.error());
  } else {
    tokens = context_->text->encode(text);
  }
  if (!tokens) return respond_error(out, tokens.error(), headers);
  respond_json(out, format_tokens(*tokens, context_length()), headers);
}

void api_server::impl::detokenize(const http_request& request, http_responder& out,
                                  const http_headers& headers) {
  const auto tokens = parse_detokenize(request.body);
  if (!tokens) return respond_error(out, tokens.error(), headers);
  if (const auto known = check_vocabulary(*tokens, "tokens"); !known)
    return respond_error(out, known.error(), headers);
  respond_json(out, format_text(context_->text->decode(*tokens, special_text::show)), headers);
}

void api_server::impl::health(const responder_ptr& out, const http_headers& headers) {
  backends_.cluster([out, headers](const std::string& body) {
    bool prefill = false, decode = false;
    if (!body.empty()) {
      const auto view = nlohmann::json::parse(body);
      for (const auto& i : view["instances"]) {
        prefill = prefill || i["role"] == "prefill";
        decode = decode || i["role"] == "decode";
      }
    }
    if (prefill && decode) return respond_json(*out, R"({"status":"ok"})", headers);
    respond_error(*out,
                  {ec::unavailable, body.empty() ? "no conductor answers"
                                    : !prefill   ? "no live prefill instance"
                                                 : "no live decode instance"},
                  headers, 1);
  });
}

void api_server::impl::integrity(const responder_ptr& out, const http_headers& headers) {
  backends_.cluster([out, headers](const std::string& body) {
    if (body.empty()) return respond_error(*out, {ec::unavailable, "no conductor answers"}, headers, 1);
    const auto cluster = nlohmann::json::parse(body);
    nlohmann::ordered_json counts = {{"requests", cluster["requests_live"]},
                                     {"charges", cluster["counters"]["charged_requests"]},
                                     {"reserved", 0},
                                     {"pinned", 0},
                                     {"private", 0},
                                     {"quarantined", 0},
                                     {"owners", 0}};
    bool consistent = true;
    for (const auto& s : cluster["shards"]) {
      for (const auto* key : {"reserved", "pinned", "private", "quarantined"}) {
        counts[key] = counts[key].get<std::uint64_t>() + s["slots_" + std::string{key}].get<std::uint64_t>();
      }
      counts["owners"] = counts["owners"].get<std::uint64_t>() + s["owners"].get<std::uint64_t>();
      consistent = consistent && s["consistent"].get<bool>();
    }
    bool idle = consistent;
    for (const auto& [key, value] : counts.items()) idle = idle && value == 0;
    counts["consistent"] = consistent;
    counts["idle"] = idle;
    respond_json(*out, counts.dump(), headers);
  });
}

api_server::api_server(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
api_server::~api_server() = default;
std::uint16_t api_server::port() const noexcept { return impl_->port(); }

result<std::unique_ptr<api_server>> api_server::start(context_ptr context, gateway_actor gateway,
                                                      api_backends backends) {
  auto key = api_key_of(context->opts.gateway);
  if (!key) return fail(key.error());
  auto made =
      std::make_unique<impl>(std::move(context), std::move(gateway), std::move(backends), std::move(*key));
  if (auto listening = made->listen(); !listening) return fail(listening.error());
  return std::unique_ptr<api_server>(new api_server(std::move(made)));
}

}  // namespace mooncaf
