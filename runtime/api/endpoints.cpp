#include "runtime/api/endpoints.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

using id = endpoint_id;
using who = endpoint_access;

constexpr endpoint all_endpoints[] = {
    {id::completions, true, "/v1/completions", who::key, "text, or token ids, goes on"},
    {id::chat, true, "/v1/chat/completions", who::key, "a conversation goes on"},
    {id::messages, true, "/v1/messages", who::key, "the same, as Anthropic's clients ask for it"},
    {id::count_tokens, true, "/v1/messages/count_tokens", who::key, "how many tokens such a prompt has"},
    {id::responses, true, "/v1/responses", who::key,
     "the same, as newer OpenAI clients ask for it; nothing is kept"},
    {id::embeddings, true, "/v1/embeddings", who::key, "where texts lie in the model's space"},
    {id::models, false, "/v1/models", who::key, "the model that is served, and its adapters"},
    {id::model, false, "/v1/models/", who::key, "one of them by its name; 404 for another"},
    {id::tokenize, true, "/tokenize", who::key, "the ids of a text or a conversation"},
    {id::detokenize, true, "/detokenize", who::key, "the text of ids"},
    {id::kept_prefixes, false, "/v1/kept_prefixes", who::key,
     "prefixes that are kept for the tenant; DELETE ends all", true},
    {id::kept_prefixes, false, "/v1/kept_prefixes/", who::key, "one of them by its name", true},
    {id::version, false, "/version", who::key, "of this program"},
    {id::health, false, "/health", who::anybody, "200 if a request could be served now"},
    {id::page, false, "/", who::anybody, "the live page; it asks its reader for the key"},
    {id::icon, false, "/favicon.ico", who::anybody, "its icon"},
    {id::cluster, false, "/cluster", who::operator_, "instances, caches, paths and recent requests as JSON"},
    {id::metrics, false, "/metrics", who::operator_, "Prometheus text of this process"},
    {id::integrity, false, "/integrity", who::operator_, "what is held for requests"},
};

}  // namespace

std::span<const endpoint> endpoints() noexcept { return all_endpoints; }

const endpoint* find_endpoint(std::string_view path) noexcept {
  const auto i = std::ranges::find_if(all_endpoints, [&](const endpoint& e) {
    const bool named = e.path.size() > 1 && e.path.ends_with('/');
    return named ? path.starts_with(e.path) && path.size() > e.path.size() : path == e.path;
  });
  return i == std::end(all_endpoints) ? nullptr : i;
}

std::string endpoints_as_markdown() {
  std::string out = "| method | path | key | |\n| --- | --- | --- | --- |\n";
  for (const auto& e : endpoints()) {
    out += e.post ? "| POST | `" : e.deletes ? "| GET, DELETE | `" : "| GET | `";
    out += std::string{e.path} + (e.path.size() > 1 && e.path.ends_with('/') ? "{name}" : "") + "` | ";
    out += e.access == who::anybody ? "no" : e.access == who::key ? "any" : "operator's";
    out += " | " + std::string{e.meaning} + " |\n";
  }
  return out;
}

}  // namespace mooncaf
