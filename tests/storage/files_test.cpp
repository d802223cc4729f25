// A model's files from sources: what they hold, who is asked for which part, and the way of the bytes.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <ranges>
#include <set>
#include <thread>

#include "storage/file_slice.hpp"
#include "storage/files/file_fetch.hpp"
#include "storage/files/file_manifest.hpp"
#include "storage/files/file_offer.hpp"
#include "storage/files/part_schedule.hpp"
#include "storage/files/partial_files.hpp"
#include "storage/files/peers_page.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
namespace fs = std::filesystem;

namespace {

constexpr auto part = file_manifest::part_bytes;

void write_noise(const std::string& path, std::uint64_t bytes, unsigned seed) {
  fs::create_directories(fs::path{path}.parent_path());
  // One block of chance, again and again with a count in it: no two parts are alike.
  std::mt19937_64 random{seed};
  std::vector<std::uint64_t> block(8192);
  for (auto& value : block) value = random();
  std::ofstream out(path, std::ios::binary);
  for (std::uint64_t left = bytes; left > 0; ++block[0]) {
    const auto n = std::min<std::uint64_t>(left, block.size() * sizeof block[0]);
    out.write(reinterpret_cast<const char*>(block.data()), static_cast<std::streamsize>(n));
    left -= n;
  }
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(fs::exists(path) ? fs::file_size(path) : 0, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

transfer_engine_options engine() {
  transfer_engine_options o;
  o.secret = "the secret of these tests alone";
  return o;
}

std::unique_ptr<file_offer> offer(const std::string& path) {
  auto made = file_offer::start(path, engine());
  REQUIRE_MESSAGE(made, (made ? "" : made.error().detail));
  return std::move(*made);
}

std::string at(const file_offer& o) { return "127.0.0.1:" + std::to_string(o.port()); }

result<fetch_report> fetch(std::vector<std::string> from, const std::string& to,
                           const std::function<void(const fetch_progress&)>& tell = {},
                           duration meeting = std::chrono::milliseconds(50)) {
  return fetch_files({engine().secret, std::move(from), to, "127.0.0.1", 4, std::chrono::seconds(5), meeting},
                     tell);
}

}  // namespace

TEST_CASE(
    "a list of files comes back as it was, names stay within their folder, and parts cover every byte once") {
  const auto made = file_manifest::of(
      true, {{"a/b.bin", 2 * part + 1, 4096}, {"config.json", 7, 64}, {"empty", 0, 0}, {"z", part, 1 << 30}});
  REQUIRE(made);
  CHECK(made->parts() == 5);
  std::map<std::size_t, std::uint64_t> covered;
  for (std::size_t i = 0; i < made->parts(); ++i) {
    const auto p = made->part(i);
    CHECK(p.offset == covered[p.file]);
    CHECK(p.bytes > 0);
    covered[p.file] += p.bytes;
  }
  for (const auto& [file, bytes] : covered) CHECK(bytes == made->files()[file].bytes);
  const auto bytes = made->encode({1 << 20, 2 << 20, 0});
  const auto back = file_manifest::parse(bytes);
  REQUIRE(back);
  CHECK(back->files() == made->files());
  CHECK(back->same_shape(*made));
  for (const auto* name : {"", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".", "a\nb", "./a"}) {
    CAPTURE(name);
    CHECK(file_manifest::of(true, {{name, 1, 1}}).error() == ec::invalid_argument);
  }
  CHECK_FALSE(file_manifest::of(true, {{"a", 1, 1}, {"a", 1, 9}}));
  CHECK_FALSE(file_manifest::of(false, {{"a", 1, 1}}));
  CHECK(file_manifest::of(false, {{"", 1, 1}}));
}

TEST_CASE("a list of files with any bytes changed or cut is an error or a list, never more") {
  const auto bytes = file_manifest::of(true, {{"a/b.bin", 9 * part, 4096}, {"config.json", 7, 64}})
                         ->encode({1 << 20, 2 << 20, 3 << 20});
  std::mt19937 random{11};
  for (int round = 0; round < 20'000; ++round) {
    auto changed = bytes;
    for (int k = 0; k < 1 + round % 3; ++k)
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    if (round % 4 == 0) changed.resize(random() % changed.size());
    if (const auto read = file_manifest::parse(changed))
      for (std::size_t i = 0; i < std::min<std::size_t>(read->parts(), 100); ++i)
        CHECK(read->part(i).bytes <= part);
  }
}

TEST_CASE("every part comes once, from the least busy source, and a source that fails is left alone") {
  std::mt19937 random{5};
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const std::size_t parts = random() % 60, sources = 1 + random() % 4;
    std::vector<int> bad(sources);
    for (auto& b : bad) b = static_cast<int>(random() % 3) * 40;  // per cent of its parts
    part_schedule plan{parts, sources};
    std::vector<part_schedule::task> under_way;
    std::set<std::size_t> came;
    for (int step = 0; step < 5000 && !plan.finished() && !plan.hopeless(); ++step) {
      if (random() % 2 == 0 || under_way.empty()) {
        if (const auto t = plan.take()) {
          CHECK_FALSE(plan.dropped(t->source));
          CHECK_FALSE(came.contains(t->part));
          for (const auto& other : under_way) CHECK(other.part != t->part);
          under_way.push_back(*t);
        }
        continue;
      }
      const auto pick = random() % under_way.size();
      const auto t = under_way[pick];
      under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(pick));
      if (static_cast<int>(random() % 100) < bad[t.source]) plan.failed(t, "no answer");
      else plan.done(t), came.insert(t.part);
    }
    if (plan.finished()) CHECK(came.size() == parts);
    else REQUIRE(plan.hopeless());
    if (std::ranges::count(bad, 0) > 0) CHECK(plan.finished());
    std::size_t sum = 0;
    for (std::size_t i = 0; i < sources; ++i) sum += plan.came_from(i);
    CHECK(sum == came.size());
  }
  part_schedule busy{10, 2};
  const auto first = busy.take(), second = busy.take();
  CHECK(first->source != second->source);
  busy.failed(*first, "no answer");
  CHECK(busy.take()->source == second->source);  // another one than it failed at, though that is idle
}

TEST_CASE("a file and a folder arrive byte for byte, from all sources at once") {
  const test::temp_dir folder;
  SUBCASE("a file") {
    write_noise(folder / "a/M.gguf", 9 * part + 12'345, 1);
    write_noise(folder / "b/M.gguf", 9 * part + 12'345, 1);
    const auto one = offer(folder / "a/M.gguf"), two = offer(folder / "b/M.gguf");
    fetch_progress last;
    const auto done =
        fetch({at(*one), at(*two)}, folder / "here/M.gguf", [&](const fetch_progress& now) { last = now; });
    REQUIRE_MESSAGE(done, to_string(done.error()));
    CHECK(text_of(folder / "here/M.gguf") == text_of(folder / "a/M.gguf"));
    CHECK(done->came_from.at(0) > 0);
    CHECK(done->came_from.at(1) > 0);
    CHECK(done->came_from[0] + done->came_from[1] == 10);
    CHECK(last.fetched == last.total);
    CHECK(last.total == 9 * part + 12'345);
    const auto news = one->heard(clock_type::now());
    CHECK(news.any);
    CHECK(news.ended == 1);
    CHECK_FALSE(one->heard(clock_type::now()).any);
    CHECK_FALSE(fs::exists(folder / "here/M.gguf.part"));
    CHECK(fetch({at(*one)}, folder / "here/M.gguf").error() == ec::already_exists);
  }
  SUBCASE("a folder") {
    write_noise(folder / "m/model-1.safetensors", 2 * part, 1);
    write_noise(folder / "m/sub/model-2.safetensors", part + 1, 2);
    write_noise(folder / "m/config.json", 100, 3);
    write_noise(folder / "m/empty", 0, 0);
    write_noise(folder / "m/.git/objects", 100, 4);
    const auto one = offer(folder / "m");
    REQUIRE(fetch({at(*one)}, folder / "here/"));
    for (const auto* name : {"model-1.safetensors", "sub/model-2.safetensors", "config.json", "empty"})
      CHECK(text_of(folder / "here/" + name) == text_of(folder / "m/" + name));
    CHECK(fs::exists(folder / "here/empty"));
    CHECK_FALSE(fs::exists(folder / "here/.git"));
  }
}

TEST_CASE("a fetch that was cut off goes on, and what lies there is believed by its hash alone") {
  const test::temp_dir folder;
  write_noise(folder / "M.gguf", 8 * part, 1);
  const auto whole = text_of(folder / "M.gguf");
  {
    std::ofstream part_file(folder / "here.part", std::ios::binary);
    part_file << whole.substr(0, 5 * part);
    part_file.seekp(static_cast<std::streamoff>(2 * part + 77));
    part_file.put(static_cast<char>(whole[2 * part + 77] ^ 1));
  }
  const auto one = offer(folder / "M.gguf");
  const auto done = fetch({at(*one)}, folder / "here");
  REQUIRE(done);
  CHECK(text_of(folder / "here") == whole);
  CHECK(done->bytes.found == 4 * part);
  CHECK(done->bytes.fetched == 4 * part);
}

TEST_CASE("a source with another content, other files or another secret is not used, and it is said") {
  const test::temp_dir folder;
  write_noise(folder / "a/M.gguf", 6 * part, 1);
  write_noise(folder / "b/M.gguf", 6 * part, 2);
  write_noise(folder / "c/M.gguf", 5 * part, 1);
  const auto right = offer(folder / "a/M.gguf"), other = offer(folder / "b/M.gguf"),
             shorter = offer(folder / "c/M.gguf");
  const auto done = fetch({at(*right), at(*other), at(*shorter), "127.0.0.1:1"}, folder / "here");
  REQUIRE_MESSAGE(done, to_string(done.error()));
  CHECK(text_of(folder / "here") == text_of(folder / "a/M.gguf"));
  CHECK(done->came_from.at(0) == 6);
  REQUIRE(done->dropped.size() == 3);
  CHECK(done->dropped[0].find("another content than " + at(*right)) != std::string::npos);
  CHECK(done->dropped[1].find("has other files") != std::string::npos);
  CHECK(done->dropped[2].find("127.0.0.1:1: ") == 0);

  auto options = file_fetch_options{};
  options.secret = "another secret than that of the tests";
  options.sources = {at(*right)};
  options.destination = folder / "there";
  const auto refused = fetch_files(options, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().detail.find("secret") != std::string::npos);
  CHECK_FALSE(fs::exists(folder / "there.part"));
}

TEST_CASE(
    "a source that goes away amid a fetch is replaced by the others; without one the parts so far stay") {
  const test::temp_dir folder;
  write_noise(folder / "M.gguf", 40 * part, 1);
  auto one = offer(folder / "M.gguf"), two = offer(folder / "M.gguf");
  const auto two_at = at(*two);
  SUBCASE("one of two") {
    std::atomic<bool> once{false};
    std::thread ending;
    const auto done = fetch({at(*one), two_at}, folder / "here", [&](const fetch_progress& now) {
      if (now.fetched > 4 * part && !once.exchange(true)) ending = std::thread{[&] { one.reset(); }};
    });
    ending.join();
    REQUIRE_MESSAGE(done, to_string(done.error()));
    CHECK(text_of(folder / "here") == text_of(folder / "M.gguf"));
  }
  SUBCASE("the only one") {
    std::atomic<bool> once{false};
    std::thread ending;
    const auto cut = fetch({at(*one)}, folder / "here", [&](const fetch_progress& now) {
      if (now.fetched > 4 * part && !once.exchange(true)) ending = std::thread{[&] { one.reset(); }};
    });
    ending.join();
    REQUIRE_FALSE(cut);
    CHECK(cut.error() == ec::unavailable);
    CHECK_FALSE(fs::exists(folder / "here"));
    const auto done = fetch({two_at}, folder / "here");
    REQUIRE(done);
    CHECK(done->bytes.found >= 4 * part);
    CHECK(text_of(folder / "here") == text_of(folder / "M.gguf"));
  }
}

TEST_CASE("two contents of one name and size are never put together, whichever source goes away") {
  const test::temp_dir folder;
  write_noise(folder / "a/M.gguf", 30 * part, 1);
  write_noise(folder / "b/M.gguf", 30 * part, 2);
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    auto right = offer(folder / "a/M.gguf"), other = offer(folder / "b/M.gguf");
    std::atomic<bool> once{false};
    std::thread ending;
    const auto here = folder / ("here" + std::to_string(round));
    const auto done = fetch({at(*right), at(*other)}, here, [&](const fetch_progress& now) {
      if (now.fetched >= static_cast<std::uint64_t>(1 + round) * part && !once.exchange(true))
        ending = std::thread{[&] { right.reset(); }};
    });
    ending.join();
    if (!done) {
      CHECK_FALSE(fs::exists(here));
      REQUIRE(fetch({at(*other)}, here));
    }
    const auto got = text_of(here);
    CHECK((got == text_of(folder / "a/M.gguf") || got == text_of(folder / "b/M.gguf")));
  }
}

TEST_CASE(
    "one process at a time puts a path together, in folders that it makes, and nothing is there before all "
    "is") {
  const test::temp_dir folder;
  const auto manifest = file_manifest::of(true, {{"a/b", part + 3, 64}, {"c", 5, 64}}).value();
  const auto path = folder / "deep/model/";
  auto first = partial_files::open(path, manifest);
  REQUIRE_MESSAGE(first, to_string(first.error()));
  CHECK_FALSE(first->resumed());
  const auto second = partial_files::open(path, manifest);
  REQUIRE_FALSE(second);
  CHECK(second.error() == ec::already_exists);
  CHECK(second.error().detail.find("being fetched by another process") != std::string::npos);
  for (std::size_t i = 0; i < manifest.parts(); ++i) {
    CHECK_FALSE(fs::exists(folder / "deep/model"));
    REQUIRE(first->write(i, std::vector<std::byte>(manifest.part(i).bytes, static_cast<std::byte>('0' + i))));
  }
  std::vector<std::byte> back(3);
  CHECK(first->read(1, back));
  CHECK(back == std::vector<std::byte>(3, std::byte{'1'}));
  REQUIRE(first->finish());
  CHECK(text_of(folder / "deep/model/c") == "22222");
  CHECK(fs::file_size(folder / "deep/model/a/b") == part + 3);
  CHECK(partial_files::open(path, manifest).error() == ec::already_exists);
  CHECK(partial_files::open("/proc/no/such/place", manifest).error() == ec::io_error);
}

// ---- several hosts that fetch at once

TEST_CASE("a page of fetches is read as it was written, and one that is being written is not read") {
  peers_page page;
  const auto now = clock_type::now();
  CHECK(peers_page::parse(page.bytes()).empty());
  page.goes_on("10.0.0.2:7001", now);
  page.goes_on("10.0.0.3:7001", now + std::chrono::seconds(10));
  page.goes_on("", now);
  page.goes_on("two\nlines:1", now);
  CHECK(peers_page::parse(page.bytes()) == std::vector<std::string>{"10.0.0.2:7001", "10.0.0.3:7001"});
  std::array<std::byte, peers_page::size> bytes;
  std::mt19937 random{3};
  for (int round = 0; round < 200; ++round) {
    std::ranges::copy(page.bytes(), bytes.begin());
    bytes[random() % bytes.size()] ^= std::byte{16};
    CHECK(peers_page::parse(bytes).empty());
  }
  page.forget_silent(now + std::chrono::seconds(20));
  CHECK(peers_page::parse(page.bytes()) == std::vector<std::string>{"10.0.0.3:7001"});
  page.ended("10.0.0.3:7001");
  CHECK(peers_page::parse(page.bytes()).empty());
  for (int i = 0; i < 1000; ++i) page.goes_on("10.0.1.2:" + std::to_string(10'000 + i), now);
  CHECK(peers_page::parse(page.bytes()).size() > 200);
}

// Virtual time: a source sends one part a tick, whomever it is for; hosts as much to one another.
TEST_CASE("of a source that many fetch from each part leaves about once, and each host gets all") {
  constexpr std::size_t hosts = 5, parts = 300, links = 4;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::vector<part_schedule> plans;
    std::vector<std::vector<std::byte>> maps(hosts, std::vector<std::byte>(parts));
    for (std::size_t h = 0; h < hosts; ++h) {
      plans.emplace_back(parts, 1, seed * 100 + h);
      for (std::size_t other = 1; other < hosts; ++other) plans[h].add_fetching();
    }
    const auto host_of = [](std::size_t h, std::size_t source) {
      return source == 0 ? hosts : (h + source) % hosts;
    };
    struct way {
      std::size_t host;
      part_schedule::task task;
    };
    std::vector<std::deque<way>> queue(hosts + 1);  // what each sender has to send; the source is last
    std::vector<std::size_t> under_way(hosts);
    std::size_t ticks = 0, by_source = 0;
    bool gone = false;  // the source of every second round, once each part is somewhere
    const auto somewhere = [&](std::size_t p) {
      return std::ranges::any_of(
          maps, [p](const auto& m) { return m[p] == static_cast<std::byte>(part_holding::here); });
    };
    const auto all = [&] { return std::ranges::all_of(plans, [](const auto& p) { return p.finished(); }); };
    for (; !all() && ticks < 10'000; ++ticks) {
      for (std::size_t h = 0; h < hosts; ++h) {
        for (std::size_t other = 1; other < hosts; ++other) plans[h].holds(other, maps[host_of(h, other)]);
        while (under_way[h] < links) {
          const auto t = plans[h].take();
          if (!t) break;
          ++under_way[h];
          maps[h][t->part] = static_cast<std::byte>(part_holding::comes);
          queue[host_of(h, t->source)].push_back({h, *t});
        }
      }
      if (seed % 2 == 0 && !gone && std::ranges::all_of(std::views::iota(std::size_t{0}, parts), somewhere)) {
        gone = true;
        for (const auto& [h, t] : std::exchange(queue[hosts], {})) {
          plans[h].failed(t, "no answer");
          --under_way[h];
        }
        for (auto& plan : plans) plan.drop(0, "no answer");
      }
      for (std::size_t sender = 0; sender <= hosts; ++sender) {
        if (queue[sender].empty()) continue;
        const auto [h, t] = queue[sender].front();
        queue[sender].pop_front();
        by_source += sender == hosts;
        REQUIRE((sender == hosts || maps[sender][t.part] == static_cast<std::byte>(part_holding::here)));
        maps[h][t.part] = static_cast<std::byte>(part_holding::here);
        plans[h].done(t);
        --under_way[h];
      }
    }
    REQUIRE(all());
    CHECK(ticks < parts * 5 / 4);  // alone, the source would take 1,500
    CHECK(by_source < parts * 5 / 4);
    CHECK(gone == (seed % 2 == 0));
  }
}

TEST_CASE("hosts that fetch at once have parts of one another") {
  const test::temp_dir folder;
  write_noise(folder / "M.gguf", 96 * part + 9, 1);
  const auto whole = text_of(folder / "M.gguf");
  const auto source = offer(folder / "M.gguf");
  std::atomic<bool> ending{false};
  std::thread telling{[&] {
    while (!ending) {
      source->heard(clock_type::now());
      std::this_thread::yield();
    }
  }};
  std::vector<result<fetch_report>> done(3, fail(ec::cancelled));
  std::vector<std::thread> fetches;
  for (std::size_t i = 0; i < done.size(); ++i)
    fetches.emplace_back([&, i] {
      done[i] = fetch({at(*source)}, folder / ("here" + std::to_string(i)), {}, std::chrono::seconds(5));
    });
  for (auto& one : fetches) one.join();
  ending = true;
  telling.join();
  std::uint64_t from_others = 0;
  for (std::size_t i = 0; i < done.size(); ++i) {
    REQUIRE_MESSAGE(done[i], to_string(done[i].error()));
    CHECK(text_of(folder / ("here" + std::to_string(i))) == whole);
    CHECK(done[i]->came_from.at(0) + done[i]->from_fetches == 97);
    from_others += done[i]->from_fetches;
  }
  CHECK(from_others > 0);
}

TEST_CASE("of a file no more comes than is wanted, and a later fetch of all goes on from there") {
  const test::temp_dir folder;
  const auto source = folder / "source", to = folder / "to";
  write_noise(source + "/a", 5 * part + 77, 1);
  write_noise(source + "/b", 3 * part, 2);
  std::ofstream(source + "/empty").flush();
  const auto from = offer(source);
  const auto a = text_of(source + "/a"), b = text_of(source + "/b");
  const std::string bytes(1000, '\0');
  int asked = 0;
  file_fetch_options options{engine().secret,
                             {at(*from)},
                             to,
                             "127.0.0.1",
                             4,
                             std::chrono::seconds(5),
                             std::chrono::milliseconds(50)};
  options.wanted = [&](const file_manifest& manifest) -> wish_fn {
    CHECK(manifest.files().size() == 3);
    return [&](const auto& drafts, const auto& has) -> result<file_wish> {
      CHECK(drafts.size() == 3);
      CHECK(drafts[2].empty());
      if (++asked == 1) {
        CHECK_FALSE(has(file_range{0, 3 * part - 1, 2}));
        return file_wish{{{0, 3 * part - 1, 2}}, {}};
      }
      // What it asked for first tells what else it wants.
      CHECK(std::memcmp(drafts[0].data() + 2 * part, a.data() + 2 * part, 2 * part) == 0);
      CHECK(has(file_range{0, 2 * part, 2 * part}));
      CHECK_FALSE(has(file_range{0, 2 * part, 2 * part + 1}));
      return file_wish{{{0, 3 * part - 1, 2}, {1, 0, 1}}, {{0, 4 * part - 10, 20}, {1, 3 * part - 5, 5}}};
    };
  };
  const auto done = fetch_files(options, {});
  REQUIRE_MESSAGE(done, (done ? "" : done.error().detail));
  CHECK(asked == 3);
  CHECK(done->bytes.total == 3 * part);
  CHECK(done->bytes.fetched == 3 * part);
  CHECK_FALSE(fs::exists(to));
  CHECK_FALSE(fs::exists(to + ".part"));
  const auto got_a = text_of(file_slice::data_of(to) + "/a"), got_b = text_of(file_slice::data_of(to) + "/b");
  std::string want_a(a.size(), '\0'), want_b(b.size(), '\0');
  want_a.replace(2 * part, 2 * part, a, 2 * part, 2 * part).replace(4 * part, 10, a, 4 * part, 10);
  want_b.replace(0, part, b, 0, part).replace(3 * part - 5, 5, b, 3 * part - 5, 5);
  CHECK(got_a == want_a);
  CHECK(got_b == want_b);
  const auto slice = file_slice::read(to);
  REQUIRE(slice);
  CHECK(slice->bytes_here() == 3 * part);
  CHECK(slice->has({0, 2 * part, 2 * part}));
  CHECK_FALSE(slice->has({0, 4 * part, 1}));

  const auto rest = fetch({at(*from)}, to);
  REQUIRE_MESSAGE(rest, (rest ? "" : rest.error().detail));
  CHECK(rest->bytes.found == 3 * part);
  CHECK(text_of(to + "/a") == a);
  CHECK(text_of(to + "/b") == b);
  CHECK_FALSE(fs::exists(file_slice::data_of(to)));
  CHECK_FALSE(fs::exists(file_slice::note_of(to)));
}

TEST_CASE("parts that are wanted later come once each, too") {
  std::mt19937 random{13};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const std::size_t parts = 1 + random() % 200;
    part_schedule plan{parts, 1 + random() % 3, random(), false};
    CHECK(plan.finished());
    CHECK_FALSE(plan.take());
    std::set<std::size_t> wanted, came;
    for (int batch = 0; batch < 5; ++batch) {
      for (int i = 0; i < 20; ++i)
        if (const auto p = random() % parts; wanted.insert(p).second) plan.want(p);
      while (const auto task = plan.take()) {
        if (random() % 5 == 0) {
          plan.failed(*task, "no luck");
          if (plan.hopeless()) break;
          continue;
        }
        plan.done(*task);
        CHECK(came.insert(task->part).second);
      }
      if (plan.hopeless()) break;
      CHECK(plan.finished());
      CHECK(came == wanted);
    }
  }
}

TEST_CASE("a slice knows each byte that is there, and a note with any bytes changed is an error or a slice") {
  std::mt19937 random{3};
  const test::temp_dir folder;
  const auto path = folder / "m";
  const std::array<std::uint64_t, 2> sizes{300, 170};
  file_slice slice;
  std::array<std::vector<bool>, 2> want{std::vector<bool>(300), std::vector<bool>(170)};
  for (std::size_t f = 0; f < 2; ++f) {
    slice.add_file(std::to_string(f), sizes[f]);
    write_noise(file_slice::data_of(path) + "/" + std::to_string(f), sizes[f], 1);
  }
  const auto any_range = [&] {
    const auto f = random() % 2;
    const std::uint64_t offset = random() % sizes[f];
    return file_range{f, offset, random() % std::min<std::uint64_t>(30, sizes[f] - offset + 1)};
  };
  for (int i = 0; i < 40; ++i) {
    const auto r = any_range();
    slice.add(r);
    std::fill_n(want[r.file].begin() + static_cast<std::ptrdiff_t>(r.offset), r.bytes, true);
  }
  REQUIRE(slice.write(path));
  const auto again = file_slice::read(path);
  REQUIRE(again);
  CHECK(again->files() == slice.files());
  for (int i = 0; i < 3000; ++i) {
    const auto r = any_range();
    const auto begin = want[r.file].begin() + static_cast<std::ptrdiff_t>(r.offset);
    CHECK(again->has(r) ==
          std::all_of(begin, begin + static_cast<std::ptrdiff_t>(r.bytes), [](bool b) { return b; }));
  }
  const auto there =
      static_cast<std::uint64_t>(std::ranges::count(want[0], true) + std::ranges::count(want[1], true));
  CHECK(again->bytes_here() == there);

  const auto note = text_of(file_slice::note_of(path));
  for (int i = 0; i < 2000; ++i) {
    auto changed = note;
    for (int k = 0; k <= i % 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    if (i % 5 == 0) changed.resize(random() % changed.size());
    std::ofstream(file_slice::note_of(path), std::ios::binary) << changed;
    if (const auto read = file_slice::read(path)) CHECK(read->bytes_here() <= 470);
    else CHECK((read.error() == ec::corrupt || read.error() == ec::not_found));
  }
}
