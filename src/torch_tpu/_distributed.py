"""The process-group backends "tpu" and "tpu_dist" (one thing under two names), for tensors on the device."""

import datetime
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from torch_tpu import _C


def register() -> None:
    """Makes the backends known to torch.distributed: ``init_process_group()`` uses "tpu" for tpu tensors."""
    if not dist.is_available():
        return
    for name in ("tpu", "tpu_dist"):
        if not hasattr(dist.Backend, name.upper()):
            dist.Backend.register_backend(name, _create, extended_api=True, devices=["tpu"])


def _create(options: Any, _pg_options: Any) -> Any:
    """A backend of a group of processes. They share no PJRT client, so the data goes through the host's Gloo."""
    timeout = options.timeout
    if not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    host = distributed_c10d.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=timeout)
    host.options.global_ranks_in_group = options.global_ranks_in_group
    host.options.group_name = options.group_id
    return _C.HostStagedBackend(host)
