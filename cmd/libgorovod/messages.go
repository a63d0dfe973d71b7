package main

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport/p2p"
	"github.com/gorovod/gorovod/internal/joining/process"
)

//export goSend
func goSend(to C.int, tag C.uint32_t, label C.uint16_t, data unsafe.Pointer, n C.size_t, timeout C.int64_t,
	reason *C.char) C.int {
	if status := checkMessage(to, data, n, reason); status != C.GOROVOD_OK {
		return status
	}
	ctx, cancel := within(timeout)
	defer cancel()
	return messageStatus(process.Send(ctx, int(to), uint32(tag), uint16(label), bytes(data, int64(n))), reason)
}

//export goRecv
func goRecv(from *C.int, tag C.uint32_t, data unsafe.Pointer, n C.size_t, received *C.size_t, label *C.uint16_t,
	timeout C.int64_t, reason *C.char) C.int {
	if status := checkMessage(*from, data, n, reason); status != C.GOROVOD_OK {
		return status
	}
	ctx, cancel := within(timeout)
	defer cancel()
	length, its, err := process.Recv(ctx, int(*from), uint32(tag), bytes(data, int64(n)))
	return messageReceived(int(*from), length, its, err, from, received, label, reason)
}

//export goRecvAny
func goRecvAny(ranks *C.int, count C.int, tag C.uint32_t, data unsafe.Pointer, n C.size_t, from *C.int,
	received *C.size_t, label *C.uint16_t, timeout C.int64_t, reason *C.char) C.int {
	among := make([]int, 0, count)
	for _, r := range unsafe.Slice(ranks, count) {
		among = append(among, int(r))
	}
	if ranks == nil {
		among = nil
	}
	for _, r := range append([]int{0}, among...) {
		if status := checkMessage(C.int(r), data, n, reason); status != C.GOROVOD_OK {
			return status
		}
	}
	ctx, cancel := within(timeout)
	defer cancel()
	sender, length, its, err := process.RecvAny(ctx, among, uint32(tag), bytes(data, int64(n)))
	return messageReceived(sender, length, its, err, from, received, label, reason)
}

// messageReceived tells C about a message that has come, or about one that did not fit.
func messageReceived(sender, length int, its uint16, err error, from *C.int, received *C.size_t, label *C.uint16_t,
	reason *C.char) C.int {
	var long *p2p.TooLong
	if errors.As(err, &long) {
		sender, length, its = long.From, long.Length, long.Label
	}
	if err == nil || long != nil {
		*from, *received, *label = C.int(sender), C.size_t(length), C.uint16_t(its)
	}
	return messageStatus(err, reason)
}

func checkMessage(peer C.int, data unsafe.Pointer, n C.size_t, reason *C.char) C.int {
	w := process.World()
	switch {
	case w == nil:
		explain(reason, engine.ErrNotInitialized.Reason)
		return C.GOROVOD_PRECONDITION_ERROR
	case peer < 0 || int(peer) >= w.Place.Size:
		explain(reason, fmt.Sprintf("rank %d is not one of the %d ranks", int(peer), w.Place.Size))
		return C.GOROVOD_INVALID_ARGUMENT
	case data == nil && n > 0:
		explain(reason, "data is NULL")
		return C.GOROVOD_INVALID_ARGUMENT
	}
	return C.GOROVOD_OK
}

// within returns a context that ends after a C time-out in milliseconds.
func within(timeout C.int64_t) (context.Context, context.CancelFunc) {
	if timeout < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(min(int64(timeout), 1<<40))*time.Millisecond)
}

func messageStatus(err error, reason *C.char) C.int {
	if err == nil {
		return C.GOROVOD_OK
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		explain(reason, "the time is over")
		return C.GOROVOD_IN_PROGRESS
	case errors.Is(err, p2p.ErrTooLong):
		explain(reason, err.Error())
		return C.GOROVOD_INVALID_ARGUMENT
	}
	explain(reason, err.Error())
	return C.GOROVOD_UNKNOWN_ERROR
}
