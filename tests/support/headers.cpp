// Carries the precompiled header that test sources reuse (tests/CMakeLists.txt).
