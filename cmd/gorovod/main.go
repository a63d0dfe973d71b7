// Command gorovod starts distributed jobs: gorovod run -np 4 python train.py.
// Under the name horovodrun it is Horovod's launcher.
package main

import (
	"os"

	"github.com/gorovod/gorovod/internal/launch"
)

// noStdout: the program has begun with a closed stdout, where Go's runtime has opened /dev/null. gorovod_entry sets it.
var noStdout bool

func main() {
	if noStdout {
		launch.WithoutStdout()
	}
	os.Exit(launch.Main(os.Args))
}
