/* SPDX-License-Identifier: Apache-2.0 */
/* node_facts.c - small files of /sys and /proc, limits of the process, and NVML. */
#include "probe/node_facts.h"

#include "base/cgroup.h"
#include "base/file.h"
#include "base/version.h"
#include "comm/mpi_version.h"
#include "topology/gpu_info.h"
#include "topology/node_info.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { MAX_XIDS = 256, MAX_CARDS = 256 };

static const char *system_root(void)
{
    const char *root = getenv("MICS_SYSTEM_ROOT");

    return root ? root : "";
}

/* The first line of a small file; false: it cannot be read, or is empty. */
static bool read_line(char line[128], const char *fmt, ...) MICS_PRINTF(2, 3);
static bool read_line(char line[128], const char *fmt, ...)
{
    char path[MICS_PATH_MAX];
    va_list args;
    int length = snprintf(path, sizeof path, "%s", system_root());

    va_start(args, fmt);
    length += vsnprintf(path + length, sizeof path - (size_t)length, fmt, args);
    va_end(args);
    line[0] = '\0';
    FILE *file = length < (int)sizeof path ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    if (!fgets(line, 128, file))
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line[0] != '\0';
}

/* A whole number of 0 or more; -1: there is none. */
static long long parse_count(const char *text)
{
    return isdigit((unsigned char)text[0]) ? strtoll(text, NULL, 10) : -1;
}

double mics_time_of_day_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

long long mics_node_throttled(void)
{
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    char line[128];
    long long sum = -1;

    for (long i = 0; i < cpus; i++)
        if (read_line(line, "/sys/devices/system/cpu/cpu%ld/thermal_throttle/core_throttle_count",
                      i) &&
            parse_count(line) >= 0)
            sum = (sum < 0 ? 0 : sum) + parse_count(line);
    return sum;
}

/* Bytes of "MemAvailable" in /proc/meminfo; 0: unknown. */
static uint64_t available_bytes(void)
{
    char path[MICS_PATH_MAX], line[128];
    unsigned long long kib = 0;

    snprintf(path, sizeof path, "%.900s/proc/meminfo", system_root());
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib * 1024;
}

static bool set_bytes(json_t *out, const char *key, uint64_t bytes)
{
    return json_object_set_new(out, key, json_integer((json_int_t)bytes)) == 0;
}

static bool add_versions(json_t *out)
{
    char mpi[128], driver[96];
    struct utsname system;
    json_t *versions = json_object();
    bool ok;

    mics_mpi_version(mpi);
    ok = json_object_set_new(versions, "mics", json_string(MICS_VERSION)) == 0 &&
         json_object_set_new(versions, "mpi", json_string(mpi)) == 0;
    if (ok && uname(&system) == 0)
        ok = json_object_set_new(versions, "kernel", json_string(system.release)) == 0;
    if (ok && mics_nvml_driver(driver, NULL) == MICS_OK)
        ok = json_object_set_new(versions, "nvidia", json_string(driver)) == 0;
    return json_object_set_new(out, "versions", versions) == 0 && ok;
}

static bool add_host(json_t *out)
{
    const long long throttled = mics_node_throttled();
    const uint64_t available = available_bytes();
    const char *slurm_node = getenv("SLURMD_NODENAME");
    struct statvfs disk;
    struct rlimit limit;
    char line[128];
    bool ok = json_object_set_new(out, "cores", json_integer(mics_processors())) == 0 &&
              set_bytes(out, "memory_bytes", mics_node_memory_bytes());

    if (slurm_node && *slurm_node)
        ok = json_object_set_new(out, "slurm_node", json_string(slurm_node)) == 0 && ok;
    if (available > 0)
        ok = set_bytes(out, "memory_free_bytes", available) && ok;
    if (statvfs("/dev/shm", &disk) == 0)
        ok = set_bytes(out, "shm_bytes", (uint64_t)disk.f_blocks * disk.f_frsize) &&
             set_bytes(out, "shm_free_bytes", (uint64_t)disk.f_bavail * disk.f_frsize) && ok;
    if (statvfs(".", &disk) == 0)
        ok = set_bytes(out, "disk_free_bytes", (uint64_t)disk.f_bavail * disk.f_frsize) && ok;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        ok = set_bytes(out, "memlock_bytes", limit.rlim_cur) && ok;
    if (read_line(line, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
        ok = json_object_set_new(out, "governor", json_string(line)) == 0 && ok;
    if (throttled >= 0)
        ok = json_object_set_new(out, "throttled", json_integer(throttled)) == 0 && ok;
    return ok;
}

/* Names in a folder, in order; NULL if there is no such folder. The caller calls free_names(). */
static struct dirent **list_names(const char *folder, int *count)
{
    char path[MICS_PATH_MAX];
    struct dirent **names = NULL;

    snprintf(path, sizeof path, "%.500s%.500s", system_root(), folder);
    *count = scandir(path, &names, NULL, alphasort);
    return *count < 0 ? NULL : names;
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* A card has a device; bridges, tunnels and pairs of virtual interfaces have none. */
static bool is_card(const char *name)
{
    char path[MICS_PATH_MAX];

    snprintf(path, sizeof path, "%.500s/sys/class/net/%.255s/device", system_root(), name);
    return access(path, F_OK) == 0;
}

static json_t *describe_interface(const char *name)
{
    char line[128];
    const bool up = read_line(line, "/sys/class/net/%s/operstate", name) && strcmp(line, "up") == 0;
    json_t *out = json_pack("{s:s, s:b}", "name", name, "up", (int)up);
    long long value;

    value = read_line(line, "/sys/class/net/%s/speed", name) ? parse_count(line) : -1;
    if (value > 0)
        json_object_set_new(out, "bits_per_s", json_integer(value * 1000000));
    value = read_line(line, "/sys/class/net/%s/mtu", name) ? parse_count(line) : -1;
    if (value > 0)
        json_object_set_new(out, "mtu", json_integer(value));
    return out;
}

static bool add_interfaces(json_t *out)
{
    json_t *list = json_array();
    int count;
    struct dirent **names = list_names("/sys/class/net", &count);
    bool ok = true;

    for (int i = 0; i < count && ok && i < MAX_CARDS; i++)
        if (names[i]->d_name[0] != '.' && is_card(names[i]->d_name))
            ok = json_array_append_new(list, describe_interface(names[i]->d_name)) == 0;
    free_names(names, count);
    return json_object_set_new(out, "interfaces", list) == 0 && ok;
}

/* "errors" of a port since its driver was loaded: of bits on the cable, and of the link. */
static void add_port_errors(json_t *out, const char *card, const char *port)
{
    static const char *const counters[] = {"symbol_error", "link_error_recovery", "link_downed",
                                           "local_link_integrity_errors", "port_rcv_errors"};
    char line[128];
    long long sum = -1;

    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (read_line(line, "/sys/class/infiniband/%s/ports/%s/counters/%s", card, port,
                      counters[i]) &&
            parse_count(line) >= 0)
            sum = (sum < 0 ? 0 : sum) + parse_count(line);
    if (sum >= 0)
        json_object_set_new(out, "errors", json_integer(sum));
}

/* A port: its state is "4: ACTIVE", its rate "100 Gb/sec (4X EDR)". */
static json_t *describe_port(const char *card, const char *port)
{
    char line[128], *end;
    json_t *out = json_pack("{s:s, s:s}", "name", card, "port", port);

    if (read_line(line, "/sys/class/infiniband/%s/ports/%s/state", card, port)) {
        const char *state = strchr(line, ' ');

        json_object_set_new(out, "state", json_string(state ? state + 1 : line));
    }
    if (read_line(line, "/sys/class/infiniband/%s/ports/%s/rate", card, port)) {
        const double rate = strtod(line, &end);

        if (end > line)
            json_object_set_new(out, "gbit_per_s", json_real(rate));
    }
    add_port_errors(out, card, port);
    if (read_line(line, "/sys/class/infiniband/%s/ports/%s/link_layer", card, port))
        json_object_set_new(out, "link_layer", json_string(line));
    return out;
}

static bool add_ports(json_t *list, const char *card)
{
    char folder[MICS_PATH_MAX];
    struct dirent **names;
    int count;
    bool ok = true;

    snprintf(folder, sizeof folder, "/sys/class/infiniband/%.255s/ports", card);
    names = list_names(folder, &count);
    for (int i = 0; i < count && ok; i++)
        if (names[i]->d_name[0] != '.')
            ok = json_array_append_new(list, describe_port(card, names[i]->d_name)) == 0;
    free_names(names, count);
    return ok;
}

static bool add_rdma(json_t *out)
{
    json_t *list = json_array();
    int count;
    struct dirent **names = list_names("/sys/class/infiniband", &count);
    bool ok = true;

    for (int i = 0; i < count && ok && i < MAX_CARDS; i++)
        if (names[i]->d_name[0] != '.')
            ok = add_ports(list, names[i]->d_name);
    free_names(names, count);
    return json_object_set_new(out, "rdma", list) == 0 && ok;
}

static bool add_health(json_t *gpu, const struct mics_gpu_health *health)
{
    const struct {
        const char *key;
        int64_t value;
    } members[] = {
        {"ecc", health->ecc},
        {"ecc_errors", health->ecc_errors},
        {"remap_pending", health->remap_pending},
        {"remap_failed", health->remap_failed},
        {"throttle", health->throttle},
        {"celsius", health->celsius},
        {"limit_celsius", health->limit_celsius},
        {"power_limit_mw", health->power_limit_mw},
        {"default_power_limit_mw", health->default_power_limit_mw},
        {"persistence", health->persistence},
        {"mig", health->mig},
        {"processes", health->processes},
        {"link_recoveries", health->link_recoveries},
    };

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (members[i].value >= 0 &&
            json_object_set_new(gpu, members[i].key, json_integer(members[i].value)) != 0)
            return false;
    return true;
}

/* "peers": how the GPU reaches the others of the node, in their order; null: unknown. */
static bool add_peers(json_t *out, const struct mics_nvml_gpu *gpu, uint32_t count)
{
    json_t *list = json_array();
    bool any = false, ok = true;

    for (uint32_t i = 0; i < count && i < MICS_GPU_PEERS && ok; i++) {
        const char *name = mics_gpu_peer_name((enum mics_gpu_peer)gpu->peers[i]);

        any |= name != NULL;
        ok = json_array_append_new(list, name ? json_string(name) : json_null()) == 0;
    }
    if (ok && any)
        ok = json_object_set(out, "peers", list) == 0;
    json_decref(list);
    return ok;
}

static json_t *describe_gpu(const struct mics_nvml_gpu *gpu, uint32_t count)
{
    json_t *out = json_pack("{s:s, s:s, s:I, s:I, s:{s:i, s:i, s:i}, s:i}", "name", gpu->name,
                            "pci_id", gpu->pci_id, "memory_bytes", (json_int_t)gpu->memory_bytes,
                            "used_bytes", (json_int_t)(gpu->memory_bytes - gpu->free_bytes), "pcie",
                            "generation", (int)gpu->pcie_generation, "width", (int)gpu->pcie_width,
                            "width_now", (int)gpu->pcie_width_now, "nvlinks", (int)gpu->nvlinks);

    if (out && add_health(out, &gpu->health) && add_peers(out, gpu, count))
        return out;
    json_decref(out);
    return NULL;
}

static bool add_gpus(json_t *out)
{
    struct mics_nvml_gpu *gpus = NULL;
    struct mics_err why = {""};
    uint32_t count = 0;
    const enum mics_status status = mics_nvml_list(&gpus, &count, &why);
    json_t *list;
    bool ok = true;

    if (status == MICS_ERR_UNSUPPORTED)
        return true;
    if (status != MICS_OK)
        return json_object_set_new(out, "gpus_error", json_string(why.text)) == 0;
    list = json_array();
    for (uint32_t i = 0; i < count && ok; i++)
        ok = json_array_append_new(list, describe_gpu(&gpus[i], count)) == 0;
    free(gpus);
    return json_object_set_new(out, "gpus", list) == 0 && ok;
}

static bool is_listed(const json_t *list, const char *pci_id, int xid)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);

        if (json_integer_value(json_object_get(entry, "xid")) == xid &&
            strcmp(json_string_value(json_object_get(entry, "pci_id")), pci_id) == 0)
            return true;
    }
    return false;
}

/* Add what a record of the kernel's log says of a GPU: "NVRM: Xid (PCI:0000:1b:00): 79, ...". Each
 * number is listed once for each GPU, so that repeated ones do not displace others. */
static bool add_xid(json_t *list, const char *record)
{
    const char *text = strstr(record, "NVRM: Xid (PCI:");
    char pci_id[24];
    int xid;

    if (!text || json_array_size(list) >= MAX_XIDS ||
        sscanf(text, "NVRM: Xid (PCI:%23[0-9a-fA-F:.]): %d", pci_id, &xid) != 2 ||
        is_listed(list, pci_id, xid))
        return true;
    return json_array_append_new(list, json_pack("{s:s, s:i}", "pci_id", pci_id, "xid", xid)) == 0;
}

/* The kernel's log, if this user may read it: each read() of the device returns one record. */
static bool add_xids(json_t *out)
{
    char path[MICS_PATH_MAX], record[8192], *rest;
    json_t *list = json_array();
    ssize_t size;
    bool ok = true;

    snprintf(path, sizeof path, "%.900s/dev/kmsg", system_root());
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    while (ok && fd >= 0) {
        size = read(fd, record, sizeof record - 1);
        if (size < 0 && errno == EPIPE) /* older records were overwritten meanwhile */
            continue;
        if (size <= 0)
            break;
        record[size] = '\0';
        for (char *line = strtok_r(record, "\n", &rest); ok && line;
             line = strtok_r(NULL, "\n", &rest))
            ok = add_xid(list, line);
    }
    if (fd < 0) {
        json_decref(list);
        return true;
    }
    close(fd);
    return json_object_set_new(out, "xids", list) == 0 && ok;
}

enum mics_status mics_node_facts(json_t **out, struct mics_err *err)
{
    json_t *facts = json_object();

    if (add_versions(facts) && add_host(facts) && add_interfaces(facts) && add_rdma(facts) &&
        add_gpus(facts) && add_xids(facts)) {
        *out = facts;
        return MICS_OK;
    }
    json_decref(facts);
    return mics_err_nomem(err);
}
