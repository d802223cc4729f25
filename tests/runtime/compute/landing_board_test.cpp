// Who waits for landings: told once, when as many have come as there will be, or when one was not right.

#include "runtime/compute/landing_board.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace mooncaf;

TEST_CASE("the board calls once, whichever of count and landings comes last") {
  for (int expected_after = 0; expected_after <= 3; ++expected_after) {
    CAPTURE(expected_after);
    landing_board board;
    std::vector<bool> calls;
    board.open(5, [&](bool complete) { calls.push_back(complete); });
    for (int i = 0; i <= 3; ++i) {
      if (i == expected_after) board.expect(5, 3);
      if (i < 3) board.landed(5, true);
    }
    CHECK(calls == std::vector<bool>{true});
    board.landed(5, true);
    board.landed(5, false);
    board.expect(5, 0);
    CHECK(calls.size() == 1);
    CHECK(board.size() == 0);
  }
}

TEST_CASE("the board ignores what belongs to nobody, and forgets who is closed") {
  landing_board board;
  std::vector<bool> calls;
  board.landed(1, true);
  board.expect(1, 0);
  board.open(1, [&](bool complete) { calls.push_back(complete); });
  board.landed(1, true);
  board.close(1);
  board.landed(1, false);
  board.expect(1, 1);
  CHECK(calls.empty());
  // A new life of the same owner starts from zero.
  board.open(1, [&](bool complete) { calls.push_back(complete); });
  board.expect(1, 1);
  CHECK(calls.empty());
  board.landed(1, true);
  CHECK(calls == std::vector<bool>{true});
}

TEST_CASE("who takes pieces on hears of each that is right, before it is complete, and of none after") {
  landing_board board;
  std::vector<kv_piece> pieces;
  std::size_t at_end = 0;
  board.open(
      1, [&](bool complete) { at_end = complete ? pieces.size() : 99; },
      [&](const kv_piece& p) { pieces.push_back(p); });
  const kv_piece first{0, 0, 9}, second{1, 0, 9}, all{0, 9, 12, 2};
  for (const auto& p : {first, second}) board.landed(1, true, p);
  board.expect(1, 3);
  board.landed(1, true, all);
  board.landed(1, true, first);
  CHECK(pieces == std::vector{first, second, all});
  CHECK(at_end == 3);
  // A corrupt piece is nobody's; a piece callback may close its owner.
  board.open(
      2, [](bool complete) { CHECK_FALSE(complete); }, [](const kv_piece&) { FAIL("it was corrupt"); });
  board.landed(2, false, first);
  board.open(
      3, [](bool) { FAIL("it was closed"); }, [&](const kv_piece&) { board.close(3); });
  board.expect(3, 1);
  board.landed(3, true, first);
  CHECK(board.size() == 0);
}

TEST_CASE("nothing to wait for is complete at once") {
  landing_board board;
  std::vector<bool> calls;
  board.open(1, [&](bool complete) { calls.push_back(complete); });
  board.expect(1, 0);
  CHECK(calls == std::vector<bool>{true});
}
