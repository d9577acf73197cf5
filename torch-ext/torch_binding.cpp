#include "torch_binding.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "grayscale/geometry.h"
#include "grayscale/grayscale_cpu.h"
#include "registration.h"

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "grayscale/grayscale_cuda.h"
#endif

// An operator, from the outside inwards: its `…_autograd` records how to differentiate, if anything asks for
// it; the function of its own name checks, allocates, and describes the tensors as a loop nest
// (`find_geometry`); csrc/ computes, and knows nothing of torch.

namespace {

using at::Tensor;
using grayscale::Geometry;
using grayscale::Type;

constexpr int64_t kChannelDim = -3;

Type type_of(const Tensor& image) {
  switch (image.scalar_type()) {
    case at::kByte:
      return Type::kUint8;
    case at::kHalf:
      return Type::kHalf;
    case at::kBFloat16:
      return Type::kBfloat16;
    case at::kFloat:
      return Type::kFloat;
    case at::kDouble:
      return Type::kDouble;
    default:
      TORCH_CHECK_TYPE(
          false, "rgb_to_grayscale: expected an image of uint8, float16, bfloat16, float32 or float64, got ",
          image.scalar_type());
  }
}

// The result's sizes. The fake implementations in grayscale/__init__.py check and give the same.
at::DimVector gray_sizes(const Tensor& image) {
  TORCH_CHECK_VALUE(image.dim() >= 3 && image.size(kChannelDim) == 3,
                    "rgb_to_grayscale: expected an image of shape [..., 3, H, W], got ", image.sizes());
  at::DimVector sizes(image.sizes());
  sizes.end()[kChannelDim] = 1;
  return sizes;
}

// The dimensions as they lie in memory, from the outermost to the innermost. Expanded ones, of stride 0, go
// outermost.
template <typename Strides>
at::DimVector memory_order(const Strides& strides) {
  at::DimVector order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  // By insertion, which is stable and allocates nothing: there are three to five of them.
  for (auto end = order.begin(); end != order.end(); ++end) {
    auto place = end;
    for (; place != order.begin(); --place) {
      const auto& outer = strides[place[-1]];
      const auto& inner = strides[*place];
      if (outer == 0 || (inner != 0 && outer >= inner)) {
        break;
      }
      std::swap(place[-1], *place);
    }
  }
  return order;
}

// Dense, with the dimensions in the given order.
Tensor new_tensor(at::IntArrayRef sizes, at::IntArrayRef order, const at::TensorOptions& options) {
  at::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= std::max<int64_t>(sizes[*dim], 1);
  }
  return at::empty_strided(sizes, strides, options);
}

// In the image's own order, so that both are walked in the order of their memory: contiguous gives
// contiguous, and channels-last gives channels-last.
Tensor new_gray(const Tensor& image) {
  type_of(image);
  return new_tensor(gray_sizes(image), memory_order(image.strides()), image.options());
}

Tensor new_image(const Tensor& gradient, at::IntArrayRef order) {
  TORCH_CHECK_TYPE(gradient.is_floating_point(),
                   "rgb_to_grayscale_backward: expected a gradient of floats, got ", gradient.scalar_type());
  type_of(gradient);
  TORCH_CHECK_VALUE(gradient.dim() >= 3 && gradient.size(kChannelDim) == 1,
                    "rgb_to_grayscale_backward: expected a gradient of shape [..., 1, H, W], got ",
                    gradient.sizes());
  at::DimVector dims(order);
  std::sort(dims.begin(), dims.end());
  for (int64_t dim = 0; dim < gradient.dim(); ++dim) {
    TORCH_CHECK_VALUE(static_cast<int64_t>(dims.size()) == gradient.dim() && dims[dim] == dim,
                      "rgb_to_grayscale_backward: expected an order of ", gradient.dim(), " dimensions, got ",
                      order);
  }
  at::DimVector sizes(gradient.sizes());
  sizes.end()[kChannelDim] = 3;
  return new_tensor(sizes, order, gradient.options());
}

// The fewest loops that both tensors can be walked in, ordered by the memory of the one that is `written`.
// The other is only ever looked at through its strides: whatever they are, it is not copied.
Geometry find_geometry(const Tensor& image, const Tensor& gray, const Tensor& written) {
  Geometry geometry;
  geometry.channel_stride = image.stride(kChannelDim);
  int dims = 0;
  const at::DimVector order = memory_order(written.strides());
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const int64_t size = gray.size(*dim);
    const int64_t image_stride = image.stride(*dim);
    const int64_t gray_stride = gray.stride(*dim);
    if (size == 1) {
      continue;
    }
    if (dims > 0) {
      Geometry::Dim& inner = geometry.dim[dims - 1];
      if (image_stride == inner.image_stride * inner.size && gray_stride == inner.gray_stride * inner.size) {
        inner.size *= size;
        continue;
      }
    }
    TORCH_CHECK_VALUE(dims < grayscale::kMaxDims,
                      "rgb_to_grayscale: the strides of the image take more than ", grayscale::kMaxDims,
                      " nested loops: make it contiguous first");
    geometry.dim[dims] = {size, image_stride, gray_stride};
    ++dims;
  }
  geometry.dims = std::max(dims, 1);
  return geometry;
}

// Bytes from the first to behind the last one of a tensor that is not empty.
int64_t extent(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return (last + 1) * tensor.element_size();
}

// Torch's own checks let pass what they cannot decide; these refuse it.
void check_overlap(const Tensor& image, const Tensor& out) {
  int64_t reach = 0;  // of the dimensions further in, in elements
  const at::DimVector order = memory_order(out.strides());
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    TORCH_CHECK(out.size(*dim) == 1 || out.stride(*dim) > reach,
                "rgb_to_grayscale: elements of out share memory with each other: clone it first");
    reach += (out.size(*dim) - 1) * out.stride(*dim);
  }
  const auto* image_begin = static_cast<const char*>(image.const_data_ptr());
  const auto* out_begin = static_cast<const char*>(out.const_data_ptr());
  TORCH_CHECK(image_begin + extent(image) <= out_begin || out_begin + extent(out) <= image_begin,
              "rgb_to_grayscale: out may share memory with the image, and has to lie apart from it");
}

void check_out(const Tensor& image, const Tensor& out) {
  type_of(image);
  const at::DimVector sizes = gray_sizes(image);
  TORCH_CHECK_TYPE(out.scalar_type() == image.scalar_type(), "rgb_to_grayscale: expected an out of ",
                   image.scalar_type(), " like the image, got ", out.scalar_type());
  TORCH_CHECK_VALUE(out.sizes() == at::IntArrayRef(sizes), "rgb_to_grayscale: expected an out of shape ",
                    at::IntArrayRef(sizes), ", got ", out.sizes());
  TORCH_CHECK_VALUE(out.device() == image.device(), "rgb_to_grayscale: expected an out on ", image.device(),
                    " like the image, got one on ", out.device());
  if (out.numel() != 0) {
    check_overlap(image, out);
  }
}

#if defined(CUDA_KERNEL)
// On the current device. The stream comes by the C shim, since the C++ function needs headers that only CUDA
// builds of torch have.
template <typename Start>
void start_on_cuda(Start start, const Tensor& source, const Tensor& target, const Geometry& geometry) {
  void* stream = nullptr;
  TORCH_CHECK(aoti_torch_get_current_cuda_stream(source.device().index(), &stream) == AOTI_TORCH_SUCCESS,
              "rgb_to_grayscale: cannot get the current stream of ", source.device());
  const cudaError_t error = start(type_of(source), source.const_data_ptr(), target.mutable_data_ptr(),
                                  geometry, static_cast<cudaStream_t>(stream));
  TORCH_CHECK(error == cudaSuccess,
              "rgb_to_grayscale: CUDA cannot start the kernel: ", cudaGetErrorString(error));
}
#endif

void convert(const Tensor& image, const Tensor& gray) {
  if (gray.numel() == 0) {
    return;
  }
  const Geometry geometry = find_geometry(image, gray, gray);
#if defined(CUDA_KERNEL)
  if (image.is_cuda()) {
    return start_on_cuda(grayscale::convert_on_cuda, image, gray, geometry);
  }
#endif
  grayscale::convert_on_cpu(type_of(image), image.const_data_ptr(), gray.mutable_data_ptr(), geometry);
}

void spread(const Tensor& gradient, const Tensor& image) {
  if (gradient.numel() == 0) {
    return;
  }
  const Geometry geometry = find_geometry(image, gradient, image);
#if defined(CUDA_KERNEL)
  if (gradient.is_cuda()) {
    return start_on_cuda(grayscale::spread_on_cuda, gradient, image, geometry);
  }
#endif
  grayscale::spread_on_cpu(type_of(gradient), gradient.const_data_ptr(), image.mutable_data_ptr(), geometry);
}

// One of the operators, by which the others reach it from outside: through autograd and torch.compile.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

#define GRAYSCALE_OPERATOR(name)                                                                             \
  ([] {                                                                                                      \
    static const auto found = find_operator<decltype(name)>(C10_STRINGIZE(TORCH_EXTENSION_NAME) "::" #name); \
    return found;                                                                                            \
  }())

using torch::autograd::variable_list;

// Both functions are linear: the gradient of each is the other.
struct RgbToGrayscaleBackward final : torch::autograd::Node {
  std::vector<int64_t> order;

  std::string name() const override { return "RgbToGrayscaleBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const Tensor& gradient = gradients[0];
    return {gradient.defined() ? GRAYSCALE_OPERATOR(rgb_to_grayscale_backward).call(gradient, order)
                               : Tensor()};
  }
};

struct RgbToGrayscaleBackwardBackward final : torch::autograd::Node {
  std::string name() const override { return "RgbToGrayscaleBackwardBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const Tensor& gradient = gradients[0];
    return {gradient.defined() ? GRAYSCALE_OPERATOR(rgb_to_grayscale).call(gradient) : Tensor()};
  }
};

// Torch counts its nodes by std::shared_ptr, and since 2.13 by a pointer of its own.
template <typename Node, typename Pointer = decltype(torch::autograd::Edge::function)>
Pointer new_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return Pointer(new Node, [](Node* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>();
  }
}

template <typename Pointer>
void record(const Pointer& node, const Tensor& input, const Tensor& result) {
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(result, node);
}

bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// Torch's functions to register for these are in Python, and take longer than most conversions do. The nodes
// and the tangents are what torch's own operators have, and work with torch.func as these do.
template <typename Operator, typename... Arguments>
Tensor below_autograd(c10::DispatchKeySet keys, const Operator& op, const Arguments&... arguments) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.redispatch(keys & c10::after_autograd_keyset, arguments...);
}

Tensor rgb_to_grayscale_autograd(c10::DispatchKeySet keys, const Tensor& image) {
  const auto op = GRAYSCALE_OPERATOR(rgb_to_grayscale);
  Tensor gray = below_autograd(keys, op, image);
  if (torch::autograd::compute_requires_grad(image)) {
    const auto node = new_node<RgbToGrayscaleBackward>();
    const at::DimVector order = memory_order(image.sym_strides());
    static_cast<RgbToGrayscaleBackward&>(*node).order.assign(order.begin(), order.end());
    record(node, image, gray);
  }
  if (has_tangent(image)) {
    gray._set_fw_grad(op.call(image._fw_grad(0)), /*level=*/0, /*is_inplace_op=*/false);
  }
  return gray;
}

Tensor rgb_to_grayscale_backward_autograd(c10::DispatchKeySet keys, const Tensor& gradient,
                                          at::IntArrayRef order) {
  const auto op = GRAYSCALE_OPERATOR(rgb_to_grayscale_backward);
  Tensor image = below_autograd(keys, op, gradient, order);
  if (torch::autograd::compute_requires_grad(gradient)) {
    record(new_node<RgbToGrayscaleBackwardBackward>(), gradient, image);
  }
  if (has_tangent(gradient)) {
    image._set_fw_grad(op.call(gradient._fw_grad(0), order), /*level=*/0, /*is_inplace_op=*/false);
  }
  return image;
}

void rgb_to_grayscale_out_autograd(c10::DispatchKeySet keys, const Tensor& image, const Tensor& out) {
  TORCH_CHECK(!torch::autograd::compute_requires_grad(image, out) && !has_tangent(image) && !has_tangent(out),
              "rgb_to_grayscale: functions with out=... arguments don't support automatic differentiation, "
              "but one of the arguments requires grad");
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    GRAYSCALE_OPERATOR(rgb_to_grayscale_out).redispatch(keys & c10::after_autograd_keyset, image, out);
  }
  torch::autograd::impl::bump_version(out);
}

// For tensors that this build has no code for: an error that says so in terms of the function.
void unsupported(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
#if defined(CUDA_KERNEL)
  constexpr const char* kDevices = "CPU and CUDA devices";
#else
  constexpr const char* kDevices = "the CPU";
#endif
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
    if (!value.isTensor()) {
      continue;
    }
    const Tensor& tensor = value.toTensor();
    bool is_supported = tensor.layout() == at::kStrided && tensor.is_cpu();
#if defined(CUDA_KERNEL)
    is_supported |= tensor.layout() == at::kStrided && tensor.is_cuda();
#endif
    TORCH_CHECK_NOT_IMPLEMENTED(is_supported, "rgb_to_grayscale: this build converts strided tensors on ",
                                kDevices, ", and the ", arguments[i].name(), " is a ", tensor.layout(),
                                " tensor on ", tensor.device());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().name(), ": not supported for these tensors");
}

}  // namespace

// Kernels start on the current device, which need not be that of the tensors.

at::Tensor rgb_to_grayscale(const at::Tensor& image) {
  const c10::DeviceGuard guard(image.device());
  const Tensor gray = new_gray(image);
  convert(image, gray);
  return gray;
}

void rgb_to_grayscale_out(const at::Tensor& image, const at::Tensor& out) {
  const c10::DeviceGuard guard(image.device());
  check_out(image, out);
  convert(image, out);
}

at::Tensor rgb_to_grayscale_backward(const at::Tensor& gradient, at::IntArrayRef order) {
  const c10::DeviceGuard guard(gradient.device());
  const Tensor image = new_image(gradient, order);
  spread(gradient, image);
  return image;
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rgb_to_grayscale(Tensor image) -> Tensor");
  ops.def("rgb_to_grayscale_out(Tensor image, *, Tensor(a!) out) -> ()");
  ops.def("rgb_to_grayscale_backward(Tensor gradient, int[] order) -> Tensor");

  // A CUDA build serves both devices: its kernel in build.toml lists the source of the CPU as well.
  for (const auto device : {
           c10::DispatchKey::CPU,
#if defined(CUDA_KERNEL)
           c10::DispatchKey::CUDA,
#endif
       }) {
    ops.impl("rgb_to_grayscale", torch::dispatch(device, &rgb_to_grayscale));
    ops.impl("rgb_to_grayscale_out", torch::dispatch(device, &rgb_to_grayscale_out));
    ops.impl("rgb_to_grayscale_backward", torch::dispatch(device, &rgb_to_grayscale_backward));
  }

  const auto autograd = c10::DispatchKey::Autograd;
  ops.impl("rgb_to_grayscale", torch::dispatch(autograd, &rgb_to_grayscale_autograd));
  ops.impl("rgb_to_grayscale_out", torch::dispatch(autograd, &rgb_to_grayscale_out_autograd));
  ops.impl("rgb_to_grayscale_backward", torch::dispatch(autograd, &rgb_to_grayscale_backward_autograd));

  // What has no kernel above.
  for (const char* name : {"rgb_to_grayscale", "rgb_to_grayscale_out", "rgb_to_grayscale_backward"}) {
    ops.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                   torch::CppFunction::makeFromBoxedFunction<&unsupported>()));
  }
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
