// Package bench holds the programs of gorovod bench's contenders that are in C or
// Python.
package bench

import _ "embed"

// Torch is the Python program of a rank, for horovod.torch and torch.distributed.
//
//go:embed torch/rank.py
var Torch []byte

// OpenMPI is the C program of a rank.
//
//go:embed openmpi/rank.c
var OpenMPI []byte
