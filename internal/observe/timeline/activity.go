package timeline

// What an operation may be doing, by Horovod's names, because tools look for these.
const (
	Queue                  = "QUEUE" // ready, but other operations run first
	WaitForData            = "WAIT_FOR_DATA"
	WaitForOtherTensorData = "WAIT_FOR_OTHER_TENSOR_DATA"
	InitFusionBuffer       = "INIT_FUSION_BUFFER"
	AllocateOutput         = "ALLOCATE_OUTPUT"
	MemcpyInFusionBuffer   = "MEMCPY_IN_FUSION_BUFFER"
	MemcpyOutFusionBuffer  = "MEMCPY_OUT_FUSION_BUFFER"
	GlooAllreduce          = "GLOO_ALLREDUCE"
	GlooAllgather          = "GLOO_ALLGATHER"
	GlooBcast              = "GLOO_BCAST"
	GlooReducescatter      = "GLOO_REDUCESCATTER"
	MPIAlltoall            = "MPI_ALLTOALL" // also over Gloo
	MPIAdasumAllreduce     = "MPI_ADASUM_ALLREDUCE"
)
