#undef NDEBUG
#include <cassert>

#include "faulty.h"

namespace {

__global__ void fill_kernel(float* out, int count, int beyond) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) {
    out[index] = 1.0f;
  }
  if (index < beyond) {
    out[count + index] = 1.0f;  // planted: beyond the end
  }
}

__global__ void hang_kernel() {
  while (clock64() != 0) {
  }
}

__global__ void fail_kernel() { assert(blockIdx.x > 0); }

}  // namespace

void fill(float* out, int count, int beyond) { fill_kernel<<<(count + 127) / 128, 128>>>(out, count, beyond); }
void hang() { hang_kernel<<<1, 1>>>(); }
void fail() { fail_kernel<<<1, 1>>>(); }
