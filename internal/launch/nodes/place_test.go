package nodes

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	one, port := 1, 4000
	torch := map[string]string{"PET_NNODES": "4", "PET_NODE_RANK": "3", "PET_MASTER_ADDR": "job-node-0-0.job",
		"PET_MASTER_PORT": "29400", "PET_NPROC_PER_NODE": "8"}
	for _, c := range []struct {
		name  string
		asked Asked
		env   map[string]string
		host  string
		want  Place
		none  bool
		err   string
	}{
		{name: "nothing", none: true},
		{name: "torch runtime", env: torch,
			want: Place{Count: 4, Least: 4, Rank: 3, Slots: "8", Head: "job-node-0-0.job", Port: 29400}},
		{name: "options win", asked: Asked{Nodes: "2", Rank: &one, Port: &port, Slots: "gpu", Head: "a"}, env: torch,
			want: Place{Count: 2, Least: 2, Rank: 1, Slots: "gpu", Head: "a", Port: 4000}},
		{name: "indexed job", env: map[string]string{"PET_NNODES": "3", "JOB_COMPLETION_INDEX": "2"},
			host: "train-2.train.ns.svc.cluster.local",
			want: Place{Count: 3, Least: 3, Rank: 2, Slots: "auto", Head: "train-0.train.ns.svc.cluster.local",
				Port: 29500}},
		{name: "jobset", env: map[string]string{"PET_NNODES": "3", "JOB_COMPLETION_INDEX": "0"}, host: "set-w-0-0",
			want: Place{Count: 3, Least: 3, Rank: 0, Slots: "auto", Head: "set-w-0-0", Port: 29500}},
		{name: "one node", env: map[string]string{"PET_NNODES": "1"}, host: "any",
			want: Place{Count: 1, Least: 1, Rank: 0, Slots: "auto", Head: "localhost", Port: 29500}},
		{name: "no count", env: map[string]string{"JOB_COMPLETION_INDEX": "2"}, err: "pod 2 of an indexed Job"},
		{name: "no rank", asked: Asked{Nodes: "2"},
			err: "--node-rank is missing: give it, or set PET_NODE_RANK or JOB_COM"},
		{name: "rank too large", asked: Asked{Nodes: "2"}, env: torch, err: `PET_NODE_RANK "3": a number from 0 to 1`},
		{name: "elastic", env: map[string]string{"PET_NNODES": "2:4", "JOB_COMPLETION_INDEX": "7"}, host: "a-7.b",
			want: Place{Count: 4, Least: 2, Elastic: true, Rank: 7, Slots: "auto", Head: "a-0.b", Port: 29500}},
		{name: "made elastic", asked: Asked{Nodes: "4", Rank: &one, Elastic: true, ID: "x"}, host: "a-1",
			want: Place{Count: 4, Least: 1, Elastic: true, Rank: 1, ID: "x", Slots: "auto", Head: "a-0", Port: 29500}},
		{name: "no number", env: map[string]string{"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "w-0.w:29400",
			"PET_RDZV_ID": "j"}, host: "w-3.w",
			want: Place{Count: 4, Least: 1, Elastic: true, Rank: -1, ID: "j", Slots: "auto", Head: "w-0.w",
				Port: 29400}},
		{name: "its own endpoint",
			env: map[string]string{"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "w-0.w"}, host: "w-0",
			want: Place{Count: 4, Least: 1, Elastic: true, Rank: 0, Slots: "auto", Head: "w-0.w", Port: 29500}},
		{name: "brackets", asked: Asked{Nodes: "2", Rank: &one}, env: map[string]string{"PET_MASTER_ADDR": "[::1]"},
			want: Place{Count: 2, Least: 2, Rank: 1, Slots: "auto", Head: "::1", Port: 29500}},
		{name: "zone", asked: Asked{Nodes: "2", Rank: &one, Head: "fe80::1%eth0"},
			want: Place{Count: 2, Least: 2, Rank: 1, Slots: "auto", Head: "fe80::1%eth0", Port: 29500}},
		{name: "dot", asked: Asked{Nodes: "2", Rank: &one, Head: "A_1.b-c."},
			want: Place{Count: 2, Least: 2, Rank: 1, Slots: "auto", Head: "A_1.b-c.", Port: 29500}},
		{name: "with port", asked: Asked{Nodes: "2", Rank: &one}, env: map[string]string{"PET_MASTER_ADDR": "h:29500"},
			err: `PET_MASTER_ADDR "h:29500": the name or the address of node 0 is needed, without its port`},
		{name: "blank", asked: Asked{Nodes: "2", Rank: &one, Head: " "}, err: `--master-addr " ": the name`},
		{name: "long", asked: Asked{Nodes: "2", Rank: &one, Head: strings.Repeat("a", 300)}, err: "…\": the name"},
		{name: "long but for its dots", asked: Asked{Nodes: "2", Rank: &one, Head: strings.Repeat("a.", 130)},
			err: "--master-addr \"a.a."},
		{name: "brackets around a name", asked: Asked{Nodes: "1:2", Rank: &one, Head: "[h]"}, err: `--master-addr "[h]"`},
		{name: "no name at an endpoint", env: map[string]string{"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "a b:29400"},
			err: `PET_RDZV_ENDPOINT "a b"`},
		{name: "no range", env: map[string]string{"PET_NNODES": "4:1"}, err: `PET_NNODES "4:1": a number`},
		{name: "nameless", asked: Asked{Nodes: "2", Rank: &one}, host: "worker", err: "--master-addr is missing"},
		{name: "other number", asked: Asked{Nodes: "2", Rank: &one}, host: "worker-7",
			err: "--master-addr is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, found, err := Find(c.asked, func(name string) string { return c.env[name] }, c.host)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil || found == c.none || found && got != c.want {
				t.Fatalf("%+v %v %v, want %+v", got, found, err, c.want)
			}
		})
	}
}

func TestFullName(t *testing.T) {
	const file = "127.0.0.1 localhost\n# train-1.x\n10.0.0.7\ttrain-1.train.ns.svc.cluster.local\ttrain-1\n\n"
	if got := FullName("train-1", file); got != "train-1.train.ns.svc.cluster.local" {
		t.Errorf("%q", got)
	}
	if got := FullName("train-2", file); got != "train-2" {
		t.Errorf("%q", got)
	}
}
