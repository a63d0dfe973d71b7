package timeline

// What an operation may be doing, by Horovod's names: tools look for them.
const (
	Queue                  = "QUEUE" // ready, but others are executed first
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
	MPIAlltoall            = "MPI_ALLTOALL" // of Gloo too
	MPIAdasumAllreduce     = "MPI_ADASUM_ALLREDUCE"
)
