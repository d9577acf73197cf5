#pragma once

#include <ATen/core/Tensor.h>

// What the operators compute, on the device of their tensors. TypeError for another dtype than those
// supported, ValueError for another shape.

// Of [..., 3, H, W], gives [..., 1, H, W].
at::Tensor rgb_to_grayscale(const at::Tensor& image);

// The same into `out`, which has the result's shape and any strides.
void rgb_to_grayscale_out(const at::Tensor& image, const at::Tensor& out);

// The gradient of the image, given that of the gray. `order` lists its dimensions as they are to lie in
// memory, from the outermost to the innermost.
at::Tensor rgb_to_grayscale_backward(const at::Tensor& gradient, at::IntArrayRef order);
