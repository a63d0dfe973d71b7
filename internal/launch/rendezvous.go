package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// rendezvousOptions are the options of gorovod rendezvous.
type rendezvousOptions struct {
	NumProc int    `name:"num-proc" short:"n" onedash:"np" aliases:"np" required:"" placeholder:"N" help:"Number of ranks of the job. Required."`
	Listen  string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"The address of this host at which all ranks reach it; with port 0 the system chooses the port. Default: 127.0.0.1:0, for ranks on this host."`
}

var meetingCommand = &commandline.Command{
	Name:  "rendezvous",
	Usage: "-n N [--listen HOST:PORT]",
	About: "Let ranks meet that another program starts",
	Detail: `The command prints the variables that all ranks of the job need. Give each rank HOROVOD_RANK, too, and if you can
HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE, HOROVOD_CROSS_RANK, HOROVOD_CROSS_SIZE and HOROVOD_HOSTNAME.
The secret is that of HOROVOD_SECRET_KEY, or a new one if this variable is not set.

The command serves until you interrupt it. It does not watch the ranks: end them yourself.`,
	Examples: []commandline.Example{
		{Line: "gorovod rendezvous -n 4", About: "For 4 ranks on this host."},
		{Line: "gorovod rendezvous -n 8 --listen node1:4711", About: "For 8 ranks on any host that reaches this " +
			"one as node1."},
	},
	Grammar: func() any { return &rendezvousOptions{} },
}

// serveRendezvous is the subcommand. It blocks until a signal ends it.
func serveRendezvous(name string, args []string, secret string, stdout io.Writer) (code int, err error) {
	var o rendezvousOptions
	help, err := meetingCommand.Parse(name, &o, args)
	switch {
	case help != "":
		return show(name, help), nil
	case err != nil:
		return ending.UsageCode, err
	case o.NumProc < 1 || o.NumProc > placement.MaxSlots:
		return ending.UsageCode, fmt.Errorf("-n %d: a number from 1 to %d is needed", o.NumProc, placement.MaxSlots)
	}
	certificates, err := flags.CheckedCertificates(os.Getenv)
	if err != nil {
		return ending.UsageCode, err
	}
	key := make([]byte, 32)
	if secret == "" {
		rand.Read(key)
	} else if key, err = config.ParseKey(secret); err != nil {
		return ending.UsageCode, fmt.Errorf("%s: %w", spawn.SecretVariable, err)
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil || host == "" {
		return ending.UsageCode, fmt.Errorf("--listen %s: HOST:PORT is needed", o.Listen)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return 1, err
	}
	s := rendezvous.NewServer(key, o.NumProc)
	s.Knocks = auth.NewKnocks(func(text string) { logging.Warn(name, text) })
	s.Certificates = certificates
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	_, err = fmt.Fprintf(stdout,
		"HOROVOD_SIZE=%d\nHOROVOD_GLOO_RENDEZVOUS_ADDR=%s\nHOROVOD_GLOO_RENDEZVOUS_PORT=%d\n%s=%s\n", o.NumProc, host,
		l.Addr().(*net.TCPAddr).Port, spawn.SecretVariable, hex.EncodeToString(key))
	if err == nil {
		<-ctx.Done()
	}
	s.Close()
	<-served
	if err != nil {
		return 1, err
	}
	return 0, nil
}
