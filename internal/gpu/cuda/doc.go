// Package cuda calls CUDA's driver, libcuda.so.1, which it loads at run time. It knows devices, contexts, streams,
// events and memory, and nothing of collectives.
//
// The driver is never linked: a program with this package starts where there is no CUDA at all. Nothing is loaded
// before Open. Streams and events of CUDA's runtime, which PyTorch and JAX use, are the driver's own handles, so the
// runtime (libcudart) is not needed.
//
// Any goroutine may call anything. Each call makes its context current on its thread for as long as it lasts, and
// leaves the thread as it was. No call waits for the device, but Context.Synchronize and the freeing of memory.
//
// Do not use the package in a forked child: CUDA does not survive a fork.
package cuda
