package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/process"
)

func init() {
	pid := os.Getpid() // no forked child ever asks
	process.MainThread = func() bool { return unix.Gettid() == pid }
}
