// Storages that grow and shrink.
#pragma once

#include <c10/core/StorageImpl.h>

namespace tpu {

// The first min(old, new) bytes stay; the address may change, as on any device.
void resize_storage(c10::StorageImpl& storage, size_t nbytes);

}  // namespace tpu
