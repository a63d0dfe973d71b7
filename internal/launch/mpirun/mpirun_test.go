package mpirun

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/placement"
)

func TestMPILaunchers(t *testing.T) {
	for text, want := range map[string]launcher{
		"mpirun (Open MPI) 4.1.4\n\nReport bugs":                                   openMPILauncher,
		"mpirun (OpenRTE) 2.1":                                                     openMPILauncher,
		"IBM Spectrum MPI 10.3, which also says Open MPI":                          spectrumLauncher,
		"HYDRA build details:\n    Version:                                 4.0.2": hydraLauncher,
		"Intel(R) MPI Library for Linux* OS, Version 2021.9":                       intelLauncher,
	} {
		if got, err := launcherOf(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if _, err := launcherOf("prun 1.0"); err == nil || !strings.Contains(err.Error(), `"prun 1.0"`) {
		t.Errorf("got %v", err)
	}
}

func TestMPICommand(t *testing.T) {
	many := make([]placement.Host, manyHosts)
	for i := range many {
		many[i] = placement.Host{Name: "h", Slots: 1}
	}
	hosts := []placement.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}
	for _, c := range []struct {
		launcher launcher
		args     string
		hosts    []placement.Host
		want     string // part of the command, or of the error
	}{
		{openMPILauncher, "-np 3", hosts, "mpirun --allow-run-as-root --tag-output -np 3 -H a:2,b:2 --bind-to none " +
			"--map-by slot --mca pml ob1 --mca btl ^openib --mca btl_tcp_if_exclude lo,docker0,virbr0 -x A " +
			"-x B prog arg"},
		{openMPILauncher, "-np 3", hosts[:1], "--mca btl ^openib -x A"},
		{openMPILauncher, "-np 3 --mpi-args=-mca~btl_tcp_if_include~eth0", hosts,
			"--mca btl ^openib -x A -x B -mca btl_tcp_if_include eth0"},
		{openMPILauncher, "-np 3 -p 22 -i k --network-interfaces x,y --output-filename d " +
			"--prefix-output-with-timestamp", hosts, "--mca plm_rsh_args -p 22 -i k --mca btl_tcp_if_include x,y " +
			"--output-filename d --timestamp-output -x A"},
		{openMPILauncher, "-np 3 --mpi-args=--oversubscribe --binding-args=-bind-to~core", many,
			"-bind-to core --mca pml ob1 --mca btl ^openib --mca plm_rsh_no_tree_spawn true --mca " +
				"plm_rsh_num_concurrent 64 --mca btl_tcp_if_exclude lo,docker0,virbr0 -x A -x B " +
				"--oversubscribe prog arg"},
		{spectrumLauncher, "-np 3 --tcp", hosts, "-H a:2,b:2 --bind-to socket --map-by socket --rank-by " +
			"core -tcp -x A"},
		// and a variable
		{hydraLauncher, "-np 3 -p 22", hosts, "mpirun -l -np 3 -ppn 2 -hosts a,b -bootstrap=ssh -genvlist " +
			"A,B prog arg"},
		{intelLauncher, "-np 3 -p 22 --network-interfaces x --output-filename d", hosts,
			"mpirun -l -np 3 -ppn 2 -hosts a,b -bootstrap=ssh -bootstrap-exec-args -p 22 -iface x -outfile-pattern d " +
				"-genvlist A,B prog arg"},
		{hydraLauncher, "-np 3", []placement.Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 2}}, "1 on a and 2 on b"},
		{hydraLauncher, "-np 3 --network-interfaces x,y", hosts, "not x,y"},
		{hydraLauncher, "-np 3 --prefix-output-with-timestamp", hosts, "no time"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		f, err := flags.Parse("horovodrun", append(append([]string{"--mpi"}, args...), "prog", "arg"))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		words, err := command(f, c.launcher, c.hosts, []string{"B=secret", "A=1"})
		got := strings.Join(words, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s,\nwant %s", c.args, got, c.want)
		}
	}
}

// A note names the options that mpirun has no use for.
func TestNotesOnMPIOptions(t *testing.T) {
	f, err := flags.Parse("horovodrun", strings.Fields("-np 2 --mpi --tcp --grace-period 1 --remote-command g "+
		"--disable-cache x"))
	if err != nil {
		t.Fatal(err)
	}
	if n, spectrum := len(notes(f, openMPILauncher)), len(notes(f, spectrumLauncher)); n != 4 || spectrum != 3 {
		t.Errorf("%d notes for Open MPI, %d for IBM's, which has --tcp", n, spectrum)
	}
}
