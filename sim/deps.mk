# SPDX-License-Identifier: MulanPSL-2.0
# Who links whom, as in the vendor's stack: driver < runtime < acl < frameworks < jobs.
SIM_NEEDS_libascend_hal := libsimstate
SIM_NEEDS_libdcmi := libsimstate
SIM_NEEDS_libruntime := libascend_hal libprofapi libsimstate
SIM_NEEDS_libascendcl_impl := libruntime libascend_hal
SIM_NEEDS_libascendcl := libascendcl_impl libruntime libsimstate
SIM_NEEDS_libmspti := libsimstate
SIM_NEEDS_libms_tools_ext := libsimstate
SIM_NEEDS_libsimpool := libascendcl libms_tools_ext
SIM_NEEDS_libatb := libascendcl libruntime
SIM_NEEDS_libhccl := libruntime libascend_hal libsimstate
SIM_NEEDS_npu-smi := libdcmi libsimstate
SIM_NEEDS_simtrain := libhccl libsimstate libatb libsimpool libms_tools_ext libascendcl libruntime libascend_hal
