// rotate-secret: a cluster that runs gets another secret, and loses no request by it.

#include <openssl/crypto.h>
#include <poll.h>

#include "actors/launch/command_tools.hpp"
#include "runtime/launch/secret_rotation.hpp"
#include "transport/net/secret.hpp"

namespace mooncaf::launch {

namespace {

/// A link whose one end read its file before a step proves itself to the other within this time.
constexpr int settle_ms = 1000;

result<void> carry_out(const cluster_access& cluster, const rotation_step& step) {
  if (step.keep) return cluster.keep_secrets(step.lines);
  if (step.settle) ::poll(nullptr, 0, settle_ms);
  const auto hosts = hosts_of(cluster);
  const auto handed = at_once(hosts, [&](std::size_t h) { return cluster.hand_secrets(h, step.lines); });
  for (const auto h : hosts)
    if (!handed[h]) return fail(handed[h].error().code, cluster.label(h) + ": " + handed[h].error().detail);
  return {};
}

}  // namespace

// One step after the other on all hosts; the first that fails ends it, with the secret that the operator keeps saying
// where to go on.
int rotate_secret_command(std::span<const std::string> args, const sim::console& io) {
  cli::command_line line;
  line.usage = "mooncaf rotate-secret FILE";
  line.summary =
      "Gives a cluster that runs another secret, while it serves: all processes learn the new one, then "
      "prove "
      "it, then\nforget the old one. Links that stand go on; `mooncaf restart FILE --rolling` ends those, "
      "too. "
      "Cut off, it goes\non when called again. Clients of the store on other machines get the new "
      "secret's file from you.";
  if (const auto end = begin(line, args, 1, io)) return *end;
  const auto cluster = cluster_access::open(line.words[0]);
  if (!cluster) return complain(io, cluster.error(), 2);
  auto kept = cluster->secrets();
  if (!kept) return complain(io, kept.error(), 1);
  auto fresh = cluster_secret::make_text();
  if (!fresh) return complain(io, fresh.error(), 1);
  auto steps = rotation_steps(*kept, *fresh);
  OPENSSL_cleanse(kept->data(), kept->size());
  OPENSSL_cleanse(fresh->data(), fresh->size());
  if (!steps) return complain(io, steps.error(), 1);
  for (auto& step : *steps) {
    const auto done = carry_out(*cluster, step);
    OPENSSL_cleanse(step.lines.data(), step.lines.size());
    if (!done)
      return complain(io,
                      {done.error().code,
                       done.error().detail + "; no process is shut out; call this again when that is mended"},
                      1);
  }
  io.err << "all hosts have the new secret, and let in nobody with the old one\n";
  return 0;
}

}  // namespace mooncaf::launch
