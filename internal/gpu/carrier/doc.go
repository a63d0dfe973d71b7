// Package carrier carries operations on tensors in the memory of CUDA devices: by NCCL where all members of a lane can,
// else by copies through host memory, over the host's own carrier.
//
// A program submits a Tensor with an operation: the device, and an event on the stream that the program works on. The
// lane's own stream waits for the event, so neither the program nor the engine does. Nothing here blocks: what NCCL and
// CUDA have not done yet is polled.
//
//	first operation ─▶ founding: claims ─▶ communicator ─▶ trial ─┬─▶ direct: NCCL
//	                   (over the host's carrier, see found.go)     └─▶ staged: fetch, host, store
//
// What members decide alike follows from what all of them have said in the founding, and from the operation.
package carrier
