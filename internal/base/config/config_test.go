package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth/certtest"
)

func env(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestDefaults(t *testing.T) {
	c, err := Load(env())
	if err != nil {
		t.Fatal(err)
	}
	if c.Told.Rank != 0 || c.Told.Size != 1 || c.FusionThreshold != 128<<20 || c.CacheCapacity != 1024 ||
		c.Timeout.Seconds() != 30 || c.Transport != "auto" || len(c.Told.Rendezvous) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestLoad(t *testing.T) {
	c, err := Load(env("HOROVOD_RANK", "2", "HOROVOD_SIZE", "4", "HOROVOD_LOCAL_RANK", "2", "HOROVOD_LOCAL_SIZE", "4",
		"HOROVOD_HOSTNAME", "h", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT", "4711",
		"HOROVOD_SECRET_KEY", testKey, "HOROVOD_FUSION_THRESHOLD", "0",
		"HOROVOD_LOG_LEVEL", "nonsense", "HOROVOD_AUTOTUNE", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Told.Rendezvous, []string{"127.0.0.1:4711"}) || len(c.Told.Key) != 16 ||
		c.FusionThreshold != 0 || c.LogLevel != 4 || !c.Autotune.On || !c.IsSet("HOROVOD_AUTOTUNE") ||
		c.IsSet("HOROVOD_CYCLE_TIME") || len(c.Warnings) != 1 {
		t.Errorf("%+v", c)
	}
}

// The launcher can have several addresses; the one that is in two variables comes last.
func TestRendezvousAddresses(t *testing.T) {
	c, err := Load(env("HOROVOD_SIZE", "2", "HOROVOD_SECRET_KEY", testKey, "GOROVOD_RENDEZVOUS_ADDRS",
		"10.0.0.1:7, [fd00::1]:7", "HOROVOD_GLOO_IFACE", "eth0,ib0"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Told.Rendezvous, []string{"10.0.0.1:7", "[fd00::1]:7"}) || !slices.Equal(c.Interfaces,
		[]string{"eth0", "ib0"}) {
		t.Errorf("%q, %q", c.Told.Rendezvous, c.Interfaces)
	}
	c, err = Load(env("HOROVOD_SIZE", "2", "HOROVOD_SECRET_KEY", testKey, "GOROVOD_RENDEZVOUS_ADDRS", "10.0.0.1:7,a:8",
		"HOROVOD_GLOO_RENDEZVOUS_ADDR", "a", "HOROVOD_GLOO_RENDEZVOUS_PORT", "8"))
	if err != nil || !slices.Equal(c.Told.Rendezvous, []string{"10.0.0.1:7", "a:8"}) {
		t.Errorf("%q, %v", c.Told.Rendezvous, err)
	}
	c, err = Load(env("HOROVOD_SIZE", "2", "HOROVOD_SECRET_KEY", testKey, "GOROVOD_RENDEZVOUS_ADDRS", "10.0.0.1:7",
		"HOROVOD_GLOO_RENDEZVOUS_ADDR", "fd00::2", "HOROVOD_GLOO_RENDEZVOUS_PORT", "8"))
	if err != nil || !slices.Equal(c.Told.Rendezvous, []string{"10.0.0.1:7", "[fd00::2]:8"}) {
		t.Errorf("%q, %v", c.Told.Rendezvous, err)
	}
}

// Another launcher's variables count if Horovod's own do not give the place.
func TestStartedByOthers(t *testing.T) {
	srun := []string{"SLURM_JOB_ID", "7", "SLURM_STEP_ID", "0", "SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "3",
		"SLURM_LOCALID", "0", "SLURM_NODEID", "1", "SLURM_STEP_TASKS_PER_NODE", "2,1", "SLURMD_NODENAME", "n1"}
	c, err := Load(env(srun...))
	if err != nil || !c.StartedByOthers() || c.Told.Rank != 2 || c.Told.Size != 3 || c.Told.LocalSize != 1 ||
		c.Told.CrossRank != 1 || c.Told.CrossSize != 2 || c.Told.Hostname != "n1" {
		t.Errorf("error %v, %+v", err, c)
	}
	c, err = Load(env(append(srun, "HOROVOD_RANK", "0", "HOROVOD_SIZE", "1", "HOROVOD_HOSTNAME", "h")...))
	if err != nil || c.StartedByOthers() || c.Told.Rank != 0 || c.Told.Size != 1 || c.Told.Hostname != "h" {
		t.Errorf("horovodrun in a step: error %v, %+v", err, c)
	}
	// If mpirun does not say which ranks are on which host, the ranks find out later.
	c, err = Load(env("PMI_RANK", "1", "PMI_SIZE", "2"))
	if err != nil || c.Told.Rank != 1 || c.Told.LocalSize != 1 || c.Told.CrossSize != 1 {
		t.Errorf("error %v, %+v", err, c)
	}
	if c, err = Load(env("PMI_RANK", "0", "PMI_SIZE", "1")); err != nil || c.StartedByOthers() || c.Told.Size != 1 {
		t.Errorf("a job of one: error %v, %+v", err, c)
	}
	if _, err = Load(env("PMI_RANK", "2", "PMI_SIZE", "2")); err == nil || !strings.Contains(err.Error(),
		"rank 2 of 2") {
		t.Errorf("error %v", err)
	}
}

func TestReportsAndOperations(t *testing.T) {
	c, err := Load(env("HOROVOD_CYCLE_TIME", "2.5", "HOROVOD_STALL_CHECK_DISABLE", "1",
		"HOROVOD_STALL_CHECK_TIME_SECONDS", "5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "10", "HOROVOD_TIMELINE",
		"DYNAMIC", "HOROVOD_TIMELINE_MARK_CYCLES", "1", "HOROVOD_DISABLE_GROUP_FUSION", "1",
		"HOROVOD_DYNAMIC_PROCESS_SETS", "1",
		"GOROVOD_JOIN_ALL_OPS", "1", "HOROVOD_CONTROLLER", "GLOO", "HOROVOD_CPU_OPERATIONS", "gloo",
		"HOROVOD_ENABLE_XLA_OPS", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if c.CycleTime != 2500*time.Microsecond || !c.StallCheckDisable || c.StallCheckTime != 5*time.Second ||
		c.StallShutdownTime != 10*time.Second || c.Timeline != TimelineDynamic ||
		!c.TimelineMarkCycles || !c.DisableGroupFusion || !c.DynamicSets || !c.JoinAllOps || len(c.Warnings) != 0 {
		t.Errorf("%+v", c)
	}
}

// If one of the two is MPI and the other is not set, the other is MPI, too. With MPI the environment need not give the
// place.
func TestMPI(t *testing.T) {
	for _, c := range []struct {
		env             []string
		controller, cpu Backend
	}{
		{nil, Gloo, Gloo},
		{[]string{"HOROVOD_CONTROLLER", "MPI"}, MPI, MPI},
		{[]string{"HOROVOD_CPU_OPERATIONS", "mpi"}, MPI, MPI},
		{[]string{"HOROVOD_CONTROLLER", "mpi", "HOROVOD_CPU_OPERATIONS", "gloo"}, MPI, Gloo},
		{[]string{"HOROVOD_CONTROLLER", "gloo", "HOROVOD_CPU_OPERATIONS", "mpi"}, Gloo, MPI},
		{[]string{"HOROVOD_CONTROLLER", "mpi", "HOROVOD_SIZE", "4"}, MPI, MPI},
	} {
		got, err := Load(env(c.env...))
		if err != nil || got.Controller != c.controller || got.CPUOperations != c.cpu {
			t.Errorf("%v: %+v, %v", c.env, got, err)
		}
	}
	if _, err := Load(env("HOROVOD_CONTROLLER", "gloo", "HOROVOD_CPU_OPERATIONS", "mpi", "HOROVOD_SIZE",
		"4")); err == nil {
		t.Error("no error without a rendezvous")
	}
}

// Each error names the variable, the value and the mistake.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want []string
	}{
		{[]string{"HOROVOD_RANK", "x"}, []string{"HOROVOD_RANK=x", "whole number"}},
		{[]string{"HOROVOD_RANK", "1"}, []string{"HOROVOD_RANK=1 is not below HOROVOD_SIZE=1"}},
		{[]string{"HOROVOD_LOCAL_RANK", "3", "HOROVOD_LOCAL_SIZE", "2"},
			[]string{"HOROVOD_LOCAL_RANK=3 is not below HOROVOD_LOCAL_SIZE=2"}},
		{[]string{"HOROVOD_SIZE", "4"}, []string{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "horovodrun -np 4"}},
		{[]string{"HOROVOD_SIZE", "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "a", "HOROVOD_GLOO_RENDEZVOUS_PORT", "1"},
			[]string{"HOROVOD_SECRET_KEY is not set"}},
		{[]string{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "a"}, []string{"without HOROVOD_GLOO_RENDEZVOUS_PORT"}},
		{[]string{"HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}, []string{"without HOROVOD_GLOO_RENDEZVOUS_ADDR"}},
		{[]string{"HOROVOD_GLOO_RENDEZVOUS_PORT", "70000"}, []string{"port"}},
		{[]string{"GOROVOD_RENDEZVOUS_ADDRS", "a:1,b"}, []string{"GOROVOD_RENDEZVOUS_ADDRS=a:1,b", `"b"`, "HOST:PORT"}},
		{[]string{"GOROVOD_RENDEZVOUS_ADDRS", "fe80::1:2:3"}, []string{"HOST:PORT"}},
		{[]string{"GOROVOD_RENDEZVOUS_ADDRS", ":5"}, []string{"HOST:PORT"}},
		{[]string{"GOROVOD_RENDEZVOUS_ADDRS", "a:0"}, []string{"1 to 65535"}},
		{[]string{"HOROVOD_GLOO_IFACE", ","}, []string{"HOROVOD_GLOO_IFACE", "interfaces"}},
		{[]string{"HOROVOD_FUSION_THRESHOLD", "-1"}, []string{"HOROVOD_FUSION_THRESHOLD=-1", "bytes"}},
		{[]string{"HOROVOD_CACHE_CAPACITY", "99999999"}, []string{"HOROVOD_CACHE_CAPACITY=99999999", "65536"}},
		{[]string{"GOROVOD_HEARTBEAT_SECONDS", "4.9"}, []string{"seconds from 5 to"}},
		{[]string{"HOROVOD_GLOO_TIMEOUT_SECONDS", "0"}, []string{"seconds above 0"}},
		{[]string{"GOROVOD_TRANSPORT", "udp"}, []string{"GOROVOD_TRANSPORT=udp", "auto, shm or tcp"}},
		{[]string{"HOROVOD_GLOO_TIMEOUT_SECONDS", "nan"}, []string{"seconds above 0"}},
		{[]string{"HOROVOD_CYCLE_TIME", "-1"}, []string{"HOROVOD_CYCLE_TIME=-1", "milliseconds from 0 to 60000"}},
		{[]string{"HOROVOD_CYCLE_TIME", "(None,)"}, []string{"HOROVOD_CYCLE_TIME=(None,)", "milliseconds"}},
		{[]string{"HOROVOD_CYCLE_TIME", "60001"}, []string{"milliseconds"}},
		{[]string{"HOROVOD_CYCLE_TIME", "inf"}, []string{"milliseconds"}},
		{[]string{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"}, []string{"HOROVOD_STALL_CHECK_TIME_SECONDS=0",
			"HOROVOD_STALL_CHECK_DISABLE=1"}},
		{[]string{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "never"}, []string{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=never",
			"seconds from 0"}},
		{[]string{"HOROVOD_CONTROLLER", "smoke"}, []string{"HOROVOD_CONTROLLER=smoke", "gloo"}},
		{[]string{"HOROVOD_CPU_OPERATIONS", "ccl"}, []string{"HOROVOD_CPU_OPERATIONS=ccl", "no oneCCL", "gloo"}},
		{[]string{"DDL_OPTIONS", "-mode p:4x2"}, []string{"DDL_OPTIONS=-mode p:4x2", "no DDL"}},
		// all mistakes, each on a line
		{[]string{"HOROVOD_RANK", "a\n", "HOROVOD_SIZE", "b"}, []string{`HOROVOD_RANK="a\n"`, "HOROVOD_SIZE=b"}},
	} {
		_, err := Load(env(c.env...))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: error %v, want %q in it", c.env, err, want)
			}
		}
	}
}

// testKey is the shortest secret that a job may have.
const testKey = "00112233445566778899aabbccddeeff"

// A secret that can be guessed is refused, and no error contains it.
func TestSecretsThatAreNone(t *testing.T) {
	for secret, want := range map[string]string{"hunter2": "not hexadecimal", testKey + "0": "not hexadecimal",
		"ab": "openssl rand", testKey[2:]: "fewer than 32 hexadecimal digits"} {
		_, err := Load(env("HOROVOD_SIZE", "2", "HOROVOD_SECRET_KEY", secret, "GOROVOD_RENDEZVOUS_ADDRS", "10.0.0.1:7"))
		if err == nil || !strings.Contains(err.Error(), "HOROVOD_SECRET_KEY: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", secret, err, want)
		} else if len(secret) > 2 && strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

func TestRankZerosKnobsAreAdopted(t *testing.T) {
	zero, _ := Load(env("HOROVOD_FUSION_THRESHOLD", "77", "HOROVOD_LOG_LEVEL", "info"))
	mine, _ := Load(env("HOROVOD_CACHE_CAPACITY", "5"))
	differed, err := mine.Adopt(zero.Agreed())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(differed, " ") != "HOROVOD_FUSION_THRESHOLD HOROVOD_CACHE_CAPACITY" || mine.FusionThreshold != 77 ||
		mine.CacheCapacity != 1024 || mine.LogLevel != 4 {
		t.Errorf("differed %v, now %+v", differed, mine)
	}
	if again, err := mine.Adopt(zero.Agreed()); len(again) != 0 || err != nil {
		t.Errorf("adopting twice: %v, %v", again, err)
	}
	if _, err := mine.Adopt(map[string]string{"GOROVOD_TRANSPORT": "pigeon"}); err == nil {
		t.Error("nonsense was adopted")
	}
}

// A rank that asks for encryption gets it, or an error.
func TestEncryptionIsNotLostByMistake(t *testing.T) {
	for _, v := range []string{"yes", "true", "on", "l"} {
		if c, err := Load(env("GOROVOD_TLS", v)); err == nil || !strings.Contains(err.Error(),
			"GOROVOD_TLS="+v+": 1, which turns it on, or 0 is needed") {
			t.Errorf("%s: %v, error %v", v, c.TLS, err)
		}
	}
	with, _ := Load(env("GOROVOD_TLS", "1"))
	without, _ := Load(env("GOROVOD_TLS", "0"))
	if _, err := with.Adopt(without.Agreed()); err == nil || !strings.Contains(err.Error(),
		"GOROVOD_TLS is 1 on this rank and not on rank 0") {
		t.Errorf("error %v", err)
	}
	if _, err := without.Adopt(with.Agreed()); err != nil || !without.TLS {
		t.Errorf("TLS %v, error %v", without.TLS, err)
	}
}

// Certificates turn TLS on, and what cannot be used is an error.
func TestCertificates(t *testing.T) {
	c := certtest.NewCA(t).Issue(t.TempDir(), time.Now().Add(time.Hour))
	named := []string{"GOROVOD_TLS_CERT", c.Cert, "GOROVOD_TLS_KEY", c.Key, "GOROVOD_TLS_CA", c.CA}
	if with, err := Load(env(named...)); err != nil || with.Seal() == nil || *with.Seal() != c ||
		with.Agreed()["GOROVOD_TLS"] != "1" {
		t.Errorf("%+v, error %v", with, err)
	}
	if without, err := Load(env()); err != nil || without.Seal() != nil {
		t.Errorf("%+v, error %v", without, err)
	}
	if _, err := Load(env(named[:4]...)); err == nil || !strings.Contains(err.Error(), "GOROVOD_TLS_CA is not set") {
		t.Error(err)
	}
	if _, err := Load(env(append(named, "GOROVOD_TLS", "0")...)); err == nil || !strings.Contains(err.Error(),
		"GOROVOD_TLS=0 turns TLS off") {
		t.Error(err)
	}
}

// A Config that was not read from an environment can adopt, too.
func TestAdoptWithoutAnEnvironment(t *testing.T) {
	c := &Config{Told: Told{Size: 2}}
	if _, err := c.Adopt(map[string]string{"HOROVOD_CYCLE_TIME": "3"}); err != nil ||
		c.CycleTime != 3*time.Millisecond {
		t.Errorf("error %v, %+v", err, c)
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string // part of the only warning; empty for none
	}{
		{[]string{"HOROVOD_LOG_HIDE_TIME", "true"}, "HOROVOD_LOG_HIDE_TIME=true: it is not a number"},
		{[]string{"HOROVOD_LOG_LEVEL", "loud"}, "HOROVOD_LOG_LEVEL=loud: there is no such level"},
		{[]string{"HOROVOD_LOG_LEVEL", "WARNING"}, ""},
		{[]string{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "30"}, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=30 is below " +
			"HOROVOD_STALL_CHECK_TIME_SECONDS=60"},
		{[]string{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60"}, ""},
		{[]string{"PMI_SIZE", "1"}, ""},
		{[]string{"PMI_SIZE", "2", "HOROVOD_SIZE", "1"}, ""},
		{[]string{"HOROVOD_TORUS_ALLREDUCE", "1"}, ""},
		{[]string{"HOROVOD_TORUS_ALLREDUCE", "auto"}, ""},
		{[]string{"HOROVOD_TORUS_ALLREDUCE", "yes"}, "HOROVOD_TORUS_ALLREDUCE=yes: it is neither auto nor a number"},
	} {
		got, err := Load(env(c.env...))
		if err != nil {
			t.Errorf("%v: %v", c.env, err)
			continue
		}
		if w := strings.Join(got.Warnings, "; "); (w == "") != (c.want == "") || !strings.Contains(w, c.want) ||
			len(got.Warnings) > 1 {
			t.Errorf("%v: warnings %q, want %q", c.env, got.Warnings, c.want)
		}
	}
	if c, _ := Load(env("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "30")); c.StallShutdownTime != 0 {
		t.Errorf("the shutdown time that was ignored is %v", c.StallShutdownTime)
	}
}

// Flags are read as C's strtol reads them.
func TestTruth(t *testing.T) {
	for v, want := range map[string]bool{"0": false, "1": true, " 2": true, "-1": true, "+1": true, "1x": true,
		"00": false, "true": false, "x1": false, "0x1": false, "-": false, "99999999999999999999": true} {
		if truth(v) != want {
			t.Errorf("%q is %v", v, !want)
		}
	}
}

// An open hint is not the same as 0, and rank 0's open hint counts, too.
func TestHints(t *testing.T) {
	for v, want := range map[string]Hint{"": NoHint, "auto": NoHint, "0": No, "1": Yes, " 2": Yes, "yes": No} {
		c, err := Load(env("HOROVOD_HIERARCHICAL_ALLREDUCE", v))
		if err != nil || c.HierarchicalAllreduce != want || c.HierarchicalAllgather != NoHint {
			t.Errorf("%q: %v, %v", v, c.HierarchicalAllreduce, err)
		}
		zero, _ := Load(env())
		if _, err := c.Adopt(zero.Agreed()); err != nil || c.HierarchicalAllreduce != NoHint {
			t.Errorf("%q: %v after rank 0 has said nothing, %v", v, c.HierarchicalAllreduce, err)
		}
	}
}
