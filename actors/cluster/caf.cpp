// Carries the precompiled header that every source with actors in it reuses (CMakeLists.txt).
