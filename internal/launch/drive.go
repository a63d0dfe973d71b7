package launch

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"

	"github.com/gorovod/gorovod/internal/commandline"
	"github.com/gorovod/gorovod/internal/elastic/drive"
	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// driveCommand is for programs that start the processes of an elastic job themselves. The list of commands does not
// show it.
var driveCommand = &commandline.Command{
	Name:  "drive",
	Usage: "",
	About: "Drive an elastic job whose processes another program starts",
	Detail: `That program starts this one, and exchanges lines of JSON with it: requests on its stdin, events on its
stdout. The page "Writing a launcher" of the documentation lists them. When stdin ends, the job ends.`,
	Grammar: func() any { return &struct{}{} },
}

// serveDrive is the subcommand. It blocks until the job is over.
func serveDrive(name string, args []string, stdin io.Reader, stdout io.Writer) (code int, err error) {
	help, err := driveCommand.Parse(name, &struct{}{}, args)
	switch {
	case help != "":
		_, err := io.WriteString(stdout, help)
		return 0, err
	case err != nil:
		return exitUsage, err
	}
	var near *meetingPoint
	err = drive.Run(stdin, stdout, func(c drive.Config) (n drive.Network, err error) {
		if near, err = meetFor(c); err != nil {
			return n, err
		}
		return driveNetwork(c, near), nil
	})
	if near != nil {
		near.close()
	}
	var wrong *drive.RequestError
	switch {
	case errors.As(err, &wrong):
		return exitUsage, err
	case err != nil:
		return 1, err
	}
	return 0, nil
}

// driveNetwork returns how the workers reach the driver (at near) and each epoch's rendezvous (at a meeting point like
// near).
func driveNetwork(c drive.Config, near *meetingPoint) drive.Network {
	interfaces := c.Interfaces
	if near.local {
		interfaces = []string{"lo"}
	}
	return drive.Network{
		Listeners: near.listeners,
		Meet: func() ([]net.Listener, func(string) []string, error) {
			m, err := meetFor(c)
			if err != nil {
				return nil, nil, err
			}
			list := placeTexts(m.seenFrom(c.Address))
			return m.listeners, func(string) []string { return list }, nil
		},
		Environment: func(a membership.Start) map[string]string {
			set := slotOf(a).variables()
			maps.Copy(set, elasticVariables(nil, a, near.seenFrom(c.Address), interfaces))
			delete(set, secretVariable) // the starter has it, and hands it to workers in private
			return set
		},
	}
}

// meetFor listens where the workers of a job can reach it: on loopback only, if that is where this host is known.
func meetFor(c drive.Config) (*meetingPoint, error) {
	if a, err := netip.ParseAddr(c.Address); err == nil && a.IsLoopback() && len(c.Interfaces) == 0 {
		return meetHere()
	}
	return meetAnywhere(c.Interfaces)
}

func placeTexts(addrs []netip.AddrPort) (list []string) {
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}
