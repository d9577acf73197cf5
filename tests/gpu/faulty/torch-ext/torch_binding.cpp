#include "torch_binding.h"

#include <torch/library.h>

#include "faulty.h"
#include "registration.h"

void fill_tensor(at::Tensor& out, int64_t beyond) {
  fill(out.mutable_data_ptr<float>(), static_cast<int>(out.numel()), static_cast<int>(beyond));
}
void reverse_tensor(at::Tensor& out, bool waits) { reverse(out.mutable_data_ptr<float>(), waits); }
void copy_tensor(const at::Tensor& in, at::Tensor& out) {
  copy(in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), static_cast<int>(out.numel()));
}
void meet_tensor(at::Tensor& out, int64_t every) {
  meet(out.mutable_data_ptr<float>(), static_cast<int>(every));
}
void hang_tensor(at::Tensor&) { hang(); }
void fail_tensor(at::Tensor&) { fail(); }

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("fill(Tensor(a!) out, int beyond) -> ()");
  ops.impl("fill", at::kCUDA, &fill_tensor);
  ops.def("reverse(Tensor(a!) out, bool waits) -> ()");
  ops.impl("reverse", at::kCUDA, &reverse_tensor);
  ops.def("copy(Tensor input, Tensor(a!) out) -> ()");
  ops.impl("copy", at::kCUDA, &copy_tensor);
  ops.def("meet(Tensor(a!) out, int every) -> ()");
  ops.impl("meet", at::kCUDA, &meet_tensor);
  ops.def("hang(Tensor(a!) out) -> ()");
  ops.impl("hang", at::kCUDA, &hang_tensor);
  ops.def("fail(Tensor(a!) out) -> ()");
  ops.impl("fail", at::kCUDA, &fail_tensor);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
