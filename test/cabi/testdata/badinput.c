/*
 * One rank of a job of three. The job makes every mistake that Horovod checks:
 * each rank in turn makes it, and every rank reads the error. After each mistake
 * the engine still works. The rank prints each error once as
 * "BAD<tab>status<tab>reason", which the test compares with docs/contract.md. It
 * exits with the number of failed checks. It includes gorovod.h alone.
 *
 * The job has HOROVOD_FUSION_THRESHOLD=1024.
 */
#include <gorovod.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 3, THRESHOLD = 1024, UNKNOWN_SET = 77 };

static int failures, rank;
static char reason[4096]; /* of the last failure */
static float memory[4096];

static void fail(int line, const char *what) {
  failures++;
  printf("rank %d line %d: %s (reason: %s)\n", rank, line, what, reason);
}
#define CHECK(cond) ((cond) ? (void)0 : fail(__LINE__, #cond))

static const int64_t six[] = {6}, seven[] = {7}, three_two[] = {3, 2}, cube[] = {3, 2, 4}, other_cube[] = {3, 2, 5}, large[] = {THRESHOLD / 4 + 1}, one[] = {1};

/* A correct operation on six float32. The sets of pairs have the ids 1 to 3; set id lacks rank id - 1. */
static gorovod_op good(int type) {
  gorovod_op op;
  memset(&op, 0, sizeof op);
  op.size = sizeof op;
  op.type = type;
  op.name = "x";
  op.dtype = GOROVOD_FLOAT32;
  op.reduce_op = GOROVOD_SUM;
  op.device = -1;
  op.ndim = 1;
  op.shape = six;
  op.prescale = op.postscale = 1.0;
  op.input = memory;
  if (type == GOROVOD_ALLREDUCE || type == GOROVOD_BROADCAST || type == GOROVOD_REDUCE) op.output = memory;
  return op;
}

/* Submits and waits. Returns the status, and leaves the reason in reason. */
static int run(const gorovod_op *op) {
  int64_t h;
  reason[0] = 0;
  int status = gorovod_enqueue(op, &h);
  if (status == GOROVOD_OK) {
    status = gorovod_wait(h, 30000);
    if (status != GOROVOD_OK) snprintf(reason, sizeof reason, "%s", gorovod_last_error());
    CHECK(gorovod_release(h) == GOROVOD_OK);
  } else {
    snprintf(reason, sizeof reason, "%s", gorovod_last_error());
  }
  return status;
}

/* The engine still works: in the sets and then in the world, also under the name that was refused. */
static void works(void) {
  for (int set = 1; set <= SIZE; set++) {
    gorovod_op barrier = good(GOROVOD_BARRIER);
    barrier.process_set = set;
    if (set != rank + 1) CHECK(run(&barrier) == GOROVOD_OK);
  }
  const char *names[] = {"x", "after", "x"};
  for (int i = 0; i < 3; i++) {
    float x = (float)(rank + 1);
    gorovod_op op = good(GOROVOD_ALLREDUCE);
    op.name = names[i];
    op.shape = one;
    op.input = op.output = &x;
    CHECK(run(&op) == GOROVOD_OK && x == 6);
  }
}

static void report(int status) { printf("BAD\t%d\t%s\n", status, reason); }

static int begins(const char *prefix) { return strncmp(reason, prefix, strlen(prefix)) == 0; }

/* change turns a good op into a mistake. Each rank makes the mistake, alone and as the second op of a group. */
#define REFUSED(type_, status_, prefix, change)                                         \
  do {                                                                                  \
    gorovod_op op = good(type_);                                                        \
    change;                                                                             \
    int64_t h[2];                                                                       \
    CHECK(gorovod_enqueue(&op, h) == (status_));                                        \
    snprintf(reason, sizeof reason, "%s", gorovod_last_error());                        \
    CHECK(begins(prefix));                                                              \
    if (rank == 0) report(status_);                                                     \
    if ((type_) != GOROVOD_BARRIER && (type_) != GOROVOD_JOIN) {                        \
      gorovod_op first = good(type_);                                                   \
      first.name = "first";                                                             \
      const gorovod_op *ops[] = {&first, &op};                                          \
      CHECK(gorovod_enqueue_group("g", ops, 2, h) != GOROVOD_OK);                      \
    }                                                                                   \
    works();                                                                            \
  } while (0)

static void refused(void) {
  static const struct { int type, reduce_op; const char *name; } kinds[] = {
      {GOROVOD_ALLREDUCE, GOROVOD_SUM, "Allreduce"}, {GOROVOD_ALLREDUCE, GOROVOD_ADASUM, "Adasum"}, {GOROVOD_ALLGATHER, GOROVOD_SUM, "Allgather"},
      {GOROVOD_BROADCAST, GOROVOD_SUM, "Broadcast"}, {GOROVOD_ALLTOALL, GOROVOD_SUM, "Alltoall"}, {GOROVOD_REDUCESCATTER, GOROVOD_SUM, "Reducescatter"},
      {GOROVOD_REDUCE, GOROVOD_SUM, "Reduce"}, {GOROVOD_BARRIER, GOROVOD_SUM, "Barrier"}, {GOROVOD_JOIN, GOROVOD_SUM, "Join"}};
  char prefix[256];
  int32_t splits[4] = {3, 3, 1, 0}, negative[] = {3, -1, 3}, hundred[] = {100};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    snprintf(prefix, sizeof prefix, "%s: Process set provided does not exist, or has not been registered", kinds[i].name);
    REFUSED(kinds[i].type, GOROVOD_INVALID_ARGUMENT, prefix, op.reduce_op = kinds[i].reduce_op; op.process_set = UNKNOWN_SET);
    snprintf(prefix, sizeof prefix, "%s: Rank %d is not a member of the provided process set.", kinds[i].name, rank);
    REFUSED(kinds[i].type, GOROVOD_INVALID_ARGUMENT, prefix, op.reduce_op = kinds[i].reduce_op; op.process_set = rank + 1; op.root_rank = (rank + 1) % SIZE;
            if (op.type == GOROVOD_ALLTOALL) { op.splits = hundred; op.nsplits = 1; });
  }
  REFUSED(GOROVOD_BROADCAST, GOROVOD_INVALID_ARGUMENT, "Broadcast of tensor \"x\": broadcast received invalid root rank -1", op.root_rank = -1);
  REFUSED(GOROVOD_BROADCAST, GOROVOD_INVALID_ARGUMENT, "Broadcast of tensor \"x\": broadcast received invalid root rank 3", op.root_rank = SIZE);
  REFUSED(GOROVOD_REDUCE, GOROVOD_INVALID_ARGUMENT, "Reduce of tensor \"x\": reduce received invalid root rank 3", op.root_rank = SIZE);
  REFUSED(GOROVOD_REDUCE, GOROVOD_ABORTED, "Reduce of tensor \"x\": adasum is not possible", op.reduce_op = GOROVOD_ADASUM);
  REFUSED(GOROVOD_REDUCE, GOROVOD_INVALID_ARGUMENT, "Reduce of tensor \"x\": 0 bytes of output", op.root_rank = rank; op.output = NULL);
  snprintf(prefix, sizeof prefix, "Broadcast of tensor \"x\": broadcast received invalid root rank %d for provided process set", rank);
  REFUSED(GOROVOD_BROADCAST, GOROVOD_INVALID_ARGUMENT, prefix, op.process_set = rank + 1; op.root_rank = rank);
  REFUSED(GOROVOD_ALLTOALL, GOROVOD_INVALID_ARGUMENT, "Alltoall of tensor \"x\": 2 splits for 3 processes", op.splits = splits; op.nsplits = 2);
  REFUSED(GOROVOD_ALLTOALL, GOROVOD_INVALID_ARGUMENT, "Alltoall of tensor \"x\": the sum of the splits 7", op.splits = splits; op.nsplits = 3);
  REFUSED(GOROVOD_ALLTOALL, GOROVOD_INVALID_ARGUMENT, "Alltoall of tensor \"x\": split 1 is negative", op.splits = negative; op.nsplits = 3);
  REFUSED(GOROVOD_ALLTOALL, GOROVOD_INVALID_ARGUMENT, "Alltoall of tensor \"x\": splits are not given, and the first dimension 7", op.shape = seven);
  REFUSED(GOROVOD_REDUCESCATTER, GOROVOD_ABORTED, "Reducescatter of tensor \"x\"", op.reduce_op = GOROVOD_ADASUM);
  REFUSED(GOROVOD_ALLREDUCE, GOROVOD_INVALID_ARGUMENT, "Allreduce of tensor \"x\": there is no average of bool", op.dtype = GOROVOD_BOOL; op.reduce_op = GOROVOD_AVERAGE);
  REFUSED(GOROVOD_ALLREDUCE, GOROVOD_INVALID_ARGUMENT, "Allreduce of tensor \"x\": there is no bxor of float32", op.reduce_op = GOROVOD_BXOR);
  REFUSED(GOROVOD_ALLREDUCE, GOROVOD_INVALID_ARGUMENT, "Adasum of tensor \"x\": int32", op.dtype = GOROVOD_INT32; op.reduce_op = GOROVOD_ADASUM);
}

/* A name in use: the operation that has the name still succeeds. */
static void duplicates(void) {
  for (int odd = 0; odd < SIZE; odd++) {
    float x = 1;
    gorovod_op op = good(GOROVOD_ALLREDUCE);
    op.name = "twice";
    op.shape = one;
    op.input = op.output = &x;
    gorovod_op mistaken = good(GOROVOD_BARRIER);  // the operation cannot end before this barrier
    if (rank != odd) {
      CHECK(run(&mistaken) == GOROVOD_OK);
      CHECK(run(&op) == GOROVOD_OK);
    } else {
      int64_t first, h[2];
      CHECK(gorovod_enqueue(&op, &first) == GOROVOD_OK);
      const int types[] = {GOROVOD_ALLREDUCE, GOROVOD_ALLGATHER, GOROVOD_BROADCAST, GOROVOD_ALLTOALL, GOROVOD_REDUCESCATTER, GOROVOD_REDUCE};
      for (int i = 0; i < 6; i++) {
        gorovod_op again = good(types[i]), fresh = good(types[i]);
        again.name = "twice";
        fresh.name = "fresh";
        CHECK(run(&again) == GOROVOD_INVALID_ARGUMENT && begins("Duplicate tensor name \"twice\""));
        const gorovod_op *ops[] = {&fresh, &again};
        CHECK(gorovod_enqueue_group("g", ops, 2, h) == GOROVOD_INVALID_ARGUMENT);
      }
      if (rank == 0) report(GOROVOD_INVALID_ARGUMENT);
      CHECK(run(&mistaken) == GOROVOD_OK);
      CHECK(gorovod_wait(first, 30000) == GOROVOD_OK);
      CHECK(gorovod_release(first) == GOROVOD_OK);
    }
    CHECK(x == SIZE);
    works();
  }
}

/* op is this rank's. All ranks get the same reason, which begins with prefix. */
static void disagree(int odd, const gorovod_op *op, const char *prefix) {
  CHECK(run(op) == GOROVOD_PRECONDITION_ERROR && begins(prefix));
  if (odd == 1) report(GOROVOD_PRECONDITION_ERROR);
  works();
}

/* Fills format with both values, that of rank 0 first. */
static const char *ordered(int odd, const char *format, const char *odds, const char *others) {
  static char text[512];
  snprintf(text, sizeof text, format, odd == 0 ? odds : others, odd == 0 ? others : odds);
  return text;
}

static void disagreements(int odd) {
  int is_odd = rank == odd;
  char format[256];
  gorovod_op op = good(GOROVOD_ALLREDUCE);
  if (is_odd) op.dtype = GOROVOD_INT32;
  disagree(odd, &op, ordered(odd, "Mismatched data types: One rank had type %s, but another rank had type %s.", "int32", "float32"));

  op = good(is_odd ? GOROVOD_ALLGATHER : GOROVOD_ALLREDUCE);
  disagree(odd, &op, ordered(odd, "Mismatched operations: One rank did an %s, but another rank did an %s.", "ALLGATHER", "ALLREDUCE"));

  static const struct { int type, reduce_op; const char *name; } kinds[] = {
      {GOROVOD_ALLREDUCE, GOROVOD_SUM, "ALLREDUCE"}, {GOROVOD_ALLREDUCE, GOROVOD_ADASUM, "ADASUM"}, {GOROVOD_BROADCAST, GOROVOD_SUM, "BROADCAST"}, {GOROVOD_REDUCESCATTER, GOROVOD_SUM, "REDUCESCATTER"},
      {GOROVOD_REDUCE, GOROVOD_SUM, "REDUCE"}};
  for (int i = 0; i < 5; i++) {
    op = good(kinds[i].type);
    op.reduce_op = kinds[i].reduce_op;
    if (is_odd) op.ndim = 2, op.shape = three_two;
    snprintf(format, sizeof format, "Mismatched %s tensor shapes: One rank sent a tensor of shape %%s, but another rank sent a tensor of shape %%s.", kinds[i].name);
    disagree(odd, &op, ordered(odd, format, "[3, 2]", "[6]"));
    if (op.type == GOROVOD_BROADCAST) continue;
    op = good(kinds[i].type);
    op.reduce_op = kinds[i].reduce_op;
    if (is_odd) op.prescale = 0.5;
    disagree(odd, &op, ordered(odd, "Mismatched prescale and/or postscale factors: One rank sent factors %s, but another rank sent factors %s.", "(0.5, 1)", "(1, 1)"));
  }
  op = good(GOROVOD_REDUCESCATTER);
  if (is_odd) op.reduce_op = GOROVOD_AVERAGE;
  disagree(odd, &op, "Mismatched prescale and/or postscale factors: One rank sent factors");

  op = good(GOROVOD_ALLREDUCE);
  if (is_odd) op.reduce_op = GOROVOD_MAX;
  disagree(odd, &op, ordered(odd, "Mismatched reduction operation: One rank sent reduction op %s, but another rank sent reduction op %s.", "4", "1"));

  const int types[] = {GOROVOD_ALLGATHER, GOROVOD_ALLTOALL};
  const char *names[] = {"ALLGATHER", "ALLTOALL"};
  for (int i = 0; i < 2; i++) {
    op = good(types[i]);
    op.ndim = 0;
    snprintf(format, sizeof format, "Process-set rank zero tried to %s a rank-zero tensor.", names[i]);
    disagree(odd, &op, format);
    op = good(types[i]);
    if (is_odd) op.ndim = 2, op.shape = three_two;
    snprintf(format, sizeof format, "Mismatched %s tensor shapes: One rank sent a tensor of rank %%s, but another rank sent a tensor of rank %%s.", names[i]);
    disagree(odd, &op, ordered(odd, format, "2", "1"));
    op = good(types[i]);
    op.ndim = 3;
    op.shape = is_odd ? other_cube : cube;
    snprintf(format, sizeof format, "Mismatched %s tensor shapes: One rank sent a tensor with dimension 2 equal to %%s, but another rank sent a tensor with dimension 2 equal to %%s.", names[i]);
    disagree(odd, &op, ordered(odd, format, "5", "4"));
  }
  op = good(GOROVOD_REDUCESCATTER);
  op.shape = large;
  op.prescale = 0.5;
  disagree(odd, &op, "Reducescatter with prescale factor 0.5 needs the fusion buffer, but the tensor has 1028 bytes. Increase HOROVOD_FUSION_THRESHOLD");

  op = good(GOROVOD_BROADCAST);
  op.root_rank = is_odd ? 2 : 1;
  disagree(odd, &op, ordered(odd, "Mismatched BROADCAST root ranks: One rank specified root rank %s, but another rank specified root rank %s.", "2", "1"));
  op = good(GOROVOD_REDUCE);
  op.root_rank = is_odd ? 2 : 1;
  disagree(odd, &op, ordered(odd, "Mismatched REDUCE root ranks: One rank specified root rank %s, but another rank specified root rank %s.", "2", "1"));
}

/* The odd rank has joined. In the end all ranks join. */
static void joined(int odd) {
  static const struct { int type; const char *prefix; } kinds[] = {
      {GOROVOD_ALLGATHER, "Allgather is not supported with Join at this time. Specify sparse_to_dense=True if using DistributedOptimizer"},
      {GOROVOD_ALLTOALL, "Alltoall is not supported with Join at this time."},
      {GOROVOD_REDUCESCATTER, "Reducescatter is not supported with Join at this time."},
      {GOROVOD_BROADCAST, "Broadcast is not supported with Join at this time."}};
  for (int i = 0; i < 4; i++) {
    if (rank != odd) {
      gorovod_op op = good(kinds[i].type);
      op.root_rank = 0;
      CHECK(run(&op) == GOROVOD_PRECONDITION_ERROR && begins(kinds[i].prefix));
      if (odd == 1) report(GOROVOD_PRECONDITION_ERROR);
    }
    gorovod_op join = good(GOROVOD_JOIN);
    CHECK(run(&join) == GOROVOD_OK);
    works();
  }
}

/* Rank gone shuts down. The other ranks' pending operations fail, and so do later ones. */
static void shut_down(int gone) {
  const char *text = "Horovod has been shut down";
  if (rank == gone) {
    horovod_shutdown();
    return;
  }
  for (int i = 0; i < 2; i++) {
    gorovod_op op = good(GOROVOD_ALLREDUCE);
    CHECK(run(&op) == GOROVOD_UNKNOWN_ERROR && begins(text));
    CHECK(horovod_is_initialized() == 1);
  }
  horovod_shutdown();
}

static void not_initialized(void) {
  const int types[] = {GOROVOD_ALLREDUCE, GOROVOD_ALLGATHER, GOROVOD_BROADCAST, GOROVOD_ALLTOALL, GOROVOD_REDUCESCATTER, GOROVOD_BARRIER, GOROVOD_JOIN};
  for (int i = 0; i < 7; i++) {
    gorovod_op op = good(types[i]);
    CHECK(run(&op) == GOROVOD_PRECONDITION_ERROR);
    if (rank == 0) report(GOROVOD_PRECONDITION_ERROR);
  }
}

int main(void) {
  rank = atoi(getenv("HOROVOD_RANK"));
  const int ranks[] = {1, 2, 0, 2, 0, 1}, sizes[] = {2, 2, 2};
  for (int generation = 0; generation < SIZE; generation++) {
    not_initialized();
    CHECK(horovod_init(NULL, 0, ranks, sizes, 3));
    if (!horovod_is_initialized()) break;
    CHECK(horovod_size() == SIZE && horovod_number_of_process_sets() == 4);
    works();
    if (generation == 0) {
      refused();
      duplicates();
      for (int odd = 0; odd < SIZE; odd++) {
        disagreements(odd);
        joined(odd);
      }
    }
    shut_down(generation);
  }
  not_initialized();
  return failures > 100 ? 100 : failures;
}
