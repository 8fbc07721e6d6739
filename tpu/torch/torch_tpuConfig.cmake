# find_package(torch_tpu) for C++ programs. Where it is: python -c "import torch_tpu; print(torch_tpu.cmake_prefix_path)"
# Gives the target torch_tpu::torch_tpu. libtorch comes from the torch that Python has, without CMake's package Torch,
# which in a CUDA build of torch demands a CUDA toolkit.
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c
    "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE torch_tpu_TORCH_DIR
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY
)
get_filename_component(torch_tpu_DIR_OF_PACKAGE "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library(torch_tpu::torch_tpu SHARED IMPORTED)
set_target_properties(
  torch_tpu::torch_tpu
  PROPERTIES IMPORTED_LOCATION "${torch_tpu_DIR_OF_PACKAGE}/lib/libtorch_tpu.so"
)
target_include_directories(
  torch_tpu::torch_tpu
  SYSTEM
  INTERFACE
    "${torch_tpu_DIR_OF_PACKAGE}/include"
    "${torch_tpu_TORCH_DIR}/include"
    "${torch_tpu_TORCH_DIR}/include/torch/csrc/api/include"
)
target_link_directories(torch_tpu::torch_tpu INTERFACE "${torch_tpu_TORCH_DIR}/lib")
target_link_libraries(torch_tpu::torch_tpu INTERFACE torch torch_cpu c10)
target_compile_features(torch_tpu::torch_tpu INTERFACE cxx_std_20)
