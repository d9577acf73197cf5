#pragma once

#include <ATen/core/Tensor.h>

// Converts [..., 3, H, W] to [..., 1, H, W]; uint8 or float32. TypeError for another dtype, ValueError for
// another shape.
at::Tensor rgb_to_grayscale_cpu(const at::Tensor& image);
at::Tensor rgb_to_grayscale_cuda(const at::Tensor& image);

// For tensors that this build has no code for: raises NotImplementedError.
at::Tensor rgb_to_grayscale_unsupported(const at::Tensor& image);
