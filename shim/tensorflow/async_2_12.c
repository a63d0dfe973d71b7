/*
 * async_2_12.c: asynchronous kernels for TensorFlow 2.12, whose C interface has only
 * kernels that occupy a thread until their end.
 *
 * TensorFlow asks each kernel's object whether it is an AsyncOpKernel. So this file
 * makes a class derived from AsyncOpKernel, by hand: its table of virtual functions is
 * a copy of AsyncOpKernel's, with other destructors and another ComputeAsync, which is
 * the one pure virtual function. It relies on the Itanium ABI's rules for objects and
 * calls on Linux, on symbols that TensorFlow's library exports, and on the size of an
 * OpKernel. All of this is for 2.12 alone, which no longer changes.
 *
 * The C interface's TF_OpKernelConstruction and TF_OpKernelContext are the C++ objects
 * under another name, and its TF_AsyncOpKernelDoneCallback is the std::function that
 * ComputeAsync gets. So the same kernels work here as for later versions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "async.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

enum { OP_KERNEL_SIZE = 240 };

typedef void (*function)(void);

/* An object of the made class. */
struct object {
  union {
    const function *virtuals;
    char op_kernel[OP_KERNEL_SIZE];
  };
  struct async_kernel kernel;
  void *data;
};

/* A tensorflow::kernel_factory::OpKernelFactory. */
struct factory {
  const function *virtuals;
  struct async_kernel kernel;
};

struct string_view { /* std::string_view */
  size_t length;
  const char *start;
};

/* Functions of classes get the object first. Constructors and destructors are those for a base class. */
#define CXX_FUNCTIONS(F)                                                                            \
  F(void, op_kernel_make, (void *, TF_OpKernelConstruction *),                                      \
    "_ZN10tensorflow8OpKernelC2EPNS_20OpKernelConstructionE")                                       \
  F(void, op_kernel_end, (void *), "_ZN10tensorflow8OpKernelD2Ev")                                  \
  F(void, compute, (void *, TF_OpKernelContext *),                                                  \
    "_ZN10tensorflow13AsyncOpKernel7ComputeEPNS_15OpKernelContextE")                                \
  F(void, definition_make, (void **, const char *), "_ZN10tensorflow16KernelDefBuilderC1EPKc")      \
  F(void **, definition_device, (void **, const char *), "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc") \
  F(const void *, definition_take, (void **), "_ZN10tensorflow16KernelDefBuilder5BuildEv")          \
  F(void, definition_end, (void **), "_ZN10tensorflow16KernelDefBuilderD1Ev")                       \
  F(void, add, (void *, const void *, struct string_view, struct factory **),                       \
    "_ZN10tensorflow14kernel_factory17OpKernelRegistrar12InitInternalEPKNS_9KernelDefESt17basic_string_viewIcSt11char_" \
    "traitsIcEESt10unique_ptrINS0_15OpKernelFactoryESt14default_deleteISA_EE")                      \
  F(void, pure_virtual, (void), "__cxa_pure_virtual")

static struct {
#define FIELD(result, name, parameters, symbol) result(*name) parameters;
  CXX_FUNCTIONS(FIELD)
#undef FIELD
} cxx;

static void object_end(struct object *o) {
  if (o->data != NULL) o->kernel.destroy(o->data);
  cxx.op_kernel_end(o);
}

static void object_delete(struct object *o) {
  object_end(o);
  free(o);
}

static void object_compute(struct object *o, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *done) {
  o->kernel.compute(o->data, context, done);
}

/* AsyncOpKernel's table: two words before the functions, the destructors, Compute,
 * and others. MOST is far more than it has. */
enum { BEFORE = 2, DESTRUCTORS = 2, MOST = 32 };
static function object_virtuals[MOST];

/* Fills object_virtuals. Reports whether the table was as expected. */
static bool derive(void *library) {
  const function *table = dlsym(library, "_ZTVN10tensorflow13AsyncOpKernelE");
  Dl_info where;
  const ElfW(Sym) *symbol;
  if (table == NULL || dladdr1(table, &where, (void **)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL) return false;
  size_t n = symbol->st_size / sizeof *table;
  if (n < BEFORE + DESTRUCTORS + 2 || n > MOST || table[BEFORE + DESTRUCTORS] != (function)cxx.compute) return false;
  memcpy(object_virtuals, table, n * sizeof *table);
  object_virtuals[BEFORE] = (function)object_end;
  object_virtuals[BEFORE + 1] = (function)object_delete;
  int replaced = 0;
  for (size_t i = BEFORE + DESTRUCTORS; i < n; i++) {
    if (table[i] != (function)cxx.pure_virtual) continue;
    object_virtuals[i] = (function)object_compute;
    replaced++;
  }
  return replaced == 1;
}

static void *factory_create(const struct factory *f, TF_OpKernelConstruction *c) {
  struct object *o = calloc(1, sizeof *o);
  if (o == NULL) abort();
  cxx.op_kernel_make(o, c);
  o->virtuals = object_virtuals + BEFORE;
  o->kernel = f->kernel;
  o->data = f->kernel.create(c);
  return o;
}

static void factory_end(struct factory *f) { (void)f; }

static void factory_delete(struct factory *f) { free(f); }

static const function factory_virtuals[] = {
  (function)factory_create, (function)factory_end, (function)factory_delete
};

const char *async_find_2_12(void) {
  static const char name[] = "libtensorflow_framework.so.2";
  void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return name;
#define FIND(result, field, parameters, symbol)                \
  cxx.field = (result(*) parameters)dlsym(library, symbol);    \
  if (cxx.field == NULL) return symbol;
  CXX_FUNCTIONS(FIND)
#undef FIND
  return derive(library) ? NULL : "AsyncOpKernel of the form that 2.12 was published with";
}

void async_register_2_12(const char *op, struct async_kernel kernel) {
  void *builder = NULL; /* a KernelDefBuilder, which is one pointer */
  cxx.definition_make(&builder, op);
  cxx.definition_device(&builder, "CPU");
  const void *definition = cxx.definition_take(&builder);
  cxx.definition_end(&builder);
  struct factory *f = malloc(sizeof *f);
  if (f == NULL) abort();
  f->virtuals = factory_virtuals;
  f->kernel = kernel;
  char registrar; /* an object without fields */
  cxx.add(&registrar, definition, (struct string_view){strlen(op), op}, &f);
}
