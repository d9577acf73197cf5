// glibc 2.32 and newer declare this variable, and std::shared_ptr of its compilers reads it to
// skip atomic operations while there is one thread. An own definition, seen by this library
// alone, keeps the library loadable with glibc 2.28 (manylinux_2_28). Zero says: there may be
// several threads.
extern "C" {
extern char __libc_single_threaded;
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
