# As much of Torch as the example's CPU code uses.
set -eu
mkdir -p "$out/include/ATen"
cat > "$out/include/ATen/Parallel.h" <<'HEADER'
#pragma once
#include <cstdint>
namespace at {
template <typename F>
void parallel_for(int64_t begin, int64_t end, int64_t, const F& f) {
  if (begin < end) f(begin, end);
}
}  // namespace at
HEADER
