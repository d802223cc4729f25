// Rates and times of the store that is there, each beside a memcpy by the same process: as a get, from as
// many places one after the other into one, where they are in no cache.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "actors/store/store_command.hpp"

namespace mooncaf::store {

namespace {

using nlohmann::json;

struct figure {
  double per_s = 0, p50_us = 0, p99_us = 0;
};

/// Repeats a step for as long as it is given. @param each  what one step does; false ends the measurement.
template <class Step>
std::optional<figure> repeat(double for_seconds, const Step& each) {
  std::vector<double> took;
  const auto begin = clock_type::now();
  const auto until = begin + from_seconds(for_seconds);
  auto now = begin;
  for (std::size_t i = 0; now < until; ++i) {
    if (!each(i)) return std::nullopt;
    const auto end = clock_type::now();
    took.push_back(to_seconds(end - now) * 1e6);
    now = end;
  }
  std::sort(took.begin(), took.end());
  return figure{static_cast<double>(took.size()) / to_seconds(now - begin), took[took.size() / 2],
                took[took.size() * 99 / 100]};
}

json as_json(const figure& f, double units_each) {
  return {{"per_s", f.per_s * units_each}, {"p50_us", f.p50_us}, {"p99_us", f.p99_us}};
}

std::string bench_key(std::size_t i) { return "mooncaf-bench-" + std::to_string(i); }

/// Metadata: exists alone, pipelined, and in batches.
result<json> measure_exists(store_client& store, double seconds) {
  constexpr std::size_t batch = 128, window = 256;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < batch; ++i) names.push_back(bench_key(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const auto alone = repeat(
      seconds, [&](std::size_t i) { return store.exists(std::span{keys}.subspan(i % batch, 1))[0] >= 0; });
  const auto batched = repeat(seconds, [&](std::size_t) { return store.exists(keys)[0] >= 0; });
  const auto links = store.links();
  if (!links) return fail(links.error());
  const auto piped = repeat(seconds, [&](std::size_t) {
    std::vector<std::pair<directory_link*, std::uint64_t>> asked;
    for (std::size_t i = 0; i < window; ++i) {
      auto* const link = (*links)->of(keys[i % batch]).get();
      const auto number = link->ask(store_wire::op::exists, [&](byte_writer& out) {
        out.put(std::uint32_t{1});
        out.put_text(keys[i % batch]);
      });
      if (!number) return false;
      asked.emplace_back(link, *number);
    }
    return std::all_of(asked.begin(), asked.end(),
                       [](const auto& one) { return one.first->wait(one.second).has_value(); });
  });
  if (!alone || !batched || !piped) return fail(ec::peer_lost, "the directory stopped answering");
  return json{{"alone", as_json(*alone, 1)},
              {"pipelined", as_json(*piped, window)},
              {"batches_of_128", as_json(*batched, batch)}};
}

std::optional<figure> copy_alone(std::size_t bytes, std::size_t count, double seconds) {
  std::vector<std::byte> objects(bytes * count, std::byte{1}), to(bytes, std::byte{2});
  return repeat(seconds, [&](std::size_t i) {
    std::memcpy(to.data(), objects.data() + i % count * bytes, bytes);
    return to[i % bytes] == std::byte{1};
  });
}

// Puts and gets run in two rounds: the first touches fresh memory, which costs the kernel more than the
// copy.
result<json> measure_size(store_client& store, std::size_t bytes, double seconds) {
  const auto now = store.counts();
  if (!now) return fail(now.error());
  // So few objects that none has to make way for another.
  const auto room = std::min<std::uint64_t>(256 * MiB, now->free_bytes / 2);
  const auto count = std::clamp<std::size_t>(room / bytes, 1, 256);
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
  const auto copied = copy_alone(bytes, count, seconds);
  const auto clear = [&] {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(bench_key(i));
    store.remove(std::vector<std::string_view>(names.begin(), names.end()), true);
  };
  clear();
  std::vector<double> took;
  std::size_t written = 0;
  for (int round = 0; round < 2; ++round) {  // the first round touches fresh memory
    if (round > 0) clear();
    took.clear();
    for (written = 0; written < count; ++written) {
      const auto name = bench_key(written);
      const outgoing_object item{name, {from}};
      const auto begin = clock_type::now();
      if (store.put({&item, 1}, {})[0] != store_code::ok) break;
      took.push_back(to_seconds(clock_type::now() - begin) * 1e6);
    }
    if (written == 0) return fail(ec::out_of_space, "an object of " + readable(bytes) + " was refused");
  }
  double sum = 0;
  for (const auto t : took) sum += t;
  std::sort(took.begin(), took.end());
  const figure put{static_cast<double>(written) / sum * 1e6, took[written / 2], took[written * 99 / 100]};
  const auto get = repeat(seconds, [&](std::size_t i) {
    const auto name = bench_key(i % written);
    const std::string_view key = name;
    const std::span<std::byte> whole{to};
    return store.read(store.find({&key, 1})[0], {&whole, 1}) == store_code::ok;
  });
  clear();
  if (!get) return fail(ec::not_found, "an object of " + readable(bytes) + " was not there any more");
  const auto gb = static_cast<double>(bytes) / 1e9;
  return json{{"bytes", bytes},
              {"objects", written},
              {"put", as_json(put, 1)},
              {"get", as_json(*get, 1)},
              {"put_gb_per_s", put.per_s * gb},
              {"get_gb_per_s", get->per_s * gb},
              {"memcpy_gb_per_s", copied->per_s * gb}};
}

void print_row(const sim::console& io, const char* what, const json& f) {
  char line[160];
  std::snprintf(line, sizeof line, "%-24s %12.0f /s   p50 %8.1f us   p99 %8.1f us\n", what,
                f["per_s"].get<double>(), f["p50_us"].get<double>(), f["p99_us"].get<double>());
  io.out << line;
}

}  // namespace

// Runs from a client like any other, so the figures include the connection to the directory.
int measure(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  double seconds = 1;
  cli::command_line line{"mooncaf store bench [options]",
                         "Rates and times of the store, from this process. Writes and removes keys that "
                         "begin with mooncaf-bench-.",
                         {},
                         {}};
  line.arguments = common.list();
  line.arguments.push_back(cli::seconds("time", "for each figure", seconds, 0.01, 600));
  if (const auto status = begin(line, args, io)) return *status;
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  json all;
  const auto exists = measure_exists(**store, seconds);
  if (!exists) return complain(io, exists.error(), 1);
  all["exists"] = *exists;
  for (const std::size_t bytes : {4 * KiB, 160 * KiB, 1 * MiB, 16 * MiB}) {
    const auto row = measure_size(**store, bytes, seconds);
    if (!row) return complain(io, row.error(), 1);
    all["objects"].push_back(*row);
  }
  if (common.json) {
    io.out << all.dump(2) << "\n";
    return 0;
  }
  print_row(io, "exists, alone", all["exists"]["alone"]);
  print_row(io, "exists, pipelined", all["exists"]["pipelined"]);
  print_row(io, "exists, batches of 128", all["exists"]["batches_of_128"]);
  for (const auto& row : all["objects"]) {
    const auto size = readable(row["bytes"].get<std::uint64_t>());
    print_row(io, ("put " + size).c_str(), row["put"]);
    print_row(io, ("get " + size).c_str(), row["get"]);
    char rates[120];
    std::snprintf(rates, sizeof rates, "%-24s put %.2f, get %.2f, memcpy %.2f GB/s\n", "",
                  row["put_gb_per_s"].get<double>(), row["get_gb_per_s"].get<double>(),
                  row["memcpy_gb_per_s"].get<double>());
    io.out << rates;
  }
  return 0;
}

}  // namespace mooncaf::store
