/*
 * One rank that calls the handlers of libgorovod_jax.so as XLA does for CUDA, on the stand-in's devices: jax CASE,
 * started by horovodrun. After each call the stream's next kernels read the results and overwrite the arguments at
 * once, as XLA does with memory that it uses again, and the host does not wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>

#include "../../../shim/jax/xla.h"
#include "rank.h"

/* XLA's context of a call. */
struct xla_context {
  void *state;
  int device;
};

struct xla_error {
  int code;
  char message[4096];
};

static xla_error *create_error(struct xla_error_create *a) {
  xla_error *e = malloc(sizeof *e);
  e->code = a->code;
  snprintf(e->message, sizeof e->message, "%s", a->message);
  return e;
}

static xla_error *get_stream(struct xla_stream *a) {
  a->stream = stream;
  return NULL;
}

static xla_error *get_device(struct xla_device_ordinal *a) {
  a->ordinal = a->context->device;
  return NULL;
}

/* This XLA's number of the type. That of the CPU's XLA is another one. */
static int type_number = 7;

static xla_error *register_type(struct xla_type_register *a) {
  if (a->id->id != 0 && a->id->id != type_number)
    return create_error(&(struct xla_error_create){{0}, "the type has another number", XLA_CODE_INVALID_ARGUMENT});
  a->id->id = type_number;
  return NULL;
}

static xla_error *set_state(struct xla_state *a) {
  EXPECT(a->type->id == type_number);
  a->context->state = a->state;
  return NULL;
}

static xla_error *get_state(struct xla_state *a) {
  EXPECT(a->type->id == type_number);
  a->state = a->context->state;
  return NULL;
}

static const struct xla_api api = {
    .base = {sizeof api, NULL}, .version = {{sizeof(struct xla_version), NULL}, XLA_MAJOR, XLA_MINOR},
    .error_create = create_error, .stream_get = get_stream, .type_register = register_type, .state_set = set_state,
    .state_get = get_state, .device_ordinal = get_device,
};

typedef xla_error *handler(struct xla_call *);
static handler *instantiate, *execute, *cpu_instantiate;

/* Asks a handler for its metadata, as XLA does when JAX registers the handler. */
static void asks(handler *h, bool has_state) {
  struct xla_metadata metadata = {.size = sizeof metadata, .traits = 99};
  struct xla_metadata_extension extension = {{sizeof extension, XLA_EXTENSION_METADATA, NULL}, &metadata};
  struct xla_call question = {{sizeof question, &extension.extension}, .api = &api};
  EXPECT(h(&question) == NULL);
  EXPECT(metadata.version.major == XLA_MAJOR && metadata.version.minor == XLA_MINOR);
  EXPECT(metadata.traits == 0); /* 1 would let XLA capture calls into CUDA graphs */
  EXPECT(metadata.state.id == (has_state ? type_number : 0));
}

static void load(void) {
  const char *folder = getenv("JAX_SHIM_FOLDER");
  char path[2][4096];
  snprintf(path[0], sizeof path[0], "%s/libgorovod_jax.so", folder);
  snprintf(path[1], sizeof path[1], "%s/libgorovod.so", folder);
  void *shim = dlopen(path[0], RTLD_NOW);
  EXPECT(shim != NULL);
  const char *(*bind)(const char *) = (const char *(*)(const char *))dlsym(shim, "gorovod_jax_bind");
  EXPECT(bind(path[1]) == NULL);
  cpu_instantiate = (handler *)dlsym(shim, "gorovod_jax_instantiate");
  instantiate = (handler *)dlsym(shim, "gorovod_jax_cuda_instantiate");
  execute = (handler *)dlsym(shim, "gorovod_jax_cuda_execute");
  EXPECT(cpu_instantiate != NULL && instantiate != NULL && execute != NULL);
  type_number = 3;
  asks(cpu_instantiate, true);
  type_number = 7;
  asks(instantiate, true);
  asks(execute, false);
}

/* A place in a program. */
struct site {
  int64_t type, reduce_op, root_rank, process_set, wire, program;
  double prescale, postscale;
  const char *name;
  struct xla_context context;
};

static struct site *place(int type, const char *name) {
  static int64_t programs;
  struct site *s = calloc(1, sizeof *s);
  *s = (struct site){.type = type, .reduce_op = GOROVOD_SUM, .program = ++programs, .prescale = 1, .postscale = 1,
                     .name = name, .context = {.device = device}};
  return s;
}

/* Calls the handler as XLA does when it loads the program. */
static struct site *loaded(struct site *s) {
  struct {
    const char *name;
    int type;
    void *value;
  } all[] = {{"type", XLA_S64, &s->type}, {"reduce_op", XLA_S64, &s->reduce_op}, {"root_rank", XLA_S64, &s->root_rank},
             {"process_set", XLA_S64, &s->process_set}, {"wire", XLA_S64, &s->wire}, {"program", XLA_S64, &s->program},
             {"prescale", XLA_F64, &s->prescale}, {"postscale", XLA_F64, &s->postscale}, {"name", 0, NULL}};
  enum { ALL = sizeof all / sizeof *all };
  struct xla_text names[ALL], *name_list[ALL], name = {s->name, strlen(s->name)};
  struct xla_scalar scalars[ALL];
  void *values[ALL];
  int kinds[ALL];
  for (int i = 0; i < ALL; i++) {
    names[i] = (struct xla_text){all[i].name, strlen(all[i].name)};
    name_list[i] = &names[i];
    scalars[i] = (struct xla_scalar){all[i].type, all[i].value};
    values[i] = all[i].value != NULL ? (void *)&scalars[i] : &name;
    kinds[i] = all[i].value != NULL ? XLA_ATTRIBUTE_SCALAR : XLA_ATTRIBUTE_STRING;
  }
  struct xla_call call = {{sizeof call, NULL}, .api = &api, .context = &s->context, .stage = XLA_INSTANTIATE};
  call.attributes = (struct xla_attributes){{sizeof call.attributes, NULL}, ALL, kinds, name_list, values};
  EXPECT(instantiate(&call) == NULL);
  EXPECT(s->context.state != NULL);
  return s;
}

enum { MOST = 8 };

struct array {
  CUdeviceptr at;
  int64_t rows;
  int type;
};

/* Calls the handler. The last result only orders calls, and so does, from the second call of a program on, an argument
 * after the others. */
static xla_error *call(struct site *s, int n, const struct array *in, const struct array *out) {
  static bool later;
  static CUdeviceptr order;
  if (order == 0) order = memory(1);
  int64_t shapes[2][MOST + 1];
  struct xla_buffer buffers[2][MOST + 1], *lists[2][MOST + 1];
  int kinds[MOST + 1] = {0};
  for (int side = 0; side < 2; side++) {
    for (int i = 0; i <= n; i++) {
      const struct array a = i == n ? (struct array){order, 1, XLA_U8} : side == 0 ? in[i] : out[i];
      shapes[side][i] = a.rows;
      buffers[side][i] = (struct xla_buffer){{sizeof(struct xla_buffer), NULL}, a.type, (void *)a.at, 1, &shapes[side][i]};
      lists[side][i] = &buffers[side][i];
    }
  }
  struct xla_call call = {{sizeof call, NULL}, .api = &api, .context = &s->context, .stage = XLA_EXECUTE};
  call.arguments = (struct xla_buffers){{sizeof call.arguments, NULL}, n + later, kinds, lists[0]};
  call.results = (struct xla_buffers){{sizeof call.results, NULL}, n + 1, kinds, lists[1]};
  later = !later;
  xla_error *e = execute(&call);
  EXPECT(call.future == NULL);
  return e;
}

static const float *host_of(CUdeviceptr p, int n) { /* asynchronous: see settle */
  float *host = pinned((size_t)n + 1);
  OK(cuMemcpyDtoHAsync_v2(host, p, sizeof(float) * (size_t)n, stream));
  return host;
}

/* Lets the stream read the result, and then overwrite result and argument. */
static const float *use(const struct array *in, const struct array *out) {
  const float *seen = NULL;
  if (out->rows > 0) {
    seen = host_of(out->at, (int)out->rows);
    OK(standinLaunch(STANDIN_FILL, out->at, 0, sizeof(float) * (size_t)out->rows, 77, 0, stream));
  }
  if (in->rows > 0) OK(standinLaunch(STANDIN_FILL, in->at, 0, sizeof(float) * (size_t)in->rows, 78, 0, stream));
  return seen;
}

static void settle(void) { OK(cuStreamSynchronize(stream)); }

static struct array floats(int n, int add) { return (struct array){numbers(n, add), n, XLA_F32}; }
static struct array room(int n) { return (struct array){memory(sizeof(float) * (size_t)n + 4), n, XLA_F32}; }
/* XLA may pass no memory for an empty array. */
static struct array nothing(void) { return (struct array){0, 0, XLA_F32}; }

static void expect_failure(xla_error *e, const char *text) {
  EXPECT(e != NULL);
  if (strstr(e->message, text) == NULL) fprintf(stderr, "rank %d: %s\n", rank, e->message);
  EXPECT(strstr(e->message, text) != NULL);
  free(e);
}

static void expect_well(xla_error *e) {
  if (e != NULL) fprintf(stderr, "rank %d: %s\n", rank, e->message);
  EXPECT(e == NULL);
}

static void one_round(struct site *sum_of, struct site *unnamed, struct site *group, struct site *rows, struct site *root,
                      struct site *own, struct site *half) {
  struct array in = floats(N, rank), out = room(N);
  expect_well(call(sum_of, 1, &in, &out));
  const float *y = use(&in, &out);
  settle();
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i));

  in = floats(N, rank), out = in; /* XLA may alias a result with an argument */
  expect_well(call(unnamed, 1, &in, &out));
  y = use(&out, &out);
  settle();
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i));

  struct array ins[MOST], outs[MOST];
  const float *ys[MOST];
  for (int i = 0; i < MOST; i++) {
    ins[i] = i == 0 ? nothing() : floats(100 * i, rank);
    outs[i] = i == 0 ? nothing() : room(100 * i);
  }
  expect_well(call(group, MOST, ins, outs));
  for (int i = 0; i < MOST; i++) ys[i] = use(&ins[i], &outs[i]);
  settle();
  for (int i = 0; i < MOST; i++)
    for (int j = 0; j < 100 * i; j++) EXPECT(ys[i][j] == sum(j));

  in = floats(30, 10 * rank), out = room(30 * size);
  expect_well(call(rows, 1, &in, &out));
  y = use(&in, &out);
  settle();
  for (int i = 0; i < 30 * size; i++) EXPECT(y[i] == (float)(i % 30 % 7 + 10 * (i / 30)));
  in = nothing(), out = nothing();
  expect_well(call(rows, 1, &in, &out));

  in = floats(N, 10 * rank), out = room(N);
  expect_well(call(root, 1, &in, &out));
  y = use(&in, &out);
  settle();
  for (int i = 0; i < N; i++) EXPECT(y[i] == (float)(i % 7 + 10 * (size - 1)));

  int first = rank == 0 ? 0 : 7 * rank + 1, n = rank == 0 ? 8 : 7;
  in = floats(7 * size + 1, rank), out = room(n);
  expect_well(call(own, 1, &in, &out));
  y = use(&in, &out);
  settle();
  for (int i = 0; i < n; i++) EXPECT(y[i] == sum(first + i));
  if (size == 2) { /* rank 1 gets no row of one */
    in = floats(1, rank), out = rank == 0 ? room(1) : nothing();
    expect_well(call(own, 1, &in, &out));
    y = use(&in, &out);
    settle();
    EXPECT(rank == 1 || y[0] == sum(0));
  }

  in = floats(N, rank), out = room(N);
  expect_well(call(half, 1, &in, &out));
  y = use(&in, &out);
  settle();
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i) / 2);
}

/* Bytes of which each is i % 7 + add. */
static struct array bytes_of(int type, int add) {
  unsigned char *host = (unsigned char *)pinned(N / 4);
  for (int i = 0; i < N; i++) host[i] = (unsigned char)(i % 7 + add);
  struct array a = {memory(N), N, type};
  OK(cuMemcpyHtoDAsync_v2(a.at, host, N, stream));
  return a;
}

static void types(void) {
  for (int type = 0; type < 24; type++) {
    bool bytes = type == XLA_S8 || type == XLA_U8 || type == XLA_PRED || type == XLA_F8E5M2 || type == XLA_F8E4M3FN;
    if (!bytes) continue;
    char name[32];
    snprintf(name, sizeof name, "type %d", type);
    struct site *s = place(GOROVOD_BROADCAST, strdup(name));
    s->root_rank = size - 1;
    struct array in = bytes_of(type, rank), out = {memory(N), N, type};
    expect_well(call(loaded(s), 1, &in, &out));
    unsigned char *seen = (unsigned char *)pinned(N / 4);
    OK(cuMemcpyDtoHAsync_v2(seen, out.at, N, stream));
    settle();
    for (int i = 0; i < N; i++) EXPECT(seen[i] == i % 7 + size - 1);
  }
  struct site *s = place(GOROVOD_BROADCAST, "no such type");
  struct array in = bytes_of(XLA_U8, 0), out = {memory(N), N, 30};
  in.type = 30;
  expect_failure(call(loaded(s), 1, &in, &out), "ValueError: ");
}

static void everything(bool by_nccl) {
  struct site *half = place(GOROVOD_ALLREDUCE, "half"), *root = place(GOROVOD_BROADCAST, "root");
  half->prescale = 0.25, half->postscale = 2;
  root->root_rank = size - 1;
  struct site *all[] = {loaded(place(GOROVOD_ALLREDUCE, "sum")), loaded(place(GOROVOD_ALLREDUCE, "")),
                        loaded(place(GOROVOD_ALLREDUCE, "group")), loaded(place(GOROVOD_ALLGATHER, "rows")), loaded(root),
                        loaded(place(GOROVOD_REDUCESCATTER, "own")), loaded(half)};
  for (int round = 0; round < 4; round++) one_round(all[0], all[1], all[2], all[3], all[4], all[5], all[6]);
  types();
  EXPECT((standinCalls("ncclAllReduce") > 0) == by_nccl);
  EXPECT((standinCalls("ncclBroadcast") > 0) == by_nccl);

  /* The same with one name at two places of a program. */
  struct site *first = place(GOROVOD_ALLREDUCE, "twice"), *second = place(GOROVOD_ALLREDUCE, "twice");
  second->program = first->program;
  loaded(first), loaded(second);
  struct array in = floats(N, rank), out = room(N), more = floats(N, 2 * rank), out2 = room(N);
  expect_well(call(first, 1, &in, &out));
  expect_well(call(second, 1, &more, &out2));
  const float *y = host_of(out.at, N), *y2 = host_of(out2.at, N);
  settle();
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i) && y2[i] == (float)(size * (i % 7) + size * (size - 1)));
}

static void errors(void) {
  struct array in = floats(N + rank, rank), out = room(N + rank);
  expect_failure(call(loaded(place(GOROVOD_ALLREDUCE, "shapes")), 1, &in, &out),
                 "HorovodInternalError: Mismatched ALLREDUCE tensor shapes");
  in = floats(2 + rank, rank), out = room((2 + rank) * size);
  expect_failure(call(loaded(place(GOROVOD_ALLGATHER, "rows")), 1, &in, &out), "ValueError: rows: the result has ");
  struct site *elsewhere = place(GOROVOD_ALLREDUCE, "elsewhere");
  elsewhere->context.device = device + size;
  in = floats(N, rank), out = room(N);
  expect_failure(call(loaded(elsewhere), 1, &in, &out), "give each rank one device");
  everything(true);

  struct site *known = loaded(place(GOROVOD_ALLREDUCE, "known"));
  in = floats(N, rank), out = room(N);
  expect_well(call(known, 1, &in, &out));
  settle();
  horovod_shutdown();
  expect_failure(call(known, 1, &in, &out), "HorovodInternalError: ");
  EXPECT(horovod_init(NULL, 0, NULL, NULL, 0));
  expect_well(call(known, 1, &in, &out));
  settle();
}

/* Rank 0 dies while the call of the other ranks waits for it in NCCL. */
static void dies(void) {
  struct site *s = loaded(place(GOROVOD_ALLREDUCE, "last"));
  struct array in = floats(N, rank), out = room(N);
  expect_well(call(s, 1, &in, &out));
  settle();
  if (rank == 0) standinFaults("ncclAllReduce:1:die");
  xla_error *e = call(s, 1, &in, &out);
  expect_failure(e, "HorovodInternalError: ");
  fprintf(stderr, "rank %d survived\n", rank);
  horovod_shutdown();
  exit(7);
}

/* Calls that need all their waits. Rank 0 meets faults. */
static void waits(const char *faults) {
  struct site *sites[] = {loaded(place(GOROVOD_ALLREDUCE, "sum")), loaded(place(GOROVOD_ALLGATHER, "rows")),
                          loaded(place(GOROVOD_REDUCESCATTER, "own"))};
  if (rank == 0) standinFaults(faults);
  for (int i = 0; i < 3; i++) {
    struct array in = floats(30 * size, rank), out = room(i == 0 ? 30 * size : i == 1 ? 30 * size * size : 30);
    expect_well(call(sites[i], 1, &in, &out));
    use(&in, &out);
  }
  settle();
}

static void off(void) {
  struct array in = floats(N, rank), out = room(N);
  expect_failure(call(loaded(place(GOROVOD_ALLREDUCE, "x")), 1, &in, &out), "GOROVOD_GPU=off refuses");
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  begin();
  load();
  if (strcmp(what, "nccl") == 0) everything(true);
  else if (strcmp(what, "staged") == 0) everything(false);
  else if (strcmp(what, "errors") == 0) errors();
  else if (strcmp(what, "dies") == 0) dies();
  else if (strcmp(what, "waits") == 0) waits(argv[2]);
  else if (strcmp(what, "off") == 0) off();
  else return 2;
  horovod_shutdown();
  return 0;
}
