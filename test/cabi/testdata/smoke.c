/*
 * A program that includes gorovod.h alone. It uses the whole C interface as one
 * rank of a job, and exits with the number of failed checks.
 */
#include <gorovod.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define CHECK(cond)                                                                             \
  do {                                                                                          \
    if (!(cond)) {                                                                              \
      failures++;                                                                               \
      printf("rank %d line %d: %s (last error: %s)\n", horovod_rank(), __LINE__, #cond,         \
             gorovod_last_error());                                                             \
    }                                                                                           \
  } while (0)

static gorovod_op make(int type, const char *name, int dtype, int ndim, const int64_t *shape, const void *in, void *out) {
  gorovod_op op;
  memset(&op, 0, sizeof op);
  op.size = sizeof op;
  op.type = type;
  op.name = name;
  op.dtype = dtype;
  op.reduce_op = GOROVOD_SUM;
  op.device = -1;
  op.ndim = ndim;
  op.shape = shape;
  op.prescale = op.postscale = 1.0;
  op.input = in;
  op.output = out;
  return op;
}

/* Submits, waits in slices, and releases the handle. Returns the status. */
static int run(const gorovod_op *op) {
  int64_t h;
  int status = gorovod_enqueue(op, &h);
  if (status != GOROVOD_OK) return status;
  do status = gorovod_wait(h, 100);
  while (status == GOROVOD_IN_PROGRESS);
  CHECK(gorovod_poll(h) == status);
  char why[256];
  snprintf(why, sizeof why, "%s", gorovod_last_error());
  int rc = gorovod_release(h);
  CHECK(rc == GOROVOD_OK);
  CHECK(gorovod_poll(h) == GOROVOD_INVALID_ARGUMENT);
  return status;
}

static void before_init(void) {
  float x = 1;
  int64_t one[] = {1}, h;
  CHECK(horovod_is_initialized() == 0);
  CHECK(horovod_rank() == -1 && horovod_size() == -1 && horovod_local_rank() == -1 && horovod_cross_size() == -1);
  CHECK(horovod_process_set_rank(0) == HOROVOD_PROCESS_SET_ERROR_INIT);
  CHECK(horovod_add_process_set(NULL, 0) == HOROVOD_PROCESS_SET_ERROR_INIT);
  CHECK(horovod_process_set_included(0) == 1);
  CHECK(horovod_start_timeline("x", false) == -1 && horovod_stop_timeline() == -1);
  CHECK(horovod_mpi_threads_supported() == -1);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "x", GOROVOD_FLOAT32, 1, one, &x, &x);
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_PRECONDITION_ERROR);
  CHECK(strstr(gorovod_last_error(), "has not been initialized") != NULL);
}

static void topology(int rank, int size, int dynamic) {
  CHECK(horovod_is_initialized() == 1);
  CHECK(horovod_rank() == rank && horovod_size() == size);
  CHECK(horovod_local_rank() == rank && horovod_local_size() == size);
  CHECK(horovod_cross_rank() == 0 && horovod_cross_size() == 1);
  CHECK(horovod_is_homogeneous());
  CHECK(horovod_gloo_built() && horovod_gloo_enabled() && !horovod_mpi_enabled());
  CHECK(horovod_nccl_built() == 0 && !horovod_cuda_built() && !horovod_rocm_built() && !horovod_ddl_built() && !horovod_ccl_built());
  CHECK(horovod_mpi_threads_supported() == 0);
  CHECK(horovod_reduce_op_average() == 0 && horovod_reduce_op_product() == 5);
  CHECK(horovod_number_of_process_sets() == 1);
  int id = -1;
  horovod_process_set_ids(&id);
  CHECK(id == 0);
  int *ranks = calloc((size_t)size, sizeof *ranks);
  CHECK(horovod_process_set_ranks(0, ranks) == 0 && ranks[size - 1] == size - 1);
  CHECK(horovod_process_set_ranks(5, ranks) == HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET);
  free(ranks);
  CHECK(horovod_process_set_size(0) == size && horovod_process_set_rank(0) == rank);
  CHECK(horovod_process_set_size(7) == HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET);
  CHECK(horovod_process_set_included(7) == HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET);
  if (!dynamic) {
    CHECK(horovod_add_process_set(&id, 1) == HOROVOD_PROCESS_SET_ERROR_DYNAMIC);
    CHECK(horovod_remove_process_set(1) == HOROVOD_PROCESS_SET_ERROR_DYNAMIC);
  }
  CHECK(horovod_start_timeline("x", false) == -2);
  CHECK(!horovod_init_multi_comm(NULL, 0, NULL, NULL, 0));
}

static void collectives(int rank, int size) {
  float x[3], y[3];
  int64_t three[] = {3};
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 3; i++) x[i] = (float)(rank + i);
    gorovod_op op = make(GOROVOD_ALLREDUCE, "sum", GOROVOD_FLOAT32, 1, three, x, y);
    if (round % 2) op.flags = GOROVOD_WILL_WAIT;
    CHECK(run(&op) == GOROVOD_OK);
    for (int i = 0; i < 3; i++) CHECK(y[i] == (float)(size * (size - 1) / 2 + size * i));
    op = make(GOROVOD_BROADCAST, "root", GOROVOD_FLOAT32, 1, three, x, x);
    op.root_rank = size - 1;
    CHECK(run(&op) == GOROVOD_OK);
    CHECK(x[0] == (float)(size - 1));
    /* Only the root has an output. On other ranks, out is NULL or stays as it is. */
    for (int i = 0; i < 3; i++) x[i] = (float)(rank + i), y[i] = -1;
    op = make(GOROVOD_REDUCE, "to one", GOROVOD_FLOAT32, 1, three, x, rank == 0 && round % 2 ? NULL : y);
    op.root_rank = size - 1;
    if (size == 1) op.output = y;
    CHECK(run(&op) == GOROVOD_OK);
    for (int i = 0; i < 3; i++) {
      CHECK(x[i] == (float)(rank + i));
      CHECK(y[i] == (rank == size - 1 ? (float)(size * (size - 1) / 2 + size * i) : -1));
    }
  }

  /* Allgather: rank r gives r+1 rows of 2. */
  int64_t rows[] = {rank + 1, 2}, shape[4] = {0};
  int32_t *in = malloc(sizeof(int32_t) * 2 * (size_t)(rank + 1));
  for (int i = 0; i < 2 * (rank + 1); i++) in[i] = rank;
  gorovod_op op = make(GOROVOD_ALLGATHER, "rows", GOROVOD_INT32, 2, rows, in, NULL);
  int64_t h;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK);
  CHECK(gorovod_wait(h, -1) == GOROVOD_OK);
  void *data = NULL, *taken = NULL;
  int ndim = 0;
  CHECK(gorovod_output(h, &data, 4, &ndim, shape) == GOROVOD_OK);
  CHECK(ndim == 2 && shape[0] == size * (size + 1) / 2 && shape[1] == 2);
  CHECK(gorovod_take_output(h, &taken) == GOROVOD_OK && taken == data);
  CHECK(gorovod_take_output(h, &taken) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_release(h) == GOROVOD_OK);
  const int32_t *all = data;
  for (int r = 0, i = 0; r < size; r++)
    for (int k = 0; k < 2 * (r + 1); k++, i++) CHECK(all[i] == r);
  gorovod_free(data);
  free(in);

  op = make(GOROVOD_BARRIER, NULL, 0, 0, NULL, NULL, NULL);
  CHECK(run(&op) == GOROVOD_OK);
}

/* Waits for the operation that a call has submitted as *handle, and releases it. */
static int ended(int status, const int64_t *handle) {
  if (status != GOROVOD_OK) return status;
  status = gorovod_wait(*handle, -1);
  CHECK(gorovod_release(*handle) == GOROVOD_OK);
  return status;
}

static void sparse_table(int rank, int size) {
  gorovod_table described = {.size = sizeof described, .name = "films", .dim = 2, .keys = 1000, .init = "zeros",
                             .optimizer = "sgd", .scale = -1, .rate = 1, .epsilon = -1, .initial_accumulator = -1,
                             .beta1 = -1, .beta2 = -1, .beta = -1, .l1 = -1, .l2 = -1};
  int64_t table, lookup, h, distinct, index[4];
  CHECK(gorovod_table_create(&described, &table) == GOROVOD_OK && table > 0);
  CHECK(gorovod_table_create(&described, &h) == GOROVOD_INVALID_ARGUMENT);
  CHECK(strstr(gorovod_last_error(), "has a table of this name already") != NULL);
  int64_t keys[] = {7, 999, 7, 50 + rank}, padding = 999;
  CHECK(gorovod_lookup(table, keys, 4, &padding, index, &distinct, &lookup) == GOROVOD_OK);
  CHECK(distinct == 2 && index[0] == index[2] && index[0] + index[3] == 1 && index[1] == 2);
  float rows[4] = {9, 9, 9, 9}, gradients[4] = {1, 2, 1, 2}, *to = rows;
  const float *from = gradients;
  CHECK(ended(gorovod_pull(1, &lookup, &to, GOROVOD_LOOKS, &h), &h) == GOROVOD_OK);
  CHECK(rows[0] == 0 && rows[3] == 0 && gorovod_table_rows(table) == 0);
  for (int step = 0; step < 3; step++) {
    CHECK(ended(gorovod_push(1, &lookup, &from, 0.5f, GOROVOD_WILL_WAIT, &h), &h) == GOROVOD_OK);
  }
  CHECK(ended(gorovod_pull(1, &lookup, &to, 0, &h), &h) == GOROVOD_OK);
  const float *common = rows + 2 * index[0], *own = rows + 2 * index[3];
  CHECK(common[0] == -1.5f * (float)size && common[1] == -3.0f * (float)size && own[0] == -1.5f && own[1] == -3.0f);
  gorovod_lookup_release(lookup);

  /* A lookup may be released early: its memory lives as long as its operations. */
  int64_t early[2];
  CHECK(gorovod_lookup(table, keys, 4, &padding, index, &distinct, &lookup) == GOROVOD_OK);
  CHECK(gorovod_pull(1, &lookup, &to, 0, early) == GOROVOD_OK);
  gorovod_lookup_release(lookup);
  CHECK(gorovod_lookup(table, keys, 1, NULL, index, &distinct, &lookup) == GOROVOD_OK);
  gorovod_lookup_release(lookup);
  CHECK(ended(GOROVOD_OK, early) == GOROVOD_OK);

  /* Mistakes: of one rank, and of all. */
  if (rank == 0) keys[3] = 1000;
  CHECK(gorovod_lookup(table, keys, 4, NULL, index, &distinct, &lookup) == GOROVOD_OK);
  int status = ended(gorovod_pull(1, &lookup, &to, 0, &h), &h);
  CHECK(status == (rank == 0 ? GOROVOD_INVALID_ARGUMENT : GOROVOD_PRECONDITION_ERROR));
  CHECK(strstr(gorovod_last_error(), "key 1000 at position 3 is not one of 0 to 999") != NULL || rank > 0);
  gorovod_lookup_release(lookup);
  CHECK(gorovod_pull(1, &lookup, &to, 0, &h) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_lookup_refuse(lookup, "it is gone") == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_lookup(table, keys, 2, NULL, index, &distinct, &lookup) == GOROVOD_OK);
  if (rank == 0) {
    CHECK(gorovod_lookup_refuse(lookup, "") == GOROVOD_INVALID_ARGUMENT);
    CHECK(gorovod_lookup_refuse(lookup, "the first reason") == GOROVOD_OK);
    CHECK(gorovod_lookup_refuse(lookup, "another reason") == GOROVOD_OK);
  }
  status = ended(gorovod_push(1, &lookup, &from, 0.5f, 0, &h), &h);
  CHECK(status == (rank == 0 ? GOROVOD_INVALID_ARGUMENT : GOROVOD_PRECONDITION_ERROR));
  CHECK(strstr(gorovod_last_error(), "the first reason") != NULL || rank > 0);
  gorovod_lookup_release(lookup);
  CHECK(gorovod_pull(0, &lookup, &to, 0, &h) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_lookup(table + 1, keys, 4, NULL, index, &distinct, &lookup) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_table_rows(table + 1) == -1);
  CHECK(gorovod_table_dim(table) == 2 && gorovod_table_dim(table + 1) == -1);
  described.size = 8;
  CHECK(gorovod_table_create(&described, &h) == GOROVOD_INVALID_ARGUMENT);
  gorovod_op op = make(72, "pull", GOROVOD_FLOAT32, 1, (int64_t[]){1}, rows, rows);
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);
  CHECK(strstr(gorovod_last_error(), "gorovod_pull or gorovod_push") != NULL);
}

/* A table that is saved, changed, and loaded. */
static void table_files(int rank, int size) {
  gorovod_table described = {.size = sizeof described, .name = "users", .dim = 2, .init = "zeros", .optimizer = "adagrad",
                             .scale = -1, .rate = 1, .epsilon = -1, .initial_accumulator = -1, .beta1 = -1, .beta2 = -1,
                             .beta = -1, .l1 = -1, .l2 = -1};
  int64_t table, lookup, h, distinct, index[2], keys[] = {1 + rank, -5}, copied[16];
  float gradients[4] = {1, 2, 1, 2}, rows[4], again[4], all[32], *to = rows;
  const float *from = gradients;
  described.number = INT64_MAX;
  CHECK(gorovod_table_create(&described, &table) == GOROVOD_INVALID_ARGUMENT);
  CHECK(strstr(gorovod_last_error(), "is not from gorovod_table_reserve") != NULL);
  described.number = gorovod_table_reserve();
  CHECK(described.number > 0 && gorovod_table_rows(described.number) == -1);
  CHECK(strstr(gorovod_last_error(), "is not there yet") != NULL);
  CHECK(gorovod_table_create(&described, &table) == GOROVOD_OK && gorovod_table_pushes(table) == 0);
  CHECK(table == described.number);
  CHECK(gorovod_lookup(table, keys, 2, NULL, index, &distinct, &lookup) == GOROVOD_OK && distinct == 2);
  CHECK(ended(gorovod_push(1, &lookup, &from, 0.5f, 0, &h), &h) == GOROVOD_OK);
  CHECK(ended(gorovod_pull(1, &lookup, &to, 0, &h), &h) == GOROVOD_OK && rows[0] < 0);
  int64_t process = getpid(); /* rank 0's is part of the directory's name */
  gorovod_op op = make(GOROVOD_BROADCAST, "process", GOROVOD_INT64, 1, (int64_t[]){1}, &process, &process);
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK && ended(GOROVOD_OK, &h) == GOROVOD_OK);
  char directory[64], command[80];
  snprintf(directory, sizeof directory, "/tmp/gorovod-smoke-%lld", (long long)process);
  CHECK(gorovod_table_save(table, directory) == GOROVOD_OK);
  CHECK(ended(gorovod_push(1, &lookup, &from, 0.5f, 0, &h), &h) == GOROVOD_OK && gorovod_table_pushes(table) == 2);
  CHECK(gorovod_table_load(table, directory) == GOROVOD_OK && gorovod_table_pushes(table) == 1);
  to = again;
  CHECK(ended(gorovod_pull(1, &lookup, &to, 0, &h), &h) == GOROVOD_OK && memcmp(rows, again, sizeof rows) == 0);
  gorovod_lookup_release(lookup);

  /* This rank's rows: all of them, and in parts of one row. */
  int32_t slot = 0;
  int64_t mine = gorovod_table_copy(table, &slot, 16, copied, all);
  CHECK(mine == gorovod_table_rows(table) && slot == GOROVOD_TABLE_SLOTS);
  CHECK(gorovod_table_copy(table, &slot, 16, copied, all) == 0);
  int64_t found = 0;
  for (slot = 0; slot < GOROVOD_TABLE_SLOTS;) {
    int32_t before = slot;
    int64_t n = gorovod_table_copy(table, &slot, 1, copied, all);
    CHECK(n >= 0 ? slot > before || n > 0 : slot == before);
    found += n > 0 ? n : -n;
    if (n < 0) slot++;
  }
  CHECK(found == mine);

  /* Mistakes. */
  CHECK(gorovod_table_load(table, "/tmp/no/such/directory") == GOROVOD_STORAGE_ERROR);
  CHECK(strstr(gorovod_last_error(), "/tmp/no/such/directory has no save of a table") != NULL);
  CHECK(gorovod_table_save(table, NULL) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_table_save(table, rank > 0 ? "/tmp/gorovod-smoke-other" : directory) ==
        (size > 1 ? GOROVOD_PRECONDITION_ERROR : GOROVOD_OK));
  CHECK(gorovod_table_commit(table, 0, 0) == GOROVOD_INVALID_ARGUMENT);
  CHECK(strstr(gorovod_last_error(), "set GOROVOD_CHECKPOINT_DIR to a directory") != NULL);
  CHECK(gorovod_table_restore(table, 0, 0) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_table_save(table + 1, directory) == GOROVOD_INVALID_ARGUMENT && gorovod_table_pushes(table + 1) == -1);
  CHECK(gorovod_table_load(table + 1, directory) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_table_copy(table + 1, &slot, 0, NULL, NULL) == GOROVOD_TABLE_UNKNOWN);
  CHECK(gorovod_table_copy(table, &slot, 1, NULL, NULL) == GOROVOD_TABLE_UNKNOWN);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  if (rank == 0) CHECK(system(command) == 0);
}

/* The parts of the interface that are newer than its first version. */
static void more_collectives(int rank, int size) {
  int64_t h, shape[2] = {2 * size + 1, 1};
  float *in = malloc(sizeof(float) * (size_t)(2 * size + 1));
  void *data;
  int ndim;

  /* Reducescatter: member 0 has one row more. */
  for (int i = 0; i < 2 * size + 1; i++) in[i] = (float)i;
  gorovod_op op = make(GOROVOD_REDUCESCATTER, "rs", GOROVOD_FLOAT32, 2, shape, in, NULL);
  op.reduce_op = GOROVOD_AVERAGE;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK && gorovod_wait(h, -1) == GOROVOD_OK);
  CHECK(gorovod_output(h, &data, 2, &ndim, shape) == GOROVOD_OK);
  int first = rank == 0 ? 0 : 2 * rank + 1;
  CHECK(ndim == 2 && shape[0] == (rank == 0 ? 3 : 2) && shape[1] == 1);
  for (int i = 0; i < shape[0]; i++) CHECK(((float *)data)[i] > first + i - 0.001 && ((float *)data)[i] < first + i + 0.001);
  CHECK(gorovod_last_joined(h) == -1 && gorovod_received_splits(h, 0, NULL) == -1);
  CHECK(gorovod_release(h) == GOROVOD_OK);

  /* Alltoall: rank r sends m + 1 rows to member m. */
  int32_t splits[64], received[64];
  int rows = 0;
  for (int m = 0; m < size; m++) rows += splits[m] = m + 1;
  int64_t n[] = {rows};
  int32_t *rowsin = malloc(sizeof(int32_t) * (size_t)rows);
  for (int i = 0; i < rows; i++) rowsin[i] = rank;
  op = make(GOROVOD_ALLTOALL, "a2a", GOROVOD_INT32, 1, n, rowsin, NULL);
  op.splits = splits;
  op.nsplits = size;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK && gorovod_wait(h, -1) == GOROVOD_OK);
  CHECK(gorovod_received_splits(h, 64, received) == size);
  CHECK(gorovod_output(h, &data, 1, &ndim, n) == GOROVOD_OK && n[0] == size * (rank + 1));
  for (int m = 0, i = 0; m < size; m++) {
    CHECK(received[m] == rank + 1);
    for (int k = 0; k < received[m]; k++, i++) CHECK(((int32_t *)data)[i] == m);
  }
  CHECK(gorovod_release(h) == GOROVOD_OK);

  /* A group, and Adasum of equal vectors, which averages. */
  for (int round = 0; round < 4; round++) {
    float a[2] = {1, 2}, b[1] = {(float)rank};
    int64_t two[] = {2}, one[] = {1}, hs[2];
    gorovod_op ops[2] = {make(GOROVOD_ALLREDUCE, "g.1", GOROVOD_FLOAT32, 1, two, a, a), make(GOROVOD_ALLREDUCE, "g.2", GOROVOD_FLOAT32, 1, one, b, b)};
    const gorovod_op *list[2] = {&ops[0], &ops[1]};
    CHECK(gorovod_enqueue_group("g", list, 2, hs) == GOROVOD_OK);
    for (int i = 0; i < 2; i++) CHECK(gorovod_wait(hs[i], -1) == GOROVOD_OK && gorovod_release(hs[i]) == GOROVOD_OK);
    CHECK(a[0] == (float)size && a[1] == (float)(2 * size) && b[0] == (float)(size * (size - 1) / 2));
    ops[1].name = "g.1";
    CHECK(gorovod_enqueue_group("g", list, 2, hs) == GOROVOD_INVALID_ARGUMENT);
    CHECK(gorovod_enqueue_group("", list, 2, hs) == GOROVOD_INVALID_ARGUMENT);
    CHECK(strstr(gorovod_last_error(), "the group's name is empty") != NULL);
    float c[2] = {3, 4};
    op = make(GOROVOD_ALLREDUCE, "ada", GOROVOD_FLOAT32, 1, two, c, c);
    op.reduce_op = GOROVOD_ADASUM;
    CHECK(run(&op) == GOROVOD_OK);
    CHECK(c[0] > 2.999 && c[0] < 3.001 && c[1] > 3.999 && c[1] < 4.001);
  }

  /* Messages. */
  if (size > 1) {
    int out = 100 + rank, got[2] = {-1, -1};
    size_t bytes = 0;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    CHECK(gorovod_send(to, 7, 65535, &out, sizeof out, 10000) == GOROVOD_OK);
    uint16_t label = 0;
    CHECK(gorovod_recv(from, 7, got, sizeof out - 1, &bytes, &label, 10000) == GOROVOD_INVALID_ARGUMENT);
    CHECK(bytes == sizeof out && label == 65535);
    bytes = label = 0;
    CHECK(gorovod_recv(from, 7, got, sizeof got, &bytes, &label, 10000) == GOROVOD_OK && label == 65535);
    CHECK(bytes == sizeof out && got[0] == 100 + from);
    CHECK(gorovod_recv(from, 8, got, sizeof got, &bytes, NULL, 20) != GOROVOD_OK);
  }
  CHECK(gorovod_send(size, 7, 0, in, 4, 100) == GOROVOD_INVALID_ARGUMENT);

  sparse_table(rank, size);
  table_files(rank, size);

  /* Without names: the library numbers the operations of each kind. */
  op = make(GOROVOD_ALLREDUCE, NULL, GOROVOD_FLOAT32, 1, (int64_t[]){1}, in, in);
  for (int i = 1; i <= 2; i++) {
    char name[40];
    snprintf(name, sizeof name, "allreduce.noname.%d", i);
    CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK && strcmp(gorovod_name(h), name) == 0);
    CHECK(gorovod_wait(h, -1) == GOROVOD_OK && gorovod_release(h) == GOROVOD_OK);
  }
  {
    float two = 2;
    gorovod_op second = make(GOROVOD_ALLREDUCE, NULL, GOROVOD_FLOAT32, 1, (int64_t[]){1}, &two, &two);
    const gorovod_op *pair[] = {&op, &second};
    int64_t both[2];
    CHECK(gorovod_enqueue_group(NULL, pair, 2, both) == GOROVOD_OK);
    CHECK(strcmp(gorovod_name(both[1]), "grouped_allreduce.noname.1_2of2") == 0);
    for (int i = 0; i < 2; i++) CHECK(gorovod_wait(both[i], -1) == GOROVOD_OK && gorovod_release(both[i]) == GOROVOD_OK);
  }
  CHECK(strcmp(gorovod_name(12345), "") == 0);

  /* Every rank joins, rank 0 first: it takes part with zeros in an allreduce of the others. */
  float one_more = 1;
  int64_t one[] = {1};
  if (rank != 0) {
    op = make(GOROVOD_ALLREDUCE, "without rank 0", GOROVOD_FLOAT32, 1, one, &one_more, &one_more);
    CHECK(run(&op) == GOROVOD_OK);
    CHECK(one_more == (float)(size - 1));
  }
  op = make(GOROVOD_JOIN, NULL, 0, 0, NULL, NULL, NULL);
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK && gorovod_wait(h, -1) == GOROVOD_OK);
  int last = gorovod_last_joined(h);
  CHECK(last >= (size > 1) && last < size);
  CHECK(gorovod_release(h) == GOROVOD_OK);
  free(in);
  free(rowsin);
}

static void process_sets(int rank, int size) {
  int evens[64], n = 0, ids[8], ranks[64];
  for (int r = 0; r < size; r += 2) evens[n++] = r;
  int before = horovod_number_of_process_sets();
  int id = horovod_add_process_set(evens, n);
  if (size == 1) {
    CHECK(id == HOROVOD_PROCESS_SET_ERROR_EXISTING_SET); /* the world itself */
    return;
  }
  CHECK(id > 0);
  CHECK(horovod_add_process_set(evens, n) == HOROVOD_PROCESS_SET_ERROR_EXISTING_SET);
  CHECK(horovod_number_of_process_sets() == before + 1);
  horovod_process_set_ids(ids);
  CHECK(ids[before] == id);
  CHECK(horovod_process_set_size(id) == n && horovod_process_set_included(id) == (rank % 2 == 0));
  CHECK(horovod_process_set_rank(id) == (rank % 2 ? HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET : rank / 2));
  CHECK(horovod_process_set_ranks(id, ranks) == 0 && memcmp(ranks, evens, sizeof(int) * (size_t)n) == 0);
  float x = (float)rank;
  int64_t one[] = {1}, h;
  gorovod_op op = make(GOROVOD_ALLREDUCE, "evens", GOROVOD_FLOAT32, 1, one, &x, &x);
  op.process_set = id;
  if (rank % 2 == 0) {
    CHECK(run(&op) == GOROVOD_OK);
    CHECK(x == (float)(n * (n - 1)));
  } else {
    CHECK(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);
    CHECK(strstr(gorovod_last_error(), "is not a member of the provided process set") != NULL);
  }
  CHECK(horovod_remove_process_set(id) == id);
  CHECK(horovod_remove_process_set(id) == HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET);
  CHECK(horovod_process_set_size(id) == HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called, ready_now;
static float second_in = 2, second_out;

static void on_second(void *context, int64_t handle, int status, const char *reason) {
  (void)context, (void)handle, (void)reason;
  pthread_mutex_lock(&mutex);
  called += status == GOROVOD_OK ? 1 : 100;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
}

static void on_first(void *context, int64_t handle, int status, const char *reason) {
  (void)reason;
  CHECK(status == GOROVOD_OK && handle > 0 && context == &called);
  int64_t one[] = {1}, h;
  gorovod_op op = make(GOROVOD_ALLREDUCE, "second", GOROVOD_FLOAT32, 1, one, &second_in, &second_out);
  op.done = on_second;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK);
}

static int is_ready(void *context) {
  (void)context;
  return __atomic_load_n(&ready_now, __ATOMIC_ACQUIRE);
}

static void *alloc_here(void *context, size_t bytes, int ndim, const int64_t *shape) {
  (void)ndim, (void)shape;
  return *(void **)context = malloc(bytes);
}

static void callbacks(int size) {
  int64_t one[] = {1}, h;
  float in = 1, out = 0;
  gorovod_op op = make(GOROVOD_ALLREDUCE, "first", GOROVOD_FLOAT32, 1, one, &in, &out);
  op.done = on_first;
  op.context = &called;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK);
  pthread_mutex_lock(&mutex);
  while (!called) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  CHECK(called == 1 && second_out == (float)(2 * size));
  CHECK(gorovod_release(h) == GOROVOD_OK);

  op = make(GOROVOD_ALLREDUCE, "held", GOROVOD_FLOAT32, 1, one, &in, &out);
  op.ready = is_ready;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK);
  CHECK(gorovod_wait(h, 20) == GOROVOD_IN_PROGRESS);
  in = 5;
  __atomic_store_n(&ready_now, 1, __ATOMIC_RELEASE);
  CHECK(gorovod_wait(h, -1) == GOROVOD_OK);
  CHECK(out == (float)(5 * size));
  CHECK(gorovod_release(h) == GOROVOD_OK);

  void *mine = NULL, *data = NULL;
  op = make(GOROVOD_ALLGATHER, "mine", GOROVOD_FLOAT32, 1, one, &in, NULL);
  op.alloc = alloc_here;
  op.context = &mine;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK);
  CHECK(gorovod_wait(h, -1) == GOROVOD_OK);
  CHECK(gorovod_output(h, &data, 0, NULL, NULL) == GOROVOD_OK && data == mine);
  CHECK(gorovod_take_output(h, &data) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_release(h) == GOROVOD_OK);
  CHECK(((float *)mine)[size - 1] == 5);
  free(mine);
}

static void in_one_call(int rank, int size) {
  int64_t one[] = {1}, lengths[] = {1 + rank}, h = 7;
  int32_t status = -1;
  float x = 1, many[64] = {0};
  gorovod_op op = make(GOROVOD_ALLREDUCE, "run", GOROVOD_FLOAT32, 1, one, &x, &x);
  op.flags = GOROVOD_WILL_WAIT | GOROVOD_RELEASE_IF_OK;
  op.status = &status;
  CHECK(gorovod_run(&op, -1, &h) == GOROVOD_OK && h == 0 && status == GOROVOD_OK && x == (float)size);

  ready_now = 0;
  op.ready = is_ready;
  CHECK(gorovod_run(&op, 20, &h) == GOROVOD_IN_PROGRESS && h > 0 && status == GOROVOD_IN_PROGRESS);
  __atomic_store_n(&ready_now, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&status, __ATOMIC_ACQUIRE) == GOROVOD_IN_PROGRESS) gorovod_wait(h, 100);
  CHECK(status == GOROVOD_OK && x == (float)(size * size) && gorovod_poll(h) == GOROVOD_INVALID_ARGUMENT);
  op.ready = NULL;

  for (int kept = 0; kept < 2; kept++) {
    op.flags = kept ? GOROVOD_WILL_WAIT : GOROVOD_RELEASE_IF_OK;
    CHECK(gorovod_run(&op, -1, &h) == GOROVOD_INVALID_ARGUMENT && h == 0);
    CHECK(strstr(gorovod_last_error(), "gorovod_run needs the flags") != NULL);
  }
  op.flags |= GOROVOD_RELEASE_IF_OK | GOROVOD_WILL_WAIT;
  op.dtype = 99;
  CHECK(gorovod_run(&op, -1, &h) == GOROVOD_INVALID_ARGUMENT && h == 0);
  CHECK(gorovod_run(&op, -1, NULL) == GOROVOD_INVALID_ARGUMENT);
  op = make(GOROVOD_ALLREDUCE, "run of others", GOROVOD_FLOAT32, 1, lengths, many, many);
  op.flags = GOROVOD_WILL_WAIT | GOROVOD_RELEASE_IF_OK;
  op.status = &status;
  if (size > 1 && size <= 64) {
    CHECK(gorovod_run(&op, -1, &h) == GOROVOD_PRECONDITION_ERROR && h > 0 && status == GOROVOD_PRECONDITION_ERROR);
    CHECK(strstr(gorovod_last_error(), "shape") != NULL && strcmp(gorovod_name(h), "run of others") == 0);
    CHECK(gorovod_release(h) == GOROVOD_OK);
  }
}

static void refused(int rank, int size) {
  float x[4] = {0};
  int64_t four[] = {4}, negative[] = {-4}, h;
  gorovod_op ok = make(GOROVOD_ALLREDUCE, "bad", GOROVOD_FLOAT32, 1, four, x, x), op;
#define REFUSED(change, text)                                                        \
  op = ok;                                                                           \
  change;                                                                            \
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);                       \
  CHECK(strstr(gorovod_last_error(), text) != NULL)
  REFUSED(op.size = 8, "op->size is 8");
  REFUSED(op.flags = 0x80, "unknown flags");
  REFUSED(op.device = -2, "device -2");
  REFUSED(op.device = 999, "CUDA");
  REFUSED(op.device_stream = 1, "device_stream is set");
  REFUSED(op.device = 0; op.flags = GOROVOD_COPIED, "device 0: ready and GOROVOD_COPIED");
  REFUSED(op.priority = 3, "priority 3");
  REFUSED(op.ndim = -1, "-1 dimensions");
  REFUSED(op.ndim = 1000, "1000 dimensions");
  REFUSED(op.shape = NULL, "shape is NULL");
  REFUSED(op.shape = negative, "negative");
  REFUSED(op.dtype = 42, "data type");
  REFUSED(op.dtype = 1000, "data type");
  REFUSED(op.reduce_op = 42, "reduce operation");
  REFUSED(op.reduce_op = GOROVOD_ADASUM; op.dtype = GOROVOD_INT32, "Adasum");
  REFUSED(op.type = 64, "operation 64 is unknown");
  REFUSED(op.wire = 5, "wire 5 is unknown");
  REFUSED(op.type = GOROVOD_ALLTOALL; op.nsplits = 1, "NULL pointer");
  int32_t too_many[64] = {5};
  REFUSED(op.type = GOROVOD_ALLTOALL; op.splits = too_many; op.nsplits = size, "is greater than the first dimension 4");
  REFUSED(op.type = GOROVOD_ALLTOALL; op.splits = too_many; op.nsplits = size + 1, "splits for");
  REFUSED(op.name = "", "name is needed");
  REFUSED(op.input = NULL, "input is NULL");
  REFUSED(op.output = NULL, "output is NULL");
  REFUSED(op.process_set = 9, "Process set");
  REFUSED(op.type = GOROVOD_BROADCAST; op.root_rank = size, "invalid root rank");
  CHECK(gorovod_enqueue(NULL, &h) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_wait(12345, 0) == GOROVOD_INVALID_ARGUMENT);
  CHECK(gorovod_release(-1) == GOROVOD_INVALID_ARGUMENT);

  /* A longer struct of a later version is accepted as long as its new fields are zero. */
  struct { gorovod_op op; int64_t later; } longer;
  memset(&longer, 0, sizeof longer);
  longer.op = ok;
  longer.op.name = "longer";
  longer.op.size = sizeof longer;
  CHECK(run(&longer.op) == GOROVOD_OK);
  longer.op.size = sizeof longer;
  longer.later = 1;
  CHECK(gorovod_enqueue(&longer.op, &h) == GOROVOD_INVALID_ARGUMENT);

  if (size > 1) {
    op = ok;
    op.dtype = rank == 1 ? GOROVOD_INT32 : GOROVOD_FLOAT32;
    CHECK(run(&op) == GOROVOD_PRECONDITION_ERROR);
    op = ok;
    op.name = "twice";
    gorovod_op barrier = make(GOROVOD_BARRIER, NULL, 0, 0, NULL, NULL, NULL);
    int64_t first;
    if (rank == 0) {
      CHECK(gorovod_enqueue(&op, &first) == GOROVOD_OK);
      CHECK(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);
      CHECK(strstr(gorovod_last_error(), "Duplicate tensor name") != NULL);
    }
    CHECK(run(&barrier) == GOROVOD_OK);
    if (rank != 0) CHECK(gorovod_enqueue(&op, &first) == GOROVOD_OK);
    CHECK(gorovod_wait(first, -1) == GOROVOD_OK);
    CHECK(gorovod_release(first) == GOROVOD_OK);
  }
}

/* A callback tells the end of an operation. If the operation succeeded, its handle is released by itself. */
static void statuses(int rank, int size) {
  enum { SINGLE = 40, N = 300 };
  int64_t one[] = {1}, h;
  float in = 1, out = 0;
  int32_t status = GOROVOD_OK;
  gorovod_op op = make(GOROVOD_ALLREDUCE, "told", GOROVOD_FLOAT32, 1, one, &in, &out);
  op.status = &status;
  op.flags = GOROVOD_RELEASE_IF_OK;
  for (int i = 0; i < SINGLE; i++) {
    out = 0;
    CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK && h > 0);
    while (__atomic_load_n(&status, __ATOMIC_ACQUIRE) == GOROVOD_IN_PROGRESS) {
      if (i % 4) gorovod_wait(h, 100);
      else usleep(100); /* another thread drives */
    }
    CHECK(status == GOROVOD_OK && out == (float)size);
  }
  for (int i = 0; i < 1000 && gorovod_release(h) == GOROVOD_OK; i++) CHECK(i == 0);
  CHECK(gorovod_poll(h) == GOROVOD_INVALID_ARGUMENT);

  /* After a failure the handle stays, so that the program can ask for the reason. */
  if (size > 1) {
    op.name = "told badly";
    op.dtype = rank == 1 ? GOROVOD_INT32 : GOROVOD_FLOAT32;
    CHECK(gorovod_enqueue(&op, &h) == GOROVOD_OK);
    CHECK(gorovod_wait(h, -1) == GOROVOD_PRECONDITION_ERROR && status == GOROVOD_PRECONDITION_ERROR);
    CHECK(strstr(gorovod_last_error(), "Mismatched data types") != NULL);
    CHECK(gorovod_release(h) == GOROVOD_OK);
    op.dtype = GOROVOD_FLOAT32;
  }

  /* A group: the library makes the names, and one op is a struct of the first version. */
  float ins[N], outs[N];
  int32_t ends[N];
  int64_t hs[N];
  gorovod_op ops[N];
  const gorovod_op *list[N];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++) {
      ins[i] = (float)(rank + i);
      outs[i] = -1;
      ops[i] = op;
      list[i] = &ops[i];
      ops[i].name = NULL;
      ops[i].input = &ins[i];
      ops[i].output = &outs[i];
      ops[i].status = &ends[i];
    }
    ops[7].size = offsetof(gorovod_op, status);
    ops[7].flags = 0;
    ops[9].name = "its own";
    CHECK(gorovod_enqueue_group("unnamed", list, N, hs) == GOROVOD_OK);
    CHECK(gorovod_wait(hs[7], -1) == GOROVOD_OK && gorovod_release(hs[7]) == GOROVOD_OK);
    for (int i = 0; i < N; i++) {
      while (i != 7 && __atomic_load_n(&ends[i], __ATOMIC_ACQUIRE) == GOROVOD_IN_PROGRESS) gorovod_wait(hs[i], 100);
      CHECK(outs[i] == (float)(size * (size - 1) / 2 + size * i));
    }
  }
  op.status = NULL;
  CHECK(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);
  CHECK(strstr(gorovod_last_error(), "needs a status") != NULL);
}

/* Calls in a forked child fail at once, and the child's end disturbs no rank. */
static void forked(void) {
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    int64_t h, one[] = {1};
    float x = 1;
    gorovod_op op = make(GOROVOD_ALLREDUCE, "child", GOROVOD_FLOAT32, 1, one, &x, &x);
    int ok = horovod_rank() == -1 && horovod_size() == -1 && horovod_is_initialized() == 0 && !horovod_init(NULL, 0, NULL, NULL, 0) &&
             gorovod_enqueue(&op, &h) == GOROVOD_PRECONDITION_ERROR && strstr(gorovod_last_error(), "forked child") != NULL &&
             gorovod_wait(1, -1) == GOROVOD_PRECONDITION_ERROR && gorovod_counters(NULL, 0) == 0 && gorovod_metrics() == NULL && gorovod_count_samples(1) == -1 && gorovod_version()[0] == 0 &&
             gorovod_elastic_await(-1) == -1;
    horovod_shutdown();
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  int rank = getenv("HOROVOD_RANK") ? atoi(getenv("HOROVOD_RANK")) : 0;
  int size = getenv("HOROVOD_SIZE") ? atoi(getenv("HOROVOD_SIZE")) : 1;
  CHECK(strlen(gorovod_version()) > 0);
  for (int generation = 0; generation < 3; generation++) {
    before_init();
    /* The last time the sets are dynamic: the program sets the variable after its start. */
    if (generation == 2) setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    CHECK(horovod_init(NULL, 0, NULL, NULL, 0));
    CHECK(horovod_init(NULL, 0, NULL, NULL, 0)); /* changes nothing */
    CHECK(gorovod_elastic() == GOROVOD_NOT_ELASTIC && gorovod_elastic_await(-1) == -1);
    if (!horovod_is_initialized()) break;
    topology(rank, size, generation == 2);
    collectives(rank, size);
    more_collectives(rank, size);
    if (generation == 2) process_sets(rank, size);
    called = ready_now = 0;
    callbacks(size);
    in_one_call(rank, size);
    statuses(rank, size);
    refused(rank, size);
    forked();
    gorovod_op barrier = make(GOROVOD_BARRIER, NULL, 0, 0, NULL, NULL, NULL);
    CHECK(run(&barrier) == GOROVOD_OK);
    int64_t counters[16];
    CHECK(gorovod_counters(counters, 16) == 7 && counters[1] > 0);
    CHECK(gorovod_count_samples(77) == 0 && gorovod_count_samples(-1) == -1);
    char *figures = gorovod_metrics();
    CHECK(figures != NULL && figures[0] == '{' && strstr(figures, "\"op\":\"allreduce\"") != NULL &&
          strstr(figures, "\"samples\":77,") != NULL);
    gorovod_free(figures);
    horovod_shutdown();
  }
  if (failures) printf("rank %d: %d checks failed\n", rank, failures);
  return failures > 100 ? 100 : failures;
}
