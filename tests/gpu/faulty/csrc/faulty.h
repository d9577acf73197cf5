#pragma once

// Writes `count` ones, and as many beyond the end as `beyond` says.
void fill(float* out, int count, int beyond);
// Reverses 128 numbers by shared memory; without waiting for it to be written unless `waits`.
void reverse(float* out, bool waits);
// Copies `count` numbers, whether anybody has written them or not.
void copy(const float* in, float* out, int count);
// Adds one to each of 128 numbers, once each `every`-th thread of the block has waited for the others.
void meet(float* out, int every);
// Never ends.
void hang();
// Fails an assertion on the device.
void fail();
