/// The products the quantizer takes from OpenBLAS, on row-major matrices. The library is loaded at
/// the first use and not with the program: its build for several threads would start them, and take
/// memory for them, in every command. Its own threads stay off: work is split over our pool into
/// pieces whose shapes depend on the problem alone, so results do not depend on the number of
/// threads. All functions may be called by several threads at a time; with a library built for one
/// thread (openblas-serial) they take turns. (They may differ between CPU types: the library picks
/// its kernels by CPU.) They throw Unsupported when the library is missing.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ts::blas {

/// Loads the library. Call once before parallel work; cheap.
void use_one_thread();

/// Whether products may run at the same time. A library built for one thread picks its scratch
/// memory without a lock: two products at once can get the same, and then both are wrong, without
/// any sign of it. The build with OpenMP promises safety only to the threads OpenMP started.
bool products_may_overlap();

/// c [m, n] = alpha A B + beta c, where A is a [m, k] or, `a_transposed`, a' of a [k, m], and B
/// likewise.
void multiply(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, float alpha,
              const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
              int64_t ldc);
void multiply(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, double alpha,
              const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
              int64_t ldc);

/// c [m, n] = alpha a [m, k] b [k, n] + beta c; T is float or double
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, std::type_identity_t<T> alpha, const T* a, int64_t lda,
          const T* b, int64_t ldb, std::type_identity_t<T> beta, T* c, int64_t ldc) {
  multiply(false, false, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
/// c [m, n] = alpha a [k, m]' b [k, n] + beta c
template <class T>
void gemm_at(int64_t m, int64_t n, int64_t k, std::type_identity_t<T> alpha, const T* a,
             int64_t lda, const T* b, int64_t ldb, std::type_identity_t<T> beta, T* c,
             int64_t ldc) {
  multiply(true, false, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
/// c [m, n] = alpha a [m, k] b [n, k]' + beta c
template <class T>
void gemm_bt(int64_t m, int64_t n, int64_t k, std::type_identity_t<T> alpha, const T* a,
             int64_t lda, const T* b, int64_t ldb, std::type_identity_t<T> beta, T* c,
             int64_t ldc) {
  multiply(false, true, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// b [m, n] = b L'^-1 (transposed) or b L^-1, L [n, n] lower triangular
void solve_right(int64_t m, int64_t n, const double* lower, int64_t ldl, bool transposed, double* b,
                 int64_t ldb);

}  // namespace ts::blas
