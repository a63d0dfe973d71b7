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

// Seconds translates nanoseconds.
func Seconds(ns uint64) float64 { return float64(ns) / float64(time.Second) }
