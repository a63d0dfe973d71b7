package main

// #include "shim.h"
import "C"

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/joining/process"
)

func init() {
	pid := os.Getpid() // no forked child ever asks
	process.MainThread = func() bool { return unix.Gettid() == pid }
	process.OthersSubmit = func() bool { return bool(C.shim_others_submit()) }
}
