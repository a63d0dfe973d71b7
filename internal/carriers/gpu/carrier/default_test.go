package carrier

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// broken is a system whose device 1 fails. It has so many devices.
type broken struct {
	System
	devices int
}

func (b broken) Context(device int) (Context, error) {
	switch {
	case device >= b.devices:
		return nil, &cuda.NoDevice{Ordinal: device, Visible: b.devices}
	case device == 1:
		return nil, errors.New("out of memory")
	}
	return &counted{}, nil
}

// The default device gives way to device 0 if there is none of its number, and not if it fails: device 0 is another
// rank's then.
func TestDefaultDevice(t *testing.T) {
	for devices, want := range map[int]string{1: "", 2: "out of memory"} {
		d := New(broken{devices: devices}, Options{Default: 1})
		found, err := d.locate(-1)
		right := err == nil && found.device == 0
		if want != "" {
			right = err != nil && strings.Contains(err.Error(), want)
		}
		if !right {
			t.Errorf("%d devices: device %d, %v", devices, found.device, err)
		}
	}
}
