package cuda

import "fmt"

// Error is a failure of a call of the driver.
type Error struct {
	Call string // the function
	Code int    // CUresult
	Name string // such as CUDA_ERROR_ILLEGAL_ADDRESS; empty if the driver does not know the code
	Text string // may be empty
}

func (e *Error) Error() string {
	switch {
	case e.Name == "":
		return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	case e.Text == "":
		return fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	}
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
}

// NoDevice is the failure to use a device that the process does not see.
type NoDevice struct{ Ordinal, Visible int }

func (e *NoDevice) Error() string {
	return fmt.Sprintf("there is no CUDA device %d in this process, which sees %d", e.Ordinal, e.Visible)
}

// Codes of CUresult that a caller tests for.
const (
	codeOutOfMemory   = 2
	codeDeinitialized = 4
)

// Is reports whether the error is ErrOutOfMemory or ErrUnloading.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrOutOfMemory:
		return e.Code == codeOutOfMemory
	case ErrUnloading:
		return e.Code == codeDeinitialized
	}
	return false
}

// VersionText writes a version of CUDA as people do: 12.8 for 12080. A broken driver may say a negative one.
func VersionText(v int) string {
	if v < 0 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}
