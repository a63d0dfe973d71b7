// Package bench holds the programs of gorovod bench's contenders that are not
// written in Go.
package bench

import _ "embed"

// Torch is the Python program of a rank: horovod.torch's or torch.distributed's.
//
//go:embed torch/rank.py
var Torch []byte

// OpenMPI is the C program of a rank.
//
//go:embed openmpi/rank.c
var OpenMPI []byte
