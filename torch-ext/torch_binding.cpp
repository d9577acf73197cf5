#include "torch_binding.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty_permuted.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "grayscale/geometry.h"
#include "grayscale/grayscale_cpu.h"
#include "registration.h"

#if defined(CUDA_KERNEL)
#include <c10/core/DeviceGuard.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "grayscale/grayscale_cuda.h"
#endif

namespace {

using grayscale::Geometry;

constexpr int64_t kChannelDim = -3;

// The fake implementation in grayscale/__init__.py has to give the same sizes and strides.
at::Tensor new_grayscale(const at::Tensor& image) {
  TORCH_CHECK_TYPE(image.scalar_type() == at::kByte || image.scalar_type() == at::kFloat,
                   "rgb_to_grayscale: expected an image of uint8 or float32, got ", image.scalar_type());
  TORCH_CHECK_VALUE(image.dim() >= 3 && image.size(kChannelDim) == 3,
                    "rgb_to_grayscale: expected an image of shape [..., 3, H, W], got ", image.sizes());
  at::DimVector sizes(image.sizes());
  sizes.end()[kChannelDim] = 1;
  // Dense, with the dimensions in the image's own order, so that both are walked in the order of their
  // memory: contiguous gives contiguous, and channels-last gives channels-last. Expanded dimensions, of
  // stride 0, go outermost.
  at::DimVector order(image.dim());
  std::iota(order.begin(), order.end(), 0);
  const auto distance = [&](int64_t dim) {
    const int64_t stride = image.stride(dim);
    return stride == 0 ? std::numeric_limits<int64_t>::max() : stride;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return distance(a) > distance(b); });
  return at::empty_permuted(sizes, order, image.options());
}

// TensorIterator finds the loop nest that both tensors can be walked in with the fewest dimensions. The image
// is only ever looked at through its strides: whatever they are, it is not copied.
Geometry find_geometry(const at::Tensor& image, const at::Tensor& gray) {
  const at::Tensor red = image.narrow(kChannelDim, 0, 1);
  const at::TensorIterator planes =
      at::TensorIteratorConfig().add_output(gray).add_const_input(red).resize_outputs(false).build();
  TORCH_CHECK_VALUE(planes.ndim() <= grayscale::kMaxDims, "rgb_to_grayscale: the strides of the image take ",
                    planes.ndim(), " nested loops, and at most ", grayscale::kMaxDims,
                    " are supported: make it contiguous first");
  Geometry geometry;
  geometry.dims = planes.ndim();
  geometry.channel_stride = image.stride(kChannelDim);
  for (int dim = 0; dim < geometry.dims; ++dim) {
    geometry.sizes[dim] = planes.shape()[dim];
    // TensorIterator counts bytes.
    geometry.gray_strides[dim] = planes.strides(0)[dim] / gray.element_size();
    geometry.image_strides[dim] = planes.strides(1)[dim] / image.element_size();
  }
  return geometry;
}

#if defined(CUDA_KERNEL)
// By the C shim, since the C++ function needs headers that only CUDA builds of torch have.
cudaStream_t current_stream(const at::Device& device) {
  void* stream = nullptr;
  TORCH_CHECK(aoti_torch_get_current_cuda_stream(device.index(), &stream) == AOTI_TORCH_SUCCESS,
              "rgb_to_grayscale: cannot get the current stream of ", device);
  return static_cast<cudaStream_t>(stream);
}
#endif

}  // namespace

at::Tensor rgb_to_grayscale_cpu(const at::Tensor& image) {
  const at::Tensor gray = new_grayscale(image);
  if (gray.numel() == 0) {
    return gray;
  }
  const Geometry geometry = find_geometry(image, gray);
  if (image.scalar_type() == at::kByte) {
    grayscale::convert_on_cpu(image.const_data_ptr<uint8_t>(), gray.mutable_data_ptr<uint8_t>(), geometry);
  } else {
    grayscale::convert_on_cpu(image.const_data_ptr<float>(), gray.mutable_data_ptr<float>(), geometry);
  }
  return gray;
}

#if defined(CUDA_KERNEL)
at::Tensor rgb_to_grayscale_cuda(const at::Tensor& image) {
  // Kernels start on the current device, which need not be the image's.
  const c10::DeviceGuard guard(image.device());
  const at::Tensor gray = new_grayscale(image);
  if (gray.numel() == 0) {
    return gray;
  }
  const Geometry geometry = find_geometry(image, gray);
  const cudaStream_t stream = current_stream(image.device());
  const cudaError_t error =
      image.scalar_type() == at::kByte
          ? grayscale::convert_on_cuda(image.const_data_ptr<uint8_t>(), gray.mutable_data_ptr<uint8_t>(),
                                       geometry, stream)
          : grayscale::convert_on_cuda(image.const_data_ptr<float>(), gray.mutable_data_ptr<float>(),
                                       geometry, stream);
  TORCH_CHECK(error == cudaSuccess,
              "rgb_to_grayscale: CUDA cannot start the kernel: ", cudaGetErrorString(error));
  return gray;
}
#endif

at::Tensor rgb_to_grayscale_unsupported(const at::Tensor& image) {
#if defined(CUDA_KERNEL)
  constexpr const char* kDevices = "CPU and CUDA devices";
#else
  constexpr const char* kDevices = "the CPU";
#endif
  TORCH_CHECK_NOT_IMPLEMENTED(false, "rgb_to_grayscale: this build converts strided tensors on ", kDevices,
                              ", and the image is a ", image.layout(), " tensor on ", image.device());
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rgb_to_grayscale(Tensor image) -> Tensor");
  // A CUDA build serves both devices: its kernel in build.toml lists the source of the CPU as well.
#if defined(CPU_KERNEL) || defined(CUDA_KERNEL)
  ops.impl("rgb_to_grayscale", at::kCPU, &rgb_to_grayscale_cpu);
#endif
#if defined(CUDA_KERNEL)
  ops.impl("rgb_to_grayscale", at::kCUDA, &rgb_to_grayscale_cuda);
#endif
  // What has no kernel above lands here, and gets an error that says so in terms of this function.
  ops.impl("rgb_to_grayscale",
           torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &rgb_to_grayscale_unsupported));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
