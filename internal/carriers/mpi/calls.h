/*
 * gv_run for one kind of handle, of the type handle; RUN is the function's name.
 * Included once for each kind; the prototypes are those of mpi.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define FN(name, ...) ((int (*)(__VA_ARGS__))m->function[GV_##name])
#define H(x) ((handle)(uintptr_t)(x))

/* Widens a handle. An int's first bit is no sign. */
#define WIDE(h) (sizeof(handle) == sizeof(int) ? (uintptr_t)(unsigned int)(uintptr_t)(h) : (uintptr_t)(h))

void RUN(const struct gv_library *m, struct gv_call *c) {
  handle made = H(0), request = H(c->request);
  const void *in = (const void *)c->in;
  void *out = (void *)c->out;
  int n = (int)c->count;
  if (c->what > GV_LAST_AT_ANY_TIME) { /* once MPI is finalized, these would abort all processes */
    int finalized = 0;
    c->code = FN(Finalized, int *)(&finalized);
    if (finalized) c->code = GV_FINALIZED;
    if (c->code != 0) return;
  }
  switch (c->what) {
    case GV_Initialized: c->code = FN(Initialized, int *)(&c->result); break;
    case GV_Finalized: c->code = FN(Finalized, int *)(&c->result); break;
    case GV_Init_thread: /* peer: the level to ask for */
      c->code = FN(Init_thread, int *, char ***, int, int *)(NULL, NULL, c->peer, &c->result);
      break;
    case GV_Query_thread: c->code = FN(Query_thread, int *)(&c->result); break;
    case GV_Finalize: c->code = FN(Finalize, void)(); break;
    case GV_Get_library_version: c->code = FN(Get_library_version, char *, int *)(out, &c->result); break;
    case GV_Error_string: /* peer: the error */
      c->code = FN(Error_string, int, char *, int *)(c->peer, out, &c->result);
      break;
    case GV_Comm_rank: c->code = FN(Comm_rank, handle, int *)(H(c->comm), &c->result); break;
    case GV_Comm_size: c->code = FN(Comm_size, handle, int *)(H(c->comm), &c->result); break;
    case GV_Comm_idup:
      /* MPI writes the new communicator when the request ends: out must live until then. */
      c->code = FN(Comm_idup, handle, handle *, handle *)(H(c->comm), (handle *)out, &request);
      break;
    case GV_Comm_free:
      made = H(c->comm);
      c->code = FN(Comm_free, handle *)(&made);
      break;
    case GV_Comm_set_errhandler:
      c->code = FN(Comm_set_errhandler, handle, handle)(H(c->comm), H(m->errors_return));
      break;
    case GV_Comm_create_group: { /* counts: the members' ranks in comm, count of them */
      handle all = H(0), some = H(0);
      c->code = FN(Comm_group, handle, handle *)(H(c->comm), &all);
      if (c->code != 0) break;
      c->code = FN(Group_incl, handle, int, const int *, handle *)(all, n, c->counts, &some);
      if (c->code == 0) {
        c->code = FN(Comm_create_group, handle, handle, int, handle *)(H(c->comm), some, c->tag, &made);
        FN(Group_free, handle *)(&some);
      }
      FN(Group_free, handle *)(&all);
      break;
    }
    case GV_Group_translate_ranks: { /* op: a communicator; counts: gets the ranks in comm of its members */
      handle all = H(0), some = H(0);
      c->code = FN(Comm_group, handle, handle *)(H(c->comm), &all);
      if (c->code != 0) break;
      c->code = FN(Comm_group, handle, handle *)(H(c->op), &some);
      if (c->code == 0) {
        for (int i = 0; i < n; i++) c->places[i] = i;
        c->code = FN(Group_translate_ranks, handle, int, const int *, handle, int *)(some, n, c->places, all, c->counts);
        FN(Group_free, handle *)(&some);
      }
      FN(Group_free, handle *)(&all);
      break;
    }
    case GV_Op_create:
      c->code = FN(Op_create, gv_reducer *, int, handle *)(gv_reducer_of(c->dtype_number, c->op_number), 1, &made);
      break;
    case GV_Test: {
      int ended = 0;
      c->code = FN(Test, handle *, int *, void *)(&request, &ended, m->status_ignore);
      c->result = ended;
      break;
    }
    case GV_Isend:
      c->code = FN(Isend, const void *, int, handle, int, int, handle, handle *)(
          in, n, H(c->dtype), c->peer, c->tag, H(c->comm), &request);
      break;
    case GV_Irecv:
      c->code = FN(Irecv, void *, int, handle, int, int, handle, handle *)(
          out, n, H(c->dtype), c->peer, c->tag, H(c->comm), &request);
      break;
    case GV_Ibarrier: c->code = FN(Ibarrier, handle, handle *)(H(c->comm), &request); break;
    case GV_Ibcast:
      c->code = FN(Ibcast, void *, int, handle, int, handle, handle *)(out, n, H(c->dtype), c->peer, H(c->comm), &request);
      break;
    case GV_Iallreduce:
      c->code = FN(Iallreduce, const void *, void *, int, handle, handle, handle, handle *)(
          in, out, n, H(c->dtype), H(c->op), H(c->comm), &request);
      break;
    case GV_Iallgatherv:
      c->code = FN(Iallgatherv, const void *, int, handle, void *, const int *, const int *, handle, handle, handle *)(
          in, n, H(c->dtype), out, c->counts, c->places, H(c->dtype), H(c->comm), &request);
      break;
    case GV_Ialltoallv:
      c->code = FN(Ialltoallv, const void *, const int *, const int *, handle, void *, const int *, const int *, handle,
                   handle, handle *)(in, c->counts, c->places, H(c->dtype), out, c->recv_counts, c->recv_places,
                                     H(c->dtype), H(c->comm), &request);
      break;
    case GV_Ireduce_scatter:
      c->code = FN(Ireduce_scatter, const void *, void *, const int *, handle, handle, handle, handle *)(
          in, out, c->counts, H(c->dtype), H(c->op), H(c->comm), &request);
      break;
    case GV_Comm_group:
    case GV_Group_incl:
    case GV_Group_size:
    case GV_Group_free:
    case GV_FUNCTION_COUNT: /* only used above */ break;
  }
  c->request = WIDE(request);
  c->made = WIDE(made);
}
