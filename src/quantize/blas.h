/// The products the quantizer takes from BLAS, on row-major matrices. The library's own
/// threads stay off: work is split over our pool into pieces whose shapes depend on the problem
/// alone, so results do not depend on the number of threads. (They may differ between CPU types:
/// the library picks its kernels by CPU.)
#pragma once

#include <cstdint>

#include <cblas.h>

namespace ts::blas {

/// Call once before parallel work; cheap.
inline void use_one_thread() {
  static const bool done = (openblas_set_num_threads(1), true);
  (void)done;
}

inline blasint narrow(int64_t n) noexcept {
  return static_cast<blasint>(n);
}

/// c [m, n] = alpha a [m, k] b [k, n] + beta c
inline void gemm(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                 const float* b, int64_t ldb, float beta, float* c, int64_t ldc) noexcept {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, narrow(m), narrow(n), narrow(k), alpha, a,
              narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}
inline void gemm(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
                 const double* b, int64_t ldb, double beta, double* c, int64_t ldc) noexcept {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, narrow(m), narrow(n), narrow(k), alpha, a,
              narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

/// c [m, n] = alpha a [k, m]' b [k, n] + beta c
inline void gemm_at(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                    const float* b, int64_t ldb, float beta, float* c, int64_t ldc) noexcept {
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, narrow(m), narrow(n), narrow(k), alpha, a,
              narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

/// c [m, n] = alpha a [m, k] b [n, k]' + beta c
inline void gemm_bt(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                    const float* b, int64_t ldb, float beta, float* c, int64_t ldc) noexcept {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, narrow(m), narrow(n), narrow(k), alpha, a,
              narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}
inline void gemm_bt(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
                    const double* b, int64_t ldb, double beta, double* c, int64_t ldc) noexcept {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, narrow(m), narrow(n), narrow(k), alpha, a,
              narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

/// b [m, n] = b L'^-1 (transposed) or b L^-1, L [n, n] lower triangular
inline void solve_right(int64_t m, int64_t n, const double* lower, int64_t ldl, bool transposed,
                        double* b, int64_t ldb) noexcept {
  cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, transposed ? CblasTrans : CblasNoTrans,
              CblasNonUnit, narrow(m), narrow(n), 1.0, lower, narrow(ldl), b, narrow(ldb));
}

}  // namespace ts::blas
