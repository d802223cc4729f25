#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/hash.hpp"
#include "storage/objects/directory/disk_book.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;

TEST_CASE("notes outlive the directory, and say nothing of keys that nobody touched") {
  const test::temp_dir folder;
  std::uint64_t store = 0;
  {
    const auto notes = *disk_notes::open(folder / "notes", 7);
    store = notes->store();
    CHECK(notes->known().empty());
    REQUIRE(notes->adopt(1));
    REQUIRE(notes->adopt(2));
    notes->note(100);  // both are here: they are told themselves
    CHECK_FALSE(notes->noted(1, 100));
    notes->leave(1);
    notes->note(101);
    CHECK_FALSE(disk_notes::open(folder / "notes", 8));  // another directory must not write there
  }
  const auto notes = *disk_notes::open(folder / "notes", 9);
  CHECK(notes->store() == store);
  CHECK(notes->known() == std::vector<std::uint64_t>{1, 2});
  CHECK(notes->noted(1, 101));
  CHECK_FALSE(notes->noted(2, 101));
  notes->note(102);  // nobody has come yet
  CHECK(notes->noted(1, 102));
  CHECK(notes->noted(2, 102));
  CHECK_FALSE(notes->noted(2, 103));
  notes->is_back(2);
  notes->clear(2);
  CHECK_FALSE(notes->noted(2, 102));
  CHECK(notes->noted(1, 101));
}

TEST_CASE("a key is never overlooked, and seldom taken for another") {
  disk_notes notes{1};
  REQUIRE(notes.adopt(5));
  notes.leave(5);
  const auto key = [](std::uint64_t i) { return hash_text128("key " + std::to_string(i)).low; };
  for (std::uint64_t i = 0; i < 100'000; ++i) notes.note(key(i));
  for (std::uint64_t i = 0; i < 100'000; ++i) REQUIRE(notes.noted(5, key(i)));
  int wrong = 0;
  for (std::uint64_t i = 100'000; i < 200'000; ++i) wrong += notes.noted(5, key(i));
  CHECK(wrong < 50);
  notes.note_all();
  CHECK(notes.noted(5, key(1'000'000)));
}

TEST_CASE("an SSD whose notes are damaged or gone is not known") {
  const test::temp_dir folder;
  for (const auto disk : {1u, 2u, 3u}) {
    const auto notes = *disk_notes::open(folder / "notes", 7);
    REQUIRE(notes->adopt(disk));
  }
  const auto file = [&](int n) { return folder / ("notes/000000000000000" + std::to_string(n) + ".away"); };
  std::filesystem::resize_file(file(1), 100);
  {
    std::fstream out{file(2), std::ios::in | std::ios::out | std::ios::binary};
    out.put('x');
  }
  const auto notes = *disk_notes::open(folder / "notes", 7);
  CHECK(notes->known() == std::vector<std::uint64_t>{3});
  CHECK(notes->noted(1, 5));  // whoever asks all the same
}

// Of a directory on another host than the last, which has no notes of SSDs that the last one knew.
static disk_book book_elsewhere() { return disk_book{std::make_unique<disk_notes>(2)}; }

TEST_CASE("an SSD goes on in a directory that has no notes of it, where the memory beside it does") {
  auto book = book_elsewhere();
  CHECK_FALSE(book.mount(10, 5, 1, false));
  CHECK(book.mount(11, 6, 1, true));
  CHECK_FALSE(book.is_stale(11, "kept"));
  book.changed("removed");  // before it was announced
  CHECK(book.is_stale(11, "removed"));
  book.announced(11);
  book.lose(11);
  CHECK(book.mount(12, 6, 2, false));
  CHECK_FALSE(book.is_stale(12, "kept"));
}

TEST_CASE("an SSD does not come again by notes that began with a segment of an earlier directory") {
  auto book = book_elsewhere();
  CHECK(book.mount(10, 5, 1, true));
  book.distrust(10);
  CHECK_FALSE(book.is_here(5));
  CHECK_FALSE(book.mount(11, 5, 2, false));
}
