package world

import (
	"log/slog"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/guard"
)

// openDevices lets the world know devices, if the program brings their carrier. Nothing is loaded before somebody
// submits memory of one.
func (w *World) openDevices(o *engine.Options, program *Options) {
	if program.Devices == nil {
		return
	}
	w.Devices = program.Devices(w)
	o.Devices = w.Devices
	w.devices.Store(&w.Devices)
}

// abortDevices ends what hangs in the devices, which may take a moment: the driver itself may hang there, and then does
// not see the abort of the network.
func (w *World) abortDevices(cause error) {
	if d := w.devices.Load(); d != nil {
		guard.Go("the abort of devices", func(error) {}, func() { (*d).Abort(cause) })
	}
}

// Log is where this rank's world logs.
func (w *World) Log() *slog.Logger { return w.log }
