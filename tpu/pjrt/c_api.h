// The PJRT C ABI as far as this library uses it. Names are upstream's without the prefix PJRT_, so
// that they can be looked up there; tests/cpp/pjrt_abi_test.cc compares the layouts with
// upstream's. The ABI only grows at its end: a table entry newer than kOldestMinor is looked at
// only after Plugin::has() says that the plugin's table reaches that far.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpu::pjrt {

// Values are part of the ABI.
enum class ElementType : uint32_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E4M3B11FNUZ = 18,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
  kS4 = 21,
  kU4 = 22,
  kToken = 23,
  kS2 = 24,
  kU2 = 25,
  kF8E4M3 = 26,
  kF8E3M4 = 27,
  kF8E8M0FNU = 28,
  kF4E2M1FN = 29,
};

// How long the plugin may read the host memory that a buffer is made from.
enum class HostBufferSemantics : uint32_t {
  kImmutableOnlyDuringCall = 0,          // copied before the call returns
  kImmutableUntilTransferCompletes = 1,  // until the event done_with_host
  kImmutableZeroCopy = 2,                // until the buffer is gone, where the platform can
  kMutableZeroCopy = 3,                  // as above, and the program may write it
};

namespace c {

inline constexpr int kOldestMinor = 81;

struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct TopologyDescription;
struct ExecuteContext;

// Every argument struct starts like this. struct_size counts up to the end of the last field,
// without padding: a plugin tells by it which fields its caller knows.
struct Head {
  size_t struct_size;
  void* extension_start = nullptr;
};

struct Api_Version {
  Head head{sizeof(Api_Version)};
  int major_version = 0;
  int minor_version = 0;
};

enum class NamedValue_Type : uint32_t {
  kString = 0,
  kInt64 = 1,
  kInt64List = 2,
  kFloat = 3,
  kBool = 4,
};

struct NamedValue {
  Head head{sizeof(NamedValue)};
  const char* name = nullptr;
  size_t name_size = 0;
  NamedValue_Type type = NamedValue_Type::kString;
  union {
    const char* string_value = nullptr;
    int64_t int64_value;
    const int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size = 0;
};

// Errors.

struct Error_Destroy_Args {
  Head head{sizeof(Error_Destroy_Args)};
  Error* error = nullptr;
};

struct Error_Message_Args {
  Head head{sizeof(Error_Message_Args)};
  const Error* error = nullptr;
  const char* message = nullptr;
  size_t message_size = 0;
};

struct Error_GetCode_Args {
  Head head{offsetof(Error_GetCode_Args, code) + sizeof(uint32_t)};
  const Error* error = nullptr;
  uint32_t code = 0;
};

// Plugin.

struct Plugin_Initialize_Args {
  Head head{sizeof(Plugin_Initialize_Args)};
};

struct Plugin_Attributes_Args {
  Head head{sizeof(Plugin_Attributes_Args)};
  const NamedValue* attributes = nullptr;
  size_t num_attributes = 0;
};

// Events.

struct Event_Destroy_Args {
  Head head{sizeof(Event_Destroy_Args)};
  Event* event = nullptr;
};

struct Event_IsReady_Args {
  Head head{offsetof(Event_IsReady_Args, is_ready) + sizeof(bool)};
  Event* event = nullptr;
  bool is_ready = false;
};

struct Event_Error_Args {
  Head head{sizeof(Event_Error_Args)};
  Event* event = nullptr;
};

struct Event_Await_Args {
  Head head{sizeof(Event_Await_Args)};
  Event* event = nullptr;
};

struct Event_OnReady_Args {
  Head head{sizeof(Event_OnReady_Args)};
  Event* event = nullptr;
  void (*callback)(Error* error, void* user_arg) = nullptr;
  void* user_arg = nullptr;
};

// Client.

struct Client_Create_Args {
  Head head{sizeof(Client_Create_Args)};
  const NamedValue* create_options = nullptr;
  size_t num_options = 0;
  void* kv_get_callback = nullptr;
  void* kv_get_user_arg = nullptr;
  void* kv_put_callback = nullptr;
  void* kv_put_user_arg = nullptr;
  Client* client = nullptr;
  void* kv_try_get_callback = nullptr;
  void* kv_try_get_user_arg = nullptr;
};

struct Client_Destroy_Args {
  Head head{sizeof(Client_Destroy_Args)};
  Client* client = nullptr;
};

struct Client_PlatformName_Args {
  Head head{sizeof(Client_PlatformName_Args)};
  Client* client = nullptr;
  const char* platform_name = nullptr;
  size_t platform_name_size = 0;
};

struct Client_PlatformVersion_Args {
  Head head{sizeof(Client_PlatformVersion_Args)};
  Client* client = nullptr;
  const char* platform_version = nullptr;
  size_t platform_version_size = 0;
};

struct Client_ProcessIndex_Args {
  Head head{offsetof(Client_ProcessIndex_Args, process_index) + sizeof(int)};
  Client* client = nullptr;
  int process_index = 0;
};

struct Client_Devices_Args {
  Head head{sizeof(Client_Devices_Args)};
  Client* client = nullptr;
  Device* const* devices = nullptr;
  size_t num_devices = 0;
};

struct Client_AddressableDevices_Args {
  Head head{sizeof(Client_AddressableDevices_Args)};
  Client* client = nullptr;
  Device* const* addressable_devices = nullptr;
  size_t num_addressable_devices = 0;
};

struct Program {
  Head head{sizeof(Program)};
  char* code = nullptr;
  size_t code_size = 0;
  const char* format = nullptr;
  size_t format_size = 0;
};

struct Client_Compile_Args {
  Head head{sizeof(Client_Compile_Args)};
  Client* client = nullptr;
  const Program* program = nullptr;
  const char* compile_options = nullptr;
  size_t compile_options_size = 0;
  LoadedExecutable* executable = nullptr;
};

struct Buffer_MemoryLayout_Tiled {
  Head head{sizeof(Buffer_MemoryLayout_Tiled)};
  const int64_t* minor_to_major = nullptr;
  size_t minor_to_major_size = 0;
  const int64_t* tile_dims = nullptr;
  const size_t* tile_dim_sizes = nullptr;
  size_t num_tiles = 0;
};

enum class Buffer_MemoryLayout_Type : uint32_t { kTiled = 0 };

// In the ABI `tiled` is a union with a smaller form, byte strides, which isn't used here.
struct Buffer_MemoryLayout {
  Head head{offsetof(Buffer_MemoryLayout, type) + sizeof(Buffer_MemoryLayout_Type)};
  Buffer_MemoryLayout_Tiled tiled{};
  Buffer_MemoryLayout_Type type = Buffer_MemoryLayout_Type::kTiled;
};

struct Client_BufferFromHostBuffer_Args {
  Head head{sizeof(Client_BufferFromHostBuffer_Args)};
  Client* client = nullptr;
  const void* data = nullptr;
  ElementType type = ElementType::kInvalid;
  const int64_t* dims = nullptr;
  size_t num_dims = 0;
  const int64_t* byte_strides = nullptr;
  size_t num_byte_strides = 0;
  HostBufferSemantics host_buffer_semantics = HostBufferSemantics::kImmutableOnlyDuringCall;
  Device* device = nullptr;
  Memory* memory = nullptr;
  Buffer_MemoryLayout* device_layout = nullptr;
  Event* done_with_host_buffer = nullptr;
  Buffer* buffer = nullptr;
};

struct Client_CreateViewOfDeviceBuffer_Args {
  Head head{sizeof(Client_CreateViewOfDeviceBuffer_Args)};
  Client* client = nullptr;
  void* device_buffer_ptr = nullptr;
  const int64_t* dims = nullptr;
  size_t num_dims = 0;
  ElementType element_type = ElementType::kInvalid;
  Buffer_MemoryLayout* layout = nullptr;
  Device* device = nullptr;
  void (*on_delete_callback)(void* device_buffer_ptr, void* user_arg) = nullptr;
  void* on_delete_callback_arg = nullptr;
  intptr_t stream = 0;
  Buffer* buffer = nullptr;
  Memory* memory = nullptr;
};

struct Client_CreateUninitializedBuffer_Args {
  Head head{sizeof(Client_CreateUninitializedBuffer_Args)};
  Client* client = nullptr;
  const int64_t* shape_dims = nullptr;
  size_t shape_num_dims = 0;
  ElementType shape_element_type = ElementType::kInvalid;
  Buffer_MemoryLayout* shape_layout = nullptr;
  Device* device = nullptr;
  Memory* memory = nullptr;
  Buffer* buffer = nullptr;
};

// Devices.

struct Device_GetDescription_Args {
  Head head{sizeof(Device_GetDescription_Args)};
  Device* device = nullptr;
  DeviceDescription* device_description = nullptr;
};

struct Device_LocalHardwareId_Args {
  Head head{offsetof(Device_LocalHardwareId_Args, local_hardware_id) + sizeof(int)};
  Device* device = nullptr;
  int local_hardware_id = 0;
};

struct DeviceDescription_Id_Args {
  Head head{offsetof(DeviceDescription_Id_Args, id) + sizeof(int)};
  DeviceDescription* device_description = nullptr;
  int id = 0;
};

struct DeviceDescription_ProcessIndex_Args {
  Head head{offsetof(DeviceDescription_ProcessIndex_Args, process_index) + sizeof(int)};
  DeviceDescription* device_description = nullptr;
  int process_index = 0;
};

struct DeviceDescription_Attributes_Args {
  Head head{sizeof(DeviceDescription_Attributes_Args)};
  DeviceDescription* device_description = nullptr;
  size_t num_attributes = 0;
  const NamedValue* attributes = nullptr;
};

struct DeviceDescription_Kind_Args {
  Head head{sizeof(DeviceDescription_Kind_Args)};
  DeviceDescription* device_description = nullptr;
  const char* device_kind = nullptr;
  size_t device_kind_size = 0;
};

struct DeviceDescription_ToString_Args {
  Head head{sizeof(DeviceDescription_ToString_Args)};
  DeviceDescription* device_description = nullptr;
  const char* to_string = nullptr;
  size_t to_string_size = 0;
};

struct Device_MemoryStats_Args {
  Head head{offsetof(Device_MemoryStats_Args, peak_allocated_bytes_is_set) + sizeof(bool)};
  Device* device = nullptr;
  int64_t bytes_in_use = 0;
  int64_t peak_bytes_in_use = 0;
  bool peak_bytes_in_use_is_set = false;
  int64_t num_allocs = 0;
  bool num_allocs_is_set = false;
  int64_t largest_alloc_size = 0;
  bool largest_alloc_size_is_set = false;
  int64_t bytes_limit = 0;
  bool bytes_limit_is_set = false;
  int64_t bytes_reserved = 0;
  bool bytes_reserved_is_set = false;
  int64_t peak_bytes_reserved = 0;
  bool peak_bytes_reserved_is_set = false;
  int64_t bytes_reservable_limit = 0;
  bool bytes_reservable_limit_is_set = false;
  int64_t largest_free_block_bytes = 0;
  bool largest_free_block_bytes_is_set = false;
  int64_t pool_bytes = 0;
  bool pool_bytes_is_set = false;
  int64_t peak_pool_bytes = 0;
  bool peak_pool_bytes_is_set = false;
  int64_t peak_allocated_bytes = 0;  // 0.81 ends before this field
  bool peak_allocated_bytes_is_set = false;
};

struct Device_ClearMemoryStats_Args {
  Head head{sizeof(Device_ClearMemoryStats_Args)};
  Device* device = nullptr;
};

// Buffers.

struct Buffer_Destroy_Args {
  Head head{sizeof(Buffer_Destroy_Args)};
  Buffer* buffer = nullptr;
};

struct Buffer_ElementType_Args {
  Head head{offsetof(Buffer_ElementType_Args, type) + sizeof(ElementType)};
  Buffer* buffer = nullptr;
  ElementType type = ElementType::kInvalid;
};

struct Buffer_Dimensions_Args {
  Head head{sizeof(Buffer_Dimensions_Args)};
  Buffer* buffer = nullptr;
  const int64_t* dims = nullptr;
  size_t num_dims = 0;
};

struct Buffer_UnpaddedDimensions_Args {
  Head head{sizeof(Buffer_UnpaddedDimensions_Args)};
  Buffer* buffer = nullptr;
  const int64_t* unpadded_dims = nullptr;
  size_t num_dims = 0;
};

struct Buffer_DynamicDimensionIndices_Args {
  Head head{sizeof(Buffer_DynamicDimensionIndices_Args)};
  Buffer* buffer = nullptr;
  const size_t* dynamic_dim_indices = nullptr;
  size_t num_dynamic_dims = 0;
};

struct Buffer_OnDeviceSizeInBytes_Args {
  Head head{sizeof(Buffer_OnDeviceSizeInBytes_Args)};
  Buffer* buffer = nullptr;
  size_t on_device_size_in_bytes = 0;
};

struct Buffer_Device_Args {
  Head head{sizeof(Buffer_Device_Args)};
  Buffer* buffer = nullptr;
  Device* device = nullptr;
};

struct Buffer_Delete_Args {
  Head head{sizeof(Buffer_Delete_Args)};
  Buffer* buffer = nullptr;
};

struct Buffer_IsDeleted_Args {
  Head head{offsetof(Buffer_IsDeleted_Args, is_deleted) + sizeof(bool)};
  Buffer* buffer = nullptr;
  bool is_deleted = false;
};

struct Buffer_CopyToDevice_Args {
  Head head{sizeof(Buffer_CopyToDevice_Args)};
  Buffer* buffer = nullptr;
  Device* dst_device = nullptr;
  Buffer* dst_buffer = nullptr;
};

struct Buffer_ToHostBuffer_Args {
  Head head{sizeof(Buffer_ToHostBuffer_Args)};
  Buffer* src = nullptr;
  Buffer_MemoryLayout* host_layout = nullptr;
  void* dst = nullptr;
  size_t dst_size = 0;
  Event* event = nullptr;
};

struct Buffer_CopyRawToHost_Args {
  Head head{sizeof(Buffer_CopyRawToHost_Args)};
  Buffer* buffer = nullptr;
  void* dst = nullptr;
  int64_t offset = 0;
  int64_t transfer_size = 0;
  Event* event = nullptr;
};

struct Buffer_IsOnCpu_Args {
  Head head{offsetof(Buffer_IsOnCpu_Args, is_on_cpu) + sizeof(bool)};
  Buffer* buffer = nullptr;
  bool is_on_cpu = false;
};

struct Buffer_ReadyEvent_Args {
  Head head{sizeof(Buffer_ReadyEvent_Args)};
  Buffer* buffer = nullptr;
  Event* event = nullptr;
};

struct Buffer_UnsafePointer_Args {
  Head head{sizeof(Buffer_UnsafePointer_Args)};
  Buffer* buffer = nullptr;
  uintptr_t buffer_pointer = 0;
};

struct Buffer_IncreaseExternalReferenceCount_Args {
  Head head{sizeof(Buffer_IncreaseExternalReferenceCount_Args)};
  Buffer* buffer = nullptr;
};

struct Buffer_DecreaseExternalReferenceCount_Args {
  Head head{sizeof(Buffer_DecreaseExternalReferenceCount_Args)};
  Buffer* buffer = nullptr;
};

// Executables.

struct Executable_Destroy_Args {
  Head head{sizeof(Executable_Destroy_Args)};
  Executable* executable = nullptr;
};

struct Executable_Name_Args {
  Head head{sizeof(Executable_Name_Args)};
  Executable* executable = nullptr;
  const char* executable_name = nullptr;
  size_t executable_name_size = 0;
};

struct Executable_NumOutputs_Args {
  Head head{sizeof(Executable_NumOutputs_Args)};
  Executable* executable = nullptr;
  size_t num_outputs = 0;
};

struct Executable_NumReplicas_Args {
  Head head{sizeof(Executable_NumReplicas_Args)};
  Executable* executable = nullptr;
  size_t num_replicas = 0;
};

struct Executable_NumPartitions_Args {
  Head head{sizeof(Executable_NumPartitions_Args)};
  Executable* executable = nullptr;
  size_t num_partitions = 0;
};

struct Executable_SizeOfGeneratedCodeInBytes_Args {
  Head head{sizeof(Executable_SizeOfGeneratedCodeInBytes_Args)};
  Executable* executable = nullptr;
  int64_t size_in_bytes = 0;
};

struct Executable_GetCostAnalysis_Args {
  Head head{sizeof(Executable_GetCostAnalysis_Args)};
  Executable* executable = nullptr;
  size_t num_properties = 0;
  const NamedValue* properties = nullptr;
};

struct Executable_GetCompiledMemoryStats_Args {
  Head head{sizeof(Executable_GetCompiledMemoryStats_Args)};
  Executable* executable = nullptr;
  int64_t generated_code_size_in_bytes = 0;
  int64_t argument_size_in_bytes = 0;
  int64_t output_size_in_bytes = 0;
  int64_t alias_size_in_bytes = 0;
  int64_t temp_size_in_bytes = 0;
  int64_t host_generated_code_size_in_bytes = 0;
  int64_t host_argument_size_in_bytes = 0;
  int64_t host_output_size_in_bytes = 0;
  int64_t host_alias_size_in_bytes = 0;
  int64_t host_temp_size_in_bytes = 0;
  int64_t peak_memory_in_bytes = 0;
  int64_t total_size_in_bytes = 0;  // 0.81 ends before this field
  int64_t total_allocation_bytes = 0;
  int64_t indefinite_allocations = 0;
  int64_t peak_unpadded_heap_bytes = 0;
};

struct Executable_OutputElementTypes_Args {
  Head head{sizeof(Executable_OutputElementTypes_Args)};
  Executable* executable = nullptr;
  ElementType* output_types = nullptr;
  size_t num_output_types = 0;
};

struct Executable_OutputDimensions_Args {
  Head head{sizeof(Executable_OutputDimensions_Args)};
  Executable* executable = nullptr;
  size_t num_outputs = 0;
  const int64_t* dims = nullptr;
  const size_t* dim_sizes = nullptr;
};

struct Executable_Fingerprint_Args {
  Head head{sizeof(Executable_Fingerprint_Args)};
  Executable* executable = nullptr;
  const char* executable_fingerprint = nullptr;
  size_t executable_fingerprint_size = 0;
};

struct Executable_OptimizedProgram_Args {
  Head head{sizeof(Executable_OptimizedProgram_Args)};
  Executable* executable = nullptr;
  Program* program = nullptr;
};

struct Executable_Serialize_Args {
  Head head{sizeof(Executable_Serialize_Args)};
  const Executable* executable = nullptr;
  const char* serialized_bytes = nullptr;
  size_t serialized_bytes_size = 0;
  SerializedExecutable* serialized_executable = nullptr;
  void (*serialized_executable_deleter)(SerializedExecutable* executable) = nullptr;
};

struct Executable_DeserializeAndLoad_Args {
  Head head{sizeof(Executable_DeserializeAndLoad_Args)};
  Client* client = nullptr;
  const char* serialized_executable = nullptr;
  size_t serialized_executable_size = 0;
  LoadedExecutable* loaded_executable = nullptr;
  const char* overridden_serialized_compile_options = nullptr;
  size_t overridden_serialized_compile_options_size = 0;
  void* load_options = nullptr;  // 0.81 ends before this field
};

struct LoadedExecutable_Destroy_Args {
  Head head{sizeof(LoadedExecutable_Destroy_Args)};
  LoadedExecutable* executable = nullptr;
};

struct LoadedExecutable_GetExecutable_Args {
  Head head{sizeof(LoadedExecutable_GetExecutable_Args)};
  LoadedExecutable* loaded_executable = nullptr;
  Executable* executable = nullptr;
};

struct LoadedExecutable_AddressableDevices_Args {
  Head head{sizeof(LoadedExecutable_AddressableDevices_Args)};
  LoadedExecutable* executable = nullptr;
  Device* const* addressable_devices = nullptr;
  size_t num_addressable_devices = 0;
};

struct ExecuteOptions {
  Head head{sizeof(ExecuteOptions)};
  void* send_callbacks = nullptr;
  void* recv_callbacks = nullptr;
  size_t num_send_ops = 0;
  size_t num_recv_ops = 0;
  int launch_id = 0;
  const int64_t* non_donatable_input_indices = nullptr;
  size_t num_non_donatable_input_indices = 0;
  ExecuteContext* context = nullptr;
  const char* call_location = nullptr;
  size_t num_tasks = 0;
  int* task_ids = nullptr;
  int64_t* incarnation_ids = nullptr;
  void* multi_slice_config = nullptr;  // 0.81 ends before this field
  bool use_major_to_minor_data_layout_for_callbacks = false;
  void* hlo_output_callbacks = nullptr;
  size_t num_hlo_output_callbacks = 0;
};

struct LoadedExecutable_Execute_Args {
  Head head{sizeof(LoadedExecutable_Execute_Args)};
  LoadedExecutable* executable = nullptr;
  ExecuteOptions* options = nullptr;
  Buffer* const* const* argument_lists = nullptr;  // [device][argument]
  size_t num_devices = 0;
  size_t num_args = 0;
  Buffer** const* output_lists = nullptr;    // [device][output], filled in
  Event** device_complete_events = nullptr;  // [device], filled in unless null
  Device* execute_device = nullptr;
};

// Topologies.

struct TopologyDescription_Create_Args {
  Head head{sizeof(TopologyDescription_Create_Args)};
  const char* topology_name = nullptr;
  size_t topology_name_size = 0;
  const NamedValue* create_options = nullptr;
  size_t num_options = 0;
  TopologyDescription* topology = nullptr;
};

struct TopologyDescription_Destroy_Args {
  Head head{sizeof(TopologyDescription_Destroy_Args)};
  TopologyDescription* topology = nullptr;
};

struct TopologyDescription_PlatformName_Args {
  Head head{sizeof(TopologyDescription_PlatformName_Args)};
  const TopologyDescription* topology = nullptr;
  const char* platform_name = nullptr;
  size_t platform_name_size = 0;
};

struct TopologyDescription_PlatformVersion_Args {
  Head head{sizeof(TopologyDescription_PlatformVersion_Args)};
  const TopologyDescription* topology = nullptr;
  const char* platform_version = nullptr;
  size_t platform_version_size = 0;
};

struct TopologyDescription_GetDeviceDescriptions_Args {
  Head head{sizeof(TopologyDescription_GetDeviceDescriptions_Args)};
  const TopologyDescription* topology = nullptr;
  DeviceDescription* const* descriptions = nullptr;
  size_t num_descriptions = 0;
};

struct Compile_Args {
  Head head{sizeof(Compile_Args)};
  const TopologyDescription* topology = nullptr;
  const Program* program = nullptr;
  const char* compile_options = nullptr;
  size_t compile_options_size = 0;
  Client* client = nullptr;
  Executable* executable = nullptr;
};

template <class Args>
using Function = Error* (*)(Args*);

// The function table, in the ABI's order. Entries of type void* are not used here.
struct Api {
  Head head;
  Api_Version pjrt_api_version;

  void (*Error_Destroy)(Error_Destroy_Args*);
  void (*Error_Message)(Error_Message_Args*);
  Function<Error_GetCode_Args> Error_GetCode;

  Function<Plugin_Initialize_Args> Plugin_Initialize;
  Function<Plugin_Attributes_Args> Plugin_Attributes;

  Function<Event_Destroy_Args> Event_Destroy;
  Function<Event_IsReady_Args> Event_IsReady;
  Function<Event_Error_Args> Event_Error;
  Function<Event_Await_Args> Event_Await;
  Function<Event_OnReady_Args> Event_OnReady;

  Function<Client_Create_Args> Client_Create;
  Function<Client_Destroy_Args> Client_Destroy;
  Function<Client_PlatformName_Args> Client_PlatformName;
  Function<Client_ProcessIndex_Args> Client_ProcessIndex;
  Function<Client_PlatformVersion_Args> Client_PlatformVersion;
  Function<Client_Devices_Args> Client_Devices;
  Function<Client_AddressableDevices_Args> Client_AddressableDevices;
  void* Client_LookupDevice;
  void* Client_LookupAddressableDevice;
  void* Client_AddressableMemories;
  Function<Client_Compile_Args> Client_Compile;
  void* Client_DefaultDeviceAssignment;
  Function<Client_BufferFromHostBuffer_Args> Client_BufferFromHostBuffer;

  Function<DeviceDescription_Id_Args> DeviceDescription_Id;
  Function<DeviceDescription_ProcessIndex_Args> DeviceDescription_ProcessIndex;
  Function<DeviceDescription_Attributes_Args> DeviceDescription_Attributes;
  Function<DeviceDescription_Kind_Args> DeviceDescription_Kind;
  void* DeviceDescription_DebugString;
  Function<DeviceDescription_ToString_Args> DeviceDescription_ToString;

  Function<Device_GetDescription_Args> Device_GetDescription;
  void* Device_IsAddressable;
  Function<Device_LocalHardwareId_Args> Device_LocalHardwareId;
  void* Device_AddressableMemories;
  void* Device_DefaultMemory;
  Function<Device_MemoryStats_Args> Device_MemoryStats;

  void* Memory_Id;
  void* Memory_Kind;
  void* Memory_DebugString;
  void* Memory_ToString;
  void* Memory_AddressableByDevices;

  Function<Executable_Destroy_Args> Executable_Destroy;
  Function<Executable_Name_Args> Executable_Name;
  Function<Executable_NumReplicas_Args> Executable_NumReplicas;
  Function<Executable_NumPartitions_Args> Executable_NumPartitions;
  Function<Executable_NumOutputs_Args> Executable_NumOutputs;
  Function<Executable_SizeOfGeneratedCodeInBytes_Args> Executable_SizeOfGeneratedCodeInBytes;
  Function<Executable_GetCostAnalysis_Args> Executable_GetCostAnalysis;
  void* Executable_OutputMemoryKinds;
  Function<Executable_OptimizedProgram_Args> Executable_OptimizedProgram;
  Function<Executable_Serialize_Args> Executable_Serialize;

  Function<LoadedExecutable_Destroy_Args> LoadedExecutable_Destroy;
  Function<LoadedExecutable_GetExecutable_Args> LoadedExecutable_GetExecutable;
  Function<LoadedExecutable_AddressableDevices_Args> LoadedExecutable_AddressableDevices;
  void* LoadedExecutable_Delete;
  void* LoadedExecutable_IsDeleted;
  Function<LoadedExecutable_Execute_Args> LoadedExecutable_Execute;
  Function<Executable_DeserializeAndLoad_Args> Executable_DeserializeAndLoad;
  void* LoadedExecutable_Fingerprint;

  Function<Buffer_Destroy_Args> Buffer_Destroy;
  Function<Buffer_ElementType_Args> Buffer_ElementType;
  Function<Buffer_Dimensions_Args> Buffer_Dimensions;
  Function<Buffer_UnpaddedDimensions_Args> Buffer_UnpaddedDimensions;
  Function<Buffer_DynamicDimensionIndices_Args> Buffer_DynamicDimensionIndices;
  void* Buffer_GetMemoryLayout;
  Function<Buffer_OnDeviceSizeInBytes_Args> Buffer_OnDeviceSizeInBytes;
  Function<Buffer_Device_Args> Buffer_Device;
  void* Buffer_Memory;
  Function<Buffer_Delete_Args> Buffer_Delete;
  Function<Buffer_IsDeleted_Args> Buffer_IsDeleted;
  Function<Buffer_CopyToDevice_Args> Buffer_CopyToDevice;
  Function<Buffer_ToHostBuffer_Args> Buffer_ToHostBuffer;
  Function<Buffer_IsOnCpu_Args> Buffer_IsOnCpu;
  Function<Buffer_ReadyEvent_Args> Buffer_ReadyEvent;
  Function<Buffer_UnsafePointer_Args> Buffer_UnsafePointer;
  Function<Buffer_IncreaseExternalReferenceCount_Args> Buffer_IncreaseExternalReferenceCount;
  Function<Buffer_DecreaseExternalReferenceCount_Args> Buffer_DecreaseExternalReferenceCount;
  void* Buffer_OpaqueDeviceMemoryDataPointer;

  void* CopyToDeviceStream_Destroy;
  void* CopyToDeviceStream_AddChunk;
  void* CopyToDeviceStream_TotalBytes;
  void* CopyToDeviceStream_GranuleSize;
  void* CopyToDeviceStream_CurrentBytes;

  Function<TopologyDescription_Create_Args> TopologyDescription_Create;
  Function<TopologyDescription_Destroy_Args> TopologyDescription_Destroy;
  Function<TopologyDescription_PlatformName_Args> TopologyDescription_PlatformName;
  Function<TopologyDescription_PlatformVersion_Args> TopologyDescription_PlatformVersion;
  Function<TopologyDescription_GetDeviceDescriptions_Args> TopologyDescription_GetDeviceDescriptions;
  void* TopologyDescription_Serialize;
  void* TopologyDescription_Attributes;
  Function<Compile_Args> Compile;

  Function<Executable_OutputElementTypes_Args> Executable_OutputElementTypes;
  Function<Executable_OutputDimensions_Args> Executable_OutputDimensions;
  void* Buffer_CopyToMemory;
  Function<Client_CreateViewOfDeviceBuffer_Args> Client_CreateViewOfDeviceBuffer;
  Function<Executable_Fingerprint_Args> Executable_Fingerprint;
  void* Client_TopologyDescription;
  Function<Executable_GetCompiledMemoryStats_Args> Executable_GetCompiledMemoryStats;
  void* Memory_Kind_Id;
  void* ExecuteContext_Create;
  void* ExecuteContext_Destroy;
  Function<Buffer_CopyRawToHost_Args> Buffer_CopyRawToHost;
  void* AsyncHostToDeviceTransferManager_Destroy;
  void* AsyncHostToDeviceTransferManager_TransferData;
  void* Client_CreateBuffersForAsyncHostToDevice;
  void* AsyncHostToDeviceTransferManager_RetrieveBuffer;
  void* AsyncHostToDeviceTransferManager_Device;
  void* AsyncHostToDeviceTransferManager_BufferCount;
  void* AsyncHostToDeviceTransferManager_BufferSize;
  void* AsyncHostToDeviceTransferManager_SetBufferError;
  void* AsyncHostToDeviceTransferManager_AddMetadata;
  void* Client_DmaMap;
  void* Client_DmaUnmap;
  Function<Client_CreateUninitializedBuffer_Args> Client_CreateUninitializedBuffer;
  void* Client_UpdateGlobalProcessInfo;
  void* TopologyDescription_Deserialize;
  void* Client_CreateAliasBuffer;
  void* Client_FulfillAliasBuffer;
  void* LoadedExecutable_GetDeviceAssignment;

  // The table of 0.81 ends here.
  void* Client_CreateErrorBuffer;
  void* AsyncHostToDeviceTransferManager_TransferLiteral;
  void* Buffer_CopyRawToHostFuture;
  void* Device_PoisonExecution;
  void* Device_CreateAsyncTrackingEvent;
  void* AsyncTrackingEvent_Destroy;
  void* Executable_GetCompileOptions;
  void* Buffer_DonateWithControlDependency;
  void* Event_Create;
  void* Event_Set;
  void* Device_GetAttributes;
  void* Client_Load;
  void* LoadedExecutable_AddressableDeviceLogicalIds;
  void* Buffer_Bitcast;
  void* Error_ForEachPayload;
  void* TopologyDescription_Fingerprint;
  void* Executable_ParameterMemoryKinds;
  Function<Device_ClearMemoryStats_Args> Device_ClearMemoryStats;
};

using GetPjrtApi = const Api* (*)();

}  // namespace c
}  // namespace tpu::pjrt
