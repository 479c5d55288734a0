# SPDX-License-Identifier: Apache-2.0
"""The few functions of HIP's API that a launch takes, by ctypes on libquernsim."""

import ctypes

POINTER = ctypes.c_void_p
LAUNCH_BUFFER, LAUNCH_SIZE, LAUNCH_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
SPARE = 1 << 16  # bytes behind each buffer: the kernels load ahead of what they use


class Hip:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library)

    def call(self, name, *arguments):
        error = getattr(self.lib, name)(*arguments)
        if error:
            raise SystemExit(f"{name}: HIP error {error}")

    def make(self, name, *arguments):
        """Calls a function whose first argument is where it leaves a handle."""
        handle = POINTER()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def buffer(self, size, byte):
        """Returns a new buffer's address. Every byte of it is `byte`, on whatever stream it is used."""
        memory = self.make("hipMalloc", ctypes.c_size_t(size + SPARE))
        self.call("hipMemset", memory, ctypes.c_int(byte), ctypes.c_size_t(size + SPARE))
        self.call("hipDeviceSynchronize")
        return memory.value

    def kernel(self, image, name):
        module = self.make("hipModuleLoadData", image)
        return self.make("hipModuleGetFunction", module, name.encode())

    def launch(self, kernel, grid, threads, block):
        """Launches a kernel with a block of arguments. Returns the microseconds between events before and behind."""
        data, size = ctypes.create_string_buffer(block, len(block)), ctypes.c_size_t(len(block))
        extra = (POINTER * 5)(LAUNCH_BUFFER, ctypes.addressof(data), LAUNCH_SIZE, ctypes.addressof(size), LAUNCH_END)
        before, behind = self.make("hipEventCreate"), self.make("hipEventCreate")
        self.call("hipEventRecord", before, None)
        self.call("hipModuleLaunchKernel", kernel, *map(ctypes.c_uint, (*grid, threads, 1, 1, 0)), None, None, extra)
        self.call("hipEventRecord", behind, None)
        self.call("hipEventSynchronize", behind)
        ms = ctypes.c_float()
        self.call("hipEventElapsedTime", ctypes.byref(ms), before, behind)
        return ms.value * 1e3
