package feed

import (
	"strconv"
	"strings"
	"time"
)

// OpName is the kind's name in lower case, such as "allreduce".
func (w *Work) OpName() string { return strings.ToLower(w.Op.String()) }

// OpName is the kind's name in lower case, such as "allreduce".
func (t Tensors) OpName() string { return strings.ToLower(t.Op.String()) }

// SetName is the number of the process set, or "other".
func (t Tensors) SetName() string {
	if t.Set >= OtherSets {
		return "other"
	}
	return strconv.Itoa(t.Set)
}

var wayNames = [NumWays]string{"shm", "tcp", "mpi", "nccl"}

// String is the way's label in metrics.
func (w Way) String() string {
	if w >= NumWays {
		return "unknown"
	}
	return wayNames[w]
}

// NICOf is the network interface over which data goes in a way; "" where that is unknown.
func (f *Figures) NICOf(w Way) string {
	if w != ByTCP {
		return ""
	}
	return f.NIC.Name
}

// Seconds translates nanoseconds.
func Seconds(ns uint64) float64 { return float64(ns) / float64(time.Second) }

// HottestShare is Hottest from 0 to 1.
func (t *Table) HottestShare() float64 { return float64(t.Hottest) / 1e6 }
