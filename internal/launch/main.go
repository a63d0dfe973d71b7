// Package launch is the program horovodrun: it reads the command line, starts the processes of a job, watches them, and
// ends them: always all of them, also after the launcher's own death.
package launch

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/joining/observer"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/job"
	"github.com/gorovod/gorovod/internal/launch/mpirun"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
	"github.com/gorovod/gorovod/internal/observe/jobs"
	"github.com/gorovod/gorovod/internal/observe/top"
	"github.com/gorovod/gorovod/internal/observe/tracemerge"
	"github.com/gorovod/gorovod/internal/tools/bench"
	"github.com/gorovod/gorovod/internal/tools/manifests"
	"github.com/gorovod/gorovod/internal/tools/notices"
)

// Main is the program: argv[0] chooses between horovodrun, gorovod and the
// hidden supervisor. It returns the exit code.
func Main(argv []string) int {
	spawn.RunningProgram() // before a directory is changed
	useLogFormat(os.Environ())
	if len(argv) > 0 && argv[0] == spawn.SupervisorName {
		return spawn.Supervise(argv[1:])
	}
	name := "gorovod"
	if len(argv) > 0 {
		name = filepath.Base(argv[0])
		argv = argv[1:]
	}
	catchRawLog(name)
	if name == "horovodrun" && len(argv) == 1 && argv[0] == "agent" {
		return remote.ServeAgent(os.Stdin, os.Stdout)
	}
	if name != "horovodrun" {
		name = "gorovod"
		switch {
		case len(argv) == 0:
			io.WriteString(os.Stderr, usage())
			return ending.UsageCode
		case argv[0] == "run":
			name, argv = "gorovod run", argv[1:]
		case argv[0] == "doctor":
			return runDoctor(argv[1:])
		case argv[0] == "agent":
			return remote.ServeAgent(os.Stdin, os.Stdout)
		case argv[0] == leaveCommand.Name:
			return exit(name + " leave")(leave(name+" leave", argv[1:]))
		case argv[0] == "drive":
			return exit(name + " drive")(serveDrive(name+" drive", argv[1:], os.Stdin, os.Stdout))
		case argv[0] == "bench":
			return bench.Main("gorovod bench", argv[1:], os.Stdout, os.Stderr)
		case argv[0] == manifests.Command.Name:
			return exit(name + " k8s")(manifests.Main(name+" k8s", argv[1:], os.Stdout, flags.Rendered))
		case argv[0] == tracemerge.Command.Name:
			return exit(name + " trace")(tracemerge.Main(name+" trace", argv[1:], os.Stdout))
		case argv[0] == observer.Subcommand:
			return exit(name)(observe(argv[1:]))
		case argv[0] == jobs.Command.Name:
			return exit(name + " ps")(jobs.Main(name+" ps", argv[1:], os.Stdout))
		case argv[0] == top.Command.Name:
			return exit(name + " top")(top.Main(name+" top", argv[1:], os.Stdout))
		case argv[0] == "rendezvous":
			return exit(name + " rendezvous")(serveRendezvous(name+" rendezvous", argv[1:],
				os.Getenv(spawn.SecretVariable), os.Stdout))
		case argv[0] == "--version" || argv[0] == "-v" || argv[0] == "version":
			return show(name, fmt.Sprintf("gorovod %s (build %s%s; interface of Horovod %s)\n", version.Version,
				wire.Build(), revision(), version.Horovod))
		case argv[0] == "--licenses":
			return show(name, notices.Text)
		case argv[0] == "--help" || argv[0] == "-h" || argv[0] == "help":
			return show(name, usage())
		case argv[0] == completionCommand.Name:
			return exit(name)(complete(name+" completion", argv[1:]))
		case argv[0] == manCommand.Name:
			return exit(name)(manual(name+" man", argv[1:]))
		default:
			return exit(name)(ending.UsageCode, misspelt(argv[0]))
		}
	}
	return exit(name)(run(name, argv))
}

// exit prints an error with the command's name, and returns the exit code.
func exit(name string) func(code int, err error) int {
	return func(code int, err error) int {
		if err != nil {
			job.LastWord(logging.Message(slog.LevelError, name, err.Error()))
		}
		return code
	}
}

// useLogFormat writes this program's messages in the form that the environment of its ranks asks for. The ranks refuse
// an invalid value in hvd.init().
func useLogFormat(env []string) {
	f, _ := logging.ParseFormat(environment.Get(env, logging.FormatVariable))
	logging.Use(f)
}

// WithoutStdout is called before Main if stdout is closed: printing fails from then on.
func WithoutStdout() {
	fd, err := syscall.Dup(syscall.Stdout)
	if err != nil {
		return
	}
	os.Stdout = os.NewFile(uintptr(fd), job.RanksStdout.Name())
	os.Stdout.Close()
}

// run is horovodrun. If the job fails, it tells horovod.run why.
func run(name string, args []string) (code int, err error) {
	code, why, err := launch(name, args)
	switch {
	case err != nil:
		output.Report{Refused: code == ending.UsageCode, Text: err.Error()}.Write(name, output.ReportFile(args))
	case code != 0:
		why.Write(name, output.ReportFile(args))
	}
	return code, err
}

// launch parses and checks everything before it starts anything. why is the cause of a failure after the start.
func launch(name string, args []string) (code int, why output.Report, err error) {
	f, err := flags.Parse(name, args)
	if out := flags.RangeError(""); f != nil && f.Parsed && errors.As(err, &out) {
		return show(name, flags.RefusedValue(out)), why, nil
	}
	if err != nil {
		return ending.UsageCode, why, err
	}
	useLogFormat(f.Environ(os.Environ()))
	switch {
	case f.Help != "":
		return show(name, f.Help), why, nil
	case f.Version:
		return show(name, fmt.Sprintf("%s (gorovod %s)\n", version.Horovod, version.Version)), why, nil
	case f.CheckBuild:
		summary, note, err := checkBuild(f.Command, f.Environ(os.Environ()))
		if err != nil {
			return 1, why, fmt.Errorf("--check-build: %w", err)
		}
		logging.Warn(name, note)
		return show(name, summary), why, nil
	case f.Parsed:
		text, err := f.JSON()
		return show(name, text), why, err
	}
	for _, warning := range f.Warnings {
		logging.Warn(name, warning)
	}
	if !f.MPI && (f.Place == nil || f.Place.Rank == 0) { // once for the job: MPI's rank 0 warns itself
		for _, text := range misspeltVariables(f.Environ(os.Environ())) {
			logging.Warn(name, text)
		}
	}
	if err := f.CheckFiles(); err != nil {
		return ending.UsageCode, why, err
	}
	if f.Lifeline != nil {
		hold(*f.Lifeline)
	}
	var input []byte
	if f.Input != "" {
		if input, err = os.ReadFile(f.Input); err != nil {
			return ending.UsageCode, why, err
		}
	}
	if f.MPIJob {
		f.SayMPIJob(name)
	}
	if f.Place != nil {
		return job.LaunchNodes(f, name, input)
	}
	if f.IsElastic() {
		return job.RunElastic(name, f, input)
	}
	if f.MPI {
		code, err = mpirun.Run(f)
		return code, why, err
	}
	return job.LaunchRanks(f, name, input)
}

// hold ends this process, as SIGTERM does, at the end of fd: a pipe ends when the process at its other end is gone.
func hold(fd int) {
	syscall.CloseOnExec(fd)
	lifeline := os.NewFile(uintptr(fd), "lifeline")
	go func() {
		io.Copy(io.Discard, lifeline)
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
}

// revision is the source revision that Go has noted for this program; empty if it has not.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	number, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			number = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", changed"
		}
	}
	if number == "" {
		return ""
	}
	return ", revision " + number + changed
}
