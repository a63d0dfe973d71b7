package world

import (
	"log/slog"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// openDevices opens the devices if the program has a carrier for them. It loads nothing: the first operation on memory
// of a device does.
func (w *World) openDevices(o *engine.Options, program *Options) {
	if program.Devices == nil {
		return
	}
	w.Devices = program.Devices(w)
	o.Devices = w.Devices
	w.devices.Store(&w.Devices)
}

// abortDevices ends calls that hang in the devices, because the driver itself may hang in one, and then does not see
// the abort of the network. Ending them may take a moment, so a goroutine does it.
func (w *World) abortDevices(cause error) {
	if d := w.devices.Load(); d != nil {
		guard.Go("the abort of devices", func(error) {}, func() { (*d).Abort(cause) })
	}
}

// Log is where this rank's world logs.
func (w *World) Log() *slog.Logger { return w.log }
