// Package carrier carries operations on tensors in the memory of CUDA devices: by NCCL if all members of a lane can,
// else by copies in host memory and the host's own carrier.
//
// A program submits a Tensor with an operation: the device, and an event in the stream that the program works on. The
// lane's own stream waits for the event, so neither the program nor the engine has to wait. No operation blocks the
// driver: it polls NCCL and CUDA.
//
//	first operation ─▶ founding: claims ─▶ communicator ─▶ trial ─┬─▶ direct: NCCL
//	                   (over the host's carrier, see found.go)     └─▶ staged: fetch, host, store
//
// All members make the same decisions, because these depend only on the operation and on what the members have
// exchanged in the founding.
package carrier
