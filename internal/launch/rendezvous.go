package launch

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/gorovod/gorovod/internal/auth"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/rendezvous"
)

// meeting are the options of gorovod rendezvous.
type meeting struct {
	NumProc int    `name:"num-proc" short:"n" aliases:"np" required:"" placeholder:"N" help:"Number of ranks of the job (also --np)."`
	Listen  string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"This host's address at which all ranks reach it; port 0 takes a free one. Default: 127.0.0.1:0, for ranks on this host."`
}

const meetingHelp = `Let the ranks of a job find one another whose processes are started by other means than horovodrun. It prints the variables
that all of them need; each needs HOROVOD_RANK, and should have HOROVOD_LOCAL_RANK, _LOCAL_SIZE, _CROSS_RANK, _CROSS_SIZE and
HOROVOD_HOSTNAME besides. The secret is that of HOROVOD_SECRET_KEY, if it is set, and is made otherwise. It serves until it is
interrupted, and knows nothing of the processes: whoever starts them must end them, too.`

// serveRendezvous is the subcommand. It blocks until a signal ends it.
func serveRendezvous(name string, args []string, secret string, stdout io.Writer) (code int, err error) {
	var o meeting
	var help bytes.Buffer
	parser, err := kong.New(&o, kong.Name(name), kong.Writers(&help, &help), kong.Exit(func(int) {}), kong.Description(meetingHelp))
	if err != nil {
		return exitUsage, err
	}
	_, err = parser.Parse(args)
	switch {
	case help.Len() > 0:
		_, err := help.WriteTo(stdout)
		return 0, err
	case err != nil:
		return exitUsage, err
	case o.NumProc < 1 || o.NumProc > maxSlots:
		return exitUsage, fmt.Errorf("-n %d: a number from 1 to %d is needed", o.NumProc, maxSlots)
	}
	key := make([]byte, 32)
	if secret == "" {
		rand.Read(key)
	} else if key, err = config.ParseKey(secret); err != nil {
		return exitUsage, fmt.Errorf("%s: %w", secretVariable, err)
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil || host == "" {
		return exitUsage, fmt.Errorf("--listen %s: HOST:PORT is needed", o.Listen)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return 1, err
	}
	s := rendezvous.NewServer(key, o.NumProc)
	s.Knocks = auth.NewKnocks(func(text string) { fmt.Fprintln(os.Stderr, text) })
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	_, err = fmt.Fprintf(stdout, "HOROVOD_SIZE=%d\nHOROVOD_GLOO_RENDEZVOUS_ADDR=%s\nHOROVOD_GLOO_RENDEZVOUS_PORT=%d\n%s=%s\n",
		o.NumProc, host, l.Addr().(*net.TCPAddr).Port, secretVariable, hex.EncodeToString(key))
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
