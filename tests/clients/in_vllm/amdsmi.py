# SPDX-License-Identifier: Apache-2.0
"""Stands for AMD's library of that name, which vLLM asks for GPUs: one MI300X."""


class AmdSmiException(Exception):
    pass


class AmdSmiMemoryType:
    VRAM = 0


def amdsmi_init(*_):
    pass


def amdsmi_shut_down():
    pass


def amdsmi_get_processor_handles():
    return [0]


def amdsmi_get_gpu_asic_info(_):
    return {"target_graphics_version": "gfx942", "device_id": "0x74a1", "market_name": "AMD Instinct MI300X"}


def amdsmi_get_gpu_device_uuid(_):
    return "0"


def amdsmi_get_gpu_memory_total(*_):
    return 192 << 30


def amdsmi_topo_get_link_type(*_):
    return {}


def amdsmi_topo_get_numa_node_number(_):
    return 0
