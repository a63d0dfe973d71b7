package world

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// startEngine starts the engine on the network. If that fails, it closes the network.
func (w *World) startEngine(o Options) error {
	c, p := w.Config, w.Place
	if c.Timeline != "" && c.Timeline != config.TimelineDynamic {
		if err := w.StartTimeline(c.Timeline, c.TimelineMarkCycles); err != nil {
			w.net.Close()
			return fmt.Errorf("HOROVOD_TIMELINE: %w", err)
		}
	}
	cores := runtime.GOMAXPROCS(0)
	opts := engine.Options{Rank: p.Rank, Size: p.Size, FusionThreshold: c.FusionThreshold,
		CacheCapacity: c.CacheCapacity, EarlyBytes: c.EarlyBytes, Wire: c.Compression,
		GroupsApart: c.DisableGroupFusion, NaNCheck: c.NaNCheck,
		JoinAllOps: c.JoinAllOps, CycleTime: c.CycleTime, Timeline: w.Timeline,
		Spin: p.LocalSize <= cores, SpareCores: 2*p.LocalSize <= cores, OneHost: p.LocalSize == p.Size,
		MeasureLinks: c.MeasureLinks && w.severalHosts(), StartTimeout: c.Timeout,
		Describe: w.Describe, Records: c.FlightRecords, MainThread: o.MainThread,
		OthersSubmit: o.OthersSubmit, Collective: algorithms(c), Log: o.Log}
	w.openDevices(&opts, &o)
	w.monitor.Hook(&opts)
	if err := w.tune(&opts); err != nil {
		w.net.Close()
		return err
	}
	if err := w.carryByMPI(&opts, o.MPI); err != nil {
		w.net.Close()
		return err
	}
	e, err := engine.New(w.net, opts)
	if err != nil {
		w.unwatchMPI()
		return err
	}
	w.Engine = e
	w.running.Store(e)
	w.monitor.Started(e)
	w.flight = w.openFlightDesk(o.TrackFD)
	if w.session != nil {
		w.session.OnTell(w.figures)
	}
	return nil
}

// severalHosts reports whether the ranks are on several hosts. It is the same on all ranks, unlike what each was told
// of its place.
func (w *World) severalHosts() bool {
	return slices.ContainsFunc(w.members.Names(), func(name string) bool { return name != w.members[0].Host })
}
