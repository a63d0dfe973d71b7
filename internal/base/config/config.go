// Package config lists every environment variable in one table, Knobs: variables with an effect, and Horovod's
// variables that have no effect here or are refused, each with the reason. Init reads a Config once; nothing else in
// the engine reads the environment.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Config holds the values of the environment.
type Config struct {
	// Told is what the variables say about this process as a rank. Package bootstrap completes it.
	Told          Told
	RendezvousDir string   // a directory that all ranks of a job of another launcher share
	Interfaces    []string // the interfaces at which other ranks find this one; empty: all
	// ElasticDriver lists the addresses of an elastic job's driver, as Rendezvous does for the server; empty in other
	// jobs. ElasticWorker is this process's number for the driver.
	ElasticDriver []string
	ElasticWorker int
	// CheckpointDir is the directory into which rank 0 writes every CheckpointEvery-th commit of an elastic state;
	// empty: rank 0 writes none.
	CheckpointDir   string
	CheckpointEvery int

	// CycleTime is how long a small tensor that is ready may wait for other tensors to fuse with; 0: not at all.
	CycleTime          time.Duration
	FusionThreshold    int64 // bytes; 0 disables fusion
	DisableGroupFusion bool  // a group's tensors are fused with no others
	CacheCapacity      int   // of each process set; 0 disables the cache
	// EarlyBytes is the most bytes of a tensor whose data travels between hosts with the news that it is ready; 0
	// stands for none.
	EarlyBytes   int
	MeasureLinks bool // measure the connections between hosts at Init
	DynamicSets  bool // process sets may be added and removed after Init
	// JoinAllOps enables operations that Horovod refuses while a rank has joined. A rank that has joined contributes an
	// empty part.
	JoinAllOps bool
	// Deterministic fixes the order in which elements are combined between hosts.
	Deterministic bool
	// Hints about the algorithms for operations over several hosts.
	HierarchicalAllreduce, HierarchicalAllgather, TorusAllreduce Hint
	// Compression is the form in which float sums travel between hosts, for operations that ask for no form.
	Compression tensor.Wire
	// Controller says over what the ranks meet; CPUOperations says what carries the data. Both are Gloo, which stands
	// for the native transports, or MPI.
	Controller, CPUOperations Backend
	MPIThreadsDisable         bool   // one thread makes all calls of MPI
	MPILibrary                string // the libmpi to load; empty: the one that is found

	Transport string // auto, shm, tcp
	GPU       GPU    // how tensors in device memory travel
	// AsyncCompletion ends an operation on device memory as soon as it is in a stream.
	AsyncCompletion bool
	SingleCopy      bool              // between ranks that share memory, if the system allows it
	HugePages       bool              // for memory that other ranks access
	TLS             bool              // on all TCP connections
	Certificates    auth.Certificates // for TLS
	TCPStreams      int               // data connections from each rank to another; 0: the size of the world decides
	Timeout         time.Duration     // for the start-up

	StallCheckDisable bool
	StallCheckTime    time.Duration // above 0: when, and how often, a waiting tensor is reported
	// StallShutdownTime is how long a tensor waits before it ends the job: 0 for never, else at least StallCheckTime.
	StallShutdownTime time.Duration
	DeadlockAbort     bool // end the job if ranks wait for one another

	// FlightRecords is how many of its last operations a rank remembers. If something goes wrong, it writes them to
	// DumpDir: a directory, or - for stderr; if it is empty, it writes none.
	FlightRecords int
	DumpDir       string
	// Heartbeat is how long a rank may be silent, while others wait for it, before it counts as lost; 0: for ever.
	Heartbeat time.Duration
	// KeepAlive is how often something passes over an idle connection between ranks, so that no firewall forgets it;
	// 0: never.
	KeepAlive time.Duration
	// NaNCheck says what a rank does if its contribution to a reduction has a NaN or an infinity.
	NaNCheck operation.NaNCheck
	// ConsistencySteps is how many steps lie between two comparisons of the ranks' parameters; 0: no comparisons.
	ConsistencySteps int

	Autotune Autotune

	Timeline           string // a path, TimelineDynamic, or empty
	TimelineMarkCycles bool
	LogLevel           slog.Level
	LogFormat          logging.Format
	LogHideTime        bool

	// Warnings are sentences about variables that may not work as their author meant. Show them to the user.
	Warnings []string

	rendezvousHost, rendezvousPort string
	readings                       map[string]*reading
	err                            error // what validate found
}

// Told is what the variables of horovodrun, or of another launcher, say about a rank.
type Told struct {
	Rank, Size           int
	LocalRank, LocalSize int
	CrossRank, CrossSize int
	Hostname             string
	// Rendezvous lists the server's addresses, host:port pairs, the likeliest first; empty for a job of one process.
	Rendezvous []string
	Key        []byte // the job's secret; empty if none is known
	// Place is what the variables of another launcher say. LocalSize and CrossSize in it may be 0 until the ranks have
	// met.
	Place environment.Place
}

// Autotune says whether, and how, the engine searches for better settings.
type Autotune struct {
	On     bool
	Log    string  // path of a CSV file; empty for none
	Warmup int     // points that are measured and ignored
	Steps  int     // rounds of a tensor in one sample
	Points int     // how many points are measured
	Noise  float64 // variance of a score
}

// IsSet reports whether the environment sets the knob.
func (c *Config) IsSet(name string) bool { return c.readings[name] != nil }

// Backend is one of Horovod's backends.
type Backend string

const (
	Gloo Backend = "gloo"
	MPI  Backend = "mpi"
)

// GPU says how tensors in device memory travel.
type GPU string

const (
	GPUAuto   GPU = "auto"   // by NCCL if all ranks can, else staged
	GPUNCCL   GPU = "nccl"   // by NCCL, or not at all
	GPUStaged GPU = "staged" // copied through host memory
	GPUOff    GPU = "off"    // not at all
)

// Hint is a wish: yes, no, or open.
type Hint int8

const (
	NoHint Hint = iota
	No
	Yes
)

// TimelineDynamic, as the value of Timeline, enables timelines without starting one.
const TimelineDynamic = "DYNAMIC"

// MaxEarlyBytes is the largest GOROVOD_EARLY_BYTES.
const MaxEarlyBytes = 64 << 10

// MaxCacheCapacity is the largest HOROVOD_CACHE_CAPACITY, in cards. Cards take shared memory.
const MaxCacheCapacity = 1 << 16

// reading is the result of reading a variable that is set.
type reading struct {
	text    string // the variable's text, quoted if not printable; empty for secrets
	err     error  // why the text cannot be used
	adopted bool
}

// defaults is the Config of an empty environment.
func defaults() *Config {
	return &Config{
		Told:            Told{Size: 1, LocalSize: 1, CrossSize: 1, Hostname: "localhost"},
		FusionThreshold: 128 << 20, CacheCapacity: 1024, EarlyBytes: 4096, MeasureLinks: true, Transport: "auto",
		GPU: GPUAuto, Controller: Gloo, CPUOperations: Gloo,
		Timeout:         30 * time.Second,
		Autotune:        Autotune{Warmup: 3, Steps: 10, Points: 20, Noise: 0.8},
		CheckpointEvery: 1, StallCheckTime: 60 * time.Second, DeadlockAbort: true, SingleCopy: true, HugePages: true,
		Heartbeat: 30 * time.Second, KeepAlive: time.Minute, FlightRecords: 500, LogLevel: slog.LevelWarn,
		LogFormat: logging.Text,
	}
}

// Load reads the configuration. lookup is os.LookupEnv or C's getenv. A variable with an empty value counts as not set.
// The error names each invalid variable, its value, and what is needed.
func Load(lookup func(name string) (string, bool)) (*Config, error) {
	c := Read(lookup)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Read is Load for reports: it always returns a Config, with the default for each invalid variable. Err reports these.
func Read(lookup func(name string) (string, bool)) *Config {
	c := defaults()
	c.readings = make(map[string]*reading)
	for i := range Knobs {
		k := &Knobs[i]
		v, ok := lookup(k.Name)
		if !ok || v == "" {
			continue
		}
		r := &reading{text: printable(v)}
		if k.Secret {
			r.text = isSet
		}
		c.readings[k.Name] = r
		if k.parse == nil {
			continue
		}
		err := k.parse(c, v)
		var odd remark
		switch {
		case errors.As(err, &odd):
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s=%s: %s", k.Name, r.text, odd))
		case err != nil && k.Secret:
			r.err = fmt.Errorf("%s: %w", k.Name, err) // without the value, which is secret
		case err != nil:
			r.err = fmt.Errorf("%s=%s: %w", k.Name, r.text, err)
		}
	}
	c.pairBackends()
	c.findPlace(lookup)
	c.validate()
	return c
}

// Err is nil if the Config can be used. Otherwise it has a line for each invalid variable.
func (c *Config) Err() error {
	var all []error
	for i := range Knobs {
		if r := c.readings[Knobs[i].Name]; r != nil && r.err != nil {
			all = append(all, r.err)
		}
	}
	if len(all) == 0 {
		return c.err
	}
	return errors.Join(all...) // validate's findings may only follow from these
}

// pairBackends: if one of the two is MPI and the other is not set, the other becomes MPI, too.
func (c *Config) pairBackends() {
	if c.Controller == MPI && !c.IsSet("HOROVOD_CPU_OPERATIONS") {
		c.CPUOperations = MPI
	}
	if c.CPUOperations == MPI && !c.IsSet("HOROVOD_CONTROLLER") {
		c.Controller = MPI
	}
}

// Seal returns what encrypts connections; nil if nothing does.
func (c *Config) Seal() *auth.Certificates {
	if !c.TLS {
		return nil
	}
	return &c.Certificates
}

// validate checks conditions on several variables.
func (c *Config) validate() {
	c.validatePlacement()
	if c.Certificates.IsSet() {
		if err := c.Certificates.Check(c.IsSet("GOROVOD_TLS") && !c.TLS); err != nil && c.err == nil {
			c.err = err
		}
		c.TLS = true
	}
	if c.StallShutdownTime > 0 && c.StallShutdownTime < c.StallCheckTime {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=%s is below HOROVOD_STALL_CHECK_TIME_SECONDS=%s, so it "+
				"is ignored: a stall is reported before it ends the job", seconds(c.StallShutdownTime),
				seconds(c.StallCheckTime)))
		c.StallShutdownTime = 0
	}
}

// validatePlacement checks the variables of the rank's place, unless the place comes from MPI.
func (c *Config) validatePlacement() {
	if c.Controller == MPI {
		return
	}
	switch {
	case c.rendezvousHost != "" && c.rendezvousPort != "":
		if last := net.JoinHostPort(c.rendezvousHost, c.rendezvousPort); !slices.Contains(c.Told.Rendezvous, last) {
			c.Told.Rendezvous = append(c.Told.Rendezvous, last)
		}
	case c.rendezvousHost != "":
		c.err = errors.New("HOROVOD_GLOO_RENDEZVOUS_ADDR is set without HOROVOD_GLOO_RENDEZVOUS_PORT")
	case c.rendezvousPort != "":
		c.err = errors.New("HOROVOD_GLOO_RENDEZVOUS_PORT is set without HOROVOD_GLOO_RENDEZVOUS_ADDR")
	case c.StartedByOthers():
	case c.Told.Size > 1 && len(c.Told.Rendezvous) == 0:
		c.err = fmt.Errorf("HOROVOD_SIZE is %d, but HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT are not set: start the "+
			"program with horovodrun -np %d", c.Told.Size, c.Told.Size)
	}
	if c.err == nil && c.Told.Size > 1 && len(c.Told.Key) == 0 && !c.StartedByOthers() {
		c.err = errors.New("HOROVOD_SECRET_KEY is not set: ranks prove to one another that they know the job's " +
			"secret; horovodrun hands it over, and ranks started by hand need the launcher's")
	}
	for _, p := range []struct {
		name       string
		rank, size int
	}{{"", c.Told.Rank, c.Told.Size}, {"LOCAL_", c.Told.LocalRank, c.Told.LocalSize}, {"CROSS_", c.Told.CrossRank,
		c.Told.CrossSize}} {
		if p.rank >= p.size {
			c.err = fmt.Errorf("HOROVOD_%sRANK=%d is not below HOROVOD_%sSIZE=%d", p.name, p.rank, p.name, p.size)
			break
		}
	}
}

// findPlace reads the process's place from its launcher's variables, if Horovod's own are not set. HOROVOD_HOSTNAME
// counts in any case.
func (c *Config) findPlace(lookup func(string) (string, bool)) {
	if c.Controller == MPI {
		return // the place comes from MPI
	}
	p, err := environment.Find(lookup)
	if err != nil {
		c.err = err
		return
	}
	c.Told.Place = p
	if !c.StartedByOthers() {
		return
	}
	c.Told.Rank, c.Told.Size = p.Rank, p.Size
	c.Told.LocalRank, c.Told.LocalSize, c.Told.CrossRank, c.Told.CrossSize = p.LocalRank, max(1, p.LocalSize),
		p.CrossRank, max(1, p.CrossSize)
	if p.LocalSize == 0 {
		c.Told.LocalRank = 0
	}
	if p.Host != "" && !c.IsSet("HOROVOD_HOSTNAME") {
		c.Told.Hostname = p.Host
	}
}

// StartedByOthers reports whether another launcher has started this process as one of several ranks. Such ranks meet
// by package meet.
func (c *Config) StartedByOthers() bool {
	return c.Told.Place.Launcher != environment.Nobody && c.Told.Place.Launcher != environment.Horovodrun &&
		c.Told.Place.Size > 1
}

// Agreed returns the knobs that must be the same on all ranks, as text by name.
func (c *Config) Agreed() map[string]string {
	agreed := make(map[string]string)
	for _, k := range Knobs {
		if k.Agreed {
			agreed[k.Name] = k.show(c)
		}
	}
	return agreed
}

// Adopt sets the agreed knobs to rank 0's, and returns the names of those that differed. If this rank was asked for
// encryption and rank 0 was not, it returns an error.
func (c *Config) Adopt(zero map[string]string) ([]string, error) {
	if c.TLS && zero["GOROVOD_TLS"] == "0" {
		return nil, errors.New("GOROVOD_TLS is 1 on this rank and not on rank 0: it must be set for all ranks, for " +
			"instance with horovodrun -x GOROVOD_TLS=1")
	}
	var differed []string
	for _, k := range Knobs {
		if !k.Agreed {
			continue
		}
		v, ok := zero[k.Name]
		if !ok || v == k.show(c) {
			continue
		}
		differed = append(differed, k.Name)
		if err := k.parse(c, v); err != nil {
			return nil, fmt.Errorf("rank 0's %s=%s: %w", k.Name, printable(v), err)
		}
		if c.readings == nil {
			c.readings = make(map[string]*reading)
		}
		c.readings[k.Name] = &reading{text: printable(v), adopted: true}
	}
	return differed, nil
}
