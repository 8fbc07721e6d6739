// The smallest test frame that does: checks that count, and tests that are functions with sentences as names.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace tpu::test {

inline int failures = 0;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::printf("  %s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      ++::tpu::test::failures;                                             \
    }                                                                      \
  } while (false)

inline void fail(const std::string& what) {
  std::printf("  %s\n", what.c_str());
  ++failures;
}

struct Test {
  const char* name;
  void (*run)();
};

// Runs all, or those whose names contain one of the arguments; returns main's result.
inline int run_all(const std::vector<Test>& tests, int argc, char** argv) {
  for (const Test& test : tests) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::string(test.name).find(argv[i]) != std::string::npos;
    if (!wanted) continue;
    const int before = failures;
    try {
      test.run();
    } catch (const std::exception& e) {
      fail(std::string("it threw ") + e.what());
    }
    std::printf("%s %s\n", failures == before ? "ok    " : "FAILED", test.name);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace tpu::test
