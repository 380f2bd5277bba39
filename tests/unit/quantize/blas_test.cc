// Products that several threads compute at the same time.
#include "quantize/blas.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ts {
namespace {

TEST(Blas, ThreadsDoNotDisturbEachOther) {
  blas::use_one_thread();
  // Small products: most of their time goes to entering and leaving the library.
  constexpr int64_t n = 48;
  constexpr int kRounds = 10000;
  std::mt19937_64 engine(1);
  std::normal_distribution<double> normal;
  std::vector<double> a(n * n), b(n * n);
  for (double& v : a)
    v = normal(engine);
  for (double& v : b)
    v = normal(engine);
  for (size_t i = 0; i < n; ++i)
    a[i * n + i] = 40;

  std::vector<double> product(n * n), solution = b;
  blas::gemm_bt(n, n, n, 1.0, a.data(), n, b.data(), n, 0.0, product.data(), n);
  blas::solve_right(n, n, a.data(), n, true, solution.data(), n);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<double> c(n * n);
      for (int round = 0; round < kRounds; ++round) {
        blas::gemm_bt(n, n, n, 1.0, a.data(), n, b.data(), n, 0.0, c.data(), n);
        if (c != product) ++wrong;
        c = b;
        blas::solve_right(n, n, a.data(), n, true, c.data(), n);
        if (c != solution) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0) << "of " << 8 * kRounds;
}

}  // namespace
}  // namespace ts
