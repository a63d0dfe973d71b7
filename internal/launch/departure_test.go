package launch

import (
	"strings"
	"testing"
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
		"--nnodes 4 --node-rank 0 --master-addr a --min-np 3 --max-np 2 t": "--max-np 2 is below --min-np 3",
	} {
		_, err := parseFlags("horovodrun", strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
