// Command gorovod starts distributed jobs: gorovod run -np 4 python train.py.
// Under the name horovodrun it is Horovod's launcher.
package main

import (
	"os"

	"github.com/gorovod/gorovod/internal/launch"
)

func main() { os.Exit(launch.Main(os.Args)) }
