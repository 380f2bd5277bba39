/// The products the quantizer takes from BLAS, on row-major matrices. The library's own
/// threads stay off: work is split over our pool into pieces whose shapes depend on the problem
/// alone, so results do not depend on the number of threads. All functions may be called by several
/// threads at a time; with a library built for one thread (openblas-serial) they take turns. (They
/// may differ between CPU types: the library picks its kernels by CPU.)
#pragma once

#include <cstdint>
#include <mutex>
#include <type_traits>

#include <cblas.h>

namespace ts::blas {

/// Call once before parallel work; cheap.
inline void use_one_thread() {
  static const bool done = (openblas_set_num_threads(1), true);
  (void)done;
}

/// Whether products may run at the same time. A library built for one thread picks its scratch
/// memory without a lock: two products at once can get the same, and then both are wrong, without
/// any sign of it. The build with OpenMP promises safety only to the threads OpenMP started.
inline bool products_may_overlap() {
  constexpr int kPthreads = 1;
  static const bool may = openblas_get_parallel() == kPthreads;
  return may;
}

/// Held during each product: lets one run at a time where the library needs that.
class ProductGuard {
 public:
  ProductGuard() {
    if (!products_may_overlap()) lock_ = std::unique_lock(mutex_);
  }

 private:
  static inline std::mutex mutex_;
  std::unique_lock<std::mutex> lock_;
};

inline blasint narrow(int64_t n) noexcept {
  return static_cast<blasint>(n);
}

inline void multiply(CBLAS_TRANSPOSE a_form, CBLAS_TRANSPOSE b_form, int64_t m, int64_t n,
                     int64_t k, float alpha, const float* a, int64_t lda, const float* b,
                     int64_t ldb, float beta, float* c, int64_t ldc) noexcept {
  const ProductGuard guard;
  cblas_sgemm(CblasRowMajor, a_form, b_form, narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda),
              b, narrow(ldb), beta, c, narrow(ldc));
}
inline void multiply(CBLAS_TRANSPOSE a_form, CBLAS_TRANSPOSE b_form, int64_t m, int64_t n,
                     int64_t k, double alpha, const double* a, int64_t lda, const double* b,
                     int64_t ldb, double beta, double* c, int64_t ldc) noexcept {
  const ProductGuard guard;
  cblas_dgemm(CblasRowMajor, a_form, b_form, narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda),
              b, narrow(ldb), beta, c, narrow(ldc));
}

/// c [m, n] = alpha a [m, k] b [k, n] + beta c; T is float or double
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, std::type_identity_t<T> alpha, const T* a, int64_t lda,
          const T* b, int64_t ldb, std::type_identity_t<T> beta, T* c, int64_t ldc) noexcept {
  multiply(CblasNoTrans, CblasNoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
/// c [m, n] = alpha a [k, m]' b [k, n] + beta c
template <class T>
void gemm_at(int64_t m, int64_t n, int64_t k, std::type_identity_t<T> alpha, const T* a,
             int64_t lda, const T* b, int64_t ldb, std::type_identity_t<T> beta, T* c,
             int64_t ldc) noexcept {
  multiply(CblasTrans, CblasNoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
/// c [m, n] = alpha a [m, k] b [n, k]' + beta c
template <class T>
void gemm_bt(int64_t m, int64_t n, int64_t k, std::type_identity_t<T> alpha, const T* a,
             int64_t lda, const T* b, int64_t ldb, std::type_identity_t<T> beta, T* c,
             int64_t ldc) noexcept {
  multiply(CblasNoTrans, CblasTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// b [m, n] = b L'^-1 (transposed) or b L^-1, L [n, n] lower triangular
inline void solve_right(int64_t m, int64_t n, const double* lower, int64_t ldl, bool transposed,
                        double* b, int64_t ldb) noexcept {
  const ProductGuard guard;
  cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, transposed ? CblasTrans : CblasNoTrans,
              CblasNonUnit, narrow(m), narrow(n), 1.0, lower, narrow(ldl), b, narrow(ldb));
}

}  // namespace ts::blas
