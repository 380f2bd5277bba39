#include "quantize/blas.h"

#include <cstdlib>
#include <mutex>
#include <optional>

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts::blas {
namespace {

constexpr const char* kFileName = "libopenblas.so.0";

/// The functions in use; the library stays loaded until the program ends.
struct Library {
  decltype(&cblas_sgemm) sgemm;
  decltype(&cblas_dgemm) dgemm;
  decltype(&cblas_dtrsm) dtrsm;
  bool serial;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw Unsupported(
        fmt::format("{} has no function {}: install another build of OpenBLAS", kFileName, name));
}

Library load() {
  // Read by the library when it is loaded, before anything could be said by a call.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* file = dlopen(kFileName, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr)
    throw Unsupported(
        fmt::format("the quantizer needs OpenBLAS: {}\n"
                    "Install it (Debian: libopenblas0-pthread).",
                    dlerror()));
  constexpr int kPthreads = 1;
  Library library{};
  decltype(&openblas_set_num_threads) set_num_threads = nullptr;
  decltype(&openblas_get_parallel) get_parallel = nullptr;
  find(file, "cblas_sgemm", library.sgemm);
  find(file, "cblas_dgemm", library.dgemm);
  find(file, "cblas_dtrsm", library.dtrsm);
  find(file, "openblas_set_num_threads", set_num_threads);
  find(file, "openblas_get_parallel", get_parallel);
  set_num_threads(1);
  library.serial = get_parallel() != kPthreads;
  return library;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

/// Held during each product: lets one run at a time where the library needs that.
class ProductGuard {
 public:
  explicit ProductGuard(const Library& library) {
    static std::mutex mutex;
    if (library.serial) lock_.emplace(mutex);
  }

 private:
  std::optional<std::lock_guard<std::mutex>> lock_;
};

blasint narrow(int64_t n) noexcept {
  return static_cast<blasint>(n);
}

CBLAS_TRANSPOSE form(bool transposed) noexcept {
  return transposed ? CblasTrans : CblasNoTrans;
}

}  // namespace

void use_one_thread() {
  library();
}

bool products_may_overlap() {
  return !library().serial;
}

void multiply(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, float alpha,
              const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
              int64_t ldc) {
  const Library& blas = library();
  const ProductGuard guard(blas);
  blas.sgemm(CblasRowMajor, form(a_transposed), form(b_transposed), narrow(m), narrow(n), narrow(k),
             alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

void multiply(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, double alpha,
              const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
              int64_t ldc) {
  const Library& blas = library();
  const ProductGuard guard(blas);
  blas.dgemm(CblasRowMajor, form(a_transposed), form(b_transposed), narrow(m), narrow(n), narrow(k),
             alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

void solve_right(int64_t m, int64_t n, const double* lower, int64_t ldl, bool transposed, double* b,
                 int64_t ldb) {
  const Library& blas = library();
  const ProductGuard guard(blas);
  blas.dtrsm(CblasRowMajor, CblasRight, CblasLower, form(transposed), CblasNonUnit, narrow(m),
             narrow(n), 1.0, lower, narrow(ldl), b, narrow(ldb));
}

}  // namespace ts::blas
