package flags

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/notice"
)

func TestElasticNodesOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--nnodes 2:1 --node-rank 0 --master-addr a true":         `--nnodes "2:1": a number from 1 to`,
		"--nnodes 2 --node-rank 0 --master-addr a --leave-on x t": "--leave-on is for elastic jobs",
		"--leave-on x true":                                               "each node has a launcher",
		"-np 2 --leave-on x true":                                         "give --nnodes MIN:MAX, or set PET_NNODES",
		"-np 2 -H b:2 --leave-on x true":                                  "give --nnodes MIN:MAX, or set PET_NNODES",
		"--nnodes 2 --node-rank 0 --master-addr a --max-np 3 true":        "--max-np is for elastic jobs",
		"--nnodes 1:2 --node-rank 0 --master-addr a -H b:1 true":          "--hosts and --nnodes: one of them",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on http: t":   "",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on http:// t": "--leave-on http://: a file, or a URL",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on http://me:word@h/x t": "http://me:xxxxx@h/x: " +
			"messages name the URL, so it cannot have",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on HTTP://h/x t":  "",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on HTTP:// t":     "--leave-on HTTP://: a file, or a URL",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on ftp://h/x t":   "ftp://h/x: a URL of http or https",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on file:///t/n t": "name a file by its path alone: /t/n",
		"--nnodes 4 --node-rank 0 --master-addr a --min-np 3 --max-np 2 t":    "--max-np 2 is below --min-np 3",
		"--nnodes 4 --node-rank 0 --master-addr a -np -1 t":                   "-np -1: at least 1 process",
	} {
		_, err := Parse("horovodrun", strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// The variable is that of a whole cluster's pods: where it cannot mean anything, it is not an error.
func TestLeaveVariable(t *testing.T) {
	const unused = notice.LeaveVariable + " is not used"
	t.Setenv("HOROVOD_RANK", "")
	for _, c := range []struct{ where, args, warns, fails string }{
		{where: "/x", args: "-np 2 t", warns: unused},
		{where: "/x", args: "--nnodes 2 --node-rank 0 --master-addr a t", warns: unused},
		{where: "ftp://h", args: "--nnodes 2 --node-rank 0 --master-addr a t", warns: unused},
		{where: "/x", args: "--nnodes 1:2 --node-rank 0 --master-addr a t"},
		{where: "/x", args: "--nnodes 1:2 --node-rank 0 --master-addr a --leave-on /y t"},
		{where: "ftp://h", args: "--nnodes 1:2 --node-rank 0 --master-addr a t",
			fails: notice.LeaveVariable + " ftp://h: a URL"},
		{where: " /x", args: "--nnodes 1:2 --node-rank 0 --master-addr a t",
			fails: notice.LeaveVariable + ` " /x": it begins or ends with white space`},
	} {
		t.Setenv(notice.LeaveVariable, c.where)
		f, err := Parse("horovodrun", strings.Fields(c.args))
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q %s: %v, want %q", c.where, c.args, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q %s: %v", c.where, c.args, err)
			continue
		}
		if got := strings.Join(f.Warnings, "; "); !strings.HasPrefix(got, c.warns) || c.warns == "" && got != "" {
			t.Errorf("%q %s warns %q, want %q", c.where, c.args, got, c.warns)
		}
	}
	t.Setenv("HOROVOD_RANK", "0")
	if f, err := Parse("horovodrun", strings.Fields("-np 2 t")); err != nil || len(f.Warnings) > 0 {
		t.Errorf("a job that a rank starts: %v, %v", f.Warnings, err)
	}
}

// In a pod -np does not lead away from the other pods, as it does not beside --nnodes. Named hosts do.
func TestNodesVariable(t *testing.T) {
	for _, c := range []struct {
		env, args string
		nodes     int // 0: the job is this host's alone, or that of named hosts
		elastic   bool
		warns     string
	}{
		{env: "PET_NNODES=2", args: "-np 2 t", nodes: 2},
		{env: "PET_NNODES=2", args: "t", nodes: 2},
		{env: "PET_NNODES=2", args: "-np 2 --min-np 1 t", nodes: 2, elastic: true},
		{env: "PET_NNODES=1:2", args: "-np 2 --min-np 1 t", nodes: 2, elastic: true},
		{env: "PET_NNODES=1:1", args: "-np 1 t", nodes: 1, elastic: true},
		{env: "PET_NNODES=1", args: "-np 2 t"},
		{env: "PET_NNODES=", args: "-np 2 t"},
		{env: "PET_NNODES=2", args: "-np 2 --nnodes 1 t", nodes: 1},
		{env: "PET_NNODES=2", args: "-np 2 -H a:2 t", warns: "PET_NNODES=2 is not used: --hosts says"},
		{env: "PET_NNODES=2", args: "-np 2 -hostfile f t", warns: "PET_NNODES=2 is not used: --hostfile says"},
		{env: "PET_NNODES=1:4", args: "-np 2 --host-discovery-script s t",
			warns: "PET_NNODES=1:4 is not used: --host-discovery-script says"},
		{env: "PET_NNODES=2", args: "-np 2 --mpi t", warns: "PET_NNODES=2 is not used: with --mpi"},
		{env: "PET_NNODES=2", args: "-np 2 --input i --results r t", warns: "PET_NNODES=2 is not used: horovod.run"},
		{env: "PET_NNODES=1", args: "-np 2 -H a:2 t"},
		{env: "PET_NNODES=2 HOROVOD_RANK=1", args: "-np 2 t"},
		{env: "PET_NNODES=2 HOROVOD_RANK=1", args: "-np 2 -H a:2 t"},
		{env: "PET_NNODES=2 TORCHELASTIC_RUN_ID=none RANK=1", args: "-np 2 t"},
		{env: "PET_NNODES=2 RANK=1", args: "-np 2 t", nodes: 2},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			for _, v := range strings.Fields("HOROVOD_RANK= TORCHELASTIC_RUN_ID= JOB_COMPLETION_INDEX=1 " +
				"PET_MASTER_ADDR=a " + c.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			f, err := Parse("horovodrun", strings.Fields(c.args))
			if err != nil {
				t.Fatal(err)
			}
			switch got := strings.Join(f.Warnings, "; "); {
			case c.nodes == 0 && f.Place != nil || c.nodes > 0 && (f.Place == nil || f.Place.Count != c.nodes ||
				f.Place.Elastic != c.elastic):
				t.Errorf("the place is %+v, want one of %d", f.Place, c.nodes)
			case !strings.HasPrefix(got, c.warns) || c.warns == "" && got != "":
				t.Errorf("it warns %q, want %q", got, c.warns)
			}
		})
	}
	for name, value := range map[string]string{"PET_NNODES": "many", "HOROVOD_RANK": "", "TORCHELASTIC_RUN_ID": ""} {
		t.Setenv(name, value)
	}
	if _, err := Parse("horovodrun", strings.Fields("-np 2 t")); err == nil ||
		!strings.Contains(err.Error(), `PET_NNODES "many": a number`) {
		t.Error(err)
	}
}
