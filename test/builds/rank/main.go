// Command rank is one rank of the jobs that this test runs. It joins the job, and prints the error that it gets.
package main

import (
	"fmt"
	"os"

	"github.com/gorovod/gorovod/hvd"
)

func main() {
	if err := hvd.Init(); err != nil {
		fmt.Println("told:", err)
		os.Exit(1)
	}
	hvd.Shutdown()
}
