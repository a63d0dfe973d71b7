package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/observe/flight"
)

// bundle is a file of a few texts, without secrets, that a user sends to somebody who helps.
type bundle struct {
	options
	environ []string
	examine func(Cluster, io.Writer) error
	redact  *redactor
}

// document is one file of a bundle.
type document struct {
	name, about string
	write       func(b *bundle, w io.Writer) error
}

// documents are the documents of every bundle, in order; dumps of a job follow them.
var documents = []document{
	{"versions.txt", "versions of gorovod, of what is in it, of the kernel and the system", (*bundle).versions},
	{"environment.txt", "variables of gorovod, Horovod and launchers, and a few others (PATH, OMP_NUM_THREADS, …)",
		(*bundle).environment},
	{"doctor.txt", "what gorovod doctor prints: names, addresses, limits, frameworks of the hosts",
		(*bundle).examination},
	{"dump.txt", "what gorovod doctor --dump prints: the last operations of a job, with the names of its tensors", nil},
	{"dumps/", "the same of each rank, as JSON", nil},
}

// others are the variables that a bundle has in addition to those that gorovod knows.
var others = []string{
	"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG",
	"LC_ALL", "TMPDIR",
	"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOMAXPROCS", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK",
	"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE",
	"NCCL_P2P_DISABLE",
	"KERAS_BACKEND", "JAX_PLATFORMS", "XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL", "PYTORCH_CUDA_ALLOC_CONF",
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
	"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_VERSION", "MPI_LOCALRANKID",
	"MPI_LOCALNRANKS", "PMIX_RANK", "PMIX_VERSION",
	"SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
	"SLURM_STEP_ID", "SLURM_STEP_NODELIST",
	"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
	"SLURM_MPI_TYPE", "SLURMD_NODENAME",
	"LSB_JOBID", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE",
}

// write makes the bundle's file, whole or not at all, and prints its contents on stdout.
func (b *bundle) write(stdout io.Writer) (err error) {
	archiveOf, err := form(b.Bundle)
	if err != nil {
		return Misuse{err}
	}
	f, err := os.OpenFile(b.Bundle, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // EXCL: follow no link, overwrite nothing
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("--bundle %s: it exists already: name a new file", b.Bundle)
	}
	if err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(b.Bundle)
		}
	}()
	fmt.Fprintf(stdout, "The bundle will have:\n%s\n", b.contents())
	packed := archiveOf(f, time.Now())
	add := func(name string, content []byte) error {
		return packed.add("gorovod-bundle/"+name, []byte(b.redact.text(string(content))))
	}
	if err := b.fill(add); err != nil {
		return err
	}
	if err := errors.Join(packed.close(), f.Sync()); err != nil {
		return fmt.Errorf("--bundle %s: %w", b.Bundle, err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %d bytes, for your eyes only. Nothing was sent. Read it before you send it: "+
		packed.read+" | less\n", b.Bundle, info.Size(), b.Bundle)
	return err
}

// contents says what is in the bundle, and what is not.
func (b *bundle) contents() string {
	var text strings.Builder
	for _, d := range documents {
		fmt.Fprintf(&text, "  %-16s %s\n", d.name, d.about)
	}
	text.WriteString("It has names of hosts, users' paths and addresses. It has no other variables, no " +
		"files of yours\n" +
		"and no logs. What looks like a secret (keys, tokens, passwords and queries in URLs, values of variables\n" +
		"that are called so) is taken out, and so are the arguments of commands, and the values of variables and\n" +
		"options that gorovod does not know.\n")
	return text.String()
}

// fill adds all documents.
func (b *bundle) fill(add func(name string, content []byte) error) error {
	made := "Made by gorovod doctor --bundle at " + time.Now().UTC().Format(time.RFC3339) + ".\n\n"
	if err := add("README.txt", []byte(made+b.contents())); err != nil {
		return err
	}
	for _, d := range documents {
		if d.write == nil {
			continue
		}
		var text bytes.Buffer
		if err := d.write(b, &text); err != nil {
			return err
		}
		if err := add(d.name, text.Bytes()); err != nil {
			return err
		}
	}
	return b.dumps(add)
}

// versions says what runs here.
func (b *bundle) versions(w io.Writer) error {
	fmt.Fprintf(w, "gorovod %s, interface of Horovod %s\n%s, %s/%s\n", version.Version, version.Horovod,
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				fmt.Fprintf(w, "%s %s\n", s.Key, s.Value[:min(12, len(s.Value))])
			case "vcs.time", "vcs.modified", "GOAMD64", "GOARM64":
				fmt.Fprintf(w, "%s %s\n", s.Key, s.Value)
			}
		}
		for _, d := range info.Deps {
			fmt.Fprintf(w, "%s %s\n", d.Path, d.Version)
		}
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		fmt.Fprintf(w, "kernel %s", kernel)
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return nil // not every system has one
	}
	for line := range strings.Lines(string(release)) {
		if name, value, _ := strings.Cut(line, "="); name == "PRETTY_NAME" {
			fmt.Fprintf(w, "system %s", strings.ReplaceAll(value, `"`, ""))
		}
	}
	return nil
}

// environment writes the allowed variables, by name.
func (b *bundle) environment(w io.Writer) error {
	allowed := map[string]bool{}
	for _, name := range others {
		allowed[name] = true
	}
	secret := map[string]bool{}
	for _, k := range config.Knobs {
		allowed[k.Name], secret[k.Name] = true, k.Secret
	}
	var shown []string
	for _, e := range b.environ {
		name, value, _ := strings.Cut(e, "=")
		if !allowed[name] {
			continue
		}
		switch {
		case secret[name] || secretName().MatchString(name):
			value = removed
		case slices.Contains(commandVariables, name):
			value = programOf(value)
		}
		shown = append(shown, name+"="+value)
	}
	slices.Sort(shown)
	fmt.Fprintf(w, "%s\n\n%d more variables are set.\n\n", strings.Join(shown, "\n"), len(b.environ)-len(shown))
	if err := Env(w, b.environ); err != nil && !errors.Is(err, errUnusable) {
		return err
	}
	return nil
}

// examination is the doctor's report. That a job could not run is a finding, and no error.
func (b *bundle) examination(w io.Writer) error {
	err := b.examine(b.Cluster, w)
	if errors.Is(err, ErrUnwell) {
		return nil
	}
	return err
}

// dumps adds the ranks' records: those of the named job, or of all jobs of this user that run on this host.
func (b *bundle) dumps(add func(name string, content []byte) error) error {
	var text bytes.Buffer
	jobs := [][]*flight.Dump{}
	if b.Dump != "" {
		dumps, silent, err := find(b.Dump)
		if err != nil {
			return err
		}
		flight.Merge(&text, dumps, silent)
		jobs = append(jobs, dumps)
	} else {
		running, _, err := flight.Running()
		if err != nil {
			fmt.Fprintf(&text, "%v\n", err)
		}
		for _, dumps := range running {
			flight.Merge(&text, dumps, nil)
			text.WriteByte('\n')
			jobs = append(jobs, dumps)
		}
		if len(running) == 0 {
			text.WriteString("No job runs on this host, and --dump has named none.\n")
		}
	}
	if err := add("dump.txt", text.Bytes()); err != nil {
		return err
	}
	for i, dumps := range jobs {
		for _, d := range dumps {
			content, err := json.MarshalIndent(d, "", " ")
			if err == nil {
				err = add(fmt.Sprintf("dumps/job%d-rank%d.json", i, d.Rank), append(content, '\n'))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
