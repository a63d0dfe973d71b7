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
	"github.com/gorovod/gorovod/internal/launch/audience"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/job"
	"github.com/gorovod/gorovod/internal/launch/mpirun"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
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
		if len(argv) == 0 {
			io.WriteString(os.Stderr, usage())
			return ending.UsageCode
		}
		c := subcommandOf(argv[0])
		if c == nil {
			return exit(name)(ending.UsageCode, misspelt(argv[0]))
		}
		name += " " + c.words[0]
		return exit(name)(c.run(name, argv[1:]))
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
	open := func(ranks int) (job.Audience, error) {
		warn := func(text string) { logging.Warn(name, text) }
		return audience.Open(f, f.Command[0], ranks, audience.Sayer(name), warn)
	}
	if f.Place != nil {
		return job.LaunchNodes(f, name, input, open)
	}
	if f.IsElastic() {
		return job.RunElastic(name, f, input, open)
	}
	if f.MPI {
		code, err = mpirun.Run(f)
		return code, why, err
	}
	return job.LaunchRanks(f, name, input, open)
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
