package job

import (
	"errors"
	"os"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// LaunchRanks starts a job with a fixed number of ranks, and waits for its end.
func LaunchRanks(f *flags.Flags, name string, input []byte, open Opener) (code int, why output.Report, err error) {
	hosts, err := f.HostList()
	if err != nil {
		return ending.UsageCode, why, err
	}
	slots, err := placement.Assign(hosts, f.NumProc)
	if err != nil {
		return ending.UsageCode, why, err
	}
	local := placement.Locals(hosts)
	isHere := func(host string) bool { return local[host] }
	here, far := 0, map[string]bool{}
	for _, slot := range slots {
		if local[slot.Host] {
			here++
		} else {
			far[slot.Host] = true
		}
	}
	for _, note := range f.Notes(here < len(slots)) {
		logging.Warn(name, note)
	}
	if len(far) > 0 {
		if err := spawn.CheckRemotes(len(far), len(slots)); err != nil {
			return ending.UsageCode, why, err
		}
	}
	path := ""
	if here > 0 {
		if err := spawn.CheckLimits(here); err != nil {
			return ending.UsageCode, why, err
		}
		if path, code, err = spawn.FindCommand(f.Command[0], os.Getenv("PATH")); err != nil {
			return code, why, err
		}
	}
	j := newJob(f, name, path, slots, input)
	j.Remote, j.Local = f.RemoteShell(), isHere
	return runJob(j, open)
}

// newJob is the job with these slots, but for the way to other hosts.
func newJob(f *flags.Flags, name, path string, slots []placement.Slot, input []byte) *Job {
	return &Job{
		Name:         name,
		Path:         path,
		Args:         f.Command,
		Slots:        slots,
		Env:          f.Environ(os.Environ()),
		Interfaces:   f.NetworkInterfaces,
		Input:        input,
		OutputDir:    f.OutputFilename,
		ResultDir:    f.Results,
		Timestamps:   f.PrefixTimestamp,
		Verbose:      f.Verbose,
		Certificates: f.Certificates,
		Grace:        f.Grace(),
		Stdout:       RanksStdout,
		Stderr:       os.Stderr,
	}
}

// runJob is Job.Run, for the program's main function.
func runJob(j *Job, open Opener) (code int, why output.Report, err error) {
	own, ranks := placement.ThisHost(), 0
	for _, s := range j.Slots {
		if own.Has(s.Host) {
			ranks++
		}
	}
	if j.Audience, err = open(ranks); err != nil {
		return ending.UsageCode, why, err
	}
	defer j.Audience.Close()
	code, err = j.Run()
	j.Audience.End(code, j.why, err)
	var start *startError
	if errors.As(err, &start) {
		return start.code, why, err
	}
	return code, j.why, err
}

// RanksStdout gets what the ranks print. It is /dev/null if the program has no stdout: a job goes on without.
var RanksStdout = os.Stdout
