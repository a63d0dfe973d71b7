package main

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/joining/process"
)

//export goElastic
func goElastic() C.int { return C.int(process.Elastic()) }

//export goElasticUpdates
func goElasticUpdates(stamp *C.int64_t) C.int {
	at, update := process.HostUpdates()
	*stamp = C.int64_t(at)
	return C.int(update)
}

//export goElasticAwait
func goElasticAwait(timeout C.int64_t) C.int {
	ctx := context.Background()
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(int64(timeout), 1<<40))*time.Millisecond)
		defer cancel()
	}
	switch err := process.AwaitHostUpdates(ctx); {
	case err == nil:
		return 1
	case ctx.Err() != nil:
		return 0
	}
	return -1
}

//export goElasticCommitted
func goElasticCommitted(number C.int64_t) { process.Committed(int64(number)) }

//export goElasticIntact
func goElasticIntact() { process.Intact() }

//export goElasticNeedsSync
func goElasticNeedsSync() C.int { return truth(process.NeedsSync()) }

//export goCheckpointDue
func goCheckpointDue(number C.int64_t, final C.int) C.int {
	return truth(process.CheckpointDue(int64(number), final != 0))
}

//export goCheckpointSave
func goCheckpointSave(number C.int64_t, data unsafe.Pointer, n C.size_t, reason *C.char) C.int {
	if err := process.SaveCheckpoint(int64(number), bytes(data, int64(n))); err != nil {
		explain(reason, err.Error())
		if errors.Is(err, process.ErrNoCheckpoints) {
			return C.GOROVOD_PRECONDITION_ERROR
		}
		return C.GOROVOD_UNKNOWN_ERROR
	}
	return C.GOROVOD_OK
}

//export goCheckpointLoad
func goCheckpointLoad(number *C.int64_t, data *unsafe.Pointer, n *C.size_t, reason *C.char) C.int {
	got, state, err := process.LoadCheckpoint()
	*number, *data, *n = C.int64_t(got), nil, C.size_t(len(state))
	if err != nil {
		explain(reason, err.Error())
		return C.GOROVOD_UNKNOWN_ERROR
	}
	if got >= 0 {
		*data = C.CBytes(state) // not NULL, even without bytes
	}
	return C.GOROVOD_OK
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
