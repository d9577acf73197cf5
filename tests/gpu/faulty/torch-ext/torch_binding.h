#pragma once

#include <ATen/core/Tensor.h>

void fill_tensor(at::Tensor& out, int64_t beyond);
void reverse_tensor(at::Tensor& out, bool waits);
void copy_tensor(const at::Tensor& in, at::Tensor& out);
void meet_tensor(at::Tensor& out, int64_t every);
void hang_tensor(at::Tensor& out);
void fail_tensor(at::Tensor& out);
