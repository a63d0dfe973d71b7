package operation

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// NaNCheck says what a rank does about a NaN or an infinity in its contribution to a reduction.
type NaNCheck uint8

// The ways.
const (
	NaNUnchecked NaNCheck = iota
	NaNWarn               // it logs the tensor
	NaNAbort              // it ends the job, before any rank has the result
)

var nanChecks = [...]string{"0", "warn", "abort"}

// String is what ParseNaNCheck parses.
func (c NaNCheck) String() string { return nanChecks[c] }

// ParseNaNCheck parses 0, 1 or warn, which are the same, and abort.
func ParseNaNCheck(s string) (NaNCheck, error) {
	if s == "1" {
		return NaNWarn, nil
	}
	for i, name := range nanChecks {
		if s == name {
			return NaNCheck(i), nil
		}
	}
	return NaNUnchecked, fmt.Errorf("0, 1, warn or abort is needed")
}

// Spreads says which elements of one rank's input spoil the result for all ranks. nan is false for kinds that only
// move data, and inf for minima and maxima too: programs begin these with an infinity.
func (k Kind) Spreads(op tensor.ReduceOp) (nan, inf bool) {
	switch k {
	case Adasum, Push:
		return true, true
	case Allreduce, Reducescatter, Reduce:
		return true, op != tensor.Min && op != tensor.Max
	}
	return false, false
}
