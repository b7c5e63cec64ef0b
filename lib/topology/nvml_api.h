/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_api.h - the part of NVML's interface that is used, by its names and numbers. For gpu_info.c
 * and its tests. */
#ifndef MICS_TOPOLOGY_NVML_API_H
#define MICS_TOPOLOGY_NVML_API_H

typedef struct nvml_device *nvml_device;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_MAX_LINKS = 18,
};
enum { NVML_FIELD_NVLINK_STATE = 165 };
enum { NVML_REMOTE_GPU = 0, NVML_REMOTE_SWITCH = 2 };
enum { NVML_UNCORRECTED = 1, NVML_VOLATILE_ECC = 0 }; /* since the driver was loaded */
enum { NVML_TEMPERATURE_GPU = 0, NVML_THRESHOLD_SLOWDOWN = 1 };
enum { NVML_LINK_RECOVERY = 1 };
enum { NVML_P2P_READ = 0, NVML_P2P_WRITE = 1, NVML_P2P_NVLINK = 2 };
enum {
    NVML_P2P_OK = 0,
    NVML_P2P_CHIPSET_NOT_SUPPORTED = 1,
    NVML_P2P_GPU_NOT_SUPPORTED = 2,
    NVML_P2P_TOPOLOGY_NOT_SUPPORTED = 3,
    NVML_P2P_DISABLED_BY_REGKEY = 4,
    NVML_P2P_NOT_SUPPORTED = 5,
};
enum { /* reasons for which clocks are reduced now */
       NVML_HW_SLOWDOWN = 0x8,
       NVML_SW_THERMAL = 0x20,
       NVML_HW_THERMAL = 0x40,
       NVML_POWER_BRAKE = 0x80,
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

/* `scope` is the number of the link. */
struct nvml_field {
    unsigned id, scope;
    long long time_us, latency_us;
    int type, status;
    union {
        double as_double;
        unsigned as_unsigned;
        unsigned long long as_wide;
    } value;
};

#endif
