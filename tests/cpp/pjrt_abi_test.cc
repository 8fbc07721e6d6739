// Compares the layouts of c_api.h with upstream's header, which is not part of this project: struct
// sizes, field offsets, table entries and enum values, and that none of c_api.h was forgotten here.

#include <pjrt_c_api.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tpu/pjrt/c_api.h"
#include "tpu/pjrt/error.h"

namespace tpu::pjrt {
namespace {

int failures = 0;
std::set<std::string> compared;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("differs: %s\n", what.c_str());
  ++failures;
}

// FOR_EACH(M, S, a, b) is M(S, a) M(S, b).
#define PARENTHESES ()
#define EXPAND(...) EXPAND1(EXPAND1(EXPAND1(EXPAND1(__VA_ARGS__))))
#define EXPAND1(...) EXPAND2(EXPAND2(EXPAND2(EXPAND2(__VA_ARGS__))))
#define EXPAND2(...) EXPAND3(EXPAND3(EXPAND3(EXPAND3(__VA_ARGS__))))
#define EXPAND3(...) __VA_ARGS__
#define FOR_EACH(M, S, ...) __VA_OPT__(EXPAND(FOR_EACH_STEP(M, S, __VA_ARGS__)))
#define FOR_EACH_STEP(M, S, first, ...) M(S, first) __VA_OPT__(FOR_EACH_AGAIN PARENTHESES(M, S, __VA_ARGS__))
#define FOR_EACH_AGAIN() FOR_EACH_STEP

#define FIELD(S, name)                                                    \
  expect(offsetof(c::S, name) == offsetof(PJRT_##S, name), #S "." #name); \
  compared.insert(#S "." #name);

#define SAME(S, ...)                                                        \
  expect(sizeof(c::S) == sizeof(PJRT_##S), "sizeof " #S);                   \
  expect(c::S{}.head.struct_size == PJRT_##S##_STRUCT_SIZE, "size of " #S); \
  compared.insert(#S);                                                      \
  FOR_EACH(FIELD, S, __VA_ARGS__)

// Declared with fields that are newer than the header may be.
#define GROWN(S, ...)                                                       \
  expect(c::S{}.head.struct_size >= PJRT_##S##_STRUCT_SIZE, "size of " #S); \
  compared.insert(#S);                                                      \
  FOR_EACH(FIELD, S, __VA_ARGS__)

#define ENTRY(name)                                                                  \
  expect(offsetof(c::Api, name) == offsetof(PJRT_Api, PJRT_##name), "entry " #name); \
  compared.insert("Api." #name);

#define VALUE(ours, theirs) expect(static_cast<uint32_t>(ours) == static_cast<uint32_t>(theirs), #ours);

void compare_structs() {
  SAME(Api_Version, major_version, minor_version);
  SAME(NamedValue, name, name_size, type, string_value, int64_value, int64_array_value, float_value, bool_value,
       value_size);
  SAME(Error_Destroy_Args, error);
  SAME(Error_Message_Args, error, message, message_size);
  SAME(Error_GetCode_Args, error, code);
  SAME(Plugin_Initialize_Args);
  SAME(Plugin_Attributes_Args, attributes, num_attributes);
  SAME(Event_Destroy_Args, event);
  SAME(Event_IsReady_Args, event, is_ready);
  SAME(Event_Error_Args, event);
  SAME(Event_Await_Args, event);
  SAME(Event_OnReady_Args, event, callback, user_arg);
  SAME(Client_Create_Args, create_options, num_options, kv_get_callback, kv_get_user_arg, kv_put_callback,
       kv_put_user_arg, client, kv_try_get_callback, kv_try_get_user_arg);
  SAME(Client_Destroy_Args, client);
  SAME(Client_PlatformName_Args, client, platform_name, platform_name_size);
  SAME(Client_PlatformVersion_Args, client, platform_version, platform_version_size);
  SAME(Client_ProcessIndex_Args, client, process_index);
  SAME(Client_Devices_Args, client, devices, num_devices);
  SAME(Client_AddressableDevices_Args, client, addressable_devices, num_addressable_devices);
  SAME(Program, code, code_size, format, format_size);
  SAME(Client_Compile_Args, client, program, compile_options, compile_options_size, executable);
  SAME(Buffer_MemoryLayout_Tiled, minor_to_major, minor_to_major_size, tile_dims, tile_dim_sizes, num_tiles);
  SAME(Buffer_MemoryLayout, tiled, type);
  SAME(Client_BufferFromHostBuffer_Args, client, data, type, dims, num_dims, byte_strides, num_byte_strides,
       host_buffer_semantics, device, memory, device_layout, done_with_host_buffer, buffer);
  SAME(Client_CreateViewOfDeviceBuffer_Args, client, device_buffer_ptr, dims, num_dims, element_type, layout, device,
       on_delete_callback, on_delete_callback_arg, stream, buffer, memory);
  SAME(Client_CreateUninitializedBuffer_Args, client, shape_dims, shape_num_dims, shape_element_type, shape_layout,
       device, memory, buffer);
  SAME(Device_GetDescription_Args, device, device_description);
  SAME(Device_LocalHardwareId_Args, device, local_hardware_id);
  SAME(DeviceDescription_Id_Args, device_description, id);
  SAME(DeviceDescription_ProcessIndex_Args, device_description, process_index);
  SAME(DeviceDescription_Attributes_Args, device_description, num_attributes, attributes);
  SAME(DeviceDescription_Kind_Args, device_description, device_kind, device_kind_size);
  SAME(DeviceDescription_ToString_Args, device_description, to_string, to_string_size);
  GROWN(Device_MemoryStats_Args, device, bytes_in_use, peak_bytes_in_use, peak_bytes_in_use_is_set, num_allocs,
        num_allocs_is_set, largest_alloc_size, largest_alloc_size_is_set, bytes_limit, bytes_limit_is_set,
        bytes_reserved, bytes_reserved_is_set, peak_bytes_reserved, peak_bytes_reserved_is_set, bytes_reservable_limit,
        bytes_reservable_limit_is_set, largest_free_block_bytes, largest_free_block_bytes_is_set, pool_bytes,
        pool_bytes_is_set, peak_pool_bytes, peak_pool_bytes_is_set);
  SAME(Buffer_Destroy_Args, buffer);
  SAME(Buffer_ElementType_Args, buffer, type);
  SAME(Buffer_Dimensions_Args, buffer, dims, num_dims);
  SAME(Buffer_UnpaddedDimensions_Args, buffer, unpadded_dims, num_dims);
  SAME(Buffer_DynamicDimensionIndices_Args, buffer, dynamic_dim_indices, num_dynamic_dims);
  SAME(Buffer_IsOnCpu_Args, buffer, is_on_cpu);
  SAME(Buffer_OnDeviceSizeInBytes_Args, buffer, on_device_size_in_bytes);
  SAME(Buffer_Device_Args, buffer, device);
  SAME(Buffer_Delete_Args, buffer);
  SAME(Buffer_IsDeleted_Args, buffer, is_deleted);
  SAME(Buffer_CopyToDevice_Args, buffer, dst_device, dst_buffer);
  SAME(Buffer_ToHostBuffer_Args, src, host_layout, dst, dst_size, event);
  SAME(Buffer_CopyRawToHost_Args, buffer, dst, offset, transfer_size, event);
  SAME(Buffer_ReadyEvent_Args, buffer, event);
  SAME(Buffer_UnsafePointer_Args, buffer, buffer_pointer);
  SAME(Buffer_IncreaseExternalReferenceCount_Args, buffer);
  SAME(Buffer_DecreaseExternalReferenceCount_Args, buffer);
  SAME(Executable_Destroy_Args, executable);
  SAME(Executable_Name_Args, executable, executable_name, executable_name_size);
  SAME(Executable_NumOutputs_Args, executable, num_outputs);
  SAME(Executable_NumReplicas_Args, executable, num_replicas);
  SAME(Executable_NumPartitions_Args, executable, num_partitions);
  SAME(Executable_SizeOfGeneratedCodeInBytes_Args, executable, size_in_bytes);
  SAME(Executable_GetCostAnalysis_Args, executable, num_properties, properties);
  GROWN(Executable_GetCompiledMemoryStats_Args, executable, generated_code_size_in_bytes, argument_size_in_bytes,
        output_size_in_bytes, alias_size_in_bytes, temp_size_in_bytes, host_generated_code_size_in_bytes,
        host_argument_size_in_bytes, host_output_size_in_bytes, host_alias_size_in_bytes, host_temp_size_in_bytes,
        peak_memory_in_bytes);
  SAME(Executable_OutputElementTypes_Args, executable, output_types, num_output_types);
  SAME(Executable_OutputDimensions_Args, executable, num_outputs, dims, dim_sizes);
  SAME(Executable_Fingerprint_Args, executable, executable_fingerprint, executable_fingerprint_size);
  SAME(Executable_OptimizedProgram_Args, executable, program);
  SAME(Executable_Serialize_Args, executable, serialized_bytes, serialized_bytes_size, serialized_executable,
       serialized_executable_deleter);
  GROWN(Executable_DeserializeAndLoad_Args, client, serialized_executable, serialized_executable_size,
        loaded_executable, overridden_serialized_compile_options, overridden_serialized_compile_options_size);
  SAME(LoadedExecutable_Destroy_Args, executable);
  SAME(LoadedExecutable_GetExecutable_Args, loaded_executable, executable);
  SAME(LoadedExecutable_AddressableDevices_Args, executable, addressable_devices, num_addressable_devices);
  GROWN(ExecuteOptions, send_callbacks, recv_callbacks, num_send_ops, num_recv_ops, launch_id,
        non_donatable_input_indices, num_non_donatable_input_indices, context, call_location, num_tasks, task_ids,
        incarnation_ids);
  SAME(LoadedExecutable_Execute_Args, executable, options, argument_lists, num_devices, num_args, output_lists,
       device_complete_events, execute_device);
  SAME(TopologyDescription_Create_Args, topology_name, topology_name_size, create_options, num_options, topology);
  SAME(TopologyDescription_Destroy_Args, topology);
  SAME(TopologyDescription_PlatformName_Args, topology, platform_name, platform_name_size);
  SAME(TopologyDescription_PlatformVersion_Args, topology, platform_version, platform_version_size);
  SAME(TopologyDescription_GetDeviceDescriptions_Args, topology, descriptions, num_descriptions);
  SAME(Compile_Args, topology, program, compile_options, compile_options_size, client, executable);
}

void compare_table() {
  expect(c::kOldestMinor <= PJRT_API_MINOR, "oldest version");
  ENTRY(Error_Destroy)
  ENTRY(Error_Message)
  ENTRY(Error_GetCode)
  ENTRY(Plugin_Initialize)
  ENTRY(Plugin_Attributes)
  ENTRY(Event_Destroy)
  ENTRY(Event_IsReady)
  ENTRY(Event_Error)
  ENTRY(Event_Await)
  ENTRY(Event_OnReady)
  ENTRY(Client_Create)
  ENTRY(Client_Destroy)
  ENTRY(Client_PlatformName)
  ENTRY(Client_ProcessIndex)
  ENTRY(Client_PlatformVersion)
  ENTRY(Client_Devices)
  ENTRY(Client_AddressableDevices)
  ENTRY(Client_LookupDevice)
  ENTRY(Client_LookupAddressableDevice)
  ENTRY(Client_AddressableMemories)
  ENTRY(Client_Compile)
  ENTRY(Client_DefaultDeviceAssignment)
  ENTRY(Client_BufferFromHostBuffer)
  ENTRY(DeviceDescription_Id)
  ENTRY(DeviceDescription_ProcessIndex)
  ENTRY(DeviceDescription_Attributes)
  ENTRY(DeviceDescription_Kind)
  ENTRY(DeviceDescription_DebugString)
  ENTRY(DeviceDescription_ToString)
  ENTRY(Device_GetDescription)
  ENTRY(Device_IsAddressable)
  ENTRY(Device_LocalHardwareId)
  ENTRY(Device_AddressableMemories)
  ENTRY(Device_DefaultMemory)
  ENTRY(Device_MemoryStats)
  ENTRY(Memory_Id)
  ENTRY(Memory_Kind)
  ENTRY(Memory_DebugString)
  ENTRY(Memory_ToString)
  ENTRY(Memory_AddressableByDevices)
  ENTRY(Executable_Destroy)
  ENTRY(Executable_Name)
  ENTRY(Executable_NumReplicas)
  ENTRY(Executable_NumPartitions)
  ENTRY(Executable_NumOutputs)
  ENTRY(Executable_SizeOfGeneratedCodeInBytes)
  ENTRY(Executable_GetCostAnalysis)
  ENTRY(Executable_OutputMemoryKinds)
  ENTRY(Executable_OptimizedProgram)
  ENTRY(Executable_Serialize)
  ENTRY(LoadedExecutable_Destroy)
  ENTRY(LoadedExecutable_GetExecutable)
  ENTRY(LoadedExecutable_AddressableDevices)
  ENTRY(LoadedExecutable_Delete)
  ENTRY(LoadedExecutable_IsDeleted)
  ENTRY(LoadedExecutable_Execute)
  ENTRY(Executable_DeserializeAndLoad)
  ENTRY(LoadedExecutable_Fingerprint)
  ENTRY(Buffer_Destroy)
  ENTRY(Buffer_ElementType)
  ENTRY(Buffer_Dimensions)
  ENTRY(Buffer_UnpaddedDimensions)
  ENTRY(Buffer_DynamicDimensionIndices)
  ENTRY(Buffer_GetMemoryLayout)
  ENTRY(Buffer_OnDeviceSizeInBytes)
  ENTRY(Buffer_Device)
  ENTRY(Buffer_Memory)
  ENTRY(Buffer_Delete)
  ENTRY(Buffer_IsDeleted)
  ENTRY(Buffer_CopyToDevice)
  ENTRY(Buffer_ToHostBuffer)
  ENTRY(Buffer_IsOnCpu)
  ENTRY(Buffer_ReadyEvent)
  ENTRY(Buffer_UnsafePointer)
  ENTRY(Buffer_IncreaseExternalReferenceCount)
  ENTRY(Buffer_DecreaseExternalReferenceCount)
  ENTRY(Buffer_OpaqueDeviceMemoryDataPointer)
  ENTRY(CopyToDeviceStream_Destroy)
  ENTRY(CopyToDeviceStream_AddChunk)
  ENTRY(CopyToDeviceStream_TotalBytes)
  ENTRY(CopyToDeviceStream_GranuleSize)
  ENTRY(CopyToDeviceStream_CurrentBytes)
  ENTRY(TopologyDescription_Create)
  ENTRY(TopologyDescription_Destroy)
  ENTRY(TopologyDescription_PlatformName)
  ENTRY(TopologyDescription_PlatformVersion)
  ENTRY(TopologyDescription_GetDeviceDescriptions)
  ENTRY(TopologyDescription_Serialize)
  ENTRY(TopologyDescription_Attributes)
  ENTRY(Compile)
  ENTRY(Executable_OutputElementTypes)
  ENTRY(Executable_OutputDimensions)
  ENTRY(Buffer_CopyToMemory)
  ENTRY(Client_CreateViewOfDeviceBuffer)
  ENTRY(Executable_Fingerprint)
  ENTRY(Client_TopologyDescription)
  ENTRY(Executable_GetCompiledMemoryStats)
  ENTRY(Memory_Kind_Id)
  ENTRY(ExecuteContext_Create)
  ENTRY(ExecuteContext_Destroy)
  ENTRY(Buffer_CopyRawToHost)
  ENTRY(AsyncHostToDeviceTransferManager_Destroy)
  ENTRY(AsyncHostToDeviceTransferManager_TransferData)
  ENTRY(Client_CreateBuffersForAsyncHostToDevice)
  ENTRY(AsyncHostToDeviceTransferManager_RetrieveBuffer)
  ENTRY(AsyncHostToDeviceTransferManager_Device)
  ENTRY(AsyncHostToDeviceTransferManager_BufferCount)
  ENTRY(AsyncHostToDeviceTransferManager_BufferSize)
  ENTRY(AsyncHostToDeviceTransferManager_SetBufferError)
  ENTRY(AsyncHostToDeviceTransferManager_AddMetadata)
  ENTRY(Client_DmaMap)
  ENTRY(Client_DmaUnmap)
  ENTRY(Client_CreateUninitializedBuffer)
  ENTRY(Client_UpdateGlobalProcessInfo)
  ENTRY(TopologyDescription_Deserialize)
  ENTRY(Client_CreateAliasBuffer)
  ENTRY(Client_FulfillAliasBuffer)
  ENTRY(LoadedExecutable_GetDeviceAssignment)
}

void compare_enums() {
  VALUE(ElementType::kInvalid, PJRT_Buffer_Type_INVALID)
  VALUE(ElementType::kPred, PJRT_Buffer_Type_PRED)
  VALUE(ElementType::kS8, PJRT_Buffer_Type_S8)
  VALUE(ElementType::kS16, PJRT_Buffer_Type_S16)
  VALUE(ElementType::kS32, PJRT_Buffer_Type_S32)
  VALUE(ElementType::kS64, PJRT_Buffer_Type_S64)
  VALUE(ElementType::kU8, PJRT_Buffer_Type_U8)
  VALUE(ElementType::kU16, PJRT_Buffer_Type_U16)
  VALUE(ElementType::kU32, PJRT_Buffer_Type_U32)
  VALUE(ElementType::kU64, PJRT_Buffer_Type_U64)
  VALUE(ElementType::kF16, PJRT_Buffer_Type_F16)
  VALUE(ElementType::kF32, PJRT_Buffer_Type_F32)
  VALUE(ElementType::kF64, PJRT_Buffer_Type_F64)
  VALUE(ElementType::kBF16, PJRT_Buffer_Type_BF16)
  VALUE(ElementType::kC64, PJRT_Buffer_Type_C64)
  VALUE(ElementType::kC128, PJRT_Buffer_Type_C128)
  VALUE(ElementType::kF8E5M2, PJRT_Buffer_Type_F8E5M2)
  VALUE(ElementType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN)
  VALUE(ElementType::kF8E4M3B11FNUZ, PJRT_Buffer_Type_F8E4M3B11FNUZ)
  VALUE(ElementType::kF8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ)
  VALUE(ElementType::kF8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ)
  VALUE(ElementType::kS4, PJRT_Buffer_Type_S4)
  VALUE(ElementType::kU4, PJRT_Buffer_Type_U4)
  VALUE(ElementType::kToken, PJRT_Buffer_Type_TOKEN)
  VALUE(ElementType::kS2, PJRT_Buffer_Type_S2)
  VALUE(ElementType::kU2, PJRT_Buffer_Type_U2)
  VALUE(ElementType::kF8E4M3, PJRT_Buffer_Type_F8E4M3)
  VALUE(ElementType::kF8E3M4, PJRT_Buffer_Type_F8E3M4)
  VALUE(ElementType::kF8E8M0FNU, PJRT_Buffer_Type_F8E8M0FNU)
  VALUE(ElementType::kF4E2M1FN, PJRT_Buffer_Type_F4E2M1FN)
  VALUE(Error::Code::kOk, PJRT_Error_Code_OK)
  VALUE(Error::Code::kCancelled, PJRT_Error_Code_CANCELLED)
  VALUE(Error::Code::kUnknown, PJRT_Error_Code_UNKNOWN)
  VALUE(Error::Code::kInvalidArgument, PJRT_Error_Code_INVALID_ARGUMENT)
  VALUE(Error::Code::kDeadlineExceeded, PJRT_Error_Code_DEADLINE_EXCEEDED)
  VALUE(Error::Code::kNotFound, PJRT_Error_Code_NOT_FOUND)
  VALUE(Error::Code::kAlreadyExists, PJRT_Error_Code_ALREADY_EXISTS)
  VALUE(Error::Code::kPermissionDenied, PJRT_Error_Code_PERMISSION_DENIED)
  VALUE(Error::Code::kResourceExhausted, PJRT_Error_Code_RESOURCE_EXHAUSTED)
  VALUE(Error::Code::kFailedPrecondition, PJRT_Error_Code_FAILED_PRECONDITION)
  VALUE(Error::Code::kAborted, PJRT_Error_Code_ABORTED)
  VALUE(Error::Code::kOutOfRange, PJRT_Error_Code_OUT_OF_RANGE)
  VALUE(Error::Code::kUnimplemented, PJRT_Error_Code_UNIMPLEMENTED)
  VALUE(Error::Code::kInternal, PJRT_Error_Code_INTERNAL)
  VALUE(Error::Code::kUnavailable, PJRT_Error_Code_UNAVAILABLE)
  VALUE(Error::Code::kDataLoss, PJRT_Error_Code_DATA_LOSS)
  VALUE(Error::Code::kUnauthenticated, PJRT_Error_Code_UNAUTHENTICATED)
  VALUE(HostBufferSemantics::kImmutableOnlyDuringCall, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall)
  VALUE(HostBufferSemantics::kImmutableUntilTransferCompletes,
        PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes)
  VALUE(HostBufferSemantics::kImmutableZeroCopy, PJRT_HostBufferSemantics_kImmutableZeroCopy)
  VALUE(HostBufferSemantics::kMutableZeroCopy, PJRT_HostBufferSemantics_kMutableZeroCopy)
  VALUE(c::NamedValue_Type::kString, PJRT_NamedValue_kString)
  VALUE(c::NamedValue_Type::kInt64, PJRT_NamedValue_kInt64)
  VALUE(c::NamedValue_Type::kInt64List, PJRT_NamedValue_kInt64List)
  VALUE(c::NamedValue_Type::kFloat, PJRT_NamedValue_kFloat)
  VALUE(c::NamedValue_Type::kBool, PJRT_NamedValue_kBool)
  VALUE(c::Buffer_MemoryLayout_Type::kTiled, PJRT_Buffer_MemoryLayout_Type_Tiled)
}

// Structs and fields newer than 0.81, which the header doesn't have. Their layouts were checked
// against 0.114.
const std::set<std::string> kNewer = {
    "Device_ClearMemoryStats_Args",
    "Device_ClearMemoryStats_Args.device",
    "Device_MemoryStats_Args.peak_allocated_bytes",
    "Device_MemoryStats_Args.peak_allocated_bytes_is_set",
    "Executable_GetCompiledMemoryStats_Args.total_size_in_bytes",
    "Executable_GetCompiledMemoryStats_Args.total_allocation_bytes",
    "Executable_GetCompiledMemoryStats_Args.indefinite_allocations",
    "Executable_GetCompiledMemoryStats_Args.peak_unpadded_heap_bytes",
    "Executable_DeserializeAndLoad_Args.load_options",
    "ExecuteOptions.multi_slice_config",
    "ExecuteOptions.use_major_to_minor_data_layout_for_callbacks",
    "ExecuteOptions.hlo_output_callbacks",
    "ExecuteOptions.num_hlo_output_callbacks",
};

// Reads c_api.h itself, so that a declaration can't be added without a comparison.
void find_forgotten(const char* path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  expect(!text.empty(), std::string("can't read ") + path);
  const std::regex declaration(R"(\nstruct (\w+) \{\n([^]*?)\n\};)");
  const std::regex field(R"((?:[ *](\w+)(?: = [^;\n]+|\{\})?|\(\*(\w+)\)\([^;\n]*);)");
  for (std::sregex_iterator s(text.begin(), text.end(), declaration), end; s != end; ++s) {
    const std::string name = (*s)[1];
    const std::string body = (*s)[2];
    if (name == "Head" || name == "Api") continue;
    expect(compared.count(name) + kNewer.count(name) == 1, "forgotten struct " + name);
    for (std::sregex_iterator f(body.begin(), body.end(), field); f != end; ++f) {
      const std::string member = name + "." + ((*f)[1].matched ? (*f)[1] : (*f)[2]).str();
      expect(compared.count(member) + kNewer.count(member) == 1, "forgotten field " + member);
    }
  }
}

}  // namespace
}  // namespace tpu::pjrt

int main() {
  using namespace tpu::pjrt;
  compare_structs();
  compare_table();
  compare_enums();
  find_forgotten(TORCH_TPU_C_API_H);
  std::printf("%zu structs, fields and entries compared with API 0.%d, %d failures\n", compared.size(), PJRT_API_MINOR,
              failures);
  return failures == 0 ? 0 : 1;
}
