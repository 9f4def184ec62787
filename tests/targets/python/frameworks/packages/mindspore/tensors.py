# SPDX-License-Identifier: MulanPSL-2.0
import ctypes

KIND, ROUNDS_TO = 2, 512  # SIM_POOL_MINDSPORE

npu = ctypes.CDLL("libascendcl.so", mode=ctypes.RTLD_GLOBAL)
assert ctypes.CDLL(None).aclInit(None) == 0
assert ctypes.CDLL(None).aclrtSetDevice(0) == 0
pools = ctypes.CDLL("libsimpool.so")
for name in ("sim_pool_new", "sim_pool_alloc"):
    getattr(pools, name).restype = ctypes.c_void_p
pool = ctypes.c_void_p(pools.sim_pool_new(KIND, 0))


class Tensor:
    def __init__(self, nbytes):
        self.nbytes = nbytes
        self._address = pools.sim_pool_alloc(pool, ctypes.c_size_t(nbytes))
        assert self._address

    def data_ptr(self):
        return self._address

    def __del__(self):
        pools.sim_pool_dealloc(pool, ctypes.c_void_p(self._address))


class Parameter(Tensor):
    inited_param = None

    def __init__(self, nbytes, name="Parameter"):
        super().__init__(nbytes)
        self.name = name


class ParameterTuple(tuple):
    def clone(self, prefix):
        return ParameterTuple(Parameter(p.nbytes, f"{prefix}.{p.name}") for p in self)
