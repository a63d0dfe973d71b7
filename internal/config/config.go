// Package config holds every knob of the environment in one table. A Config is
// read once, at Init; nothing else in the module reads the environment.
package config

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Config is what the environment says.
type Config struct {
	Rank, Size           int
	LocalRank, LocalSize int
	CrossRank, CrossSize int
	Hostname             string
	RendezvousAddr       string // host:port; empty for a job of one process
	Key                  []byte // the job's secret; empty if none is known

	FusionThreshold int64
	CacheCapacity   int
	Timeout         time.Duration // of the start-up
	LogLevel        slog.Level
	LogHideTime     bool
	Transport       string // auto, shm, tcp
	DynamicSets     bool
	Elastic         bool

	// Ignored names variables that are set but mean nothing to this version.
	Ignored []string
}

// Knob is one variable: its name, what it means, and its default in words.
type Knob struct {
	Name, Default, Doc string
	// Agreed knobs must be the same on all ranks: rank 0's value counts.
	Agreed bool
	parse  func(c *Config, v string) error
}

// MaxCacheCapacity bounds HOROVOD_CACHE_CAPACITY: slots live in shared memory.
const MaxCacheCapacity = 1 << 16

// Knobs is the table.
var Knobs = []Knob{
	{Name: "HOROVOD_RANK", Default: "0", Doc: "this process's rank", parse: number(func(c *Config) *int { return &c.Rank }, 0, 1<<20)},
	{Name: "HOROVOD_SIZE", Default: "1", Doc: "number of processes", parse: number(func(c *Config) *int { return &c.Size }, 1, 1<<20)},
	{Name: "HOROVOD_LOCAL_RANK", Default: "0", Doc: "rank among the processes of this host", parse: number(func(c *Config) *int { return &c.LocalRank }, 0, 1<<20)},
	{Name: "HOROVOD_LOCAL_SIZE", Default: "1", Doc: "number of processes on this host", parse: number(func(c *Config) *int { return &c.LocalSize }, 1, 1<<20)},
	{Name: "HOROVOD_CROSS_RANK", Default: "0", Doc: "index of this host among those that have this local rank", parse: number(func(c *Config) *int { return &c.CrossRank }, 0, 1<<20)},
	{Name: "HOROVOD_CROSS_SIZE", Default: "1", Doc: "number of hosts that have this local rank", parse: number(func(c *Config) *int { return &c.CrossSize }, 1, 1<<20)},
	{Name: "HOROVOD_HOSTNAME", Default: "localhost", Doc: "name of this host; processes with the same name share memory if they can", parse: text(func(c *Config) *string { return &c.Hostname })},
	{Name: "HOROVOD_GLOO_RENDEZVOUS_ADDR", Default: "none", Doc: "where the launcher listens", parse: func(c *Config, v string) error {
		c.RendezvousAddr = v
		return nil
	}},
	{Name: "HOROVOD_GLOO_RENDEZVOUS_PORT", Default: "none", Doc: "its port", parse: func(c *Config, v string) error {
		if _, err := strconv.ParseUint(v, 10, 16); err != nil {
			return fmt.Errorf("a port from 0 to 65535 is needed")
		}
		c.RendezvousAddr += ":" + v
		return nil
	}},
	{Name: "HOROVOD_SECRET_KEY", Default: "none", Doc: "the job's secret in hexadecimal; horovodrun makes one for each job", parse: func(c *Config, v string) error {
		key, err := hex.DecodeString(v)
		if err != nil {
			return fmt.Errorf("it is not hexadecimal") // never the value
		}
		c.Key = key
		return nil
	}},
	{Name: "HOROVOD_FUSION_THRESHOLD", Default: "134217728", Doc: "bytes of small tensors that are reduced together; 0 disables fusion", Agreed: true, parse: func(c *Config, v string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("a number of bytes, 0 or more, is needed")
		}
		c.FusionThreshold = n
		return nil
	}},
	{Name: "HOROVOD_CACHE_CAPACITY", Default: "1024", Doc: "number of tensors whose negotiation is remembered; 0 disables the cache", Agreed: true, parse: number(func(c *Config) *int { return &c.CacheCapacity }, 0, MaxCacheCapacity)},
	{Name: "HOROVOD_GLOO_TIMEOUT_SECONDS", Default: "30", Doc: "how long initialisation waits for the other ranks", parse: func(c *Config, v string) error {
		s, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil || s <= 0 || s > 1e6 {
			return fmt.Errorf("a number of seconds above 0 is needed")
		}
		c.Timeout = time.Duration(s * float64(time.Second))
		return nil
	}},
	{Name: "HOROVOD_LOG_LEVEL", Default: "warning", Doc: "trace, debug, info, warning, error or fatal", parse: func(c *Config, v string) error {
		c.LogLevel = logLevel(v)
		return nil
	}},
	{Name: "HOROVOD_LOG_HIDE_TIME", Default: "0", Doc: "1: no time in log lines", parse: boolean(func(c *Config) *bool { return &c.LogHideTime })},
	{Name: "HOROVOD_DYNAMIC_PROCESS_SETS", Default: "0", Doc: "1: process sets may be added and removed after initialisation", parse: boolean(func(c *Config) *bool { return &c.DynamicSets })},
	{Name: "HOROVOD_ELASTIC", Default: "0", Doc: "set by an elastic launcher", parse: boolean(func(c *Config) *bool { return &c.Elastic })},
	{Name: "GOROVOD_TRANSPORT", Default: "auto", Doc: "auto, shm (shared memory) or tcp", Agreed: true, parse: func(c *Config, v string) error {
		switch v {
		case "auto", "shm", "tcp":
			c.Transport = v
			return nil
		}
		return fmt.Errorf("auto, shm or tcp is needed")
	}},
}

// unsupported are Horovod's variables that would change what a job does, were
// they implemented: a job that sets them is told.
var unsupported = []string{
	"HOROVOD_CYCLE_TIME", "HOROVOD_HIERARCHICAL_ALLREDUCE", "HOROVOD_HIERARCHICAL_ALLGATHER", "HOROVOD_TORUS_ALLREDUCE",
	"HOROVOD_AUTOTUNE", "HOROVOD_TIMELINE", "HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
	"HOROVOD_THREAD_AFFINITY", "HOROVOD_DISABLE_GROUP_FUSION",
}

// Load reads the configuration. lookup is os.LookupEnv or C's getenv. An error
// names the variable and what is wrong with it.
func Load(lookup func(name string) (string, bool)) (*Config, error) {
	c := &Config{Size: 1, LocalSize: 1, CrossSize: 1, Hostname: "localhost", FusionThreshold: 128 << 20, CacheCapacity: 1024,
		Timeout: 30 * time.Second, LogLevel: slog.LevelWarn, Transport: "auto"}
	for _, k := range Knobs {
		v, ok := lookup(k.Name)
		if !ok || v == "" {
			continue
		}
		if err := k.parse(c, v); err != nil {
			if k.Name == "HOROVOD_SECRET_KEY" {
				return nil, fmt.Errorf("%s: %w", k.Name, err)
			}
			return nil, fmt.Errorf("%s=%s: %w", k.Name, v, err)
		}
	}
	for _, name := range unsupported {
		if v, ok := lookup(name); ok && v != "" && v != "0" {
			c.Ignored = append(c.Ignored, name)
		}
	}
	return c, c.validate()
}

// validate checks what one variable alone cannot tell.
func (c *Config) validate() error {
	for _, p := range []struct {
		name       string
		rank, size int
	}{{"", c.Rank, c.Size}, {"LOCAL_", c.LocalRank, c.LocalSize}, {"CROSS_", c.CrossRank, c.CrossSize}} {
		if p.rank >= p.size {
			return fmt.Errorf("HOROVOD_%sRANK=%d is not below HOROVOD_%sSIZE=%d", p.name, p.rank, p.name, p.size)
		}
	}
	if strings.HasPrefix(c.RendezvousAddr, ":") {
		return fmt.Errorf("HOROVOD_GLOO_RENDEZVOUS_PORT is set without HOROVOD_GLOO_RENDEZVOUS_ADDR")
	}
	if c.RendezvousAddr != "" && !strings.Contains(c.RendezvousAddr, ":") {
		return fmt.Errorf("HOROVOD_GLOO_RENDEZVOUS_ADDR is set without HOROVOD_GLOO_RENDEZVOUS_PORT")
	}
	if c.Size > 1 && c.RendezvousAddr == "" {
		return fmt.Errorf("HOROVOD_SIZE is %d, but HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT are not set: start the program with horovodrun -np %d", c.Size, c.Size)
	}
	if c.Size > 1 && len(c.Key) == 0 {
		return fmt.Errorf("HOROVOD_SECRET_KEY is not set: ranks prove to one another that they know the job's secret; horovodrun hands it over, and ranks started by hand need the launcher's")
	}
	return nil
}

// Agreed are the knobs that all ranks must share, as text by name.
func (c *Config) Agreed() map[string]string {
	return map[string]string{
		"HOROVOD_FUSION_THRESHOLD": strconv.FormatInt(c.FusionThreshold, 10),
		"HOROVOD_CACHE_CAPACITY":   strconv.Itoa(c.CacheCapacity),
		"GOROVOD_TRANSPORT":        c.Transport,
	}
}

// Adopt takes rank 0's agreed knobs, and returns the names of those that differed.
func (c *Config) Adopt(zero map[string]string) ([]string, error) {
	mine := c.Agreed()
	var differed []string
	for _, k := range Knobs {
		v, ok := zero[k.Name]
		if !k.Agreed || !ok || v == mine[k.Name] {
			continue
		}
		differed = append(differed, k.Name)
		if err := k.parse(c, v); err != nil {
			return nil, fmt.Errorf("rank 0's %s: %w", k.Name, err)
		}
	}
	return differed, nil
}

func number(field func(*Config) *int, least, most int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil || n < least || n > most {
			return fmt.Errorf("a whole number from %d to %d is needed", least, most)
		}
		*field(c) = n
		return nil
	}
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = v
		return nil
	}
}

// boolean follows Horovod: a number other than 0 is true, other text is false.
func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		*field(c) = n != 0
		return nil
	}
}

// logLevel follows Horovod: unknown text means warning.
func logLevel(v string) slog.Level {
	switch strings.ToLower(v) {
	case "trace", "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "error", "fatal":
		return slog.LevelError
	}
	return slog.LevelWarn
}
