#include "actors/api_server.hpp"

#include <unistd.h>

#include <atomic>
#include <caf/send.hpp>
#include <random>
#include <utility>

#include "actors/answer.hpp"
#include "actors/api_call.hpp"
#include "actors/http/work_pool.hpp"
#include "actors/metrics/metrics_endpoint.hpp"
#include "config/value.hpp"
#include "runtime/api/api_keys.hpp"
#include "runtime/api/cluster_view.hpp"
#include "runtime/api/endpoints.hpp"
#include "runtime/api/kept_view.hpp"
#include "runtime/api/messages_api.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/prompt_maker.hpp"
#include "runtime/api/responses_api.hpp"
#include "runtime/api/web_guard.hpp"
#include "runtime/log/log.hpp"
#include "runtime/model/lora_adapter.hpp"
#include "runtime/pages/pages.hpp"

namespace mooncaf {

namespace {

constexpr unsigned io_threads = 2;
constexpr unsigned work_threads = 2;
/// Parsed and tokenized where it is received: a millisecond or two, less than a change of threads under load.
constexpr std::size_t inline_body_bytes = 16 * KiB;
constexpr std::size_t waiting_body_bytes = 256 * MiB;

std::vector<std::string> names_of_this_machine(const gateway_options& options) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return {name, options.http.host};
}

}  // namespace

class api_server::impl {
 public:
  impl(context_ptr context, gateway_actor gateway, api_backends backends, api_keys keys)
      : context_(std::move(context)),
        gateway_(std::move(gateway)),
        backends_(std::move(backends)),
        keys_(std::move(keys)),
        prompts_(context_),
        // Where keys are needed a page without one can do nothing, whatever host name it uses.
        guard_(context_->opts.gateway.allowed_origins,
               keys_.needed() ? "*" : context_->opts.gateway.allowed_hosts,
               names_of_this_machine(context_->opts.gateway)),
        pool_(work_threads, waiting_body_bytes + context_->opts.gateway.max_body_bytes) {
    std::random_device seed;
    next_id_ = std::uint64_t{seed()} << 32 | seed();
    created_ = now_s();
  }

  result<void> listen() {
    const auto& o = context_->opts.gateway;
    http_options options;
    options.host = o.http.host;
    options.port = o.http.port;
    options.tls_certificate_file = o.tls_certificate_file;
    options.tls_key_file = o.tls_key_file;
    options.max_connections = o.max_connections;
    options.max_body_bytes = o.max_body_bytes;
    options.handover = o.http_handover;
    options.threads = io_threads;
    auto started =
        http_server::start(options, [this](http_request request, std::shared_ptr<http_responder> responder) {
          handle(std::move(request), std::move(responder));
        });
    if (!started) return fail(started.error());
    server_ = std::move(*started);
    if (!keys_.needed() && !config::is_loopback(o.http.host)) {
      log_warn("http", {{"at", to_string(o.http)},
                        {"problem",
                         "open to everybody who can reach it: set --api-key-file, --api-keys-file or "
                         "MOONCAF_API_KEY"}});
    }
    return {};
  }

  void drain() {
    draining_ = true;
    server_->drain();
  }
  const http_server& server() const { return *server_; }

  void stop(duration limit) {
    stopping_ = true;
    caf::anon_send_exit(gateway_, caf::exit_reason::user_shutdown);
    server_->settle(limit);
  }

  std::uint16_t port() const noexcept { return server_->port(); }

 private:
  static std::int64_t now_s() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  void handle(http_request request, std::shared_ptr<http_responder> out);
  http_headers headers_for(const http_request& request);
  void preflight(const api_call& c) const;
  void route(const api_call_ptr& c, endpoint_id id);
  /// Runs `work` here if the body is small, else on a thread for that.
  void with_body(const api_call_ptr& c, void (impl::*work)(const api_call&));
  void completion(const api_call& c);
  void chat(const api_call& c);
  void messages(const api_call& c);
  void count_tokens(const api_call& c);
  void responses(const api_call& c);
  void embeddings(const api_call& c);
  void tokenize(const api_call& c);
  void detokenize(const api_call& c);
  void model(const api_call& c) const;
  void kept_prefixes(const api_call_ptr& c) const;
  void from_cluster(const api_call_ptr& c, result<std::string> (*answer)(const cluster_status&)) const;

  struct asked {
    std::string_view field;  ///< where the prompts came from
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<std::string> echoes;  ///< of each prompt, or none at all
    /// Tokens of a chat's prompt that are to be kept, and how long.
    std::vector<std::pair<std::uint32_t, duration>> keep{};
    std::optional<tool_reading> tools{};
    std::optional<thought_reading> thought{};
    std::unique_ptr<answer_writer> writer{};
    std::string id{};
  };
  /// The prompts and readings of a chat, whichever API it came by, but for its writer. Nothing if the chat
  /// was refused.
  std::optional<asked> asked_of(chat_request& api, std::string_view field, const api_call& c) const;
  answer_head head(api_kind kind, std::string_view prefix, std::string_view asked_for) {
    return {kind, std::string{prefix} + std::to_string(fresh_id()), now_s(), prompts_.card_of(asked_for).id};
  }
  void submit(const api_request& api, asked what, const api_call& c);
  std::uint64_t fresh_id() { return next_id_.fetch_add(0x9E3779B97F4A7C15ull); }

  const context_ptr context_;
  const gateway_actor gateway_;
  const api_backends backends_;
  const api_keys keys_;
  const prompt_maker prompts_;
  const web_guard guard_;
  std::atomic<std::uint64_t> next_id_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::int64_t created_ = 0;
  work_pool pool_;                       ///< dies after the server, which gives it work
  std::unique_ptr<http_server> server_;  ///< last: it calls into all of this
};

http_headers api_server::impl::headers_for(const http_request& request) {
  const auto given = request.header("x-request-id");
  http_headers headers{{"x-request-id", given.empty() || given.size() > 256
                                            ? "req-" + std::to_string(fresh_id())
                                            : std::string{given}}};
  const auto origin = request.header("Origin");
  if (!origin.empty() && guard_.origin_allowed(origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, Retry-After");
    headers.emplace_back("Vary", "Origin");
  }
  return headers;
}

void api_server::impl::preflight(const api_call& c) const {
  auto headers = c.headers;
  if (guard_.origin_allowed(c.request.header("Origin"))) {
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    // Clients bring headers of their own by the dozen (openai-js: x-stainless-*); none of them does anything
    // here.
    const auto wanted = c.request.header("Access-Control-Request-Headers");
    headers.emplace_back("Access-Control-Allow-Headers",
                         wanted.empty() ? "Authorization, Content-Type" : wanted);
    headers.emplace_back("Access-Control-Max-Age", "600");
    if (!c.request.header("Access-Control-Request-Private-Network").empty()) {
      headers.emplace_back("Access-Control-Allow-Private-Network", "true");
    }
  }
  c.out->respond(204, std::move(headers), "");
}

/// Refusals come in the order in which they tell least: host and origin first, so that a page of a stranger
/// learns neither which paths there are nor whether a key is good.
void api_server::impl::handle(http_request request, std::shared_ptr<http_responder> out) {
  const auto c = std::make_shared<api_call>();
  c->headers = headers_for(request);
  c->out = std::move(out);
  c->request = std::move(request);
  const auto& r = c->request;
  const auto refuse = [&](unsigned status, std::string why) {
    c->fail({ec::invalid_argument, std::move(why)}, {}, 0, status);
  };
  const auto host = r.header("Host"), origin = r.header("Origin");
  if (!guard_.host_allowed(host)) {
    return refuse(403, "this server is not called " + std::string{host.substr(0, 200)} +
                           "; if it is, add it to "
                           "--allowed-hosts");
  }
  if (r.method == "OPTIONS") return preflight(*c);
  if (!guard_.may_ask(origin, host)) {
    return refuse(403, "pages of " + std::string{origin.substr(0, 200)} +
                           " may not use this server; see "
                           "--allowed-origins");
  }
  const auto* found = find_endpoint(r.path);
  if (!found || (found->id == endpoint_id::page && !context_->opts.gateway.page)) {
    return c->fail({ec::not_found, "no such path: " + r.path.substr(0, 200)});
  }
  if (found->id == endpoint_id::messages || found->id == endpoint_id::count_tokens)
    c->errors = error_form::anthropic;
  const auto bearer = r.header("Authorization"), key = r.header("x-api-key");
  c->who = keys_.find(bearer.empty() && !key.empty() ? "Bearer " + std::string{key} : std::string{bearer});
  if (found->access != endpoint_access::anybody && !c->who) {
    return c->fail({ec::unauthenticated, "a valid API key is needed: Authorization: Bearer KEY"});
  }
  if (found->access == endpoint_access::operator_ && !c->who->settings().operates) {
    return refuse(403, "this tells of all tenants, and the key is of one that does not operate the server");
  }
  const bool method_fits =
      found->post ? r.method == "POST"
                  : r.method == "GET" || r.method == "HEAD" || (found->deletes && r.method == "DELETE");
  if (!method_fits) {
    c->headers.emplace_back("Allow", found->post      ? "POST"
                                     : found->deletes ? "GET, HEAD, DELETE"
                                                      : "GET, HEAD");
    return refuse(405, r.method + " is not offered at " + r.path);
  }
  route(c, found->id);
}

/// A switch without default, so that an endpoint of the table that has no answer here is a warning.
void api_server::impl::route(const api_call_ptr& c, endpoint_id id) {
  switch (id) {
    case endpoint_id::completions:
      return with_body(c, &impl::completion);
    case endpoint_id::chat:
      return with_body(c, &impl::chat);
    case endpoint_id::messages:
      return with_body(c, &impl::messages);
    case endpoint_id::count_tokens:
      return with_body(c, &impl::count_tokens);
    case endpoint_id::responses:
      return with_body(c, &impl::responses);
    case endpoint_id::embeddings:
      return with_body(c, &impl::embeddings);
    case endpoint_id::tokenize:
      return with_body(c, &impl::tokenize);
    case endpoint_id::detokenize:
      return with_body(c, &impl::detokenize);
    case endpoint_id::models:
      return c->json(format_models(prompts_.cards(), created_, prompts_.context_length()));
    case endpoint_id::model:
      return model(*c);
    case endpoint_id::kept_prefixes:
      return kept_prefixes(c);
    case endpoint_id::version:
      return c->json(R"({"version":")" MOONCAF_VERSION R"("})");
    case endpoint_id::health:
      if (draining_)
        return c->fail({ec::unavailable, "draining: this gateway ends its requests and takes no more"}, {},
                       1);
      return from_cluster(c, health_of);
    case endpoint_id::integrity:
      return from_cluster(c, integrity_of);
    case endpoint_id::cluster:
      return from_cluster(c, cluster_json);
    case endpoint_id::page:
      c->headers.emplace_back("Content-Type", "text/html; charset=utf-8");
      return c->out->respond(200, c->headers, std::string{pages::live});
    case endpoint_id::icon:
      c->headers.emplace_back("Content-Type", "image/svg+xml");
      c->headers.emplace_back("Cache-Control", "max-age=86400");
      return c->out->respond(200, c->headers, std::string{pages::icon});
    case endpoint_id::metrics:
      c->headers.emplace_back("Content-Type", metrics_content_type);
      return c->out->respond(200, c->headers, backends_.metrics());
  }
}

void api_server::impl::with_body(const api_call_ptr& c, void (impl::*work)(const api_call&)) {
  if (stopping_) return c->fail({ec::unavailable, "the server is stopping"}, {}, 1);
  const auto encoding = c->request.header("Content-Encoding");
  if (!encoding.empty() && encoding != "identity") {
    return c->fail({ec::unsupported, "bodies are taken as they are, not in Content-Encoding " +
                                         std::string{encoding.substr(0, 40)}},
                   {}, 0, 415);
  }
  const auto bytes = c->request.body.size();
  if (bytes <= inline_body_bytes) return (this->*work)(*c);
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  c->out->on_close([gone] { *gone = true; });
  const bool taken = pool_.post(bytes, [this, c, work, gone] {
    if (!*gone) (this->*work)(*c);
  });
  if (!taken) c->fail({ec::overloaded, "too many long requests wait to be read"}, {}, 1);
}

void api_server::impl::model(const api_call& c) const {
  const auto name =
      percent_decoded(std::string_view{c.request.path}.substr(std::string_view{"/v1/models/"}.size()));
  if (const auto known = prompts_.check_model(name); !known) return c.fail(known.error());
  c.json(format_model(prompts_.card_of(name), created_, prompts_.context_length()));
}

void api_server::impl::kept_prefixes(const api_call_ptr& c) const {
  if (stopping_) return c->fail({ec::unavailable, "the server is stopping"}, {}, 1);
  constexpr std::string_view all = "/v1/kept_prefixes";
  const auto name =
      std::string_view{c->request.path}.substr(std::min(all.size() + 1, c->request.path.size()));
  const auto wanted = prefix_named(name);
  if (!wanted)
    return c->fail({ec::not_found, "no prefix is called so; GET " + std::string{all} + " has their names"});
  const bool drops = c->request.method == "DELETE";
  auto query = std::make_shared<kept_query>();
  query->tenant = c->who->number({});
  if (drops) query->drop = *wanted;
  query->answer = [c, one = name.empty() ? every_prefix : *wanted, drops,
                   tokens = context_->layout.block_tokens](std::vector<kept_status> found) {
    std::erase_if(found, [&](const kept_status& k) { return one != every_prefix && k.name != one; });
    if (one != every_prefix && found.empty())
      return c->fail({ec::not_found, "no prefix of that name is kept"});
    c->json(format_kept(found, tokens, drops));
  };
  caf::anon_send(gateway_, keep_atom_v, kept_query_ptr{std::move(query)});
}

void api_server::impl::from_cluster(const api_call_ptr& c,
                                    result<std::string> (*answer)(const cluster_status&)) const {
  if (stopping_) return c->fail({ec::unavailable, "the server is stopping"}, {}, 1);
  backends_.cluster([c, answer](const result<cluster_status>& cluster) {
    auto made = cluster.and_then(answer);
    if (!made) return c->fail(made.error(), {}, 1);
    c->json(std::move(*made));
  });
}

void api_server::impl::completion(const api_call& c) {
  const auto parsed = parse_completion(c.request.body, context_->defaults);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  if (const auto known = prompts_.check_model(parsed->model); !known) return c.fail(known.error());
  asked what{"prompt", {}, {}};
  for (const auto& prompt : parsed->prompts) {
    auto tokens = prompts_.tokens_of(prompt, *parsed, "prompt", parsed->truncate_prompt_tokens.has_value());
    if (!tokens) return c.fail(tokens.error());
    prompts_.truncate(*parsed, *tokens);
    what.echoes.push_back(parsed->echo ? prompts_.echo_of(*tokens) : std::string{});
    what.prompts.push_back(std::move(*tokens));
  }
  auto made = head(api_kind::completion, "cmpl-", parsed->model);
  what.id = made.id;
  what.writer = openai_writer(std::move(made), parsed->include_usage);
  submit(*parsed, std::move(what), c);
}

auto api_server::impl::asked_of(chat_request& api, std::string_view field, const api_call& c) const
    -> std::optional<asked> {
  const auto refused = [&](const api_refusal& why) {
    c.fail(why);
    return std::nullopt;
  };
  if (const auto known = prompts_.check_model(api.model); !known) return refused(known.error());
  auto tokens = prompts_.tokens_of(api, api.truncate_prompt_tokens.has_value());
  if (!tokens) return refused(tokens.error());
  prompts_.truncate(api, *tokens);
  auto tools = prompts_.prepare_tools(api);
  if (!tools) return refused(tools.error());
  asked what{field, {}, {}, {}, std::move(*tools), prompts_.prepare_thought(api, *tokens)};
  if (!api.keep.empty() && !api.truncate_prompt_tokens) what.keep = prompts_.marked(api, api.keep, *tokens);
  what.prompts.push_back(std::move(*tokens));
  return what;
}

void api_server::impl::chat(const api_call& c) {
  auto parsed = parse_chat(c.request.body, context_->defaults);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  auto what = asked_of(*parsed, "messages", c);
  if (!what) return;
  auto made = head(api_kind::chat, "chatcmpl-", parsed->model);
  what->id = made.id;
  what->writer = openai_writer(std::move(made), parsed->include_usage);
  submit(*parsed, std::move(*what), c);
}

void api_server::impl::messages(const api_call& c) {
  auto parsed = parse_messages(c.request.body, false, context_->defaults);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  auto what = asked_of(*parsed, "messages", c);
  if (!what) return;
  auto made = head(api_kind::chat, "msg_", parsed->model);
  what->id = made.id;
  what->writer = messages_writer(std::move(made), static_cast<std::uint32_t>(what->prompts.front().size()));
  submit(*parsed, std::move(*what), c);
}

void api_server::impl::count_tokens(const api_call& c) {
  auto parsed = parse_messages(c.request.body, true);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  if (const auto what = asked_of(*parsed, "messages", c))
    c.json(format_token_count(what->prompts.front().size()));
}

void api_server::impl::responses(const api_call& c) {
  auto parsed = parse_responses(c.request.body, context_->defaults);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  auto what = asked_of(*parsed, "input", c);
  if (!what) return;
  auto made = head(api_kind::chat, "resp_", parsed->model);
  what->id = made.id;
  what->writer = responses_writer(std::move(made), parsed->echo);
  submit(*parsed, std::move(*what), c);
}

void api_server::impl::embeddings(const api_call& c) {
  const auto parsed = parse_embeddings(c.request.body);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  if (const auto known = prompts_.check_model(parsed->model); !known) return c.fail(known.error());
  asked what{"input", {}, {}};
  for (const auto& input : parsed->inputs) {
    auto tokens = prompts_.tokens_of(input, *parsed, "input", parsed->truncate_prompt_tokens.has_value());
    if (!tokens) return c.fail(tokens.error());
    prompts_.truncate(*parsed, *tokens);
    what.prompts.push_back(std::move(*tokens));
  }
  what.writer = embeddings_writer(head(api_kind::completion, {}, parsed->model), parsed->base64);
  submit(*parsed, std::move(what), c);
}

void api_server::impl::submit(const api_request& api, asked what, const api_call& c) {
  const auto& prompts = what.prompts;
  const auto answers = prompts.size() * api.n;
  if (const auto limit = context_->opts.gateway.max_requests; answers > limit) {
    return c.fail({ec::invalid_argument, "n: " + std::to_string(prompts.size()) + " prompts make " +
                                             std::to_string(answers) + " answers, more than the gateway's " +
                                             std::to_string(limit)});
  }
  std::vector<sampling_params> sampling;
  for (const auto& prompt : prompts) {
    auto s = prompts_.complete(api, prompt.size(), what.field);
    if (!s) return c.fail(s.error());
    if (!api.seed_given) s->seed = fresh_id();
    sampling.push_back(std::move(*s));
  }
  const auto adapter = context_->adapters.find(api.model);
  const bool adapted = adapter != context_->adapters.end();
  auto entered = c.who->enter(clock_type::now(), static_cast<std::uint32_t>(answers));
  if (!entered) {
    const auto& why = entered.error();
    return c.fail(why.cause, {}, std::chrono::ceil<std::chrono::seconds>(why.retry_after).count());
  }
  answer_setup setup;
  setup.writer = std::move(what.writer);
  setup.id = std::move(what.id);
  setup.responder = c.out;
  setup.text = context_->text;
  setup.headers = c.headers;
  setup.stream = api.stream;
  setup.include_stop = api.include_stop;
  setup.token_ids = api.return_token_ids;
  setup.tokens_as_ids = api.tokens_as_ids;
  setup.scores_only = api.max_tokens_given && api.sampling.max_tokens == 0;
  setup.echo_logprobs = api.echo_logprobs;
  setup.prompt_logprobs = api.prompt_logprobs;
  setup.tools = std::move(what.tools);
  setup.thought = std::move(what.thought);
  setup.held = std::move(*entered);
  const auto made = std::make_shared<answer>(std::move(setup));
  auto client = std::make_shared<client_request>();
  client->trace_id = c.headers.front().second;
  client->tenant = c.who->settings().name;
  client->traceparent = c.request.header("traceparent");
  client->arrived = clock_type::now();
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    for (std::uint32_t i = 0; i < api.n; ++i) {
      generation g;
      g.prompt = prompts[p];
      g.sampling = sampling[p];
      g.sampling.seed += i;  // several answers to one prompt differ
      g.cache_salt = c.who->salt(api.cache_salt);
      if (adapted) {
        g.sampling.adapter = adapter->first;
        g.adapter = adapter->second->fingerprint();
      }
      g.priority = c.who->priority(api.priority);
      g.tenant = c.who->number(api.user);
      g.share = c.who->share();
      g.keeper = c.who->number({});
      g.keep = what.keep;
      if (what.keep.empty() && !api.keep.empty() && !api.truncate_prompt_tokens)
        g.keep = {{static_cast<std::uint32_t>(prompts[p].size()), api.keep.back().ttl}};
      g.ttft_slo = std::chrono::milliseconds(api.ttft_slo_ms);
      g.tbt_slo = std::chrono::milliseconds(api.tbt_slo_ms);
      g.sink = made->add_choice(g.sampling, prompts[p], i == 0,
                                what.echoes.empty() ? std::string{} : what.echoes[p]);
      client->generations.push_back(std::move(g));
    }
  }
  c.out->on_close([gateway = gateway_, weak = std::weak_ptr<client_request>(client)] {
    if (auto gone = weak.lock()) caf::anon_send(gateway, cancel_atom_v, gone);
  });
  caf::anon_send(gateway_, submit_atom_v, client);
}

void api_server::impl::tokenize(const api_call& c) {
  const auto parsed = parse_tokenize(c.request.body);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  if (const auto known = prompts_.check_model(parsed->model); !known) return c.fail(known.error());
  const auto* conversation = std::get_if<chat_prompt>(&parsed->input);
  const auto tokens = conversation ? prompts_.tokens_of(*conversation)
                                   : prompts_.tokens_of(prompt_input{std::get<std::string>(parsed->input)},
                                                        *parsed, "prompt");
  if (!tokens) return c.fail(tokens.error());
  c.json(format_tokens(*tokens, prompts_.context_length()));
}

void api_server::impl::detokenize(const api_call& c) {
  const auto parsed = parse_detokenize(c.request.body);
  if (!parsed) return c.fail(api_refusal{parsed.error()});
  if (const auto known = prompts_.check_model(parsed->model); !known) return c.fail(known.error());
  if (const auto known = prompts_.check_vocabulary(parsed->tokens, "tokens"); !known)
    return c.fail(known.error());
  c.json(format_text(context_->text->decode(parsed->tokens, special_text::show)));
}

api_server::api_server(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
api_server::~api_server() = default;
void api_server::drain() { impl_->drain(); }
std::size_t api_server::answering() const { return impl_->server().answering(); }
std::size_t api_server::connections() const noexcept { return impl_->server().connections(); }
void api_server::stop(duration limit) { impl_->stop(limit); }
std::uint16_t api_server::port() const noexcept { return impl_->port(); }

result<std::unique_ptr<api_server>> api_server::start(context_ptr context, gateway_actor gateway,
                                                      api_backends backends) {
  auto keys = api_keys::load(context->opts.gateway);
  if (!keys) return fail(keys.error());
  auto made =
      std::make_unique<impl>(std::move(context), std::move(gateway), std::move(backends), std::move(*keys));
  if (auto listening = made->listen(); !listening) return fail(listening.error());
  return std::unique_ptr<api_server>(new api_server(std::move(made)));
}

}  // namespace mooncaf
