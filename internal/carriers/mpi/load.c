/*
 * Finding a libmpi, and telling which binary interface it has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "libmpi.h"

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* Whether name is that of a library with the C functions: neither C++'s nor Fortran's. */
static int is_libmpi(const char *name) {
  static const char *const stems[] = {"libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_intel.so", "libmpi_cray.so", "libmpi_abi_"};
  for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
    if (strncmp(name, stems[i], strlen(stems[i])) == 0) return 1;
  }
  return 0;
}

/* The libraries of MPI that are in the process already. Not all are of use: some builds of PyTorch are linked with one. */
struct present {
  int n;
  char path[8][GV_REASON_BYTES];
};

static int note(struct dl_phdr_info *info, size_t size, void *to) {
  (void)size;
  const char *name = info->dlpi_name;
  struct present *all = to;
  if (name == NULL || !is_libmpi(base_name(name)) || strlen(name) >= GV_REASON_BYTES) return 0;
  if (all->n < (int)(sizeof all->path / sizeof *all->path)) strcpy(all->path[all->n++], name);
  return 0;
}

/* Whether a library that is present has been initialised. */
static int initialized(const char *path) {
  void *l = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (l == NULL) return 0;
  int (*ask)(int *) = (int (*)(int *))dlsym(l, "MPI_Initialized"), is = 0;
  if (ask != NULL) ask(&is);
  dlclose(l);
  return is;
}

static int is_open_mpi(const char *path) {
  void *l = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  int is = l != NULL && dlsym(l, "ompi_mpi_comm_world") != NULL;
  if (l != NULL) dlclose(l);
  return is;
}

int gv_in_use(void) {
  struct present all = {0};
  dl_iterate_phdr(note, &all);
  for (int i = 0; i < all.n; i++) {
    if (initialized(all.path[i])) return 1;
  }
  return 0;
}

enum launcher { UNKNOWN, OPEN_MPI, HYDRA };

/* Hydra, which starts the processes of MPICH, sets PMI_RANK or PMI_FD; Open MPI's mpirun does not. */
static enum launcher launcher(void) {
  if (getenv("OMPI_COMM_WORLD_SIZE") != NULL) return OPEN_MPI;
  return getenv("PMI_RANK") != NULL || getenv("PMI_FD") != NULL ? HYDRA : UNKNOWN;
}

/* The library to use of those present, or NULL. It is an initialised one, because two in one process would not know of
 * each other; else one that suits the launcher. Of several, one that passes calls on to another (the standard interface
 * over Open MPI) comes first. */
static const char *choose(const struct present *all) {
  const char *best = NULL;
  int best_is = 0;
  for (int i = 0; i < all->n; i++) {
    const char *path = all->path[i];
    int is = initialized(path);
    if (!is && launcher() != UNKNOWN && is_open_mpi(path) != (launcher() == OPEN_MPI)) continue;
    if (best == NULL || is > best_is || (is == best_is && strncmp(base_name(path), "libmpi_abi", 10) == 0)) best = path, best_is = is;
  }
  return best;
}

/* If the process has another libmpi, the new one must find its own functions, not the other's. */
static void *open_library(const char *name, const struct present *all) {
  int among = RTLD_GLOBAL;
#ifdef RTLD_DEEPBIND
  if (all->n > 0) among = RTLD_LOCAL | RTLD_DEEPBIND;
#endif
  return dlopen(name, RTLD_NOW | among);
}

static void *find(const char *name, char *path, char *why) {
  struct present all = {0};
  dl_iterate_phdr(note, &all);
  if (name == NULL) name = choose(&all);
  if (name != NULL) {
    void *l = open_library(name, &all);
    if (l == NULL) snprintf(why, GV_REASON_BYTES, "%s", dlerror());
    snprintf(path, GV_REASON_BYTES, "%s", name);
    return l;
  }
  path[0] = 0;
  static const char *const open_mpi_first[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi.so"};
  static const char *const mpich_first[] = {"libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi.so.40", "libmpi.so"};
  enum { NAMES = sizeof mpich_first / sizeof *mpich_first };
  const char *const *names = launcher() == HYDRA ? mpich_first : open_mpi_first;
  for (int i = 0; i < NAMES; i++) {
    void *l = open_library(names[i], &all);
    if (l != NULL) {
      snprintf(path, GV_REASON_BYTES, "%s", names[i]);
      return l;
    }
    const char *error = dlerror();
    if (access(names[i], F_OK) == 0 || strstr(error, "No such file") == NULL) snprintf(why, GV_REASON_BYTES, "%s", error); /* it is there, and broken */
  }
  if (why[0] == 0) snprintf(why, GV_REASON_BYTES, "no libmpi is installed (libmpi.so.40 of Open MPI, libmpich.so.12 or libmpi.so.12 of MPICH, libmpi_abi.so)");
  return NULL;
}

/* An address that is a handle of Open MPI, or 0 and why. */
static uintptr_t object(void *l, const char *name, char *why) {
  void *p = dlsym(l, name);
  if (p == NULL) snprintf(why, GV_REASON_BYTES, "it exports no %s", name);
  return (uintptr_t)p;
}

static int open_mpi(struct gv_library *m, void *l, char *why) {
  static const char *const dtypes[GV_DTYPES] = {"ompi_mpi_uint8_t", "ompi_mpi_int8_t", "ompi_mpi_uint16_t", "ompi_mpi_int16_t",
                                                "ompi_mpi_int32_t", "ompi_mpi_int64_t", "ompi_mpi_uint16_t", "ompi_mpi_float",
                                                "ompi_mpi_double", "ompi_mpi_uint8_t", "ompi_mpi_uint16_t"};
  static const char *const ops[GV_OPS] = {NULL, "ompi_mpi_op_sum", NULL, "ompi_mpi_op_min", "ompi_mpi_op_max", "ompi_mpi_op_prod",
                                         "ompi_mpi_op_band", "ompi_mpi_op_bor", "ompi_mpi_op_bxor"};
  for (int i = 0; i < GV_DTYPES; i++) {
    if ((m->dtype[i] = object(l, dtypes[i], why)) == 0) return -1;
  }
  for (int i = 0; i < GV_OPS; i++) {
    if (ops[i] != NULL && (m->op[i] = object(l, ops[i], why)) == 0) return -1;
  }
  m->world = object(l, "ompi_mpi_comm_world", why);
  m->null = object(l, "ompi_mpi_comm_null", why);
  m->byte = object(l, "ompi_mpi_byte", why);
  m->errors_return = object(l, "ompi_mpi_errors_return", why);
  m->status_ignore = NULL;
  m->thread_single = 0, m->thread_serialized = 2, m->thread_multiple = 3;
  return m->world != 0 && m->null != 0 && m->byte != 0 && m->errors_return != 0 ? 0 : -1;
}

static void mpich(struct gv_library *m) {
  static const uintptr_t dtypes[GV_DTYPES] = {0x4c00013b, 0x4c000137, 0x4c00023c, 0x4c000238, 0x4c000439, 0x4c00083a,
                                              0x4c00023c, 0x4c00040a, 0x4c00080b, 0x4c00013b, 0x4c00023c};
  static const uintptr_t ops[GV_OPS] = {0, 0x58000003, 0, 0x58000002, 0x58000001, 0x58000004, 0x58000006, 0x58000008, 0x5800000a};
  memcpy(m->dtype, dtypes, sizeof dtypes);
  memcpy(m->op, ops, sizeof ops);
  m->world = 0x44000000, m->null = 0x04000000, m->byte = 0x4c00010d, m->errors_return = 0x54000001;
  m->status_ignore = (void *)1;
  m->thread_single = 0, m->thread_serialized = 2, m->thread_multiple = 3;
}

static void standard(struct gv_library *m) {
  static const uintptr_t dtypes[GV_DTYPES] = {0x241, 0x240, 0x249, 0x248, 0x250, 0x258, 0x249, 0x210, 0x214, 0x241, 0x249};
  static const uintptr_t ops[GV_OPS] = {0, 0x21, 0, 0x22, 0x23, 0x24, 0x28, 0x29, 0x2a};
  memcpy(m->dtype, dtypes, sizeof dtypes);
  memcpy(m->op, ops, sizeof ops);
  m->world = 0x101, m->null = 0x100, m->byte = 0x247, m->errors_return = 0x143;
  m->status_ignore = NULL;
  m->thread_single = 0, m->thread_serialized = 2048, m->thread_multiple = 4096;
}

int gv_load(struct gv_library *m, const char *name, char path[GV_REASON_BYTES], char why[GV_REASON_BYTES]) {
  memset(m, 0, sizeof *m);
  why[0] = 0;
  void *l = find(name, path, why);
  if (l == NULL) return -1;
#define LOOK_UP(fn)                                               \
  if ((m->function[GV_##fn] = dlsym(l, "MPI_" #fn)) == NULL) {    \
    snprintf(why, GV_REASON_BYTES, "it exports no MPI_" #fn); \
    return -1;                                                    \
  }
  GV_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  /* dlsym looks into what l depends on, too: the standard interface may lie over Open MPI's library. */
  Dl_info where;
  const char *file = path;
  if (dladdr(m->function[GV_Init_thread], &where) != 0 && where.dli_fname != NULL) file = where.dli_fname;
  if (file != path) snprintf(path, GV_REASON_BYTES, "%s", file);
  if (strncmp(base_name(file), "libmpi_abi", 10) == 0) {
    m->abi = GV_STANDARD;
    standard(m);
    return 0;
  }
  if (dlsym(l, "ompi_mpi_comm_world") != NULL) {
    m->abi = GV_OPEN_MPI;
    return open_mpi(m, l, why);
  }
  /* Without such objects handles are numbers, which only MPICH and its kin agree on. */
  char version[8192] = "";
  int n = 0;
  ((int (*)(char *, int *))m->function[GV_Get_library_version])(version, &n);
  static const char *const kin[] = {"MPICH", "Intel(R) MPI", "MVAPICH", "CRAY"};
  for (size_t i = 0; i < sizeof kin / sizeof *kin; i++) {
    if (strstr(version, kin[i]) != NULL) {
      m->abi = GV_MPICH;
      mpich(m);
      return 0;
    }
  }
  snprintf(why, GV_REASON_BYTES, "its binary interface is not known: it calls itself %.200s", version);
  return -1;
}

void gv_run(const struct gv_library *m, struct gv_call *call) {
  if (call->what == GV_Finalize) gv_note_finalizing();
  if (m->abi == GV_MPICH)
    gv_run_int(m, call);
  else
    gv_run_pointer(m, call);
}

uintptr_t gv_handle_at(const struct gv_library *m, const void *array, int index) {
  return m->abi == GV_MPICH ? (uintptr_t)((const unsigned int *)array)[index] : ((const uintptr_t *)array)[index];
}

uintptr_t gv_handle_of(const struct gv_library *m, uintptr_t argument) {
  return m->abi == GV_MPICH ? (uintptr_t)(unsigned int)argument : argument;
}

void gv_signals_on_alternate_stack(void) {
  for (int sig = 1; sig < NSIG; sig++) {
    struct sigaction a;
    if (sigaction(sig, NULL, &a) != 0 || a.sa_flags & SA_ONSTACK) continue;
    if (!(a.sa_flags & SA_SIGINFO) && (a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN)) continue;
    a.sa_flags |= SA_ONSTACK;
    sigaction(sig, &a, NULL);
  }
}
