#include "torch_binding.h"

#include <torch/library.h>

#include "faulty.h"
#include "registration.h"

void fill_tensor(at::Tensor& out, int64_t beyond) {
  fill(out.mutable_data_ptr<float>(), static_cast<int>(out.numel()), static_cast<int>(beyond));
}
void hang_tensor(at::Tensor&) { hang(); }
void fail_tensor(at::Tensor&) { fail(); }

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("fill(Tensor(a!) out, int beyond) -> ()");
  ops.impl("fill", at::kCUDA, &fill_tensor);
  ops.def("hang(Tensor(a!) out) -> ()");
  ops.impl("hang", at::kCUDA, &hang_tensor);
  ops.def("fail(Tensor(a!) out) -> ()");
  ops.impl("fail", at::kCUDA, &fail_tensor);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
