// Registering operators under a name that the build chooses. The macros are those that
// kernel-builder provides, so that a binding compiles with either.
#pragma once

#include <Python.h>

// A macro's argument that is pasted (##) or quoted (#) is not expanded: go through one more macro.
#define KERNEL_ACTIONS_PASTE(A, B) A##B
#define KERNEL_ACTIONS_QUOTE(A) #A

#define CONCAT(A, B) KERNEL_ACTIONS_PASTE(A, B)
#define STRINGIFY(A) KERNEL_ACTIONS_QUOTE(A)

// TORCH_LIBRARY and its relatives, for a NAME that is a macro such as TORCH_EXTENSION_NAME.
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)

// An empty Python module: importing it loads the library, which registers the operators.
#define REGISTER_EXTENSION(NAME)                                          \
  PyMODINIT_FUNC CONCAT(PyInit_, NAME)() {                                \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, STRINGIFY(NAME), \
                                     nullptr, 0, nullptr};                \
    return PyModule_Create(&definition);                                  \
  }
