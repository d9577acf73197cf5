#pragma once

#include <ATen/core/Tensor.h>

void fill_tensor(at::Tensor& out, int64_t beyond);
void hang_tensor(at::Tensor& out);
void fail_tensor(at::Tensor& out);
