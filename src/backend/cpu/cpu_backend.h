/// The CPU backend: weights stay mapped or are repacked, products run on the kernels chosen at
/// start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ts {

struct CpuBackendOptions {
  int n_threads = 0;       ///< 0 = default_threads()
  std::vector<int> cores;  ///< pin threads to these CPUs; empty = do not pin
  std::string isa;         ///< see select_kernels(); empty = TENSORSHARP_ISA or auto
  bool exact = false;      ///< f32 activations against decoded weights
  /// Ask for huge pages for the backend's own large buffers (caches, activations, tiles).
  bool huge_pages = true;
  /// Copy weights into the layout of the chosen kernels where that makes them faster.
  bool repack = true;
  /// Where the choices of kernels for codec and shape, measured when first met, are kept; empty =
  /// nothing is measured and the usual choice taken.
  std::string kernel_choices;
};

/// Whether a backend with these options repacks matrices of that type. Errors: those of
/// select_kernels().
bool repacks(const CpuBackendOptions& options, TypeId type);

/// Bytes of a matrix of that type and of shape [n_cols, n_rows] in the layout it is repacked into;
/// 0 when it is not repacked. Errors: those of select_kernels().
uint64_t repacked_bytes(const CpuBackendOptions& options, TypeId type, const Shape& shape);

/// Errors: InvalidArgument (threads, cores, unknown isa), Unsupported (isa not available here).
std::shared_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

/// What check_kernels() did.
struct KernelCheck {
  int n_shapes = 0;      ///< distinct (codec, shape) pairs compared
  int n_transforms = 0;  ///< distinct (width, block) pairs of transforms compared
  double seconds = 0;
};
/// Test hook: may change the chosen kernels' results before the comparison.
using KernelFault = std::function<void(std::span<float> results)>;

/// Compares the backend's kernels with the reference kernels, bit for bit, on a few rows of each
/// distinct (codec, shape) among `weights`, for one activation row and for several, and the
/// transforms of `rotations` in both directions. A difference is a BackendError naming what was
/// computed and the instruction set. `backend` and the weights must come from make_cpu_backend().
KernelCheck check_kernels(const Backend& backend, std::span<const Weight* const> weights,
                          std::span<const Rotation* const> rotations = {},
                          const KernelFault& fault = {});

}  // namespace ts
